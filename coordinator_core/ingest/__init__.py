"""Logs made of records that a consumer has read: less than a snapshot, and marked as that."""

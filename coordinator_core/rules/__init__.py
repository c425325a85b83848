"""Reconciliation: rules over the tables of a run, and what they find."""

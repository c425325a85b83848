"""Warnings about a snapshot."""

from __future__ import annotations

from coordinator_core.cli.options import note
from coordinator_core.log.types import Snapshot
from coordinator_core.log.unread import snapshot_warnings


def warn_about_snapshot(snapshot: Snapshot) -> None:
    """Warn of a log that may seem to hold less than it does."""
    for text in snapshot_warnings(snapshot):
        note(f"regroup: warning: {text}")

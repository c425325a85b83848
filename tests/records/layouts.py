"""Layouts that no profile chooses."""

from __future__ import annotations

from coordinator_core.records.codec import Layouts

SHARE_3_9 = Layouts("share-3.9", ("share-3.9", "share-4.0"))
"""Share groups in early access, 3.9: reading finds this layout by trial."""

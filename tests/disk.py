"""Directories for what is too large for memory, where the tests have their temporary files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def on_disk() -> Iterator[Path]:
    """A directory that is not in memory, also under ``.ci/in-memory.sh``; removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="regroup-", dir=os.environ.get("REGROUP_DISK")) as place:
        yield Path(place)

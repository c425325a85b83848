"""The switch that leaves a process as Python, the C library and the packages in use would have it."""

from __future__ import annotations

import os

PLAIN = "REGROUP_PLAIN"
"""Environment variable: names of the settings to leave out, with commas, or ``all``; docs/operations.md lists them."""


def is_plain(name: str) -> bool:
    """Whether ``name`` is to be left out."""
    return not {name, "all"}.isdisjoint(os.environ.get(PLAIN, "").split(","))

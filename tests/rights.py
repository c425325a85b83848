"""Processes that have none of the rights of root, so that permissions hold for them."""

from __future__ import annotations

import ctypes

_VERSION_3 = 0x20080522


def give_up() -> None:
    """Drop every capability of this thread, for good; whoever is not root has none."""
    header, none = (ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if ctypes.CDLL(None, use_errno=True).capset(header, none) != 0:
        raise OSError(ctypes.get_errno(), "capset")

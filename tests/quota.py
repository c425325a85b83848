"""Processes to which the kernel answers every write with an error, that of a used-up quota say."""

from __future__ import annotations

import ctypes
import platform
import struct

_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _IF_EQUAL, _IF_ABOVE, _RETURN = 0x20, 0x15, 0x25, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _FIRST_ARGUMENT = 0, 16
_CALLS = {"x86_64": (1, 18, 20, 40), "aarch64": (64, 68, 66, 71)}[platform.machine()]
"""write, pwrite64, writev, sendfile."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def refuse_writes(error: int) -> None:
    """Have the kernel refuse writes of this process, but to standard streams, with that error number, for good."""
    count = len(_CALLS)
    steps = [(_LOAD, 0, 0, _NUMBER)]
    steps += [(_IF_EQUAL, count - number, 0, call) for number, call in enumerate(_CALLS)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_IF_ABOVE, 0, 1, 2)]
    steps += [(_RETURN, 0, 0, _ERRNO | error), (_RETURN, 0, 0, _ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = _Program(len(steps), ctypes.addressof(code))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")

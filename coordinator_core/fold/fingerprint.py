"""Fingerprints of segments: which bytes a run has read."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

import numpy as np

from coordinator_core.kernels import gather_headers
from coordinator_core.kernels.layout import Stop
from coordinator_core.log.layout import HEADER_BYTES

_FORMAT = b"regroup segment fingerprint 1\n"
_SIZES = struct.Struct(">qq")
_CHUNK_HEADERS = 1 << 10
"""The bytes of so few batches stay in the processor's cache."""
_MANY_HEADERS = 1 << 15


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """``digest`` is in hex; ``intact`` says that the bytes are nothing but v2 batches with valid CRCs.

    ``content`` is the SHA-256 of all bytes, in hex, where it was asked for.
    """

    digest: str
    intact: bool
    content: str | None = None


def fingerprint(data: memoryview) -> Fingerprint:
    """The fingerprint of a segment's bytes.

    It is the SHA-256 of: the 61 header bytes of each intact v2 batch at the beginning of the segment, whose
    CRC-32C stands for the rest of the batch and is checked here; all bytes from the first on that is not part
    of such a batch (messages of formats 0 and 1, damage, a torn or preallocated tail); the sizes of both.

    So it changes with any byte that is changed by accident, at the price of a CRC. It does not withstand
    forgery as the SHA-256 of the whole file does, which ``regroup verify`` tells and the fold cache asks for.
    """
    return RunningFingerprint(data).finish()


class RunningFingerprint:
    """The :func:`fingerprint` of ``data`` in the making, for who reads the bytes in the same pass.

    ``with_content`` has the SHA-256 of all bytes taken along, while they are in the processor's cache.
    """

    def __init__(self, data: memoryview, *, with_content: bool = False) -> None:
        self.position = 0
        """The bytes before it are intact v2 batches."""
        self.ended = False
        """No intact batch begins at ``position``."""
        self.data = data
        self._array = np.frombuffer(data, np.uint8)
        self._digest = hashlib.sha256(_FORMAT)
        self._content = hashlib.sha256() if with_content else None

    def advance(self, batches: int = _CHUNK_HEADERS) -> None:
        """Move ``position`` over so many more batches."""
        headers = np.empty(batches * HEADER_BYTES, np.uint8)
        begin = self.position
        status, self.position, count = gather_headers(self._array, self.position, len(self._array), headers)
        self._digest.update(headers[: count * HEADER_BYTES].data)
        if self._content is not None:
            self._content.update(self.data[begin : self.position])
        self.ended = status != Stop.FULL

    def finish(self) -> Fingerprint:
        """The fingerprint of all bytes."""
        while not self.ended:
            self.advance(_MANY_HEADERS)
        digest = self._digest.copy()
        digest.update(self.data[self.position :])
        digest.update(_SIZES.pack(self.position, len(self.data) - self.position))
        content = None
        if self._content is not None:
            whole = self._content.copy()
            whole.update(self.data[self.position :])
            content = whole.hexdigest()
        return Fingerprint(digest.hexdigest(), self.position == len(self.data), content)

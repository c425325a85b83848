"""Fingerprints of segments: which bytes a run has read."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

import numpy as np

from coordinator_core.kernels import gather_headers
from coordinator_core.kernels.layout import Stop
from coordinator_core.log.layout import HEADER_BYTES
from coordinator_core.log.windows import Windows

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


def fingerprint(data: memoryview | Windows) -> Fingerprint:
    """The fingerprint of a segment's bytes.

    It is the SHA-256 of: the 61 header bytes of each intact v2 batch at the beginning of the segment, whose
    CRC-32C stands for the rest of the batch and is checked here; all bytes from the first on that is not part
    of such a batch (messages of formats 0 and 1, damage, a torn or preallocated tail); the sizes of both.

    So it changes with any byte that is changed by accident, at the price of a CRC. It does not withstand
    forgery as the SHA-256 of the whole file does, which ``regroup verify`` tells and the fold cache asks for.
    """
    return RunningFingerprint(data).finish()


class RunningFingerprint:
    """The :func:`fingerprint` of ``source`` in the making, for who reads the bytes in the same pass.

    ``with_content`` has the SHA-256 of all bytes taken along, while they are in the processor's cache.
    """

    def __init__(self, source: memoryview | Windows, *, with_content: bool = False) -> None:
        self.position = 0
        """The bytes before it are intact v2 batches."""
        self.ended = False
        """No intact batch begins at ``position``."""
        self.windows = source if isinstance(source, Windows) else Windows(source)
        self._digest = hashlib.sha256(_FORMAT)
        self._content = hashlib.sha256() if with_content else None

    def advance(self, batches: int = _CHUNK_HEADERS) -> None:
        """Advance ``position`` by at most ``batches`` batches."""
        headers = np.empty(batches * HEADER_BYTES, np.uint8)
        view, first = self.windows.at(self.position)
        begin = self.position - first
        status, reached, count = gather_headers(np.frombuffer(view, np.uint8), begin, len(view), headers)
        self._digest.update(headers[: count * HEADER_BYTES].data)
        if self._content is not None:
            self._content.update(view[begin:reached])
        self.position = first + reached
        # The window of a batch holds all of it.
        self.ended = self.position == self.windows.size or (status == Stop.UNUSUAL_BATCH and reached == begin)

    def finish(self) -> Fingerprint:
        """The fingerprint of all bytes."""
        while not self.ended:
            self.advance(_MANY_HEADERS)
        digest = self._digest.copy()
        whole = None if self._content is None else self._content.copy()
        at = self.position
        while at < self.windows.size:
            view, first = self.windows.covering(at, 1)
            for running in (digest, whole):
                if running is not None:
                    running.update(view[at - first :])
            at = first + len(view)
        digest.update(_SIZES.pack(self.position, self.windows.size - self.position))
        content = None if whole is None else whole.hexdigest()
        return Fingerprint(digest.hexdigest(), self.position == self.windows.size, content)

"""Fingerprints of segments: which bytes a run has read."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

import numpy as np

from coordinator_core.columnar.kernels import HEADER_BYTES, Status, gather_headers

_FORMAT = b"regroup segment fingerprint 1\n"
_SIZES = struct.Struct(">qq")
_CHUNK_HEADERS = 1 << 14


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """``digest`` is in hex; ``intact`` says that the bytes are nothing but v2 batches with valid CRCs."""

    digest: str
    intact: bool


def fingerprint(data: memoryview) -> Fingerprint:
    """The fingerprint of a segment's bytes.

    It is the SHA-256 of: the 61 header bytes of each intact v2 batch at the beginning of the segment, whose
    CRC-32C stands for the rest of the batch and is checked here; all bytes from the first on that is not part
    of such a batch (messages of formats 0 and 1, damage, a torn or preallocated tail); the sizes of both.

    So it changes with any byte that is changed by accident, at the price of a CRC. It does not withstand
    forgery as the SHA-256 of the whole file does, which ``regroup verify`` tells.
    """
    digest = hashlib.sha256(_FORMAT)
    array = np.frombuffer(data, np.uint8)
    headers = np.empty(_CHUNK_HEADERS * HEADER_BYTES, np.uint8)
    done = np.zeros(2, np.int64)
    status = Status.GROW
    while status == Status.GROW:
        status = Status(gather_headers(array, int(done[0]), len(array), headers, done))
        digest.update(headers[: int(done[1]) * HEADER_BYTES].data)
    position = int(done[0])
    digest.update(data[position:])
    digest.update(_SIZES.pack(position, len(data) - position))
    return Fingerprint(digest.hexdigest(), position == len(data))

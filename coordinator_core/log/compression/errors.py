"""Errors of compressed bytes."""

from __future__ import annotations

from coordinator_core.log.types import Codec


class CompressionError(Exception):
    """The codec's framing does not allow the compressed bytes."""


class DecompressedTooLargeError(CompressionError):
    """The output would exceed the limit."""

    def __init__(self, codec: Codec, max_bytes: int) -> None:
        super().__init__(f"{codec.name.lower()} data decompresses to more than the limit of {max_bytes} bytes")

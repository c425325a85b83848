"""Hard limits on the memory that one batch, and one log, may make the reader hold."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from coordinator_core.errors import Damage, UsageError

MIB = 1 << 20

STANDING_VARIABLE = "REGROUP_MAX_STANDING_BYTES"
_STANDING_FLOOR_BYTES = 4096 * MIB
_STANDING_RATIO = 16
_ELEMENT_BYTES = 1024
"""More than an element of an array in a group record takes as an object: 4 GiB are for four million."""


def standing_allowance(log_bytes: int) -> int:
    """The most bytes of names and values that may stand at the end of an offsets partition of ``log_bytes`` bytes.

    Uncompressed logs stand for less than their size. 4 GiB are a million committed offsets with all the metadata that a
    broker takes by default (``offset.metadata.max.bytes``, 4096), however well they compress; above that it is 16 times
    the segments, which real logs do not reach. The variable ``REGROUP_MAX_STANDING_BYTES`` sets another number;
    ``UsageError`` where it is none.
    """
    text = os.environ.get(STANDING_VARIABLE, "")
    if not text:
        return max(_STANDING_FLOOR_BYTES, _STANDING_RATIO * log_bytes)
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise UsageError(f"{STANDING_VARIABLE}: a number of bytes, not {text[:40]!r}")
    return int(text)


def elements_allowance(allowance: int) -> int:
    """The most elements of arrays in group records that may stand where ``allowance`` bytes may: each is an object."""
    return allowance // _ELEMENT_BYTES


def too_large(path: str, what: str, allowance: int, position: int = 0, record_offset: int | None = None) -> Damage:
    """The damage where ``what`` comes to more than is allowed in memory."""
    detail = f"{what} to more than {allowance} bytes; {STANDING_VARIABLE} allows more, where there is memory for it"
    return Damage(path, position, record_offset, "too_large", detail)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that are enforced while reading, on bytes read and not on sizes that the input declares.

    ``max_batch_bytes``: largest entry accepted.  A broker takes no request above
    ``socket.request.max.bytes`` (100 MiB by default), so no batch of a real log is larger.

    A compressed batch of any ratio may grow to ``decompressed_floor_bytes``: coordinators write one group or one
    request per batch, and people compress this topic exactly because a group of thousands of members does not fit
    ``message.max.bytes`` otherwise.  Above the floor it may grow to ``max_ratio`` times its compressed size, so that
    decompressing never takes ten times the input; and never beyond ``max_decompressed_bytes``.

    ``max_records`` bounds records and headers of one batch together: as objects they take twenty times
    their seven bytes.  A coordinator's batch of default size holds a tenth of it.

    Of what segments unpack to, a fold holds up to ``kept_floor_bytes``, or ``kept_ratio`` times their size
    where that is more, which real logs do not reach; then it is merged and another one goes on, as it is when it has
    taken ``fold_bytes`` of a segment.
    """

    max_batch_bytes: int = 128 * MIB
    max_decompressed_bytes: int = 512 * MIB
    max_ratio: int = 8
    decompressed_floor_bytes: int = 32 * MIB
    max_records: int = 1 << 18
    kept_floor_bytes: int = 64 * MIB
    kept_ratio: int = 16
    fold_bytes: int = sys.maxsize

    def decompressed_allowance(self, compressed_bytes: int) -> int:
        """The most bytes that ``compressed_bytes`` bytes may become."""
        grown = max(self.decompressed_floor_bytes, self.max_ratio * compressed_bytes)
        return min(grown, self.max_decompressed_bytes)

    def kept_allowance(self, segment_bytes: int) -> int:
        """The most unpacked bytes that one fold of ``segment_bytes`` bytes of segments holds."""
        return max(self.kept_floor_bytes, self.kept_ratio * segment_bytes)

"""Hard limits on what one batch may make the reader hold in memory."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that are enforced while reading, whatever sizes the input declares.

    ``max_batch_bytes``: largest entry accepted.  A broker takes no request above
    ``socket.request.max.bytes`` (100 MiB by default), so no batch of a real log is larger.

    A compressed batch may grow to ``decompressed_floor_bytes`` whatever its ratio: coordinators write
    one group or one request per batch, and people compress this topic exactly because a group of
    thousands of members does not fit ``message.max.bytes`` otherwise.  Above the floor it may grow to
    ``max_ratio`` times its compressed size, so that decompressing never takes ten times the input; and
    never beyond ``max_decompressed_bytes``.

    ``max_records`` bounds records and headers of one batch together: as objects they take twenty times
    their seven bytes.  A coordinator's batch of default size holds a tenth of it.

    Of what segments unpack to, a fold holds up to ``kept_floor_bytes``, or ``kept_ratio`` times their size
    where that is more, which real logs do not reach; then it is merged and another one goes on.
    """

    max_batch_bytes: int = 128 * MIB
    max_decompressed_bytes: int = 512 * MIB
    max_ratio: int = 8
    decompressed_floor_bytes: int = 32 * MIB
    max_records: int = 1 << 18
    kept_floor_bytes: int = 64 * MIB
    kept_ratio: int = 16

    def decompressed_allowance(self, compressed_bytes: int) -> int:
        """The most bytes that ``compressed_bytes`` bytes may become."""
        grown = max(self.decompressed_floor_bytes, self.max_ratio * compressed_bytes)
        return min(grown, self.max_decompressed_bytes)

    def kept_allowance(self, segment_bytes: int) -> int:
        """The most unpacked bytes that one fold of ``segment_bytes`` bytes of segments holds."""
        return max(self.kept_floor_bytes, self.kept_ratio * segment_bytes)

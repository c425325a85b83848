"""Versions that ended, small while they wait: numbers of as many bytes as they need, bucket by bucket."""

import cython

if not cython.compiled:
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.primitives import *

_AT_A_TIME = cython.declare(Int, 32)
"""So many rows ahead the processor fetches the next ones."""
_SIZES_BYTES = cython.declare(Int, 6)
"""A packed version begins with the sizes of its 12 numbers, each of four bits, the first one lowest."""


@cython.cfunc
def _put_difference(out: MutableBytes, at: Int, value: Int, base: Int, field: Int, sizes: Word) -> tuple[Int, Word]:
    """Store in which bits ``value`` differs from ``base``, in as many bytes as that takes, the lowest first.

    Returns the position behind it, and ``sizes`` with the one of this ``field``. Eight bytes are written.
    """
    word: Word = cython.cast(Word, value ^ base) & ALL_64_BITS
    size: Int = byte_length(word)
    put_le64(out, at, word)
    return at + size, sizes | cython.cast(Word, size) << (4 * field)


@cython.cfunc
def _with_difference(data: Bytes, at: Int, base: Int, field: Int, sizes: Word) -> tuple[Int, Int]:
    """The value that :func:`_put_difference` stored, and the position behind it: ``INVALID`` if it is not there."""
    size: Int = (sizes >> (4 * field)) & 0xF
    if at < 0 or size > 8 or size > len(data) - at:
        return base, INVALID
    return base ^ signed(_number(data, at, size)), at + size


@cython.cfunc
def _number(data: Bytes, at: Int, size: Int) -> Word:
    """The number in ``size`` bytes, the lowest first."""
    word: Word = 0
    if size == 8:
        return le64(data, at)
    if at + 8 <= len(data):
        return le64(data, at) & ((cython.cast(Word, 1) << (8 * size)) - 1)
    while size > 0:
        size -= 1
        word = word << 8 | data[at + size]
    return word


@cython.cfunc
def _pack(row: ClosedVersion, base: ClosedVersion, out: MutableBytes, at: Int) -> Int:
    """Store a version at ``at``, all but its group; returns the position behind it."""
    start: Int = at
    sizes: Word = 0
    at += _SIZES_BYTES
    at, sizes = _put_difference(out, at, row.key, base.key, 0, sizes)
    at, sizes = _put_difference(out, at, row.first_committed_offset, base.first_committed_offset, 1, sizes)
    at, sizes = _put_difference(out, at, row.committed_offset, row.first_committed_offset, 2, sizes)
    at, sizes = _put_difference(out, at, row.record_offset, base.record_offset, 3, sizes)
    at, sizes = _put_difference(out, at, row.timestamp, base.timestamp, 4, sizes)
    at, sizes = _put_difference(out, at, row.position, base.position, 5, sizes)
    at, sizes = _put_difference(out, at, row.last_record_offset, row.record_offset, 6, sizes)
    at, sizes = _put_difference(out, at, row.commits, 0, 7, sizes)
    at, sizes = _put_difference(out, at, row.metadata, 0, 8, sizes)
    at, sizes = _put_difference(out, at, row.writer, base.writer, 9, sizes)
    # Shifted: -1 differs from all others in every bit.
    at, sizes = _put_difference(out, at, row.leader_epoch + 1, base.leader_epoch + 1, 10, sizes)
    at, sizes = _put_difference(out, at, row.value_version, base.value_version, 11, sizes)
    for byte in range(_SIZES_BYTES):
        out[start + byte] = (sizes >> (8 * byte)) & 0xFF
    return at


@cython.cfunc
def _unpack(data: Bytes, at: Int, base: ClosedVersion, rows: ClosedVersionRows, row: Int) -> Int:
    """Put the version at ``at`` into a row, its group 0; returns the position behind it, or ``INVALID``."""
    if len(data) - at < _SIZES_BYTES:
        return INVALID
    sizes: Word = _number(data, at, _SIZES_BYTES)
    at += _SIZES_BYTES
    rows[row].key, at = _with_difference(data, at, base.key, 0, sizes)
    rows[row].first_committed_offset, at = _with_difference(data, at, base.first_committed_offset, 1, sizes)
    rows[row].committed_offset, at = _with_difference(data, at, rows[row].first_committed_offset, 2, sizes)
    rows[row].record_offset, at = _with_difference(data, at, base.record_offset, 3, sizes)
    rows[row].timestamp, at = _with_difference(data, at, base.timestamp, 4, sizes)
    rows[row].position, at = _with_difference(data, at, base.position, 5, sizes)
    rows[row].last_record_offset, at = _with_difference(data, at, rows[row].record_offset, 6, sizes)
    rows[row].commits, at = _with_difference(data, at, 0, 7, sizes)
    rows[row].metadata, at = _with_difference(data, at, 0, 8, sizes)
    rows[row].group = 0
    rows[row].writer, at = _with_difference(data, at, base.writer, 9, sizes)
    rows[row].leader_epoch, at = _with_difference(data, at, base.leader_epoch + 1, 10, sizes)
    rows[row].leader_epoch -= 1
    rows[row].value_version, at = _with_difference(data, at, base.value_version, 11, sizes)
    return at


def pack_versions(
    rows: ClosedVersionRows,
    count: Int,
    turn: MutableInt64s,
    counts: MutableInt64s,
    starts: MutableInt64s,
    out: MutableBytes,
) -> None:
    """Pack ``count`` versions in buckets by group: of group ``g`` into the bucket ``g`` modulo ``len(counts)``.

    In a bucket they stay in their order; ``turn`` gets the order of all. ``counts`` gets the number of versions of each
    bucket, ``starts`` where it begins in ``out``, and where the last one ends. All differ from the first of ``rows``.
    """
    buckets: Int = len(counts)
    at: Int = 0
    row: Int = 0
    bucket: Int = 0
    with cython.nogil:
        for bucket in range(buckets):
            counts[bucket] = 0
        for row in range(count):
            counts[rows[row].group % buckets] += 1
        for bucket in range(buckets):
            starts[bucket] = at
            at += counts[bucket]
        for row in range(count):
            bucket = rows[row].group % buckets
            turn[starts[bucket]] = row
            starts[bucket] += 1
        # Each start is now where its bucket ends in ``turn``.
        row = at = 0
        for bucket in range(buckets):
            stop = starts[bucket]
            starts[bucket] = at
            while row < stop:
                if cython.compiled and row + _AT_A_TIME < count:
                    fetch_ahead(cython.address(rows[turn[row + _AT_A_TIME]].first_committed_offset))
                    fetch_ahead(cython.address(rows[turn[row + _AT_A_TIME]].value_version))
                at = _pack(rows[turn[row]], rows[0], out, at)
                row += 1
        starts[buckets] = at


def unpack_versions(
    data: Bytes,
    base: ClosedVersionRows,
    places: MutableInt64s,
    text: Int,
    rows: ClosedVersionRows,
    texts: MutableInt64s,
    some: ClosedVersionRows,
) -> Int:
    """Put the versions that are packed in ``data`` into ``rows``: each where ``places`` has its key, which goes up.

    Versions of a key whose place is negative are left out; the group of the others is 0. ``texts`` gets where the
    metadata of each begin, one behind the other from ``text`` on. ``base`` is the row that all differ from. ``some`` is
    room for versions that are looked up together, so that the processor fetches them side by side. Returns
    where the last ones end, -1 if ``data`` is not what :func:`pack_versions` made of versions of these keys.
    """
    at: Int = 0
    if len(some) == 0:
        return -1
    with cython.nogil:
        while text >= 0 and at < len(data):
            at, text = _unpack_some(data, at, base[0], places, text, rows, texts, some)
    return text


@cython.cfunc
def _unpack_some(
    data: Bytes,
    at: Int,
    base: ClosedVersion,
    places: MutableInt64s,
    text: Int,
    rows: ClosedVersionRows,
    texts: MutableInt64s,
    some: ClosedVersionRows,
) -> tuple[Int, Int]:
    """Unpack as many versions as ``some`` has room for; returns what is behind them in ``data`` and in the texts."""
    count: Int = 0
    while count < len(some) and at < len(data):
        at = _unpack(data, at, base, some, count)
        if at == INVALID or not 0 <= some[count].key < len(places) or not 0 <= some[count].metadata <= 0x7FFF:
            return at, -1
        place = places[some[count].key]
        if cython.compiled and 0 <= place < len(rows):
            fetch_ahead(cython.address(rows[place].first_committed_offset))
            fetch_ahead(cython.address(rows[place].value_version))
            fetch_ahead(cython.address(texts[place]))
        count += 1
    for row in range(count):
        place = places[some[row].key]
        if place >= len(rows):
            return at, -1
        if place >= 0:
            rows[place] = some[row]
            texts[place] = text
            places[some[row].key] = place + 1
        text += some[row].metadata
    return at, text

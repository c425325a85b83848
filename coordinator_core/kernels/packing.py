"""Versions that ended, small while they wait: numbers of as many bytes as they need, bucket by bucket."""

import cython

if not cython.compiled:
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.primitives import *


@cython.cfunc
def _put_difference(out: MutableBytes, at: Int, value: Int, base: Int) -> Int:
    """Store in which bits ``value`` differs from ``base``, the lowest first; returns the position behind it."""
    return put_uvarint(out, at, cython.cast(Word, value ^ base) & ALL_64_BITS)


@cython.cfunc
def _with_difference(data: Bytes, at: Int, base: Int) -> tuple[Int, Int]:
    """The value that :func:`_put_difference` stored, and the position behind it: ``INVALID`` if it does not end."""
    word: Word = 0
    if at >= 0:
        word, at = uvarlong(data, at, len(data))
    return base ^ signed(word), at


@cython.cfunc
def _pack(row: ClosedVersion, base: ClosedVersion, out: MutableBytes, at: Int) -> Int:
    """Store a version at ``at``, all but its group; returns the position behind it."""
    at = _put_difference(out, at, row.key, base.key)
    at = _put_difference(out, at, row.first_committed_offset, base.first_committed_offset)
    at = _put_difference(out, at, row.committed_offset, row.first_committed_offset)
    at = _put_difference(out, at, row.record_offset, base.record_offset)
    at = _put_difference(out, at, row.timestamp, base.timestamp)
    at = _put_difference(out, at, row.position, base.position)
    at = _put_difference(out, at, row.last_record_offset, row.record_offset)
    at = _put_difference(out, at, row.commits, 0)
    at = _put_difference(out, at, row.metadata, 0)
    at = _put_difference(out, at, row.writer, base.writer)
    # Shifted: -1 differs from all others in every bit.
    at = _put_difference(out, at, row.leader_epoch + 1, base.leader_epoch + 1)
    return _put_difference(out, at, row.value_version, base.value_version)


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
) -> Int:
    """Put the versions that are packed in ``data`` into ``rows``: each where ``places`` has its key, which goes up.

    Versions of a key whose place is negative are left out; the group of the others is 0. ``texts`` gets where the
    metadata of each begin, one behind the other from ``text`` on. ``base`` is the row that all differ from. Returns
    where the last ones end, -1 if ``data`` is not what :func:`pack_versions` made of versions of these keys.
    """
    at: Int = 0
    with cython.nogil:
        while at < len(data):
            key, at = _with_difference(data, at, base[0].key)
            first_committed, at = _with_difference(data, at, base[0].first_committed_offset)
            committed, at = _with_difference(data, at, first_committed)
            record_offset, at = _with_difference(data, at, base[0].record_offset)
            timestamp, at = _with_difference(data, at, base[0].timestamp)
            position, at = _with_difference(data, at, base[0].position)
            last_record_offset, at = _with_difference(data, at, record_offset)
            commits, at = _with_difference(data, at, 0)
            metadata, at = _with_difference(data, at, 0)
            writer, at = _with_difference(data, at, base[0].writer)
            epoch, at = _with_difference(data, at, base[0].leader_epoch + 1)
            version, at = _with_difference(data, at, base[0].value_version)
            if at == INVALID or not 0 <= key < len(places) or places[key] >= len(rows) or not 0 <= metadata <= 0x7FFF:
                text = -1
                break
            place = places[key]
            if place >= 0:
                rows[place] = ClosedVersion(
                    first_committed_offset=first_committed,
                    committed_offset=committed,
                    record_offset=record_offset,
                    timestamp=timestamp,
                    position=position,
                    last_record_offset=last_record_offset,
                    commits=commits,
                    metadata=metadata,
                    key=key,
                    group=0,
                    writer=writer,
                    leader_epoch=epoch - 1,
                    value_version=version,
                )
                texts[place] = text
                places[key] = place + 1
            text += metadata
    return text

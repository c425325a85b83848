"""OffsetCommitKey and OffsetCommitValue, in every version, as kernels read them."""

import cython

if not cython.compiled:
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.primitives import *


@cython.cfunc
def commit_value(data: Bytes, at: Int, length: Int, newest: Int) -> Commit:
    """The OffsetCommitValue in the ``length`` bytes at ``at``.

    Its version is -1 where that is above ``newest``, a field does not fit, or there are tagged fields
    besides one topic id.
    """
    stop: Int = at + length
    version: Int = -1
    leader_epoch: Int = -1
    metadata_bytes: Int = 0
    expire_timestamp: Int = -1
    topic_id: Int = -1
    start: Int = at
    if length >= 2:
        version = be16(data, at)
    if version < 0 or version > newest or version > 4:
        return _no_commit()
    at += 10
    if version >= 3:
        at += 4
    if version < 4:
        if at + 2 > stop:
            return _no_commit()
        metadata_bytes = be16(data, at)
        at += 2
        if metadata_bytes < 0 or at + metadata_bytes + (16 if version == 1 else 8) > stop:
            return _no_commit()
    else:
        if at > stop:
            return _no_commit()
        metadata_bytes, at = uvarint(data, at, stop)
        metadata_bytes -= 1
        if at == INVALID or metadata_bytes < 0 or metadata_bytes > 0x7FFF or at + metadata_bytes + 8 >= stop:
            return _no_commit()
    metadata: Int = at
    at += metadata_bytes
    commit_timestamp: Int = be64(data, at)
    at += 8
    if version == 1:
        expire_timestamp = be64(data, at)
    elif version == 4 and data[at] != 0:
        # One tagged field, tag 0, 16 bytes: the topic id.
        if data[at] != 1 or at + 19 > stop or data[at + 1] != 0 or data[at + 2] != 16:
            return _no_commit()
        topic_id = at + 3
    if version >= 3:
        leader_epoch = be32(data, start + 10)
    return Commit(
        version=version,
        committed_offset=be64(data, start + 2),
        leader_epoch=leader_epoch,
        metadata=metadata,
        metadata_bytes=metadata_bytes,
        commit_timestamp=commit_timestamp,
        expire_timestamp=expire_timestamp,
        topic_id=topic_id,
    )


@cython.cfunc
def _no_commit() -> Commit:
    return Commit(
        version=-1,
        committed_offset=0,
        leader_epoch=-1,
        metadata=0,
        metadata_bytes=0,
        commit_timestamp=0,
        expire_timestamp=-1,
        topic_id=-1,
    )


def decode_commits(data: Bytes, starts: Int64s, out: CommitRows) -> Int:
    """Decode the OffsetCommitValues from ``starts[n]`` to ``starts[n + 1]`` into the rows ``out``.

    Returns how many, up to the first that :func:`commit_value` does not read or that lies outside ``data``.
    """
    row: Int = 0
    rows: Int = len(out)
    with cython.nogil:
        while row < rows:
            if starts[row] < 0 or starts[row + 1] < starts[row] or starts[row + 1] > len(data):
                break
            commit = commit_value(data, starts[row], starts[row + 1] - starts[row], 4)
            if commit.version < 0:
                break
            out[row] = commit
            row += 1
    return row

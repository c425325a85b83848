"""OffsetCommitValues to columns."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import pyarrow as pa

from coordinator_core.fold.arrow import column
from coordinator_core.fold.gathering import SegmentBytes, spread_columns, text
from coordinator_core.kernels import decode_commits
from coordinator_core.kernels.arrays import Int64s, dtype
from coordinator_core.log.windows import Windows
from coordinator_core.merge.schema import OFFSETS
from coordinator_core.records.wire import uuid_text


def decoded(values: pa.Array, names: Collection[str] = OFFSETS.names) -> dict[str, pa.Array]:
    """Fields with these ``names`` of OffsetCommitValues that ``kernels.commits`` reads (``large_binary``, none null).

    As they are in the record: only -1 for a leader epoch that is none, an expire timestamp where the version
    has one, and a topic id where it is not zero, become null otherwise. Raises ``ValueError`` for other values.
    """
    _, starts, data = values.buffers()
    bounds = np.frombuffer(starts, np.int64)[values.offset : values.offset + len(values) + 1]
    source = SegmentBytes([Windows(memoryview(data))])
    rows = np.empty(len(values), dtype("Commit"))
    if decode_commits(np.frombuffer(data, np.uint8), bounds, rows) < len(values):
        raise ValueError("a fold holds a value that is no OffsetCommitValue")
    fields = spread_columns(rows, {"version": np.int16, "leader_epoch": np.int32})
    made: dict[str, Callable[[], pa.Array]] = {
        "value_version": lambda: column(fields["version"]),
        "committed_offset": lambda: column(fields["committed_offset"]),
        "leader_epoch": lambda: column(fields["leader_epoch"], fields["leader_epoch"] == -1),
        "metadata": lambda: text(source.binary(fields["metadata"], fields["metadata_bytes"])),
        "commit_timestamp_ms": lambda: column(fields["commit_timestamp"]),
        "expire_timestamp_ms": lambda: column(fields["expire_timestamp"], fields["version"] != 1),
        "topic_id": lambda: _topic_ids(fields["topic_id"], source),
    }
    return {name: make() for name, make in made.items() if name in names}


def _topic_ids(positions: Int64s, source: SegmentBytes) -> pa.Array:
    """Topic ids as text (22 characters); null for the zero id and for none."""
    has_id = positions >= 0
    found = positions[has_id]
    encoded = source.binary(found, np.full(len(found), 16, np.int64)).dictionary_encode()
    texts = [None if not any(data) else uuid_text(data) for data in encoded.dictionary.to_pylist()]
    indices = np.full(len(positions), len(texts), np.int64)
    indices[has_id] = encoded.indices.to_numpy()
    return pa.array([*texts, None], pa.string()).take(column(indices))

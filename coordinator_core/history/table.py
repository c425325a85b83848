"""Rows of the table ``history`` as Arrow, some hundred thousand at a time.

They are those of :func:`~coordinator_core.history.rows.history_rows`. Groups with nothing but commits are made column
by column of what :mod:`~coordinator_core.history.taking` took; those of the others come from histories.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordinator_core.fold.arrow import bits
from coordinator_core.fold.gathering import spread_columns
from coordinator_core.history.lessons import waits_since
from coordinator_core.history.model import (
    Certainty,
    EndKind,
    GroupHistory,
    Origin,
    OriginKind,
)
from coordinator_core.history.origins import (
    REGULAR,
    WITH_EPOCHS,
    Request,
    cleaned,
    insider,
    kind_of_group,
    outsider,
    untimed_requests,
)
from coordinator_core.history.spill import BUCKETS
from coordinator_core.history.taking import Taken, row_of
from coordinator_core.kernels import gather_requests
from coordinator_core.kernels.arrays import Int64s, array_of, new_rows
from coordinator_core.merge.packed import BLOCK_BYTES

_TEXT: Final = pa.dictionary(pa.int32(), pa.string())
HISTORY: Final = pa.schema(
    [
        pa.field("group_id", _TEXT, nullable=False),
        pa.field("topic", _TEXT, nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("committed_offset", pa.int64(), nullable=False),
        pa.field("first_committed_offset", pa.int64(), nullable=False),
        pa.field("commits", pa.int64(), nullable=False),
        pa.field("leader_epoch", pa.int32()),
        pa.field("metadata", pa.string(), nullable=False),
        pa.field("generation", pa.int32()),
        pa.field("offsets_partition", pa.int32(), nullable=False),
        pa.field("record_offset", pa.int64(), nullable=False),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("segment", _TEXT, nullable=False),
        pa.field("byte_position", pa.int64(), nullable=False),
        pa.field("valid_from", pa.int64(), nullable=False),
        pa.field("valid_from_ms", pa.int64(), nullable=False),
        pa.field("valid_to", pa.int64()),
        pa.field("valid_to_ms", pa.int64()),
        pa.field("cause", _TEXT),
        pa.field("cause_certainty", _TEXT),
        pa.field("cause_evidence", _TEXT),
        pa.field("cause_or", pa.list_(pa.string()), nullable=False),
        pa.field("origin", _TEXT),
        pa.field("origin_certainty", _TEXT),
        pa.field("origin_evidence", _TEXT),
        pa.field("member_id", _TEXT),
        pa.field("instance_id", _TEXT),
        pa.field("client_id", _TEXT),
        pa.field("client_host", _TEXT),
        pa.field("producer_id", pa.int64()),
        pa.field("transactional_id", _TEXT),
    ]
)

_OF_KEYS: Final = frozenset({"key", "group", "metadata"})
"""Fields of versions that rows do not have from there."""
Columns = Mapping[str, npt.NDArray[Any]]
"""Fields of versions, each an array."""
_LARGEST: Final = np.iinfo(np.int64).max
_WITHOUT_METADATA = pa.schema([field for field in HISTORY if field.name != "metadata"])


def tables_of(rows: Iterable[dict[str, Any]]) -> Iterator[pa.Table]:
    """Rows as tables, so many at a time as metadata allow."""
    batch: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row["metadata"])
        if size > BLOCK_BYTES:
            yield pa.Table.from_pylist(batch, HISTORY)
            batch, size = [], 0
    if batch:
        yield pa.Table.from_pylist(batch, HISTORY)


def plain_tables(taken: Taken, portion_rows: int, groups: Collection[str] | None) -> Iterator[pa.Table]:
    """The rows of groups that are not special, of ``groups`` only where that is not ``None``: ``portion_rows`` versions
    at a time."""
    used = taken.table.open_used
    places = np.full(used, -1, np.int64)
    keys = _Keys(array_of(taken.table.fold.events)[:used], array_of(taken.table.open)["ended"][:used])
    is_special = _is_special(taken, keys.events["group"])
    bucket_of = (keys.events["group"] % BUCKETS).astype(np.uint8)
    by_bucket = np.argsort(bucket_of, kind="stable")
    bounds = np.concatenate(([0], np.cumsum(np.bincount(bucket_of, minlength=BUCKETS))))
    for buckets in taken.spill.portions(portion_rows):
        chosen = by_bucket[bounds[buckets.start] : bounds[buckets.stop]]
        chosen = chosen[(keys.ended[chosen] > 0) & ~is_special[chosen]]
        if len(chosen):
            yield from _rows_of(taken, buckets, keys, chosen, places, groups)


def standing(taken: Taken) -> dict[str, int]:
    """By topic, the earliest time (epoch ms) since when an offset stands, of groups that lost none."""
    versions = array_of(taken.table.open)[: taken.table.open_used]
    keys = np.flatnonzero(versions["commits"] > 0)
    keys = keys[~_is_special(taken, versions["group"][keys])]
    topics = array_of(taken.table.fold.events)["topic"][keys]
    order = np.lexsort((versions["first_timestamp"][keys], topics))
    found, first = np.unique(topics[order], return_index=True)
    since = versions["first_timestamp"][keys[order[first]]]
    return dict(zip(_names(taken.table.fold.topics, found), since.tolist(), strict=True))


def waiting(taken: Taken) -> Iterator[tuple[int, int]]:
    """Offsets of groups that are not special as :class:`~coordinator_core.history.lessons.Lessons` has ``waiting``."""
    table = taken.table
    versions = array_of(table.open)[: table.open_used]
    versions = versions[(versions["commits"] > 0) & (versions["expires"] == 0)]
    versions = versions[~_is_special(taken, versions["group"])]
    ends = {
        row_of(table, group.group_id): waits_since(group) for group in taken.history.groups.values() if group.changes
    }
    since = np.full((2, table.groups_used), -1, np.int64)
    is_swept = np.full(table.groups_used, fill_value=True)
    for row, end in ends.items():
        is_swept[row] = end is not None
        since[:, row] = end or (-1, -1)
    versions = versions[is_swept[versions["group"]]]
    record_offsets, times = since[:, versions["group"]]
    record_offsets = np.maximum(record_offsets, versions["last_record_offset"])
    times = np.maximum(times, versions["commit_timestamp"])
    order = np.lexsort((times, record_offsets))
    least = np.minimum.accumulate(times[order])
    order = order[np.diff(least, prepend=_LARGEST) < 0]
    yield from zip(record_offsets[order].tolist(), times[order].tolist(), strict=True)


def _is_special(taken: Taken, groups: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    special: npt.NDArray[np.bool_] = array_of(taken.table.groups)["is_special"][groups] != 0
    return special


def _names(table: Any, rows: npt.NDArray[Any]) -> list[str]:
    """Interned names, without their length prefix."""
    return [table.key(row)[2:].decode() for row in rows.tolist()]


# Columns


class _Keys(NamedTuple):
    """Of each key its row of the fold, with group, topic and partition, and the number of its versions."""

    events: npt.NDArray[Any]
    ended: Int64s


def _rows_of(
    taken: Taken, buckets: range, of_keys: _Keys, keys: Int64s, places: Int64s, wanted: Collection[str] | None
) -> Iterator[pa.Table]:
    """The rows of the ``wanted`` groups in ``buckets``, so many at a time as metadata allow.

    ``keys`` are those of the buckets with versions, of groups that are not special; ``places`` have room for each key,
    and are -1 before and afterwards.
    """
    fold, events = taken.table.fold, of_keys.events[keys]
    groups, group_of = _numbered(events["group"])
    topics, topic_of = _numbered(events["topic"])
    group_names, topic_names = _names(fold.group_ids, groups), _names(fold.topics, topics)
    by_name = np.lexsort((events["partition"], _places(topic_names)[topic_of], _places(group_names)[group_of]))
    if wanted is not None:
        by_name = by_name[np.array([name in wanted for name in group_names])[group_of[by_name]]]
    if not len(by_name):
        return
    versions = of_keys.ended[keys[by_name]]
    ends = np.cumsum(versions)
    count = int(ends[-1])
    places[keys[by_name]] = ends - versions
    spilled, texts = taken.spill.read(buckets, places, count)
    places[keys[by_name]] = -1
    group_of, topic_of, partition_of = (
        np.repeat(of_key[by_name], versions) for of_key in (group_of, topic_of, events["partition"])
    )
    rows = spread_columns(spilled, without=_OF_KEYS)
    # Versions of a key are in the order in which they ended: each where the next one begins.
    stands = np.zeros(count, np.bool_)
    stands[ends - 1] = True
    key_of = np.repeat(np.arange(len(versions)), versions)
    rows.update(key=key_of, stands=stands, valid_to=_next(rows["record_offset"]), valid_to_ms=_next(rows["timestamp"]))
    if (~stands[:-1] & (rows["valid_to"] < rows["record_offset"])[:-1]).any():
        # Record offsets that repeat (``OnDamage.SALVAGE``).
        again = np.lexsort((rows["record_offset"], key_of))
        rows, texts = {name: column[again] for name, column in rows.items()}, texts.take(again)
    history = taken.history
    plain = [history.groups.get(name) or GroupHistory(name, history.offsets_partition) for name in group_names]
    origins, origin_of = _origins(taken, plain, rows, group_of)
    writers, writer_of = _numbered(rows["writer"])
    who = [taken.writers[number] for number in writers.tolist()]
    segments = [segment.name for segment in taken.log.segments]
    bases = np.array([segment.base_offset for segment in taken.log.segments], np.int64)
    has_ended = bits(~rows["stands"])
    first = _array(np.zeros(count, np.int32), has_ended)
    numbers = {
        "partition": partition_of,
        "byte_position": rows["position"],
        "timestamp_ms": rows["timestamp"],
        "valid_from": rows["record_offset"],
        "valid_from_ms": rows["timestamp"],
        "offsets_partition": np.full(count, history.offsets_partition, np.int32),
        **{name: rows[name] for name in ("committed_offset", "first_committed_offset", "commits", "record_offset")},
    }
    columns: dict[str, pa.Array] = {
        **{name: _array(values) for name, values in numbers.items()},
        "group_id": _text(group_names, group_of),
        "topic": _text(topic_names, topic_of),
        "leader_epoch": _array(rows["leader_epoch"], bits(rows["leader_epoch"] >= 0)),
        "generation": pa.array([one.generation for one in who], pa.int32()).take(_array(writer_of)),
        "segment": _text(segments, np.maximum(np.searchsorted(bases, rows["record_offset"], "right") - 1, 0)),
        "valid_to": _array(rows["valid_to"], has_ended),
        "valid_to_ms": _array(rows["valid_to_ms"], has_ended),
        "cause": pa.DictionaryArray.from_arrays(first, pa.array([EndKind.NEWER_VALUE.value])),
        "cause_certainty": pa.DictionaryArray.from_arrays(first, pa.array([Certainty.CERTAIN.value])),
        "cause_or": pa.ListArray.from_arrays(np.zeros(count + 1, np.int32), pa.array([], pa.string())),
        "origin": _text([one.kind.value for one in origins], origin_of),
        "origin_certainty": _text([one.certainty.value for one in origins], origin_of),
        "origin_evidence": _text([one.why for one in origins], origin_of),
        **{
            name: _text([getattr(one.member, name, None) for one in who], writer_of)
            for name in ("member_id", "instance_id", "client_id", "client_host")
        },
    }
    without = pa.table(
        [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in _WITHOUT_METADATA],
        schema=_WITHOUT_METADATA,
    )
    place = HISTORY.get_field_index("metadata")
    for part, metadata in texts.blocks():
        yield without[part.start : part.stop].add_column(place, HISTORY.field(place), metadata)


def _array(values: npt.NDArray[Any], validity: pa.Buffer | None = None) -> pa.Array:
    """The ``values``, not copied, with a bitmap of those that are not null."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [validity, pa.py_buffer(values)])


def _next(column: Int64s) -> Int64s:
    """The value of the next row for each row; the last row has its own."""
    return np.append(column[1:], column[-1])


def _numbered(numbers: npt.NDArray[Any]) -> tuple[Int64s, Int64s]:
    """Distinct numbers, none negative or large, ascending; and by item the place of its own among them."""
    found = np.flatnonzero(np.bincount(numbers))
    places = np.empty(int(found[-1]) + 1, np.int64)
    places[found] = np.arange(len(found))
    return found, places[numbers]


def _places(names: Sequence[str]) -> Int64s:
    """Place of each name in their order."""
    places = np.empty(len(names), np.int64)
    places[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return places


def _text(values: Sequence[str | None], codes: npt.NDArray[Any]) -> pa.Array:
    """The ``values`` by number; each stands once in the dictionary, null in none."""
    distinct = {value: None for value in values if value is not None}
    if not distinct:
        return pa.nulls(len(codes), _TEXT)
    number = {value: at for at, value in enumerate(distinct)}
    by_code = np.array([-1 if value is None else number[value] for value in values], np.int32)
    numbers = by_code[codes.astype(np.intp, copy=False)]
    indices = _array(numbers, bits(numbers >= 0) if None in values else None)
    return pa.DictionaryArray.from_arrays(indices, pa.array(list(distinct), pa.string()), safe=False)


def _coded(numbers: Int64s) -> tuple[Int64s, Int64s]:
    """Distinct numbers in the order in which they come first; and by item the place of its own among them."""
    found = _array(numbers).dictionary_encode()
    return found.dictionary.to_numpy(), found.indices.to_numpy().astype(np.int64)


# Origins

_KINDS = list(OriginKind)
_FACTS = len(Request._fields) - 1
"""All but the number of partitions."""
_CODE_BITS = 16


class _Origins:
    """Distinct origins, numbered."""

    def __init__(self) -> None:
        self.found: dict[Origin, int] = {}

    def of_each(self, codes: npt.NDArray[Any], told: Callable[[int], Origin]) -> Int64s:
        """Numbers of the origins that ``told`` gives for the codes, asked once for each distinct one."""
        distinct, code_of = _coded(codes)
        numbers = [self.found.setdefault(told(code), len(self.found)) for code in distinct.tolist()]
        return np.array(numbers, np.int64)[code_of]


def _origins(
    taken: Taken, groups: Sequence[GroupHistory], rows: Columns, group_of: Int64s
) -> tuple[list[Origin], Int64s]:
    """Origins and by row the number of its own, as :func:`settle_origins` tells them. Rows of a group are together."""
    origins = _Origins()
    found = np.zeros(len(group_of), np.int64)
    had_members = np.array([one.had_members for one in taken.writers])[rows["writer"]]
    has_changes = np.array([bool(group.changes) for group in groups])
    is_cleaned = ~had_members & has_changes[group_of] & (rows["last_record_offset"] < taken.history.cleaned_to)
    found[is_cleaned] = origins.of_each(np.zeros(is_cleaned.sum(), np.int64), lambda _: cleaned())

    def inside(code: int) -> Origin:
        writer = taken.writers[code % len(taken.writers)]
        return insider(groups[code // len(taken.writers)], writer.generation, writer.member)

    found[had_members] = origins.of_each(
        group_of[had_members] * len(taken.writers) + rows["writer"][had_members], inside
    )
    outside = np.flatnonzero(~(had_members | is_cleaned))
    if len(outside):
        found[outside] = _outsiders(groups, has_changes, rows, outside, group_of[outside], origins)
    return list(origins.found), found


def _outsiders(
    groups: Sequence[GroupHistory],
    has_changes: npt.NDArray[np.bool_],
    rows: Columns,
    chosen: Int64s,
    group_of: Int64s,
    origins: _Origins,
) -> Int64s:
    """Numbers of the origins of the ``chosen`` rows, from outside: those of one time in a group are one request.

    ``key`` among ``rows`` numbers the offset keys.
    """
    gathered = array_of(new_rows("GatheredRequest", len(chosen)))
    request_of = np.empty(len(chosen), np.int64)
    times = _request_times(rows, chosen, group_of)
    names = ("record_offset", "commits", "leader_epoch", "value_version")
    count = gather_requests(chosen, group_of, times, *(rows[name] for name in names), gathered, request_of)
    # Requests of a group in the order of their first commits.
    turn = np.lexsort((gathered["first_offset"][:count], gathered["group"][:count]))
    requests = spread_columns(gathered[turn])
    group, time, commits = requests["group"], requests["time"], requests["commits"]
    before = np.arange(count) - np.searchsorted(group, group)
    total = np.searchsorted(group, group, "right") - np.searchsorted(group, group)
    kinds = np.array([_number(kind_of_group(one.group_id)) for one in groups])
    facts = (
        requests["leader_epoch"] >= 0,
        requests["value_version"] >= WITH_EPOCHS,
        (commits >= REGULAR) | _are_regular(time, before),
        commits > 1,
        ~has_changes[group] & (before == 0) & (total == 1),
    )
    code = kinds[group] << _FACTS
    for at, fact in enumerate(facts):
        code |= fact.astype(np.int64) << at
    code |= requests["partitions"] << _CODE_BITS
    by_request = np.empty(count, np.int64)
    by_request[turn] = origins.of_each(code, _outsider)
    return by_request[request_of]


def _request_times(rows: Columns, chosen: Int64s, group_of: Int64s) -> Int64s:
    """Times of all commits; for those ``chosen`` that have none a number below 0, another one for each request."""
    times: Int64s = rows["timestamp"]
    untimed = np.flatnonzero(times[chosen] < 0)
    if len(untimed):
        untimed = chosen[untimed[np.lexsort((rows["record_offset"][chosen[untimed]], group_of[untimed]))]]
        commits = zip(rows["record_offset"][untimed].tolist(), rows["key"][untimed].tolist(), strict=True)
        times = times.copy()
        times[untimed] = -1 - np.fromiter(untimed_requests(commits), np.int64, len(untimed))
    return times


@lru_cache(1 << 14)
def _outsider(code: int) -> Origin:
    """Origin of the requests with this code: from the lowest bit on the facts of a :class:`Request`, the number of the
    kind of the group, and the number of partitions."""
    kind = (code & ((1 << _CODE_BITS) - 1)) >> _FACTS
    facts = (bool(code >> at & 1) for at in range(_FACTS))
    return outsider(_KINDS[kind - 1] if kind else None, Request(code >> _CODE_BITS, *facts))


def _number(kind: OriginKind | None) -> int:
    return 0 if kind is None else _KINDS.index(kind) + 1


def _are_regular(time: Int64s, before: Int64s) -> npt.NDArray[np.bool_]:
    """Whether the last requests of a group came at even distances; ``before`` counts those before each."""
    least = np.full(len(time), _LARGEST)
    most = np.full(len(time), np.iinfo(np.int64).min)
    for back in range(REGULAR):
        steps = np.roll(time, back) - np.roll(time, back + 1)
        least, most = np.minimum(least, steps), np.maximum(most, steps)
    return (before >= REGULAR) & (np.roll(time, REGULAR) >= 0) & (least > 0) & (most <= 2 * least)

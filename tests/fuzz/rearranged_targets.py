"""Logs that are written in another way and say the same: their state is the same."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from coordinator_core.errors import DamagedInputError
from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.segments import fold_partition
from coordinator_core.groups.model import PartitionState
from coordinator_core.log.batch import iter_batch_records
from coordinator_core.log.layout import LAST_OFFSET
from coordinator_core.log.limits import Limits
from coordinator_core.log.reader import parse_entry_batch
from coordinator_core.log.types import Batch, Codec, ControlType, PartitionLog, SegmentFile
from coordinator_core.records.codec import encode_key
from coordinator_core.releases import Profile
from coordinator_core.releases.facts import MergeOffsetRule
from tests.fold.parity import PROFILES, merge_folds
from tests.fuzz.checks import PATH, WrongResultError
from tests.fuzz.hostile import Hostile
from tests.fuzz.segments import entries_of, segment
from tests.log.builders import NewRecord, build_batch, build_control_batch, build_empty_batch, build_message

_CODECS = tuple(Codec)
_NOBODY = 1 << 50
"""A producer that wrote nothing."""

State = dict[str, Any]


def make_sound(hostile: Hostile, base: bytes = b"") -> bytes:
    """A segment that is mostly sound, like no other."""
    hostile.rate = hostile.pick((0.0, 0.0, 0.005, 0.02))
    return segment(hostile)


def rearranged(data: bytes, choices: Random) -> str:
    """One change of a sound log; one word on which."""
    profile = PROFILES[choices.choice(list(PROFILES))]
    entries = list(entries_of(data))
    # What is left behind the last entry is damage, of which other targets take care.
    if not entries:
        return "nothing"
    try:
        state = _state_of([entries], profile)
    except DamagedInputError:
        return "damaged"
    change = choices.choice(list(_CHANGES))
    changed = _CHANGES[change](entries, profile, choices)
    if changed is None:
        return "left alone"
    segments, expected = changed
    for name, wanted in expected(_as_text(state)).items():
        found = _as_text(_state_of(segments, profile))[name]
        if found != wanted:
            raise WrongResultError(f"{change} changes {name}:\n  before {wanted}\n  after  {found}")
    return change


def _state_of(segments: Sequence[Sequence[bytes]], profile: Profile) -> PartitionState:
    with tempfile.TemporaryDirectory() as place:
        files = []
        for entries in segments:
            whole = b"".join(entries)
            base = max(struct.unpack_from(">q", whole)[0], 0)
            path = Path(place, f"{base:020d}.log")
            path.write_bytes(whole)
            files.append(SegmentFile(str(path), 0, base, len(whole)))
        log = PartitionLog(0, place, tuple(files), None, clean_shutdown=False)
        return merge_folds(fold_partition(log, rules=FoldRules.of(profile), damage=[]), profile, 0)


def _as_text(value: Any) -> Any:
    """A state as plain dictionaries, lists and texts, by name of field."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: _as_text(each) for name, each in zip(value._fields, value, strict=True)}
    if is_dataclass(value):
        return {each.name: _as_text(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, dict):
        return {str(key): _as_text(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_text(each) for each in value]
    return value


# Changes: segments of entries, and what the state is to be


Segments = list[list[bytes]]
Expected = Callable[[State], State]
Change = Callable[[list[bytes], Profile, Random], tuple[Segments, Expected] | None]


def _same(state: State) -> State:
    return state


def _parsed(entry: bytes) -> Batch:
    batch = parse_entry_batch(memoryview(entry), 0, Limits())
    assert batch is not None
    return batch


def _end(entries: Iterable[bytes]) -> int | None:
    """Offset behind the log, if nothing is in the way of further batches."""
    end = max(_parsed(entry).last_offset for entry in entries) + 1
    return end if end < LAST_OFFSET - 1000 else None


def _cut(entries: list[bytes], profile: Profile, choices: Random) -> tuple[Segments, Expected]:
    """Segments begin at any batch."""
    cuts = sorted({0, len(entries), *(choices.randrange(len(entries) + 1) for _ in range(3))})
    return [entries[first:end] for first, end in pairwise(cuts)], _same


def _batched(entries: list[bytes], profile: Profile, choices: Random) -> tuple[Segments, Expected] | None:
    """The records in other batches, with another codec."""
    may_cut = FoldRules.of(profile).ordering_offset_rule in (MergeOffsetRule.RECORD, MergeOffsetRule.NONE)
    out = []
    for entry in entries:
        batch = _parsed(entry)
        out += [entry] if batch.magic < 2 or batch.is_control else _rewritten(batch, choices, may_cut=may_cut)
    return None if out == entries else ([out], _same)


def _rewritten(batch: Batch, choices: Random, *, may_cut: bool) -> list[bytes]:
    records = list(iter_batch_records(batch, path=PATH))
    if not records:
        return [bytes(batch.data)]
    inner = range(1, len(records)) if may_cut else ()
    cuts = [0, *sorted(choices.sample(inner, min(len(inner), choices.randrange(3)))), len(records)]
    out = []
    for first, end in pairwise(cuts):
        base = batch.base_offset if first == 0 else records[first].offset
        last = batch.last_offset if end == len(records) else records[end].offset - 1
        made = [
            NewRecord(each.key, each.value, each.timestamp_ms, each.offset - base, each.headers)
            for each in records[first:end]
        ]
        out.append(
            build_batch(
                base,
                made,
                codec=choices.choice(_CODECS),
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.base_sequence,
                transactional=batch.is_transactional,
                leader_epoch=batch.partition_leader_epoch,
                last_offset_delta=last - base,
                log_append_time=batch.max_timestamp_ms if batch.timestamp_type == "LogAppendTime" else None,
            )
        )
    return out


def _with_nothing(entries: list[bytes], profile: Profile, choices: Random) -> tuple[Segments, Expected] | None:
    """Empty batches and markers of a producer that wrote nothing, at the end."""
    end = _end(entries)
    if end is None:
        return None
    more = [
        build_empty_batch(end, 3, producer_id=choices.choice((-1, 1, _NOBODY)), transactional=choices.random() < 0.5),
        build_control_batch(end + 4, choices.choice(list(ControlType)), producer_id=_NOBODY),
        build_empty_batch(end + 5, producer_id=_NOBODY, control=True, transactional=True),
    ]
    choices.shuffle(more)
    return [[*entries, *_in_order(more, end)]], _same


def _in_order(batches: Sequence[bytes], offset: int) -> list[bytes]:
    """The batches one behind the other; no checksum covers their base offsets."""
    out = []
    for batch in batches:
        out.append(struct.pack(">q", offset) + batch[8:])
        offset = _parsed(out[-1]).last_offset + 1
    return out


def _with_tombstones(entries: list[bytes], profile: Profile, choices: Random) -> tuple[Segments, Expected] | None:
    """Tombstones of what never was."""
    end = _end(entries)
    if end is None:
        return None
    offset = encode_key(1, {"group": "nobody's", "topic": "nothing", "partition": 0})
    group = encode_key(2, {"group": "nobody's"})
    if choices.random() < 0.5 or any(entry[16] < 2 for entry in entries):
        more = [build_message(end, offset, None), build_message(end + 1, group, None)]
    else:
        more = [build_batch(end, [(offset, None), (group, None)], codec=choices.choice(_CODECS))]

    def expected(state: State) -> State:
        return {name: value for name, value in state.items() if name != "record_counts"}

    return [[*entries, *more]], expected


def _moved(entries: list[bytes], profile: Profile, choices: Random) -> tuple[Segments, Expected] | None:
    """All offsets are higher by the same."""
    by = choices.choice((1, 1000, 1 << 31, 1 << 40))
    end = _end(entries)
    if end is None or end + by > LAST_OFFSET or any(_has_offsets_inside(entry) for entry in entries):
        return None
    out = [struct.pack(">q", struct.unpack_from(">q", entry)[0] + by) + entry[8:] for entry in entries]

    def shifted(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            if name.endswith("record_offsets"):
                return {key: each + by for key, each in value.items()}
            return {key: shifted(each, key) for key, each in value.items()}
        if isinstance(value, list):
            return [shifted(each) for each in value]
        is_position = name.endswith("_offset") and name != "committed_offset" and value not in (None, -1)
        return value + by if is_position else value

    return [out], shifted


def _has_offsets_inside(entry: bytes) -> bool:
    """Whether the offsets of the records are in what is compressed: of format 0, or of format 1 around offset 0."""
    batch = _parsed(entry)
    return batch.record_count is None and (batch.magic == 0 or batch.last_offset == 0)


_CHANGES: dict[str, Change] = {
    "cut": _cut,
    "batched": _batched,
    "with nothing": _with_nothing,
    "with tombstones": _with_tombstones,
    "moved": _moved,
}

"""What is fuzzed: each target takes an input to compiled code and says what must hold.

A target is a function of bytes and of a source of further choices (rules, sizes of tables, what changes
between two passes). It returns one word on what became of the input, and raises :class:`Wrong` when a result is
not that of the plain readers; any other exception is a finding as well.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from coordinator_core import storage
from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.fold.arena import Arena
from coordinator_core.fold.fingerprint import RunningFingerprint, fingerprint
from coordinator_core.fold.inference import infer_profile
from coordinator_core.fold.schema import FoldRules
from coordinator_core.fold.segments import Piece, fold_partition, fold_run, fold_segment
from coordinator_core.fold.unpacking import chunks, codec_functions
from coordinator_core.groups.model import PartitionState
from coordinator_core.kernels import (
    Bounds,
    FoldTables,
    compact_arena,
    decode_commits,
    fold_chunk,
    gather,
    gather_headers,
    list_batches,
    unpack,
)
from coordinator_core.kernels.arrays import Bytes, dtype
from coordinator_core.kernels.layout import ARENA, LAST_OFFSET, EventKind, OrderingOffset, Stop
from coordinator_core.log.batch import parse_batch
from coordinator_core.log.compression import CompressionError, decompress
from coordinator_core.log.layout import HEADER_BYTES, LENGTH_END, BatchField
from coordinator_core.log.limits import Limits
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import PartitionLog, SegmentFile
from coordinator_core.merge.partition import merge_folds
from coordinator_core.records.codec import RecordDecodeError, decode_value
from coordinator_core.releases import profile_for_release
from coordinator_core.replay.inference import SAMPLED_BATCHES, Evidence, release_of, sample
from coordinator_core.replay.sequential import replay_partition
from tests.columnar.parity import PROFILES, differences
from tests.fuzz import payloads, segments
from tests.fuzz.hostile import Hostile, changed

LIMITS = Limits(max_batch_bytes=1 << 20, max_decompressed_bytes=1 << 20, decompressed_floor_bytes=1 << 17)
"""Small ones, so that inputs meet them."""

PATH = "segment"
NO_BYTES: Bytes = np.empty(0, np.uint8)
_ROOM = 1 << 15


class Wrong(AssertionError):
    """A result is not what it must be."""


@dataclass(frozen=True)
class Target:
    """``share`` is the part of the inputs that go to it; ``generate`` makes one."""

    run: Callable[[bytes, Random], str]
    share: float
    generate: Callable[[Hostile], bytes] = segments.segment


def require_equal(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise Wrong(f"{what}:\n  found    {found}\n  expected {expected}")


@contextmanager
def file_of(*versions: bytes) -> Iterator[None]:
    """Have ``storage.read`` find these bytes, each time the next version, until the last."""
    reads = list(versions)
    real = storage.read

    def read(path: str) -> memoryview:
        del path
        # A copy of the exact size, so that the sanitizer sees who reads beyond it.
        return memoryview(bytearray(reads.pop(0) if len(reads) > 1 else reads[0]))

    storage.read = read
    try:
        yield
    finally:
        storage.read = real


def array_of(data: bytes) -> Bytes:
    return np.array(np.frombuffer(data, np.uint8))


def base_offset(data: bytes, choices: Random) -> int:
    """Base offset of the segment: that of its first batch, or 0."""
    first = struct.unpack_from(">q", data)[0] if len(data) >= 8 else 0
    return int(first) if first > 0 and choices.random() < 0.5 else 0


# The kernels of the fold, called as `fold.segments` calls them


def passes(data: bytes, choices: Random) -> str:
    """Fold chunk by chunk; bytes change between listing, unpacking and folding, and before values are copied."""
    array = array_of(data)
    bounds = Bounds(LIMITS.max_batch_bytes, choices.choice((3, 1000)))
    tables = FoldTables(bounds, len(data))
    tables.pending_by_producer = choices.random() < 0.5
    tables.tombstone_drops_pending = choices.random() < 0.5
    tables.ordering = choices.choice(list(OrderingOffset))
    tables.max_legacy_version, tables.max_version = choices.choice(((1, 3), (1, 4), (4, 4), (0, 0)))
    tables.check_utf8 = choices.random() < 0.5
    bounds.check_crc = choices.random() < 0.7
    bounds.start_offset = choices.choice((0, 0, 2))
    is_shifting = choices.random() < 0.5
    arena = Arena()
    position = 0
    stops = set()
    while position < len(data):
        status = fold_chunk(array, position, len(data), 0, False, tables)
        stops.add(Stop(status).name.lower())
        position = tables.position
        if status == Stop.END:
            break
        if is_shifting:
            array[:] = array_of(changed(array.tobytes(), choices))
        if status == Stop.COMPRESSED:
            position = _fold_unpacked(array, position, tables, arena, choices, is_shifting=is_shifting)
        else:
            position += _declared_size(array, position)
    _survivors(array, tables, arena, choices, is_shifting=is_shifting)
    return "+".join(sorted(stops)) or "nothing"


def _declared_size(array: Bytes, position: int) -> int:
    """Size of the entry at ``position`` as it says itself, at least one byte."""
    data = array[position : position + LENGTH_END].tobytes()
    return 1 if len(data) < LENGTH_END else max(1, LENGTH_END + struct.unpack_from(">i", data, 8)[0])


def _fold_unpacked(
    array: Bytes, position: int, tables: FoldTables, arena: Arena, choices: Random, *, is_shifting: bool
) -> int:
    """Fold the batches from ``position`` on by way of ``arena``; the position behind them."""
    rows = np.empty(choices.choice((1, 3, 100)), dtype("PackedBatch"))
    most = choices.choice((1, 1 << 20))
    count = list_batches(array, position, len(array), tables.next_offset, most, rows, tables.bounds)
    if count == 0:
        return position + _declared_size(array, position)
    if is_shifting:
        array[:] = array_of(changed(array.tobytes(), choices))
    out = np.empty(choices.choice((0, 100, 1000, 1 << 18)), np.uint8)
    most = choices.choice((0, 50, 1 << 17))
    done = unpack(array, rows[:count], out, 0, most, codec_functions())
    used = int(rows["plain_size"][:done].sum())
    if used > len(out):
        raise Wrong(f"{used} bytes unpacked into {len(out)}")
    plain = out[:used].tobytes()
    if is_shifting and choices.random() < 0.5:
        plain = changed(plain, choices)
    at = arena.append(plain)
    # Only so much of the arena, that reading on is out of bounds.
    view = np.array(arena.data[: arena.used])
    while at < arena.used:
        if fold_chunk(view, at, arena.used, ARENA, True, tables) == Stop.END:
            break
        at = tables.position + _declared_size(view, tables.position)
    if done == 0:
        return position + _declared_size(array, position)
    return int(rows["position"][done - 1] + rows["size"][done - 1])


def _survivors(array: Bytes, tables: FoldTables, arena: Arena, choices: Random, *, is_shifting: bool) -> None:
    """Copy what a fold would keep, and decode it."""
    kept = np.empty(max(arena.used, 1), np.uint8)
    used = compact_arena(np.array(arena.data[: arena.used]), kept, tables)
    if used > arena.used:
        raise Wrong(f"{used} bytes are left of {arena.used}")
    if is_shifting:
        array[:] = array_of(changed(array.tobytes(), choices))
    events = np.asarray(tables.events)[: tables.keys.used]
    events = events[(events["kind"] == EventKind.VALUE) & (events["value"] < ARENA)]
    positions, lengths = events["value"].copy(), events["value_bytes"].astype(np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    out = np.empty(starts[-1], np.uint8)
    require_equal(gather(array, 0, positions, lengths, starts, out), len(positions), "values gathered")
    rows = np.empty(len(positions), dtype("Commit"))
    decoded = decode_commits(out, starts, rows)
    if decoded < len(positions) and not is_shifting:
        raise Wrong(f"value {decoded} that the fold took is not decoded")
    _check_group_records(array, tables)


def _check_group_records(array: Bytes, tables: FoldTables) -> None:
    """Their positions lie within the bytes that they were read from."""
    rows = np.asarray(tables.group_records)[: tables.group_records_used]
    for field in ("key", "value"):
        here = rows[(rows[field] < ARENA) & (rows[f"{field}_bytes"] > 0)]
        if (
            len(here)
            and not ((here[field] >= 0) & (here[field] + here[f"{field}_bytes"] <= len(array))).all()
        ):
            raise Wrong(f"a {field} lies outside the segment")


# The fold


def fold(data: bytes, choices: Random) -> str:
    """The whole fold of one segment, by both policies, against the sequential replay of the same bytes."""
    profile = PROFILES[choices.choice(list(PROFILES))]
    rules = FoldRules.of(profile)
    on_damage = choices.choice((OnDamage.FAIL, OnDamage.FAIL, OnDamage.SALVAGE))
    log = _log(data, choices)
    found: list[Damage] = []
    expected: list[Damage] = []
    with file_of(data):
        try:
            folds = list(fold_partition(log, rules=rules, on_damage=on_damage, damage=found))
        except DamagedInputError as error:
            return _require_damage(log, profile, on_damage, error.damage)
        try:
            state = replay_partition(log, profile, on_damage=on_damage, damage=expected)
        except DamagedInputError as error:
            # Of a whole partition; a fold is of a segment.
            require_equal(error.damage.kind, "log_start_offset", "damage")
            return error.damage.kind
    require_equal(found, [each for each in expected if each.kind != "log_start_offset"], "damage")
    _require_state(merge_folds(folds, profile, 0), state)
    return "salvaged" if found else "read"


def _log(data: bytes, choices: Random) -> PartitionLog:
    segment = SegmentFile(PATH, 0, base_offset(data, choices), len(data))
    start = choices.choice((None, None, None, min(segment.base_offset + 2, LAST_OFFSET)))
    return PartitionLog(0, "", (segment,), start, clean_shutdown=False)


def _require_damage(log: PartitionLog, profile: Any, on_damage: OnDamage, damage: Damage) -> str:
    try:
        replay_partition(log, profile, on_damage=on_damage, damage=[])
    except DamagedInputError as error:
        require_equal(damage, error.damage, "damage")
        return damage.kind
    raise Wrong(f"the sequential replay finds no damage where the fold finds {damage}")


def _require_state(found: PartitionState, expected: PartitionState) -> None:
    wrong = differences(expected, found)
    if wrong:
        raise Wrong("\n".join(wrong))


class _Shifting(RunningFingerprint):
    """A fingerprint whose bytes change behind its back."""

    def __init__(self, data: bytearray, choices: Random) -> None:
        super().__init__(memoryview(data))
        self._bytes, self._choices = data, choices

    def advance(self, batches: int = 2) -> None:
        super().advance(batches)
        self._bytes[:] = changed(bytes(self._bytes), self._choices)


def shifting_fold(data: bytes, choices: Random) -> str:
    """The fold of a segment that changes while it is read: fingerprint, fold and plain readers see other bytes.

    It ends, with a fold or an error that says what does not fit.
    """
    profile = PROFILES[choices.choice(list(PROFILES))]
    rules = FoldRules.of(profile)
    on_damage = choices.choice((OnDamage.FAIL, OnDamage.SALVAGE))
    segment = SegmentFile(PATH, 0, base_offset(data, choices), len(data))
    versions = (data, changed(data, choices), changed(data, choices))
    running = _Shifting(bytearray(data), choices)
    try:
        with file_of(*versions):
            match choices.randrange(3):
                case 0:
                    fold_segment(segment, rules=rules, limits=LIMITS, on_damage=on_damage, running=running)
                case 1:
                    fold_segment(segment, rules=rules, limits=LIMITS, on_damage=on_damage)
                case _:
                    pieces = [
                        Piece(segment, memoryview(bytearray(version)), None, None) for version in versions
                    ]
                    pieces[0] = Piece(segment, running.data, None, running)
                    if fold_run(pieces[: choices.randint(1, 3)], rules=rules, limits=LIMITS) is None:
                        return "left"
    except DamagedInputError as error:
        return error.damage.kind
    except ValueError as error:
        # A value that the fold accepted has changed before it was copied.
        if "a fold holds a value" not in str(error):
            raise
        return "value changed"
    return "read"


# Inference


def inference(data: bytes, choices: Random) -> str:
    """The profile of ``--profile auto``, against the look that takes every record in."""
    log = _log(data, choices)
    with file_of(data):
        found = infer_profile([log])
        evidence = Evidence()
        sample(log, log.segments[0], evidence, SAMPLED_BATCHES)
    require_equal(found, profile_for_release(*release_of(evidence)), "profile")
    return "marks" if evidence.marks else "v%d" % evidence.offset_version


# Headers


def headers(data: bytes, choices: Random) -> str:
    """Gathered headers and the fingerprint, against the plain reader."""
    array = array_of(data)
    out = np.empty(HEADER_BYTES * choices.randrange(4) + choices.randrange(2), np.uint8)
    start = choices.choice((0, 0, choices.randrange(len(data) + 1)))
    status, position, count = gather_headers(array, start, len(data), out)
    found = out[: count * HEADER_BYTES].tobytes()
    expected = b"".join(_headers(data[:position], start))
    require_equal(found, expected, "headers")
    if status == Stop.UNUSUAL_BATCH and next(_headers(data, position), None) is not None:
        raise Wrong(f"the batch at {position} is intact")
    whole = fingerprint(memoryview(data))
    steps = RunningFingerprint(memoryview(data))
    while not steps.ended and choices.random() < 0.7:
        steps.advance(choices.randint(1, 2))
    require_equal(steps.finish(), whole, "fingerprint")
    require_equal(whole.intact, sum(map(len, _intact(data, 0))) == len(data), "intact")
    return Stop(status).name.lower()


def _intact(data: bytes, position: int) -> Iterator[bytes]:
    """Intact v2 batches from ``position`` on."""
    for entry in segments.entries_of(data[position:]):
        if len(entry) < HEADER_BYTES or entry[BatchField.MAGIC] != 2:
            return
        if not parse_batch(memoryview(entry), 0).crc_valid:
            return
        yield entry


def _headers(data: bytes, position: int) -> Iterator[bytes]:
    return (entry[:HEADER_BYTES] for entry in _intact(data, position))


# Unpacking


def unpacking(data: bytes, choices: Random) -> str:
    """Batches made plain many at a time, against one at a time; then again with bytes that change."""
    bounds = Bounds(LIMITS.max_batch_bytes, 1000)
    position, outcome = 0, "nothing"
    buffer = memoryview(bytearray(data))
    while position < len(data):
        before = position
        try:
            for chunk in chunks(buffer, position, -(1 << 62), bounds, LIMITS):
                require_equal(chunk.data.tobytes(), _plain(data, chunk.batches), "plain batches")
                position = int(chunk.batches["position"][-1] + chunk.batches["size"][-1])
                outcome = "unpacked"
        except CompressionError:
            outcome = "bad_compression"
        if position == before:
            position += _declared_size(np.frombuffer(data, np.uint8), position)
    _unpack_changed(array_of(data), bounds, choices)
    return outcome


def _plain(data: bytes, batches: Any) -> bytes:
    out = bytearray()
    for row in batches:
        batch = data[row["position"] : row["position"] + row["size"]]
        section: bytes | bytearray | memoryview = batch[HEADER_BYTES:]
        if row["codec"]:
            allowance = LIMITS.decompressed_allowance(len(section))
            section = decompress(int(row["codec"]), memoryview(section), magic=2, max_bytes=allowance)
        out += batch[:8] + struct.pack(">i", HEADER_BYTES - LENGTH_END + len(section))
        out += batch[LENGTH_END:HEADER_BYTES] + bytes(section)
    return bytes(out)


def _unpack_changed(array: Bytes, bounds: Bounds, choices: Random) -> None:
    rows = np.empty(20, dtype("PackedBatch"))
    bounds.check_crc = False
    count = list_batches(array, 0, len(array), -(1 << 62), 1 << 20, rows, bounds)
    array[:] = array_of(changed(array.tobytes(), choices))
    if count and choices.random() < 0.3:
        # The rows are those of another file, too.
        for field in ("position", "size", "codec"):
            rows[field][choices.randrange(count)] = choices.choice((-1, 0, 3, 4, 7, 61, 1 << 40, -(1 << 63)))
    out = np.empty(choices.choice((0, 61, 200, _ROOM)), np.uint8)
    at = choices.choice((0, 0, 5, len(out)))
    done = unpack(array, rows[:count], out, at, choices.choice((0, 10, 1 << 17)), codec_functions())
    if done and at + int(rows["plain_size"][:done].sum()) > len(out):
        raise Wrong("more was unpacked than there is room")


# Values of commits


def values_of(hostile: Hostile) -> bytes:
    """Values of commits, each behind its length."""
    made = [hostile.broken(payloads.commit_value(hostile)) for _ in range(6)]
    return b"".join(struct.pack(">H", len(value)) + value for value in made)


def commits(data: bytes, choices: Random) -> str:
    """Each value as the kernel decodes it, against the codec."""
    values, position = [], 0
    while position + 2 <= len(data):
        size = int.from_bytes(data[position : position + 2], "big")
        values.append(data[position + 2 : position + 2 + size])
        position += 2 + size
    taken = sum(_is_decoded(value) for value in values)
    starts = np.cumsum([0, *map(len, values)])
    rows = np.empty(len(values), dtype("Commit"))
    array = array_of(b"".join(values))
    whole = decode_commits(array, starts, rows)
    require_equal(
        whole, next((n for n, value in enumerate(values) if not _is_decoded(value)), len(values)), "row"
    )
    if len(values):
        starts[choices.randrange(len(starts))] = choices.choice((-1, 0, len(array) + 1, 1 << 62, -(1 << 63)))
        decode_commits(array, starts, rows)
    return f"{taken} of {len(values)}"


def _is_decoded(value: bytes) -> bool:
    """Whether the kernel takes the value; then it is what the codec makes of it."""
    rows = np.empty(1, dtype("Commit"))
    array = array_of(value)
    if decode_commits(array, np.array([0, len(value)]), rows) == 0:
        return False
    row = rows[0]
    try:
        decoded = decode_value(1, value)
    except RecordDecodeError as error:
        raise Wrong(f"the kernel decodes {value.hex()}, the codec says {error}") from None
    metadata = value[row["metadata"] : row["metadata"] + row["metadata_bytes"]]
    fields = (row["version"], row["committed_offset"], row["leader_epoch"], row["commit_timestamp"])
    data = decoded.data or {}
    expected = (
        decoded.version,
        data.get("offset"),
        data.get("leaderEpoch", -1),
        data.get("commitTimestamp"),
    )
    require_equal(fields, expected, f"fields of {value.hex()}")
    if "\ufffd" not in str(data.get("metadata")):
        require_equal(metadata, str(data.get("metadata")).encode(), f"metadata of {value.hex()}")
    return True


TARGETS: dict[str, Target] = {
    "passes": Target(passes, 0.50),
    "headers": Target(headers, 0.15),
    "unpacking": Target(unpacking, 0.15),
    "commits": Target(commits, 0.10, values_of),
    "inference": Target(inference, 0.04),
    "fold": Target(fold, 0.04),
    "shifting_fold": Target(shifting_fold, 0.02),
}

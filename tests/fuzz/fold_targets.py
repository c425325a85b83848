"""Fold, fingerprint, unpacking and inference, their kernels by themselves and as the product calls them."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from dataclasses import astuple
from functools import cache, partial
from random import Random
from typing import Any

import numpy as np

from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.fold.arena import Arena
from coordinator_core.fold.fingerprint import RunningFingerprint, fingerprint
from coordinator_core.fold.inference import infer_profile, take_from
from coordinator_core.fold.rules import FoldRules
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
from coordinator_core.kernels.arrays import Bytes, Int64s, dtype
from coordinator_core.kernels.layout import ARENA, CodecFunction, EventKind, OrderingOffset, Stop
from coordinator_core.log.batch import parse_batch
from coordinator_core.log.compression import CompressionError, decompress
from coordinator_core.log.layout import HEADER_BYTES, LENGTH_END, BatchField
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Codec, PartitionLog, SegmentFile
from coordinator_core.log.windows import Windows
from coordinator_core.records.codec import RecordDecodeError, decode_value
from coordinator_core.releases import profile_for_release
from coordinator_core.replay.inference import SAMPLED_BATCHES, Evidence, release_of, sample
from tests.fold.parity import PROFILES, differences, merge_folds
from tests.fuzz import payloads, segments
from tests.fuzz.checks import (
    LIMITS,
    PATH,
    WrongResultError,
    array_of,
    base_offset,
    file_of,
    log_of,
    require_equal,
    view_of,
)
from tests.fuzz.hostile import Hostile, changed
from tests.replay.reference import replay_partition

_ROOM = 1 << 15


@cache
def _functions() -> Int64s:
    """One decompression context for all inputs."""
    return codec_functions()


# The kernels of the fold, called as `fold.segments` calls them


def passes(data: bytes, choices: Random) -> str:
    """Fold chunk by chunk. Bytes change between listing, unpacking, folding, and copying what is left."""
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
    done = unpack(array, rows[:count], out, 0, most, _functions())
    used = int(rows["plain_size"][:done].sum())
    if used > len(out):
        raise WrongResultError(f"{used} bytes unpacked into {len(out)}")
    plain = out[:used].tobytes()
    if is_shifting and choices.random() < 0.5:
        plain = changed(plain, choices)
    if choices.random() < 0.5:
        at, view = 0, array_of(plain)
        fold = partial(arena.fold, view)
    else:
        at = arena.append(plain)
        # Only so much of the arena, that reading on is out of bounds.
        view = np.array(arena.data[: arena.used])
        fold = partial(_fold_in_arena, view)
    while at < len(view):
        if fold(at, len(view), tables) == Stop.END:
            break
        at = tables.position + _declared_size(view, tables.position)
    if done == 0:
        return position + _declared_size(array, position)
    return int(rows["position"][done - 1] + rows["size"][done - 1])


def _fold_in_arena(view: Bytes, at: int, stop: int, tables: FoldTables) -> int:
    status: int = fold_chunk(view, at, stop, ARENA, True, tables)
    return status


def _survivors(array: Bytes, tables: FoldTables, arena: Arena, choices: Random, *, is_shifting: bool) -> None:
    """Copy what a fold would keep, and decode it."""
    kept = np.empty(max(arena.used, 1), np.uint8)
    used = compact_arena(np.array(arena.data[: arena.used]), kept, tables)
    if used > arena.used:
        raise WrongResultError(f"{used} bytes are left of {arena.used}")
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
        raise WrongResultError(f"value {decoded} that the fold took is not decoded")
    _check_group_records(tables)


def _check_group_records(tables: FoldTables) -> None:
    """Their bytes are those of their block."""
    tables.end_group_block(0, 0, 0)
    for rows, keys, values in tables.group_blocks:
        for name, data in (("key", keys), ("value", values)):
            require_equal(int(np.maximum(rows[f"{name}_bytes"], 0).sum()), len(data), f"bytes of each {name}")


# The fold


def fold(data: bytes, choices: Random) -> str:
    """The whole fold of one segment, by both policies, against the sequential replay of the same bytes."""
    profile = PROFILES[choices.choice(list(PROFILES))]
    rules = FoldRules.of(profile)
    on_damage = choices.choice((OnDamage.FAIL, OnDamage.FAIL, OnDamage.SALVAGE, OnDamage.RECOVER))
    log = log_of(data, choices)
    found: list[Damage] = []
    expected: list[Damage] = []
    with file_of(data):
        try:
            folds = list(fold_partition(log, rules=rules, on_damage=on_damage, damage=found))
        except DamagedInputError as error:
            return _require_damage(log, profile, on_damage, error.damage)
        # Whether the log reaches its start offset is asked of a whole partition.
        found = [each for each in found if each.kind != "log_start_offset"]
        try:
            state = replay_partition(log, profile, on_damage=on_damage, damage=expected)
        except DamagedInputError as error:
            require_equal(error.damage.kind, "log_start_offset", "damage")
            return error.damage.kind
    require_equal(found, [each for each in expected if each.kind != "log_start_offset"], "damage")
    _require_state(merge_folds(folds, profile, 0), state)
    return "salvaged" if found else "read"


def _require_damage(log: PartitionLog, profile: Any, on_damage: OnDamage, damage: Damage) -> str:
    try:
        replay_partition(log, profile, on_damage=on_damage, damage=[])
    except DamagedInputError as error:
        require_equal(damage, error.damage, "damage")
        return damage.kind
    raise WrongResultError(f"the sequential replay finds no damage where the fold finds {damage}")


def _require_state(found: PartitionState, expected: PartitionState) -> None:
    wrong = differences(expected, found)
    if wrong:
        raise WrongResultError("\n".join(wrong))


class _Shifting(RunningFingerprint):
    """A fingerprint whose bytes change behind its back."""

    def __init__(self, data: bytes, choices: Random) -> None:
        self._data = view_of(data)
        super().__init__(self._data)
        self._choices = choices

    def advance(self, batches: int = 2) -> None:
        super().advance(batches)
        self._data[:] = changed(bytes(self._data), self._choices)


def shifting_fold(data: bytes, choices: Random) -> str:
    """The fold of a segment that changes while it is read: each reader of it sees other bytes.

    It ends, with a fold or an error that says what does not fit.
    """
    profile = PROFILES[choices.choice(list(PROFILES))]
    rules = FoldRules.of(profile)
    on_damage = choices.choice((OnDamage.FAIL, OnDamage.SALVAGE))
    segment = SegmentFile(PATH, 0, base_offset(data, choices), len(data))
    versions = (data, changed(data, choices), changed(data, choices))
    running = _Shifting(data, choices)
    try:
        with file_of(*versions):
            match choices.randrange(3):
                case 0:
                    list(fold_segment(segment, rules=rules, limits=LIMITS, on_damage=on_damage, running=running))
                case 1:
                    list(fold_segment(segment, rules=rules, limits=LIMITS, on_damage=on_damage))
                case _:
                    pieces = [Piece(segment, Windows(view_of(version))) for version in versions]
                    pieces[0] = Piece(segment, running.windows, None, running)
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
    log = log_of(data, choices)
    with file_of(data):
        found = infer_profile([log])
        evidence, compiled = Evidence(), Evidence()
        sample(log, log.segments[0], evidence, SAMPLED_BATCHES)
        _, compiled = take_from(log, log.segments[0], compiled, SAMPLED_BATCHES)
    require_equal(found, profile_for_release(*release_of(evidence)), "profile")
    require_equal(astuple(compiled), astuple(evidence), "evidence")
    return f"v{evidence.offset_version}"


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
        raise WrongResultError(f"the batch at {position} is intact")
    whole = fingerprint(view_of(data))
    steps = RunningFingerprint(view_of(data))
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
    buffer = view_of(data)
    while position < len(data):
        before = position
        try:
            for chunk in chunks(buffer, position, -(1 << 62), bounds, LIMITS):
                found, expected = chunk.data.tobytes(), _plain(data, chunk.batches)
                position = int(chunk.batches["position"][-1] + chunk.batches["size"][-1])
                outcome = "unpacked"
                if found != expected and Codec.ZSTD in chunk.batches["codec"]:
                    # Releases of libzstd make different bytes of some frames that are not valid.
                    outcome, expected = "libraries differ", _plain(data, chunk.batches, zstd=_by_libzstd)
                require_equal(found, expected, "plain batches")
        except CompressionError:
            outcome = "bad_compression"
        if position == before:
            position += _declared_size(np.frombuffer(data, np.uint8), position)
    _unpack_changed(array_of(data), bounds, choices)
    return outcome


def _by_libzstd(section: bytes) -> bytes:
    """A frame by the function that kernels call."""
    address, size, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
    functions, room = _functions(), LIMITS.decompressed_allowance(len(section))
    decompress_frame = ctypes.CFUNCTYPE(size, address, address, size, text, size)(int(functions[CodecFunction.ZSTD]))
    out = ctypes.create_string_buffer(room)
    done = decompress_frame(int(functions[CodecFunction.ZSTD_CONTEXT]), out, room, section, len(section))
    return out.raw[:done]


def _plain(data: bytes, batches: Any, zstd: Callable[[bytes], bytes] | None = None) -> bytes:
    """Batches without compression; ``zstd`` instead of the library of the plain readers."""
    out = bytearray()
    for row in batches:
        batch = data[row["position"] : row["position"] + row["size"]]
        packed = batch[HEADER_BYTES:]
        section: bytes | bytearray | memoryview = packed
        if row["codec"] == Codec.ZSTD and zstd is not None:
            section = zstd(packed)
        elif row["codec"]:
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
    done = unpack(array, rows[:count], out, at, choices.choice((0, 10, 1 << 17)), _functions())
    if done and at + int(rows["plain_size"][:done].sum()) > len(out):
        raise WrongResultError("more was unpacked than there is room")


# Values of commits


def make_values(hostile: Hostile) -> bytes:
    """Values of commits, each behind its length."""
    made = [hostile.broken(payloads.commit_value(hostile)) for _ in range(6)]
    return b"".join(struct.pack(">H", len(value)) + value for value in made)


def vary_values(hostile: Hostile, data: bytes) -> bytes:
    return changed(data, hostile.random)


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
    require_equal(whole, next((n for n, value in enumerate(values) if not _is_decoded(value)), len(values)), "row")
    if len(values):
        starts[choices.randrange(len(starts))] = choices.choice((-1, 0, len(array) + 1, 1 << 62, -(1 << 63)))
        decode_commits(array, starts, rows)
    return "none" if not taken else "all" if taken == len(values) else "some"


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
        raise WrongResultError(f"the kernel decodes {value.hex()}, the codec says {error}") from None
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

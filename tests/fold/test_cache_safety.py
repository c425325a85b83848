"""No file that others can write or forge is a fold of ours: owners, modes, digests, and entries that are only data."""

from __future__ import annotations

import os
import pickle
import stat
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c

from coordinator_core.fold.cache import FoldCache, FoldCacheWarning
from coordinator_core.groups.model import ClassicGroup, ConsumerGroup, GroupState, TransactionOutcome
from coordinator_core.log.discovery import discover
from coordinator_core.merge.plain import read_plain, write_plain
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import replay_snapshot
from tests.fold.random_logs import encoded_key, offset_value
from tests.log.builders import build_batch

PROFILE = profile_for_release("4.3.1")
PARTITIONS = 40
_POLYNOMIAL = 0x82F63B78
_CRC_AT = 17
_CRC_FROM = 21


@pytest.fixture
def cache(tmp_path: Path) -> FoldCache:
    return FoldCache(str(tmp_path / "folds"), min_segment_bytes=0)


def batch(base_offset: int, committed: int) -> bytes:
    items = [(encoded_key(b"g", b"t", each), offset_value(3, committed, b"m")) for each in range(PARTITIONS)]
    return build_batch(base_offset, items)


def write_log(directory: Path, batches: list[bytes]) -> Path:
    partition = directory / "__consumer_offsets-0"
    partition.mkdir(parents=True)
    (partition / f"{0:020d}.log").write_bytes(b"".join(batches))
    (partition / f"{len(batches) * PARTITIONS:020d}.log").write_bytes(batch(len(batches) * PARTITIONS, -1)[:0])
    return directory


def committed(log: Path, cache: FoldCache | None) -> set[int]:
    (state,) = replay_snapshot(discover([str(log)]), PROFILE, damage=[], cache=cache)
    return {offset.committed_offset for offset in state.offsets.values()}


def forged(data: bytes, at: int, crc: int) -> bytes:
    """``data`` with other bytes at ``at`` to ``at + 4``, so that it has this CRC-32C."""
    forward, backward = [], []
    for byte in range(256):
        down, up = byte, byte << 24
        for _ in range(8):
            down = (down >> 1) ^ (_POLYNOMIAL if down & 1 else 0)
            up = (((up ^ _POLYNOMIAL) << 1) | 1 if up & 0x80000000 else up << 1) & 0xFFFFFFFF
        forward.append(down)
        backward.append(up)
    state, wanted = 0xFFFFFFFF, crc ^ 0xFFFFFFFF
    for byte in data[:at]:
        state = (state >> 8) ^ forward[(state ^ byte) & 255]
    for byte in [*reversed(data[at + 4 :]), 0, 0, 0, 0]:
        wanted = ((wanted << 8) & 0xFFFFFFFF) ^ backward[wanted >> 24] ^ byte
    return data[:at] + struct.pack("<I", wanted ^ state) + data[at + 4 :]


def twin(sound: bytes, place: int) -> bytes:
    """A batch with the header and the CRC of ``sound``, and other committed offsets."""
    (crc,) = struct.unpack_from(">I", sound, _CRC_AT)
    other = batch(0, 666)[_CRC_FROM:]
    assert len(other) == len(sound) - _CRC_FROM
    # The header stays as it is; the commit time of the last record takes what the CRC needs.
    return sound[:_CRC_FROM] + forged(sound[_CRC_FROM:61] + other[61 - _CRC_FROM :], place, crc)


def test_a_segment_with_the_headers_and_crcs_of_another_has_its_own_fold(tmp_path: Path, cache: FoldCache) -> None:
    sound = batch(0, 7)
    evil = twin(sound, len(sound) - _CRC_FROM - 6)
    assert evil != sound
    assert crc32c(evil[_CRC_FROM:]) == struct.unpack_from(">I", sound, _CRC_AT)[0]
    honest = write_log(tmp_path / "honest", [sound])
    forgery = write_log(tmp_path / "forgery", [evil])
    assert committed(forgery, cache) == committed(forgery, None) == {666}
    assert committed(honest, cache) == {7}


class _Boom:
    def __init__(self, proof: Path) -> None:
        self._proof = proof

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._proof),)


def grown(tmp_path: Path) -> Path:
    """A log of many segments, so that the state of a merge is kept."""
    partition = tmp_path / "log" / "__consumer_offsets-0"
    partition.mkdir(parents=True)
    for segment in range(12):
        offset = segment * PARTITIONS
        (partition / f"{offset:020d}.log").write_bytes(batch(offset, segment))
    return tmp_path / "log"


def entries(cache: FoldCache) -> list[Path]:
    return sorted(Path(cache.directory).glob("*.fold"))


def test_nothing_that_is_planted_is_run(tmp_path: Path, cache: FoldCache) -> None:
    log = grown(tmp_path)
    assert committed(log, cache) == {11}
    proof = tmp_path / "proof"
    body = pickle.dumps(_Boom(proof))
    for path in entries(cache):
        path.write_bytes(body + struct.pack("<IQ", crc32c(body), len(body)))
    assert committed(log, cache) == {11}
    assert not proof.exists()


def test_entries_hold_no_pickle(tmp_path: Path, cache: FoldCache) -> None:
    committed(grown(tmp_path), cache)
    found = {path.read_bytes()[:4] for path in entries(cache)}
    assert found == {b"rgp1", b"\xff\xff\xff\xff"}


def test_entries_are_this_user_s_alone(tmp_path: Path, cache: FoldCache) -> None:
    committed(grown(tmp_path), cache)
    assert stat.S_IMODE(Path(cache.directory).stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in Path(cache.directory).iterdir()} == {0o600}


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
def test_a_directory_that_others_may_write_to_is_not_used(tmp_path: Path, cache: FoldCache, mode: int) -> None:
    log = grown(tmp_path)
    os.mkdir(cache.directory)
    os.chmod(cache.directory, mode)
    with pytest.warns(FoldCacheWarning, match="others may write to it"):
        assert committed(log, cache) == {11}
    assert entries(cache) == []


def test_what_belongs_to_somebody_else_is_not_used(
    tmp_path: Path, cache: FoldCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = grown(tmp_path)
    committed(log, cache)
    assert cache.read(entries(cache)[0].stem) is not None
    # Only root may give files away; anybody may look at them as another user.
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert cache.read(entries(cache)[0].stem) is None
    with pytest.warns(FoldCacheWarning, match="belongs to another user"):
        assert committed(log, FoldCache(cache.directory, min_segment_bytes=0)) == {11}


@pytest.mark.parametrize("kind", ["writable", "link", "fifo", "directory", "empty"])
def test_entries_are_files_that_only_this_user_writes_to(tmp_path: Path, cache: FoldCache, kind: str) -> None:
    log = grown(tmp_path)
    committed(log, cache)
    for path in entries(cache):
        content = path.read_bytes()
        path.unlink()
        match kind:
            case "writable":
                path.write_bytes(content)
                path.chmod(0o620)
            case "link":
                (tmp_path / "elsewhere").write_bytes(content)
                path.symlink_to(tmp_path / "elsewhere")
            case "fifo":
                os.mkfifo(path)
            case "directory":
                path.mkdir()
            case "empty":
                path.touch(0o600)
    assert committed(log, cache) == {11}


def test_a_sound_entry_that_is_no_state_is_passed_over(tmp_path: Path, cache: FoldCache) -> None:
    log = grown(tmp_path)
    committed(log, cache)
    for path in entries(cache):
        if path.read_bytes()[:4] == b"rgp1":
            body = b"rgp1" + struct.pack("<Q", 9) + b'["no","x"'
            path.write_bytes(body + struct.pack("<IQ", crc32c(body), len(body)))
    assert committed(log, cache) == {11}


def plain(value: Any) -> Any:
    sink = pa.BufferOutputStream()
    write_plain(value, sink)
    return read_plain(sink.getvalue())


GROUP = ConsumerGroup("g\ud800\n")


@pytest.mark.parametrize(
    "value",
    [
        None,
        [1, -(1 << 80), "x", True, None, [], (), set(), {}],
        {(1, None): 2, ("a", 0): [{3}, (b"\x00\xff",)]},
        {"nested": {1: {2: 3}}},
        ClassicGroup("g", GroupState.EMPTY),
        [TransactionOutcome.OPEN],
        GROUP,
    ],
    ids=str,
)
def test_plain_values_come_back(value: Any) -> None:
    found = plain(value)
    assert found == value
    assert type(found) is type(value)


def test_arrays_and_tables_come_back() -> None:
    arrays = [
        np.arange(5, dtype=np.int64),
        np.empty(0, np.uint8),
        np.array([(1, 2)], np.dtype([("a", "<i8"), ("b", "i1")], align=True)),
        np.array([[True], [False]]),
    ]
    table = pa.table({"name": pa.array(["a", "ä"], pa.large_string())})
    *found, read = plain([*arrays, table])
    for wanted, one in zip(arrays, found, strict=True):
        assert one.dtype == wanted.dtype
        assert one.flags.writeable
        assert np.array_equal(one, wanted)
    assert read == table


@pytest.mark.parametrize(
    "value",
    [object(), os.system, np.array([None]), 1.5, np.int64(3), Path("x"), stat.S_IFMT],
    ids=lambda each: str(type(each)),
)
def test_nothing_else_is_written(value: Any) -> None:
    with pytest.raises(TypeError, match="no plain value"):
        plain([value])


@pytest.mark.parametrize(
    "text",
    [
        '["object","system",["list",["id"]]]',
        '["object","os",["list",[]]]',
        '["enum","ClassicGroup",1]',
        '["object","GroupState",["list",["Empty"]]]',
        '["array",0,"O",[0]]',
        '["array",99,"<i8",[1]]',
        '["array",0,[["a","O"]],[0]]',
        '["table",0]',
        '["dict",["list",[1]],["list",[]]]',
        "[" * 100_000,
        "{}",
        '["list",7]',
        "",
    ],
)
def test_nothing_else_is_read(text: str) -> None:
    with pytest.raises(ValueError, match="no"):
        read_plain(pa.py_buffer(b"rgp1" + struct.pack("<Q", len(text)) + text.encode()))

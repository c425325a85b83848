"""The compiled look at a log's records learns what the scalar one does."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.fold import inference
from coordinator_core.fold.inference import infer_profile
from coordinator_core.log.discovery import discover
from coordinator_core.log.types import Codec, PartitionLog
from coordinator_core.replay.inference import SAMPLED_BATCHES, Evidence, sample
from tests.fold import random_logs
from tests.log.builders import NewRecord, build_batch, write_partition

CORPUS = Path(__file__).parents[1] / "corpus"
SNAPSHOTS = sorted({path.parent.parent for path in CORPUS.rglob("__consumer_offsets-*/*.log")})


def _told(log: PartitionLog) -> tuple[Evidence, Evidence, bool]:
    slow, fast = Evidence(), Evidence()
    left = sample(log, log.segments[-1], slow, SAMPLED_BATCHES)
    took = inference._Sampler(log.segments[-1], fast, SAMPLED_BATCHES).take()
    assert took in (None, left)
    return slow, fast, took is not None


@pytest.mark.parametrize("directory", SNAPSHOTS, ids=lambda path: str(path.relative_to(CORPUS)))
def test_logs_of_real_brokers_tell_the_same(directory: Path) -> None:
    for log in discover([str(directory)]).partitions:
        slow, fast, took = _told(log)
        if took:
            assert astuple(fast) == astuple(slow)


def _commit(version: int, key_type: int = 1, group: bytes = b"g") -> NewRecord:
    key = random_logs.encoded_key(group, b"t", version, key_type)
    return NewRecord(key=key, value=random_logs.offset_value(version, 5, b""))


@pytest.mark.parametrize("codec", list(Codec))
def test_commits_like_those_before_are_passed_over_and_the_first_of_a_kind_is_not(tmp_path: Path, codec: Codec) -> None:
    batches = [build_batch(20 * i, [_commit(1)] * 20, codec=codec) for i in range(50)]
    batches.append(build_batch(1000, [_commit(1), _commit(3)], codec=codec))
    batches.append(build_batch(1002, [_commit(0, 0)], codec=codec))
    write_partition(tmp_path, {0: b"".join(batches)})
    [log] = discover([str(tmp_path)]).partitions
    slow, fast, took = _told(log)
    assert took
    assert astuple(fast) == astuple(slow)
    assert (fast.offset_version, fast.key_types) == (3, {0, 1})


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_only_the_first_batches_are_looked_at(tmp_path: Path, codec: Codec) -> None:
    batches = [build_batch(i, [_commit(1)], codec=codec) for i in range(SAMPLED_BATCHES)]
    batches.append(build_batch(SAMPLED_BATCHES, [_commit(3)], codec=codec))
    write_partition(tmp_path, {0: b"".join(batches)})
    [log] = discover([str(tmp_path)]).partitions
    slow, fast, took = _told(log)
    assert took
    assert fast.offset_version == slow.offset_version == 1


@given(st.lists(random_logs.steps, min_size=1, max_size=8))
def test_random_logs_tell_the_same(tmp_path_factory: pytest.TempPathFactory, steps: list[random_logs.Data]) -> None:
    directory = tmp_path_factory.mktemp("log")
    write_partition(directory, {0: b"".join(random_logs.build(steps).batches)})
    [log] = discover([str(directory)]).partitions
    slow, fast, took = _told(log)
    if took:
        assert astuple(fast) == astuple(slow)


def test_damage_is_for_the_scalar_reader(tmp_path: Path) -> None:
    bad = bytearray(build_batch(1, [_commit(3)]))
    bad[-1] ^= 1
    write_partition(tmp_path, {0: build_batch(0, [_commit(4)]) + bytes(bad)})
    [log] = discover([str(tmp_path)]).partitions
    slow, _, took = _told(log)
    assert not took
    assert slow.offset_version == 4
    assert str(infer_profile([log]).release) == "4.3.1"


@pytest.mark.parametrize("is_sound", [True, False])
def test_a_segment_that_has_just_begun_leaves_the_rest_to_the_one_before(tmp_path: Path, is_sound: bool) -> None:
    old = SAMPLED_BATCHES - 2
    second = bytearray(build_batch(old + 1, [_commit(1)]))
    second[-1] ^= not is_sound
    segments = {
        0: b"".join(build_batch(i, [_commit(4 if i == 0 else 1)]) for i in range(old)),
        old: build_batch(old, [_commit(1)]) + bytes(second),
    }
    write_partition(tmp_path, segments)
    [log] = discover([str(tmp_path)]).partitions
    assert str(infer_profile([log]).release) == "4.3.1"


def test_no_more_batches_are_looked_at_for_being_in_many_segments(tmp_path: Path) -> None:
    segments = {i: build_batch(i, [_commit(4 if i == 0 else 1)]) for i in range(SAMPLED_BATCHES + 1)}
    write_partition(tmp_path, segments)
    [log] = discover([str(tmp_path)]).partitions
    assert str(infer_profile([log]).release) == "2.0.1"

"""Small logs that unpack to much that stands: metadata of 32 KB in every commit, names of as many bytes."""

from __future__ import annotations

import json
import sys
import tracemalloc
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.cli import restore_plan
from coordinator_core.cli.app import run as regroup
from coordinator_core.drill.copies import copies_of_run, copies_of_snapshot
from coordinator_core.errors import DamagedInputError, ExitCode, UsageError
from coordinator_core.fold import unpacking
from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.segments import fold_partition
from coordinator_core.groups.offsets import metadata_length
from coordinator_core.history.read import read_history
from coordinator_core.history.rows import history_rows
from coordinator_core.jsontext import json_pieces
from coordinator_core.lifecycle.compact_proof import table_differences
from coordinator_core.log.limits import MIB, STANDING_VARIABLE, Limits, standing_allowance
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Codec, PartitionLog, Snapshot
from coordinator_core.merge import packed
from coordinator_core.merge.partition import merge_columns
from coordinator_core.merge.schema import MergedPartition
from coordinator_core.records.codec import encode_key
from coordinator_core.records.wire import MAX_ELEMENTS, TooManyElementsError, write_uvarint
from coordinator_core.replay.explain import Subject, explain_partition
from coordinator_core.restore.decide import changed_row, group_plan
from coordinator_core.restore.model import Action, Plan, after_of, read_plan, state_digest, write_plan
from coordinator_core.restore.proof import prove
from coordinator_core.restore.source import wanted_of
from coordinator_core.restore.target import LogRange, Target, TargetGroup, groups_of, place_of
from coordinator_core.runs.local import replay_snapshot, replay_to_run
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.read import Run, open_run
from coordinator_core.runs.state_hash import PartitionDigest, canonical_rows, digests_of
from coordinator_core.runs.tables import OffsetTable
from coordinator_core.runs.verify import verify_run
from tests.examples import examples
from tests.fold.parity import PROFILES, sequential_outcome, write_log
from tests.fold.random_logs import Item, Log, encoded_key, offset_value
from tests.launched import launched
from tests.log.builders import build_batch

PROFILE = PROFILES["4.3.1"]
RULES = FoldRules.of(PROFILE)
COMMITS = 100


def commits(
    batches: int, *, per_batch: int = COMMITS, topic: bytes = b"t", metadata: int = 32_000, changed: int = -1
) -> Log:
    """One group's commits, each of another partition and with other metadata; that of ``changed`` in one other way."""
    made = []
    for batch in range(batches):
        numbers = range(batch * per_batch, (batch + 1) * per_batch)
        items: list[Item] = [
            (
                encoded_key(b"g", topic, number),
                offset_value(3, number, (b"x" if number == changed else b"m") * metadata + b"%d" % number),
            )
            for number in numbers
        ]
        made.append(build_batch(batch * per_batch, items, codec=Codec.ZSTD))
    return Log(tuple(made), tuple(range(0, batches * per_batch, per_batch)), batches * per_batch)


def merged(log: PartitionLog, allowance: int | None = None) -> MergedPartition:
    folds = fold_partition(log, rules=RULES, limits=Limits(kept_floor_bytes=4 * MIB))
    return merge_columns(folds, PROFILE, 0, allowance)


@pytest.fixture(autouse=True)
def a_batch_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "_CHUNK_BYTES", 1)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes of a block, here."""
    monkeypatch.setattr(packed, "BLOCK_BYTES", MIB)
    return MIB


def test_what_stands_is_held_packed(tmp_path: Path, small_blocks: int) -> None:
    log = write_log(tmp_path, commits(10))
    merged(log)  # Working tables are left to the next fold.
    tracemalloc.start()
    try:
        held = pa.total_allocated_bytes()
        found = merged(log)
        held = pa.total_allocated_bytes() - held + tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    blocks = list(found.offsets.blocks())
    assert sum(block.nbytes for block in blocks) > 32_000 * 10 * COMMITS
    assert max(block.nbytes for block in blocks) < 2 * small_blocks
    assert held < 8 * MIB
    expected, _ = sequential_outcome(log, PROFILE, OnDamage.FAIL)
    assert found.to_state() == expected


def test_blocks_are_cut_by_names_too(tmp_path: Path, small_blocks: int) -> None:
    found = merged(write_log(tmp_path, commits(3, topic=b"t" * 30_000, metadata=0)))
    blocks = list(found.offsets.blocks())
    assert len(blocks) >= 9
    assert max(block.nbytes for block in blocks) < 2 * small_blocks


def test_the_digest_of_blocks_is_that_of_the_table(tmp_path: Path, small_blocks: int) -> None:
    rows = OffsetTable(merged(write_log(tmp_path, commits(3))))
    blocks = [canonical_rows("offsets", block) for block in rows.blocks()]
    digest = PartitionDigest("offsets", rows.num_rows)
    for block in blocks:
        digest.update(block)
    whole = pa.concat_tables(blocks).combine_chunks()
    assert len(blocks) > 1
    assert {("offsets", 0): digest.hexdigest()} == digests_of("offsets", whole)


def test_metadata_that_are_not_whole_still_differ(tmp_path: Path, small_blocks: int) -> None:
    logs = []
    for name, changed in (("old", -1), ("new", 150)):
        (tmp_path / name).mkdir()
        logs.append(write_log(tmp_path / name, commits(2, metadata=2_000, changed=changed)))
    old, new = (merged(log) for log in logs)
    before, after = (found.to_state(whole_metadata=False).offsets for found in (old, new))
    assert [key.partition for key in before if before[key] != after[key]] == [150]
    assert max(len(offset.metadata) for offset in before.values()) < 100
    found = list(table_differences("p", "committed offset", old.offsets, new.offsets, None))
    assert [difference.offset_key and difference.offset_key.partition for difference in found] == [150, 150]
    assert not list(table_differences("p", "committed offset", old.offsets, old.offsets, None))


def test_more_than_is_allowed_is_refused_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = commits(6)
    snapshot = Snapshot((), (write_log(tmp_path, log),), (), (), {})
    everything = 6 * COMMITS * 32_100
    with pytest.raises(DamagedInputError) as refused:
        merged(snapshot.partitions[0], everything // 2)
    damage = refused.value.damage
    assert (damage.kind, damage.record_offset) == ("too_large", 2 * COMMITS)
    assert damage.byte_position == sum(map(len, log.batches[:2]))
    assert merged(snapshot.partitions[0], everything).offsets.num_rows == 6 * COMMITS
    monkeypatch.setenv(STANDING_VARIABLE, str(everything // 2))
    for on_damage in OnDamage:
        with pytest.raises(DamagedInputError, match=STANDING_VARIABLE):
            replay_snapshot(snapshot, PROFILE, on_damage=on_damage, damage=[])


def topology(group: str, subtopologies: int) -> Item:
    """A streams group's topology of so many copartition groups with nothing in them."""
    count = bytearray()
    write_uvarint(count, subtopologies + 1)
    value = b"\0\0\0\0\0\1\2\2s\1\1\1\1\1" + count + b"\1\1\1\0" * subtopologies + b"\0\0"
    return encode_key(23, {"groupId": group}), value


def test_no_objects_are_made_of_too_many_elements(tmp_path: Path) -> None:
    """In one value, or in all that stand: a batch of a kilobyte can become gigabytes."""
    batches = [
        build_batch(0, [(encoded_key(b"g", b"t", 0), offset_value(3, 1, b""))]),
        build_batch(1, [topology("g", MAX_ELEMENTS)], codec=Codec.ZSTD),
    ]
    log = write_log(tmp_path, Log((*batches,), (0, 1), 2))
    with pytest.raises(DamagedInputError) as refused:
        merged(log)
    damage = refused.value.damage
    assert (damage.kind, damage.byte_position, damage.record_offset) == ("too_large", len(batches[0]), 1)
    with pytest.raises(TooManyElementsError, match="record offset 1: too_large"):
        sequential_outcome(log, PROFILE, OnDamage.FAIL)
    for trailing in (b"", b"more"):
        items = [(key, (value or b"") + trailing) for key, value in (topology(f"g{n}", 1000) for n in range(10))]
        batches = [build_batch(0, [*items, *items], codec=Codec.ZSTD)]
        (tmp_path / f"all{len(trailing)}").mkdir()
        log = write_log(tmp_path / f"all{len(trailing)}", Log((*batches,), (0,), 20))
        with pytest.raises(DamagedInputError, match="objects of group records come to more than"):
            merged(log, 9_000 * 1024)
        assert len(merged(log, 10_100 * 1024).groups) == 10


def test_partitions_that_are_held_together_are_limited_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is below the limit: five of metadata, or of names."""
    for name in ("metadata", "names"):
        partitions = []
        for number in range(5):
            log = (
                commits(1, metadata=32_000 + number)
                if name == "metadata"
                else commits(1, topic=b"%d" % number * 30_000, metadata=0)
            )
            (tmp_path / name / str(number)).mkdir(parents=True)
            partitions.append(replace(write_log(tmp_path / name / str(number), log), offsets_partition=number))
        snapshot = Snapshot((), tuple(partitions), (), (), {})
        one = COMMITS * 32_100 if name == "metadata" else 32_000
        monkeypatch.setenv(STANDING_VARIABLE, str(3 * one))
        for texts in (packed.LongTexts(), None):
            with pytest.raises(DamagedInputError, match=f"up to 3 unpacks to more than {3 * one} bytes") as refused:
                replay_snapshot(snapshot, PROFILE, damage=[], whole_metadata=texts is None, long_texts=texts)
            assert refused.value.damage.path == partitions[3].segments[0].path
        place = RunPlace(str(tmp_path / "runs" / name), "c", "w", "r")
        assert replay_to_run(snapshot, place, profile=PROFILE, now_ms=1)["tables"]["offsets"]["rows"] == 5 * COMMITS
        monkeypatch.delenv(STANDING_VARIABLE)
        assert len(replay_snapshot(snapshot, PROFILE, damage=[])) == 5


def test_what_is_superseded_does_not_count(tmp_path: Path) -> None:
    """Eight folds with the same offset keys."""
    one = commits(1, per_batch=200)
    items: list[Item] = [(encoded_key(b"g", b"t", n), offset_value(3, n, b"m" * 32_000)) for n in range(200)]
    again = [build_batch(200 * number, items, codec=Codec.ZSTD) for number in range(1, 8)]
    log = Log((*one.batches, *again), tuple(range(0, 1600, 200)), 1600)
    assert merged(write_log(tmp_path, log), 200 * 32_100).offsets.num_rows == 200


def test_the_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STANDING_VARIABLE, raising=False)
    assert standing_allowance(0) == standing_allowance(256 * MIB) == 4096 * MIB
    assert standing_allowance(1024 * MIB) == 16 * 1024 * MIB
    monkeypatch.setenv(STANDING_VARIABLE, "1000")
    assert standing_allowance(1024 * MIB) == 1000
    for text in ("-1", "1e9", "a", "٣"):
        monkeypatch.setenv(STANDING_VARIABLE, text)
        with pytest.raises(UsageError):
            standing_allowance(0)


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner),
        st.dictionaries(st.one_of(st.text(max_size=2), st.integers(0, 9)), inner, max_size=3),
    ),
)


@examples(30)
@given(value=values, items=st.sampled_from((0, 1, 2, 300)))
def test_json_in_pieces_is_json(value: object, items: int) -> None:
    for document in (value, {"a": [{"b": [value] * items}]}):
        assert "".join(json_pieces(document)) == json.dumps(document, ensure_ascii=False)


@examples(30)
@given(texts=st.lists(st.one_of(st.text(max_size=3), st.integers(990, 5000).map(lambda n: "ü" * n)), max_size=40))
def test_packed_texts_come_back(texts: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "_LEAST_BYTES", 20_000)
        store = packed.PackedTexts()
        kept = [store.add(text) for text in texts]
        for number in (*range(len(texts)), *reversed(range(len(texts)))):
            assert str(kept[number]) == texts[number]


def test_histories_hold_metadata_packed(tmp_path: Path) -> None:
    log = write_log(tmp_path, commits(10))
    tracemalloc.start()
    try:
        read = partial(read_history, log, PROFILE, groups=["g"], deletions=None, topic_names={}, damage=[])
        without, history = read(), read(texts=packed.PackedTexts())
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 16 * MIB
    rows = sorted(history_rows(history.groups["g"]), key=lambda row: int(row["partition"]))
    assert [row["metadata"] for row in rows] == ["m" * 32_000 + str(number) for number in range(10 * COMMITS)]
    assert {row["metadata"] for row in history_rows(without.groups["g"])} == {""}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    snapshot = Snapshot((), (write_log(tmp_path, commits(4)),), (), (), {})
    place = RunPlace(str(tmp_path / "runs"), "c", "w", "r")
    replay_to_run(snapshot, place, profile=PROFILE, now_ms=1)
    return open_run(place.path)


def test_tables_are_read_a_block_at_a_time(run: Run) -> None:
    whole = run.table("offsets")
    found = [block for _, block in run.blocks("offsets", whole.schema, block_rows=50)]
    assert max(block.num_rows for block in found) == 50
    assert pa.concat_tables(found).equals(whole)
    del whole, found
    held = pa.total_allocated_bytes()
    short = run.table("offsets", whole_metadata=False)
    assert pa.total_allocated_bytes() - held < MIB
    assert set(pc.utf8_length(short["metadata"]).to_pylist()) == {len("sha256:") + 64}
    assert verify_run(run).status == "clean"


def test_metadata_wait_packed_until_they_are_shown(
    run: Run, tmp_path: Path, small_blocks: int, capfd: pytest.CaptureFixture[str]
) -> None:
    tracemalloc.start()
    try:
        texts, arrow = packed.LongTexts(), pa.total_allocated_bytes()
        (state,) = run.states(whole_metadata=False, long_texts=texts)
        held = pa.total_allocated_bytes() - arrow + tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 4 * MIB < 4 * COMMITS * 32_000
    stored = [{"n": key.partition, "metadata": offset.metadata} for key, offset in state.offsets.items()]
    mixed: list[dict[str, object]] = [*stored[::-1], {"n": -1, "metadata": None}, *stored[::7]]
    expected = [row | {"metadata": "m" * 32_000 + str(row["n"])} if row["metadata"] else row for row in mixed]
    assert list(texts.whole(mixed, "metadata")) == expected
    assert list(texts.whole([], "metadata")) == []
    directory = tmp_path / "log" / "__consumer_offsets-0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}.log").write_bytes(b"".join(commits(4).batches))
    log = str(directory.parent)
    shown = []
    for source in (run.path, log):
        release = ["--kafka-version", "4.3.1", "--no-fold-cache"] if source == log else []
        assert regroup(["describe", source, "--format", "json", *release]) == ExitCode.CLEAN
        shown.append(json.loads(capfd.readouterr().out)["groups"][0]["offsets"])
    assert shown[0] == shown[1]
    assert [row["metadata"] for row in shown[0]] == ["m" * 32_000 + str(number) for number in range(4 * COMMITS)]


@pytest.mark.parametrize("times", [4, pytest.param(10, marks=pytest.mark.full)])
def test_plans_hold_metadata_packed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Those of the source and of the target: 6.4 MB, so often."""
    held = []

    def noting(path: str, plan: Plan) -> str:
        held.append(tracemalloc.get_traced_memory()[0])
        return write_plan(path, plan)

    monkeypatch.setattr(restore_plan, "write_plan", noting)
    directory = tmp_path / "log" / "__consumer_offsets-0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}.log").write_bytes(b"".join(commits(times).batches))
    release = ["--kafka-version", "4.3.1", "--no-fold-cache"]
    words = ["restore", "plan", str(directory.parent), "--all-groups", "--against", str(directory.parent), *release]
    plans: list[Plan] = []
    for more in ([], ["--before-record", f"0:{times * COMMITS}"], ["--at-time", "2100-01-01T00:00:00Z"]):
        path = tmp_path / f"plan{len(plans)}"
        tracemalloc.start()
        try:
            # Longer than the brokers take, but committed already.
            assert regroup([*words, *more, "--output", str(path), "--format", "csv"]) == ExitCode.CLEAN
        finally:
            tracemalloc.stop()
        plans.append(read_plan(path)[0])
    assert max(held) < times * 3.2 * MIB
    for plan in plans:
        (group,) = plan.groups
        assert {row.action for row in group.rows} == {Action.KEEP}
        for place in (one for row in group.rows for one in (row.before, row.after)):
            assert place is not None
            assert place.metadata == "m" * 32_000 + str(place.offset)
        assert group.state_digest == state_digest(after_of(group.rows))
    capfd.readouterr()
    assert regroup([*words, "--format", "json"]) == ExitCode.CLEAN
    assert json.loads(capfd.readouterr().out)["groups"] == json.loads((tmp_path / "plan0").read_text())["groups"]


def test_proofs_compare_long_metadata(tmp_path: Path) -> None:
    """With a replay that has digests; and what differs in metadata alone is told."""
    snapshots = []
    for name, changed in (("planned", -1), ("found", 7)):
        (tmp_path / name).mkdir()
        log = write_log(tmp_path / name, commits(1, metadata=2_000, changed=changed))
        snapshots.append(Snapshot((), (log,), (), (), {}))
    wanted = wanted_of(replay_snapshot(snapshots[0], PROFILE, damage=[]), {}, None, 1)
    rows = [changed_row(key, None, place, LogRange(), "") for key, place in wanted.positions.items()]
    planned = group_plan(TargetGroup("g"), Target("t", None, {}, None, 1), rows)
    plan = Plan("restore", None, "t", "s", {}, 1, (planned,))
    for snapshot, differs in zip(snapshots, (False, True), strict=True):
        texts = packed.LongTexts()
        states = replay_snapshot(snapshot, PROFILE, damage=[], whole_metadata=False, long_texts=texts)
        answered = groups_of(replay_snapshot(snapshot, PROFILE, damage=[]), {}, place_of(1))
        proof = prove(plan, [], states, answered, texts)
        found = [text.partition(": ") for text in proof.problems if "than foreseen" in text]
        who = ("the replayed log", "its coordinator") if differs else ()
        what = "t-7 holds 7, leader epoch 1, metadata that is long"
        assert [(head, said) for head, _, said in found] == [
            (f"{one} has other offsets of group 'g' than foreseen", what) for one in who
        ]


def test_drills_keep_no_metadata(run: Run, tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    snapshot = Snapshot((), (write_log(tmp_path / "0", commits(4)),), (), (), {})
    for copies in (
        copies_of_run(run),
        copies_of_snapshot(snapshot, PROFILE, on_damage=OnDamage.FAIL, damage=[]),
    ):
        offsets = copies[0].state.offsets
        assert len(offsets) == 4 * COMMITS
        assert max(len(offset.metadata) for offset in offsets.values()) < 100


@given(text=st.text(min_size=1, max_size=30), other=st.text(min_size=1, max_size=30), times=st.sampled_from((1, 2000)))
def test_long_texts_equal_their_text(text: str, other: str, times: int) -> None:
    store = packed.PackedTexts()
    whole, others = text * times, other * times
    first, second, third = (packed.LongText.of(each, store) for each in (whole, whole, others))
    assert first == second == whole == first
    assert (first == third) is (whole == others) is (third == whole)
    assert len({first, second, whole}) == 1
    assert str(first) == whole
    if isinstance(first, packed.LongText) and isinstance(second, packed.LongText):
        assert first.length == metadata_length(whole)
        assert packed.unpacked([first, second])[first.digest] == whole


def test_explain_keeps_no_metadata(tmp_path: Path) -> None:
    log = write_log(tmp_path, commits(10))
    subject, held = Subject("g"), [0]
    tracemalloc.start()
    try:
        for event in explain_partition(log, PROFILE, subject, damage=[]):
            if event.record_offset % COMMITS == 0:
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert len(held) == 11
    assert max(held) < 16 * MIB < 10 * COMMITS * 32_000


def test_more_of_a_table_than_is_allowed_is_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(STANDING_VARIABLE, str(4 * COMMITS * 16_000))
    assert regroup(["describe", run.path, "--all-groups", "--format", "json"]) == ExitCode.DAMAGED_INPUT
    said = capfd.readouterr().err
    assert STANDING_VARIABLE in said
    assert f"{run.path}/offsets/part-00000.parquet" in said
    # What does not show metadata need not hold them.
    assert regroup(["list", run.path]) == regroup(["describe", run.path, "--all-groups"]) == ExitCode.CLEAN
    assert regroup(["verify", run.path]) == ExitCode.CLEAN


@pytest.mark.full
def test_compact_does_not_hold_metadata_several_times(tmp_path: Path) -> None:
    """100 KB of log with 450 MB of metadata: 3.4 GB before."""
    directory = tmp_path / "logs" / "__consumer_offsets-0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}.log").write_bytes(b"".join(commits(14, per_batch=1000).batches))
    arguments = ["compact", str(directory.parent), "--kafka-version", "4.3.1", "--now-ms", "1"]
    arguments += ["--output", str(tmp_path / "compacted")]
    done = launched([sys.executable, "-m", "coordinator_core", *arguments])
    assert done.code == ExitCode.CLEAN, done.stderr
    assert done.peak_bytes < 2560 * MIB

"""Options of the log that compaction writes: codec, and partition count."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.groups.hashing import partition_for
from coordinator_core.lifecycle import compact_publish
from coordinator_core.lifecycle.compact import CompactionOptions
from coordinator_core.lifecycle.compact_plan import CompactionRules
from coordinator_core.lifecycle.compact_proof import subject
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import read_partition, read_records
from coordinator_core.log.types import Codec
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import replay_snapshot
from tests.cases import CORPUS, case
from tests.cli.test_damaged_input import outcome, write_segment
from tests.log.builders import build_batch, build_control_batch, write_partition
from tests.replay.histories import OffsetKey, encoded_key, offset_value

NOW = 1_795_260_000_000
RELEASE = ["--kafka-version", "4.3.1", "--now-ms", str(NOW)]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def compacted(snapshot: Path, output: Path, capfd: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    arguments = ["compact", str(snapshot), "--output", str(output), *RELEASE, "--format", "json", *options]
    code, out, err = outcome(arguments, capfd)
    assert code == 0, err
    document: dict[str, Any] = json.loads(out)
    return document


def refused(snapshot: Path, output: Path, capfd: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    code, _, err = outcome(["compact", str(snapshot), "--output", str(output), *RELEASE, *options], capfd)
    assert not output.exists()
    assert not list(output.parent.glob(f".{output.name}.*"))
    return code, err


def records_of(directory: Path) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [
        (log.offsets_partition, record.offset, record.key, record.value)
        for log in discover([str(directory)]).partitions
        for _, _, records in read_records(log)
        for record in records
    ]


def codecs_of(directory: Path) -> Counter[str]:
    """Codecs of batches of format 2 with records that are no markers."""
    return Counter(
        Codec(batch.codec_id).name.lower()
        for log in discover([str(directory)]).partitions
        for _, batch in read_partition(log)
        if batch.magic == 2 and batch.record_count and not batch.is_control
    )


def answers(directory: Path, release: str = "4.3.1") -> dict[Any, Any]:
    """Committed offsets and groups, without where their records lie."""
    found: dict[Any, Any] = {}
    for state in replay_snapshot(discover([str(directory)]), profile_for_release(release), damage=[]):
        assert state.pending == {}
        for offset_key, offset in state.offsets.items():
            found[offset_key] = (offset.committed_offset, offset.metadata, offset.commit_timestamp_ms)
        for group_id, group in state.groups.items():
            found[group_id] = (type(group), sorted(map(str, getattr(group, "members", ()))))
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_every_batch_gets_the_codec_and_no_record_changes(
    codec: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    # Before the open transaction; one of each codec, and one that compaction shortens.
    batches = [
        build_batch(4 * n, [(encoded_key(OffsetKey("g", "t", 4 * n + i)), offset_value(i)) for i in range(4)], codec=c)
        for n, c in enumerate(Codec)
    ]
    dead = [
        (encoded_key(OffsetKey("g", "t", 0)), offset_value(9)),
        (encoded_key(OffsetKey("g", "t", 5)), None),
    ]
    marker = build_control_batch(25, 1, producer_id=7)
    transaction = build_batch(
        24, [(encoded_key(OffsetKey("h", "t", 0)), offset_value(1))], producer_id=7, transactional=True
    )
    behind = build_batch(27, [(encoded_key(OffsetKey("i", "t", 0)), offset_value(1))], codec=Codec.GZIP)
    opened = build_batch(
        26, [(encoded_key(OffsetKey("h", "t", 1)), offset_value(1))], producer_id=8, transactional=True
    )
    whole = b"".join([*batches, build_batch(22, dead), transaction, marker, opened, behind])
    write_partition(log, {0: whole})
    kept = compacted(log, tmp_path / "kept", capfd)
    document = compacted(log, tmp_path / "out", capfd, "--codec", codec)
    assert (kept["codec"], document["codec"]) == (None, codec)
    assert records_of(tmp_path / "out") == records_of(tmp_path / "kept")
    # Nothing behind the last stable offset is touched: one plain batch, one with gzip.
    expected = Counter({codec: 7}) + Counter(none=1, gzip=1)
    assert codecs_of(tmp_path / "out") == expected
    again = compacted(tmp_path / "out", tmp_path / "again", capfd, "--codec", codec)
    assert again["output_bytes"] == document["output_bytes"] == again["input_bytes"]


def test_old_messages_keep_their_codec_unless_they_are_converted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    snapshot = case("k0102-codecs/plain").paths[0]
    compacted(snapshot, tmp_path / "kept", capfd, "--codec", "zstd")
    assert codecs_of(tmp_path / "kept") == Counter()
    compacted(snapshot, tmp_path / "new", capfd, "--codec", "zstd", "--message-format", "2")
    assert set(codecs_of(tmp_path / "new")) == {"zstd"}
    assert answers(tmp_path / "new") == answers(snapshot)


@pytest.mark.parametrize(
    ("name", "count"),
    [("k431-compacted/A-uncleaned", 7), pytest.param("k431-mixed", 3, marks=pytest.mark.full)],
)
def test_groups_move_to_another_count_of_partitions(
    name: str, count: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    snapshot = without_open_transactions(case(name).paths[0], tmp_path / "log")
    options = ["--offsets-partitions", str(count), "--renumber"]
    document = compacted(snapshot, tmp_path / "out", capfd, *options)
    assert [row["offsets_partition"] for row in document["moved"]] == list(range(count))
    assert answers(tmp_path / "out") == answers(snapshot)
    for number, offset, key, _ in records_of(tmp_path / "out"):
        if key is not None and len(key) > 4:
            group_id = subject(key)[1]
            assert group_id is not None
            assert partition_for(group_id, count) == number, offset
    logs = discover([str(tmp_path / "out")]).partitions
    for log in logs:
        assert (Path(log.directory) / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
        batches = [batch for _, batch in read_partition(log)]
        assert {batch.partition_leader_epoch for batch in batches} <= {0}
        spans = [(batch.base_offset, batch.last_offset) for batch in batches]
        assert [base for base, _ in spans] == [0, *(last + 1 for _, last in spans)][: len(spans)]
    # Compacted, and as compaction leaves it.
    again = compacted(tmp_path / "out", tmp_path / "again", capfd)
    assert again["output_records"] == again["input_records"]
    plain = compacted(snapshot, tmp_path / "plain", capfd)
    assert document["protected_records"] == plain["protected_records"]
    assert sum(row["groups"] for row in document["moved"]) > 3


def without_open_transactions(snapshot: Path, place: Path) -> Path:
    """A copy that ends where its first transaction begins that stays open."""
    for log in discover([str(snapshot)]).partitions:
        open_since: dict[int, int] = {}
        batches = [batch for _, batch in read_partition(log)]
        for index, batch in enumerate(batches):
            if batch.is_control:
                open_since.pop(batch.producer_id, None)
            elif batch.is_transactional:
                open_since.setdefault(batch.producer_id, index)
        end = min(open_since.values(), default=len(batches))
        data = b"".join(bytes(batch.data) for batch in batches[:end])
        directory = place / Path(log.directory).name
        directory.mkdir(parents=True)
        (directory / f"{0:020d}.log").write_bytes(data)
    return place


def commits_of(group_id: str, first: int) -> bytes:
    return b"".join(
        build_batch(first + n, [(encoded_key(OffsetKey(group_id, "t", n)), offset_value(n))], timestamp=NOW - 1000)
        for n in range(3)
    )


def test_a_multiple_of_the_count_needs_no_new_offsets(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With twice as many partitions each takes groups of one only; offsets keep their holes."""
    groups = [f"g-{n}" for n in range(12)]
    logs: dict[int, bytes] = {0: b"", 1: b""}
    for place, group_id in enumerate(groups):
        logs[partition_for(group_id, 2)] += commits_of(group_id, 10 * place)
    write_partition(tmp_path / "log", {0: logs[0]}, partition=0)
    write_partition(tmp_path / "log", {0: logs[1]}, partition=1)
    compacted(tmp_path / "log", tmp_path / "out", capfd, "--offsets-partitions", "4")
    assert answers(tmp_path / "out") == answers(tmp_path / "log")
    before = {(key, value): offset for _, offset, key, value in records_of(tmp_path / "log")}
    after = {(key, value): offset for _, offset, key, value in records_of(tmp_path / "out")}
    assert after == before
    code, err = refused(tmp_path / "log", tmp_path / "bad", capfd, "--offsets-partitions", "3")
    assert (code, "record offsets collide: --renumber" in err) == (2, True), err
    code, err = refused(tmp_path / "log", tmp_path / "bad", capfd, "--offsets-partitions", "501")
    assert (code, "from 1 to 500" in err) == (2, True)


def test_a_batch_of_several_groups_is_split_and_its_markers_go_with_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    offset_keys = [OffsetKey(f"g-{n}", "t", 0) for n in range(6)]
    rows = [(encoded_key(offset_key), offset_value(n)) for n, offset_key in enumerate(offset_keys)]
    data = build_batch(0, rows, producer_id=7, transactional=True, timestamp=NOW - 1000)
    data += build_control_batch(6, 1, producer_id=7, timestamp=NOW - 900)
    log = write_segment(tmp_path, data)
    before = answers(log)
    arguments = ["compact", str(log), "--output", str(tmp_path / "out"), *RELEASE]
    code, text, _ = outcome([*arguments, "--offsets-partitions", "2", "--renumber"], capfd)
    assert (code, "offsets partition 1 of 2: 3 groups from 0, 4 records, " in text) == (0, True), text
    assert answers(tmp_path / "out") == before
    logs = discover([str(tmp_path / "out")]).partitions
    for one in logs:
        batches = [batch for _, batch in read_partition(one)]
        assert [batch.is_control for batch in batches] == [False, True]
    # The marker is in both partitions: the sums are of what was written.
    document = json.loads((tmp_path / "out/compaction.json").read_text())
    sums = document["output_bytes"], document["output_records"]
    assert sums == (sum(one.size for one in logs), len(records_of(tmp_path / "out"))) == (sums[0], 8)
    assert f" {sums[0]} " in text.splitlines()[2], text


def test_tombstones_may_be_kept_for_no_time(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Kafka allows a delete.retention.ms of 0: the pass after the one that sets the horizon removes them."""
    rows = [(encoded_key(OffsetKey("g", "t", number)), value) for number, value in ((0, offset_value(1)), (1, None))]
    write_partition(tmp_path / "log", {0: build_batch(0, rows, timestamp=NOW - 1000)}, partition=0)
    document = compacted(tmp_path / "log", tmp_path / "out", capfd, "--delete-retention-ms", "0")
    assert (document["delete_retention_ms"], document["output_records"]) == (0, 2)
    later = ["--now-ms", str(NOW + 1)]
    assert compacted(tmp_path / "out", tmp_path / "again", capfd, *later)["output_records"] == 1


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            build_batch(0, [(encoded_key(), offset_value(1))], producer_id=7, transactional=True),
            "producer 7 has an open transaction",
        ),
        (build_batch(0, [(b"\x00\x63\x00\x01g", b"?")]), "record offset 0: no known key"),
        (build_batch(0, [(b"", b"?")]), "record offset 0: no known key"),
    ],
)
def test_what_cannot_move_is_refused(data: bytes, told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = write_segment(tmp_path, data)
    options = ["--offsets-partitions", "4", "--renumber"]
    code, err = refused(log, tmp_path / "out", capfd, *options)
    assert (code, told in err) == (2, True), err


def test_a_group_in_two_partitions_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_partition(tmp_path / "log", {0: commits_of("g", 0)}, partition=0)
    write_partition(tmp_path / "log", {0: commits_of("g", 0)}, partition=1)
    options = ["--offsets-partitions", "4", "--renumber"]
    code, err = refused(tmp_path / "log", tmp_path / "out", capfd, *options)
    assert (code, "group 'g' is in offsets partition 0, too" in err) == (2, True), err


@pytest.mark.parametrize("base_offset", [0, 5, 1 << 40])
def test_a_renumbered_log_begins_where_it_began(
    base_offset: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = [(encoded_key(OffsetKey("g", "t", number % 2)), offset_value(number)) for number in range(6)]
    data = build_batch(base_offset, rows, timestamp=NOW - 1000)
    write_partition(tmp_path / "log", {base_offset: data}, partition=0)
    compacted(tmp_path / "log", tmp_path / "out", capfd, "--renumber")
    assert [offset for _, offset, _, _ in records_of(tmp_path / "out")] == [base_offset, base_offset + 1]
    assert answers(tmp_path / "out") == answers(tmp_path / "log")


def test_a_log_whose_records_are_all_deleted_is_renumbered(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its log start offset is its log end offset; the batches before are there."""
    rows = [(encoded_key(OffsetKey("g", "t", number)), offset_value(number)) for number in range(6)]
    write_partition(tmp_path / "log", {0: build_batch(0, rows, timestamp=NOW - 1000)}, partition=0)
    (tmp_path / "log" / "log-start-offset-checkpoint").write_text("0\n1\n__consumer_offsets 0 6\n")
    compacted(tmp_path / "log", tmp_path / "out", capfd, "--renumber")
    assert records_of(tmp_path / "out") == []


def test_an_interrupt_ends_the_compaction_of_one_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []

    def interrupted(*arguments: Any, **options: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        ended.append(arguments)

    monkeypatch.setattr(compact_publish, "compact_partition", interrupted)
    options = CompactionOptions(profile_for_release("4.3.1"), CompactionRules(NOW))
    logs = discover([str(path) for path in case("k431-txn").paths]).partitions
    with pytest.raises(KeyboardInterrupt):
        compact_publish.compact_logs(logs[:1], tmp_path, options)
    assert not ended


def test_large_partitions_are_compacted_in_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    snapshot = CORPUS / "k431-txn/log"
    alone = compacted(snapshot, tmp_path / "alone", capfd)
    monkeypatch.setattr(compact_publish, "LARGE_BYTES", 0)
    abreast = compacted(snapshot, tmp_path / "abreast", capfd)
    assert abreast["partitions"] == alone["partitions"]
    assert records_of(tmp_path / "abreast") == records_of(tmp_path / "alone")
    damaged = tmp_path / "damaged"
    shutil.copytree(snapshot, damaged)
    last = max(damaged.glob("__consumer_offsets-*/*.log"))
    last.write_bytes(last.read_bytes() + b"damage")
    code, said = refused(damaged, tmp_path / "none", capfd)
    assert (code, said.count(str(last))) == (3, 1)

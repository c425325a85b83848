"""``regroup compact``: what it prints, that it publishes all or nothing, and what it refuses."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.cli.app import run
from coordinator_core.errors import ExitCode
from coordinator_core.lifecycle import compact, compact_plan
from coordinator_core.lifecycle.compact_plan import Extra, Survivors
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import read_records
from coordinator_core.releases import profile_for
from tests.cases import case
from tests.cli.test_damaged_input import outcome, write_segment
from tests.log.builders import build_batch, build_control_batch
from tests.replay.histories import OffsetKey, encoded_key, offset_value
from tests.replay.reference import replay_partition

NOW = 1_795_260_000_000
RELEASE = ["--kafka-version", "4.3.1", "--now-ms", str(NOW)]


def document_of(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    code, out, err = outcome(["compact", *arguments, "--format", "json"], capfd)
    assert code == 0, err
    document: dict[str, Any] = json.loads(out)
    return document


def commits(*values: tuple[int, int | None], group: str = "g") -> bytes:
    """One batch a commit: (partition, committed offset or nothing)."""
    return b"".join(
        build_batch(
            offset,
            [(encoded_key(OffsetKey(group, "t", partition)), None if value is None else offset_value(value))],
            timestamp=NOW - 1000 + offset,
        )
        for offset, (partition, value) in enumerate(values)
    )


def test_the_output_is_a_log_with_its_report(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    snapshot = str(case("k431-txn").paths[0])
    output = tmp_path / "out"
    document = document_of([snapshot, "--output", str(output), *RELEASE], capfd)
    assert json.loads((output / "compaction.json").read_text()) == document
    assert document["profile"] == "J3 (4.3.1, new coordinator)"
    assert document["output_records"] == sum(row["output_records"] for row in document["partitions"])
    assert {row["offsets_partition"] for row in document["partitions"]} == {
        int(path.name.rpartition("-")[2]) for path in output.glob("__consumer_offsets-*")
    }
    assert sorted(path.name for path in output.iterdir() if path.name.startswith(".")) == []
    described = [outcome(["describe", path, *RELEASE, "--format", "json"], capfd) for path in (snapshot, str(output))]
    before, after = (json.loads(out) for _, out, _ in described)
    for name in ("groups", "orphaned_offsets", "load_failures"):
        assert before[name] == after[name], name
    assert json.loads(outcome(["verify", str(output), "--format", "json"], capfd)[1])["status"] == "clean"


def test_earlier_output_is_never_overwritten(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = write_segment(tmp_path, commits((0, 1)))
    output = tmp_path / "out"
    output.mkdir()
    (output / "kept").touch()
    code, _, err = outcome(["compact", str(log), "--output", str(output), *RELEASE], capfd)
    assert (code, "exists already" in err) == (2, True)
    assert [path.name for path in output.iterdir()] == ["kept"]
    code, _, err = outcome(["compact", str(log), "--output", "s3://bucket/x", *RELEASE], capfd)
    assert (code, "local directories only" in err) == (2, True)


def test_a_disk_that_takes_no_more_leaves_earlier_output_alone(tmp_path: Path) -> None:
    """The system refuses to write more than 100 kB into a file, as a full disk refuses to."""
    snapshot = str(case("k431-compacted/A-uncleaned").paths[0])
    earlier = tmp_path / "logs/earlier"
    earlier.mkdir(parents=True)
    (earlier / "kept").write_text("as it was")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "coordinator_core", "compact", snapshot),
            *("--output", str(tmp_path / "logs/out"), *RELEASE),
        ],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ExitCode.APPLY_FAILED
    assert "logs/out: cannot be written: File too large" in done.stderr
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["earlier"]
    assert (earlier / "kept").read_text() == "as it was"


def without_one(*arguments: Any) -> Survivors:
    stays = compact_survivors(*arguments)
    left = stays.offsets != 1
    return Survivors(stays.offsets[left], stays.tombstones[left])


compact_survivors = compact_plan.survivors


def test_a_failed_proof_publishes_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newest value is lost, and no attempt to protect it helps."""
    log = write_segment(tmp_path, commits((0, 1), (0, 2), (1, 3)))
    monkeypatch.setattr(compact_plan, "survivors", without_one)
    code, _, err = outcome(["compact", str(log), "--output", str(tmp_path / "out"), *RELEASE], capfd)
    assert (code, "the output replays to another state" in err) == (4, True), err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["__consumer_offsets-0"]


def test_a_batch_written_wrong_is_found(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write_segment(tmp_path, commits((0, 1), (0, 2), (1, 3)))
    written = compact.write_segments

    def damaged(*arguments: Any) -> Any:
        result = written(*arguments)
        path = Path(result[1].segments[0].path)
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        return result

    monkeypatch.setattr(compact, "write_segments", damaged)
    code, _, err = outcome(["compact", str(log), "--output", str(tmp_path / "out"), *RELEASE], capfd)
    assert (code, "the output is not valid" in err) == (4, True)
    assert not (tmp_path / "out").exists()


def test_a_second_compaction_that_differs_fails_the_proof(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write_segment(tmp_path, commits((0, 1), (0, 2), (1, 3)))
    calls = []

    def first_keeps_all(newest: Any, rules: Any, extra: Extra) -> Survivors:
        calls.append(extra)
        return compact_survivors(newest, rules, frozenset({0}) if len(calls) == 1 else extra)

    monkeypatch.setattr(compact_plan, "survivors", first_keeps_all)
    code, _, err = outcome(["compact", str(log), "--output", str(tmp_path / "out"), *RELEASE], capfd)
    assert (code, "a second compaction would change the output" in err) == (4, True)


def test_damaged_input_is_refused_or_cut(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = bytearray(commits((0, 1), (0, 2), (1, 3)))
    data[-3] ^= 1
    log = write_segment(tmp_path, bytes(data))
    arguments = ["compact", str(log), "--output", str(tmp_path / "out"), *RELEASE]
    code, _, err = outcome(arguments, capfd)
    assert (code, "bad_crc" in err) == (3, True)
    assert not (tmp_path / "out").exists()
    code, out, err = outcome([*arguments, "--partial", "--format", "json"], capfd)
    document = json.loads(out)
    assert (code, document["partial"], document["output_records"]) == (0, True, 1)
    assert "bad_crc" in err
    code, _, err = outcome([*arguments[:3], str(tmp_path / "other"), *RELEASE, "--salvage"], capfd)
    assert (code, "--salvage" in err) == (2, True)


def test_what_is_not_known_is_carried_byte_for_byte(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    unknown = [
        (b"\x00\x63\x00\x01g", b"\x00\x07whatever"),
        (b"\x00\x01\x00\x09cut", b"\x00\x03"),
        (b"", b"an empty key"),
        (b"\x7f", None),
        (encoded_key(), offset_value(5)[:2] + b"\x01\x02"),
    ]
    data = build_batch(0, [(key, b"old") for key, _ in unknown]) + build_batch(5, unknown)
    log = write_segment(tmp_path, data)
    document_of([str(log), "--output", str(tmp_path / "out"), *RELEASE], capfd)
    (result,) = discover([str(tmp_path / "out")]).partitions
    left = [record for _, _, records in read_records(result) for record in records]
    assert [(record.key, record.value) for record in left] == unknown


def test_expired_offsets_are_tombstoned(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = write_segment(tmp_path, commits((0, 1), (1, 3)) + b"")
    arguments = [str(log), "--output", str(tmp_path / "out"), "--kafka-version", "4.3.1"]
    late = [*arguments, "--now-ms", str(NOW + 10_000_000), "--expire", "--offsets-retention-ms", "60000"]
    document = document_of(late, capfd)
    assert (document["expired_offsets"], document["expired_groups"]) == (2, 1)
    (partition,) = document["partitions"]
    read = discover([str(log)]).partitions[0]
    assert (partition["input_bytes"], partition["input_batches"], partition["input_records"]) == (read.size, 2, 2)
    (result,) = discover([str(tmp_path / "out")]).partitions
    state = replay_partition(result, profile_for("J3"), damage=[])
    assert (state.offsets, state.groups) == ({}, {})
    records = [record for _, _, records in read_records(result) for record in records]
    assert [record.value for record in records] == [None] * 3
    assert [record.offset for record in records] == [2, 3, 4]
    code, _, err = outcome(["compact", *arguments, "--offsets-retention-ms", "1"], capfd)
    assert (code, "--expire" in err) == (2, True)


def test_reasons_that_are_left_out_are_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The tombstones of the classic coordinator leave groups that the new one has, and has by commits alone."""
    keys = [encoded_key(OffsetKey(f"g{number}", "t", 0)) for number in range(7)]
    log = write_segment(tmp_path, build_batch(0, [(key, offset_value(1)) for key in keys], timestamp=NOW))
    arguments = ["compact", str(log), "--output", str(tmp_path / "out"), "--kafka-version", "3.9.2", "--expire"]
    code, _, said = outcome(arguments, capfd)
    assert code == 0
    assert (said.count("kept for: "), said.count("and for 2 more (compaction.json has all)")) == (5, 1)


def test_a_sweep_that_fails_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = write_segment(tmp_path, commits((0, 1)) + build_batch(1, [(None, b"no key")]))
    arguments = ["compact", str(log), "--output", str(tmp_path / "out"), "--kafka-version", "4.3.1", "--expire"]
    code, printed, said = outcome([*arguments, "--format", "json"], capfd)
    reason = "the partition is not loaded: record offset 1: null key"
    (partition,) = json.loads(printed)["partitions"]
    assert (code, partition["expired_offsets"], partition["expiry_failure"]) == (0, 0, reason)
    assert f"expires nothing in offsets partition {partition['offsets_partition']}: {reason}" in said


def test_a_late_commit_under_a_tombstone_stays(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Expiry tombstones an offset key while a transaction has a commit of it, which ends well: the old coordinator
    then has that commit, and loses it when its own cleaner has run."""
    key = encoded_key(OffsetKey("g", "t", 0))
    data = (
        build_batch(0, [(key, offset_value(70))])
        + build_batch(1, [(key, offset_value(77))], producer_id=5, transactional=True)
        + build_batch(2, [(key, None)])
        + build_control_batch(3, 1, producer_id=5)
    )
    log = write_segment(tmp_path, data)
    document = document_of([str(log), "--output", str(tmp_path / "out"), *RELEASE], capfd)
    (row,) = document["partitions"]
    assert row["protected_records"] == 1
    assert any("record 1 is not found" in told for told in row["told"])
    (result,) = discover([str(tmp_path / "out")]).partitions
    for name, expected in (("S4", [77]), ("J3", [])):
        state = replay_partition(result, profile_for(name), damage=[])
        assert [offset.committed_offset for offset in state.offsets.values()] == expected
    arguments = [
        "explain",
        str(tmp_path / "out"),
        "--kafka-version",
        "3.9.2",
        "--group",
        "g",
        "--topic",
        "t:0",
    ]
    story = outcome(arguments, capfd)[1]
    assert [line.split()[1] for line in story.splitlines()] == ["1", "2", "3"]


def test_a_few_of_many_open_transactions_are_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = b"".join(
        build_batch(one, [(encoded_key(), offset_value(one))], producer_id=one, transactional=True) for one in range(9)
    )
    log = write_segment(tmp_path, data)
    code, _, err = outcome(["compact", str(log), "--output", str(tmp_path / "out"), *RELEASE], capfd)
    assert code == 0
    assert "open transactions of producers 0, 1, 2, 3, 4 and 4 more\n" in err


def test_help_names_the_options(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["compact", "--help"]) == 0
    text = capfd.readouterr().out
    for option in ("--expire", "--renumber", "--delete-retention-ms", "--message-format", "--segment-bytes"):
        assert option in text

"""Damage ends in exit code 3 with a position, or in a clean read where it cannot be seen; in nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from coordinator_core.cli.app import run
from coordinator_core.log.types import Codec, ControlType
from tests.examples import strides
from tests.log.builders import build_batch, build_control_batch
from tests.replay.histories import OffsetKey, encoded_key, group_value, offset_value

GROUP_KEY = b"\x00\x02\x00\x01g"
SEGMENT = b"".join(
    (
        build_batch(0, [(GROUP_KEY, group_value("m"))]),
        build_batch(1, [(encoded_key(), offset_value(5))], producer_id=9, transactional=True),
        build_control_batch(2, ControlType.COMMIT, producer_id=9),
        build_batch(3, [(encoded_key(OffsetKey("g", "u", 1)), offset_value(6))], codec=Codec.LZ4),
        build_batch(4, [(encoded_key(), None)]),
    )
)


def write_segment(directory: Path, data: bytes, name: str = "00000000000000000000.log") -> Path:
    partition = directory / "__consumer_offsets-0"
    partition.mkdir(exist_ok=True)
    (partition / name).write_bytes(data)
    return directory


def outcome(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = run(arguments)
    captured = capfd.readouterr()
    return code, captured.out, captured.err


def assert_clean_or_damaged(directory: Path, capfd: pytest.CaptureFixture[str], what: str) -> int:
    """The exit code of ``verify``."""
    for command in ("describe", "verify"):
        code, out, err = outcome([command, str(directory), "--format", "json"], capfd)
        assert code in (0, 3), (what, command, code, err)
        assert "Traceback" not in err
        if code == 0:
            continue
        if command == "describe":
            assert out == ""
            assert re.search(r"\.log: byte \d+", err), (what, err)
        else:
            assert json.loads(out)["damage"], what
    return code


@strides(8)
def test_truncation_at_each_byte(tmp_path: Path, capfd: pytest.CaptureFixture[str], stride: int) -> None:
    codes = set()
    for length in range(0, len(SEGMENT), stride):
        write_segment(tmp_path, SEGMENT[:length])
        codes.add(assert_clean_or_damaged(tmp_path, capfd, f"first {length} bytes"))
    assert codes == {0, 3}


@strides(8)
def test_a_flip_of_each_byte(tmp_path: Path, capfd: pytest.CaptureFixture[str], stride: int) -> None:
    codes = []
    for position in range(0, len(SEGMENT), stride):
        damaged = bytearray(SEGMENT)
        damaged[position] ^= 0xFF
        write_segment(tmp_path, bytes(damaged))
        codes.append(assert_clean_or_damaged(tmp_path, capfd, f"byte {position} flipped"))
    # Outside the CRC lie only the base offset, the length, the leader epoch and the magic: 17 bytes a batch.
    assert codes.count(3) >= len(codes) - 5 * (17 // stride + 1)


@pytest.mark.parametrize("how", ["--partial", "--salvage"])
def test_the_log_of_a_run_is_read_past_damage_as_the_run_has_read_it(
    how: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    damaged = bytearray(SEGMENT)
    # The CRC of the first batch: only salvage finds a group and offsets behind it.
    damaged[17] ^= 0xFF
    (tmp_path / "log").mkdir()
    log, rules = str(write_segment(tmp_path / "log", bytes(damaged))), ["--kafka-version", "4.3.1"]
    code, out, _ = outcome(
        ["replay", log, "--output", str(tmp_path / "runs"), "--cluster", "c", *rules, how, "--format", "json"], capfd
    )
    path = json.loads(out)["run"]
    manifest = json.loads((Path(path) / "manifest.json").read_text())
    assert (code, manifest["on_damage"]) == (0, how.removeprefix("--").replace("partial", "recover"))

    def rows(*words: str) -> list[dict[str, object]]:
        file = str(tmp_path / "history.parquet")
        assert outcome(["history", *words, "--output", file], capfd)[0] == 0
        return pq.read_table(file).to_pylist()

    of_run = rows(path)
    assert of_run == rows(log, *rules, how)
    assert bool(of_run) == (how == "--salvage")
    for command in ("investigate", "explain"):
        code, _, err = outcome([command, path, "--group", "g"], capfd)
        assert code in ((0, 1) if of_run else (0, 2)), (command, err)
    # Asking for the other way wins.
    assert rows(path, "--salvage") == rows(log, *rules, "--salvage")
    # Earlier versions did not keep it.
    del manifest["on_damage"]
    (Path(path) / "manifest.json").write_text(json.dumps(manifest))
    assert rows(path) == rows(log, *rules, "--partial")


def test_swapped_segments(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first = build_batch(0, [(encoded_key(), offset_value(1))])
    second = build_batch(1, [(encoded_key(), offset_value(2))])
    write_segment(tmp_path, second)
    write_segment(tmp_path, first, "00000000000000000001.log")
    code, _, err = outcome(["describe", str(tmp_path)], capfd)
    assert code == 3
    assert "byte 0, record offset" in err


@pytest.mark.parametrize("option", ["--partial", "--salvage"])
def test_going_on_past_damage_says_so(option: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    damaged = bytearray(SEGMENT)
    second_batch = len(build_batch(0, [(GROUP_KEY, group_value("m"))]))
    damaged[second_batch + 70] ^= 0xFF
    write_segment(tmp_path, bytes(damaged))
    code, out, err = outcome(["describe", str(tmp_path), "--format", "json", option], capfd)
    document = json.loads(out)
    assert (code, document["partial"]) == (0, True)
    assert f"byte {second_batch}, record offset 1: bad_crc" in err
    topics = [row["topic"] for group in document["groups"] for row in group["offsets"]]
    assert topics == ([] if option == "--partial" else ["u"])


def test_damage_publishes_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log, output = tmp_path / "log", tmp_path / "runs"
    log.mkdir()
    write_segment(log, SEGMENT[:-3])
    code, out, err = outcome(["replay", str(log), "--output", str(output), "--cluster", "c"], capfd)
    assert (code, out) == (3, "")
    assert "torn_tail" in err
    assert not list(output.rglob("*.json"))
    assert not list(output.rglob("*.parquet"))


@pytest.mark.parametrize(
    "command",
    [
        ["describe", "--all-groups"],
        ["list"],
        ["replay", "--output", "runs", "--cluster", "c"],
        ["expire"],
        ["stats"],
        ["compact", "--output", "compacted"],
        ["history", "--output", "history.parquet"],
        ["investigate"],
    ],
    ids=lambda command: command[0],
)
def test_a_log_that_ends_before_its_start(
    command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its newer segments were not copied: no state of it is known."""
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "log"
    log.mkdir()
    write_segment(log, SEGMENT)
    (log / "log-start-offset-checkpoint").write_text("0\n1\n__consumer_offsets 0 50\n")
    words = [command[0], "log", *command[1:]]
    code, out, err = outcome(words, capfd)
    assert (code, out) == (3, "")
    assert f"byte {len(SEGMENT)}, record offset 5: log_start_offset: the log ends before its start offset 50" in err
    if command[0] in ("describe", "list", "replay", "expire"):
        code, _, err = outcome([*words, "--salvage"], capfd)
        assert code == 0
        assert f"00000000000000000000.log: byte {len(SEGMENT)}, record offset 5: log_start_offset" in err
    if command[0] in ("describe", "list", "replay", "expire", "stats", "compact"):
        code, _, err = outcome([*words, "--partial"], capfd)
        assert code == 0
        assert err.count(f"00000000000000000000.log: byte {len(SEGMENT)}, record offset 5: log_start_offset") == 1


@pytest.mark.parametrize("options", [[], ["--renumber"], ["--expire"]], ids=" ".join)
def test_a_log_that_ends_before_its_start_is_compacted_as_a_broker_leaves_it(
    options: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It deletes all segments, and begins at the log start offset."""
    log, output = tmp_path / "log", tmp_path / "compacted"
    log.mkdir()
    write_segment(log, SEGMENT)
    (log / "log-start-offset-checkpoint").write_text("0\n1\n__consumer_offsets 0 50\n")
    words = ["compact", str(log), "--output", str(output), "--partial", "--format", "json", *options]
    code, out, err = outcome(words, capfd)
    assert (code, err.count("log_start_offset")) == (0, 1)
    document = json.loads(out)
    assert (document["partial"], [one["kind"] for one in document["damage"]]) == (True, ["log_start_offset"])
    (partition,) = document["partitions"]
    assert (partition["log_start_offset"], partition["log_end_offset"], partition["output_records"]) == (50, 50, 0)
    (segment,) = output.rglob("*.log")
    assert (segment.name, segment.stat().st_size) == (f"{50:020}.log", 0)


@pytest.mark.parametrize(
    "command",
    [
        ["describe"],
        ["history", "--output", "history.parquet"],
        ["explain", "--group", "g"],
        ["investigate", "--group", "g"],
        ["restore", "plan", "--before-record", "0:4", "--all-groups", "--against", "TARGET"],
    ],
    ids=lambda command: command[0],
)
def test_a_log_whose_start_is_not_known(
    command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that starts on it has records that were deleted before."""
    monkeypatch.chdir(tmp_path)
    log, target = tmp_path / "log", tmp_path / "target"
    for directory in (log, target):
        directory.mkdir()
        write_segment(directory, SEGMENT)
    checkpoint = log / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\n__consumer_offsets 0 x\n")
    words = [str(target) if word == "TARGET" else word for word in command]
    words.insert(2 if words[0] == "restore" else 1, str(log))
    code, out, err = outcome(words, capfd)
    assert (code, out) == (3, "")
    assert f"{checkpoint}: byte 0: bad_checkpoint" in err
    assert not (tmp_path / "history.parquet").exists()
    code, _, err = outcome([*words, "--partial"], capfd)
    assert code in (0, 1)
    assert f"warning: {checkpoint}: byte 0: bad_checkpoint" in err


def test_a_dump_is_of_the_segments_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As Kafka's tool does, it prints records before the log start, and asks for no checkpoint."""
    write_segment(tmp_path, SEGMENT)
    expected = outcome(["dump", str(tmp_path), "--format", "jsonl"], capfd)
    assert (expected[0], expected[1].count("\n"), expected[2]) == (0, 5, "")
    for offset in ("2", "x"):
        (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\n__consumer_offsets 0 {offset}\n")
        assert outcome(["dump", str(tmp_path), "--format", "jsonl"], capfd) == expected

"""Files around a log, and of a run, that are not what they should be: exit code 2 or 3, one line, and an end."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.log.types import Codec
from tests.cli.test_damaged_input import SEGMENT, outcome, write_segment
from tests.log.builders import NewRecord, build_batch, build_raw_batch
from tests.replay.histories import OffsetKey, encoded_key, offset_value

RELEASE = ["--kafka-version", "4.3.1", "--now-ms", "1700000000000"]
DEEP = "[" * 100_000
PARTITION = "__consumer_offsets-0"
NAME = "00000000000000000000.log"


def checkpoint(line: str) -> Callable[[Path], object]:
    return lambda log: (log / "log-start-offset-checkpoint").write_text(f"0\n1\n__consumer_offsets {line}\n")


def text(name: str, content: str) -> Callable[[Path], object]:
    return lambda log: (log / name).write_text(content)


FILES: dict[str, Callable[[Path], object]] = {
    "log start offset beyond int64": checkpoint("0 99999999999999999999"),
    "log start offset below -1": checkpoint("0 -5"),
    "log start offset of 5000 digits": checkpoint("0 " + "9" * 5000),
    "segment beyond int64": lambda log: (log / PARTITION / NAME).rename(log / PARTITION / f"{'9' * 20}.log"),
    "segment a little beyond int64": lambda log: (log / PARTITION / NAME).rename(
        log / PARTITION / "09300000000000000000.log"
    ),
    "partition beyond int32": lambda log: (log / PARTITION).rename(log / "__consumer_offsets-9999999999"),
    "deep topics.json": text("topics.json", DEEP),
    "deep records.json": text("records.json", DEEP),
    "infinite offset": text(
        "records.json",
        '{"partitions":[{"unknown":{"path":"x","record_offset":1e400,"kind":"k","detail":"d"}}]}',
    ),
    "broker id of 5000 digits": text("meta.properties", f"node.id={'9' * 5000}\n"),
    "pipe as segment": lambda log: os.mkfifo(log / PARTITION / "00000000000000000009.log"),
    "device as segment": lambda log: os.symlink("/dev/zero", log / PARTITION / "00000000000000000009.log"),
    "pipe as checkpoint": lambda log: os.mkfifo(log / "log-start-offset-checkpoint"),
}


@pytest.mark.parametrize("command", ["describe", "verify", "expire", "stats", "dump"])
@pytest.mark.parametrize("name", FILES)
def test_files_around_a_log(name: str, command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_segment(tmp_path, SEGMENT)
    FILES[name](tmp_path)
    words = [command, str(tmp_path), *(RELEASE if command not in ("verify", "dump") else ())]
    code, _, err = outcome(words, capfd)
    # A broker starts without the number of its node. A dump is of the segments alone.
    is_passed_over = "broker id" in name or (command == "dump" and "segment" not in name and "partition" not in name)
    assert code in ((0, 2, 3) if is_passed_over else (2, 3)), err
    assert "Traceback" not in err
    assert command in ("verify", "dump") or code == 0 or err.splitlines()[-1].startswith("regroup: ")


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from coordinator_core.cli.app import run

    root = tmp_path_factory.mktemp("run")
    write_segment(root, SEGMENT)
    words = ["replay", str(root), "--output", str(root.parent / "runs"), "--cluster", "c", "--window", "w"]
    assert run([*words, "--run-id", "r", *RELEASE]) == 0
    return root.parent / "runs/c/w/r"


def put(**fields: Any) -> Callable[[dict[str, Any]], object]:
    return lambda manifest: manifest.update(fields)


def drop(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda manifest: manifest.pop(name)


def table(**fields: Any) -> Callable[[dict[str, Any]], object]:
    return lambda manifest: manifest["tables"]["offsets"].update(fields)


MANIFESTS: dict[str, Callable[[dict[str, Any]], object]] = {
    **{
        f"without {name}": drop(name)
        for name in ("now_ms", "profile", "complete", "cut", "inputs", "topic_names", "damage", "state_hash", "tables")
    },
    "time as text": put(now_ms="x"),
    "time beyond int64": put(now_ms=10**30),
    "time as truth": put(now_ms=True),
    "unknown profile": put(profile="ZZ"),
    "list of names": put(topic_names=[1]),
    "names that are numbers": put(topic_names={"a": 1}),
    "inputs as text": put(inputs="x"),
    "cut of no partition": put(cut={"x": {"log_start_offset": 0, "log_end_offset": 0}}),
    "rows as text": table(rows="x"),
    "file elsewhere": table(files=["../../../../etc/passwd"]),
    "absolute file": table(files=["/etc/passwd"]),
    "file on another host": table(files=["s3://bucket/x"]),
    "no table of offsets": lambda manifest: manifest["tables"].pop("offsets"),
    "proofs of nothing": table(proofs=[]),
}


@pytest.mark.parametrize("command", ["describe", "reconcile", "report", "verify", "diff"])
@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests(
    name: str, command: str, run_directory: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(run_directory, tmp_path / "r")
    path = tmp_path / "r/manifest.json"
    manifest = json.loads(path.read_text())
    MANIFESTS[name](manifest)
    path.write_text(json.dumps(manifest))
    words = [command, str(tmp_path / "r")]
    words += {"report": ["--output", str(tmp_path / "report")], "diff": [str(run_directory)]}.get(command, [])
    code, _, err = outcome(words, capfd)
    assert code in ((0, 2) if name == "unknown profile" else (2,)), err
    assert "Traceback" not in err


def commit(base: int, **fields: Any) -> bytes:
    return build_batch(base, [(encoded_key(), offset_value(base))], **fields)


def unreadable(base: int, *, control: bool = False) -> bytes:
    """A batch whose checksum is right and whose records are no frame of its codec."""
    attributes = Codec.ZSTD | (0x30 if control else 0)
    return build_raw_batch(base, b"\x28\xb5\x2f\xfdjunk", count=1, last_offset_delta=0, attributes=attributes)


AGREED: dict[str, tuple[list[str], Callable[[Path], object]]] = {
    "zeroes before the last segment": (
        [],
        lambda log: (
            write_segment(log, commit(0) + bytes(200)),
            write_segment(log, commit(5), "00000000000000000005.log"),
        ),
    ),
    "unreadable records below the log start offset": (
        [],
        lambda log: (write_segment(log, unreadable(0) + commit(1)), checkpoint("0 1")(log)),
    ),
    "an unreadable control batch below the log start offset": (
        [],
        lambda log: (write_segment(log, unreadable(0, control=True) + commit(1)), checkpoint("0 1")(log)),
    ),
    "unreadable records behind a broker's cut": (
        ["--partial"],
        lambda log: write_segment(log, commit(0) + commit(1)[:-1] + b"\x77" + unreadable(2) + commit(3)),
    ),
    "unreadable records that a broker keeps": (
        ["--partial"],
        lambda log: write_segment(log, commit(0) + unreadable(1) + commit(2)),
    ),
    "an unreadable control batch that a broker keeps, and a later segment": (
        ["--partial"],
        lambda log: (
            write_segment(log, commit(0) + unreadable(1, control=True)),
            write_segment(log, commit(2), "00000000000000000002.log"),
        ),
    ),
}


@pytest.mark.parametrize("name", AGREED)
def test_what_a_replay_reads_is_measured_and_compacted(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options, make = AGREED[name]
    log = tmp_path / "log"
    log.mkdir()
    make(log)
    for words in (["describe"], ["stats"], ["compact", "--output", str(tmp_path / "out")]):
        code, _, err = outcome([words[0], str(log), *words[1:], *options, *RELEASE], capfd)
        assert code == 0, (words[0], err)


TIMES = (-(1 << 63), -1, 0, (1 << 63) - 1)


@pytest.mark.parametrize(
    "codec", [Codec.NONE, *(pytest.param(codec, marks=pytest.mark.full) for codec in (Codec.GZIP, Codec.ZSTD))]
)
@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("options", [[], ["--renumber"], ["--expire"], ["--codec", "lz4"]])
def test_compaction_of_extreme_timestamps(
    codec: Codec, time: int, options: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = b""
    for number, other in enumerate(TIMES):
        rows = [
            NewRecord(encoded_key(OffsetKey("g", "t", number)), offset_value(1), timestamp=time),
            NewRecord(encoded_key(OffsetKey("h", "t", number)), None, timestamp=other),
            NewRecord(encoded_key(OffsetKey("g", "t", 0)), offset_value(2), timestamp=other),
        ]
        data += build_batch(3 * number, rows, codec=codec, timestamp=time)
    log = tmp_path / "log"
    log.mkdir()
    write_segment(log, data)
    words = ["compact", str(log), "--output", str(tmp_path / "out"), *RELEASE, *options]
    code, _, err = outcome(words, capfd)
    assert code in (0, 3), err


NOTHING_STAYS = {
    "tombstone": build_batch(0, [(encoded_key(), None)], timestamp=1000),
    "tombstones": build_batch(0, [(encoded_key(), None)] * 3, timestamp=1000, codec=Codec.GZIP),
    "empty batch": build_batch(0, [], timestamp=1000),
    "zeroes": bytes(100),
    "nothing": b"",
}


@pytest.mark.parametrize("name", NOTHING_STAYS)
@pytest.mark.parametrize("options", [[], ["--renumber"], ["--expire"], ["--codec", "lz4"]])
def test_compaction_of_which_nothing_stays(
    name: str, options: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    log.mkdir()
    write_segment(log, NOTHING_STAYS[name])
    out = str(tmp_path / "out")
    code, _, err = outcome(["compact", str(log), "--output", out, *RELEASE, *options], capfd)
    assert code in (0, 2, 3), err
    if code == 0:
        assert outcome(["verify", out], capfd)[0] == 0


BESIDE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "deep topology.json": ("rescue", text("topology.json", DEEP)),
    "number of 5000 digits in topology.json": ("rescue", text("topology.json", "9" * 5000)),
    "infinite leader in topology.json": (
        "investigate",
        text(
            "topology.json",
            '{"topics": {"__consumer_offsets": {"partitionInfo": [{"partition": 0, "leader": 1e999}]}}}',
        ),
    ),
    "pipe as topology.json": ("investigate", lambda log: os.mkfifo(log / "topology.json")),
    "device as topology.json": ("investigate", lambda log: os.symlink("/dev/zero", log / "topology.json")),
    "transactions of a partition that is no number": (
        "describe",
        lambda log: (log / "__transaction_state-\u00b2").mkdir(),
    ),
    "a transaction log's segment whose name is no number": (
        "reconcile",
        lambda log: (
            write_segment(log, SEGMENT, "../__transaction_state-0/\u00b2.log")
            if (log / "__transaction_state-0").mkdir() is None
            else None
        ),
    ),
    "a topic whose name is no UTF-8": (
        "replay",
        text("topics.json", r'{"topics": [{"name": "\ud800", "topic_id": "\udcff", "partitions": []}]}'),
    ),
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_stands_beside_a_log(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    log.mkdir()
    write_segment(log, SEGMENT)
    command, make = BESIDE[name]
    make(log)
    more = {"replay": ["--output", str(tmp_path / "runs"), "--cluster", "c"]}.get(command, [])
    code, _, err = outcome([command, str(log), *more, *RELEASE], capfd)
    assert code in ((0, 1) if "transaction" in name else (2, 3)), err


@pytest.mark.parametrize("command", ["describe", "verify", "expire", "stats", "dump"])
def test_a_directory_whose_name_is_no_utf_8(command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    broker = tmp_path / "logs/\udcff"
    broker.mkdir(parents=True)
    write_segment(broker, SEGMENT)
    for path in (tmp_path / "logs", broker):
        code, out, err = outcome([command, str(path)], capfd)
        assert (code, out, "not UTF-8" in err) == (2, "", True), err


GIVEN = {
    "simulate": ["simulate", "FILE"],
    "scenario": ["drill", "predict", "--topology", "FILE", "--scenario", "FILE"],
    "topology": ["find-coordinator", "g", "--topology", "FILE"],
    "prediction": ["drill", "compare", "FILE", "FILE"],
    "plan": ["restore", "apply", "FILE", "--bootstrap-server", "h:1"],
    "rules": ["reconcile", "LOG", "--rules", "FILE", *RELEASE],
    "offsets": ["restore", "plan", "--from-file", "FILE", "--against", "LOG", *RELEASE],
}


@pytest.mark.parametrize("what", ["pipe", "device", "deep", "bytes", "nothing"])
@pytest.mark.parametrize("name", GIVEN)
def test_files_that_somebody_names(name: str, what: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log, path = tmp_path / "log", tmp_path / "file"
    log.mkdir()
    write_segment(log, SEGMENT)
    if what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(
            {"deep": DEEP.replace("[", '{"a":').encode(), "bytes": bytes(range(256)), "nothing": b""}[what]
        )
    places = {"LOG": str(log), "FILE": str(path)}
    code, _, err = outcome([places.get(word, word) for word in GIVEN[name]], capfd)
    # Rules without anything are the rules as they are.
    assert code in ((0, 1, 2) if (name, what) == ("rules", "nothing") else (2, 3)), err


NUMBERS = {
    "a time beyond int64": ["expire", "LOG", "--now-ms", "9" * 30],
    "a time near the end of int64": ["compact", "LOG", "--output", "OUT", "--now-ms", str((1 << 63) - 1)],
    "a retention beyond int64": ["compact", "LOG", "--output", "OUT", "--delete-retention-ms", "9" * 19],
    "another retention": ["expire", "LOG", "--offsets-retention-ms", str((1 << 63) - 1)],
    "partitions beyond int32": ["whatif", "LOG", "--offsets-partitions", str(1 << 62)],
    "days that are no number": ["prune", "LOG", "--cluster", "c", "--keep-days", "nan"],
    "days without end": ["prune", "LOG", "--cluster", "c", "--keep-days", "inf"],
    "a rate that is no number": ["report", "LOG", "--output", "OUT", "--load-bytes-per-second", "nan"],
    "a partition that is no number": ["explain", "LOG", "--group", "g", "--topic", "t:\u00b2"],
    "a partition beyond int32": ["explain", "LOG", "--group", "g", "--topic", f"t:{'9' * 5000}"],
    "a port that is no number": ["capture", "--bootstrap-server", "h:\u00b2", "--output", "OUT"],
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_no_option_takes(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    log.mkdir()
    write_segment(log, SEGMENT)
    places = {"LOG": str(log), "OUT": str(tmp_path / "out")}
    code, _, err = outcome([places.get(word, word) for word in NUMBERS[name]], capfd)
    assert (code, "Traceback" in err) == (2, False), err

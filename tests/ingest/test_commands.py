"""``regroup import-records`` on small files: what it refuses and where, what other commands make of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator_core.cli.app import run
from coordinator_core.fold.pin import read_pin, write_pin
from coordinator_core.ingest import rows as ingested
from coordinator_core.ingest.publish import IsolationLevel, import_records
from coordinator_core.ingest.unknown import RECORDS_ONLY, TRANSACTIONS_UNKNOWN
from coordinator_core.log.discovery import discover
from coordinator_core.log.limits import STANDING_VARIABLE, Limits
from coordinator_core.log.reader import read_records
from tests.ingest.dumps import SCHEMA, Row, row, write
from tests.replay.histories import OffsetKey, encoded_key, offset_value

READ_COMMITTED = ["--isolation-level", "read_committed"]
OPTIONS = ["--kafka-version", "4.3.1", "--now-ms", "5000", "--format", "json"]
ROWS = [row(number, encoded_key(OffsetKey("g", "t", number)), offset_value(10 + number)) for number in range(3)]


class Command:
    """Runs ``regroup`` in this process."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *arguments: str | Path) -> tuple[int, str, str]:
        code = run([str(each) for each in arguments])
        captured = self._capfd.readouterr()
        return code, captured.out, captured.err


@pytest.fixture
def regroup(capfd: pytest.CaptureFixture[str]) -> Command:
    return Command(capfd)


def records_at(directory: Path) -> list[int]:
    logs = discover([str(directory)]).partitions
    return [record.offset for log in logs for _, _, records in read_records(log) for record in records]


def test_what_is_imported_is_told(tmp_path: Path, regroup: Command) -> None:
    dump = write(tmp_path / "dump" / "part-0.parquet", [*ROWS, row(7, encoded_key(), None)])
    (tmp_path / "dump" / "_SUCCESS").touch()
    code, out, err = regroup(
        "import-records", dump.parent, "--output", tmp_path / "log", "--isolation-level", "read_committed"
    )
    assert (code, err.count("\n")) == (0, 1)
    assert out.splitlines() == [
        f"imported:  {tmp_path}/log",
        "records:   4 of 1 offsets partition, from 1 file",
        "isolation: read_committed",
        "missing:   4 offsets between the first and the last",
        "commits:   3, of which the records do not tell whether they are transactional",
    ]
    document = json.loads((tmp_path / "log" / "records.json").read_text())
    (partition,) = document["partitions"]
    counts = {name: partition[name] for name in ("records", "commits", "tombstones", "missing_offsets")}
    assert counts == {"records": 4, "commits": 3, "tombstones": 1, "missing_offsets": 4}
    assert partition["unknown"]["record_offset"] == partition["first_missing_offset"] == 3
    assert records_at(tmp_path / "log") == [0, 1, 2, 7]


@pytest.mark.parametrize("level, kind", [("read_committed", RECORDS_ONLY), ("read_uncommitted", TRANSACTIONS_UNKNOWN)])
def test_no_command_takes_it_for_a_snapshot(level: str, kind: str, tmp_path: Path, regroup: Command) -> None:
    log = tmp_path / "log"
    dump = write(tmp_path / "dump.parquet", ROWS)
    regroup("import-records", dump, "--output", log, "--isolation-level", level)
    for where in (log, log / "__consumer_offsets-0"):
        code, out, err = regroup("describe", where, *OPTIONS)
        assert (code, out) == (3, "")
        assert f"{log}/__consumer_offsets-0/00000000000000000000.log: byte 0, record offset 0: {kind}: " in err
    code, out, err = regroup("describe", log, *OPTIONS, "--partial")
    assert code == 0
    assert json.loads(out)["partial"] is True
    assert kind in err
    assert "the log was made of records" in err
    code, out, _ = regroup("replay", log, "--output", tmp_path / "runs", "--cluster", "c", *OPTIONS, "--partial")
    summary = json.loads(out)
    assert (code, summary["complete"], summary["damage"], summary["rows"]["offsets"]) == (0, False, 1, 3)
    manifest = json.loads((Path(summary["run"]) / "manifest.json").read_text())
    assert [found["kind"] for found in manifest["damage"]] == [kind]
    assert regroup("verify", log)[0] == 3
    for command in (["explain", "--group", "g"], ["dump"]):
        code, _, err = regroup(command[0], log, *command[1:], *OPTIONS[:2])
        assert code == 0
        assert kind in err


@pytest.mark.parametrize("options", [[], ["--partial"]])
def test_it_never_goes_back_to_a_broker(options: list[str], tmp_path: Path, regroup: Command) -> None:
    dump = write(tmp_path / "dump.parquet", ROWS)
    import_records([str(dump)], str(tmp_path / "log"), IsolationLevel.READ_COMMITTED)
    output = tmp_path / "compacted"
    rules = ("--kafka-version", "4.3.1")
    for command in (("compact", "--output", output, *OPTIONS[:2]), ("rescue", "--repair", output, *rules)):
        code, _, err = regroup(command[0], tmp_path / "log", *command[1:], *options)
        assert code == 2
        assert "records_only: no log to start a broker on" in err
        assert not output.exists()


def test_a_pin_keeps_what_is_not_known(tmp_path: Path) -> None:
    dump = write(tmp_path / "dump.parquet", ROWS)
    import_records([str(dump)], str(tmp_path / "log"), IsolationLevel.READ_COMMITTED)
    snapshot = discover([str(tmp_path / "log")])
    write_pin(snapshot, str(tmp_path / "pin.json"))
    assert read_pin(str(tmp_path / "pin.json")).snapshot.damage == snapshot.damage


def test_records_json_that_is_none(tmp_path: Path, regroup: Command) -> None:
    dump = write(tmp_path / "dump.parquet", ROWS)
    import_records([str(dump)], str(tmp_path / "log"), IsolationLevel.READ_COMMITTED)
    (tmp_path / "log" / "records.json").write_text('{"partitions": [{}]}')
    code, _, err = regroup("describe", tmp_path / "log", *OPTIONS)
    assert code == 3
    assert "records.json: byte 0: bad_records_manifest" in err


def test_files_are_put_in_the_order_of_their_offsets(tmp_path: Path) -> None:
    write(tmp_path / "dump" / "a.parquet", [row(5), row(8), row(1, partition=3)])
    write(tmp_path / "dump" / "deep" / "b.parquet", [row(0, partition=3), row(1), row(2)])
    document = import_records([str(tmp_path / "dump")], str(tmp_path / "log"), IsolationLevel.READ_COMMITTED)
    assert records_at(tmp_path / "log") == [1, 2, 5, 8, 0, 1]
    first, second = document["partitions"]
    assert (first["missing_offsets"], first["first_missing_offset"]) == (4, 3)
    assert (second["missing_offsets"], second["first_missing_offset"]) == (0, None)


def test_segments_end_where_they_are_full_and_where_offsets_go_too_far(tmp_path: Path) -> None:
    far = 1 << 32
    write(tmp_path / "dump.parquet", [row(0), row(1 << 31), row(far, timestampType=1), row(far + 1)])
    paths = [str(tmp_path / "dump.parquet")]
    import_records(paths, str(tmp_path / "log"), IsolationLevel.READ_COMMITTED)
    import_records(paths, str(tmp_path / "small"), IsolationLevel.READ_COMMITTED, segment_bytes=1)
    for directory, bases in (("log", [0, 1 << 31, far]), ("small", [0, 1 << 31, far, far + 1])):
        names = sorted(path.name for path in (tmp_path / directory / "__consumer_offsets-0").iterdir())
        assert names == [f"{base:020d}.log" for base in bases]
        assert records_at(tmp_path / directory) == [0, 1 << 31, far, far + 1]


def test_headers_and_append_times_are_kept(tmp_path: Path) -> None:
    headers = [{"key": "a", "value": b"\0\xff"}, {"key": "ü", "value": None}]
    rows = [
        row(0, b"k", b"v", headers=headers),
        row(1, b"k" * 300, None, timestamp=-1),
        row(2, None, b"", timestampType=1, timestamp=70),
        row(3, None, b"", timestampType=1, timestamp=69),
    ]
    write(tmp_path / "dump.parquet", rows)
    import_records([str(tmp_path / "dump.parquet")], str(tmp_path / "log"), IsolationLevel.READ_COMMITTED)
    found = [
        (batch.timestamp_type, record.timestamp_ms, record.key, record.value, record.headers)
        for _, batch, records in read_records(discover([str(tmp_path / "log")]).partitions[0])
        for record in records
    ]
    assert found == [
        ("CreateTime", 1_000, b"k", b"v", (("a", b"\0\xff"), ("ü", None))),
        ("CreateTime", -1, b"k" * 300, None, ()),
        ("LogAppendTime", 70, None, b"", ()),
        ("LogAppendTime", 69, None, b"", ()),
    ]


def without(name: str) -> pa.Schema:
    return SCHEMA.remove(SCHEMA.get_field_index(name))


def typed(name: str, kind: pa.DataType) -> pa.Schema:
    return SCHEMA.set(SCHEMA.get_field_index(name), pa.field(name, kind))


HEADERS = pa.list_(pa.struct([("key", pa.int64()), ("value", pa.binary())]))
LONG = [row(number) for number in range(5000)]


@pytest.mark.parametrize(
    "rows, schema, message",
    [
        (ROWS, without("offset"), "missing_columns: offset; it has key, value"),
        *((ROWS, without(name), f"missing_columns: {name}; it has ") for name in ("key", "value", "topic")),
        ([row(0, {"a": 1})], typed("key", pa.struct([("a", pa.int8())])), "column_type: key is struct<a: int8>"),  # type: ignore[arg-type]
        (ROWS, typed("timestampType", pa.string()), "column_type: timestampType is string, not int"),
        ([row(0, "k")], typed("key", pa.string()), "column_type: key is string, not binary"),
        ([row(0), row(None)], SCHEMA, "row 1: null_offset"),  # type: ignore[arg-type]
        ([row(0), row(1, topic=None)], SCHEMA, "row 1: null_topic"),
        ([row(0), row(-1)], SCHEMA, "row 1: bad_offset: -1"),
        ([row(0), row((1 << 63) - 1)], SCHEMA, f"row 1: bad_offset: {(1 << 63) - 1}"),
        ([row(0, partition=1 << 31)], typed("partition", pa.int64()), f"row 0: bad_partition: {1 << 31}"),
        ([row(0, timestamp=-2)], SCHEMA, "row 0: bad_timestamp: -2"),
        (
            [row(0, timestamp=(1 << 62) // 1000 + 1)],
            typed("timestamp", pa.int64()),
            "row 0: bad_timestamp: 46116860184273",
        ),
        ([row(0, headers=[None])], SCHEMA, "row 0: bad_headers: a header has a key and a value"),
        ([row(0, headers=[{"key": 1, "value": b""}])], typed("headers", HEADERS), "column_type: headers is list<"),
        ([row(0), row(1, value=b"v" * 900)], SCHEMA, "row 1: too_large: 918 bytes, a record has at most 900"),
        ([row(0, headers=[{"key": "", "value": None}] * 9)], SCHEMA, "row 0: too_large: 9 headers, a record has at"),
        ([row(0, timestampType=2)], SCHEMA, "row 0: bad_timestampType: 2"),
        (
            [row(0), row(1, topic="orders")],
            SCHEMA,
            "row 1: other_topic: a record of orders, not of __consumer_",
        ),
        (
            [*LONG, row(4999)],
            SCHEMA,
            "row 5000: duplicate_offset: partition 0, offset 4999 behind 4999 in row 4999",
        ),
        (
            [*LONG, row(7)],
            SCHEMA,
            "row 5000: misordered_offset: partition 0, offset 7 behind 4999 in row 4999",
        ),
        (
            [row(3), row(0, partition=1), row(2)],
            SCHEMA,
            "row 2: misordered_offset: partition 0, offset 2 behind 3",
        ),
    ],
)
def test_bad_rows(
    rows: list[Row],
    schema: pa.Schema,
    message: str,
    tmp_path: Path,
    regroup: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ingested, "_LIMITS", Limits(max_batch_bytes=900, max_records=8))
    if "offset" not in schema.names or schema.field("timestampType").type == pa.string():
        rows = [{**each, "timestampType": "0"} for each in rows] if "offset" in schema.names else rows
    write(tmp_path / "dump.parquet", rows, schema)
    code, out, err = regroup(
        "import-records",
        tmp_path / "dump.parquet",
        "--output",
        tmp_path / "log",
        "--isolation-level",
        "read_committed",
    )
    assert (code, out) == (3, "")
    assert f"{tmp_path}/dump.parquet: {message}" in err
    assert [path.name for path in tmp_path.iterdir()] == ["dump.parquet"]


def test_files_that_no_writer_writes(tmp_path: Path, regroup: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that comes twice, names that are no UTF-8, more headers than fit in memory."""
    plain = pa.Table.from_pylist([row(0)], schema=SCHEMA)
    no_utf_8 = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers())
    items = pa.StructArray.from_arrays([pa.array([""] * 20), pa.nulls(20, pa.binary())], ["key", "value"])
    twenty = pa.ListArray.from_arrays([0, 20], items)
    monkeypatch.setattr(ingested, "_HEADERS_OF_GROUP", 19)
    for name, table, message in (
        ("twice", plain.append_column("offset", plain["offset"]), "column_type: there are 2 columns offset"),
        ("topic", plain.set_column(2, "topic", no_utf_8), "unreadable: In column "),
        ("headers", plain.set_column(7, "headers", twenty), "too_large: 20 headers in row group 0"),
    ):
        pq.write_table(table, path := tmp_path / f"{name}.parquet", compression="zstd")
        code, out, err = regroup("import-records", path, "--output", tmp_path / "log", *READ_COMMITTED)
        assert (code, out, err.count("\n")) == (3, "", 1)
        assert f"{path}: {message}" in err


def test_values_that_all_rows_have(tmp_path: Path, regroup: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parquet stores them once: some bytes of them are handled at a time, and a file has a limit."""
    rows = [row(number, encoded_key(OffsetKey("g", "t", number)), b"v" * 10_000) for number in range(300)]
    path = write(tmp_path / "dump.parquet", rows)
    monkeypatch.setattr(ingested, "_PIECE_BYTES", 100_000)
    most = max(len(rows) for rows in ingested.read_rows(str(path)))
    assert most == 9
    arguments = ["import-records", path, "--output", tmp_path / "log", *READ_COMMITTED]
    monkeypatch.setenv(STANDING_VARIABLE, str(2_000_000))
    code, out, err = regroup(*arguments)
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert f"{path}: row 19" in err
    assert f"too_large: the records unpack to more than 2000000 bytes; {STANDING_VARIABLE} allows more" in err
    monkeypatch.delenv(STANDING_VARIABLE)
    assert regroup(*arguments)[0] == 0
    assert records_at(tmp_path / "log") == list(range(300))


def test_an_offset_in_two_files(tmp_path: Path, regroup: Command) -> None:
    write(tmp_path / "a.parquet", [row(0), row(5)])
    write(tmp_path / "b.parquet", [row(1, partition=1), row(5)])
    code, _, err = regroup(
        "import-records", tmp_path, "--output", tmp_path / "log", "--isolation-level", "read_committed"
    )
    assert code == 3
    assert (
        f"{tmp_path}/b.parquet: row 1: duplicate_offset: partition 0, offset 5 is in {tmp_path}/a.parquet, too" in err
    )


def test_files_whose_offsets_interleave(tmp_path: Path, regroup: Command) -> None:
    """No offset is in both; one that is comes behind others that are not."""
    write(tmp_path / "a.parquet", [row(0), row(4, partition=1), row(4), row(8)])
    arguments = ["import-records", tmp_path, "--output", tmp_path / "log", *READ_COMMITTED]
    write(tmp_path / "b.parquet", [row(2), row(6)])
    code, _, err = regroup(*arguments)
    assert code == 3
    said = f"partition 0, offsets 2 to 6 interleave with offsets 0 to 8 of {tmp_path}/a.parquet; sort the rows"
    assert f"{tmp_path}/b.parquet: row 0: overlapping_files: {said}" in err
    write(tmp_path / "b.parquet", [row(2), row(8), row(9)])
    code, _, err = regroup(*arguments)
    assert code == 3
    assert (
        f"{tmp_path}/b.parquet: row 1: duplicate_offset: partition 0, offset 8 is in {tmp_path}/a.parquet, too" in err
    )
    assert not (tmp_path / "log").exists()


def test_a_file_name_that_is_not_utf8(tmp_path: Path, regroup: Command) -> None:
    write(tmp_path / "a.parquet", [row(0)]).rename(tmp_path / "\udcff.parquet")
    code, _, err = regroup("import-records", tmp_path, "--output", tmp_path / "log", *READ_COMMITTED)
    assert code == 2
    assert f"{tmp_path}/\\udcff.parquet: a path that is not UTF-8" in err


def test_a_file_cut_at_any_length(tmp_path: Path, regroup: Command) -> None:
    whole = write(tmp_path / "whole.parquet", ROWS).read_bytes()
    for length in (0, 3, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.parquet").write_bytes(whole[:length])
        code, _, err = regroup(
            "import-records",
            tmp_path / "cut.parquet",
            "--output",
            tmp_path / "log",
            "--isolation-level",
            "read_committed",
        )
        assert code == 3
        assert "cut.parquet: unreadable: " in err


@pytest.mark.parametrize(
    "arrange, message",
    [
        (lambda place: None, "no such file or directory"),
        (lambda place: (place / "dump").mkdir(), "no Parquet file in it"),
        (lambda place: write(place / "dump" / "a.parquet", []), "no record in 1 file"),
    ],
)
def test_nothing_to_import(arrange: Any, message: str, tmp_path: Path, regroup: Command) -> None:
    arrange(tmp_path)
    code, _, err = regroup(
        "import-records",
        tmp_path / "dump",
        "--output",
        tmp_path / "log",
        "--isolation-level",
        "read_uncommitted",
    )
    assert code == 2
    assert message in err
    assert not (tmp_path / "log").exists()


def test_what_is_there_is_not_written_over(tmp_path: Path, regroup: Command) -> None:
    dump = write(tmp_path / "dump.parquet", ROWS)
    (tmp_path / "log").mkdir()
    arguments = ["import-records", dump, "--output", tmp_path / "log", "--isolation-level", "read_committed"]
    assert regroup(*arguments)[0] == 0
    code, _, err = regroup(*arguments)
    assert code == 2
    assert "not an empty directory" in err
    assert regroup(*arguments[:4])[0] == 2, "the isolation level is never guessed"

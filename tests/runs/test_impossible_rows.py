"""Tables that lack values, come twice or contradict each other, under digests that fit: exit code 3, file and row."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator_core.cli.app import run as regroup
from coordinator_core.errors import ExitCode
from coordinator_core.runs.proof import proof_of
from tests.cases import CORPUS


def changed(small_run: Path, target: Path, table: str, change: Callable[[pa.Table], pa.Table]) -> Path:
    """A copy of a run, one of its tables another, and the manifest as if that had been published."""
    run = Path(shutil.copytree(small_run, target))
    path = run / f"{table}/part-00000.parquet"
    rows = change(pq.read_table(path, partitioning=None))
    pq.write_table(rows, path)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["tables"][table] |= {"proofs": [dict(proof_of(str(path)))], "rows": rows.num_rows, "hash": "0" * 64}
    (run / "manifest.json").write_text(json.dumps(manifest))
    return run


def put(column: str, row: int, value: object, kind: pa.DataType | None = None) -> Callable[[pa.Table], pa.Table]:
    def change(rows: pa.Table) -> pa.Table:
        values = rows[column].to_pylist()
        values[row] = value
        index = rows.column_names.index(column)
        return rows.set_column(index, column, pa.array(values, kind or rows.schema.field(column).type))

    return change


def again(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(0, 1)])


def texts(rows: pa.Table) -> pa.Table:
    index = rows.column_names.index("committed_offset")
    return rows.set_column(index, "committed_offset", pa.array(["x"] * rows.num_rows))


LOOSE = pa.list_(pa.struct([("topic_id", pa.string()), ("topic", pa.string()), ("partitions", pa.list_(pa.int32()))]))
TOPOLOGY = str(CORPUS / "k431-cluster/expected/before/topics.json")
RULES = "reconcile", "report", "diff"
STATES = "describe", "list", "expire", "whatif", "drill"
CHANGES: dict[str, tuple[str, Callable[[pa.Table], pa.Table], str, tuple[str, ...]]] = {
    "no committed offset": (
        "offsets",
        put("committed_offset", 1, None),
        "row 1: committed_offset has no",
        STATES + RULES,
    ),
    "no group id": ("groups", put("group_id", 2, None), "row 2: group_id has no value", STATES + RULES),
    "no partition within": (
        "members",
        put("assignment", 0, [{"topic_id": None, "topic": "t", "partitions": [0, None]}], LOOSE),
        "row 0: assignment has no value",
        (*STATES, "reconcile", "report"),
    ),
    "a group twice": ("groups", again, "row 3: ", (*STATES, *RULES)),
    "a committed offset twice": ("offsets", again, "row 2: ", (*STATES[:-1], "diff")),
    "a member of no group": (
        "members",
        put("group_id", 0, "gone"),
        "row 0: offsets_partition 0, group_id 'gone'",
        STATES,
    ),
    "a member of another type": ("members", put("group_type", 0, "share"), "is of type classic", STATES),
    "an unknown type": (
        "groups",
        put("type", 1, "other"),
        "row 1: offsets_partition 0, group_id 'g': 'other' is",
        STATES,
    ),
    "an unknown state": (
        "members",
        put("state", 1, "other"),
        "row 1: offsets_partition 0, group_id 'k': 'other'",
        STATES,
    ),
    "an epoch that its type has": ("groups", put("group_epoch", 2, None), "row 2: ", STATES),
    "text as numbers": ("offsets", texts, "column committed_offset", STATES + RULES),
    "no such column": ("offsets", lambda rows: rows.drop_columns("topic"), "no column ", STATES + RULES),
}
WORDS = {
    "describe": ("describe", "RUN"),
    "list": ("list", "RUN"),
    "expire": ("expire", "RUN", "--offsets-retention-ms", "1"),
    "whatif": ("whatif", "RUN", "--retention-ms", "1"),
    "drill": ("drill", "predict", "RUN", "--topology", TOPOLOGY, "--scenario", "rolling-restart"),
    "reconcile": ("reconcile", "RUN", "--fail-on", "never", "--no-log"),
    "report": ("report", "RUN", "--format", "json", "--no-log"),
    "diff": ("diff", "RUN", "BASE"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_file_and_the_row_are_named(
    name: str, small_run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table, change, said, commands = CHANGES[name]
    run = changed(small_run, tmp_path / "c/w/run", table, change)
    places = {"RUN": str(run), "BASE": str(small_run)}
    for command in commands:
        code = regroup([places.get(word, word) for word in WORDS[command]])
        error = capfd.readouterr().err
        assert (code, error.count("\n")) == (ExitCode.DAMAGED_INPUT, 1), f"{command}: {error}"
        assert f"{run}/{table}/part-00000.parquet: byte 0: impossible_row: " in error, command
        assert said in error, command

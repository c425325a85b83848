"""Tables that are in order are cut into batches as they are; all others are spread by hash. Both give one answer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator_core.runs.read import Run
from coordinator_core.runs.schemas import TABLES
from expectations import frames, gate
from expectations.checks import suites
from expectations.frames import WHOLE, Part, StoredTable, batches, stored_table
from expectations.gate import evaluate
from expectations.ordered import is_ordered, repeats
from expectations.result import EXAMPLES, GateResult

from ..examples import one_in
from .faults import NOW_MS, FaultyRun, published

ROWS = 1000
OFFSETS = TABLES["offsets"]


def offsets(**columns: Any) -> pa.Table:
    """Committed offsets of 4 offsets partitions, in order, inside the cut of :func:`run_of`."""
    number = np.arange(ROWS)
    found: dict[str, Any] = {
        "offsets_partition": number // 250,
        "record_offset": number % 250,
        "group_id": [f"g{one % 7}" for one in range(ROWS)],
        "topic": ["t"] * ROWS,
        "partition": number % 3,
        "committed_offset": number,
        "metadata": [""] * ROWS,
        "commit_timestamp_ms": [NOW_MS] * ROWS,
        "value_version": [3] * ROWS,
        "ordering_offset": number % 250,
    }
    found |= columns
    absent = {name: [None] * ROWS for name in OFFSETS.arrow.names if name not in found}
    schema = pa.schema([column.with_nullable(True) for column in OFFSETS.arrow])
    return pa.table({name: (found | absent)[name] for name in schema.names}, schema=schema)


def repeated(places: list[int]) -> pa.Table:
    """With rows that are there twice, next to each other."""
    return offsets().take(np.sort([*range(ROWS), *places]))


TABLES_OF_OFFSETS: dict[str, Callable[[], pa.Table]] = {
    "as declared": offsets,
    "duplicates at borders of batches": lambda: repeated([199, 200, 249, 250, 399, 400, 600, 999]),
    "many duplicates": lambda: repeated(list(range(0, ROWS, 3))),
    "no order": lambda: repeated([5, 6]).take(np.random.default_rng(1).permutation(ROWS + 2)),
    "descending": lambda: offsets().take(np.arange(ROWS)[::-1]),
    "one row too late": lambda: offsets().take([*range(1, ROWS), 0]),
    "only coordinates repeat": lambda: offsets(record_offset=np.arange(ROWS) % 250 // 2),
    "null coordinates": lambda: offsets(record_offset=[None if one % 100 == 0 else one % 250 for one in range(ROWS)]),
    "wrong values": lambda: offsets(
        partition=[-1 if one % 90 == 0 else 0 for one in range(ROWS)],
        committed_offset=[-one if one % 2 else None for one in range(ROWS)],
        commit_timestamp_ms=[NOW_MS + one % 2 for one in range(ROWS)],
        leader_epoch=[None if one % 3 else one - 500 for one in range(ROWS)],
        topic=[None if one % 50 == 0 else "t" for one in range(ROWS)],
    ),
    "outside the cut": lambda: offsets(record_offset=np.arange(ROWS) % 250 + 3),
    "unknown offsets partition": lambda: offsets(offsets_partition=np.arange(ROWS) // 200),
    "without a key column": lambda: offsets().drop_columns(["record_offset"]),
    "with a column twice": lambda: offsets().append_column("topic", offsets()["topic"]),
    "numbers as text": lambda: offsets().set_column(
        1, "record_offset", pa.array([f"{one % 250:03}" for one in range(ROWS)])
    ),
    "no rows": lambda: offsets().slice(0, 0),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return published("k082/after", tmp_path_factory.mktemp("base"))


def run_of(base: Run, directory: Path, rows: pa.Table, row_group_size: int = 60) -> Run:
    run = FaultyRun(base, directory / "run")
    pq.write_table(rows, run.part("offsets"), row_group_size=row_group_size)
    run.manifest["tables"]["offsets"]["rows"] = rows.num_rows
    run.manifest["cut"] |= {str(one): {"log_start_offset": 0, "log_end_offset": 250} for one in range(4)}
    return run.opened()


def told(result: GateResult) -> dict[str, Any]:
    """Failures of ``offsets``; of more rows than a failure names, any may be named."""
    return {
        one.code: one.as_dict()
        | {"examples": sorted(map(str, one.examples)) if (one.unexpected_rows or 0) <= EXAMPLES else len(one.examples)}
        for one in result.failures
        if one.code.startswith("offsets.")
    } | {one.code: "refused" for one in result.refusals}


@pytest.fixture
def in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "BATCH_ROWS", 100)
    monkeypatch.setattr(frames, "_READ_ROWS", 30)


@pytest.mark.parametrize("name", one_in(4, list(TABLES_OF_OFFSETS)))
def test_batches_say_what_the_whole_table_says(
    name: str, base: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "suites", lambda: {"offsets": suites()["offsets"]})
    run = run_of(base, tmp_path, TABLES_OF_OFFSETS[name]())
    whole = told(evaluate(run))
    monkeypatch.setattr(frames, "BATCH_ROWS", 200)
    monkeypatch.setattr(frames, "_READ_ROWS", 60)
    in_batches = told(evaluate(run))
    monkeypatch.setattr(StoredTable, "is_ordered", lambda *_: False)
    spread = told(evaluate(run))
    assert whole == in_batches == spread
    good = ("as declared", "descending", "one row too late", "only coordinates repeat", "no rows")
    assert bool(whole) is (name not in good)


@pytest.mark.usefixtures("in_small_batches")
def test_a_table_in_order_keeps_its_order(base: Run, tmp_path: Path) -> None:
    rows = repeated([99, 99, 99, 100, 129, 130, 159, 200])
    run = run_of(base, tmp_path, rows)
    found = list(batches("offsets", {"offsets": stored_table(run, "offsets")}))
    assert 8 < len(found) < 12
    assert pa.concat_tables(found).equals(rows)
    by = OFFSETS.key[:2]
    for one, after in pairwise(found):
        assert one.select(by).slice(one.num_rows - 1).to_pylist() != after.select(by).slice(0, 1).to_pylist()


@pytest.mark.usefixtures("in_small_batches")
def test_equal_coordinates_are_in_one_batch_however_many(base: Run, tmp_path: Path) -> None:
    rows = offsets(offsets_partition=[0] * ROWS, record_offset=[0] * 5 + [1] * 800 + [2] * 195)
    table = stored_table(run_of(base, tmp_path, rows), "offsets")
    by = OFFSETS.key[:2]
    assert table.is_ordered(by)
    found = list(table.in_order(by))
    assert sum(set(one["record_offset"].to_pylist()) >= {1} for one in found) == 1
    assert pa.concat_tables(found).equals(rows)


@pytest.mark.usefixtures("in_small_batches")
def test_large_rows_make_small_batches(base: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "BATCH_BYTES", 1 << 16)
    rows = offsets(metadata=["m" * 2000] * ROWS)
    found = list(batches("offsets", {"offsets": stored_table(run_of(base, tmp_path, rows), "offsets")}))
    assert max(one.num_rows for one in found) <= 60
    assert pa.concat_tables(found).equals(rows)


@pytest.mark.usefixtures("in_small_batches")
@pytest.mark.parametrize("row_group_size", [60, 250, 400])
def test_parts_of_a_table_in_order(row_group_size: int, base: Run, tmp_path: Path) -> None:
    """Row groups of one part, and those that parts share; partitions that no part knows are the first part's."""
    rows = repeated([249, 250, 700])
    tables = {"offsets": stored_table(run_of(base, tmp_path, rows, row_group_size), "offsets")}
    of = {1: 1, 2: 0, 3: 2}
    for part in (Part(number, of) for number in range(3)):
        found = pa.concat_tables(batches("offsets", tables, part))
        expected = [of.get(one, 0) == part.number for one in rows["offsets_partition"].to_pylist()]
        assert found.equals(rows.filter(expected))
    assert pa.concat_tables(batches("offsets", tables, WHOLE)).equals(rows)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"a": [], "b": []}, True),
        ({"a": [1], "b": [9]}, True),
        ({"a": [1, 1, 2], "b": [5, 5, 0]}, True),
        ({"a": [1, 1, 2], "b": [5, 4, 9]}, False),
        ({"a": [2, 1], "b": [0, 9]}, False),
        ({"a": [1, 1, 2], "b": ["ä", "😀", ""]}, True),
        ({"a": [1, 1], "b": ["b", "a"]}, False),
        ({"a": [1, None], "b": [1, 2]}, False),
        ({"a": [1, 2], "b": [0.5, 1.5]}, False),
    ],
)
def test_order(columns: dict[str, list[Any]], expected: bool) -> None:
    """By all columns; no value of a kind without an order here is in it."""
    rows = pa.table({name: pa.array(values, None if values else pa.int64()) for name, values in columns.items()})
    assert is_ordered(rows) is expected
    assert is_ordered(pa.concat_tables([rows.slice(0, 1), rows.slice(1)])) is expected


def test_repeats_are_neighbours_with_equal_values() -> None:
    rows = pa.table({"a": [1, 1, 1, 2, 2, 3], "b": ["x", "x", "y", "y", "y", "x"]})
    for at in range(rows.num_rows):
        chunks = pa.concat_tables([rows.slice(0, at), rows.slice(at)])
        assert repeats(chunks).tolist() == [True, True, False, True, True, False]
    assert repeats(rows.slice(0, 1)).tolist() == [False]
    assert repeats(rows.slice(0, 0)).tolist() == []

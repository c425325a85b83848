"""Runs in an Iceberg catalogue: the rows of the run, by files that stay as they are; branches, repetition, removal."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from coordinator_core.cli.app import run as regroup
from coordinator_core.errors import DamagedInputError, ExitCode, UsageError
from coordinator_core.runs import iceberg
from coordinator_core.runs.iceberg import AUDITED, MAIN, CatalogError, Tables, redacted
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.prune import Keep, prunable
from coordinator_core.runs.read import Run, open_run
from coordinator_core.runs.registered import is_registered
from coordinator_core.runs.schemas import TABLES
from coordinator_core.runs.verify import verify_run
from tests.kills import events_of, killed_at
from tests.rules.logs import Log, commit, log_of

from .test_publish import place as place_of
from .test_publish import publish

PLACE = ["cluster", "window_key", "run_id"]
FEW = ("groups", "offsets", "regexes")
"""Two tables with rows, and one without."""


@pytest.fixture
def every_table() -> None:
    """The test is about each table of a run."""


@pytest.fixture(autouse=True)
def few_tables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit takes as long for each table."""
    if "every_table" not in request.fixturenames:
        monkeypatch.setattr(iceberg, "TABLES", {name: TABLES[name] for name in FEW})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return published(tmp_path)


def published(tmp_path: Path, run_id: str = "r1", window: str = "w", now_ms: int = 5) -> Run:
    where = place_of(tmp_path / "runs", run_id, window)
    publish(where, now_ms=now_ms)
    return open_run(where.path)


def properties(tmp_path: Path) -> dict[str, str]:
    return {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    with Tables("lake", "regroup", properties(tmp_path)) as tables:
        yield tables


def read(tmp_path: Path, name: str) -> Table:
    return load_catalog("lake", **properties(tmp_path)).load_table(f"regroup.{name}")


def rows(tmp_path: Path, name: str, branch: str = MAIN) -> pa.Table:
    """Rows of a branch, by pyiceberg's own reader; none where it has no such branch."""
    table = read(tmp_path, name)
    return (
        table.scan().use_ref(branch).to_arrow() if branch in table.refs() else table.schema().as_arrow().empty_table()
    )


def run_ids(tmp_path: Path, branch: str = MAIN) -> set[str]:
    return {run_id for name in iceberg.TABLES for run_id in rows(tmp_path, name, branch)["run_id"].to_pylist()}


def content(run: Run) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(run.path).rglob("*") if path.is_file()}


@pytest.mark.usefixtures("every_table")
def test_tables_have_the_rows_of_the_run(
    run: Run, tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    before = content(run)
    tables.register(run)
    for name in iceberg.TABLES:
        _has_rows(run, tmp_path, name)
    assert content(run) == before
    assert verify_run(run).damage == ()


def _has_rows(run: Run, tmp_path: Path, name: str) -> None:
    wanted = run.table(name)
    found = polars.scan_iceberg(read(tmp_path, name)).collect()
    assert found.select(PLACE).unique().rows() == ([("prod", "w", "r1")] if wanted.num_rows else [])
    assert sorted(map(repr, found.drop(PLACE).to_dicts())) == sorted(map(repr, wanted.to_pylist()))
    by_pyiceberg = rows(tmp_path, name).drop(PLACE).to_pylist()
    # pyiceberg's reader makes empty lists of null ones, where their elements have fields.
    lists = {field.name for field in TABLES[name].arrow if _has_structs(field.type)}
    told = [{key: row[key] or [] if key in lists else row[key] for key in row} for row in wanted.to_pylist()]
    assert sorted(map(repr, by_pyiceberg)) == sorted(map(repr, told))


def _has_structs(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)


@pytest.mark.usefixtures("every_table")
def test_the_snapshot_names_what_proves_the_run(run: Run, tables: Tables, tmp_path: Path) -> None:
    tables.register(run)
    for name in iceberg.TABLES:
        snapshot = read(tmp_path, name).current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        told = {key: value for key, value in snapshot.summary.additional_properties.items() if key[:8] == "regroup."}
        assert told == {
            "regroup.cluster": "prod",
            "regroup.window": "w",
            "regroup.run-id": "r1",
            "regroup.state-hash": run.state_hash,
            "regroup.manifest-sha256": hashlib.sha256((Path(run.path) / "manifest.json").read_bytes()).hexdigest(),
            "regroup.table-hash": run.table_hash(name),
        }


def test_repeated_nothing_changes(run: Run, tables: Tables, tmp_path: Path) -> None:
    assert tables.register(run).changed == tuple(sorted(iceberg.TABLES))
    before = {name: read(tmp_path, name).metadata_location for name in iceberg.TABLES}
    assert tables.register(run).changed == ()
    assert {name: read(tmp_path, name).metadata_location for name in iceberg.TABLES} == before


def test_a_run_replaces_that_of_its_window_alone(run: Run, tables: Tables, tmp_path: Path) -> None:
    again, other = published(tmp_path, "r2"), published(tmp_path, "r3", "v")
    for each in (run, other, again):
        tables.register(each)
    assert run_ids(tmp_path) == {"r2", "r3"}
    assert rows(tmp_path, "offsets").num_rows == 2 * run.table("offsets").num_rows
    # Nothing refers to the run that was replaced.
    assert [is_registered(each.path) for each in (run, again, other)] == [False, True, True]


def test_branches_are_apart(run: Run, tables: Tables, tmp_path: Path) -> None:
    again = published(tmp_path, "r2")
    tables.register(run)
    tables.register(run, AUDITED)
    tables.register(again)
    assert (run_ids(tmp_path), run_ids(tmp_path, AUDITED)) == ({"r2"}, {"r1"})
    assert is_registered(run.path)
    tables.register(again, AUDITED)
    assert run_ids(tmp_path, AUDITED) == {"r2"}
    assert not is_registered(run.path)
    # Of a table without rows, too: a reader names the branch.
    assert all(AUDITED in read(tmp_path, name).refs() for name in iceberg.TABLES)


def test_the_audited_branch_may_come_first(run: Run, tables: Tables, tmp_path: Path) -> None:
    tables.register(run, AUDITED)
    assert (run_ids(tmp_path), run_ids(tmp_path, AUDITED)) == (set(), {"r1"})


@pytest.mark.usefixtures("every_table")
def test_removed_it_is_in_no_branch(run: Run, tables: Tables, tmp_path: Path) -> None:
    assert tables.unregister(run).changed == ()
    tables.register(run)
    tables.register(run, AUDITED)
    other = published(tmp_path, "r2", "v")
    tables.register(other)
    assert "offsets" in tables.unregister(run).changed
    assert (run_ids(tmp_path), run_ids(tmp_path, AUDITED)) == ({"r2"}, set())
    assert not is_registered(run.path)
    assert verify_run(run).damage == ()


def test_prune_leaves_what_a_catalogue_refers_to(run: Run, tables: Tables, tmp_path: Path) -> None:
    for number in range(3):
        published(tmp_path, "r", f"later-{number}")
    tables.register(run)
    for path in Path(run.path).parents[1].rglob("*"):
        os.utime(path, (0, 0))
    output, now_ms = str(tmp_path / "runs"), 10 * 86_400_000

    def going(*besides: tuple[str, str]) -> set[str]:
        found = prunable(output, "prod", {"runs": Keep(days=1)}, now_ms, *besides)
        return {removal.paths[-1] for removal in found}

    assert run.path not in going()
    assert len(going()) == 3
    assert run.path not in going(("lake", "other"))
    assert run.path in going(("lake", "regroup"))
    tables.unregister(run)
    assert run.path in going()


def test_engines_are_told_not_to_delete_files(run: Run, tables: Tables, tmp_path: Path) -> None:
    tables.register(run)
    assert read(tmp_path, "offsets").properties["gc.enabled"] == "false"


def test_a_new_column_comes_to_an_older_table(
    run: Run, tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = iceberg._columns
    with monkeypatch.context() as patch:
        # As a version without the column made the table.
        patch.setattr(iceberg, "_columns", lambda name: pa.schema([f for f in columns(name) if f.name != "topic_id"]))
        tables._catalog.create_namespace("regroup")
        tables._table("offsets")
    tables.register(run)
    assert rows(tmp_path, "offsets")["topic_id"].to_pylist() == run.table("offsets")["topic_id"].to_pylist()


def test_two_at_once(run: Run, tmp_path: Path) -> None:
    """Commits that come second are decided anew; where tables have different runs, one registration fails."""
    both = [run, published(tmp_path, "r2")]
    with Tables("lake", "regroup", properties(tmp_path)) as tables, ThreadPoolExecutor() as threads:
        tables.register(published(tmp_path, "first", "v"))
        tasks = [threads.submit(tables.register, each) for each in both]
        failures = [task.exception() for task in tasks]
        for name in iceberg.TABLES:
            found = rows(tmp_path, name)
            assert len(set(found["run_id"].to_pylist())) <= 2, name
            assert found.num_rows == 2 * run.table(name).num_rows
        there = run_ids(tmp_path) - {"first"}
        assert len(there) == 1 or any(isinstance(failure, CatalogError) for failure in failures)
        assert all(is_registered(each.path) for each in both if each.manifest["run_id"] in there)
        tables.register(run)
    assert run_ids(tmp_path) == {"first", "r1"}


def test_another_run_in_some_tables_is_told(
    run: Run, tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again, check_whole = published(tmp_path, "r2"), Tables._check_whole

    def late(self: Tables, *others: Any) -> None:
        if self is tables:
            # Another registration, of which some commits came before those of this one.
            files = iceberg._files_of(again, "offsets")
            self._commit("offsets", iceberg.run_place(again), MAIN, files, {})
        check_whole(self, *others)

    with monkeypatch.context() as patch:
        patch.setattr(Tables, "_check_whole", late)
        with pytest.raises(CatalogError, match="another run of the window w was registered at the same time"):
            tables.register(run)
    tables.register(again)
    assert run_ids(tmp_path) == {"r2"}


def test_a_catalogue_that_cannot_begin_leaves_no_note(run: Run, tables: Tables, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "catalog.db") as catalog:
        catalog.execute("DROP TABLE iceberg_namespace_properties")
    with pytest.raises(CatalogError, match="no such table"):
        tables.register(run)
    assert not is_registered(run.path)


def test_an_overtaken_commit_is_decided_anew(
    run: Run, tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again, committed = published(tmp_path, "r2"), iceberg._committed
    overtaken: list[bool] = []

    def late(table: Table, *others: Any) -> bool:
        if not overtaken:
            overtaken.append(True)
            with Tables("lake", "regroup", properties(tmp_path)) as quicker:
                quicker.register(again)
            assert not committed(table, *others)
            return False
        return committed(table, *others)

    monkeypatch.setattr(iceberg, "_committed", late)
    tables.register(run)
    assert run_ids(tmp_path) == {"r1"}


@pytest.mark.full
def test_killed_anywhere_it_is_completed_by_the_next(run: Run, tmp_path: Path) -> None:
    modules = {str(Path(iceberg.__file__)), str(Path(iceberg.__file__).with_name("registered.py"))}

    def register(place: str) -> None:
        with Tables("lake", "regroup", properties(tmp_path / place)) as tables:
            tables.register(run)

    for place in ("counted", "killed"):
        (tmp_path / place).mkdir()
    events = events_of(modules, lambda: register("counted"))
    kills = [killed_at(1 + number * events // 3, modules, lambda: register("killed")) for number in range(3)]
    assert all(kills)
    # What may be referred to is noted first.
    assert is_registered(run.path)
    register("killed")
    for name in iceberg.TABLES:
        assert rows(tmp_path / "killed", name).num_rows == run.table(name).num_rows


def test_changed_files_are_refused(run: Run, tables: Tables, tmp_path: Path) -> None:
    path = Path(run.path) / run.manifest["tables"]["offsets"]["files"][0]
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(DamagedInputError, match="changed_since_published"):
        tables.register(run)
    assert load_catalog("lake", **properties(tmp_path)).list_namespaces() == []


def test_a_moved_run_is_refused(run: Run, tables: Tables) -> None:
    moved = Path(run.path).rename(Path(run.path).with_name("r9"))
    with pytest.raises(UsageError, match="names another cluster, window or run id"):
        tables.register(open_run(str(moved)))


def command(tmp_path: Path, *words: str) -> list[str]:
    given = [f"--property={name}={value}" for name, value in properties(tmp_path).items()]
    return ["register", *words, "--catalog", "lake", *given]


@pytest.mark.usefixtures("every_table")
def test_command(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(run.path).parent)
    assert regroup(command(tmp_path, "r1")) == ExitCode.CLEAN
    assert capsys.readouterr().out.startswith("r1 registered in lake.regroup, main\ntables changed: carried_records, ")
    assert regroup(command(tmp_path, "r1", "--branch", "audited", "--format", "json")) == ExitCode.CLEAN
    document = json.loads(capsys.readouterr().out)
    assert document["branches"] == ["audited"]
    assert document["changed"] == sorted(iceberg.TABLES)
    assert regroup(command(tmp_path, "r1", "--remove")) == ExitCode.CLEAN
    assert "r1 removed from lake.regroup, main and audited" in capsys.readouterr().out
    assert (run_ids(tmp_path), run_ids(tmp_path, AUDITED)) == (set(), set())


WRONG = {
    "no such catalogue": ["register", "RUN", "--catalog", "unknown"],
    "a credential": ["register", "RUN", "--catalog", "lake", "--property", "s3.secret-access-key=hunter2"],
    "a password": ["register", "RUN", "--catalog", "lake", "--property", "uri=postgresql://u:hunter2@h/d"],
    "no value": ["register", "RUN", "--catalog", "lake", "--property", "hunter2"],
    "a path as name": ["register", "RUN", "--catalog", "../lake"],
    "a branch of what goes": ["register", "RUN", "--catalog", "lake", "--remove", "--branch", "main"],
}


@pytest.mark.parametrize("words", WRONG.values(), ids=WRONG)
def test_wrong_use(run: Run, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert regroup([run.path if word == "RUN" else word for word in words]) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "hunter2" not in error
    assert not is_registered(run.path)


def test_without_the_extra(run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyiceberg"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "coordinator_core.runs.iceberg")
    monkeypatch.delattr("coordinator_core.runs.iceberg")
    assert regroup(["register", run.path, "--catalog", "lake"]) == ExitCode.USAGE
    assert "install the extra regroup[iceberg]" in capsys.readouterr().err


def test_credentials_of_the_configuration_are_not_said(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A catalogue whose own error repeats them."""

    def refuse(name: str, **_: str) -> None:
        raise ValueError("cannot open sqlite://u:hunter2@h/d with abcdef\nand more")

    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TOKEN", "abcdef")
    monkeypatch.setattr(iceberg, "load_catalog", refuse)
    monkeypatch.setattr(iceberg.Config, "get_catalog_config", lambda *_: {"token": "abcdef"})
    with pytest.raises(CatalogError) as found:
        Tables("lake", "regroup", {})
    assert str(found.value) == "catalog lake: ValueError: cannot open sqlite://u:***@h/d with ***"
    assert found.value.__suppress_context__
    assert redacted("plain", {"uri": "plain"}) == "plain"


def test_a_catalogue_that_fails(run: Run, tables: Tables, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables.register(run)
    with sqlite3.connect(tmp_path / "catalog.db") as catalog:
        catalog.execute("UPDATE iceberg_tables SET metadata_location = '/nowhere.json' WHERE table_name = 'offsets'")
    assert regroup(command(tmp_path, run.path)) == ExitCode.APPLY_FAILED
    assert capsys.readouterr().err.startswith("regroup: error: catalog lake: FileNotFoundError: ")


def test_every_row_is_found_by_its_group(tables: Tables, tmp_path: Path) -> None:
    """Parquet tells no bounds of long values; and behind U+D7FF come surrogates, which are no characters."""
    groups = ["z" * 5_000, "a", "\ud7ff" * 20, "\U0010ffff" * 20]
    log = Log({number: log_of(commit(group)) for number, group in enumerate(groups)}, num_partitions=4)
    tables.register(log.publish(tmp_path))
    table = read(tmp_path, "offsets")
    assert [table.scan(row_filter=iceberg._is("group_id", group)).count() for group in groups] == [1] * 4
    # By a column that has bounds the file is passed over.
    files = [len(list(table.scan(row_filter=iceberg._is("topic", topic)).plan_files())) for topic in ("t", "u")]
    assert files == [1, 0]


@pytest.mark.parametrize("path", ["s3://b/out#1/part.parquet?region=eu", "/out#1/part.parquet", "/out?/part.parquet"])
def test_paths_that_readers_would_cut_are_refused(path: str) -> None:
    with pytest.raises(UsageError, match="no path with"):
        iceberg._uri(path)


def test_place_of_a_run(run: Run, tmp_path: Path) -> None:
    assert iceberg.run_place(run) == RunPlace(str(tmp_path / "runs"), "prod", "w", "r1")

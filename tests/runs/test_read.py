from __future__ import annotations

import json
from pathlib import Path

import pytest

from coordinator_core.errors import DamagedInputError, ExitCode
from coordinator_core.runs.place import is_run
from coordinator_core.runs.publish import promote
from coordinator_core.runs.read import Run, RunError, open_run, resolve_latest
from coordinator_core.runs.schemas import SCHEMA_VERSION

from .states import rich_states
from .test_publish import place, publish


@pytest.fixture
def run(tmp_path: Path) -> Run:
    publish(place(tmp_path))
    return open_run(place(tmp_path).path)


def change_manifest(run: Run, **changes: object) -> None:
    path = Path(run.path) / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_groups_are_read_alone(run: Run) -> None:
    states = run.states(group_ids=["g-live", "pending-only"])
    first = rich_states()[0]
    assert set(states[0].groups) == {"g-live"}
    assert {offset_key.group_id for offset_key in states[0].offsets} == {"g-live"}
    assert states[0].pending == first.pending
    assert states[0].load_failures == first.load_failures


def test_errors_are_usage_errors() -> None:
    assert RunError.exit_code is ExitCode.USAGE


@pytest.mark.parametrize("name", ["missing", "file"])
def test_no_run_there(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    path = str(tmp_path / name)
    assert not is_run(path)
    with pytest.raises(RunError, match="not a published run"):
        open_run(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"tables": []}', "\x00"])
def test_broken_manifest(run: Run, text: str) -> None:
    (Path(run.path) / "manifest.json").write_text(text)
    with pytest.raises(RunError, match=r"manifest\.json (cannot be read|is not the manifest of a run)"):
        open_run(run.path)


@pytest.mark.parametrize("version", [0, 1, SCHEMA_VERSION + 1, None, str(SCHEMA_VERSION)])
def test_unknown_schema_version(run: Run, version: object) -> None:
    change_manifest(run, schema_version=version)
    with pytest.raises(RunError, match=rf"schema version {version}; .* reads 2 and {SCHEMA_VERSION}$"):
        open_run(run.path)


def test_missing_file(run: Run) -> None:
    (Path(run.path) / "offsets/part-00000.parquet").unlink()
    with pytest.raises(DamagedInputError, match=r"part-00000\.parquet: .*the file is gone"):
        run.table("offsets")
    assert run.table("groups").num_rows > 0


def test_broken_file(run: Run) -> None:
    (Path(run.path) / "offsets/part-00000.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DamagedInputError, match=r"part-00000\.parquet: .*it has 7 bytes"):
        run.table("offsets")


def test_files_not_in_the_manifest_are_not_read(run: Run) -> None:
    part = Path(run.path) / "offsets/part-00000.parquet"
    part.with_name("part-00001.parquet").write_bytes(part.read_bytes())
    assert run.states() == rich_states()


def test_row_count_is_checked(run: Run) -> None:
    tables = json.loads((Path(run.path) / "manifest.json").read_text())["tables"]
    tables["offsets"]["rows"] += 1
    change_manifest(run, tables=tables)
    with pytest.raises(DamagedInputError, match=r"part-00000\.parquet: .*offsets has 3 rows, its manifest says 4"):
        open_run(run.path).table("offsets")


def test_unknown_table(run: Run) -> None:
    with pytest.raises(RunError, match="has no table 'findings'"):
        run.table("findings")


def test_no_latest(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no published run of cluster 'prod'"):
        resolve_latest(str(tmp_path), "prod")


@pytest.mark.parametrize("text", ["", "{}", '{"path": 3}', '{"path": "a/../../b"}'])
def test_broken_latest(tmp_path: Path, text: str) -> None:
    (tmp_path / "prod").mkdir()
    (tmp_path / "prod/latest.json").write_text(text)
    with pytest.raises(RunError, match=r"latest\.json cannot be read"):
        resolve_latest(str(tmp_path), "prod")
    publish(place(tmp_path))
    assert promote(place(tmp_path), open_run(place(tmp_path).path).manifest)
    assert resolve_latest(str(tmp_path), "prod").states() == rich_states()

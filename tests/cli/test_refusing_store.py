"""Commands on an object store that throttles, cuts connections, or refuses: exit code, one line, what is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_core import storage
from coordinator_core.cli.app import run
from coordinator_core.errors import ExitCode
from tests.ingest.dumps import row, write
from tests.log.object_store import ObjectStore, object_store
from tests.rules.logs import HEALTHY, one

THROTTLED = ("503 Slow Down", "SlowDown")
DENIED = ("403 Forbidden", "AccessDenied")
EXPIRED = ("400 Bad Request", "ExpiredToken")
NOW = ["--kafka-version", "4.3.1", "--now-ms", "1800000000000"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    place = tmp_path_factory.mktemp("log")
    one(*HEALTHY).publish(place)
    with object_store() as store:
        store.copy(place / "log", "log")
        assert run(replay(store, "there")) == ExitCode.CLEAN
        yield store


def replay(store: ObjectStore, run_id: str) -> list[str]:
    place = ["--output", store.uri("runs"), "--cluster", "c", "--window", "w", "--run-id", run_id]
    return ["replay", store.uri("log"), *place, *NOW]


def left(store: ObjectStore, run_id: str) -> set[str]:
    return {name for name, _ in storage.files_below(store.uri(f"runs/c/w/{run_id}"))}


@pytest.mark.parametrize(
    ("answer", "exit_code", "said"),
    [
        (THROTTLED, ExitCode.INTERNAL, "the storage does not answer: "),
        (DENIED, ExitCode.USAGE, "cannot be written: "),
        (EXPIRED, ExitCode.USAGE, "cannot be written: "),
    ],
    ids=["throttled", "denied", "expired"],
)
def test_a_table_that_is_not_taken(
    store: ObjectStore,
    answer: tuple[str, str],
    exit_code: ExitCode,
    said: str,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_id = request.node.callspec.id
    with store.refusing("(PUT|POST) /.*/groups/part-", *answer):
        assert run(replay(store, run_id)) == exit_code
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"regroup: error: {store.uri(f'runs/c/w/{run_id}/groups/part-00000.parquet')}: {said}")
    assert answer[1] in line or "SLOW_DOWN" in line or "ACCESS_DENIED" in line
    assert left(store, run_id) == set()


def test_the_error_is_that_of_the_writer_where_nothing_can_be_deleted_either(
    store: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    with store.refusing(r"DELETE |POST /[^/]*\?delete|(PUT|POST) /.*/groups/part-", *DENIED):
        assert run(replay(store, "stays")) == ExitCode.USAGE
    [line] = capsys.readouterr().err.splitlines()
    assert "groups/part-00000.parquet: cannot be written: " in line
    assert "offsets/part-00000.parquet" in left(store, "stays")
    assert "manifest.json" not in left(store, "stays")


@pytest.mark.parametrize("request_of", ["GET", "GET|HEAD"])
@pytest.mark.parametrize("command", ["describe", "verify", "diff"])
def test_a_table_that_may_not_be_read_is_not_a_damaged_one(
    store: ObjectStore, command: str, request_of: str, capsys: pytest.CaptureFixture[str]
) -> None:
    there = store.uri("runs/c/w/there")
    with store.refusing(f"({request_of}) /.*/groups/part-", *DENIED):
        assert run([command, there, *([there] if command == "diff" else [])]) == ExitCode.USAGE
    assert f"{there}/groups/part-00000.parquet: cannot be read: " in capsys.readouterr().err


def test_a_table_that_is_gone_is_damage(store: ObjectStore, capsys: pytest.CaptureFixture[str]) -> None:
    with store.refusing("(GET|HEAD) /.*/groups/part-", "404 Not Found", "NoSuchKey"):
        assert run(["describe", store.uri("runs/c/w/there")]) == ExitCode.DAMAGED_INPUT
    assert "groups/part-00000.parquet: byte 0: changed_since_published: the file is gone" in capsys.readouterr().err


def test_a_run_that_is_published_says_so_where_latest_json_is_not_taken(
    store: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    with store.refusing("(PUT|POST) /.*/latest.json", *DENIED):
        assert run(replay(store, "untold")) == ExitCode.APPLY_FAILED
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith(f"; the run is published: {store.uri('runs/c/w/untold')}")
    assert run(["verify", store.uri("runs/c/w/untold")]) == ExitCode.CLEAN


@pytest.mark.parametrize(
    ("answer", "exit_code", "said"),
    [
        (THROTTLED, ExitCode.INTERNAL, "the storage does not answer: "),
        (DENIED, ExitCode.USAGE, "cannot be read: "),
    ],
    ids=["throttled", "denied"],
)
def test_records_that_are_not_given_are_no_bad_ones(
    store: ObjectStore,
    answer: tuple[str, str],
    exit_code: ExitCode,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path / "dump" / "part-0.parquet", [row(0)])
    dump = store.copy(tmp_path / "dump", "dump")
    with store.refusing("GET /.*/part-0.parquet", *answer):
        wanted = ["--output", str(tmp_path / "made"), "--isolation-level", "read_committed"]
        assert run(["import-records", dump, *wanted]) == exit_code
    assert f"{dump}/part-0.parquet: {said}" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()

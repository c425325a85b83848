"""Runs that prove themselves: a changed table file is damage with its name, whoever reads it."""

from __future__ import annotations

import errno
import json
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator_core import storage
from coordinator_core.cli.app import run as regroup
from coordinator_core.errors import DamagedInputError, ExitCode, StorageError
from coordinator_core.runs import proof as proof_module
from coordinator_core.runs.proof import check_file, open_parquet, proof_of
from coordinator_core.runs.read import open_run
from tests.cases import case
from tests.examples import one_in
from tests.runs.logs import snapshot

FILE = "offsets/part-00000.parquet"
COMMANDS = {
    "describe": ("describe", "RUN"),
    "list": ("list", "RUN"),
    "reconcile": ("reconcile", "RUN", "--fail-on", "never"),
    "report": ("report", "RUN", "--output", "REPORT"),
    "diff": ("diff", "BEFORE", "RUN"),
    "expire": ("expire", "RUN", "--offsets-retention-ms", "1"),
    "verify": ("verify", "RUN"),
}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("runs")
    (source,) = snapshot(case("k431-txn")).sources
    options = ["--cluster", "c", "--kafka-version", "4.3.1", "--now-ms", "1800000000000", "--window", "w"]
    assert regroup(["replay", source, "--output", str(output), *options, "--no-fold-cache"]) == ExitCode.CLEAN
    (found,) = (output / "c/w").iterdir()
    return found


@pytest.fixture
def run(published: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(published, tmp_path / "run"))


def forged(path: Path) -> None:
    """Other committed offsets, in a sound Parquet file."""
    table = pq.read_table(path, partitioning=None)
    index = table.schema.get_field_index("committed_offset")
    column = pa.array([424242] * table.num_rows, pa.int64())
    pq.write_table(table.set_column(index, table.schema.field(index), column), path)


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(content)


CHANGES: dict[str, Callable[[Path], object]] = {
    "forged": forged,
    "flipped": flipped,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "empty": lambda path: path.write_bytes(b""),
    "gone": Path.unlink,
    "of another table": lambda path: shutil.copy(path.parent.parent / "groups/part-00000.parquet", path),
}


@pytest.mark.parametrize("command", one_in(2, list(COMMANDS)))
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file_is_damage_with_its_name(
    change: str, command: str, run: Path, published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    CHANGES[change](run / FILE)
    places = {"RUN": str(run), "BEFORE": str(published), "REPORT": str(tmp_path / "report")}
    assert regroup([places.get(word, word) for word in COMMANDS[command]]) == ExitCode.DAMAGED_INPUT
    captured = capsys.readouterr()
    assert str(run / FILE) in captured.out + captured.err
    assert "changed_since_published" in captured.out + captured.err
    assert "424242" not in captured.out


def test_an_untouched_run_is_clean(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert regroup(["verify", str(run), "--format", "json"]) == ExitCode.CLEAN
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == "clean"
    assert {str(path) for path in run.rglob("*.parquet")} == set(document["files"])


def test_verify_names_all_that_is_changed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = [run / FILE, run / "groups/part-00000.parquet"]
    for path in changed:
        flipped(path)
    assert regroup(["verify", str(run), "--format", "json"]) == ExitCode.DAMAGED_INPUT
    document = json.loads(capsys.readouterr().out)
    assert {damage["path"] for damage in document["damage"]} == set(map(str, changed))


def test_verify_compares_the_state_hash(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["state_hash"] = "0" * 64
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert regroup(["verify", str(run)]) == ExitCode.DAMAGED_INPUT
    assert "the state hash of the tables is" in capsys.readouterr().out


def test_a_run_of_an_earlier_version_is_read_and_not_verified(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    for table in manifest["tables"].values():
        del table["proofs"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert open_run(str(run)).table("offsets").num_rows > 0
    assert regroup(["verify", str(run)]) == ExitCode.USAGE


def test_a_file_that_this_process_cannot_open_is_no_damage(run: Path) -> None:
    path, (soft, hard) = str(run / FILE), resource.getrlimit(resource.RLIMIT_NOFILE)
    proof = proof_of(path)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(OSError) as raised:  # noqa: PT011
            open_parquet(path, proof)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert raised.value.errno == errno.EMFILE


@pytest.mark.parametrize("call", ["open_input_file", "read"])
def test_storage_that_does_not_answer_is_no_damage(call: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are read again by the next attempt of a task, which damage would end for good."""

    def fails(*_: object, **__: object) -> None:
        raise OSError("When reading: AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 28")

    class Failing:
        def __init__(self, system: Any) -> None:
            self._system = system

        def open_input_file(self, path: str) -> Any:
            return fails() if call == "open_input_file" else self._system.open_input_file(path)

    away = "s3://bucket/part.parquet"
    local, _ = storage.filesystem(str(run / FILE))
    monkeypatch.setattr(storage, "filesystem", lambda _: (Failing(local), str(run / FILE)))
    if call == "read":
        monkeypatch.setattr(proof_module.pq, "ParquetFile", fails)
    with pytest.raises(StorageError, match="the storage does not answer") as raised:
        open_parquet(away, None)
    assert raised.value.exit_code == ExitCode.INTERNAL


def test_of_a_large_file_size_footer_and_pages_are_checked(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof_module, "_SMALL_BYTES", 0)
    path, proof = str(run / FILE), proof_of(str(run / FILE))
    with open_parquet(path, proof) as parquet:
        assert parquet.read().num_rows > 0
    sound = (run / FILE).read_bytes()
    for change in (forged, CHANGES["cut"]):
        change(run / FILE)
        with pytest.raises(DamagedInputError, match="changed_since_published"):
            open_parquet(path, proof)
        (run / FILE).write_bytes(sound)
    # A byte of a page: its own checksum does not fit.
    (run / FILE).write_bytes(sound[:200] + bytes([sound[200] ^ 1]) + sound[201:])
    with pytest.raises(OSError), open_parquet(path, proof) as parquet:  # noqa: PT011
        parquet.read()
    with pytest.raises(DamagedInputError, match="SHA-256"):
        check_file(path, proof)

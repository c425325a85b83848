from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_core.runs import proof
from expectations.frames import UnreadableTableError, parameters, run_files, stored_table

from .faults import FaultyRun, published


def test_the_cut_begins_where_the_loader_begins_to_read(tmp_path: Path) -> None:
    """Not at the log start offset: the batch that holds it can begin before it, in the same segment."""
    run = FaultyRun(published("k082/after", tmp_path), tmp_path / "run")
    segment = run.manifest["inputs"][0]
    partition = str(segment["offsets_partition"])
    bounds = {"log_start_offset": segment["base_offset"] + 3, "log_end_offset": 10**6}
    run.manifest["cut"][partition] = bounds
    cut = parameters(run.opened(), "offsets")["cut"]
    assert cut[partition] == [segment["base_offset"], 10**6]
    assert cut.keys() == run.manifest["cut"].keys()


def test_hidden_files_are_not_files_of_the_run(tmp_path: Path) -> None:
    run = FaultyRun(published("k082/after", tmp_path), tmp_path / "run")
    before = run_files(run.opened())
    (run.path / "offsets" / ".part-00000.parquet.crc").touch()
    (run.path / "offsets" / "_SUCCESS").touch()
    (run.path / "_staging").mkdir()
    (run.path / "_staging" / "offsets-0.parquet").touch()
    assert run_files(run.opened()).equals(before)
    (run.path / "offsets" / "part-00009.parquet").touch()
    extra = {"table": "offsets", "file": "offsets/part-00009.parquet", "listed": False, "found": True, "intact": None}
    assert [row for row in run_files(run.opened()).to_pylist() if row not in before.to_pylist()] == [extra]


def test_another_file_of_the_same_rows_is_not_intact(tmp_path: Path) -> None:
    run = FaultyRun(published("k082/after", tmp_path), tmp_path / "run")
    run.change("offsets", lambda rows: rows[0].update(committed_offset=999))
    files = {row["table"]: row["intact"] for row in run_files(run.opened()).to_pylist()}
    assert files.pop("offsets") is False
    assert set(files.values()) == {True}
    for table in run.manifest["tables"].values():
        # As earlier versions wrote them.
        del table["proofs"]
    assert set(run_files(run.opened())["intact"].to_pylist()) == {None}


def test_pages_of_a_large_file_are_checked_when_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = FaultyRun(published("k082/after", tmp_path), tmp_path / "run")
    monkeypatch.setattr(proof, "_SMALL_BYTES", 0)
    data = bytearray(run.part("offsets").read_bytes())
    data[data.index(b"\x28\xb5\x2f\xfd") + 12] ^= 1
    run.part("offsets").write_bytes(data)
    assert all(row["intact"] for row in run_files(run.opened()).to_pylist())
    with pytest.raises(UnreadableTableError, match=r"offsets/part-00000\.parquet cannot be read"):
        list(stored_table(run.opened(), "offsets").spread(1, ()))

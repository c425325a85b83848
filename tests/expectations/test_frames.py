from __future__ import annotations

from pathlib import Path

from expectations.frames import parameters, run_files

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
    extra = {"table": "offsets", "file": "offsets/part-00009.parquet", "listed": False, "found": True}
    assert [row for row in run_files(run.opened()).to_pylist() if row not in before.to_pylist()] == [extra]

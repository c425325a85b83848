"""Footers of Parquet files that lie, under digests that fit: what was published, or exit code 3 with the file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from coordinator_core.cli.app import run as regroup
from coordinator_core.errors import ExitCode
from coordinator_core.runs.proof import proof_of
from tests.examples import strides
from tests.runs.footers import mutations

COMMANDS = (
    ("describe", "RUN", "--all-groups", "--format", "json"),
    ("verify", "RUN"),
    ("list", "RUN"),
    ("stats", "RUN"),
    ("expire", "RUN", "--offsets-retention-ms", "1"),
    ("reconcile", "RUN", "--fail-on", "never", "--no-log"),
    ("whatif", "RUN", "--to", "consumer"),
    ("restore", "plan", "SOUND", "--all-groups", "--against", "RUN"),
)


@pytest.mark.parametrize("table", ["offsets", pytest.param("groups", marks=pytest.mark.full)])
@strides(6)
def test_footers_that_lie(
    table: str, stride: int, small_run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(small_run, tmp_path / "run"))
    path = run / f"{table}/part-00000.parquet"
    manifest = json.loads((run / "manifest.json").read_text())
    places = {"RUN": str(run), "SOUND": str(small_run)}
    refused = 0
    changes = [*mutations((small_run / path.relative_to(run)).read_bytes())]
    for number, (what, data) in enumerate(changes[::stride]):
        path.write_bytes(data)
        manifest["tables"][table]["proofs"] = [dict(proof_of(str(path)))]
        (run / "manifest.json").write_text(json.dumps(manifest))
        words = COMMANDS[number % len(COMMANDS)]
        code = regroup([places.get(word, word) for word in words])
        said = "".join(capfd.readouterr())
        assert code in (ExitCode.CLEAN, ExitCode.FINDINGS, ExitCode.DAMAGED_INPUT), (what, words, said)
        if code == ExitCode.DAMAGED_INPUT:
            assert str(path) in said, (what, words, said)
            refused += 1
    assert len(changes) > 80
    assert refused > 20 / stride

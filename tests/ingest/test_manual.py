"""The example of docs/import-records.md: its commands work on the log it names, and print what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coordinator_core.cli.app import run
from tests.cases import CORPUS, case
from tests.ingest.dumps import consumed, write

MANUAL = (CORPUS.parent.parent / "docs" / "import-records.md").read_text(encoding="utf-8")


def test_the_manual_shows_what_is_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    item = case("k431-txn")
    write(tmp_path / "dump" / "part-00000.parquet", consumed(item.paths[0], "read_uncommitted"))
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```console\n(.*?)```", MANUAL, re.S)
    steps = re.findall(r"^\$ regroup (.+)\n((?:(?!\$ ).*\n)*)", block, re.M)
    assert len(steps) == 2
    for command, shown in steps:
        assert run(command.split()) == 0
        printed = capfd.readouterr().out
        assert [line.rstrip() for line in printed.strip().splitlines() if line] == shown.splitlines(), command
    assert run(["describe", "log", "--kafka-version", "4.3.1"]) == 3
    assert capfd.readouterr().err in MANUAL

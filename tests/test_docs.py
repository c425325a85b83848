"""What the README says is true: its table, and the example it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coordinator_core.cli.app import run
from tests import proved

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_of_releases_is_what_the_corpus_holds() -> None:
    assert "\n".join(proved.table()) in README


def test_the_example_prints_what_the_readme_shows(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    commands = re.findall(r"```\n\$ regroup (.+)\n((?:.*\n)*?)```", README)
    assert len(commands) >= 3
    for command, output in commands:
        assert run(command.split()) == 0
        printed = capfd.readouterr()
        assert [line.rstrip() for line in printed.out.strip().splitlines()] == [
            line.rstrip() for line in output.strip().splitlines()
        ], command

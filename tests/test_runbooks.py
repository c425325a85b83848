"""The runbooks: one for each exit code and each alert, with commands that print what the page shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from coordinator_core.cli.app import run
from coordinator_core.errors import ExitCode

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/runbooks.md"
SECTIONS = {
    part.partition("\n")[0]: part.partition("\n")[2]
    for part in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
}
EXAMPLE = re.compile(r"```\n\$ (.+)\n((?:.*\n)*?)```")
PROCESS = f'regroup() {{ {shlex.quote(sys.executable)} -m coordinator_core "$@"; }}; '


_ANSWERS: dict[str, tuple[int, str, str]] = {}
"""By command, of which several pages show something else."""


def alerts() -> list[dict[str, dict[str, str]]]:
    document = yaml.safe_load((ROOT / "docs/monitoring/alerts.yaml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def test_each_exit_code_and_each_alert_has_one() -> None:
    assert list(SECTIONS) == [
        *(f"Exit code {code.value}" for code in ExitCode),
        *(rule["alert"] for rule in alerts()),
    ]
    for rule in alerts():
        assert rule["annotations"]["runbook"] == f"docs/runbooks.md#{rule['alert'].lower()}"


@pytest.mark.parametrize("name", SECTIONS)
def test_its_commands_print_what_it_shows(
    name: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    examples = EXAMPLE.findall(SECTIONS[name])
    assert examples
    for line, shown in examples:
        assert printed(line, capfd) == [text.rstrip() for text in shown.splitlines()], line
        if name.startswith("Exit code") and line.endswith("echo $?"):
            assert shown.splitlines()[-1] == name.removeprefix("Exit code ")


def printed(line: str, capfd: pytest.CaptureFixture[str]) -> list[str]:
    """Output of a shell for the line. Only Regroup runs in this process, where it need not start."""
    command, _, then = line.partition("; ")
    command, _, filters = command.partition(" | ")
    if ">" in command:
        whole = subprocess.run(["bash", "-c", PROCESS + line], capture_output=True, text=True, check=False)
        return (whole.stderr + whole.stdout).splitlines()
    assert command.startswith("regroup ")
    if command not in _ANSWERS:
        _ANSWERS[command] = (run(shlex.split(command)[1:]), *capfd.readouterr())
    code, out, err = _ANSWERS[command]
    if filters:
        out = subprocess.run(["bash", "-c", filters], input=out, capture_output=True, text=True, check=True).stdout
    else:
        out += err
    assert then in ("", "echo $?")
    return [text.rstrip() for text in out.splitlines()] + ([str(code)] if then else [])

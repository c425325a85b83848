"""The table of incidents in ``docs/investigate.md``: what each one's command answers.

``python -m tests.history.page`` prints it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.history.further import FURTHER
from tests.history.incidents import INCIDENTS, Incident
from tests.history.sharing import SHARING

ALL = (*INCIDENTS, *FURTHER, *SHARING)
HEADER = "| incident | command | answer |\n|---|---|---|"


def command(incident: Incident) -> str:
    """Words that a person types; ``LOG`` stands for a copy of the partition."""
    group = [] if incident.group is None else ["--group", incident.group]
    return " ".join(["regroup investigate LOG --kafka-version", incident.release, *incident.arguments, *group])


def row(incident: Incident, verdict: str) -> str:
    """One line of the table."""
    escaped = verdict.replace("|", "\\|").replace("*", "\\*")
    return f"| {incident.id} | `{command(incident)}` | {escaped} |"


def answer(incident: Incident) -> str:
    """The verdict that the command gives."""
    with tempfile.TemporaryDirectory() as directory:
        path = str(incident.build(Path(directory) / "log", True))
        arguments = command(incident).replace("LOG", path, 1).split()[1:]
        arguments += ["--now-ms", str(incident.now_ms), "--format", "json"]
        program = [sys.executable, "-m", "coordinator_core", *arguments]
        printed = subprocess.run(program, capture_output=True, text=True, check=False)
    found = [one for one in json.loads(printed.stdout)["explanations"] if one["code"] == incident.code]
    return str(found[0]["verdict"])


if __name__ == "__main__":
    print("\n".join([HEADER, *(row(incident, answer(incident)) for incident in ALL)]))

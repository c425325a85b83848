"""The tables of incidents in ``docs/investigate.md``: what each one's command answers.

``python -m tests.history.page`` prints them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.history.deployed import DEPLOYED
from tests.history.further import FURTHER
from tests.history.incidents import INCIDENTS, Incident
from tests.history.observed import OBSERVED
from tests.history.recorded import Part, parts, unpack
from tests.history.reported import REPORTED
from tests.history.sharing import SHARING
from tests.history.tracked import TRACKED
from tests.history.wider import WIDER

ALL = (*INCIDENTS, *FURTHER, *SHARING, *WIDER, *REPORTED, *TRACKED, *OBSERVED, *DEPLOYED)
HEADER = "| incident | command | answer | broker |\n|---|---|---|---|"
RECORDED_HEADER = "| recorded | command | answer |\n|---|---|---|"


def command(incident: Incident) -> str:
    """Words that a person types; ``LOG`` stands for a copy of the partition."""
    group = [] if incident.group is None else ["--group", incident.group]
    return " ".join(["regroup investigate LOG --kafka-version", incident.release, *incident.arguments, *group])


def row(incident: Incident, verdict: str) -> str:
    """One line of the first table. The last column has the releases whose brokers were recorded with this incident."""
    releases = sorted({part.release for part in parts() if part.like == incident.id})
    return f"| {incident.id} | `{command(incident)}` | {_escaped(verdict)} | {', '.join(releases)} |"


def recorded_row(part: Part, verdict: str) -> str:
    """One line of the second table, of incidents that were recorded and not built."""
    words = f"regroup investigate LOG --kafka-version {part.release} --group {part.group}"
    return f"| {part.incident} | `{words}` | {_escaped(verdict)} |"


def _escaped(verdict: str) -> str:
    return verdict.replace("|", "\\|").replace("*", "\\*")


def answer(incident: Incident) -> str:
    """The verdict that the command gives."""
    with tempfile.TemporaryDirectory() as directory:
        path = str(incident.build(Path(directory) / "log", True))
        arguments = command(incident).replace("LOG", path, 1).split()[1:]
        document = _investigated([*arguments, "--now-ms", str(incident.now_ms)])
    found = [one for one in document["explanations"] if one["code"] == incident.code]
    return str(found[0]["verdict"])


def recorded_answer(part: Part) -> str:
    """The verdict on a recorded log."""
    with tempfile.TemporaryDirectory() as directory:
        path = str(unpack(part.log, Path(directory)))
        document = _investigated(["investigate", path, "--kafka-version", part.release, "--group", part.group])
    return str(part.told(document)[0]["verdict"])


def _investigated(arguments: list[str]) -> dict[str, Any]:
    program = [sys.executable, "-m", "coordinator_core", *arguments, "--format", "json"]
    printed = subprocess.run(program, capture_output=True, text=True, check=False)
    document: dict[str, Any] = json.loads(printed.stdout)
    return document


if __name__ == "__main__":
    print("\n".join([HEADER, *(row(incident, answer(incident)) for incident in ALL)]))
    only = [part for part in parts() if part.expected is not None and part.like is None]
    print("\n".join(["", RECORDED_HEADER, *(recorded_row(part, recorded_answer(part)) for part in only)]))

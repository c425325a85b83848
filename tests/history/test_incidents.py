"""Every incident: cause, record and remedy are named, its undo plans what it says; the clean twin has nothing above
info."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.cli.app import run
from coordinator_core.errors import ExitCode
from coordinator_core.investigate.bugs import BUGS
from coordinator_core.investigate.model import AT_END
from tests.history.incidents import Incident
from tests.history.page import ALL, row

PAGE = (Path(__file__).parents[2] / "docs/investigate.md").read_text(encoding="utf-8")


LARGE = {"cleaner-stopped", "cleaner-died", "KAFKA-7286"}
"""Incidents of logs that take seconds: all that is tried of them beside cause, record and remedy is *full*."""


def each(incidents: Iterable[Incident], large: Collection[str] = LARGE) -> Any:
    """Parameters: the incidents, and of the tier *full* the large ones."""
    return [pytest.param(one, id=one.id, marks=pytest.mark.full if one.id in large else ()) for one in incidents]


Built = Callable[[Incident, bool], Path]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The log of an incident or of its twin, which no test changes, built once."""
    return cache(lambda incident, broken: incident.build(tmp_path_factory.mktemp(incident.id) / "log", broken))


def command(incident: Incident, path: Path, release: str) -> list[str]:
    arguments = ["investigate", str(path), "--kafka-version", release, "--now-ms", str(incident.now_ms)]
    if incident.group is not None:
        arguments += ["--group", incident.group]
    return [*arguments, *incident.arguments]


def investigated(
    incident: Incident, path: Path, release: str, capfd: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, Any]]:
    code = run([*command(incident, path, release), "--format", "json"])
    printed = capfd.readouterr()
    assert printed.out, printed.err
    return code, json.loads(printed.out)


# A smaller log of this one is in test_investigate.py.
@pytest.mark.parametrize("incident", each(ALL, {"cleaner-stopped"}))
def test_names_cause_record_and_remedy(incident: Incident, built: Built, capfd: pytest.CaptureFixture[str]) -> None:
    path = built(incident, True)
    code, document = investigated(incident, path, incident.release, capfd)
    found = [one for one in document["explanations"] if one["code"] == incident.code]
    assert found, [(one["code"], one["verdict"]) for one in document["explanations"]]
    told = found[0]
    for words in incident.says:
        assert words in told["verdict"]
    assert any(incident.remedy in step for step in told["now"]), told["now"]
    assert (told["bug"] or {}).get("id") == incident.bug
    if incident.bug is not None:
        assert incident.bug in BUGS
    if incident.record is not None:
        assert incident.record in [event["record_offset"] for event in told["evidence"]]
    assert code == (1 if any(one["severity"] != "info" for one in document["explanations"]) else 0)
    # The page that people read shows this answer.
    assert row(incident, told["verdict"]) in PAGE
    if told["severity"] != "info":
        # What is asked for stands first; nothing else is worse.
        assert document["explanations"][0]["code"] == incident.code
        assert document["verdict"] == told["verdict"]
    for one in (one for one in document["explanations"] if one["undo"]):
        wanted = {(row["topic"], row["partition"]): row["offset"] for row in one["restore"]}
        assert planned(one["undo"], path, capfd).items() >= wanted.items(), one["undo"]


STANDING = {one.code: one for one in ALL if one.code in AT_END}


@pytest.mark.parametrize("incident", each(STANDING.values()))
def test_what_holds_at_the_end_is_told_whenever_it_began(
    incident: Incident, built: Built, capfd: pytest.CaptureFixture[str]
) -> None:
    run([*command(incident, built(incident, True), incident.release), "--format", "json", "--since", "2026-12-31"])
    found = json.loads(capfd.readouterr().out)["explanations"]
    assert incident.code in [one["code"] for one in found]
    assert {one["code"] for one in found} <= AT_END


def planned(undo: str, path: Path, capfd: pytest.CaptureFixture[str]) -> dict[tuple[str, int], int]:
    """Offsets of the plan of an ``undo``, by topic and partition, against the log itself; some are below log starts."""
    _, *words = shlex.split(undo)
    to_cluster = words.index("--bootstrap-server")
    code = run([*words[:to_cluster], "--against", str(path), "--format", "json"])
    printed = capfd.readouterr()
    assert code in (ExitCode.CLEAN, ExitCode.FINDINGS), printed.err
    rows = (row for group in json.loads(printed.out)["groups"] for row in group["rows"] if row["after"] is not None)
    return {(row["topic"], row["partition"]): row["after"]["offset"] for row in rows}


@pytest.mark.parametrize("incident", each(ALL))
def test_the_clean_twin_has_nothing_above_info(
    incident: Incident, built: Built, capfd: pytest.CaptureFixture[str]
) -> None:
    """Either the log is sound, or it is the same log under a release that has the bug no more."""
    path = built(incident, incident.twin_release is not None)
    code, document = investigated(incident, path, incident.twin_release or incident.release, capfd)
    assert [one["verdict"] for one in document["explanations"] if one["severity"] != "info"] == []
    assert code == 0


@pytest.mark.parametrize("is_large", [False, pytest.param(True, marks=pytest.mark.full)])
def test_incidents_write_different_logs(is_large: bool, built: Built) -> None:
    """A twin that were the same log under the same release would prove nothing."""
    for incident in (one for one in ALL if (one.id in LARGE) is is_large):
        logs = []
        for broken in (True, False):
            path = built(incident, broken)
            logs.append({file.relative_to(path): file.read_bytes() for file in path.rglob("*.*")})
        assert logs[0] != logs[1] or incident.twin_release not in (None, incident.release), incident.id

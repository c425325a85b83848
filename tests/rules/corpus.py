"""Findings of the rules in the logs of real brokers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.releases import profile_for_release
from coordinator_core.rules.catalogue import RULES
from coordinator_core.rules.evaluate import Reconciliation, evaluate
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.model import Severity
from coordinator_core.rules.topics import read_topics
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.read import open_run
from tests.cases import CASES, Case
from tests.rules.recorded import Finding


@dataclass(frozen=True)
class Reason:
    """Findings of one rule in some cases, and why they are right: one entry of ``corpus_findings.yaml``."""

    cases: tuple[str, ...]
    rule: str
    why: str
    findings: frozenset[Finding]
    bytes: frozenset[tuple[str, int]] = frozenset()
    formats: tuple[int, ...] = ()


def _reasons() -> list[Reason]:
    entries = yaml.safe_load((Path(__file__).parent / "corpus_findings.yaml").read_text(encoding="utf-8"))
    return [
        Reason(
            tuple(entry["cases"]),
            entry["rule"],
            " ".join(entry["why"].split()),
            frozenset(
                (entry["rule"], group, topic, partition)
                for group, topics in entry.get("at", {None: {None: []}}).items()
                for topic, partitions in topics.items()
                for partition in _numbers(partitions)
            ),
            frozenset(entry.get("bytes", {}).items()),
            tuple(entry.get("formats", ())),
        )
        for entry in entries
    ]


def _numbers(partitions: list[int] | str) -> Iterable[int | None]:
    if isinstance(partitions, str):
        first, _, last = partitions.partition("-")
        return range(int(first), int(last) + 1)
    return partitions or [None]


REASONS = _reasons()


def reasons(case: Case) -> list[Reason]:
    """Reasons for findings in this case."""
    return [reason for reason in REASONS if case.name in reason.cases]


def topics_of(case: Case) -> Path | None:
    """The case's snapshot of topics, when it has one with offsets (old brokers told others)."""
    path = case.expected / "topics.json"
    return path if path.exists() and "topics" in json.loads(path.read_text(encoding="utf-8")) else None


def published(case: Case, directory: Path) -> RunPlace:
    """The run of a case at the time of its capture, below ``directory``."""
    snapshot = discover([str(path) for path in case.paths])
    profile = profile_for_release(case.release, case.coordinator)
    place = RunPlace(str(directory), "corpus", case.name.replace("/", "-"), "r")
    replay_to_run(
        snapshot,
        place,
        profile=profile,
        now_ms=case.captured_ms,
        on_damage=OnDamage.RECOVER,
        offsets_topic_num_partitions=case.offsets_partitions,
    )
    return place


def reconciled(case: Case, directory: Path) -> Reconciliation:
    """The findings of a case, with its topics."""
    place = published(case, directory)
    topics = topics_of(case)
    return evaluate(Facts(open_run(place.path), None if topics is None else read_topics(str(topics))))


def findings_page() -> Iterator[str]:
    """The part of ``docs/rules.md`` about the corpus, line by line."""
    yield "## Findings on logs of real brokers"
    yield ""
    yield "What the rules say of the logs in `tests/corpus`, each at the time it was captured, and with its topics"
    yield "where those were recorded. Cases without a line have no finding above info. Reasons are written by hand in"
    yield "`tests/rules/corpus_findings.yaml`, and checked by what the brokers answered."
    yield ""
    yield "| case | findings above info | because |"
    yield "|---|---|---|"
    for case in CASES:
        for reason in reasons(case):
            rule = RULES[reason.rule]
            if rule.severity is not Severity.INFO:
                count = len(reason.bytes) or len(reason.findings)
                yield f"| {case.name} | {count} {rule.code} {rule.name} | {reason.why} |"

"""What the rules say of the logs of real brokers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage, read_segment
from coordinator_core.releases import profile_for_release
from coordinator_core.rules.catalogue import RULES
from coordinator_core.rules.evaluate import Reconciliation, evaluate
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.topics import read_topics
from coordinator_core.runs.local import replay_snapshot, replay_to_run
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.read import open_run
from tests.cases import CASES, Case

UNCLEAN = {
    "k0102": "A client asked for a retention of 5 s, and the brokers swept once a day.",
    "k241": "A client of OffsetCommit v1 sent a time that was to come.",
    "k392-classic": "Offsets chosen at will by Admin clients and transactions, one for a topic that is gone, "
    "one with a short retention.",
    "k431-compacted": "Groups under load committed offsets that count up, not positions in a topic.",
    "k431-mixed": "The Admin client committed offsets of its own choice, and a topic was made again.",
    "k431-torn": "Logs that were damaged on purpose, and a copy taken while the broker wrote.",
    "k431-txn": "Transactions committed offsets of their own choice.",
}
"""Cases with findings above info, and why; by the first part of their names."""


def reason(case: Case) -> str | None:
    """Why the rules may find something above info in this case; ``None``: they may not."""
    return UNCLEAN.get(case.name.partition("/")[0])


def topics_of(case: Case) -> Path | None:
    """The case's snapshot of topics, when it has one with offsets (old brokers told others)."""
    path = case.expected / "topics.json"
    return path if path.exists() and "topics" in json.loads(path.read_text(encoding="utf-8")) else None


def published(case: Case, directory: Path) -> RunPlace:
    """The run of a case at the time of its last record, below ``directory``."""
    snapshot = discover([str(path) for path in case.paths])
    profile = profile_for_release(case.release, case.coordinator)
    last = max(
        batch.max_timestamp_ms
        for segment in snapshot.segments
        for batch in read_segment(segment, on_damage=OnDamage.SALVAGE)
    )
    if last < 0:  # Message format 0 has no time, the commits in it have.
        states = replay_snapshot(snapshot, profile, damage=[])
        last = max(one.commit_timestamp_ms for state in states for one in state.offsets.values())
    place = RunPlace(str(directory), "corpus", case.name.replace("/", "-"), "r")
    replay_to_run(
        snapshot,
        place,
        profile=profile,
        now_ms=last + 1,
        on_damage=OnDamage.RECOVER,
        offsets_topic_num_partitions=case.offsets_partitions,
    )
    return place


def reconciled(case: Case, directory: Path) -> Reconciliation:
    """The findings of a case, with its topics."""
    place = published(case, directory)
    topics = topics_of(case)
    return evaluate(Facts(open_run(place.path), None if topics is None else read_topics(str(topics))))


def all_reconciled(directory: Path) -> dict[str, Reconciliation]:
    """:func:`reconciled` of every case, by name."""
    return {case.name: reconciled(case, directory) for case in CASES}


def findings_page(of_case: Mapping[str, Reconciliation]) -> Iterator[str]:
    """The part of ``docs/rules.md`` about the corpus, line by line."""
    yield "## Findings on logs of real brokers"
    yield ""
    yield "What the rules say of the logs in `tests/corpus`, each at the time of its last record, and with"
    yield "its topics where those were recorded. Cases without a line have no finding above info."
    yield ""
    yield "| case | findings above info | because |"
    yield "|---|---|---|"
    infos: Counter[str] = Counter()
    for case in CASES:
        rows = of_case[case.name].findings.to_pylist()
        infos.update(row["rule"] for row in rows if row["severity"] == "info")
        worse = Counter(row["rule"] for row in rows if row["severity"] != "info")
        if worse:
            counts = ", ".join(f"{number} {code} {RULES[code].name}" for code, number in sorted(worse.items()))
            yield f"| {case.name} | {counts} | {reason(case)} |"
    yield ""
    listed = ", ".join(f"{number} {code} {RULES[code].name}" for code, number in sorted(infos.items()))
    yield f"Info, in all cases together: {listed}."

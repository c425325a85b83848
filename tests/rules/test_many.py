"""Rules that find much: retention judged for all offsets at once, the hits of a group gathered to one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coordinator_core.lifecycle.expiry import plan_expiry
from coordinator_core.lifecycle.plan import TombstoneKind
from coordinator_core.rules.catalogue import RULES
from coordinator_core.rules.evaluate import evaluate
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.findings import SUBJECT
from coordinator_core.rules.settings import RuleSettings, settings_from
from tests.lifecycle.random_groups import Appended, RandomGroups
from tests.log.builders import NOW_MS
from tests.rules.faults import FAULTS
from tests.rules.logs import Log, classic, commit, empty_group, one

DAY_MS = 86_400_000
SETTINGS = RuleSettings()
RETENTION_MS = int(SETTINGS.limits["offsets_retention_ms"])
GRACE_MS = int(SETTINGS.limits["expiry_grace_ms"])
PARTITIONS = 40
RELEASES = ("3.8.1", "4.0.0", "4.3.1")


def random_log(seed: int, release: str) -> Log:
    """Groups of every kind, some in a partition that does not load, or whose sweep fails."""
    groups = RandomGroups(seed, now_ms=NOW_MS - GRACE_MS, retention_ms=RETENTION_MS, soon_ms=DAY_MS)
    partitions = {}
    for number in range(PARTITIONS):
        log = Appended(0, 0, NOW_MS)
        for group in range(3):
            groups.write(log, f"g{number}-{group}")
        partitions[number] = b"".join(log.batches)
    return Log(partitions, release=release, now_ms=NOW_MS, num_partitions=PARTITIONS)


def expired(facts: Facts) -> set[tuple[Any, ...]]:
    """Offsets that sweeps of each group with an old offset would delete, group by group."""
    then = facts.now_ms - GRACE_MS
    old = {
        offset_key.group_id
        for state in facts.run.states()
        for offset_key, offset in state.offsets.items()
        if offset.commit_timestamp_ms + RETENTION_MS <= then
        or (offset.expire_timestamp_ms is not None and 0 <= offset.expire_timestamp_ms <= then)
    }
    plans = [
        plan_expiry(state, facts.profile, now_ms=then, offsets_retention_ms=RETENTION_MS)
        for state in facts.run.states(group_ids=old)
    ]
    return {
        (
            one.offsets_partition,
            one.record_offset,
            one.group_id,
            one.topic,
            one.partition,
            one.reason.value,
            facts.now_ms - one.expires_at_ms,
        )
        for plan in plans
        for one in plan.tombstones
        if one.kind is TombstoneKind.OFFSET
    }


def check_expired(facts: Facts) -> None:
    columns = ("offsets_partition", "record_offset", "group_id", "topic", "partition", "reason", "expired_ms")
    rows = RULES["R60"].find(facts, SETTINGS.limits).to_pylist()
    found = {tuple(row[name] for name in columns) for row in rows}
    assert len(found) == len(rows)
    assert found == expired(facts)
    assert found


@pytest.mark.parametrize("release", ["3.8.1", pytest.param("4.0.0", marks=pytest.mark.full), "4.3.1"])
def test_offsets_are_due_that_a_sweep_would_delete(release: str, tmp_path: Path) -> None:
    check_expired(random_log(RELEASES.index(release), release).facts(tmp_path))


@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2", "2.3.1"])
def test_offsets_are_due_that_early_sweeps_would_delete(release: str, tmp_path: Path) -> None:
    then = NOW_MS - GRACE_MS
    times = [then - RETENTION_MS - 1 + number for number in range(3)]
    commits = [
        commit("alone", partition=number, version=1, time_ms=time_ms, expireTimestamp=-1)
        for number, time_ms in enumerate(times)
    ]
    for number, expire_ms in enumerate((then - 1, then, NOW_MS)):
        commits.append(commit("told", partition=number, version=1, time_ms=times[0], expireTimestamp=expire_ms))
    of_groups = [commit(group, version=1, time_ms=times[0], expireTimestamp=-1) for group in ("g", "empty")]
    groups = [classic(), empty_group("empty", currentStateTimestamp=times[2])] if release == "2.3.1" else []
    check_expired(one(*commits, *groups, *of_groups, release=release, now_ms=NOW_MS).facts(tmp_path))


@pytest.mark.parametrize(
    "log", [random_log(0, "4.3.1"), FAULTS["R41"], FAULTS["R66"]], ids=["random", "commits", "tombstones"]
)
def test_of_the_hits_of_a_group_the_first_stands_for_all(log: Log, tmp_path: Path) -> None:
    """First by partition, record offset where there is one, topic and so on."""
    facts = log.facts(tmp_path)
    each, together = (
        evaluate(facts, settings_from({"thresholds": thresholds}, RULES)).findings.to_pylist()
        for thresholds in (log.settings.get("thresholds", {}) | {"findings_per_rule": limit} for limit in (1 << 40, 0))
    )
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in sorted(each, key=_subject):
        groups.setdefault((row["rule"], row["offsets_partition"], row["group_id"]), []).append(row)
    expected = [
        (rows[0]["rule"], *_subject(rows[0]), sum(row["rows"] for row in rows), rows[0]["evidence"])
        for rows in groups.values()
    ]
    found = [(row["rule"], *_subject(row), row["rows"], row["evidence"]) for row in together]
    assert sorted(found) == sorted(expected)
    assert found


def _subject(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple((row[name] is None, row[name]) for name in SUBJECT)

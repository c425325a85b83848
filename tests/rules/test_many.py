"""Rules that find much: retention judged for all offsets at once, the hits of a group gathered to one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from coordinator_core.lifecycle.expiry import plan_expiry
from coordinator_core.lifecycle.plan import TombstoneKind
from coordinator_core.releases import profile_for_release
from coordinator_core.reports.run_metrics import run_metrics
from coordinator_core.reports.run_report import run_report
from coordinator_core.rules import facts as facts_module
from coordinator_core.rules import lag as lag_module
from coordinator_core.rules.catalogue import RULES
from coordinator_core.rules.evaluate import evaluate
from coordinator_core.rules.facts import Facts, Part
from coordinator_core.rules.figures import figures_of
from coordinator_core.rules.findings import SUBJECT
from coordinator_core.rules.lag import largest_first
from coordinator_core.rules.parts import GroupRange, divided
from coordinator_core.rules.settings import RuleSettings, settings_from
from tests.examples import one_in
from tests.lifecycle.random_groups import TOPICS as RANDOM_TOPICS
from tests.lifecycle.random_groups import Appended, RandomGroups
from tests.log.builders import NOW_MS
from tests.rules.faults import FAULTS, SCALA, committed
from tests.rules.logs import TOPICS, Log, classic, commit, empty_group, one, share_group
from tests.rules.together import ALONE, together

DAY_MS = 86_400_000
SETTINGS = RuleSettings()
LIMITS = SETTINGS.limits(profile_for_release("4.3.1"))
RETENTION_MS, GRACE_MS = int(LIMITS["offsets_retention_ms"]), int(LIMITS["expiry_grace_ms"])
FEW_PARTITIONS, PARTITIONS = 12, 40
RELEASES = ("3.8.1", "4.0.0", "4.3.1")


def random_log(seed: int, release: str, count: int = PARTITIONS) -> Log:
    """Groups of every kind, some in a partition that does not load, or whose sweep fails."""
    groups = RandomGroups(seed, now_ms=NOW_MS - GRACE_MS, retention_ms=RETENTION_MS, soon_ms=DAY_MS)
    partitions = {}
    for number in range(count):
        log = Appended(0, 0, NOW_MS)
        for group in range(3):
            groups.write(log, f"g{number}-{group}")
        partitions[number] = b"".join(log.batches)
    return Log(partitions, release=release, now_ms=NOW_MS, num_partitions=count)


def topics_of_random_groups() -> dict[str, Any]:
    """The topics of random groups, of another length each."""
    like = TOPICS["topics"][0]
    partitions = [like["partitions"][0] | {"partition": number, "start_offset": 0} for number in range(4)]
    topics = [
        {
            "name": name,
            "topic_id": f"AAAAAAAAAAEAAAAAAAA{number:02}g",
            "partitions": [one | {"end_offset": 1000 * (number + 1) + one["partition"]} for one in partitions],
        }
        for number, name in enumerate(RANDOM_TOPICS)
    ]
    return TOPICS | {"topics": [*topics, *TOPICS["topics"][1:]]}


def expired(facts: Facts) -> set[tuple[Any, ...]]:
    """Offsets that sweeps would delete, group by group."""
    then = facts.now_ms - GRACE_MS
    retention_ms = int(SETTINGS.limits(facts.profile)["offsets_retention_ms"])
    plans = [
        plan_expiry(state, facts.profile, now_ms=then, offsets_retention_ms=retention_ms)
        for state in facts.run.states()
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
    rows = RULES["R60"].find(facts, SETTINGS.limits(facts.profile)).to_pylist()
    found = {tuple(row[name] for name in columns) for row in rows}
    assert len(found) == len(rows)
    assert found == expired(facts)
    assert found


@pytest.mark.parametrize("count", [FEW_PARTITIONS, pytest.param(PARTITIONS, marks=pytest.mark.full)])
@pytest.mark.parametrize("release", ["3.8.1", pytest.param("4.0.0", marks=pytest.mark.full), "4.3.1"])
def test_offsets_are_due_that_a_sweep_would_delete(release: str, count: int, tmp_path: Path) -> None:
    check_expired(random_log(RELEASES.index(release), release, count).facts(tmp_path))


@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2", "2.3.1"])
def test_offsets_are_due_that_early_sweeps_would_delete(release: str, tmp_path: Path) -> None:
    then = NOW_MS - GRACE_MS
    profile = profile_for_release(release)
    retention_ms = int(SETTINGS.limits(profile)["offsets_retention_ms"])
    times = [then - retention_ms - 1 + number for number in range(3)]
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
    "log",
    [
        random_log(0, "4.3.1", FEW_PARTITIONS),
        pytest.param(random_log(0, "4.3.1"), marks=pytest.mark.full),
        FAULTS["R41"],
        FAULTS["R66"],
    ],
    ids=["random", "random and larger", "commits", "tombstones"],
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


SEVERAL_TOPICS = one(
    classic(),
    commit(),
    *(commit("s", name, number, offset=-5, metadata="x" * 4000) for name in "ab" for number in range(2)),
    share_group("shared"),
    *(commit("shared", name) for name in "ab"),
    settings={
        "mutes": [
            {"rule": code, "topic": name, "reason": name, "until": "2100-01-01"}
            for code, name in (("R44", "a"), ("R47", "b"), ("R68", "b"))
        ]
    },
)


@pytest.mark.parametrize("limit", [1 << 40, 0])
def test_a_mute_is_of_its_topic_also_where_hits_are_gathered(
    limit: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    log = SEVERAL_TOPICS
    settings = settings_from(log.settings | {"thresholds": {"findings_per_rule": limit}}, RULES)
    facts = log.facts(tmp_path)
    whole = evaluate(facts, settings).findings
    found: dict[tuple[str, bool], int] = {}
    for row in whole.to_pylist():
        assert (row["muted"] is not None) == (row["rule"] + row["topic"] in ("R44a", "R47b", "R68b"))
        assert row["rows"] == 1 or limit == 0 or row["rule"] == "R47"
        subject = row["rule"], row["muted"] is not None
        found[subject] = found.get(subject, 0) + row["rows"]
    assert found == {(code, is_muted): 2 for code in ("R44", "R47") for is_muted in (True, False)} | {
        ("R68", True): 1,
        ("R68", False): 1,
    }
    request.getfixturevalue("parts")
    assert evaluate(anew(facts), settings).findings == whole


def _subject(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple((row[name] is None, row[name]) for name in SUBJECT)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """Parts of one committed offset, or of the groups that have more; those that were asked for."""
    asked: list[Part] = []
    every = Facts._parts

    def seen(self: Facts) -> Any:
        for part in every(self):
            asked.append(part)
            yield part

    monkeypatch.setattr(facts_module, "PART_ROWS", 1)
    monkeypatch.setattr(Facts, "_parts", seen)
    return asked


def anew(facts: Facts) -> Facts:
    """The same facts, of which nothing was read yet."""
    return Facts(facts.run, facts.topics, None if facts.previous is None else anew(facts.previous), facts.extra)


@pytest.mark.parametrize("count", [3, pytest.param(6, marks=pytest.mark.full)])
def test_parts_of_a_run_say_what_the_run_says(count: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Findings, report, lag and metrics, of two runs of which each has groups that the other lacks."""
    before = random_log(4, "4.3.1", count + 1)
    log = replace(random_log(3, "4.3.1", count), topics=topics_of_random_groups(), previous=before)
    facts = log.facts(tmp_path)
    whole = evaluate(facts)
    report, lag = run_report(facts, whole)
    metrics = run_metrics(report, facts, lag)
    offsets = len(facts.offsets)

    parts: list[Part] = request.getfixturevalue("parts")
    facts = anew(facts)
    again = evaluate(facts)
    groups = [len(part.facts.offsets) for part in parts if part.has_groups]
    assert sum(groups) == offsets
    assert np.count_nonzero(groups) > count
    kinds = {(part.has_partitions, part.has_groups) for part in parts}
    assert kinds == {(True, False), (False, True)}
    assert again.findings == whole.findings
    found, found_lag = run_report(facts, again)
    assert found == report
    assert lag is not None
    assert found_lag is not None
    assert lag.known > 0
    assert (found_lag.groups, found_lag.count, found_lag.known) == (lag.groups, lag.count, lag.known)
    assert run_metrics(found, facts, found_lag) == metrics


@pytest.mark.parametrize(
    "log",
    [pytest.param(together(), marks=pytest.mark.full), *one_in(5, list(ALONE.values()))],
    ids=["together", *ALONE],
)
def test_faults_are_found_in_parts(
    log: Log, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_from(log.settings, RULES)
    facts = log.facts(tmp_path)
    whole = evaluate(facts, settings)
    parts: list[Part] = request.getfixturevalue("parts")
    # Some ten parts of a large log.
    monkeypatch.setattr(facts_module, "PART_ROWS", max(1, len(facts.offsets) // 10))
    assert evaluate(anew(facts), settings).findings == whole.findings
    assert parts


def test_of_the_lags_of_a_large_run_the_largest_stay(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = replace(random_log(3, "4.3.1", 6), topics=topics_of_random_groups()).facts(tmp_path)
    every = figures_of(facts).lag
    assert every is not None
    assert every.partitions.num_rows == every.count > 3
    request.getfixturevalue("parts")
    monkeypatch.setattr(lag_module, "KEPT", 3)
    few = figures_of(anew(facts)).lag
    assert few is not None
    assert few.partitions == largest_first(every.partitions).slice(0, 3)
    assert (few.groups, few.count, few.total) == (every.groups, every.count, every.total)


def test_a_part_has_so_many_rows_beside_its_first_group() -> None:
    committed = pa.table(
        {
            "offsets_partition": pa.array([0, 0, 0, 1, 2, 3, 3, 3], pa.int32()),
            "group_id": ["b", "a", "é", "a", "a", "large", "m", "z"],
            "rows": [4, 4, 4, 3, 3, 30, 1, 1],
        }
    )
    first, middle, *rest = divided([0, 1, 2, 3, 4, 5], committed, 8)
    assert first == ([0], [GroupRange("", "b"), GroupRange("b", None)])
    assert middle == ([1, 2], [])
    assert rest == [([3], [GroupRange("", None)]), ([4, 5], [])]


def test_a_step_that_no_int64_holds_is_the_longest_that_one_does(tmp_path: Path) -> None:
    """Brokers take every committed offset."""
    most = (1 << 63) - 1
    log = one(classic(), *(committed(n, n - most, 0) for n in range(5)), committed(6, most, 0), **SCALA)
    found = [row for row in log.reconcile(tmp_path).findings.to_pylist() if row["rule"] == "R73"]
    assert [json.loads(row["evidence"])["records"] for row in found] == [most]

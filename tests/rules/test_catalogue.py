"""Every rule has a fault that fires it and no other; a healthy log fires none."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.log.types import ControlType
from coordinator_core.records.codec import encode_key
from coordinator_core.rules.catalogue import RULES
from tests.log.builders import NOW_MS, build_batch
from tests.rules.faults import DAY, DAY_MS, FAULTS, SCALA, STUCK, at, committed, with_partition, with_topics
from tests.rules.logs import (
    HEALTHY,
    OFFSETS,
    OTHER_TOPIC_ID,
    TOPIC_ID,
    TOPICS,
    Log,
    Record,
    assignment,
    classic,
    commit,
    consumer_group,
    consumer_member,
    empty_group,
    marker,
    member,
    offset_tombstone,
    one,
    pending,
    share_group,
    streams_group,
    subscription,
    topic,
)

TWO = with_topics(topic("t", partitions=2, topic_id=TOPIC_ID), OFFSETS)
NO_IDS = with_topics(topic("t", start=10), OFFSETS)

BOTH = classic("g", member(subscribes=subscription("t", "u"), owns=assignment(t=[0], u=[0])))
BEFORE = one(BOTH, commit(), commit(topic="u"))
GONE = [BOTH, commit(), commit(topic="u"), offset_tombstone("g", "u")]
GONE_OF_ID = [BOTH, commit(), commit(topic="u", topicId=TOPIC_ID), offset_tombstone("g", "u")]
BEFORE_OF_ID = one(*GONE_OF_ID[:-1])
LIVE_U = with_topics(topic("t", topic_id=OTHER_TOPIC_ID), topic("u", topic_id=TOPIC_ID), OFFSETS)
OTHER_U = with_topics(topic("t", topic_id=TOPIC_ID), topic("u", topic_id=OTHER_TOPIC_ID), OFFSETS)

HANDED_OVER = classic(
    "g",
    member("m", subscribes=subscription("t", t=[0, 1])),
    member("n", owns=assignment()),
    protocol="cooperative-sticky",
)
"""Generation of a cooperative rebalance in which ``t-1`` is taken from a member; the next one gives it to another."""


def _handed_over_for(ms: int, **more: Any) -> Log:
    late = at(ms / 60_000, commit(time_ms=NOW_MS + ms), commit(partition=1, time_ms=NOW_MS + ms))
    return one(HANDED_OVER, late, now_ms=NOW_MS + ms, **more)


SLOW = [committed(number, 50 + 10 * number, 0) for number in range(20)]
STORES = [f"store-{number}" for number in range(100, 160)]
TASK = [*streams_group("s"), commit("s")]


def _of_stores(*records: Callable[[str], Record]) -> Log:
    """Groups with fixed ids, with these records each, a day and an hour apart."""
    parts = [at(number * (DAY + 60), *map(record, STORES)) for number, record in enumerate(records)]
    return one(*parts, now_ms=NOW_MS + 3 * DAY_MS)


def _grown(**new: int) -> Any:
    """A topic with a second partition that was added."""
    found = topic("t", partitions=2)
    found["partitions"][1] |= new
    return found


TWINS = {
    "R12: the topics lack ids": one(*consumer_group(), *consumer_member(), commit(), topics=NO_IDS),
    "R13: it is handed over": one(HANDED_OVER, commit(), commit(partition=1), topics=TWO),
    "R13: it is handed over for two rebalance timeouts": _handed_over_for(600_000, topics=TWO),
    "R13: the other partition has no record": one(*HEALTHY, topics=with_topics(_grown(end_offset=0))),
    "R13: the other partition has a record since a minute": one(
        *HEALTHY, topics=with_topics(_grown(first_record_ms=NOW_MS - 60_000))
    ),
    "R13: the topics lack ids": one(*consumer_group(), *consumer_member(), commit(), topics=NO_IDS),
    "R27: share groups live on": one(
        *(share_group(name, epoch=epoch) for epoch in (2, 3, 4) for name in STORES), now_ms=NOW_MS + DAY_MS
    ),
    "R27: they have members": one(*map(classic, STORES), *map(commit, STORES)),
    "R27: they commit for long": _of_stores(commit, commit),
    "R39: it is handed over": one(HANDED_OVER, commit(), commit(partition=1)),
    "R41: each of many partitions is committed now and then": one(
        classic("g", member(owns=assignment(t=range(100)))),
        *(committed(number / 12, 50 + number, *range(100), version=4) for number in range(5)),
        settings={"thresholds": {"storm_commits": 500, "storm_commits_per_second": 20}},
    ),
    "R48: nothing is to be read": one(classic(), *STUCK, topics=with_topics(topic("t", end=60)), scanned=True),
    "R48: the commits are of another topic": one(
        classic(),
        *(committed(4 * number - 80, 50, 0, version=4, topicId=TOPIC_ID) for number in range(21)),
        topics=with_topics(topic("t", end=9000, topic_id=OTHER_TOPIC_ID)),
        scanned=True,
    ),
    "R48: it goes on at the end": one(
        classic(), *STUCK, committed(1, 51, 0, version=4), topics=with_topics(topic("t", end=9000)), scanned=True
    ),
    "R48: it stands for less": one(
        classic(),
        *(committed(number - 20, 50, 0, version=4) for number in range(21)),
        topics=with_topics(topic("t", end=9000)),
        scanned=True,
    ),
    "R52: it is newer than the transaction log": one(
        *HEALTHY, pending(commit(offset=70), time_ms=NOW_MS + 1), going={"other": 8}
    ),
    "R43: its topology reads it": one(*TASK, release="4.3.1"),
    "R60: the grace goes back before 1970": one(
        commit("s", "u", time_ms=-(1 << 63)), settings={"thresholds": {"expiry_grace_ms": (1 << 63) - 1}}
    ),
    "R61: the topics lack it": one(*GONE, previous=BEFORE, topics=TOPICS),
    "R61: the topics have another of that name": one(*GONE_OF_ID, previous=BEFORE_OF_ID, topics=OTHER_U),
    "R61: the log tells that it was deleted": one(*GONE, previous=BEFORE, topics=LIVE_U, scanned=True),
    "R61: nobody has an offset of it": one(*GONE, previous=BEFORE),
    "R69: the release keeps offsets for a day": one(
        classic(),
        *(at(number, commit(name, f"u{name}", version=1)) for number, name in enumerate("rs")),
        *(at(2 * DAY + 60 * number, offset_tombstone(name, f"u{name}")) for number, name in enumerate("rs")),
        committed(2 * DAY + 90, 51, 0),
        **SCALA | {"release": "1.1.1", "now_ms": NOW_MS + 3 * DAY_MS},
    ),
    "R70: the tombstone has no time, and the topic may have been deleted": one(
        classic(),
        committed(0, 50, 0),
        build_batch(0, [offset_tombstone()], timestamp=-1),
        committed(60, 60, 0),
        **SCALA | {"release": "2.8.1"},
    ),
    "R89: R35 says that it is another topic": one(
        classic(), commit(leader_epoch=3, topicId=OTHER_TOPIC_ID), topics=with_partition(leader_epoch=2)
    ),
    "R90: R35 says that it is another topic": one(
        classic(),
        commit(topicId=OTHER_TOPIC_ID),
        topics=with_partition(start_offset=0, first_record_ms=NOW_MS + DAY_MS),
    ),
    "R73: a consumer catches up": one(
        classic(), *SLOW, *(committed(100 + number, 1500 * number, 0) for number in range(1, 9)), **SCALA
    ),
    "R33: nothing was read yet": one(classic(), commit(offset=0, leader_epoch=-1)),
    "R64: Connect keeps its offsets elsewhere": one(classic("connect-workers", protocolType="connect")),
    "R73: a consumer catches up through a rebalance": one(
        *(classic(), *SLOW, committed(100, 2000, 0), classic(generation=4), committed(101, 4000, 0)), **SCALA
    ),
}

MORE_FAULTS = {
    "R13: nothing is handed over so long": _handed_over_for(600_001, topics=TWO),
    "R13: the other partition has a record since an hour": one(
        *HEALTHY, topics=with_topics(_grown(first_record_ms=NOW_MS - 3_600_000))
    ),
    "R27: their offsets were deleted long after they lived": one(
        *(at(0, classic(name), commit(name), empty_group(name)) for name in STORES),
        *(at(2 * DAY, offset_tombstone(name)) for name in STORES),
        now_ms=NOW_MS + 3 * DAY_MS,
    ),
    "R39: nothing is handed over so long": _handed_over_for(600_001),
    # Partition 5 is none of the topic's, so it is no owner of one of them.
    "R13": one(classic("g", member(owns=assignment(t=[1, 5]))), commit(partition=1), topics=TWO),
    "R40": one(*TASK, now_ms=NOW_MS + 4 * DAY_MS),
    "R43": one(*TASK, commit("s", "u")),
    "R47": one(classic(), commit(metadata="\U0001f600" * 2000)),
    "R60: it is Empty for so long": one(
        empty_group("s"), commit("s", "u", time_ms=NOW_MS + 7 * DAY_MS), now_ms=NOW_MS + 8 * DAY_MS
    ),
    "R60: it is Empty since a time below 0": one(
        empty_group("s", currentStateTimestamp=-5), commit("s", "u"), now_ms=NOW_MS + DAY_MS
    ),
    "R60: the release keeps offsets for a day": one(
        commit("s", "u", version=1), now_ms=NOW_MS + 2 * DAY_MS, release="1.1.1"
    ),
    "R61": one(*HEALTHY, *TASK, offset_tombstone("s"), previous=one(*HEALTHY, *TASK)),
    "R61: a commit of that age may have expired": one(*GONE, previous=BEFORE, now_ms=NOW_MS + 7 * DAY_MS),
    "R61: the log does not tell of a deletion": one(*GONE_OF_ID, previous=BEFORE_OF_ID, topics=LIVE_U),
    "R73": one(classic(), *SLOW, *(committed(100 + number, 50_000 + number, 0) for number in range(9)), **SCALA),
}
"""Faults that rules once passed over."""


@pytest.mark.parametrize("twin", TWINS)
def test_a_twin_of_a_fault_has_no_finding_of_its_rule(twin: str, tmp_path: Path) -> None:
    found = TWINS[twin].reconcile(tmp_path)
    assert twin[:3] in found.evaluated
    assert twin[:3] not in found.findings["rule"].to_pylist()


@pytest.mark.parametrize("fault", MORE_FAULTS)
def test_a_fault_fires_its_rule(fault: str, tmp_path: Path) -> None:
    assert fault[:3] in MORE_FAULTS[fault].reconcile(tmp_path).findings["rule"].to_pylist()


def test_an_assignment_that_cannot_be_read_is_no_partition_without_owner(tmp_path: Path) -> None:
    log = one(classic("g", member(owns=b"\0\1\0")), commit(), topics=TOPICS)
    assert log.reconcile(tmp_path).findings["rule"].to_pylist() == ["R21"]


@pytest.mark.parametrize(("commits", "after"), [(1, 0), (3, 2)])
def test_a_jump_tells_how_many_commits_came_after_it(commits: int, after: int, tmp_path: Path) -> None:
    """The last step that is known may be the first one of a consumer that catches up."""
    log = one(classic(), *SLOW, *(committed(100 + number, 50_000 + number, 0) for number in range(commits)), **SCALA)
    (row,) = log.reconcile(tmp_path).findings.to_pylist()
    assert (row["rule"], json.loads(row["evidence"])["commits_after"]) == ("R73", after)


@pytest.mark.parametrize(
    ("log", "codes"),
    [
        (
            one(
                build_batch(0, [classic()], timestamp=-1),
                *(build_batch(0, [commit(offset=number)], timestamp=-1) for number in range(30)),
                settings=FAULTS["R41"].settings,
            ),
            [],
        ),
        (
            one(
                classic("g", member(owns=assignment(t=[0, 1]))),
                commit(time_ms=0),
                commit(partition=1, offset=60),
                topics=with_topics(topic("t", partitions=2, end=9000)),
            ),
            ["R37"],
        ),
        (one(classic(), commit(time_ms=0)), ["R37"]),
        (one(*HEALTHY, pending(commit("g", offset=70), time_ms=-1), now_ms=NOW_MS + 1_000_000), []),
    ],
    ids=["storm", "stopped", "silent", "hanging"],
)
def test_no_rule_takes_an_unknown_time_for_a_long_one(log: Log, codes: list[str], tmp_path: Path) -> None:
    assert log.reconcile(tmp_path).findings["rule"].to_pylist() == codes


def test_a_storm_in_which_nobody_joins_names_nobody(tmp_path: Path) -> None:
    """Members that ask for a rebalance themselves, as their topics change."""
    rounds = [at(minute, classic("g", member(), generation=minute)) for minute in (0, *range(90, 119))]
    (row,) = one(*rounds, committed(119, 50, 0), **SCALA).reconcile(tmp_path).findings.to_pylist()
    assert (row["rule"], row["message"]) == ("R76", "g rebalanced 29 times in 28 min; joined most: nobody")


def test_every_rule_has_a_fault() -> None:
    assert sorted(FAULTS) == sorted(RULES)


@pytest.mark.parametrize("code", sorted(RULES))
def test_the_fault_fires_the_rule_and_no_other(code: str, tmp_path: Path) -> None:
    found = FAULTS[code].reconcile(tmp_path)
    assert code in found.evaluated
    rows = found.findings.to_pylist()
    assert {row["rule"] for row in rows} == {code}, [(row["rule"], row["message"]) for row in rows]
    nouns = "broker|byte|group|member|offset|partition|record|segment|time|tombstone|value"
    one_of_many = re.compile(rf"\b1 (closed |commit |offsets )?({nouns})s\b")
    assert not [row["message"] for row in rows if one_of_many.search(row["message"])]


@pytest.mark.parametrize("release", ["0.10.0.1", "4.3.1"])
def test_odd_logs_are_looked_at_to_the_end(release: str, tmp_path: Path) -> None:
    """Offsets without groups, groups without offsets, nothing at all: each with another of them before."""
    parts = [[], [commit(version=1)], [empty_group("e")], [offset_tombstone("x")]]
    for number, part in enumerate(parts):
        before = one(*parts[number - 1], release=release)
        log = one(*part, release=release, topics=TOPICS, previous=before, scanned=True)
        assert log.reconcile(tmp_path / str(number)).evaluated


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ((None, b"\0\0"), "record that cannot be decoded: null key"),
        ((b"\0", b"\0\0"), "record that cannot be decoded: key: byte 0: Could not read version from key's buffer."),
        ((commit("s")[0], b"\0"), "record that cannot be decoded: value of 1 byte"),
    ],
)
def test_a_record_whose_type_cannot_be_read_has_none_in_the_message(
    record: Record, message: str, tmp_path: Path
) -> None:
    (row,) = one(*HEALTHY, record).reconcile(tmp_path).findings.to_pylist()
    assert (row["rule"], row["message"]) == ("R05", message)


def test_an_empty_name_is_seen_in_a_message(tmp_path: Path) -> None:
    """Coordinators take commits of the group ''."""
    (row,) = one(classic(""), commit(""), commit("", "")).reconcile(tmp_path).findings.to_pylist()
    assert (row["rule"], row["message"]) == ("R43", "'' has offsets of '' and does not subscribe to it")


def test_partitions_below_0_are_told_apart(tmp_path: Path) -> None:
    """No broker takes a commit for one, but a log may have it."""
    offsets = [commit("g", "a", 3), commit("g", "b", -2)]
    found = one(*HEALTHY, *offsets, topics=TOPICS, previous=one(*HEALTHY, *offsets)).reconcile(tmp_path).findings
    assert [row["partition"] for row in found.to_pylist() if row["rule"] == "R36"] == [3, -2]


def test_what_may_have_been_deleted_proves_no_retention(tmp_path: Path) -> None:
    """Groups like those of the fault of R69, all removed at one moment."""
    names = ("q", "r", "s")
    log = one(
        *HEALTHY,
        *(at(0, empty_group(name), commit(name, f"u{name}", version=3)) for name in names),
        *(at(2 * DAY, offset_tombstone(name, f"u{name}"), (encode_key(2, {"group": name}), None)) for name in names),
        **SCALA | {"now_ms": FAULTS["R69"].now_ms},
    )
    found = log.reconcile(tmp_path)
    assert "R69" in found.evaluated
    assert "R69" not in found.findings["rule"].to_pylist()


@pytest.mark.parametrize(("since_capture_ms", "codes"), [(0, ["R31"]), (1, [])])
def test_a_log_end_that_was_noted_before_a_commit_says_nothing_of_it(
    since_capture_ms: int, codes: list[str], tmp_path: Path
) -> None:
    log = one(classic(), commit(offset=101, time_ms=NOW_MS + since_capture_ms), topics=TOPICS)
    assert log.reconcile(tmp_path).findings["rule"].to_pylist() == codes


def test_a_healthy_log_has_no_finding(tmp_path: Path) -> None:
    log = one(*HEALTHY, topics=TOPICS, previous=one(*HEALTHY), scanned=True, going={})
    found = log.reconcile(tmp_path)
    assert found.findings.num_rows == 0
    assert not found.not_evaluated
    assert len(found.evaluated) + len(found.not_applicable) == len(RULES)


def test_markers_without_commits_are_one_finding_a_producer(tmp_path: Path) -> None:
    """The cleaner leaves many behind the commits that it removes."""
    markers = [marker(ControlType.COMMIT, producer_id=number) for number in (7, 8, 7, 7)]
    found = one(*HEALTHY, *markers, scanned=True).reconcile(tmp_path).findings
    rows = [row for row in found.to_pylist() if row["rule"] == "R51"]
    first = len(HEALTHY)
    assert [(row["record_offset"], row["rows"]) for row in rows] == [(first, 3), (first + 1, 1)]
    assert rows[0]["message"] == "COMMIT marker of producer 7 without commits (and 2 more like it)"

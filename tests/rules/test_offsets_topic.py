"""Logs and clusters that look like faults of the offsets topic, and are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coordinator_core.releases import profile_for_release
from coordinator_core.rules.inputs import Inputs
from tests.rules.faults import DAY_MS, UNCLEANED, of_partition, with_offsets_topic, with_partition
from tests.rules.logs import HEALTHY, NOW_MS, TOPICS, Log, classic, commit, log_of, one, pending

OF_SECOND = of_partition(1, 3)
OF_THIRD = of_partition(2, 3)
_COMMITS = [commit(offset=number) for number in range(30)]

TWINS = {
    "R81: only the copy begins later": Log({0: {7: log_of(*HEALTHY, base_offset=7)}}, topics=TOPICS),
    # Of the cluster's partitions the copy has one, and not the first.
    "R81: only a copy of another partition begins later": Log(
        {1: {7: log_of(classic(OF_SECOND), commit(OF_SECOND), base_offset=7)}}, num_partitions=3, topics=TOPICS
    ),
    # The cleaner left nothing before, and a capture names a segment by its first batch.
    "R81: the checkpoint says that it begins at 0": Log({0: {7: log_of(*HEALTHY, base_offset=7)}}, log_start_offset=0),
    "R82: a cluster of one broker": one(
        *HEALTHY, topics=with_offsets_topic("a", leader=0, replicas=[0], isr=[0], config={"min.insync.replicas": "1"})
    ),
    "R84: all replicas there are": one(*HEALTHY, topics=with_offsets_topic(replicas=[0, 1], isr=[0, 1])),
    "R85: no other rack": one(*HEALTHY, topics=with_offsets_topic("aaa")),
    "R87: not for long": Log(UNCLEANED, now_ms=NOW_MS + 3_600_000),
    "R87: cleaned, and little came since": Log(
        {
            0: {
                0: log_of(classic()) + log_of(*_COMMITS[:20], base_offset=9),
                29: log_of(*_COMMITS[20:24], base_offset=29),
                33: log_of(commit(), base_offset=33),
            }
        },
        now_ms=NOW_MS + DAY_MS,
    ),
    "R87: a lag is configured": Log(
        UNCLEANED,
        now_ms=NOW_MS + DAY_MS,
        topics=with_offsets_topic(config={"min.compaction.lag.ms": str(2 * DAY_MS)}),
    ),
    "R87: the checkpoint says that it was cleaned": Log(UNCLEANED, now_ms=NOW_MS + DAY_MS, cleaned_offset=31),
    "R88: two empty segments": Log({0: {0: log_of(*HEALTHY), 2: b"", 3: b"", 4: log_of(commit(), base_offset=4)}}),
    "R89: committed at the log start": one(
        classic(), commit(offset=10, leader_epoch=0), topics=with_partition(oldest_leader_epoch=1, leader_epoch=1)
    ),
    "R90: nothing was read": one(
        classic(), commit(offset=0), topics=with_partition(start_offset=0, first_record_ms=NOW_MS + DAY_MS)
    ),
    "R91: a storm": one(classic(generation=90), commit()),
    "R92: a partition more, and one that was empty": Log(
        {0: log_of(), 2: log_of(classic(OF_THIRD), commit(OF_THIRD))},
        num_partitions=3,
        previous=Log({0: log_of(), 1: log_of()}, num_partitions=3),
    ),
}


@pytest.mark.parametrize("twin", TWINS)
def test_a_twin_of_a_fault_has_no_finding(twin: str, tmp_path: Path) -> None:
    found = TWINS[twin].reconcile(tmp_path)
    assert twin[:3] in found.evaluated
    assert found.findings.to_pylist() == []


def test_a_transaction_that_holds_the_cleaner_is_the_finding(tmp_path: Path) -> None:
    """R87 would send people to the cleaner; what to end is the transaction."""
    closed = log_of(pending(commit("g", offset=70)), classic(), *_COMMITS)
    log = Log({0: {0: closed, 32: log_of(commit(), base_offset=32)}}, now_ms=NOW_MS + DAY_MS)
    assert {row["rule"] for row in log.reconcile(tmp_path).findings.to_pylist()} == {"R50"}


@pytest.mark.parametrize(("checkpoint", "why"), [(None, "no record was ever removed"), (4, "cleaner checkpoint at 4")])
def test_a_dead_cleaner_is_known_by_its_checkpoint_or_by_what_is_there(
    checkpoint: int | None, why: str, tmp_path: Path
) -> None:
    log = Log(UNCLEANED, now_ms=NOW_MS + DAY_MS, cleaned_offset=checkpoint)
    (row,) = log.reconcile(tmp_path).findings.to_pylist()
    evidence = json.loads(row["evidence"])
    assert (row["rule"], evidence["known_by"], evidence["since_ms"], evidence["hours"]) == ("R87", why, NOW_MS, 24)


def test_what_a_file_does_not_tell_is_not_evaluated(tmp_path: Path) -> None:
    topics = {"topics": [{"name": "t", "partitions": [{"partition": 0, "start_offset": 10, "end_offset": 100}]}]}
    found = one(*HEALTHY, topics=topics).reconcile(tmp_path)
    assert found.not_evaluated.keys() >= {"R80", "R82", "R83", "R84", "R85", "R86", "R89", "R90"}
    assert found.not_evaluated["R83"] == "needs replicas (--topics), configuration (--topics)"


def test_settings_of_the_brokers_are_the_thresholds_that_nobody_set(tmp_path: Path) -> None:
    """Two brokers agree on the retention and not on the longest transaction; somebody has set the size of metadata."""
    config = {"offsets.retention.minutes": "60", "offset.metadata.max.bytes": "100"}
    brokers = [
        {"broker_id": number, "rack": None, "config": config | {"transaction.max.timeout.ms": str(number)}}
        for number in (1, 2)
    ]
    topics, rules = tmp_path / "topics.json", tmp_path / "rules.yaml"
    topics.write_text(json.dumps(TOPICS | {"brokers": brokers}))
    rules.write_text("thresholds: {offset_metadata_max_bytes: 7}")
    run = one(*HEALTHY).publish(tmp_path)
    found = Inputs.read(run.path, topics=str(topics), settings_file=rules).settings
    assert found.thresholds == {"offset_metadata_max_bytes": 7, "offsets_retention_ms": 3_600_000}
    assert found.limits(profile_for_release("4.3.1"))["transaction_max_timeout_ms"] == 900_000


@pytest.mark.parametrize(("oldest", "current", "told"), [(None, 2, ("-", "2")), (5, None, ("5", "-"))])
def test_an_epoch_that_the_topics_do_not_tell_is_none(
    oldest: int | None, current: int | None, told: tuple[str, str], tmp_path: Path
) -> None:
    topics = with_partition(oldest_leader_epoch=oldest, leader_epoch=current)
    (row,) = one(classic(), commit(leader_epoch=3), topics=topics).reconcile(tmp_path).findings.to_pylist()
    assert row["rule"] == "R89"
    assert row["message"].endswith("; the oldest of the partition is {}, the current one {}".format(*told))
    evidence = json.loads(row["evidence"])
    assert (evidence["oldest_leader_epoch"], evidence["current_leader_epoch"]) == (oldest, current)


def test_groups_belong_where_the_cluster_says_not_where_the_default_does(tmp_path: Path) -> None:
    """The offsets topic got a second partition: no number fits all places, and a run then has the default."""
    name = of_partition(1, 3)
    log = Log({0: log_of(commit(name)), 1: log_of(commit(name))}, num_partitions=50, topics=TOPICS)
    found = log.reconcile(tmp_path).findings.to_pylist()
    assert [(row["rule"], row["offsets_partition"]) for row in found if row["rule"] in ("R04", "R22")] == [("R22", 0)]


def test_a_partition_that_is_not_there_any_more(tmp_path: Path) -> None:
    second, third = (log_of(classic(name), commit(name)) for name in (OF_SECOND, OF_THIRD))
    before = Log({1: second, 2: third}, num_partitions=3)
    found = Log({1: second}, num_partitions=3, previous=before).reconcile(tmp_path).findings.to_pylist()
    lost = [row for row in found if row["rule"] == "R92"]
    assert [row["message"] for row in lost] == [
        "offsets partition 2, with 1 group, is not in this log; the run before had it up to 2"
    ]
    assert json.loads(lost[0]["evidence"])["for_example"] == OF_THIRD

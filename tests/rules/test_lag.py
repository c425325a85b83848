"""Lag at the edges of what offsets can be, and figures that belong to their findings."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from coordinator_core.errors import DamagedInputError, UsageError
from coordinator_core.reports.run_metrics import run_metrics
from coordinator_core.reports.run_report import run_report
from coordinator_core.rules.evaluate import evaluate
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.figures import figures_of, figures_together
from coordinator_core.rules.figures_publish import FIGURES_FILE, figure_files, publish_figures, read_figures
from coordinator_core.rules.inputs import Inputs
from coordinator_core.rules.lag import Lag
from coordinator_core.rules.parts import RunPart
from coordinator_core.rules.publish import publish_findings, read_reconciliation, require_same_runs
from coordinator_core.rules.settings import Mute
from tests.log.builders import NOW_MS
from tests.rules.faults import SCALA, at, committed, with_topics
from tests.rules.logs import (
    HEALTHY,
    OTHER_TOPIC_ID,
    TOPIC_ID,
    TOPICS,
    Log,
    classic,
    commit,
    log_of,
    member,
    offset_tombstone,
    one,
    topic,
)

LAST = 2**63 - 1


def lag_of(log: Log, directory: Path) -> Lag:
    lag = figures_of(log.facts(directory)).lag
    assert lag is not None
    return lag


def statuses(lag: Lag) -> dict[str, str]:
    return {row["group_id"]: row["status"] for row in lag.partitions.to_pylist()}


@pytest.mark.parametrize("ends", [(LAST, LAST, 5), (LAST, 0, 0), (1 << 62, (1 << 62) - 1, 0), (1 << 32, 7, 1)])
def test_a_sum_of_lags_is_exact_up_to_the_largest_number(ends: tuple[int, ...], tmp_path: Path) -> None:
    topics = TOPICS | {"topics": [topic(f"t{number}", end=end) for number, end in enumerate(ends)]}
    commits = [commit("g", f"t{number}", offset=0) for number in range(3)]
    wanted = min(sum(ends), LAST)
    lag = lag_of(one(classic(), *commits, topics=topics), tmp_path / "one")
    assert (lag.total, lag.groups["lag"].to_pylist()) == (wanted, [wanted])

    parts = {number: log_of(commit(f"g{number}", f"t{number}", offset=0)) for number in range(3)}
    several = Log(parts, topics=topics, num_partitions=3)
    facts = several.facts(tmp_path / "several")
    parts = [figures_of(Facts(RunPart.of(facts.run, {number}), facts.topics, None)) for number in range(3)]
    together = figures_together(parts).lag
    assert together is not None
    whole = figures_of(facts).lag
    assert whole is not None
    assert together.total == whole.total == wanted
    assert sorted(together.topics["lag"].to_pylist()) == sorted(whole.topics["lag"].to_pylist()) == sorted(ends)


def test_records_that_went_unread_are_lost_also_where_none_is_left(tmp_path: Path) -> None:
    topics = TOPICS | {"topics": [topic("t", start=100, end=100)]}
    lag = lag_of(one(commit("behind", offset=10), commit("there", offset=100), topics=topics), tmp_path)
    assert statuses(lag) == {"behind": "lost", "there": "ok"}
    assert lag.total == 0


def test_the_farthest_step_ahead_is_none_back(tmp_path: Path) -> None:
    before = one(classic(), commit(offset=-1))
    after = one(classic(), commit(offset=-1), commit(offset=LAST), topics=TOPICS, previous=before)
    assert statuses(lag_of(after, tmp_path)) == {"g": "ok"}


def test_a_group_in_two_offsets_partitions_has_two_lags(tmp_path: Path) -> None:
    """One of them is stale: their sum is nobody's lag."""
    log = Log({number: log_of(commit(offset=50 + number)) for number in range(2)}, num_partitions=2, topics=TOPICS)
    facts = log.facts(tmp_path)
    lag = figures_of(facts).lag
    assert lag is not None
    assert sorted(lag.topics["lag"].to_pylist()) == sorted(lag.groups["lag"].to_pylist()) == [49, 50]
    report, _ = run_report(facts, evaluate(facts))
    sums = [line for line in run_metrics(report, facts, lag).splitlines() if "lag_sum{" in line or "_sum_lag{" in line]
    assert {line.rpartition(" ")[2] for line in sums} == {"50.0"}


def test_a_partition_with_two_owners_has_no_commit_once(tmp_path: Path) -> None:
    lag = lag_of(one(classic("g", member("m"), member("n")), topics=TOPICS), tmp_path)
    assert lag.count == 1
    assert statuses(lag) == {"g": "no_commit"}


def of_topic(offset: int, topic_id: str) -> Any:
    return commit(offset=offset, version=4, topicId=topic_id)


def test_a_commit_of_another_topic_of_the_name_says_nothing(tmp_path: Path) -> None:
    """As of rules: R30 and R34 leave out what R35 tells."""
    topics = with_topics(topic("t", start=10, end=1_000, topic_id=OTHER_TOPIC_ID))
    before = one(classic(), of_topic(90, TOPIC_ID), commit("old", offset=5, version=4, topicId=TOPIC_ID))
    now = [classic(), of_topic(90, TOPIC_ID), of_topic(20, OTHER_TOPIC_ID)]
    old = commit("old", offset=5, version=4, topicId=TOPIC_ID)
    assert statuses(lag_of(one(*now, old, topics=topics, previous=before), tmp_path)) == {"g": "ok", "old": "stalled"}


@pytest.mark.parametrize("deleted", [True, False])
@pytest.mark.parametrize(("offset", "rule", "status"), [(20, "R30", "rewound"), (90, "R34", "ok")])
def test_a_topic_that_was_deleted_in_between_begins_again(
    offset: int, rule: str, status: str, deleted: bool, tmp_path: Path
) -> None:
    """Commits before 4.1 have no topic ids: that the offset went with its topic stands in the log."""
    before = [at(0, classic()), committed(0, 50, 0, leader_epoch=4)]
    after = [*([at(10, offset_tombstone())] if deleted else []), committed(20, offset, 0, leader_epoch=0)]
    topics = with_topics(topic("t", end=1_000))
    log = one(*before, *after, topics=topics, previous=one(*before, release="3.9.2"), **SCALA)
    assert (rule in log.reconcile(tmp_path / "rules").findings["rule"].to_pylist()) is not deleted
    assert statuses(lag_of(log, tmp_path)) == {"g": "ok" if deleted else status}


def test_who_has_stopped_a_later_copy_alone_can_tell(tmp_path: Path) -> None:
    quiet, other = log_of(classic(), commit()), log_of(classic("h"), commit("h"))
    before = Log({0: quiet, 1: other}, topics=TOPICS, num_partitions=2)
    # Replayed again, say, or of a broker that did not write since.
    assert statuses(lag_of(replace(before, previous=before), tmp_path / "same")) == {"g": "ok", "h": "ok"}
    # Nothing else was written to the partition of a group that has stopped.
    newer = log_of(classic("h"), commit("h"), commit("h", offset=51))
    grown = Log({0: quiet, 1: newer}, topics=TOPICS, num_partitions=2)
    facts = replace(grown, previous=before).facts(tmp_path / "later")
    lag = figures_of(facts).lag
    assert lag is not None
    assert statuses(lag) == {"g": "stopped", "h": "ok"}
    assert facts.previous is not None
    part = Facts(RunPart.of(facts.run, {0}), facts.topics, Facts(RunPart.of(facts.previous.run, {0})))
    of_part = figures_of(part).lag
    assert of_part is not None
    assert statuses(of_part) == {"g": "stopped"}


@pytest.mark.parametrize(("hours", "status"), [(0, "ok"), (24, "stopped")])
def test_where_nobody_commits_the_topics_alone_tell_that_a_copy_is_later(
    hours: int, status: str, tmp_path: Path
) -> None:
    """The log stays as it was. A scheduled run has a now before the capture, so that says nothing."""
    captured_ms = NOW_MS + 3_600_000
    log = one(classic(), commit(), topics=TOPICS | {"captured_at_ms": captured_ms})
    facts = log.facts(tmp_path / "before")
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps(TOPICS | {"captured_at_ms": captured_ms + hours * 3_600_000}))
    run = replace(log, now_ms=captured_ms + 48 * 3_600_000).publish(tmp_path / "now")

    def found() -> dict[str, str]:
        lag = figures_of(Inputs.read(run.path, topics=str(topics), against=facts.run.path).facts()).lag
        assert lag is not None
        return statuses(lag)

    # What is known of the capture of the run before is what it was reconciled with.
    assert found() == {"g": "ok"}
    publish_findings(facts, evaluate(facts))
    assert found() == {"g": status}


@pytest.mark.parametrize(
    ("now_ms", "is_over"), [(253_402_300_800_000, True), (86_400_000 - 1, False), (86_400_000, True)]
)
def test_a_mute_is_over_behind_its_last_day(now_ms: int, is_over: bool) -> None:
    assert Mute("R44", "why", datetime.date(1970, 1, 1)).is_over(now_ms) is is_over


def test_findings_of_other_runs_are_refused(tmp_path: Path) -> None:
    """Rules may have been evaluated again, against another run, since."""
    log = one(*HEALTHY, topics=TOPICS, previous=one(*HEALTHY))
    facts = log.facts(tmp_path / "then")
    directory = publish_findings(facts, evaluate(facts))
    summary, _ = read_reconciliation(directory)
    require_same_runs(facts, summary)
    elsewhere = replace(log, previous=one(*HEALTHY, commit("h"))).facts(tmp_path / "later")
    assert elsewhere.previous is not None
    for other, name in (
        (Facts(facts.run, facts.topics, elsewhere.previous), "previous"),
        (Facts(facts.run, facts.topics, None), "previous"),
        (Facts(elsewhere.previous.run, facts.topics, facts.previous), "run"),
    ):
        with pytest.raises(UsageError, match=f"the findings are of other runs: {name} was "):
            require_same_runs(other, summary)


def test_other_findings_have_another_place(tmp_path: Path) -> None:
    """Of a log that has grown the path says nothing."""
    facts = one(*HEALTHY, commit("s", "u", offset=-1)).facts(tmp_path)
    found = evaluate(facts)
    first = publish_findings(facts, found)
    assert publish_findings(facts, evaluate(facts)) == first
    assert publish_findings(facts, replace(found, findings=found.findings.slice(0, 0))) != first


def test_files_of_figures_are_named_and_must_be_whole(tmp_path: Path) -> None:
    facts = one(*HEALTHY, topics=TOPICS).facts(tmp_path)
    directory = publish_findings(facts, evaluate(facts))
    assert figure_files(directory) == []
    publish_figures(figures_of(facts), directory)
    assert figure_files(directory) == [
        FIGURES_FILE,
        *(f"lag-{name}.parquet" for name in ("partitions", "groups", "topics")),
    ]
    path = Path(directory, FIGURES_FILE)
    path.write_text(json.dumps({**json.loads(path.read_text()), "ages": [0]}))
    with pytest.raises(UsageError, match="ages of 1 days"):
        read_figures(directory)


def test_a_part_names_the_file_that_lacks_a_column(tmp_path: Path) -> None:
    run = one(*HEALTHY).publish(tmp_path)
    path = Path(run.path) / "offsets/part-00000.parquet"
    pq.write_table(pq.read_table(path, partitioning=None).drop_columns(["offsets_partition"]), path)
    for table in run.manifest["tables"].values():
        table.pop("proofs", None)
    with pytest.raises(DamagedInputError, match=r"part-00000\.parquet.*the table has no column offsets_partition"):
        RunPart.of(run, {0}).table("offsets")

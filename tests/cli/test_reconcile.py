"""``regroup reconcile`` and ``regroup rules``: formats, exit codes, mutes, publication."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from coordinator_core.cli.app import run
from coordinator_core.rules.catalogue import RULES
from coordinator_core.rules.findings import FINDINGS
from coordinator_core.rules.model import THRESHOLDS
from coordinator_core.runs.read import open_run
from tests.cases import case
from tests.log.builders import NOW_MS, write_partition
from tests.rules.logs import HEALTHY, TOPICS, classic, commit, log_of, one


@pytest.fixture
def negative(tmp_path: Path) -> str:
    """A run with one warning (R44)."""
    return one(classic(), commit(offset=-1)).publish(tmp_path / "negative").path


def said(arguments: list[str], capfd: pytest.CaptureFixture[str], *, code: int) -> str:
    assert run(arguments) == code
    return capfd.readouterr().out


def test_text_names_the_finding_its_record_and_what_was_not_looked_at(
    negative: str, capfd: pytest.CaptureFixture[str]
) -> None:
    text = said(["reconcile", negative], capfd, code=1)
    assert text.startswith("warning: 0 critical, 1 warning, 0 info; ")
    (line,) = [line for line in text.splitlines() if "R44" in line]
    assert line.split() == [
        *("warning", "R44", "0", "1", "g"),
        *["committed", "offset", "-1", "of", "t-0", "is", "negative"],
    ]
    assert "not evaluated: R31 needs topics (--topics)" in text


def test_the_text_says_what_it_is_about(negative: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_partition(tmp_path / "log", {0: log_of(classic(), commit(offset=-1))})
    one_rule = ["--rule", "R44", "--now-ms", str(NOW_MS)]
    for path, about in ((negative, "run r of c, window w, J"), (str(tmp_path / "log"), "a snapshot, J")):
        verdict, subject = said(["reconcile", path, *one_rule], capfd, code=1).splitlines()[:2]
        assert verdict == "warning: 0 critical, 1 warning, 0 info; 1 rule evaluated, 0 not evaluated, 0 not applicable"
        assert subject.startswith(about)


def test_json_has_every_rule_in_one_place(negative: str, capfd: pytest.CaptureFixture[str]) -> None:
    document = json.loads(said(["reconcile", negative, "--format", "json"], capfd, code=1))
    assert document["verdict"] == "warning"
    assert document["counts"] == {"critical": 0, "warning": 1, "info": 0}
    (finding,) = document["findings"]
    assert (finding["rule"], finding["offsets_partition"], finding["record_offset"]) == ("R44", 0, 1)
    assert finding["evidence"] == {"committed_offset": -1}
    places = [*document["evaluated"], *document["not_evaluated"], *document["not_applicable"]]
    assert sorted(places) == sorted(RULES)


@pytest.mark.parametrize("command", ["reconcile", "report"])
def test_a_run_keeps_its_time_and_says_so_to_who_asks_for_another(
    command: str, negative: str, capfd: pytest.CaptureFixture[str]
) -> None:
    now_ms = open_run(negative).now_ms
    told = f"regroup: a run is judged by its own time, {now_ms} here: --now-ms changes nothing\n"
    printed = []
    for asked, expected in (([], ""), (["--now-ms", str(now_ms)], ""), (["--now-ms", str(now_ms + 1)], told)):
        assert run([command, negative, *asked, "--fail-on", "never", "--format", "json"]) == 0
        out, err = capfd.readouterr()
        printed.append(out)
        assert err == expected
    assert len(set(printed)) == 1


def test_jsonl_and_csv_have_the_same_findings(negative: str, capfd: pytest.CaptureFixture[str]) -> None:
    (finding,) = map(json.loads, said(["reconcile", negative, "--format", "jsonl"], capfd, code=1).splitlines())
    (row,) = csv.DictReader(io.StringIO(said(["reconcile", negative, "--format", "csv"], capfd, code=1)))
    assert row | {"evidence": json.loads(row["evidence"])} == {
        name: value if name == "evidence" else "" if value is None else str(value) for name, value in finding.items()
    }


@pytest.mark.parametrize(("fail_on", "code"), [("critical", 0), ("warning", 1), ("info", 1), ("never", 0)])
def test_fail_on(fail_on: str, code: int, negative: str, capfd: pytest.CaptureFixture[str]) -> None:
    said(["reconcile", negative, "--fail-on", fail_on], capfd, code=code)


def test_topics_and_a_previous_run_are_looked_at(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps(TOPICS))
    before = one(*HEALTHY).publish(tmp_path / "before").path
    now = one(classic(), commit(offset=5)).publish(tmp_path / "now").path
    arguments = ["reconcile", now, "--topics", str(topics), "--against", before, "--format", "json"]
    document = json.loads(said(arguments, capfd, code=1))
    assert [row["rule"] for row in document["findings"]] == ["R30", "R32"]
    needed = {need for text in document["not_evaluated"].values() for need in re.findall(r"\((--.+?)\)", text)}
    assert needed == {"--transaction-log"}
    assert document["topics"]["captured_at_ms"] == NOW_MS
    assert document["previous"]["path"] == before


def settings(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    return ["--rules", str(path)]


def test_a_mute_hides_nothing_and_does_not_count(
    negative: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mute = "mutes: [{rule: R44, group: 'g', reason: known, until: 2024-01-01}]"
    text = said(["reconcile", negative, *settings(tmp_path, mute)], capfd, code=0)
    assert text.startswith("clean: 0 critical, 0 warning, 0 info, 1 muted; ")
    assert "[muted: known (until 2024-01-01)]" in text


@pytest.mark.parametrize(
    "mute",
    ["{rule: R44, reason: old, until: 2023-01-01}", "{rule: R44, group: G, reason: r, until: 2024-01-01}"],
)
def test_a_mute_that_is_over_or_of_others_counts_for_nothing(
    mute: str, negative: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = said(["reconcile", negative, *settings(tmp_path, f"mutes: [{mute}]")], capfd, code=1)
    assert ("mute of R44 is over since 2023-01-01: old" in text) == ("old" in mute)


def test_severities_and_thresholds_can_be_changed(
    negative: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    changed = settings(tmp_path, "severities: {R44: critical}\nthresholds: {offsets_retention_ms: 5}")
    document = json.loads(said(["reconcile", negative, *changed, "--format", "json"], capfd, code=1))
    assert {row["rule"]: row["severity"] for row in document["findings"]} == {
        "R44": "critical",
        "R40": "warning",
    }
    assert document["settings"]["thresholds"] == {"offsets_retention_ms": 5}


def test_a_threshold_may_be_as_large_as_an_int64(negative: str, tmp_path: Path) -> None:
    largest = "\n".join(f"  {name}: {2**63 - 1}" for name in THRESHOLDS)
    assert run(["reconcile", negative, *settings(tmp_path, f"thresholds:\n{largest}")]) == 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("mutes: [{rule: R44, until: 2024-01-01}]", "mutes[0] has no reason"),
        ("mutes: [{rule: R44, reason: r, until: soon}]", "mutes[0].until: 'soon' is no day"),
        ("mutes: [{rule: R44, reason: r, until: 2024-01-01, group: '('}]", "no regular expression"),
        ("mutes: [{rule: R44, reason: r, until: 2024-01-01, group: 'a{9999999999}'}]", "no regular expression"),
        ("mutes: [{rule: R44, reason: r, until: 2024-02-30}]", "cannot be read"),
        ("mutes: [{rule: R99, reason: r, until: 2024-01-01}]", "there is no rule 'R99'"),
        ("mutes: [{rule: [R44, R40], reason: r, until: 2024-01-01}]", "there is no rule ['R44', 'R40']"),
        ("mutes: {}", "mutes is not a list"),
        ("severities: {R44: fatal}", "'fatal' is none of critical, warning, info"),
        ("severities: {R44: [info]}", "['info'] is none of critical, warning, info"),
        ("severities: {X: info}", "there is no rule 'X'"),
        ("thresholds: {retention: 1}", "thresholds.retention is unknown"),
        ("thresholds: {silent_share: true}", "is no number"),
        ("severity: {}", "'severity' is unknown"),
        ("[1]", "not a mapping"),
        ("a: [", "cannot be read"),
    ],
)
def test_wrong_settings_are_refused(
    text: str, complaint: str, negative: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["reconcile", negative, *settings(tmp_path, text)]) == 2
    assert complaint in capfd.readouterr().err


@pytest.mark.parametrize(
    "text", ["[", "[]", '{"topics": 1}', '{"topics": [{"name": "t", "partitions": [{"partition": 1}]}]}']
)
def test_wrong_topics_are_refused(text: str, negative: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "topics.json"
    path.write_text(text)
    assert run(["reconcile", negative, "--topics", str(path)]) == 2
    assert "topics.json: not" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["reconcile", "report"])
def test_a_log_is_walked_over_or_not(command: str, negative: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([command, negative, "--log", negative, "--no-log"]) == 2
    assert "--log and --no-log exclude each other" in capfd.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        {"topic_id": 5},
        {"topic_id": ["x"]},
        {"config": {"min.insync.replicas": "two"}},
        {"config": {"min.insync.replicas": str(1 << 70)}},
        {"config": {"min.compaction.lag.ms": None}},
        {"config": {"min.cleanable.dirty.ratio": "half"}},
        {"rack": ["a"]},
        {"rack": "\ud800"},
        {"topic_id": "\ud800"},
        {"config": {"cleanup.policy": "\ud800"}},
    ],
)
def test_topics_with_values_of_another_type_are_refused(
    change: dict[str, Any], negative: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    document = json.loads((Path(__file__).parents[2] / "demo/shop/topics.json").read_text())
    changed = document["brokers"][0] if "rack" in change else document["topics"][0]
    changed |= change
    path = tmp_path / "topics.json"
    path.write_text(json.dumps(document))
    assert run(["reconcile", negative, "--topics", str(path)]) == 2
    assert "topics.json: not a snapshot of topics" in capfd.readouterr().err


def test_findings_are_published_once_and_the_run_is_not_touched(
    negative: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def tree() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in Path(negative).rglob("*") if path.is_file()}

    before = tree()
    assert run(["reconcile", negative, "--publish"]) == 1
    directory = Path(re.findall(r"findings are in (.+)", capfd.readouterr().err)[0])
    written = {path.name: path.stat().st_mtime_ns for path in directory.iterdir()}
    assert sorted(written) == ["findings.parquet", "reconciliation.json"]
    table = pq.read_table(directory / "findings.parquet")
    assert table.schema.equals(FINDINGS.arrow)
    assert table["rule"].to_pylist() == ["R44"]
    summary: dict[str, Any] = json.loads((directory / "reconciliation.json").read_text())
    assert summary["run"]["path"] == negative
    assert run(["reconcile", negative, "--publish"]) == 1
    assert {path.name: path.stat().st_mtime_ns for path in directory.iterdir()} == written
    assert len(list(directory.parent.iterdir())) == 1
    assert run(["reconcile", negative, "--publish", "--rule", "R31"]) == 0
    assert len(list(directory.parent.iterdir())) == 2
    assert tree() == before


def test_group_ids_cannot_write_to_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = one(commit("\x1b[2Jg\n", offset=-1))
    text = said(["reconcile", log.publish(tmp_path).path, "--rule", "R44"], capfd, code=1)
    assert "\x1b" not in text
    assert "\\x1b[2Jg\\n" in text


def test_rules_lists_the_catalogue_and_explains(capfd: pytest.CaptureFixture[str]) -> None:
    lines = said(["rules"], capfd, code=0).splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(RULES)
    assert said(["rules", "D10"], capfd, code=0) == said(["rules", "committed-offset-moved-back"], capfd, code=0)
    (rule,) = json.loads(said(["rules", "r31", "--format", "json"], capfd, code=0))
    assert (rule["code"], rule["needs"]) == ("R31", ["topics"])
    explained = said(["rules", *RULES], capfd, code=0).splitlines()
    assert [line for line in explained if line != line.rstrip()] == []
    assert run(["rules", "R99"]) == 2


def test_a_broker_s_logs_agree_about_its_open_transactions(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The rules about raw records, and the transaction log, on what a real broker left when it was killed."""
    (log,) = case("k431-txn").paths
    arguments = [*case("k431-txn").command_line(), "--now-ms", "1795251060000", "--cluster", "c"]
    published = json.loads(said(["replay", *arguments, "--output", str(tmp_path), "--format", "json"], capfd, code=0))
    inputs = ["--log", str(log), "--transaction-log", str(log)]
    found = json.loads(said(["reconcile", published["run"], *inputs, "--format", "json"], capfd, code=1))
    assert {"R09", "R25", "R45", "R51", "R52", "R62", "R67"} <= {*found["evaluated"]}
    assert found["transaction_log"]["going"]
    assert published["rows"]["pending_offsets"] > 0
    # A plain commit set x-plain-before back from 50 to 40, as the recording says.
    worse = {(row["rule"], row["group_id"]) for row in found["findings"] if row["severity"] != "info"}
    assert worse == {("R72", "x-plain-before")}


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ("--log", "offsets partition 0, which the run has read"),
        ("--transaction-log", "__transaction_state-<n>"),
    ],
)
def test_logs_of_something_else_are_refused(
    option: str, complaint: str, negative: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "else" / "__consumer_offsets-7").mkdir(parents=True)
    (tmp_path / "else" / "__consumer_offsets-7" / f"{0:020d}.log").write_bytes(log_of(commit()))
    assert run(["reconcile", negative, option, str(tmp_path / "else")]) == 2
    assert complaint in capfd.readouterr().err


@pytest.mark.parametrize("command", ["reconcile", "report"])
def test_a_capture_is_judged_by_its_time(command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Who looks at it years later sees no silent groups; another copy of a log is judged by the clock."""
    write_partition(tmp_path, {0: log_of(*HEALTHY)})
    (tmp_path / "topics.json").write_text(json.dumps(TOPICS | {"captured_at_ms": NOW_MS + 1000}))
    form = [command, str(tmp_path), "--format", "json", "--offsets-topic-num-partitions", "1", "--fail-on", "never"]

    def is_silent(*more: str) -> bool:
        return '"rule": "R40"' in said([*form, *more], capfd, code=0)

    assert is_silent()
    (tmp_path / "capture.json").write_text("{}")
    assert not is_silent()
    assert is_silent("--now-ms", str(NOW_MS + 400 * 86_400_000))

"""The report of a run: what it says, that it stands alone, and that everybody can read it."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from coordinator_core.cli.app import run
from coordinator_core.errors import Damage
from coordinator_core.reports.charts import WIDTH, bar_chart
from coordinator_core.reports.commit_rate import MAX_BUCKETS
from coordinator_core.reports.pages import time_text
from coordinator_core.reports.run_metrics import run_metrics
from coordinator_core.reports.run_page import run_page
from coordinator_core.reports.run_report import run_report
from coordinator_core.reports.run_summary import run_summary
from coordinator_core.rules.catalogue import RULES
from coordinator_core.rules.evaluate import evaluate
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.figures import EXAMPLES, figures_of
from coordinator_core.rules.settings import settings_from
from tests.log.builders import NOW_MS, build_batch, write_partition
from tests.rules.faults import FAULTS
from tests.rules.logs import (
    HEALTHY,
    TOPICS,
    Log,
    assignment,
    classic,
    commit,
    consumer_group,
    consumer_member,
    log_of,
    member,
    one,
    pending,
    topic,
)

HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e&\"'"
LOG = one(
    classic(),
    commit(offset=5),
    commit(HOSTILE, "<b>", offset=-1),
    pending(commit("g", offset=70)),
    now_ms=NOW_MS + 1_000_000,
    topics=TOPICS,
    previous=one(*HEALTHY, commit("gone")),
    settings={"mutes": [{"rule": "R36", "reason": "<i>known</i>", "until": "2030-01-01"}]},
)
EMPTY = Log({0: log_of()})


def reported(log: Log, directory: Path) -> dict[str, Any]:
    facts = log.facts(directory)
    report, _ = run_report(facts, evaluate(facts, settings_from(log.settings, RULES)))
    return report


class Page(HTMLParser):
    """Elements of a page; fails for those that are not closed in order."""

    VOID = frozenset({"meta", "rect", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None], tuple[str, ...]]] = []
        self.texts: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), tuple(self.open)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), tuple(self.open)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, *tags: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes, _ in self.elements if tag in tags]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return reported(LOG, tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def html(report: dict[str, Any]) -> str:
    return run_page(report)


def test_it_says_the_verdict_the_changes_and_what_hangs(report: dict[str, Any]) -> None:
    assert report["verdict"] == "critical"
    assert [rule["code"] for rule in report["rules"]] == ["R30", "R50", "R32", "R36", "R44"]
    assert report["changes"]["counts"]["offsets"] == {"added": 1, "removed": 1, "changed": 1, "identical": 0}
    (transaction,) = report["open_transactions"]
    assert (transaction["producer_id"], transaction["age_ms"]) == (7, 1_000_000)
    assert report["scope"]["pending_offsets"] == 1
    assert report["muted"] == 1
    assert report["lag"]["largest"][0]["status"] == "lost"


def test_the_page_needs_nothing_but_itself(html: str) -> None:
    page = Page(html)
    assert page.all("script", "link", "iframe", "img", "object", "form") == []
    attributes = [name for _, found, _ in page.elements for name in found]
    assert not [name for name in attributes if name.startswith("on") or name in ("style", "src")]
    assert all(str(link["href"]).startswith("#") for link in page.all("a"))
    assert "http://" not in html
    assert "https://" not in html
    assert "url(" not in html
    (policy,) = [meta["content"] for meta in page.all("meta") if "http-equiv" in meta]
    style = html[html.index("<style>") + len("<style>") : html.index("</style>")]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == (f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'")


def test_names_from_the_log_are_text(html: str) -> None:
    page = Page(html)
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert not page.all("b", "i")
    assert any("<script>alert(1)</script>\\x1b[2J\\u202e" in text for text in page.texts)


def test_structure_for_screen_readers_and_keyboards(html: str) -> None:
    page = Page(html)
    assert page.all("html")[0]["lang"] == "en"
    levels = [int(tag[1]) for tag, _, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ids = [found["id"] for _, found, _ in page.elements if "id" in found]
    assert len(ids) == len(set(ids))
    assert {str(link["href"])[1:] for link in page.all("a")} <= set(ids)
    assert {found["aria-labelledby"] for found in page.all("section")} <= set(ids)
    assert len(page.all("main")) == len(page.all("header")) == len(page.all("nav")) == 1
    tables = page.all("table")
    assert tables
    assert len(page.all("caption")) == len(tables)
    assert all(cell["scope"] == "col" for cell in page.all("th"))
    # What scrolls can be reached and has a name.
    for box in (found for found in page.all("div") if found.get("class") == "scroll"):
        assert box["tabindex"] == "0"
        assert box["aria-label"]
    for drawing in page.all("svg"):
        assert drawing["role"] == "img"
        assert drawing["aria-label"]


def test_the_verdict_comes_first(html: str) -> None:
    page = Page(html)
    tags = [tag for tag, _, parents in page.elements if "body" in parents]
    assert tags[:4] == ["a", "header", "h1", "div"]
    words = [text.strip() for text in page.texts if text.strip()]
    assert words[words.index("Skip to the findings") + 2] == "Critical findings"


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("mode", [0, 1, 2], ids=["light", "dark", "print"])
def test_contrast_in_every_mode(mode: int, html: str) -> None:
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", re.findall(r":root \{([^}]*)\}", html)[mode]))
    for surface in ("page", "card"):
        for ink in ("text", "quiet", "link", "critical", "warning", "info", "clean"):
            bright, dark = sorted((luminance(colours[surface]), luminance(colours[ink])), reverse=True)
            assert (bright + 0.05) / (dark + 0.05) >= 4.5, (surface, ink)
        bright, dark = sorted((luminance(colours[surface]), luminance(colours["bar"])), reverse=True)
        assert (bright + 0.05) / (dark + 0.05) >= 3


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (["bad_crc"], "1 damaged place in the log"),
        (["torn_tail", "not_read"], "2 damaged places in the log"),
        (["transactions_unknown"], "1 offsets partition made of records of a consumer"),
        (["records_only", "bad_crc"], "1 damaged place in the log, 1 offsets partition made of records of a consumer"),
    ],
)
def test_why_a_run_is_partial(kinds: list[str], said: str, tmp_path: Path) -> None:
    """The files of a log made of records are sound."""
    healthy = one(*HEALTHY).publish(tmp_path)
    damage = [Damage("f", 0, None, kind, "").as_dict() for kind in kinds]
    facts = Facts(replace(healthy, manifest={**healthy.manifest, "complete": False, "damage": damage}))
    document, _ = run_report(facts, evaluate(facts))
    assert f"- **Partial**: {said}\n" in run_summary(document)
    assert f"<strong>Partial: {said}. Not all of the log is known.</strong>" in run_page(document)


def test_an_empty_log_has_a_report(tmp_path: Path) -> None:
    report = reported(EMPTY, tmp_path)
    assert report["verdict"] == "clean"
    page = run_page(report)
    assert "No findings" in page
    # Sections without news are a line each.
    still = re.findall(r'<h2 id="(\w+)" class="still">.*</h2>\s*(?=</section>)', page)
    assert still == ["changes", "lag", "expiry", "transactions"]
    assert "No rule found" not in page
    assert run_summary(report).startswith("**No findings**: c, w\n")
    inferred = run_page(report | {"scope": report["scope"] | {"profile_inferred": True}})
    assert ", assumed: no record tells it</dd>" in inferred


def test_days_of_the_calendar_are_those_of_the_times(tmp_path: Path) -> None:
    """Offsets that expire before and after midnight, by the chart and by the table."""
    week = 7 * 86_400_000
    midnight = NOW_MS // 86_400_000 * 86_400_000 + 2 * 86_400_000
    groups = {"before": midnight - 1, "after": midnight}
    records = [commit(name, time_ms=at - week) for name, at in groups.items()]
    report = reported(one(*records), tmp_path)
    expected = {f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d}" for at in groups.values()}
    days = {day["day"]: day["offsets"] for day in report["expiry"]["days"]}
    assert {day: days[day] for day in expected} == dict.fromkeys(expected, 1)
    told = {time_text(one["expires_at_ms"])[:10] for one in report["expiry"]["soonest"]}
    assert told == expected
    commits = {day["day"]: day["committed_offsets"] for day in report["activity"] if day["committed_offsets"]}
    assert commits == {f"{datetime.fromtimestamp((at - week) / 1000, UTC):%Y-%m-%d}": 1 for at in groups.values()}
    # The chart begins with the first of these days.
    (chart,) = re.findall(r'aria-label="Committed offsets by the day of their commit\. ([^"]*)"', run_page(report))
    assert chart.startswith(f"{min(commits)}: 1; ")


def test_a_long_name_is_cut_and_there(tmp_path: Path) -> None:
    name = "a" * 100 + "-end"
    page = Page(run_page(reported(one(classic(name), commit(name, offset=5), topics=TOPICS), tmp_path)))
    assert len(page.all("details")) > len(page.all("table")) - 1
    cut = [text for text in page.texts if "…" in text]
    assert cut
    assert all(len(word) <= 48 for text in cut for word in text.split())
    assert any(name == text for text in page.texts)
    drawings = " ".join(str(drawing["aria-label"]) for drawing in page.all("svg"))
    assert f"{name}: 90" in drawings, "pictures are read out in full"


def test_many_findings_are_counted_not_dropped(tmp_path: Path) -> None:
    log = one([commit("g", "t", number, offset=-1) for number in range(EXAMPLES + 5)])
    report = reported(log, tmp_path)
    (rule,) = report["rules"]
    assert (rule["code"], rule["findings"], rule["left_out"]) == ("R44", EXAMPLES + 5, 5)
    assert len(rule["examples"]) == EXAMPLES
    assert "And 5 more" in run_page(report)


def test_why_nothing_expires_where_a_sweep_fails(tmp_path: Path) -> None:
    stuck = [*consumer_group("c"), *consumer_member("c", parts="target")]
    report = reported(one(*stuck, commit("c"), now_ms=NOW_MS + 30 * 86_400_000), tmp_path)
    assert [one["offsets_partition"] for one in report["expiry"]["failing_sweeps"]] == [0]
    page = run_page(report)
    assert "nothing expires</span>" not in page
    assert "The sweep of 1 offsets partition fails, so that nothing expires there" in page


def test_commits_of_open_transactions_are_not_dead(tmp_path: Path) -> None:
    report = reported(one(commit("g"), pending(commit("g", offset=70), commit("h"))), tmp_path)
    assert [(one["group_id"], one["dead_bytes"]) for one in report["groups"]["heaviest"]] == [("g", 0), ("h", 0)]
    assert "<caption>1 open transaction, the oldest first</caption>" in run_page(report)


def test_many_open_transactions_are_counted_not_dropped(tmp_path: Path) -> None:
    begun = [pending(commit("g", "t", number), producer_id=number) for number in range(EXAMPLES + 5)]
    facts = one(*begun).facts(tmp_path)
    report, lag = run_report(facts, evaluate(facts))
    assert (len(report["open_transactions"]), report["open_transactions_left_out"]) == (EXAMPLES, 5)
    assert "25 open transactions" in run_page(report)
    assert metrics(run_metrics(report, facts, lag))["regroup_open_transactions"] == {(): 25}


def test_commits_are_spread_over_the_time_of_their_group(tmp_path: Path) -> None:
    steady = [build_batch(0, [commit("s", offset=n)], timestamp=NOW_MS + n * 60_000) for n in range(61)]
    burst = build_batch(0, [commit("b", offset=n) for n in range(100)], timestamp=NOW_MS + 1_800_000)
    found = reported(one(*steady, burst, now_ms=NOW_MS + 3_700_000), tmp_path)["commit_rate"]
    assert (found["commits"], found["earlier"], found["without_time"]) == (161, 0, 0)
    assert found["bucket_ms"] == 300_000
    buckets = {one["at_ms"]: one for one in found["buckets"]}
    assert min(buckets) <= NOW_MS < min(buckets) + found["bucket_ms"]
    assert abs(sum(one["commits"] for one in found["buckets"]) - 161) <= len(buckets)
    at_burst = buckets.pop(max(buckets, key=lambda at: buckets[at]["commits"]))
    assert at_burst["at_ms"] <= NOW_MS + 1_800_000 < at_burst["at_ms"] + found["bucket_ms"]
    assert at_burst["commits"] >= 100
    # 61 commits in an hour: five in five minutes, but for the ends.
    inner = sorted(buckets)[1:-1]
    assert {buckets[at]["commits"] for at in inner} <= {5, 6}


def test_commits_of_long_ago_are_counted_not_shown(tmp_path: Path) -> None:
    old = build_batch(0, [commit("o", offset=n) for n in range(3)], timestamp=NOW_MS - 30 * 86_400_000)
    found = reported(one(old, *HEALTHY), tmp_path)["commit_rate"]
    assert (found["commits"], found["earlier"]) == (4, 3)
    assert sum(one["commits"] for one in found["buckets"]) == 1
    assert len(found["buckets"]) <= MAX_BUCKETS


@pytest.mark.parametrize("time_ms", [0, (1 << 63) - 1])
def test_commits_at_the_ends_of_time(time_ms: int, tmp_path: Path) -> None:
    batch = build_batch(0, [commit("g", offset=n) for n in range(3)], timestamp=time_ms)
    found = reported(one(batch), tmp_path)["commit_rate"]
    assert (found["commits"], [one["commits"] for one in found["buckets"]]) == (3, [3])


def test_the_time_to_load_follows_the_rate_of_the_brokers(tmp_path: Path) -> None:
    facts = one(*HEALTHY).facts(tmp_path)
    found = evaluate(facts)
    size = sum(entry["bytes"] for entry in facts.run.manifest["inputs"])
    assumed, _ = run_report(facts, found)
    told, _ = run_report(facts, found, load_bytes_per_second=size / 2)
    assert (assumed["load"]["is_assumed"], told["load"]["is_assumed"]) == (True, False)
    assert [one["load_seconds"] for one in told["partitions"]] == [2.0]
    assert "what a 4.3.1 broker on two cores does" in run_page(assumed)
    assert "as told" in run_page(told)
    # A bar of 0 s says nothing: on most clusters most offsets partitions are empty.
    shown = ["Seconds to load, by offsets partition" in run_page(one) for one in (assumed, told)]
    assert shown == [any(one["load_seconds"] for one in report["partitions"]) for report in (assumed, told)]


def metrics(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    return {
        family.name: {
            tuple(sorted((name, value) for name, value in sample.labels.items() if name != "cluster")): sample.value
            for sample in family.samples
        }
        for family in text_string_to_metric_families(text)
    }


def test_metrics_have_names_and_labels_of_other_exporters(tmp_path: Path) -> None:
    facts = LOG.facts(tmp_path)
    report, lag = run_report(facts, evaluate(facts))
    found = metrics(run_metrics(report, facts, lag))
    # kafka_exporter
    offset_key = (("consumergroup", "g"), ("partition", "0"), ("topic", "t"))
    assert found["kafka_consumergroup_current_offset"][offset_key] == 5
    assert found["kafka_consumergroup_lag"][offset_key] == 90
    assert found["kafka_consumergroup_lag_sum"][(("consumergroup", "g"), ("topic", "t"))] == 90
    assert found["kafka_consumergroup_members"][(("consumergroup", "g"),)] == 1
    # kafka-lag-exporter
    assert found["kafka_consumergroup_group_max_lag"][(("cluster_name", "c"), ("group", "g"))] == 90
    assert found["kafka_consumergroup_group_sum_lag"][(("cluster_name", "c"), ("group", "g"))] == 90
    # Burrow
    assert found["burrow_kafka_consumer_status"][(("consumer_group", "g"),)] == 3
    assert found["regroup_lag_status_groups"][(("status", "lost"),)] == 1
    assert found["regroup_findings"][(("severity", "critical"),)] == 2
    assert set(found["regroup_series_left_out"].values()) == {0}
    few = metrics(run_metrics(report, facts, lag, max_series=1))
    assert few["kafka_consumergroup_current_offset"] == {}
    assert few["regroup_series_left_out"][(("metric", "kafka_consumergroup_current_offset"),)] == 2
    assert few["regroup_lag"] == found["regroup_lag"]


def test_a_muted_finding_is_in_no_metric_of_its_rule(tmp_path: Path) -> None:
    log = one(
        classic(), commit(offset=-1), settings={"mutes": [{"rule": "R44", "reason": "known", "until": "2030-01-01"}]}
    )
    facts = log.facts(tmp_path)
    report, lag = run_report(facts, evaluate(facts, settings_from(log.settings, RULES)))
    found = metrics(run_metrics(report, facts, lag))
    assert found["regroup_rule_findings"][(("rule", "R44"), ("severity", "warning"))] == 0
    assert found["regroup_findings_muted"][()] == 1


def test_findings_that_count_come_before_muted_ones(tmp_path: Path) -> None:
    """The report has the first findings of a rule, and the summary tells of those that count."""
    log = one(
        *(commit("a", "x", number, offset=-5) for number in range(EXAMPLES)),
        commit("z", "y", offset=-7),
        settings={"mutes": [{"rule": "R44", "group": "a", "reason": "known", "until": "2030-01-01"}]},
    )
    report = reported(log, tmp_path)
    (rule,) = (one for one in report["rules"] if one["code"] == "R44")
    assert [example["group_id"] for example in rule["examples"]] == ["z"] + ["a"] * (EXAMPLES - 1)
    assert rule["left_out"] == 1
    assert "- warning R44 of z: committed offset -7 of y-0 is negative (" in run_summary(report)


def test_the_summary_keeps_the_end_of_a_long_name(tmp_path: Path) -> None:
    """Ids often differ there alone."""
    summary = run_summary(reported(one(commit("a" * 100 + "-7", offset=-1)), tmp_path))
    assert "a…aaaaaaaaaaaaaaaaa-7: committed offset -1" in summary


def test_the_summary_tells_no_place_that_a_finding_has_not(tmp_path: Path) -> None:
    """A family of groups is in no single record, and settings of the topic are in no offsets partition."""
    summary = run_summary(reported(FAULTS["R27"], tmp_path / "groups"))
    assert "new ones an hour (offsets partition 0)\n" in summary
    assert "retention.bytes -)\n" in run_summary(reported(FAULTS["R80"], tmp_path / "topic"))


def test_of_groups_whose_names_look_alike_one_has_the_series(tmp_path: Path) -> None:
    """Prometheus refuses a file in which a series is there twice."""
    log = one([commit("a\n", offset=3), commit("a\\n", offset=4)])
    facts = log.facts(tmp_path)
    report, lag = run_report(facts, evaluate(facts))
    text = run_metrics(report, facts, lag)
    assert text.count("kafka_consumergroup_current_offset{") == 1
    assert metrics(text)["regroup_series_left_out"][(("metric", "kafka_consumergroup_current_offset"),)] == 1


def test_the_largest_lag_stays_where_series_are_too_many(tmp_path: Path) -> None:
    log = one([commit("near", offset=99), commit("far", offset=11)], topics=TOPICS)
    facts = log.facts(tmp_path)
    report, lag = run_report(facts, evaluate(facts))
    few = metrics(run_metrics(report, facts, lag, max_series=1))
    for name in ("kafka_consumergroup_lag", "kafka_consumergroup_lag_sum", "kafka_consumergroup_group_sum_lag"):
        assert list(few[name].values()) == [89], name


def test_the_summary_names_the_worst_of_each_rule_first(report: dict[str, Any]) -> None:
    lines = run_summary(report, page="report.html").splitlines()
    assert lines[0] == "**Critical findings**: c, w"
    assert [line.split()[2] for line in lines if line.startswith(("- critical", "- warning"))] == [
        "R30",
        "R50",
        "R32",
    ]
    assert lines[-1] == "- report: `report.html`"


def test_a_page_about_a_snapshot_names_no_run_that_is_gone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_partition(tmp_path, {0: log_of(*HEALTHY)})
    assert run(["report", str(tmp_path), "--kafka-version", "4.3.1", "--format", "html"]) == 0
    assert "<dt>Run</dt><dd>none: a snapshot was replayed for this page</dd>" in capfd.readouterr().out


def test_the_command_writes_all_forms(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    published = one(*HEALTHY).publish(tmp_path / "run").path
    assert run(["report", published, "--output", str(tmp_path / "out")]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "report.html",
        "report.json",
        "report.md",
        "report.prom",
    ]
    document = json.loads((tmp_path / "out" / "report.json").read_text())
    capfd.readouterr()
    for form in ("html", "json", "prometheus", "markdown"):
        assert run(["report", published, "--format", form]) == 0
        assert capfd.readouterr().out.strip()
    assert run(["report", published, "--output", str(tmp_path / "both"), "--format", "prometheus"]) == 0
    assert capfd.readouterr().out == (tmp_path / "both" / "report.prom").read_text()
    assert document["verdict"] == "clean"
    negative = one(classic(), commit(offset=-1)).publish(tmp_path / "negative").path
    assert run(["report", negative, "--format", "json"]) == 0
    assert run(["report", negative, "--format", "json", "--fail-on", "warning"]) == 1


STATUSES = {
    "ok": (commit(offset=40), commit(offset=60)),
    "stopped": (commit(offset=50), commit("other")),
    "stalled": (commit(offset=50), commit(offset=50)),
    "rewound": (commit(offset=50), commit(offset=40)),
    "lost": (commit(offset=5), commit(offset=6)),
}


@pytest.mark.parametrize("status", STATUSES)
def test_statuses_that_two_moments_tell(status: str, tmp_path: Path) -> None:
    first, second = STATUSES[status]
    log = one(classic(), first, second, topics=TOPICS, previous=one(classic(), first))
    lag = figures_of(log.facts(tmp_path)).lag
    assert lag is not None
    rows = {row["group_id"]: row for row in lag.partitions.to_pylist()}
    assert rows["g"]["status"] == status


def test_a_partition_that_nobody_committed_is_said_and_has_no_lag(tmp_path: Path) -> None:
    log = one(
        classic("g", member(owns=assignment(t=[0, 1]))),
        commit(offset=90),
        topics=TOPICS | {"topics": [topic("t", partitions=2)]},
    )
    lag = figures_of(log.facts(tmp_path)).lag
    assert lag is not None
    found = {
        row["partition"]: (row["committed_offset"], row["lag"], row["status"]) for row in lag.partitions.to_pylist()
    }
    assert found == {0: (90, 10, "ok"), 1: (None, None, "no_commit")}
    assert lag.groups.to_pylist()[0]["status"] == "no_commit"


@given(offset=st.integers(-1, 2**63 - 1))
def test_text_of_bars_is_escaped_and_lengths_stay_in_the_chart(offset: int) -> None:
    drawn = Page(bar_chart("<a>", [("<b>", offset, "&"), ("c", 1, "1")]))
    assert all(float(str(bar["width"])) <= WIDTH for bar in drawn.all("rect"))
    assert "&" in drawn.texts


def test_lag_is_never_negative(tmp_path: Path) -> None:
    offsets = [-(2**63), -1, 0, 9, 10, 99, 100, 101, 2**63 - 1]
    log = one([commit(f"g{number}", offset=offset) for number, offset in enumerate(offsets)], topics=TOPICS)
    lag = figures_of(log.facts(tmp_path)).lag
    assert lag is not None
    found = dict(zip(lag.partitions["committed_offset"].to_pylist(), lag.partitions["lag"].to_pylist(), strict=True))
    assert found == {offset: max(100 - max(offset, 10), 0) for offset in offsets}

"""The alert rules, by promtool, on exports of real runs: each fires for its fault, and none for a healthy cluster."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.samples import Sample

from coordinator_core.reports.run_metrics import run_metrics
from coordinator_core.reports.run_report import run_report
from coordinator_core.rules.catalogue import RULES
from coordinator_core.rules.evaluate import evaluate
from coordinator_core.rules.settings import settings_from
from tests.monitoring.kit import ALERTS, promtool, samples, series
from tests.reports.test_run_report import LOG
from tests.rules.faults import FAULTS
from tests.rules.logs import HEALTHY, TOPICS, Log, empty_group, one

RULES_OF_ALERTS = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]

Labels = dict[str, str]


@dataclass(frozen=True)
class Scene:
    """A log, how it is exported, and the alerts that fire ``hours`` later, each with the labels of its series."""

    log: Log | None
    fires: dict[str, list[Labels]]
    hours: int = 1
    ahead_hours: int = 0
    """So far ahead of the clock is the time of the run."""
    options: dict[str, Any] = field(default_factory=dict)
    max_series: int = 100


def of_rule(code: str) -> list[Labels]:
    return [{"rule": code}]


ANY: list[Labels] = [{}]
MANY = one(empty_group("a"), empty_group("b"))
SCENES = {
    "healthy": Scene(one(*HEALTHY, topics=TOPICS), {}),
    "none": Scene(None, {"RegroupNoRun": [{}]}),
    "old": Scene(one(*HEALTHY), {"RegroupRunStale": ANY}, hours=37),
    "ahead": Scene(one(*HEALTHY), {"RegroupRunStale": ANY}, ahead_hours=3),
    "slow": Scene(
        one(*HEALTHY), {"RegroupSlowLoad": [{"offsets_partition": "0"}]}, options={"load_bytes_per_second": 1.0}
    ),
    "damaged": Scene(FAULTS["R03"], {"RegroupLogDamaged": ANY, "RegroupCriticalFindings": ANY}),
    "refused": Scene(FAULTS["R06"], {"RegroupPartitionDoesNotLoad": of_rule("R06"), "RegroupCriticalFindings": ANY}),
    "expired": Scene(FAULTS["R70"], {"RegroupOffsetsLost": ANY, "RegroupCriticalFindings": ANY}),
    "uncleaned": Scene(FAULTS["R87"], {"RegroupCleanerStuck": of_rule("R87"), "RegroupWarningFindings": ANY}),
    "many": Scene(MANY, {"RegroupSeriesLeftOut": [{"metric": "kafka_consumergroup_members"}]}, max_series=1),
    "hostile": Scene(
        LOG,
        {
            "RegroupCriticalFindings": ANY,
            "RegroupWarningFindings": ANY,
            "RegroupHangingTransaction": of_rule("R50"),
            "RegroupOffsetsLost": ANY,
            "RegroupGroupBehind": [{"consumer_group": "g"}],
        },
    ),
}


def exported(log: Log, directory: Path, *, max_series: int, **options: Any) -> str:
    facts = log.facts(directory)
    report, lag = run_report(facts, evaluate(facts, settings_from(log.settings, RULES)), **options)
    return run_metrics(report, facts, lag, max_series=max_series)


def test_promtool_takes_the_rules() -> None:
    assert f"{len(RULES_OF_ALERTS)} rules found" in promtool("check", "rules", str(ALERTS))


def test_each_alert_fires_for_its_fault_and_no_other(tmp_path: Path) -> None:
    tests = []
    for name, scene in SCENES.items():
        text = (
            ""
            if scene.log is None
            else exported(scene.log, tmp_path / name, max_series=scene.max_series, **scene.options)
        )
        given = [{"series": series(sample), "values": f"{_value(sample, scene)}+0x600"} for sample in samples(text)]
        expected = [
            {"eval_time": f"{scene.hours}h", "alertname": rule["alert"], "exp_alerts": fired(scene, rule)}
            for rule in RULES_OF_ALERTS
        ]
        tests.append({"name": name, "interval": "5m", "input_series": given, "alert_rule_test": expected})
    document = tmp_path / "test.yaml"
    whole = {"rule_files": [str(ALERTS)], "evaluation_interval": "5m", "tests": tests}
    document.write_text(yaml.safe_dump(whole, allow_unicode=True))
    assert "SUCCESS" in promtool("test", "rules", str(document))
    assert {name for scene in SCENES.values() for name in scene.fires} == {rule["alert"] for rule in RULES_OF_ALERTS}


def _value(sample: Sample, scene: Scene) -> float:
    """The clock of promtool begins at 0, with the run."""
    return scene.ahead_hours * 3600 if sample.name == "regroup_run_timestamp_seconds" else sample.value


def fired(scene: Scene, rule: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for labels in scene.fires.get(rule["alert"], []):
        all_labels = labels if scene.log is None else {"cluster": "c", **labels}
        annotations = {name: _filled_in(text, all_labels) for name, text in rule["annotations"].items()}
        found.append({"exp_labels": all_labels | rule["labels"], "exp_annotations": annotations})
    return found


def _filled_in(text: str, labels: Labels) -> str:
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match: labels[match[1]], text)

"""Exports as Prometheus' own servers take them: the dashboard's expressions, the Pushgateway, the text itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from coordinator_core.cli.app import run
from coordinator_core.reports.metrics_out import push_metrics
from tests.monitoring.kit import DASHBOARD, DOCS, ROOT, open_metrics, promtool, samples, series, server
from tests.monitoring.test_alerts import exported
from tests.reports.test_run_report import LOG

PANELS = json.loads(DASHBOARD.read_text())["panels"]
SHOP = ROOT / "demo/shop"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `regroup report --textfile` exports of the log that `make demo` runs on."""
    place = tmp_path_factory.mktemp("textfile")
    now = json.loads((SHOP / "capture.json").read_text())["finished_at_ms"]
    arguments = ["report", str(SHOP), "--kafka-version", "4.3.1", "--now-ms", str(now), "--textfile", str(place)]
    assert run(arguments) == 0
    [file] = place.iterdir()
    assert file.name == "regroup_snapshot.prom"
    return file.read_text()


def hostile(directory: Path, *, max_series: int = 100) -> str:
    return exported(LOG, directory, max_series=max_series)


def get(url: str) -> Any:
    with urlopen(url, timeout=60) as response:
        return json.load(response)["data"]


def test_the_text_is_as_prometheus_wants_it(shop: str, tmp_path: Path) -> None:
    """The one complaint is about a name of kafka_exporter's."""
    for text in (shop, hostile(tmp_path)):
        with pytest.raises(AssertionError) as complaints:
            promtool("check", "metrics", given=text)
        [line] = str(complaints.value).splitlines()
        assert line.startswith("kafka_consumergroup_lag_sum non-histogram and non-summary")


def test_the_manual_has_every_series(shop: str) -> None:
    table = [line for line in (DOCS / "monitoring.md").read_text().splitlines() if line.startswith("| `")]
    listed = {name for line in table for name in re.findall(r"`((?:kafka|burrow|regroup)_[a-z_]+)`", line)}
    assert listed == {family.name for family in text_string_to_metric_families(shop)}


def test_every_expression_of_the_dashboard_has_a_result_with_the_labels_of_its_legend(
    shop: str, tmp_path: Path
) -> None:
    [time_seconds] = [one.value for one in samples(shop) if one.name == "regroup_run_timestamp_seconds"]
    given, blocks, settings = tmp_path / "given", tmp_path / "blocks", tmp_path / "prometheus.yml"
    given.write_text(open_metrics([shop, hostile(tmp_path / "hostile")], time_seconds))
    settings.touch()
    promtool("tsdb", "create-blocks-from", "openmetrics", str(given), str(blocks))
    storage = (f"--config.file={settings}", f"--storage.tsdb.path={blocks}")
    with server("prometheus", "Server is ready", *storage) as url:
        assert get(f"{url}/api/v1/label/cluster/values") == ["c", "snapshot"]
        for panel in PANELS:
            for target in panel["targets"]:
                expression = target["expr"].replace("$cluster", "snapshot|c")
                query = urlencode({"query": expression, "time": time_seconds})
                found = get(f"{url}/api/v1/query?{query}")["result"]
                assert found, expression
                legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                assert all(legend <= set(one["metric"]) for one in found), expression


def test_a_pushgateway_holds_the_newest_of_each_cluster(
    shop: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    everything, few = hostile(tmp_path / "all"), hostile(tmp_path / "few", max_series=1)
    with server("prometheus-pushgateway", "Listening on") as url:

        def held() -> set[tuple[str, float]]:
            with urlopen(f"{url}/metrics", timeout=60) as response:
                ours = [one for one in samples(response.read().decode()) if one.labels.get("job") == "regroup"]
            for one in ours:
                del one.labels["job"], one.labels["instance"]
            return {(series(one), one.value) for one in ours if not one.name.startswith("push_")}

        def told(*texts: str) -> set[tuple[str, float]]:
            return {(series(one), one.value) for text in texts for one in samples(text)}

        push_metrics(url, "c", everything)
        push_metrics(url, "snapshot", shop)
        assert held() == told(everything, shop)
        push_metrics(url, "c", few)
        assert held() == told(few, shop)
        assert run(["report", str(SHOP), "--kafka-version", "4.3.1", "--pushgateway", f"{url}/nowhere"]) == 5
        assert re.fullmatch(
            r"regroup: error: \S+/nowhere: the Pushgateway did not take the metrics: .*404: Not Found\n",
            capfd.readouterr().err,
        )

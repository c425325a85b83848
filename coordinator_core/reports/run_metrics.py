"""The report of a run as Prometheus text, for the textfile collector or a Pushgateway.

Series that other exporters have keep their names and labels, so that dashboards and alerts made for those fit:
``kafka_consumergroup_…`` with the label ``consumergroup`` those of kafka_exporter (danielqsj), with ``cluster_name``
and ``group`` those of kafka-lag-exporter, ``burrow_…`` those of Burrow.  Our own begin with ``regroup_``.  Each has
the label ``cluster``.  Sums are always there; of a metric with too many series some are left out, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from coordinator_core.reports.run_report import Document
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.lag import Lag, LagStatus, largest_first
from coordinator_core.untrusted import visible

MAX_SERIES = 10_000
"""Most series of one metric by group, or by group, topic and partition."""

_OFFSET_KEY = {"consumergroup": "group_id", "topic": "topic", "partition": "partition"}

_BURROW_OF_GROUP = {LagStatus.OK: 1, LagStatus.NO_COMMIT: 2}
"""Burrow's status of a group: OK, WARN, and ERR (3) when one of its partitions is worse."""


def run_metrics(report: Document, facts: Facts, lag: Lag | None, *, max_series: int = MAX_SERIES) -> str:
    """Prometheus text of a document that :func:`run_report` made, and of the tables behind it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Metrics(report, facts, lag, max_series))
    return generate_latest(registry).decode("utf-8")


class _Metrics(Collector):
    def __init__(self, report: Document, facts: Facts, lag: Lag | None, max_series: int) -> None:
        self._report, self._facts, self._lag, self._max = report, facts, lag, max_series
        self._cluster = str(report["scope"]["cluster"])
        self._left_out: dict[str, int] = {}

    def collect(self) -> Iterator[GaugeMetricFamily]:
        report, scope = self._report, self._report["scope"]
        yield self._one("regroup_run_timestamp_seconds", "Time that the run judges by", scope["now_ms"] / 1000)
        yield self._one("regroup_run_complete", "1 unless the log was damaged", int(scope["complete"]))
        yield self._one("regroup_groups", "Groups", scope["groups"])
        yield self._one("regroup_members", "Members", scope["members"])
        yield self._one("regroup_committed_offsets", "Committed offsets", scope["committed_offsets"])
        yield self._one("regroup_pending_offsets", "Offsets in open transactions", scope["pending_offsets"])
        transactions = len(report["open_transactions"]) + report["open_transactions_left_out"]
        yield self._one("regroup_open_transactions", "Open transactions", transactions)
        yield self._one("regroup_log_bytes", "Bytes of the offsets log", scope["bytes"])
        yield self._one("regroup_dead_bytes", "Bytes that newer records replace", report["groups"]["dead_bytes"])
        yield self._one("regroup_findings_muted", "Findings that are muted", report["muted"])
        yield self._labelled(
            "regroup_findings",
            "Findings that are not muted",
            ["severity"],
            [([severity], number) for severity, number in report["counts"].items()],
        )
        yield self._labelled(
            "regroup_rule_findings",
            "Findings of a rule that are not muted",
            ["rule", "severity"],
            [([rule["code"], rule["severity"]], rule["findings"] - rule["muted"]) for rule in report["rules"]],
        )
        yield self._labelled(
            "regroup_offsets_partition_bytes",
            "Bytes that a coordinator reads to load the partition",
            ["offsets_partition"],
            [([str(one["offsets_partition"])], one["bytes"]) for one in report["partitions"]],
        )
        yield self._labelled(
            "regroup_offsets_partition_load_seconds",
            "How long a coordinator takes to load the partition",
            ["offsets_partition"],
            [([str(one["offsets_partition"])], one["load_seconds"]) for one in report["partitions"]],
        )
        yield from self._of_groups()
        yield from self._of_lag()
        # Last: it counts the series that all the others left out.
        yield self._labelled(
            "regroup_series_left_out",
            "Series of a metric that were too many, or whose names look alike",
            ["metric"],
            [([name], number) for name, number in sorted(self._left_out.items())],
        )

    def _of_groups(self) -> Iterator[GaugeMetricFamily]:
        groups = self._facts.groups
        counts = pa.table(
            {"group_id": groups.array("group_id").cast(pa.string()), "members": groups.array("member_count")}
        )
        counts, labels = counts.sort_by("group_id"), {"consumergroup": "group_id"}
        yield self._rows("kafka_consumergroup_members", "Members of a group", labels, counts, "members")
        committed = self._facts.run.rows("offsets")
        if committed <= self._max:
            offsets = self._facts.offsets
            rows = offsets.rows(np.arange(committed), "group_id", "topic", "partition", "committed_offset")
        else:
            rows = pa.table({name: [] for name in ("group_id", "topic", "partition", "committed_offset")})
            self._left_out["kafka_consumergroup_current_offset"] = committed
        name = "kafka_consumergroup_current_offset"
        yield self._rows(name, "Committed offset", _OFFSET_KEY, rows, "committed_offset")

    def _of_lag(self) -> Iterator[GaugeMetricFamily]:
        if self._lag is None or self._report["lag"] is None:
            return
        yield self._one("regroup_lag", "Records that groups are behind, together", self._report["lag"]["total"])
        known = self._lag.partitions.filter(pc.is_valid(self._lag.partitions["lag"]))
        # The largest lag stays when there are too many.
        rows = largest_first(known)
        yield self._rows("kafka_consumergroup_lag", "Lag of a partition", _OFFSET_KEY, rows, "lag")
        self._left_out["kafka_consumergroup_lag"] += self._lag.known - rows.num_rows
        order = [("lag", "descending"), ("group_id", "ascending"), ("topic", "ascending")]
        labels, rows = {"consumergroup": "group_id", "topic": "topic"}, self._lag.topics.sort_by(order)
        yield self._rows("kafka_consumergroup_lag_sum", "Lag of a group in a topic", labels, rows, "lag")
        groups = self._lag.groups
        with_lag = groups.filter(pc.is_valid(groups["lag"]))
        with_lag = with_lag.append_column("cluster", pa.array([self._cluster] * with_lag.num_rows, pa.string()))
        labels = {"cluster_name": "cluster", "group": "group_id"}
        yield self._rows("kafka_consumergroup_group_sum_lag", "Lag of a group", labels, with_lag, "lag")
        yield self._rows("kafka_consumergroup_group_max_lag", "Largest lag", labels, with_lag, "max_lag")
        numbers = {one.label: _BURROW_OF_GROUP.get(one, 3) for one in LagStatus}
        groups = groups.append_column(
            "status_number", pa.array([numbers[text] for text in groups["status"].to_pylist()])
        )
        yield self._rows(
            "burrow_kafka_consumer_status",
            "1 ok; 2 a partition without a commit; 3 a partition lost, stopped, stalled or rewound",
            {"consumer_group": "group_id"},
            groups,
            "status_number",
        )
        yield self._labelled(
            "regroup_lag_status_groups",
            "Groups by the worst status of their partitions",
            ["status"],
            [([one.label], self._report["lag"]["statuses"].get(one.label, 0)) for one in LagStatus],
        )

    def _rows(self, name: str, text: str, labels: dict[str, str], rows: pa.Table, value: str) -> GaugeMetricFamily:
        """Series of the first rows; ``labels`` has the column of each label."""
        kept = rows.slice(0, self._max)
        names = [[visible(str(item)) for item in kept[column].to_pylist()] for column in labels.values()]
        # One series a name, the first: a group may lie in two offsets partitions (rule R22), and two names may look
        # alike once they are visible.  Nobody takes a file in which a series is there twice.
        series = dict(reversed(list(zip(zip(*names, strict=True), kept[value].to_pylist(), strict=True))))
        self._left_out.setdefault(name, rows.num_rows - len(series))
        return self._labelled(name, text, list(labels), [(list(key), series[key]) for key in sorted(series)])

    def _one(self, name: str, text: str, value: float) -> GaugeMetricFamily:
        return self._labelled(name, text, [], [([], value)])

    def _labelled(
        self, name: str, text: str, labels: list[str], values: list[tuple[list[str], float]]
    ) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, text, labels=["cluster", *labels])
        for labelled, value in values:
            family.add_metric([self._cluster, *labelled], value)
        return family

"""The Prometheus text of a report at the place where a monitoring system looks: a textfile, a Pushgateway."""

from __future__ import annotations

from collections.abc import Iterable
from http.client import HTTPException
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, push_to_gateway
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from coordinator_core import storage
from coordinator_core.errors import RegroupError, UsageError
from coordinator_core.runs.place import check_component
from coordinator_core.untrusted import visible

JOB = "regroup"
PUSH_SECONDS = 30.0


def write_textfile(directory: str, cluster: str, text: str) -> str:
    """Replace ``regroup_<cluster>.prom`` in one step; returns its path.

    The directory may be that of node_exporter's textfile collector, which reads all files ``*.prom`` of it.
    """
    check_component("cluster", cluster)
    path = storage.join(directory, f"{JOB}_{cluster}.prom")
    storage.write_text(path, text)
    return path


def push_metrics(url: str, cluster: str, text: str) -> None:
    """Replace the metrics of a cluster at the Pushgateway ``url``: PUT of the group ``job="regroup", cluster``.

    Raises :class:`UsageError` for a URL that is none, :class:`RegroupError` when the gateway does not take it.
    """
    check_gateway(url)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Text(text))
    try:
        push_to_gateway(url, JOB, registry, {"cluster": cluster}, PUSH_SECONDS)
    except (OSError, HTTPException) as error:
        raise RegroupError(f"{visible(url)}: the Pushgateway did not take the metrics: {error}") from error


def check_gateway(url: str) -> None:
    """:class:`UsageError` unless ``url`` is a plain address; one with a password is not shown."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url:
        raise UsageError("the Pushgateway is named as http://HOST:PORT or https://HOST:PORT")
    if "@" in parts.netloc:
        raise UsageError("the URL of a Pushgateway must not hold a password: it appears in logs")


class _Text(Collector):
    def __init__(self, text: str) -> None:
        self._text = text

    def collect(self) -> Iterable[Metric]:
        return text_string_to_metric_families(self._text)

"""Addresses for the browsers of people, by what the cluster file says. Pure."""

from __future__ import annotations

from urllib.parse import quote

from dags.common.clusters import Cluster


def address(cluster: Cluster, path: str) -> str:
    """Where a browser finds a file below the cluster's output; empty where the cluster file does not say."""
    base, output = cluster.links.output, cluster.output.rstrip("/") + "/"
    if base is None or not path.startswith(output):
        return ""
    return f"{base.rstrip('/')}/{quote(path.removeprefix(output))}"


def spark_address(cluster: Cluster, application_id: str | None) -> str:
    """The page of an app in Spark's history server; empty where the cluster file does not name one."""
    base = cluster.links.spark_history
    return "" if base is None or application_id is None else f"{base.rstrip('/')}/history/{application_id}/jobs/"

"""Addresses for people's browsers, from the cluster file. Pure."""

from __future__ import annotations

from urllib.parse import quote

from dags.common.clusters import Cluster


def address(cluster: Cluster, path: str) -> str:
    """Address of a file below the cluster's output or state, for a browser; empty where the cluster file has none."""
    for base, place in ((cluster.links.output, cluster.output), (cluster.links.state, cluster.state)):
        above = None if place is None else place.rstrip("/") + "/"
        if base is not None and above is not None and path.startswith(above):
            return f"{base.rstrip('/')}/{quote(path.removeprefix(above))}"
    return ""


def linked(cluster: Cluster, path: str) -> str:
    """The path in Markdown: a link where browsers find the file."""
    target = address(cluster, path)
    return f"[`{path}`]({target})" if target else f"`{path}`"


def spark_address(cluster: Cluster, application_id: str | None) -> str:
    """The page of an app in Spark's history server; empty where the cluster file does not name one."""
    base = cluster.links.spark_history
    return "" if base is None or application_id is None else f"{base.rstrip('/')}/history/{application_id}/jobs/"

"""Functions of the tasks of ``offsets_maintain``. The core is imported when a task runs, never before."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from coordinator_core.durations import numbered
from dags.common.attempts import attempt_id
from dags.common.clusters import load_clusters
from dags.common.links import linked
from dags.common.load import final_errors

if TYPE_CHECKING:
    from coordinator_core.runs.prune import Removal

log = logging.getLogger(__name__)

APPROVAL_HOURS = 72
SHOWN = 20
"""Paths that the approval page names."""


def find(params: Mapping[str, Any], dag_run: Any, try_number: int) -> dict[str, Any]:
    """Lists old runs and files in a file below the cluster's state; nothing is deleted.

    Returns path and digest of the list, and the question for a person.
    """
    cluster = load_clusters().clusters[params["cluster"]]
    now_ms = round(dag_run.run_after.timestamp() * 1000)
    found = _prunable(params, now_ms)
    with final_errors():
        from coordinator_core import storage

        path = cluster.state_path("_prune", f"{attempt_id(dag_run.run_id, try_number)}.json")
        text = json.dumps([removal.as_dict() for removal in found], indent=1).encode()
        storage.write_atomic(path, text)
    kinds = Counter(removal.kind for removal in found)
    what = [numbered(count, kind.removesuffix("s")) for kind, count in kinds.items()]
    named = "".join(f"- `{removal.paths[-1]}`\n" for removal in found[:SHOWN])
    more = f"- and {len(found) - SHOWN} more\n" if len(found) > SHOWN else ""
    return {
        "list": path,
        "digest": hashlib.sha256(text).hexdigest(),
        "now_ms": now_ms,
        "count": len(found),
        "not_asked": "" if found else "nothing is old, so nobody is asked",
        "approval_hours": APPROVAL_HOURS,
        "subject": f"Delete {', '.join(what)} of {cluster.name}?",
        "body": f"The oldest:\n\n{named}{more}\nAll of them: {linked(cluster, path)}\n",
    }


def remove(found: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Deletes the approved runs and files, but those that something refers to by now."""
    with final_errors():
        from coordinator_core import storage
        from coordinator_core.runs.prune import prune

        text = bytes(storage.read(found["list"]))
        if hashlib.sha256(text).hexdigest() != found["digest"]:
            raise AirflowFailException(f"{found['list']} is not the list that was approved")
        approved = {entry["path"] for entry in json.loads(text)}
        gone = {path for path in approved if not storage.exists(path)}
        going = [removal for removal in _prunable(params, found["now_ms"]) if removal.paths[-1] in approved]
        for removal in going:
            log.info("deleting %s", removal.paths[-1])
        _unregister(params["cluster"], [removal.paths[-1] for removal in going if removal.kind == "runs"])
        prune(going)
    # Of an attempt before that was killed, too.
    deleted = len(gone) + len(going)
    return {"deleted": deleted, "kept": len(approved) - deleted}


def _unregister(cluster_name: str, paths: list[str]) -> None:
    """Takes runs out of the cluster's catalogue, whose readers would not find their files."""
    settings = load_clusters().clusters[cluster_name].iceberg
    if settings is None:
        return
    from coordinator_core.runs.place import is_run
    from coordinator_core.runs.read import open_run
    from coordinator_core.runs.registered import is_registered

    registered = [path for path in paths if is_run(path) and is_registered(path)]
    if registered:
        from coordinator_core.runs.catalogs import open_tables

        with open_tables(settings.catalog, settings.namespace, {}) as tables:
            for path in registered:
                tables.unregister(open_run(path))


def _prunable(params: Mapping[str, Any], now_ms: int) -> list[Removal]:
    cluster = load_clusters().clusters[params["cluster"]]
    if params["keep"] is None and params["keep_days"] is None:
        raise AirflowFailException("say what stays: keep, keep_days, or both")
    with final_errors():
        from coordinator_core.runs.prune import KINDS, Keep, prunable

        keep = Keep(params["keep"], params["keep_days"])
        besides = None if cluster.iceberg is None else (cluster.iceberg.catalog, cluster.iceberg.namespace)
        return prunable(cluster.output, cluster.name, dict.fromkeys(KINDS, keep), now_ms, besides)

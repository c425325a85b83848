"""Functions of the tasks of ``offsets_compact``. The core is imported when a task runs, never before.

Below the cluster's state, path or URI, lie the plans:

    _compacted/_plans/<window>/<attempt>/   pin.json, forecast.json, tombstones/*.parquet: the app ``forecast``;
                                            plan.json

Below ``compaction.output`` of the cluster, ``_compacted`` of its state by default:

    _staging/<DAG run>/<attempt>/   what the app ``compact`` has written and proved, until it is published
    <window>/<attempt>/             a published log
    latest.json                     which of them is the newest
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow.sdk.exceptions import AirflowFailException

from coordinator_core.durations import numbered
from dags.common import load
from dags.common.attempts import now_ms, run_digest
from dags.common.cluster_model import CompactionSettings
from dags.common.clusters import Cluster, load_clusters
from dags.common.links import linked

log = logging.getLogger(__name__)

PLAN, TOMBSTONES = "plan.json", "tombstones"


def settings_of(cluster: Cluster) -> CompactionSettings:
    """The cluster's settings, or the defaults."""
    return cluster.compaction or CompactionSettings()


@contextmanager
def _final_errors() -> Iterator[None]:
    """A failed proof fails at once, too: another attempt ends the same way."""
    from coordinator_core.lifecycle.compact_proof import ProofFailedError
    from coordinator_core.untrusted import visible

    with load.final_errors():
        try:
            yield
        except ProofFailedError as error:
            raise AirflowFailException(f"the proof failed, so no retry: {visible(str(error))}") from None


def pin(params: Mapping[str, Any], dag_run: Any, try_number: int) -> dict[str, Any]:
    """What the task ``pin`` of ``offsets_load`` returns, and where forecasts go, with the arguments of the app."""
    cluster = load_clusters().clusters[params["cluster"]]
    settings = settings_of(cluster)
    pinned = load.pin(params, dag_run, try_number)
    now = now_ms(params["now_ms"], dag_run.data_interval_end, dag_run.run_after)
    with _final_errors():
        from coordinator_core import storage

        window = storage.split(pinned["runs"])[1]
    plans = cluster.state_path("_compacted", "_plans", window)
    retention_ms = settings.offsets_retention_ms
    return {
        **pinned,
        "window": window,
        "plans": plans,
        "forecast_args": [
            *("--pin", pinned["pin"]),
            *("--output", plans),
            *("--now-ms", str(now)),
            *load.replay_rules(cluster, params),
            *([] if retention_ms is None else ["--offsets-retention-ms", str(retention_ms)]),
            *(["--partial"] if params["partial"] or cluster.partial else []),
        ],
    }


def plan(
    pinned: Mapping[str, Any], forecasted: Mapping[str, Any], params: Mapping[str, Any], dag_run: Any
) -> dict[str, Any]:
    """Settles the plan in a file, whose digest stands for all of it.

    Returns path and digest, the text for an approver, and the arguments of the app.
    """
    cluster = load_clusters().clusters[params["cluster"]]
    settings = settings_of(cluster)
    expire = settings.expire if params["expire"] is None else params["expire"]
    with _final_errors():
        from coordinator_core import files, storage
        from coordinator_core.lifecycle.approved import plan_document, write_plan
        from coordinator_core.lifecycle.forecast_publish import DOCUMENT
        from coordinator_core.untrusted import visible

        directory = storage.join(pinned["plans"], forecasted["run_id"])
        found = files.read_json(storage.join(directory, DOCUMENT))
        log.info("%d tombstones are due, %d will be; kept: %s", found["due"], found["later"], found["kept"])
        for failure in found["failures"]:
            told = failure["offsets_partition"], visible(failure["detail"])
            log.warning("nothing expires in offsets partition %d: %s", *told)
        nothing = {"offsets": 0, "groups": 0, "tombstones": 0, "sha256": None}
        document = plan_document(
            found["pin"],
            found["profile"],
            [row if expire else row | nothing for row in found["expiry"]],
            now_ms=found["now_ms"],
            partial=found["partial"],
            options={
                "expire": expire,
                "offsets_retention_ms": found["offsets_retention_ms"] if expire else None,
                "delete_retention_ms": settings.delete_retention_ms,
            },
        )
        path = storage.join(directory, PLAN)
        digest = write_plan(path, document)
        places = {name: linked(cluster, storage.join(directory, name)) for name in (TOMBSTONES, PLAN)}
        body = "\n".join(approval_lines(found, expire, digest, places))
        place = settings.output or cluster.state_path("_compacted")
        staging = storage.join(place, "_staging", run_digest(dag_run.run_id))
    expires = found["due"] if expire else 0
    for line in body.splitlines():
        log.info("%s", line)
    return {
        "plan": path,
        "digest": digest,
        "window": pinned["window"],
        "place": place,
        "staging": staging,
        "expires": expires,
        "not_asked": "" if expires else "nothing expires, so nobody is asked",
        "approval_hours": settings.approval_hours,
        "subject": f"Let {numbered(expires, 'record')} expire?",
        "body": body,
        "compact_args": ["--plan", path, "--plan-digest", digest, "--output", staging],
    }


def approval_lines(found: Mapping[str, Any], expire: bool, digest: str, places: Mapping[str, str]) -> Iterator[str]:
    """Expiring records in Markdown: by reason, the groups that lose most, and the path of the whole list.

    ``places`` is Markdown that leads to the list and to the plan.
    """
    records, offsets, groups = (found[name] for name in ("records", "committed_offsets", "groups"))
    yield (
        f"Compaction of {found['bytes']} bytes with {numbered(records, 'record')}, of which "
        f"{numbered(offsets, 'committed offset')} and {numbered(groups, 'group')} stand, for {found['profile']}."
    )
    yield ""
    if not (expire and found["due"]):
        yield "Nothing expires."
    else:
        due = f"{numbered(found['due'], 'record')} {'expires' if found['due'] == 1 else 'expire'}"
        yield f"**{due}**, with a retention of {found['offsets_retention_ms']} ms:"
        yield ""
        yield from (f"- {count} {what}" for what, count in found["reasons"].items())
        yield ""
        losing, expired = found["groups_losing"], found["groups_expired"]
        going = f"{expired} {'goes' if expired == 1 else 'go'}"
        yield f"Of {numbered(losing, 'group')}, {going} altogether. Those that lose most:"
        yield ""
        for loss in found["most"]:
            gone = ", the group goes" if loss["expires"] else ""
            yield f"- {_code(loss['group_id'])}: {loss['tombstones']}{gone}"
    yield ""
    yield f"- every record, now (`due`) and later: {places[TOMBSTONES]}"
    yield f"- plan: {places[PLAN]}"
    yield f"- SHA-256 of the plan: `{digest}`"


def _code(text: str) -> str:
    """``text`` as Markdown that shows it unchanged."""
    from coordinator_core.untrusted import visible

    shown = visible(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    return f"{fence} {shown} {fence}" if "`" in shown else f"{fence}{shown}{fence}"


def prove(planned: Mapping[str, Any], compacted: Mapping[str, Any]) -> dict[str, Any]:
    """Checks that the files on the disk are those that the app has proved, and that the approval names."""
    began = time.monotonic()
    with _final_errors():
        from coordinator_core import storage
        from coordinator_core.lifecycle.approved import check_compacted, read_plan
        from coordinator_core.untrusted import visible

        directory = storage.join(planned["staging"], compacted["run_id"])
        report = check_compacted(directory, read_plan(planned["plan"], planned["digest"]))
    for row in report["partitions"]:
        log.info(
            "offsets partition %d: %d bytes of %d, as proved for %s",
            *(row["offsets_partition"], row["output_bytes"], row["input_bytes"]),
            "; ".join(row["proved_profiles"]),
        )
        for told in row["told"]:
            log.info("protected in offsets partition %d: %s", row["offsets_partition"], visible(told))
    return {
        "directory": directory,
        "seconds": {"compact": compacted["seconds"], "proof": round(time.monotonic() - began, 3)},
    }


def publish(planned: Mapping[str, Any], proved: Mapping[str, Any]) -> dict[str, Any]:
    """Moves the log to its place and lets ``latest.json`` name it, unless that names one of a later time.

    Returns the content of the asset event.
    """
    with _final_errors():
        from coordinator_core import files, storage
        from coordinator_core.lifecycle.compact_publish import REPORT, write_report
        from coordinator_core.runs.place import LATEST

        names = ("now_ms", "profile", "partial", "plan_sha256")
        place, window, run_id = planned["place"], planned["window"], storage.split(proved["directory"])[1]
        target = storage.join(place, window, run_id)
        # Already there when this task was ended between the steps, or cleared.
        if storage.exists(staged := storage.join(proved["directory"], REPORT)):
            # The app knows only where it was told to write.
            write_report(proved["directory"], files.read_json(staged) | {"output": target})
        files.move_directory(proved["directory"], target, last=REPORT)
        report = files.read_json(storage.join(target, REPORT))
        named = {"path": f"{window}/{run_id}", **{name: report[name] for name in names}}
        files.let_latest(storage.join(place, LATEST), named)
        storage.delete(planned["staging"])
    log.info("compacted log  %s", target)
    return {
        "log": target,
        "window": planned["window"],
        **{name: report[name] for name in (*names, "input_bytes", "output_bytes", "expired_offsets", "expired_groups")},
        "seconds": proved["seconds"],
    }

"""Functions of the tasks of ``offsets_compact``. The core is imported when a task runs, never before.

Below the cluster's state, path or URI, lie the plans:

    _compacted/_plans/<window>/<attempt>/   pin.json (with what the replay found), forecast.json, its records, plan.json

Below ``compaction.output`` of the cluster, ``_compacted`` of its state by default:

    _staging/<DAG run>/<attempt>/   what the app has written and proved, until it is published
    <window>/<attempt>/             a published log
    latest.json                     which of them is the newest
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from dags.common.attempts import attempt_id, now_ms, run_digest
from dags.common.cluster_model import CompactionSettings
from dags.common.clusters import Cluster, load_clusters
from dags.common.links import linked
from dags.common.load import final_errors, replay_rules

if TYPE_CHECKING:
    from coordinator_core.lifecycle.expiring import Tombstones

log = logging.getLogger(__name__)

WORST = 10
"""Groups that the approval page names."""

PIN, PLAN, FORECAST = "pin.json", "plan.json", "forecast.json"
DUE, LATER = "tombstones.jsonl", "forecast.jsonl"
"""Records that expire now, and later: an object a line, as ``regroup expire --format json`` has them."""

Document = dict[str, Any]


def settings_of(cluster: Cluster) -> CompactionSettings:
    """The cluster's settings, or the defaults."""
    return cluster.compaction or CompactionSettings()


@contextmanager
def _final_errors() -> Iterator[None]:
    """A failed proof fails at once, too: another attempt ends the same way."""
    from coordinator_core.lifecycle.compact_proof import ProofFailedError
    from coordinator_core.untrusted import visible

    with final_errors():
        try:
            yield
        except ProofFailedError as error:
            raise AirflowFailException(f"the proof failed, so no retry: {visible(str(error))}") from None


def forecast(pinned: Mapping[str, Any], params: Mapping[str, Any], dag_run: Any, try_number: int) -> dict[str, Any]:
    """Forecasts the size after compaction and the expired offsets, in a directory of this attempt.

    Returns the directory, and numbers for people.
    """
    began = time.monotonic()
    cluster = load_clusters().clusters[params["cluster"]]
    settings = settings_of(cluster)
    now = now_ms(params["now_ms"], dag_run.data_interval_end, dag_run.run_after)
    partial = params["partial"] or cluster.partial
    with _final_errors():
        from coordinator_core import storage
        from coordinator_core.untrusted import visible

        window = storage.split(pinned["runs"])[1]
        attempt = attempt_id(dag_run.run_id, try_number)
        directory = cluster.state_path("_compacted", "_plans", window, attempt)
        document = _forecast(pinned["pin"], directory, cluster, params, now, partial=partial)
    due, later = document["due"], document["later"]
    log.info("%d bytes, of which compaction would leave %d", document["bytes"], document["bytes_left"])
    log.info("%d tombstones are due, %d will be; kept: %s", due, later, document["kept"])
    for failure in document["failures"]:
        log.warning(
            "nothing expires in offsets partition %d: %s", failure["offsets_partition"], visible(failure["detail"])
        )
    return {
        "cluster": cluster.name,
        "directory": directory,
        "place": settings.output or cluster.state_path("_compacted"),
        "window": window,
        "expire": settings.expire if params["expire"] is None else params["expire"],
        "approval_hours": settings.approval_hours,
        "due": due,
        "later": later,
        "bytes": document["bytes"],
        "bytes_left": document["bytes_left"],
        "seconds": round(time.monotonic() - began, 3),
    }


def _forecast(
    pin_path: str, directory: str, cluster: Cluster, params: Mapping[str, Any], now: int, *, partial: bool
) -> Document:
    """Answer of ``regroup expire``, its records in files of their own; sizes, and the other inputs of a plan.

    One offsets partition after the other: of each stay a few numbers. Completes the pin.
    """
    from coordinator_core import files, storage
    from coordinator_core.fold.cache import cache_of_environment
    from coordinator_core.fold.inference import infer_profile
    from coordinator_core.fold.pin import Pin, read_pin, write_pin
    from coordinator_core.lifecycle.approved import expiry_row
    from coordinator_core.lifecycle.compact_plan import CompactionRules
    from coordinator_core.lifecycle.compact_publish import logs_to_compact
    from coordinator_core.lifecycle.expiring import OFFSET_COLUMNS
    from coordinator_core.lifecycle.forecast import forecast
    from coordinator_core.lifecycle.forensics import compacted_sizes
    from coordinator_core.log.reader import OnDamage
    from coordinator_core.runs.local import check_source, merged_one_by_one
    from coordinator_core.runs.place import check_output_outside, source_directories

    pin = read_pin(pin_path)
    check_output_outside(directory, source_directories(pin.snapshot))
    settings = settings_of(cluster)
    on_damage = OnDamage.chosen(partial=partial, salvage=False)
    profile = _profile(cluster, params) or infer_profile(pin.snapshot.partitions)
    check_source(pin, on_damage)
    retention_ms = settings.offsets_retention_ms or profile.expiry.default_offsets_retention_ms
    rules = CompactionRules(now, settings.delete_retention_ms)
    expiry, failures = [], []
    counts: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    fingerprints: dict[str, str] = {}
    next_offsets: dict[str, int] = {}
    logs = logs_to_compact(pin.snapshot, on_damage, [])
    replayed = merged_one_by_one(pin, profile, OFFSET_COLUMNS, on_damage=on_damage, cache=cache_of_environment())
    facts_of_plan: Document = {
        "profile": profile.label,
        "now_ms": now,
        "offsets_retention_ms": retention_ms,
        "partial": partial,
    }
    with ExitStack() as stack:
        made = stack.enter_context(storage.directory_of(directory))
        made.mkdir(parents=True, exist_ok=True)
        due, later = (_lines_into(stack.enter_context((made / name).open("wb"))) for name in (DUE, LATER))
        for log_to_compact, (merged, facts) in zip(logs, replayed, strict=True):
            found = forecast(merged, profile, now_ms=now, offsets_retention_ms=retention_ms, due=due, later=later)
            if found.failure is not None:
                failures.append({"offsets_partition": found.offsets_partition, "detail": found.failure})
            expiry.append(expiry_row(found))
            kept.update(found.kept)
            size, left = compacted_sizes(log_to_compact, rules)
            counts.update(
                {"due": found.tombstones, "later": found.later, "bytes": size.size_bytes, "bytes_left": left.size_bytes}
            )
            fingerprints |= facts.fingerprints
            next_offsets |= facts.next_offsets
        write_pin(Pin(pin.snapshot, fingerprints, next_offsets), str(made / PIN))
        document = {
            "pin": storage.join(directory, PIN),
            **facts_of_plan,
            **{name: counts[name] for name in ("bytes", "bytes_left", "due", "later")},
            "delete_retention_ms": settings.delete_retention_ms,
            "expiry": expiry,
            "kept": {str(reason): count for reason, count in sorted(kept.items())},
            "failures": failures,
        }
        files.write_json(str(made / FORECAST), document)
    return document


def _lines_into(file: IO[bytes]) -> Callable[[Tombstones], None]:
    """What writes blocks of tombstones into ``file``, an object a line."""
    from coordinator_core.reports.expiry import tombstone_lines

    def write(block: Tombstones) -> None:
        file.write(tombstone_lines(block))

    return write


def _profile(cluster: Cluster, params: Mapping[str, Any]) -> Any:
    """The profile that the cluster or the form asks for, ``None`` to infer it from the records."""
    from coordinator_core.releases import chosen_profile

    given = replay_rules(cluster, params)
    rules = dict(zip(given[::2], given[1::2], strict=True))
    return chosen_profile(rules.get("--profile", "auto"), rules.get("--kafka-version"), rules.get("--coordinator"))


def plan(forecasted: Mapping[str, Any], dag_run: Any) -> dict[str, Any]:
    """Settles the plan in a file, whose digest stands for all of it.

    Returns path and digest, the text for an approver, and the arguments of the app.
    """
    directory, expire = forecasted["directory"], forecasted["expire"]
    cluster = load_clusters().clusters[forecasted["cluster"]]
    with _final_errors():
        from coordinator_core import files, storage
        from coordinator_core.lifecycle.approved import plan_document, write_plan

        found = files.read_json(storage.join(directory, FORECAST))
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
                "delete_retention_ms": found["delete_retention_ms"],
            },
        )
        path = storage.join(directory, PLAN)
        digest = write_plan(path, document)
        due = storage.read_lines(storage.join(directory, DUE)) if expire else ()
        body = "\n".join(approval_lines(found, map(json.loads, due), path, digest, lambda path: linked(cluster, path)))
        staging = storage.join(forecasted["place"], "_staging", run_digest(dag_run.run_id))
    expires = found["due"] if expire else 0
    for line in body.splitlines():
        log.info("%s", line)
    return {
        "plan": path,
        "digest": digest,
        "window": forecasted["window"],
        "place": forecasted["place"],
        "staging": staging,
        "expires": expires,
        "not_asked": "" if expires else "nothing expires, so nobody is asked",
        "approval_hours": forecasted["approval_hours"],
        "subject": f"Let {_count(expires)} expire?",
        "body": body,
        "compact_args": ["--plan", path, "--plan-digest", digest, "--output", staging],
    }


def approval_lines(
    found: Mapping[str, Any],
    tombstones: Iterable[Mapping[str, Any]],
    path: str,
    digest: str,
    shown: Callable[[str], str],
) -> Iterator[str]:
    """Expiring records in Markdown: by reason, the groups that lose most, and the path of the whole list.

    ``shown`` makes Markdown of a path.
    """
    yield (f"Compaction of {found['bytes']} bytes, of which about {found['bytes_left']} stay, for {found['profile']}.")
    yield ""
    reasons: Counter[str] = Counter()
    groups: Counter[str] = Counter()
    deleted: set[str] = set()
    for row in tombstones:
        reasons[f"{row['reason']}, {row['kind']}"] += 1
        groups[row["group_id"]] += 1
        if row["kind"] == "group":
            deleted.add(row["group_id"])
    if not groups:
        yield "Nothing expires."
    else:
        yield f"**{_count(reasons.total())} expire**, with a retention of {found['offsets_retention_ms']} ms:"
        yield ""
        yield from (f"- {count} {what}" for what, count in reasons.most_common())
        yield ""
        yield f"Of {len(groups)} groups, {len(deleted)} of which go altogether. Those that lose most:"
        yield ""
        for group_id, count in groups.most_common(WORST):
            gone = ", the group goes" if group_id in deleted else ""
            yield f"- {_code(group_id)}: {count}{gone}"
    yield ""
    every, later = (path.removesuffix(PLAN) + name for name in (DUE, LATER))
    yield f"- every record: {shown(every)}; later ones: {shown(later)}"
    yield f"- plan: {shown(path)}"
    yield f"- SHA-256 of the plan: `{digest}`"


def _count(records: int) -> str:
    return "1 record" if records == 1 else f"{records} records"


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
        from coordinator_core.lifecycle.compact_publish import REPORT
        from coordinator_core.runs.publish import LATEST

        names = ("now_ms", "profile", "partial", "plan_sha256")
        place, window, run_id = planned["place"], planned["window"], storage.split(proved["directory"])[1]
        target = storage.join(place, window, run_id)
        # Already there when this task was ended between the two steps, or cleared.
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

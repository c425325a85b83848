"""Functions of the tasks of ``offsets_load``. The core is imported when a task runs, never before."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow.sdk.exceptions import AirflowFailException

from coordinator_core.durations import numbered
from dags.common.attempts import attempt_id, now_ms, window_key
from dags.common.capture import captured
from dags.common.clusters import Cluster, ClusterFile, load_clusters

log = logging.getLogger(__name__)


@contextmanager
def final_errors() -> Iterator[None]:
    """Damaged input, impossible requests and a disk that does not take the output fail at once: so would a retry."""
    from coordinator_core.errors import DamagedInputError, UsageError, WriteError
    from coordinator_core.untrusted import visible

    try:
        yield
    except DamagedInputError as error:
        raise AirflowFailException(f"damaged input, so no retry: {visible(str(error))}") from None
    except UsageError as error:
        raise AirflowFailException(f"impossible request, so no retry: {visible(str(error))}") from None
    except WriteError as error:
        raise AirflowFailException(f"the disk does not take the output, so no retry: {visible(str(error))}") from None


def pin(params: Mapping[str, Any], dag_run: Any, try_number: int) -> dict[str, Any]:
    """Settles everything that a run depends on and writes the snapshot manifest.

    Returns the inputs of the next tasks: path of the snapshot manifest, arguments of the app, where runs go.
    """
    began = time.monotonic()
    file = load_clusters()
    cluster = file.clusters[params["cluster"]]
    with final_errors():
        window = window_key(params["window"], dag_run.data_interval_start, dag_run.run_after)
    now = now_ms(params["now_ms"], dag_run.data_interval_end, dag_run.run_after)
    sources = _sources(file, cluster, params, window)
    rules = replay_rules(cluster, params)
    partial = params["partial"] or cluster.partial

    with final_errors():
        from coordinator_core import storage
        from coordinator_core.errors import DamagedInputError
        from coordinator_core.fold.pin import write_pin
        from coordinator_core.log.unread import unread_warnings
        from coordinator_core.runs.finding import find_snapshot
        from coordinator_core.runs.place import PINS_DIRECTORY, check_sources
        from coordinator_core.untrusted import visible

        sources = [captured(source, cluster.state_path("_captures")) for source in sources]
        check_sources(cluster.output, cluster.name, sources)
        log.info("looking for segments under %s", ", ".join(sources))
        snapshot = find_snapshot(sources)
        pins = storage.join(cluster.output, cluster.name, PINS_DIRECTORY, window)
        storage.make_directory(pins)
        path = storage.join(pins, f"{attempt_id(dag_run.run_id, try_number)}.json")
        write_pin(snapshot, path)
        runs = storage.join(cluster.output, cluster.name, window)
        segments, partitions = len(snapshot.segments), len(snapshot.partitions)
        log.info("pinned %d segments of %d offsets partitions in %s", segments, partitions, path)
        for text in unread_warnings(snapshot):
            log.warning("%s", visible(text))
        for damage in snapshot.damage:
            if not partial:
                raise DamagedInputError(damage)
            log.warning("%s", visible(str(damage)))
    return {
        "pin": path,
        "runs": runs,
        "replay_args": [
            *("--pin", path),
            *("--output", cluster.output),
            *("--cluster", cluster.name),
            *("--window", window),
            *("--now-ms", str(now)),
            *offsets_partitions(cluster),
            *rules,
            *(["--partial"] if partial else []),
            *(["--no-latest"] if cluster.gate_latest else []),
        ],
        "seconds": round(time.monotonic() - began, 3),
    }


def _sources(file: ClusterFile, cluster: Cluster, params: Mapping[str, Any], window: str) -> list[str]:
    sources = [file.located(path) for path in lines_of(params, "source")] or list(cluster.source)
    return [source.replace("{window}", window) for source in sources]


def lines_of(params: Mapping[str, Any], name: str) -> list[str]:
    """Lines of a field of the form, without blank ones."""
    return [line.strip() for line in (params[name] or "").splitlines() if line.strip()]


def offsets_partitions(cluster: Cluster) -> list[str]:
    """Arguments that say how many offsets partitions the cluster has, where its entry does."""
    count = cluster.offsets_topic_num_partitions
    return [] if count is None else ["--offsets-topic-num-partitions", str(count)]


def replay_rules(cluster: Cluster, params: Mapping[str, Any] = {}) -> list[str]:
    """Arguments that choose the coordinator's rules: those of the form, if it has any, over those of the cluster."""
    profile, release, coordinator = (params.get(name) for name in ("profile", "kafka_version", "coordinator"))
    if profile and (release or coordinator):
        raise AirflowFailException("give either profile, or kafka_version with coordinator: a profile names both")
    if not profile and not release:
        # The cluster's coordinator belongs to the cluster's release.
        profile, release, coordinator = cluster.profile, cluster.kafka_version, coordinator or cluster.coordinator
    if coordinator and not release:
        raise AirflowFailException("coordinator only means something together with kafka_version")
    with final_errors():
        from coordinator_core.releases import chosen_profile

        chosen_profile(profile or "auto", release, coordinator)
    if release:
        return ["--kafka-version", release, *(["--coordinator", coordinator] if coordinator else [])]
    return ["--profile", profile or "auto"]


def summary(pinned: Mapping[str, Any], replayed: Mapping[str, Any]) -> dict[str, Any]:
    """Reads and logs the manifest of the published run, returns the content of the asset event."""
    began = time.monotonic()
    with final_errors():
        from coordinator_core import storage
        from coordinator_core.runs.read import open_run
        from coordinator_core.untrusted import visible

        run = storage.join(pinned["runs"], replayed["run_id"])
        manifest = open_run(run).manifest
    seconds = {
        "pin": pinned["seconds"],
        "replay": replayed["seconds"],
        "summary": round(time.monotonic() - began, 3),
    }
    for line in summary_lines(manifest, run, seconds):
        log.info("%s", visible(line))
    names = ("run_id", "window", "now_ms", "state_hash", "complete", "findings")
    return {"run": run, **{name: manifest[name] for name in names}, "seconds": seconds}


def summary_lines(manifest: Mapping[str, Any], run: str, seconds: Mapping[str, float]) -> list[str]:
    """The run in a few lines for a person."""
    from coordinator_core.ingest.unknown import partial_text
    from coordinator_core.releases import how_inferred

    rows = {table: entry["rows"] for table, entry in manifest["tables"].items()}
    inputs = manifest["inputs"]
    size = sum(entry["bytes"] for entry in inputs)
    segments = numbered(len(inputs), "segment")
    chosen = how_inferred(is_told=rows["record_counts"] > 0) if manifest["profile_inferred"] else "as asked"
    facts = [
        ("run", run),
        ("cluster", f"{manifest['cluster']}, window {manifest['window']}"),
        ("profile", f"{manifest['profile']}, {chosen}"),
        ("input", f"{segments}, {numbered(len(manifest['cut']), 'offsets partition')}, {size} bytes"),
        (
            "complete",
            "yes" if manifest["complete"] else f"NO: {partial_text(manifest['damage'])}, see manifest",
        ),
        ("groups", f"{rows['groups']} with {numbered(rows['members'], 'member')}"),
        ("offsets", f"{rows['offsets']} committed, {rows['pending_offsets']} pending"),
        ("findings", _findings(manifest["findings"])),
        ("state hash", manifest["state_hash"]),
        ("seconds", ", ".join(f"{step} {value:.1f}" for step, value in seconds.items())),
    ]
    if failures := manifest["load_failures"]:
        facts.append(("not loaded", f"{numbered(failures, 'record')} at which a broker of this profile gives up"))
    if carried := manifest["carried_records"]:
        facts.append(("carried", f"{numbered(carried, 'record')} of types or versions that this profile does not know"))
    return [f"{name:<12}{text}" for name, text in facts]


def _findings(counts: Mapping[str, int | None]) -> str:
    """Counts by severity; ``None`` where nobody has applied the rules yet."""
    if None in counts.values():
        return "not looked for yet"
    return ", ".join(f"{count} {severity}" for severity, count in counts.items())

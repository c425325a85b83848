"""``regroup drill predict``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import click

from coordinator_core import storage
from coordinator_core.cli.options import (
    Engine,
    ExistingFile,
    Format,
    ReplayOptions,
    Whole,
    format_option,
    replay_options,
    write_line,
)
from coordinator_core.cli.outputs import refuse_other_file, refuse_read
from coordinator_core.cli.source import (
    already_replayed,
    cluster_of,
    found_beside,
    open_snapshot,
    refuse_other_rules,
    warn_about_damage,
    warn_about_load_failures,
)
from coordinator_core.coordinator.settings import BrokerSettings
from coordinator_core.drill.copies import (
    ClusterLogs,
    Copy,
    cluster_logs,
    copies_of_run,
    copies_of_snapshot,
)
from coordinator_core.drill.loading import (
    LoadSample,
    calibrated,
    machine_calibration,
    read_samples,
    server_log_samples,
)
from coordinator_core.drill.model import PREDICTION_VERSION, Calibration, Objectives, Verdict
from coordinator_core.drill.predict import Situation, predict
from coordinator_core.drill.scenario import Scenario
from coordinator_core.drill.timing import ClusterSettings
from coordinator_core.errors import Damage, ExitCode, UsageError
from coordinator_core.log.discovery import TOPOLOGY_FILE
from coordinator_core.properties import parse_properties
from coordinator_core.releases import Profile, profile_from_label
from coordinator_core.reports.drill_prediction import prediction_text
from coordinator_core.runs.place import is_one_run
from coordinator_core.runs.read import open_run
from coordinator_core.topology import Topology, load_topology
from coordinator_core.untrusted import INT32_END, whole_number

T = TypeVar("T")

_BEGINS = f'{{"version": {PREDICTION_VERSION}, "scenario": '.encode()
"""First bytes of what ``--output`` writes."""
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("predict")
@click.argument("paths", nargs=-1, metavar="[SNAPSHOT…|RUN]")
@click.option(
    "--topology", "topology_file", type=ExistingFile(), help="Topology of the cluster (JSON). [default: beside the log]"
)
@click.option(
    "--scenario",
    required=True,
    metavar="FILE|TEXT",
    help="Scenario: a JSON file, or lose-brokers=1,2, lose-rack=a, rolling-restart, unclean-election=1.",
)
@click.option(
    "--broker",
    "brokers",
    multiple=True,
    metavar="ID=DIR",
    help="Log directory of a broker (repeatable, also for one broker with several): its own copy of each offsets "
    "partition.",
)
@click.option(
    "--server-log",
    "server_logs",
    type=_FILE,
    multiple=True,
    help="Log of a broker of this cluster (repeatable): load times follow from its loads.",
)
@click.option(
    "--load-samples",
    type=_FILE,
    help='Observed loads: JSON lines {"records": 100000, "load_ms": 400, "queued_ms": 0}.',
)
@click.option("--broker-config", type=_FILE, help="server.properties of the brokers (default: Kafka's defaults).")
@click.option(
    "--active-controller", type=Whole(min=0), metavar="ID", help="The controller that decides (default: topology)."
)
@click.option("--rto-ms", type=Whole(min=0), metavar="MS", help="Groups are to be served within this time.")
@click.option("--rpo-ms", type=Whole(min=0), metavar="MS", help="Commits of at most this time may be lost.")
@click.option("--cluster", metavar="NAME", help="Name of the cluster (default: that of the run).")
@click.option("--output", metavar="FILE", help="Also write the JSON to this file.")
@replay_options
@format_option(Format.TEXT, Format.JSON)
def predict_command(
    paths: tuple[str, ...],
    topology_file: str | None,
    scenario: str,
    brokers: tuple[str, ...],
    server_logs: tuple[Path, ...],
    load_samples: Path | None,
    broker_config: Path | None,
    active_controller: int | None,
    rto_ms: int | None,
    rpo_ms: int | None,
    cluster: str | None,
    output: str | None,
    output_format: Format,
    options: ReplayOptions,
) -> int:
    """Predict what losing brokers does to every offsets partition and group. Changes nothing, asks no cluster.

    Groups come from the SNAPSHOT or RUN, or from the leaders' copies among those of --broker. Exit code 1:
    the verdict is not that objectives are met.
    """
    topology_file = topology_file or _beside(paths)
    if output is not None:
        refuse_read(output, [topology_file])
        refuse_other_file(output, _BEGINS, "prediction")
    topology = load_topology(topology_file)
    if active_controller is not None:
        if topology.voters and active_controller not in topology.voters:
            known = ", ".join(map(str, topology.voters))
            raise UsageError(f"--active-controller {active_controller}: the topology has the controllers {known}")
        topology = replace(topology, active_controller_id=active_controller)
    wanted = _scenario(scenario)
    profile, logs, run_cluster, cluster_id = _logs(paths, brokers, topology, options)
    properties = _properties(broker_config)
    situation = Situation(
        topology=replace(topology, cluster_id=cluster_id),
        logs=logs,
        profile=profile,
        calibration=_calibration(server_logs, load_samples, logs),
        cluster=cluster or run_cluster or cluster_id,
        settings=_settings(ClusterSettings.from_properties, properties, broker_config),
        coordinator=_settings(BrokerSettings.from_properties, properties, broker_config),
    )
    prediction = predict(situation, wanted, Objectives(rto_ms, rpo_ms), predicted_at_ms=options.now_ms)
    document = json.dumps(prediction.to_json(), ensure_ascii=False)
    if output is not None:
        storage.write_text(output, f"{document}\n")
    write_line(document if output_format is Format.JSON else prediction_text(prediction))
    return ExitCode.CLEAN if prediction.verdict is Verdict.MET else ExitCode.FINDINGS


def _beside(paths: Sequence[str]) -> str:
    found = found_beside(paths).topology if paths else None
    if found is None:
        raise UsageError(f"no {TOPOLOGY_FILE} lies beside the log; name one: --topology FILE")
    return found


def _scenario(given: str) -> Scenario:
    path = Path(given)
    try:
        is_file = path.is_file()
    except OSError:
        # Longer than the name of a file.
        is_file = False
    return Scenario.parse(storage.read_utf8(path) if is_file else given)


def _logs(
    paths: Sequence[str], brokers: Sequence[str], topology: Topology, options: ReplayOptions
) -> tuple[Profile, ClusterLogs, str | None, str | None]:
    """Profile, copies, the name of the cluster if a run has it, and its id if topology or logs have it."""
    if options.engine is Engine.SPARK:
        raise UsageError("drill predict replays in this process: publish a RUN with --engine spark, and name it")
    if not paths and not brokers:
        raise UsageError("name a SNAPSHOT or RUN, or the log directories of brokers (--broker ID=DIR)")
    cluster: str | None = None
    copies: dict[int, Copy] = {}
    if is_one_run(paths):
        run = open_run(paths[0])
        run.refuse_other_rules()
        if options.profile is not None:
            raise already_replayed(run)
        options = replace(options, profile=profile_from_label(run.profile))
        # Offsets are only looked at beside another copy of them.
        copies, cluster = copies_of_run(run, offsets=bool(brokers)), run.manifest["cluster"]
    elif paths:
        options, copies = _replayed(paths, options)
    by_broker: dict[int, dict[int, Copy]] = {}
    directories = _directories(brokers)
    for broker_id, logs in directories.items():
        options, by_broker[broker_id] = _replayed(logs, options)
    known, whose = topology.cluster_id, "the topology"
    for log in ([*paths], *directories.values()):
        cluster_id = cluster_of(log) if log else None
        if None not in (cluster_id, known) and cluster_id != known:
            raise UsageError(f"{log[0]} is of cluster {cluster_id}, {whose} of {known}: give those of one cluster")
        if known is None and cluster_id is not None:
            known, whose = cluster_id, log[0]
    assert options.profile is not None
    return options.profile, cluster_logs(copies, by_broker, topology), cluster, known


def _directories(brokers: Sequence[str]) -> dict[int, list[str]]:
    """Log directories by broker: a broker with several disks has several."""
    found: dict[int, list[str]] = {}
    for given in brokers:
        name, _, directory = given.partition("=")
        broker_id = whole_number(name, INT32_END)
        if broker_id is None or not directory:
            raise UsageError(f"--broker {given}: expected ID=DIR")
        found.setdefault(broker_id, []).append(directory)
    return found


def _replayed(paths: Sequence[str], options: ReplayOptions) -> tuple[ReplayOptions, dict[int, Copy]]:
    """The copies, and the options with the profile inferred from the first ones."""
    refuse_other_rules(paths)
    snapshot, profile = open_snapshot(paths, options)
    damage: list[Damage] = []
    copies = copies_of_snapshot(snapshot, profile, on_damage=options.on_damage, damage=damage, cache=options.fold_cache)
    warn_about_damage(damage, options.on_damage)
    warn_about_load_failures([copy.state for copy in copies.values()], profile.label)
    return replace(options, profile=profile), copies


def _calibration(server_logs: Sequence[Path], samples_file: Path | None, logs: ClusterLogs) -> Calibration:
    samples: list[LoadSample] = []
    method = "samples"
    if samples_file is not None:
        samples += read_samples(samples_file)
    records = {number: copy.records for number, copy in logs.copies.items()}
    for path in server_logs:
        with path.open(encoding="utf-8", errors="replace") as lines:
            samples += server_log_samples(lines, records)
        method = "server-log"
    if server_logs and not samples:
        raise UsageError(f"{server_logs[0]}: no load of an offsets partition is logged")
    return calibrated(samples, method) if samples else machine_calibration()


def _properties(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    return parse_properties(storage.read_utf8(path))


def _settings(read: Callable[[Mapping[str, str]], T], properties: dict[str, str], path: Path | None) -> T:
    try:
        return read(properties)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None

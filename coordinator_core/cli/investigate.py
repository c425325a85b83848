"""``regroup investigate``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from coordinator_core.cli.options import (
    Format,
    ReplayOptions,
    format_option,
    note,
    replay_options,
    time_ms,
    topics_option,
    write_pieces,
)
from coordinator_core.cli.retention import offsets_retention_option
from coordinator_core.cli.source import found_beside, log_of, open_snapshot, refuse_other_rules, warn_about_damage
from coordinator_core.cli.undo import undo_of
from coordinator_core.errors import Damage, ExitCode, UsageError
from coordinator_core.groups.hashing import DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS, partition_for
from coordinator_core.history.model import OriginKind
from coordinator_core.history.origins import kind_of_group
from coordinator_core.ingest.unknown import is_unknown
from coordinator_core.investigate.investigate import LARGE_BYTES, Investigation, investigate, size_of, worst
from coordinator_core.investigate.model import Case
from coordinator_core.investigate.symptoms import codes_for, known_symptoms
from coordinator_core.log.types import Snapshot
from coordinator_core.reports.investigation_files import investigation_forms, write_investigation
from coordinator_core.rules.model import Severity
from coordinator_core.rules.topics import configured_retention_ms, read_topics
from coordinator_core.rules.transaction_log import read_transaction_log
from coordinator_core.topology import load_topology


@click.command("investigate")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT|RUN")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group (repeatable).")
@click.option("--since", metavar="TIME", help="Only events from then on: 2026-05-12T02:00, or epoch ms.")
@click.option("--symptom", metavar="TEXT", help="Only explanations of this: an error, or a symptom.")
@topics_option
@click.option("--topology", "topology_file", metavar="FILE", help="topology.json. [default: beside the log]")
@offsets_retention_option
@replay_options
@format_option(Format.TEXT, Format.JSON, Format.CSV, Format.HTML)
@click.option(
    "--output",
    metavar="DIR",
    help="Write investigation.html, .json and offsets.csv into this directory, too.",
)
def investigate_command(
    paths: tuple[str, ...],
    groups: tuple[str, ...],
    since: str | None,
    symptom: str | None,
    topics_file: str | None,
    topology_file: str | None,
    offsets_retention_ms: int | None,
    output_format: Format,
    output: str | None,
    options: ReplayOptions,
) -> int:
    """Explain the troubles of GROUP, or of the whole cluster, worst first: verdict, what led there, which records show
    it, what it is not, what to do now, and what to save before it goes.

    Of a RUN, the logs that it was made from are read again. CSV is what to put back, for
    kafka-consumer-groups --from-file; HTML is one page with pictures, which needs nothing but itself.
    """
    wanted = _codes(symptom)
    beside = found_beside(paths)
    topics_path, topology = topics_file or beside.topics, topology_file or beside.topology
    topics = None if topics_path is None else read_topics(topics_path)
    paths, options = log_of(paths, options)
    refuse_other_rules(paths)
    snapshot, profile = open_snapshot(paths, options)
    brokers = None if topology is None else load_topology(Path(topology))
    damage: list[Damage] = [entry for entry in snapshot.damage if is_unknown(entry)]
    if not groups and (size := size_of(snapshot)) > LARGE_BYTES:
        note(f"regroup: {size / 1e6:,.0f} MB are read in portions of groups, some MB a second; --group takes seconds")
    found = investigate(
        snapshot,
        Case(
            profile,
            options.now_ms,
            offsets_retention_ms or configured_retention_ms(topics),
            topics,
            brokers,
            read_transaction_log(*beside.transaction_log).names if beside.transaction_log else {},
        ),
        groups=groups or None,
        since_ms=None if since is None else time_ms(since, "--since"),
        on_damage=options.on_damage,
        damage=damage,
    )
    warn_about_damage(damage, options.on_damage)
    _check_groups(groups, found, snapshot)
    if wanted is not None:
        found = replace(found, explanations=[one for one in found.explanations if one.code in wanted])
        note(f"regroup: looked for {', '.join(wanted)}")
    forms = investigation_forms(
        found,
        profile=profile.label,
        now_ms=options.now_ms,
        sources=paths,
        of_groups=bool(groups),
        undo=undo_of(paths, options.profile, options.on_damage, brokers),
    )
    if output is not None:
        note(f"regroup: the page is {write_investigation(output, forms)}")
    write_pieces(forms[output_format]())
    severity = worst(found.explanations)
    return ExitCode.FINDINGS if severity is not None and severity > Severity.INFO else ExitCode.CLEAN


def _codes(symptom: str | None) -> tuple[str, ...] | None:
    if symptom is None:
        return None
    codes = codes_for(symptom)
    if codes is None:
        raise UsageError(
            f"nothing is known of the symptom {symptom!r}; known ones are like: {', '.join(known_symptoms())}"
        )
    return codes


def _check_groups(groups: tuple[str, ...], found: Investigation, snapshot: Snapshot) -> None:
    known = {group.group_id for group in found.groups}
    for group_id in groups:
        if group_id not in known:
            raise UsageError(f"no record in this log concerns group {group_id!r}; {_why_not_here(group_id, snapshot)}")


def _why_not_here(group_id: str, snapshot: Snapshot) -> str:
    """Reasons why a group that people look for is in no record."""
    numbers = {log.offsets_partition for log in snapshot.partitions}
    home = partition_for(group_id)
    if home not in numbers:
        return (
            f"of {DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS} offsets partitions, the default, its records are in {home}, "
            "which is not in this log"
        )
    reasons = "its id is written differently, it is in another cluster, or it went and the cleaner took all of it"
    kind = kind_of_group(group_id)
    if kind in (OriginKind.FLINK, OriginKind.SPARK):
        return f"{kind.value} keeps offsets in its checkpoints, and commits here only if it is told to; or {reasons}"
    return f"clients that keep their offsets elsewhere neither join nor commit; or {reasons}"

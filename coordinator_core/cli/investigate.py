"""``regroup investigate``."""

from __future__ import annotations

import sys

import click

from coordinator_core.cli.not_here import why_not_here
from coordinator_core.cli.options import (
    Format,
    ReplayOptions,
    format_option,
    group_option,
    log_options,
    note,
    time_ms,
    topics_option,
    write_pieces,
)
from coordinator_core.cli.retention import offsets_retention_option
from coordinator_core.cli.source import found_beside, open_to_read, warn_about_damage
from coordinator_core.cli.undo import undo_of
from coordinator_core.errors import ExitCode, UsageError
from coordinator_core.investigate.investigate import investigate, size_of, worst
from coordinator_core.investigate.model import Case
from coordinator_core.investigate.symptoms import codes_for, known_symptoms
from coordinator_core.process.workers import LARGE_BYTES, most_workers
from coordinator_core.reports.investigation_files import investigation_forms, write_investigation
from coordinator_core.rules.model import Severity
from coordinator_core.rules.topics import configured_retention_ms, read_topics
from coordinator_core.rules.transaction_log import read_transaction_log
from coordinator_core.topology import load_topology
from coordinator_core.untrusted import visible


@click.command("investigate")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT…|RUN")
@group_option
@click.option("--since", metavar="TIME", help="Only events from then on: 2026-05-12T02:00, or epoch ms.")
@click.option("--symptom", metavar="TEXT", help="Only explanations of this: an error, or a symptom.")
@topics_option
@click.option("--topology", "topology_file", metavar="FILE", help="topology.json. [default: beside the log]")
@offsets_retention_option
@log_options
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

    Of a RUN, the logs that it was made from are read again, as far as it has read them. CSV is what to put back, for
    kafka-consumer-groups --from-file; HTML is one page with pictures, which needs nothing but itself.
    """
    wanted = _codes(symptom)
    beside = found_beside(paths)
    topics_path, topology = topics_file or beside.topics, topology_file or beside.topology
    topics = None if topics_path is None else read_topics(topics_path)
    snapshot, options, damage, profile = open_to_read(paths, options)
    brokers = None if topology is None else load_topology(topology)
    if not groups and (size := size_of(snapshot)) > LARGE_BYTES:
        note(f"regroup: {size / 1e6:,.0f} MB are read in portions of groups, some MB a second; --group takes seconds")
    found = investigate(
        snapshot,
        Case(
            profile,
            options.now_ms,
            offsets_retention_ms,
            topics,
            brokers,
            read_transaction_log(*beside.transaction_log).names if beside.transaction_log else {},
            configured_retention_ms(topics),
        ),
        groups=groups or None,
        since_ms=None if since is None else time_ms(since, "--since"),
        on_damage=options.on_damage,
        damage=damage,
        workers=most_workers(),
    )
    warn_about_damage(damage, options.on_damage)
    known = {group.group_id for group in found.groups}
    for group_id in groups:
        if group_id not in known:
            raise UsageError(why_not_here(group_id, paths, snapshot, profile, options, topology=brokers, topics=topics))
    if wanted is not None:
        found = found.keep(lambda one: one.code in wanted)
        note(f"regroup: looked for {', '.join(wanted)}")
    forms = investigation_forms(
        found,
        profile=profile.label,
        now_ms=options.now_ms,
        sources=snapshot.sources,
        of_groups=bool(groups),
        undo=undo_of(snapshot.sources, options.profile, options.on_damage, brokers),
    )
    if output is not None:
        note(f"regroup: the page is {write_investigation(output, forms)}")
    pieces = iter(forms[output_format]())
    if output_format is Format.CSV and sys.stdout.isatty():
        # Programs get the names as they are; a terminal obeys control characters.
        pieces = (f"{visible(line.removesuffix(chr(10)))}\n" for line in pieces)
    write_pieces(pieces)
    severity = worst(found.explanations)
    return ExitCode.FINDINGS if severity is not None and severity > Severity.INFO else ExitCode.CLEAN


def _codes(symptom: str | None) -> tuple[str, ...] | None:
    if symptom is None:
        return None
    codes = codes_for(symptom)
    if codes is None:
        raise UsageError(
            f"nothing is known of the symptom {symptom!r}; known ones are like: {', '.join(known_symptoms())}; "
            "leave out --symptom to look for everything"
        )
    return codes

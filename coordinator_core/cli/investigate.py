"""``regroup investigate``."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import click

from coordinator_core.cli.options import (
    Format,
    format_option,
    note,
    replay_options,
    replay_options_from,
    write_line,
)
from coordinator_core.cli.retention import offsets_retention_option
from coordinator_core.cli.source import found_beside, open_snapshot, warn_about_damage
from coordinator_core.errors import Damage, ExitCode, UsageError
from coordinator_core.ingest.unknown import is_unknown
from coordinator_core.investigate.investigate import Investigation, investigate, worst
from coordinator_core.investigate.model import Case
from coordinator_core.investigate.symptoms import codes_for, known_symptoms
from coordinator_core.releases import profile_from_label
from coordinator_core.reports.investigation_files import investigation_forms, write_investigation
from coordinator_core.rules.model import Severity
from coordinator_core.rules.topics import read_topics
from coordinator_core.runs.read import is_run, open_run


@click.command("investigate")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT|RUN")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group (repeatable).")
@click.option("--since", metavar="TIME", help="Only what happened from then on: 2026-05-12T02:00, or epoch ms.")
@click.option("--symptom", metavar="TEXT", help="Only what explains this: an error, or what is seen.")
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
    offsets_retention_ms: int | None,
    output_format: Format,
    output: str | None,
    **replay: Any,
) -> int:
    """What happened to GROUP, or in the whole cluster, worst first: verdict, what led there, which records show it,
    what it is not, what to do now, and what to save before it goes.

    Of a RUN, the logs that it was made from are read again. CSV is what to put back, for
    kafka-consumer-groups --from-file; HTML is one page with pictures, which needs nothing but itself.
    """
    options = replay_options_from(**replay)
    wanted = _codes(symptom)
    offsets_retention_ms = offsets_retention_ms or _configured_retention_ms(paths)
    if len(paths) == 1 and is_run(paths[0]):
        run = open_run(paths[0])
        paths = tuple(run.manifest["sources"])
        options = replace(options, profile=options.profile or profile_from_label(run.profile))
    snapshot, profile = open_snapshot(paths, options)
    damage: list[Damage] = [entry for entry in snapshot.damage if is_unknown(entry)]
    found = investigate(
        snapshot,
        Case(profile, options.now_ms, offsets_retention_ms),
        groups=groups or None,
        since_ms=_time(since),
        on_damage=options.on_damage,
        damage=damage,
    )
    warn_about_damage(damage, options.on_damage)
    _check_groups(groups, found)
    if wanted is not None:
        found = replace(found, explanations=[one for one in found.explanations if one.code in wanted])
        note(f"regroup: looked for {', '.join(wanted)}")
    forms = investigation_forms(
        found, profile=profile.label, now_ms=options.now_ms, sources=paths, of_groups=bool(groups)
    )
    if output is not None:
        note(f"regroup: the page is {write_investigation(output, forms)}")
    for line in forms[output_format]():
        write_line(line)
    severity = worst(found.explanations)
    return ExitCode.FINDINGS if severity is not None and severity > Severity.INFO else ExitCode.CLEAN


def _configured_retention_ms(paths: tuple[str, ...]) -> int | None:
    """``offsets.retention.minutes`` of the brokers, where a capture beside the log has it."""
    topics = found_beside(paths).topics
    found = None if topics is None else read_topics(topics).offsets_topic.thresholds.get("offsets_retention_ms")
    return None if found is None else int(found)


def _codes(symptom: str | None) -> tuple[str, ...] | None:
    if symptom is None:
        return None
    codes = codes_for(symptom)
    if codes is None:
        raise UsageError(
            f"nothing is known of the symptom {symptom!r}; known ones are like: {', '.join(known_symptoms())}"
        )
    return codes


def _time(text: str | None) -> int | None:
    if text is None or text.isdigit():
        return None if text is None else int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--since {text}: expected a time like 2026-05-12T02:00, or epoch milliseconds") from None
    return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _check_groups(groups: tuple[str, ...], found: Investigation) -> None:
    known = {group.group_id for group in found.groups}
    for group_id in groups:
        if group_id not in known:
            raise UsageError(f"no record in this log concerns group {group_id!r}")

"""``regroup audit export``."""

from __future__ import annotations

from dataclasses import replace

import click

from coordinator_core import storage
from coordinator_core.cli.history import asked_of, warn_about_absent
from coordinator_core.cli.not_here import has_record, why_not_here
from coordinator_core.cli.options import ReplayOptions, log_options, note, write_line
from coordinator_core.cli.retention import offsets_retention_option
from coordinator_core.cli.signing import Signing, sign_key_option
from coordinator_core.cli.source import warn_about_damage
from coordinator_core.durations import noun
from coordinator_core.errors import UsageError
from coordinator_core.investigate.words import count, were
from coordinator_core.reports.evidence import (
    STATEMENT,
    Previous,
    Statement,
    export_evidence,
    other_options,
    read_statement,
)
from coordinator_core.untrusted import visible


@click.command("export")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT…|RUN")
@click.option("--output", required=True, metavar="DIR", help="New directory for the evidence.")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only of this group (repeatable).")
@click.option("--previous", metavar="RUN", help="Directory of the evidence before: the new one names it.")
@sign_key_option("the statement")
@offsets_retention_option
@log_options
def export_command(
    paths: tuple[str, ...],
    output: str,
    groups: tuple[str, ...],
    previous: str | None,
    sign_key: str | None,
    offsets_retention_ms: int | None,
    options: ReplayOptions,
) -> None:
    """Write evidence: history.jsonl with every value of every offset key, who committed it, what ended it, and the
    segment and byte that say so; and statement.json, an in-toto Statement with the SHA-256 of that file and of each
    segment. Prints the SHA-256 of the statement.

    Of a RUN, the logs that it was made from are read again, as far as it has read them. A --group of which the log has
    no record is refused, unless the evidence before is of it, too.
    """
    signing = Signing(sign_key)
    before = None if previous is None else read_statement(previous)
    snapshot, asked, damage = asked_of(paths, output, groups, offsets_retention_ms, options)

    def check_absent(absent: set[str]) -> None:
        # A group of the evidence before was there: that nothing is known of it any more is evidence.
        known = set() if before is None else set(before.evidence.groups or ())
        reading = replace(options, on_damage=asked.on_damage)
        for group_id in sorted(absent - known):
            if not has_record(group_id, snapshot, reading):
                raise UsageError(why_not_here(group_id, paths, snapshot, asked.profile, reading))
        warn_about_absent(absent)

    made = export_evidence(
        output,
        snapshot,
        asked,
        damage,
        now_ms=options.now_ms,
        previous=before,
        sign=signing.content,
        check_absent=check_absent,
    )
    warn_about_damage(damage, asked.on_damage)
    if before is not None:
        warn_about_other_options(made, before)
    if made.evidence.previous is not None:
        _tell_losses(made.evidence.previous)
    segments = sum(len(one.segments) for one in made.evidence.partitions)
    note(f"regroup: {count(made.evidence.rows, 'row')} of {count(segments, 'segment')} are evidence in {output}")
    write_line(f"{made.sha256}  {visible(storage.join(output, STATEMENT))}")


def warn_about_other_options(statement: Statement, before: Statement) -> None:
    """A chain of which not all statements are of the same groups, say, does not tell what the name of one promises."""
    if others := other_options(statement.evidence, before.evidence):
        names = ", ".join(others)
        note(f"regroup: warning: {statement.directory} follows {before.directory}, and has other options: {names}")


def _tell_losses(previous: Previous) -> None:
    for gap in previous.gaps:
        end = "the partition is gone" if gap.to_offset is None else f"up to {gap.to_offset}"
        text = f"offsets partition {gap.offsets_partition}, from record offset {gap.from_offset} on, {end}"
        note(f"regroup: warning: no evidence of {text}")
    for number, missing in previous.missing.items():
        further = missing - sum(
            gap.to_offset - gap.from_offset
            for gap in previous.gaps
            if gap.to_offset is not None and gap.offsets_partition == int(number)
        )
        if further > 0:
            text = f"{further} more {noun(further, 'record')} of offsets partition {number} behind the evidence before"
            note(f"regroup: warning: no evidence of {text}: the cleaner has removed them")
    if previous.rewritten:
        first = previous.rewritten[0]
        said = were(len(previous.rewritten), "segment")
        note(f"regroup: warning: {said} rewritten since the evidence before: {first}")

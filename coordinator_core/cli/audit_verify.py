"""``regroup audit verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from coordinator_core.cli.audit_export import warn_about_other_options
from coordinator_core.cli.options import Format, format_option, note, write_json, write_line
from coordinator_core.durations import numbered
from coordinator_core.errors import ExitCode
from coordinator_core.investigate.words import count, were
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.reports.evidence import Statement, read_statement
from coordinator_core.reports.evidence_check import CheckedEvidence, check_evidence
from coordinator_core.untrusted import visible

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


_PAST = {OnDamage.SALVAGE: "with --salvage", OnDamage.RECOVER: "with --partial"}


@click.command("verify")
@click.argument("directories", nargs=-1, required=True, metavar="DIR…")
@click.option(
    "--log",
    "logs",
    multiple=True,
    metavar="SNAPSHOT",
    help="Log, or a later copy of it, that the rows must follow from.",
)
@click.option("--public-key", metavar="FILE", help="Each statement must be signed by this key's owner (PEM).")
@format_option(Format.TEXT, Format.JSON)
def verify_command(
    directories: tuple[str, ...], logs: tuple[str, ...], public_key: str | None, output_format: Format
) -> int:
    """Check evidence of regroup audit export. Several directories must be a chain, the oldest first: each statement
    names the one before by its SHA-256.

    With --log the rows are made again from the bytes that the evidence names, and compared. Exit code 3 when anything
    is not as it was published.
    """
    key = _key(public_key)
    snapshot = discover(logs) if logs else None
    checked: list[CheckedEvidence] = []
    before: Statement | None = None
    for directory in directories:
        statement = read_statement(directory)
        checked.append(check_evidence(statement, before, snapshot, key))
        if before is not None:
            warn_about_other_options(statement, before)
        before = statement
    first = checked[0].statement
    if (earlier := first.evidence.previous) is not None:
        told = f"it follows statement {earlier.statement_sha256}, which is not given"
        note(f"regroup: {first.directory}: {told}: what lies between the two is not checked")
    if snapshot is None:
        note("regroup: the rows are compared with no log: give --log")
    if key is None:
        note("regroup: signatures are not checked: give --public-key")
    damage = [one for found in checked for one in found.damage]
    status = "damaged" if damage else "clean"
    if output_format is Format.JSON:
        statements = [one.as_dict() for one in checked]
        write_json({"status": status, "statements": statements, "damage": [one.as_dict() for one in damage]})
    else:
        for found in checked:
            write_line(f"{found.statement.sha256}  {visible(found.statement.directory)}: {_said(found)}")
        for one in damage:
            write_line(visible(str(one)))
        write_line(
            f"{status}: {numbered(len(checked), 'statement')}"
            + (f", {numbered(len(damage), 'place')} damaged" if damage else "")
        )
    return ExitCode.DAMAGED_INPUT if damage else ExitCode.CLEAN


def _said(found: CheckedEvidence) -> str:
    evidence = found.statement.evidence
    missing = sum(one.missing_offsets for one in evidence.partitions)
    read = sum(one.end_offset - one.first_offset for one in evidence.partitions)
    said = f"{count(evidence.rows, 'row')} of {count(read, 'record offset')}"
    said += f", of which {missing:,} have no record any more" if missing else ""
    if evidence.damage:
        said += f"; {were(len(evidence.damage), 'place')} damaged, and read {_PAST[evidence.on_damage]}"
    return said if evidence.groups is None else f"{said}; only of {', '.join(map(repr, evidence.groups))}"


def _key(path: str | None) -> Ed25519PublicKey | None:
    if path is None:
        return None
    # Loaded here: it takes longer than most checks.
    from coordinator_core.runs.signature import read_public_key

    return read_public_key(path)

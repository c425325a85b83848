"""``regroup restore apply``, ``verify`` and ``rollback``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from coordinator_core import storage
from coordinator_core.cli.options import (
    Finite,
    Format,
    client_options,
    format_option,
    group_option,
    note,
    write_json,
    write_line,
    write_result,
)
from coordinator_core.cli.outputs import refuse_other_file, refuse_read
from coordinator_core.drill.journal import JOURNAL
from coordinator_core.durations import numbered
from coordinator_core.errors import ExitCode, UsageError
from coordinator_core.releases import chosen_profile
from coordinator_core.reports.restore import proof_text
from coordinator_core.restore.model import PLAN_BEGINS, read_plan, write_plan
from coordinator_core.untrusted import visible

if TYPE_CHECKING:
    from coordinator_core.cluster.restore_apply import GroupResult

_ERRORS_SHOWN = 20


@click.command("apply")
@click.argument("plan_path", metavar="PLAN")
@client_options
@click.option("--execute", is_flag=True, help="Write; without it all but ACLs is checked and nothing written.")
@click.option(
    "--output",
    metavar="DIR",
    help="Where plan, journal and capture go; the same directory goes on with an apply that was cut off.",
)
@click.option(
    "--wait-empty",
    type=Finite(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Wait so long for groups to lose their members and for transactions to end.",
)
@click.option("--plan-digest", metavar="SHA256", help="Digest of the plan that was approved: no other is applied.")
@click.option(
    "--parallel",
    type=click.IntRange(min=1, max=64),
    default=4,
    show_default=True,
    help="Groups of one coordinator at a time.",
)
@format_option(Format.TEXT, Format.JSON)
def apply_command(
    plan_path: str,
    bootstrap_server: str,
    command_config: str | None,
    execute: bool,
    output: str | None,
    wait_empty: float,
    plan_digest: str | None,
    parallel: int,
    output_format: Format,
) -> int:
    """Carry out PLAN: group by group, after everything in it has been read again and the offsets topic captured.

    Exits with 2 when it is refused and nothing is written, with 4 when a partition or a group failed.
    """
    from coordinator_core.cluster.client import Client
    from coordinator_core.cluster.restore_apply import ApplyOptions, apply_plan, begun_apply, standing, written_groups
    from coordinator_core.cluster.settings import read_settings

    if execute and output is None:
        raise UsageError("--execute needs --output: the journal that undoes it has to be somewhere")
    options = ApplyOptions(wait_empty, parallel, plan_digest, lambda text: note(f"regroup: {text}"))
    if execute and output is not None:
        with Client(read_settings(bootstrap_server, command_config)) as client:
            digest, results = apply_plan(client, plan_path, output, options)
        return _said(digest, results, output, output_format)
    plan, digest = read_plan(plan_path, plan_digest)
    with Client(read_settings(bootstrap_server, command_config)) as client:
        events = [] if output is None else begun_apply(output, digest)
        found = standing(client, plan, events, options)
    written = written_groups(events)
    writing = [group for group in plan.writing() if group.group_id not in written]
    if output_format is Format.JSON:
        document = {"plan_digest": digest, "execute": False, "refused": [one.text for one in found]}
        write_json(document | {"groups": [group.group_id for group in writing]})
    else:
        rows = sum(len(list(group.writes())) for group in writing)
        if found:
            what = "is refused" if rows == 1 else "are refused"
        else:
            what = "would be written, but for what is there already; --execute does it"
        write_line(f"dry run:    {numbered(rows, 'offset')} of {numbered(len(writing), 'group')} {what}")
    for one in found[:_ERRORS_SHOWN]:
        note(f"regroup: refused: {one.text}")
    if len(found) > _ERRORS_SHOWN:
        note(f"regroup: refused: {numbered(len(found) - _ERRORS_SHOWN, 'reason')} more")
    return ExitCode.USAGE if found else ExitCode.CLEAN


def _said(digest: str, results: Sequence[GroupResult], output: str, output_format: Format) -> int:
    failed = [one for one in results if one.errors]
    if output_format is Format.JSON:
        groups = [
            {
                "group_id": one.group_id,
                "written": one.written,
                "errors": [
                    {"topic": topic, "partition": partition, "error": error} for topic, partition, error in one.errors
                ],
            }
            for one in results
        ]
        write_json({"plan_digest": digest, "execute": True, "groups": groups})
    else:
        written = numbered(sum(one.written for one in results), "offset")
        write_line(f"applied:    {numbered(len(results) - len(failed), 'group')}, {written} written by this call")
        write_line(f"failed:     {numbered(len(failed), 'group')}")
        write_line(f"journal:    {visible(storage.join(output, JOURNAL))}")
    errors = [(one.group_id, *error) for one in failed for error in one.errors]
    for group_id, topic, partition, error in errors[:_ERRORS_SHOWN]:
        where = "" if topic is None else f", {topic}-{partition}"
        note(f"regroup: failed: group {group_id!r}{where}: {error}")
    if len(errors) > _ERRORS_SHOWN:
        note(f"regroup: failed: {len(errors) - _ERRORS_SHOWN} more (the journal has all)")
    return ExitCode.APPLY_FAILED if failed else ExitCode.CLEAN


def _directory(given: str) -> str:
    """The directory of an apply, also where its journal is named, as ``apply`` prints it."""
    above, name = storage.split(given)
    return above if name == JOURNAL else given


@click.command("verify")
@click.argument("directory", metavar="DIR")
@client_options
@click.option("--kafka-version", metavar="RELEASE", help="Rules of this Kafka release (default: as the records tell).")
@click.option("--coordinator", type=click.Choice(["classic", "new"]), help="With --kafka-version: which coordinator.")
@format_option(Format.TEXT, Format.JSON)
def verify_command(
    directory: str,
    bootstrap_server: str,
    command_config: str | None,
    kafka_version: str | None,
    coordinator: str | None,
    output_format: Format,
) -> int:
    """Prove what the apply in DIR wrote: the offsets topic is captured again, the records that were added are exactly
    the planned ones, and the replay and the coordinators have the state that the plan foresaw.

    Exits with 4 when anything else is found.
    """
    from coordinator_core.cluster.client import Client
    from coordinator_core.cluster.restore_verify import verify
    from coordinator_core.cluster.settings import read_settings

    profile = chosen_profile("auto", kafka_version, coordinator)
    with Client(read_settings(bootstrap_server, command_config)) as client:
        proof = verify(client, _directory(directory), profile)
    write_result(output_format, proof.document(), proof_text(proof))
    return ExitCode.APPLY_FAILED if proof.problems else ExitCode.CLEAN


@click.command("rollback")
@click.argument("directory", metavar="DIR")
@client_options
@group_option
@click.option("--output", "plan_path", required=True, metavar="PLAN", help="Where the plan is written.")
@format_option(Format.TEXT, Format.JSON, Format.CSV, Format.HTML)
def rollback_command(
    directory: str,
    bootstrap_server: str,
    command_config: str | None,
    groups: tuple[str, ...],
    plan_path: str,
    output_format: Format,
) -> int:
    """Plan the way back of the apply in DIR: offsets as they were, and what was made is deleted.

    The plan is applied and verified as every other. Exits with 1 when a part of it is blocked.
    """
    from coordinator_core.cli.restore_plan import show_plan
    from coordinator_core.cluster.client import Client
    from coordinator_core.cluster.restore_apply import PLAN
    from coordinator_core.cluster.restore_verify import rollback_plan
    from coordinator_core.cluster.settings import read_settings

    directory = _directory(directory)
    refuse_read(plan_path, [storage.join(directory, each) for each in (PLAN, JOURNAL)])
    refuse_other_file(plan_path, PLAN_BEGINS, "plan")
    with Client(read_settings(bootstrap_server, command_config)) as client:
        plan = rollback_plan(client, directory, groups)
    write_plan(plan_path, plan)
    show_plan(plan, output_format)
    return ExitCode.CLEAN if plan.obstacle() is None else ExitCode.FINDINGS

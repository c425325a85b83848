"""``regroup prune``."""

from __future__ import annotations

import click

from coordinator_core.cli.options import Finite, Format, Whole, format_option, write_result
from coordinator_core.durations import clock_ms
from coordinator_core.errors import ExitCode, UsageError
from coordinator_core.runs.place import check_component
from coordinator_core.runs.prune import KINDS, Keep, prunable, prune
from coordinator_core.untrusted import visible


@click.command("prune")
@click.argument("output", metavar="OUTPUT")
@click.option("--cluster", required=True, metavar="NAME", help="Cluster whose old runs and pins go.")
@click.option(
    "--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Only these (repeatable). Default: all kinds."
)
@click.option("--keep", "newest", type=Whole(min=1), metavar="N", help="The newest N of each kind stay.")
@click.option("--keep-days", "days", type=Finite(min=1), metavar="D", help="Younger ones stay.")
@click.option("--apply", is_flag=True, help="Delete. Without it nothing is changed.")
@click.option("--now-ms", type=Whole(min=0), metavar="MS", help="The time to judge by. Default: the clock.")
@format_option(Format.TEXT, Format.JSON)
def prune_command(
    output: str,
    cluster: str,
    kinds: tuple[str, ...],
    newest: int | None,
    days: float | None,
    apply: bool,
    now_ms: int | None,
    output_format: Format,
) -> int:
    """Say which published runs and pins below OUTPUT are old, and delete them with --apply.

    A run that latest.json names, or that the findings about a newer one compare with, stays, as does everything of
    the last day.
    """
    check_component("cluster", cluster)
    if newest is None and days is None:
        raise UsageError("--keep, --keep-days: say what stays")
    now = clock_ms() if now_ms is None else now_ms
    removals = prunable(output, cluster, dict.fromkeys(kinds or KINDS, Keep(newest, days)), now)
    if apply:
        prune(removals)
    document = {"applied": apply, "removals": [removal.as_dict() for removal in removals]}
    lines = [f"{removal.kind}  {visible(removal.paths[-1])}" for removal in removals]
    done = "deleted" if apply else "would be deleted; --apply deletes"
    write_result(output_format, document, [*lines, f"{len(removals)} {done}"])
    return ExitCode.CLEAN

"""``regroup capture``."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from coordinator_core.cli.options import (
    Format,
    Whole,
    client_options,
    format_option,
    note,
    require_topic_names,
    write_json,
    write_line,
)
from coordinator_core.cli.undo import undo_commands
from coordinator_core.durations import numbered
from coordinator_core.errors import ExitCode
from coordinator_core.releases import chosen_profile
from coordinator_core.untrusted import shell_words, visible

_SHOW_BYTES = 1_000_000
_UNDO_SHOWN = 5


@click.command("capture")
@client_options
@click.option("--output", required=True, metavar="DIR", help="Where the snapshot is written, local or a URI.")
@click.option("--byte-rate", type=Whole(min=1), metavar="BYTES", help="At most so many bytes a second.")
@click.option("--replica", type=Whole(min=0), metavar="BROKER", help="Fetch from this broker instead of the leaders.")
@click.option(
    "--topic-also",
    "topics_also",
    multiple=True,
    metavar="TOPIC",
    help="Capture this topic too, such as __transaction_state (repeatable).",
)
@click.option(
    "--check-groups",
    is_flag=True,
    help="Replay the captured log and compare it with the groups that the coordinators describe.",
)
@click.option("--kafka-version", metavar="RELEASE", help="Rules of this Kafka release, for --check-groups and undo.")
@click.option(
    "--coordinator",
    type=click.Choice(["classic", "new"]),
    help="With --kafka-version: which coordinator, for releases that have both.",
)
@format_option(Format.TEXT, Format.JSON)
def capture_command(
    bootstrap_server: str,
    output: str,
    command_config: str | None,
    byte_rate: int | None,
    replica: int | None,
    topics_also: tuple[str, ...],
    check_groups: bool,
    kafka_version: str | None,
    coordinator: str | None,
    output_format: Format,
) -> int:
    """Fetch __consumer_offsets from a live cluster, byte for byte, into a snapshot.

    Run it again to bring the snapshot up to now: what it holds is compared and kept, what is new is fetched. Where it
    shows that offsets were deleted or reset in the last day, the command is printed that plans to put them back.
    """
    from coordinator_core.cluster.capture import CaptureOptions, capture
    from coordinator_core.cluster.client import Client
    from coordinator_core.cluster.settings import read_settings

    require_topic_names(topics_also, "--topic-also")
    options = CaptureOptions(
        byte_rate=byte_rate,
        replica=replica,
        topics_also=topics_also,
        check_groups=check_groups,
        profile=chosen_profile("auto", kafka_version, coordinator),
    )
    with Client(read_settings(bootstrap_server, command_config)) as client:
        manifest = capture(client, output, options, progress=_progress())
    undo = undo_commands(output, bootstrap_server, command_config, options.profile)
    if output_format is Format.JSON:
        write_json(manifest | {"undo": undo})
    else:
        _write_text(manifest, output, is_told=options.profile is None)
        for command in undo_lines(undo, output):
            write_line(f"undo:       {command}")
    vanished = any(partition["vanished"] for _, partition in _partitions(manifest))
    return ExitCode.FINDINGS if vanished or _unexplained(manifest) else ExitCode.CLEAN


def _unexplained(manifest: dict[str, Any]) -> int:
    """Differences from the coordinators that neither a later record nor an open transaction explains."""
    counts = (manifest["cross_check"] or {"counts": {}})["counts"]
    return int(counts.get("older", 0)) + int(counts.get("wrong", 0))


def _progress() -> Callable[[int], None]:
    """A line on a terminal that says how much has come; called from several threads."""
    if not sys.stderr.isatty():
        return lambda size: None
    lock = threading.Lock()
    came = shown = 0

    def more(size: int) -> None:
        nonlocal came, shown
        with lock:
            came += size
            if came - shown >= _SHOW_BYTES:
                shown = came
                click.echo(f"\r{came / 1e6:,.0f} MB fetched", nl=False, err=True)

    return more


def _partitions(manifest: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{topic['topic']}-{partition['partition']}", partition)
        for topic in manifest["topics"]
        for partition in topic["partitions"]
    ]


def undo_lines(undo: Sequence[str], output: str) -> Iterator[str]:
    """The first commands, and the one that prints all of them."""
    yield from undo[:_UNDO_SHOWN]
    if len(undo) > _UNDO_SHOWN:
        yield f"and {len(undo) - _UNDO_SHOWN} more: {shell_words(['regroup', 'investigate', output])}"


def _write_text(manifest: dict[str, Any], output: str, *, is_told: bool) -> None:
    rows = _partitions(manifest)

    def total(name: str) -> int:
        return sum(int(partition[name]) for _, partition in rows)

    seconds = (manifest["finished_at_ms"] - manifest["started_at_ms"]) / 1000
    write_line(f"captured:   {visible(output)}")
    write_line(f"cluster:    {visible(str(manifest['cluster_id']))}")
    for topic in manifest["topics"]:
        write_line(f"topic:      {visible(topic['topic'])}, {numbered(len(topic['partitions']), 'partition')}")
    write_line(f"records:    {total('records')} in {numbered(total('batches'), 'batch')}, {total('bytes')} bytes")
    write_line(f"fetched:    {total('fetched_bytes')} bytes; {total('kept_bytes')} were there already")
    write_line(f"seconds:    {seconds:.1f}")
    if manifest["cross_check"] is not None:
        write_cross_check(manifest["cross_check"], is_told=is_told)
    for text in manifest["notes"]:
        note(f"regroup: {text}")
    for name, partition in rows:
        for text in partition["notes"]:
            note(f"regroup: {name}: {text}")
        for gone in partition["vanished"]:
            last = gone["end"] - 1
            note(f"regroup: warning: {name}: offsets {gone['first']} to {last} vanished: {gone['why']}")


def write_cross_check(checked: dict[str, Any], *, is_told: bool) -> None:
    """Write what the comparison with the coordinators found, and what is wrong to standard error.

    ``is_told``: the rules are those that the records tell, as nobody named a release.
    """
    counts = ", ".join(f"{count} {reason}" for reason, count in checked["counts"].items() if count)
    compared = f"{numbered(checked['groups'], 'group')} and {numbered(checked['slots'], 'committed offset')}"
    write_line(f"compared:   {compared} with the coordinators, by {checked['profile']}: {counts or 'all equal'}")
    for each in checked["differences"]:
        if each["reason"] in ("older", "wrong"):
            where = "" if each["topic"] is None else f" {each['topic']}-{each['partition']}"
            log, cluster = ("nothing" if each[side] is None else each[side] for side in ("replayed", "cluster"))
            said = f"the log says {log}, the coordinator {cluster}"
            note(f"regroup: warning: {each['reason']}: group {each['group_id']!r}{where}: {said}")
    if is_told and {"older", "wrong"} & {each["reason"] for each in checked["differences"]}:
        note(
            "regroup: the release is told from the records, which brokers of another one may have written: name that "
            "of the brokers now with --kafka-version"
        )

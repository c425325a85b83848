"""``regroup capture``."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from typing import Any

import click

from coordinator_core.cli.options import Format, format_option, note, write_line
from coordinator_core.errors import ExitCode

_SHOW_BYTES = 1_000_000


@click.command("capture")
@click.option(
    "--bootstrap-server", required=True, metavar="HOST:PORT,…", help="Brokers to reach the cluster by."
)
@click.option("--output", required=True, metavar="DIR", help="Where the snapshot is written (local).")
@click.option(
    "--command-config",
    metavar="FILE",
    help="Kafka client properties: security.protocol, sasl.*, ssl.* and timeouts.",
)
@click.option(
    "--byte-rate", type=click.IntRange(min=1), metavar="BYTES", help="At most so many bytes a second."
)
@click.option("--replica", type=int, metavar="BROKER", help="Fetch from this broker instead of the leaders.")
@click.option(
    "--topic-also",
    "topics_also",
    multiple=True,
    metavar="TOPIC",
    help="Capture this topic too, such as __transaction_state (repeatable).",
)
@format_option(Format.TEXT, Format.JSON)
def capture_command(
    bootstrap_server: str,
    output: str,
    command_config: str | None,
    byte_rate: int | None,
    replica: int | None,
    topics_also: tuple[str, ...],
    output_format: Format,
) -> int:
    """Fetch __consumer_offsets from a live cluster, byte for byte, into a snapshot.

    Run it again to bring the snapshot up to now: what it holds is compared and kept, what is new is fetched.
    """
    from coordinator_core.cluster.capture import CaptureOptions, capture
    from coordinator_core.cluster.client import Client
    from coordinator_core.cluster.settings import read_settings

    options = CaptureOptions(byte_rate=byte_rate, replica=replica, topics_also=topics_also)
    with Client(read_settings(bootstrap_server, command_config)) as client:
        manifest = capture(client, output, options, progress=_progress())
    if output_format is Format.JSON:
        write_line(json.dumps(manifest, ensure_ascii=False))
    else:
        _write_text(manifest, output)
    vanished = any(partition["vanished"] for _, partition in _partitions(manifest))
    return ExitCode.FINDINGS if vanished else ExitCode.CLEAN


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


def _write_text(manifest: dict[str, Any], output: str) -> None:
    rows = _partitions(manifest)

    def total(name: str) -> int:
        return sum(int(partition[name]) for _, partition in rows)

    seconds = (manifest["finished_at_ms"] - manifest["started_at_ms"]) / 1000
    write_line(f"captured:   {output}")
    write_line(f"cluster:    {manifest['cluster_id']}")
    for topic in manifest["topics"]:
        write_line(f"topic:      {topic['topic']}, {len(topic['partitions'])} partitions")
    write_line(f"records:    {total('records')} in {total('batches')} batches, {total('bytes')} bytes")
    write_line(f"fetched:    {total('fetched_bytes')} bytes; {total('kept_bytes')} were there already")
    write_line(f"seconds:    {seconds:.1f}")
    for name, partition in rows:
        for text in partition["notes"]:
            note(f"regroup: {name}: {text}")
        for gone in partition["vanished"]:
            last = gone["end"] - 1
            note(f"regroup: warning: {name}: offsets {gone['first']} to {last} vanished: {gone['why']}")

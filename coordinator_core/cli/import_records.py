"""``regroup import-records``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from coordinator_core.cli.options import Format, format_option, note, write_result
from coordinator_core.durations import numbered
from coordinator_core.untrusted import visible


@click.command("import-records")
@click.argument("paths", nargs=-1, required=True, metavar="PARQUET…")
@click.option("--output", required=True, metavar="DIR", help="Where the log directory is made (local).")
@click.option(
    "--isolation-level",
    required=True,
    type=click.Choice(["read_committed", "read_uncommitted"]),
    help="isolation.level of the consumer that read the records; Kafka's default is read_uncommitted.",
)
@format_option(Format.TEXT, Format.JSON)
def import_records_command(paths: tuple[str, ...], output: str, isolation_level: str, output_format: Format) -> None:
    """Make a log directory of PARQUET, records of __consumer_offsets as Kafka's Spark source gives them.

    Where the cluster can be reached, capture it instead: records lack transactions, so a replay of
    this directory needs --partial and is marked as partial.
    """
    from coordinator_core.ingest.publish import IsolationLevel, import_records

    document = import_records(paths, output, IsolationLevel(isolation_level))
    write_result(output_format, document, _text(document, output))


def _text(document: dict[str, Any], output: str) -> Iterator[str]:
    partitions = document["partitions"]

    def total(name: str) -> int:
        return sum(int(partition[name]) for partition in partitions)

    yield f"imported:  {visible(output)}"
    files = numbered(len(document["files"]), "file")
    yield f"records:   {total('records')} of {numbered(len(partitions), 'offsets partition')}, from {files}"
    yield f"isolation: {document['isolation_level']}"
    yield f"missing:   {numbered(total('missing_offsets'), 'offset')} between the first and the last"
    yield f"commits:   {total('commits')}, of which the records do not tell whether they are transactional"
    note("regroup: warning: this is less than a snapshot (records.json says why); --partial replays it")

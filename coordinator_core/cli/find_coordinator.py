"""``regroup find-coordinator``."""

from __future__ import annotations

import click

from coordinator_core.cli.options import (
    ExistingFile,
    Format,
    format_option,
    offsets_partitions_option,
    write_json,
    write_line,
)
from coordinator_core.groups.hashing import DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS, partition_for
from coordinator_core.reports.text_table import MOST_WIDTH
from coordinator_core.topology import Topology, load_topology
from coordinator_core.untrusted import visible


@click.command("find-coordinator")
@click.argument("groups", nargs=-1, required=True, metavar="GROUP…")
@click.option(
    "--topology",
    type=ExistingFile(),
    help="Topology of the cluster (JSON): leaders and number of offsets partitions.",
)
@offsets_partitions_option
@format_option(Format.TEXT, Format.JSON)
def find_coordinator_command(
    groups: tuple[str, ...], topology: str | None, offsets_topic_num_partitions: int | None, output_format: Format
) -> None:
    """The offsets partition of each GROUP, and the broker that leads it when a topology is given."""
    known = load_topology(topology) if topology else Topology({}, {})
    leaders, told = known.offsets_leaders, len(known.offsets_partitions or ())
    num_partitions = offsets_topic_num_partitions or told or DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS
    rows = []
    for group_id in groups:
        partition = partition_for(group_id, num_partitions)
        rows.append({"group_id": group_id, "offsets_partition": partition, "leader": leaders.get(partition)})
    if output_format is Format.JSON:
        write_json(rows)
        return
    width = min(max(15, *(len(visible(group_id)) for group_id in groups)), MOST_WIDTH)
    write_line(f"{'GROUP':<{width}} OFFSETS-PARTITION LEADER")
    for row in rows:
        leader = "-" if row["leader"] is None else row["leader"]
        write_line(f"{visible(str(row['group_id'])):<{width}} {row['offsets_partition']:<17} {leader}")

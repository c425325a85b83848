"""``regroup find-coordinator``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from coordinator_core.cli.options import Format, format_option, offsets_partitions_option, write_line
from coordinator_core.errors import UsageError
from coordinator_core.groups.hashing import partition_for
from coordinator_core.log.types import OFFSETS_TOPIC


@click.command("find-coordinator")
@click.argument("groups", nargs=-1, required=True)
@click.option(
    "--topology",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Topology of the cluster (JSON): tells each partition's leader and how many there are.",
)
@offsets_partitions_option
@format_option(Format.TEXT, Format.JSON)
def find_coordinator_command(
    groups: tuple[str, ...], topology: Path | None, offsets_topic_num_partitions: int, output_format: Format
) -> None:
    """The offsets partition of each GROUP, and the broker that leads it when a topology is given."""
    leaders = _leaders(topology) if topology else {}
    num_partitions = len(leaders) if topology else offsets_topic_num_partitions
    rows = []
    for group_id in groups:
        partition = partition_for(group_id, num_partitions)
        rows.append({"group_id": group_id, "offsets_partition": partition, "leader": leaders.get(partition)})
    if output_format is Format.JSON:
        write_line(json.dumps(rows, ensure_ascii=False))
        return
    width = max(15, *(len(group_id) for group_id in groups))
    write_line(f"{'GROUP':<{width}} OFFSETS-PARTITION LEADER")
    for row in rows:
        leader = "-" if row["leader"] is None else row["leader"]
        write_line(f"{row['group_id']:<{width}} {row['offsets_partition']:<17} {leader}")


def _leaders(path: Path) -> dict[int, int | None]:
    """Leader broker id per offsets partition; ``None`` where there is no leader.

    Raises :class:`UsageError` for a file of another form, or one whose partitions are not 0 to n-1.
    """
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
        partitions = document["topics"][OFFSETS_TOPIC]["partitionInfo"]
        leaders = {int(entry["partition"]): _leader(entry["leader"]) for entry in partitions}
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not JSON: {error}") from None
    except (KeyError, TypeError, ValueError):
        raise UsageError(
            f'{path}: expected {{"topics": {{"{OFFSETS_TOPIC}": {{"partitionInfo": '
            '[{"partition": 0, "leader": 1}, …]}}}'
        ) from None
    if not leaders or sorted(leaders) != list(range(len(leaders))):
        raise UsageError(f"{path}: the partitions of {OFFSETS_TOPIC} are not 0 to n-1")
    return leaders


def _leader(value: Any) -> int | None:
    return None if value is None or int(value) < 0 else int(value)

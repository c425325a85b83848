"""Text with the columns and words of ``kafka-consumer-groups`` (4.x, ``ConsumerGroupCommand``).

The input is the document of :func:`coordinator_core.reports.describe.describe`. Unknown values (without topology the
coordinator, without topics log end offset and lag) are shown as the tool shows a missing value: ``-``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from coordinator_core.reports.text_table import MISSING, MOST_WIDTH
from coordinator_core.topology import Topology
from coordinator_core.untrusted import visible

_NARROW, _NUMBER, _WIDE = 10, 15, 25

Json = dict[str, Any]


def notice(group: Json) -> str | None:
    """The line the tool prints about a group's state, on standard error; ``None`` for a Stable group."""
    group_id = visible(group["group_id"])
    match group["state"]:
        case "Empty":
            return f"Consumer group '{group_id}' has no active members."
        case "Assigning" | "Reconciling" | "NotReady":
            return f"Warning: Consumer group '{group_id}' is rebalancing."
        case _:
            return None


def offsets_text(group: Json, *, verbose: bool, topics: Collection[str] | None) -> str:
    """``--describe``: one line per assigned partition, of ``topics``, and per committed offset without an owner."""
    header = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    header += ["CONSUMER-ID", "HOST", "CLIENT-ID"]
    rows = _offset_rows(group, topics)
    widths = [_column(0, rows), _column(1, rows), _NARROW, _NUMBER, _NUMBER, _NUMBER]
    widths += [_column(7, rows), _column(8, rows), 0]
    if verbose:
        header.insert(3, "LEADER-EPOCH")
        widths.insert(3, _NUMBER)
    else:
        rows = [row[:3] + row[4:] for row in rows]
    return _table(header, rows, widths)


def _offset_rows(group: Json, topics: Collection[str] | None) -> list[list[str]]:
    """Cells: group, topic, partition, leader epoch, current offset, end, lag, consumer, host, client."""
    committed = {(row["topic"], row["partition"]): row for row in group["offsets"]}
    ends = {(row["topic"], row["partition"]): row for row in group.get("log_ends", ())}
    rows: list[list[str]] = []

    def add(topic: str, partition: int, owner: Sequence[str]) -> None:
        # OffsetFetch of all topics never lists an offset key that has nothing but a pending commit.
        row = committed.pop((topic, partition), None)
        known = row is not None and row["committed_offset"] is not None
        epoch, offset = (row["leader_epoch"], row["committed_offset"]) if row and known else (None, None)
        cells = [group["group_id"], topic, str(partition), _text(epoch), _text(offset)]
        end = ends.get((topic, partition), {})
        rows.append([*cells, _text(end.get("log_end_offset")), _text(end.get("lag")), *owner])

    # Members without partitions have no line here, and those with most come first, as in Kafka's tool.
    owners = [(_assigned_partitions(member), member) for member in group["members"]]
    for partitions, member in sorted(owners, key=lambda owner: -len(owner[0])):
        for topic, partition in partitions:
            if topics is not None and topic not in topics:
                continue
            add(topic, partition, [member["member_id"], member["client_host"], member["client_id"]])
    for topic, partition in sorted(committed):
        if committed[topic, partition]["committed_offset"] is not None:
            add(topic, partition, [MISSING] * 3)
    return rows


def _assigned_partitions(member: Json) -> list[tuple[str, int]]:
    if not isinstance(member["assignment"], list):
        return []
    return [
        (entry["topic"] or entry["topic_id"], partition)
        for entry in member["assignment"]
        for partition in entry["partitions"]
    ]


def members_text(group: Json, *, verbose: bool) -> str:
    """``--describe --members``."""
    static = any(member["instance_id"] is not None for member in group["members"])
    modern = group["type"] != "classic"
    mixed = modern and any(member["is_classic"] for member in group["members"])
    header = ["GROUP", "CONSUMER-ID"] + ["GROUP-INSTANCE-ID"] * static + ["HOST", "CLIENT-ID", "#PARTITIONS"]
    if verbose:
        header += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        header += ["UPGRADED"] * mixed
    rows = []
    for member in group["members"]:
        row = [group["group_id"], member["member_id"]]
        row += [member["instance_id"] or ""] * static
        row += [member["client_host"], member["client_id"], str(len(_assigned_partitions(member)))]
        if verbose:
            row += [_text(member["member_epoch"]), _assignment_text(member["assignment"])]
            row += [_text(group["assignment_epoch"]), _assignment_text(member["target_assignment"])]
            row += ["false" if member["is_classic"] else "true"] * mixed
        rows.append(row)
    widths = [_member_width(title, index, rows) for index, title in enumerate(header)]
    if not verbose:
        widths[-1] = 0
    return _table(header, rows, widths)


def _member_width(title: str, index: int, rows: Sequence[Sequence[str]]) -> int:
    match title:
        case "UPGRADED":
            return 0
        case "#PARTITIONS" | "CURRENT-EPOCH" | "TARGET-EPOCH":
            return _NUMBER
        case "CURRENT-ASSIGNMENT" | "TARGET-ASSIGNMENT":
            return _column(index, rows, 20)
        case _:
            return _column(index, rows, max(_NUMBER, len(title)))


def _assignment_text(assignment: list[Json] | Json | None) -> str:
    """``topicA:0,1;topicB:3``; of streams tasks ``active:…;standby:…``."""
    if not assignment:
        return MISSING
    if isinstance(assignment, dict):
        parts = [
            f"{kind.removesuffix('_tasks')} {task['subtopology_id']}:{','.join(map(str, task['partitions']))}"
            for kind, tasks in assignment.items()
            for task in tasks
        ]
        return ";".join(parts) or MISSING
    return ";".join(
        f"{entry['topic'] or entry['topic_id']}:{','.join(map(str, entry['partitions']))}" for entry in assignment
    )


def state_text(group: Json, *, verbose: bool, topology: Topology | None) -> str:
    """``--describe --state``."""
    header = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    coordinator = MISSING if topology is None else _coordinator(topology, group["offsets_partition"])
    row = [group["group_id"], coordinator, group["protocol"] or MISSING, group["state"] or MISSING]
    widths = [_column(0, [row]), _column(1, [row], _WIDE), 20, 20]
    if verbose:
        header += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        row += [_text(group["group_epoch"]), _text(group["assignment_epoch"])]
        widths += [_NUMBER, _WIDE]
    return _table([*header, "#MEMBERS"], [[*row, str(len(group["members"]))]], [*widths, 0])


def _coordinator(topology: Topology, offsets_partition: int) -> str:
    """``host:port  (id)`` of the leader; without the address where it has several listeners."""
    leader = topology.offsets_leaders.get(offsets_partition)
    if leader is None:
        return MISSING
    broker = topology.brokers.get(leader)
    addresses = {f"{host}:{port}" for host, port in broker.listeners.values()} if broker else set()
    return f"{addresses.pop() if len(addresses) == 1 else MISSING}  ({leader})"


def list_text(listing: Sequence[Json], *, with_type: bool, with_state: bool) -> str:
    """``--list``: ids alone, or with the columns TYPE and STATE. A very long id pads no other row; it does there."""
    if not (with_type or with_state):
        return "\n".join(visible(row["group_id"]) for row in listing)
    header = ["GROUP"] + ["TYPE"] * with_type + ["STATE"] * with_state
    rows = [
        [row["group_id"]] + [row["type"].capitalize()] * with_type + [row["state"] or MISSING] * with_state
        for row in listing
    ]
    widths = [min(_column(0, rows), MOST_WIDTH)] + [20] * (len(header) - 1)
    return _table(header, rows, widths)


def _text(value: object) -> str:
    return MISSING if value is None else str(value)


def _column(index: int, rows: Iterable[Sequence[str]], minimum: int = _NUMBER) -> int:
    return max([minimum, *(_length(row[index]) for row in rows)])


def _length(text: str) -> int:
    """Length of a text as Java's formatter counts it, in UTF-16 units."""
    text = visible(text)
    return len(text) + sum(character > "\uffff" for character in text)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], widths: Sequence[int]) -> str:
    return "\n".join(
        " ".join(visible(cell) + " " * (width - _length(cell)) for cell, width in zip(line, widths, strict=True))
        for line in [header, *rows]
    )

"""Times, numbers and commands as people write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coordinator_core.durations import is_or_are, noun, utc_text, was_or_were
from coordinator_core.groups.model import GroupType, OffsetKey
from coordinator_core.history.model import GroupHistory
from coordinator_core.untrusted import shell_words

_TOOLS = {GroupType.SHARE: "kafka-share-groups", GroupType.STREAMS: "kafka-streams-groups"}


def moment(milliseconds: int) -> str:
    """``2026-05-12 02:41:07Z``; the number itself beyond the year 9999."""
    if milliseconds < 0:
        return "an unknown time"
    return utc_text(milliseconds, "%Y-%m-%d %H:%M:%SZ") or f"{milliseconds} ms"


def until(milliseconds: int) -> str:
    """``until about 2026-05-12 02:41:07Z``: when offsets expire."""
    return f"until about {moment(milliseconds)}" if milliseconds >= 0 else "until their retention has passed"


def to_datetime(milliseconds: int) -> tuple[str, str]:
    """The option of Kafka's tools for a time; ``TIME`` stands for one that they could not be given."""
    return "--to-datetime", utc_text(milliseconds, "%Y-%m-%dT%H:%M:%S.000") or "TIME"


def count(number: int, name: str) -> str:
    """``1 offset``, ``2 offsets``."""
    return f"{number:,} {noun(number, name)}"


def were(number: int, name: str) -> str:
    """``1 offset was``, ``2 offsets were``."""
    return f"{count(number, name)} {was_or_were(number)}"


def are(number: int, name: str) -> str:
    """``1 record is``, ``2 records are``."""
    return f"{count(number, name)} {is_or_are(number)}"


def one_of(names: Sequence[str]) -> str:
    """``a``, ``a or b``, ``a, b or c``; nothing of none."""
    *some, last = names or [""]
    return f"{', '.join(some)} or {last}" if some else last


def some_of(names: Sequence[str], most: int) -> str:
    """``a, b and 3 more``: the first ``most`` names."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def when(applies: object, *sentences: str) -> Sequence[str]:
    """The sentences, or none."""
    return sentences if applies else ()


def tool(name: str, *arguments: object) -> str:
    """A call of a tool of Kafka, such as ``kafka-topics``, quoted for a shell."""
    return shell_words([f"{name}.sh", "--bootstrap-server", "HOST:9092", *map(str, arguments)])


def restore_plan(group_id: str, *arguments: str) -> str:
    """A call of ``regroup restore plan`` for a group of this log, quoted for a shell."""
    source = ["regroup", "restore", "plan", "SNAPSHOT", "--group", group_id, *arguments]
    return shell_words([*source, "--bootstrap-server", "HOST:9092", "--output", "plan.json"])


def consumer_groups(group_id: str, *arguments: str) -> str:
    """A call of ``kafka-consumer-groups.sh``, quoted for a shell."""
    return tool("kafka-consumer-groups", "--group", group_id, *arguments)


def described(group: GroupHistory, *arguments: str) -> str:
    """The call that describes the group. ``kafka-consumer-groups.sh`` refuses groups of the newer types."""
    return tool(tool_of(group), "--group", group.group_id, "--describe", *arguments)


def tool_of(group: GroupHistory) -> str:
    """Kafka's tool for groups of that type."""
    types = [one.group_type for one in group.changes if one.group_type is not None]
    return _TOOLS.get(types[-1], "kafka-consumer-groups") if types else "kafka-consumer-groups"


def of_topics(keys: Iterable[OffsetKey]) -> list[str]:
    """Words that name partitions, ``--topic orders:0,1`` for each topic, to Kafka's tools and to ours."""
    partitions: dict[str, list[str]] = {}
    for key in sorted(keys):
        partitions.setdefault(key.topic, []).append(str(key.partition))
    return [word for topic, numbers in partitions.items() for word in ("--topic", f"{topic}:{','.join(numbers)}")]


def records(key: OffsetKey, offset: int, number: int, *arguments: object) -> str:
    """A call of ``kafka-console-consumer.sh`` for ``number`` records of a partition from ``offset`` on."""
    where = ("--topic", key.topic, "--partition", key.partition, "--offset", offset)
    return tool("kafka-console-consumer", *where, "--max-messages", number, *arguments)


def reset_offsets(group_id: str, *how: object, name: str = "kafka-consumer-groups") -> str:
    """The command that sets committed offsets, shown before it is done; the group must have no members."""
    return f"{tool(name, '--group', group_id, '--reset-offsets', *how, '--dry-run')} (then with --execute)"


def from_file(group_id: str) -> str:
    """The command that puts committed offsets back."""
    return reset_offsets(group_id, "--from-file", "offsets.csv")


def by_rest(group_id: str) -> list[str]:
    """Who changes offsets of a sink connector's group: Connect's REST interface (KIP-875), if it is one."""
    if not group_id.startswith("connect-"):
        return []
    name = group_id.removeprefix("connect-")
    return [f"Ask who called PATCH or DELETE /connectors/{name}/offsets of Connect's REST interface at that time."]

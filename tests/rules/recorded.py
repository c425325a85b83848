"""Findings that rules must have in a corpus case, by its brokers' answers and Kafka's dump tool.

Works from ``expected/`` and ``case.json`` alone: nothing of the product reads the log here. A finding is the rule with
group, topic and partition; ``None`` where the rule is about more than one.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from coordinator_core.releases import Release
from tests.cases import Case

Finding = tuple[str, str | None, str | None, int | None]
Json = dict[str, Any]

GRACE_MS = 1_200_000
"""Time that an offset may be due before R60 says so (``expiry_grace_ms``)."""
RETENTION_MS = 7 * 86_400_000
"""Kafka's default retention, which R60 assumes of offsets without a time of their own (``offsets_retention_ms``)."""
NO_EPOCH = (None, -1)
_KEY = re.compile(r'key: (\{"type":"\d+".*?\}\}) payload: (.*)$')


def findings(case: Case) -> set[Finding]:
    """Findings of the rules that recorded answers decide; the other rules are those of :data:`BY_HAND`."""
    return {
        *_beyond_log_end(case),
        *_missing_topics(case),
        *_time_to_come(case),
        *_overdue(case),
        *_without_leader_epoch(case),
        *_long_metadata(case),
        *_without_offsets(case),
        *_without_tombstone(case),
        *_without_group(case),
    }


BY_HAND = frozenset({"R03", "R08", "R43"})


# What the broker answered


@cache
def _groups(case: Case) -> dict[str, Json]:
    """Groups of the partitions that the case holds, as the broker with the log alone had them."""
    held = {int(path.name.rpartition("-")[2]) for log in case.paths for path in log.glob("__consumer_offsets-*")}
    groups = case.reloaded()["groups"]
    return {name: one for name, one in groups.items() if one.get("partition", min(held)) in held}


def _offsets(case: Case) -> Iterator[tuple[str, str, int, Json]]:
    """Group, topic, partition and the offset as the harness of the case wrote it."""
    for name, group in _groups(case).items():
        listed = group.get("offsets") or group.get("offsetFetch", {}).get("offsets", [])
        for offset in listed:
            yield name, offset["topic"], offset["partition"], offset


def _ends(case: Case) -> dict[tuple[str, int], int] | None:
    """End offsets of topics; ``None`` where none were recorded, or by the harness of old brokers."""
    path = case.expected / "topics.json"
    document = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if "topics" not in document:
        return None
    return {
        (name, one["partition"]): one["endOffset"]
        for name, topic in document["topics"].items()
        for one in topic["partitionInfo"]
    }


def _beyond_log_end(case: Case) -> Iterator[Finding]:
    ends = _ends(case) or {}
    for group, topic, partition, offset in _offsets(case):
        if (topic, partition) in ends and offset["offset"] > ends[topic, partition]:
            yield "R31", group, topic, partition


def _missing_topics(case: Case) -> Iterator[Finding]:
    """The offset that was committed last of a topic that is gone."""
    ends = _ends(case)
    if ends is not None:
        gone = {(group, topic): number for group, topic, number, _ in _offsets(case) if (topic, number) not in ends}
        for (group, topic), partition in gone.items():
            yield "R36", group, topic, partition


def _time_to_come(case: Case) -> Iterator[Finding]:
    """Commits whose time is after the capture; only the harness of old brokers recorded their time."""
    for group, topic, partition, offset in _offsets(case):
        if offset.get("commit_timestamp", 0) > case.captured_ms:
            yield "R37", group, topic, partition


def _overdue(case: Case) -> Iterator[Finding]:
    """Offsets that expired by the time the broker gave them, or by a commit time of years ago."""
    for group, topic, partition, offset in _offsets(case):
        expires_ms = offset.get("expire_timestamp")
        if expires_ms is not None and expires_ms + GRACE_MS < case.captured_ms:
            yield "R60", group, topic, partition
    for key, value in _dumped(case):
        committed_ms = (value or {}).get("data", {}).get("commitTimestamp")
        if committed_ms is not None and committed_ms + RETENTION_MS + GRACE_MS < case.captured_ms:
            yield "R60", key["data"]["group"], key["data"]["topic"], key["data"]["partition"]


def _long_metadata(case: Case) -> Iterator[Finding]:
    """Of each group and topic, the first commit whose metadata is within a fifth of Kafka's limit."""
    first: dict[tuple[str, str], int] = {}
    for group, topic, partition, offset in _offsets(case):
        if 4096 * 0.8 < len(offset.get("metadata") or "") <= 4096:
            first[group, topic] = min(partition, first.get((group, topic), partition))
    for (group, topic), partition in first.items():
        yield "R47", group, topic, partition


def _without_leader_epoch(case: Case) -> Iterator[Finding]:
    """Releases before 2.1 have no leader epochs; nothing lies under offset 0."""
    if Release.parse(case.release) >= (2, 1):
        for group, _, _, offset in _offsets(case):
            if offset.get("leader_epoch", offset.get("leaderEpoch")) in NO_EPOCH and offset["offset"]:
                yield "R33", group, None, None


def _without_offsets(case: Case) -> Iterator[Finding]:
    """Groups without an offset, and without a commit in an open transaction; not those of workers, as of Connect."""
    # Requests before 2.5, and to 3.7, do not tell of open transactions: there the recorder says which it left.
    path = case.directory / "case.json"
    left = json.loads(path.read_text(encoding="utf-8")).get("openTransactionsOf") if path.exists() else None
    waiting = json.dumps(left or case.reloaded().get("open_groups_for_producer", {}))
    with_offsets = {group for group, _, _, _ in _offsets(case)}
    for name, group in _groups(case).items():
        listed = group.get("type", "classic") not in ("share", "absent")
        if group.get("describe", group).get("protocolType", group.get("protocol_type")) not in (None, "", "consumer"):
            continue
        if listed and name not in with_offsets and "unstablePartitions" not in group and f'"{name}"' not in waiting:
            yield "R64", name, None, None


# What Kafka's dump tool printed


@cache
def _dumped(case: Case) -> list[tuple[Json, Json | None]]:
    """Keys and values of the records that the dump tool of 3.9.2 or 4.3.1 could decode."""
    paths = sorted(case.expected.glob("dump-*.3.9.2.txt")) or [
        path for path in sorted(case.expected.glob("dump-*")) if re.match(r"dump-\d+\.txt", path.name)
    ]
    found = []
    for line in (line for path in paths for line in _text(path).splitlines()):
        matched = _KEY.search(line)
        if matched:
            value = json.loads(matched[2]) if matched[2].startswith("{") else None
            found.append((json.loads(matched[1]), value))
    return found


def _text(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8", "replace")


def _without_group(case: Case) -> Iterator[Finding]:
    """Groups deleted under a transaction that then committed, which are not listed, and whose commits no tombstone of
    their own removes."""
    path = case.directory / "case.json"
    steps = json.loads(path.read_text(encoding="utf-8")).get("steps", []) if path.exists() else []
    doomed = {str(step).partition(":")[0] for step in steps if "transaction is open, which then commits" in str(step)}
    last = {json.dumps(key): (key["data"]["group"], value) for key, value in _dumped(case) if key["type"] == "1"}
    for group, value in last.values():
        if group not in doomed or group in _groups(case) or value is None:
            continue
        yield "R65", group, None, None
        if value["data"].get("leaderEpoch") in NO_EPOCH:
            yield "R33", group, None, None


def formats(case: Case) -> set[int]:
    """Message formats of the batches."""
    texts = (_text(path) for path in sorted(case.expected.glob("dump-*.3.9.2.txt")))
    return {int(magic) for text in texts for magic in re.findall(r" magic: (\d)", text)}


def damage(case: Case) -> tuple[str, int]:
    """Damage by ``case.json``, and the bytes that the restarted broker cut off."""
    description: Json = json.loads((case.directory / "case.json").read_text(encoding="utf-8"))
    said = f"{description.get('damage')} {description.get('wholeBatchesEndAt')}"
    return said, -sum(description["restart"]["appendedByRestart"].values())


def _without_tombstone(case: Case) -> Iterator[Finding]:
    """Groups with tombstones of offsets, none of the group, and nothing left."""
    tombstones: dict[str, set[str]] = {}
    for key, value in _dumped(case):
        if value is None:
            tombstones.setdefault(key["data"].get("group", key["data"].get("groupId")), set()).add(key["type"])
    left = {name for name, group in _groups(case).items() if group.get("type") != "absent"}
    for group, types in tombstones.items():
        if types <= {"0", "1"} and group not in left:
            yield "R66", group, None, None

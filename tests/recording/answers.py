"""Answers of a broker of any release about its groups, in the shape of ``expected/reloaded.json``."""

from __future__ import annotations

import time
from typing import Any

from coordinator_core.groups.hashing import partition_for
from tests.live.broker import START_SECONDS, now_ms
from tests.live.group_protocol import Json
from tests.recording.brokers import OFFSETS_PARTITIONS
from tests.recording.script import TOPICS
from tests.recording.session import Session

NOT_LOADED = {14, 15, 16}
SETTLED_SECONDS = 12
UNSTABLE_OFFSET_COMMIT = 88
_DESCRIBE = {"consumer": "ConsumerGroupDescribe", "share": "ShareGroupDescribe", "streams": "StreamsGroupDescribe"}
_NOT_IN_OLD_MEMBERS: Json = {"groupInstanceId": None}


def settled_answers(session: Session) -> Json:
    """:func:`answers`, given twice alike. A killed broker that restarts is fenced for some seconds after it has
    loaded, loads again, and lists too few groups meanwhile."""
    last = answers(session)
    while True:
        time.sleep(SETTLED_SECONDS)
        found = answers(session)
        if {**found, "capturedAtMs": 0} == {**last, "capturedAtMs": 0}:
            return found
        last = found


def answers(session: Session) -> Json:
    """All of it, once a group of every offsets partition can be asked for: listings leave out what is not loaded."""
    for number in range(OFFSETS_PARTITIONS):
        names = (f"probe-{one}" for one in range(1000))
        _until_loaded(session, next(name for name in names if partition_for(name, OFFSETS_PARTITIONS) == number))
    listed = [_listed(row) for row in session.ask("ListGroups", {})["groups"]]
    listed.sort(key=lambda row: str(row["groupId"]))
    groups = {row["groupId"]: _group(session, row["groupId"], row["groupType"]) for row in listed}
    for row in listed:
        row["groupType"] = groups[row["groupId"]]["type"]
    return {"capturedAtMs": now_ms(), "listGroups": listed, "groups": groups}


def _until_loaded(session: Session, group: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            code = _describe_classic(session, group)["errorCode"]
        except (OSError, AssertionError):
            code = 15
        if code not in NOT_LOADED:
            return
        assert time.monotonic() < deadline, f"the partition of {group!r} is not loaded"
        time.sleep(0.2)


def _listed(row: Json) -> Json:
    return {
        "groupId": row["groupId"],
        "protocolType": row["protocolType"],
        "groupState": row.get("groupState"),
        "groupType": row.get("groupType"),
    }


def _group(session: Session, group: str, listed_type: str | None) -> Json:
    kind = (listed_type or "").lower() or _type_by_asking(session, group)
    described = _describe_classic(session, group) if kind == "classic" else _describe(session, _DESCRIBE[kind], group)
    assert described["errorCode"] == 0, described
    found: Json = {"type": kind, "describe": described}
    found["offsetFetch"] = {"errorCode": 0, "offsets": [row for row in _offsets(session, group) if row["offset"] >= 0]}
    unstable = [
        {"topic": row["topic"], "partition": row["partition"]}
        for row in _offsets(session, group, stable=True)
        if row["errorCode"] == UNSTABLE_OFFSET_COMMIT
    ]
    return found | ({"unstablePartitions": unstable} if unstable else {})


def _type_by_asking(session: Session, group: str) -> str:
    """3.7 does not list types (KIP-1043 came with 3.8)."""
    if not session.has("ConsumerGroupDescribe"):
        return "classic"
    return "classic" if _describe(session, "ConsumerGroupDescribe", group)["errorCode"] else "consumer"


def _describe_classic(session: Session, group: str) -> Json:
    session.send("DescribeGroups", {"groups": [group]})
    found: Json = session.answer()["groups"][0]
    found["members"] = [{**_NOT_IN_OLD_MEMBERS, **member} for member in found["members"]]
    return found


def _describe(session: Session, api: str, group: str) -> Json:
    session.send(api, {"groupIds": [group]})
    found: Json = session.answer()["groups"][0]
    return found


def _offsets(session: Session, group: str, *, stable: bool = False) -> list[Json]:
    """Offsets of every partition of every topic, asked by name, which finds also those of open transactions."""
    version = min(session.versions["OffsetFetch"], 9)
    topics: Any = [{"name": topic, "partitionIndexes": list(range(count))} for topic, count in TOPICS.items()]
    body: Json = {"groupId": group, "topics": topics}
    if version >= 8:
        body = {"groups": [body]}
    if version >= 7:
        body["requireStable"] = stable
    session.send("OffsetFetch", body, version)
    answer = session.answer()
    answered = answer["groups"][0]["topics"] if version >= 8 else answer["topics"]
    return [
        {
            "topic": topic["name"],
            "partition": row["partitionIndex"],
            "offset": row["committedOffset"],
            "leaderEpoch": row.get("committedLeaderEpoch", -1),
            "metadata": row["metadata"],
            "errorCode": row["errorCode"],
        }
        for topic in answered
        for row in topic["partitions"]
    ]

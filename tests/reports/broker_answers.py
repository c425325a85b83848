"""Kafka's own answers (``expected/reloaded.json``) in the form of ``describe --format json``, for comparison.

Only what both sides can know is compared: a broker does not answer record offsets or value versions, and the
log alone does not tell every topic's name, so topics of KIP-848 assignments are compared by id.
"""

from __future__ import annotations

import base64
from typing import Any

from coordinator_core.groups.model import GroupState
from coordinator_core.records.blobs import decode_consumer_assignment, decode_consumer_subscription
from coordinator_core.releases import Release
from tests.cases import Case

Json = dict[str, Any]
UNSTABLE_OFFSET_COMMIT = 88
_STATES = {state.value.lower(): state.value for state in GroupState}
"""The new coordinator of 3.7 answers states in lower case."""


def expected_groups(case: Case) -> dict[str, Json]:
    """Comparable form of every group the broker listed."""
    document = case.reloaded()
    if case.is_modern:
        groups = {
            group_id: modern_group(group) for group_id, group in document["groups"].items() if group["type"] != "absent"
        }
        if case.name.startswith("k431-torn/"):
            held = _held_partitions(case)
            groups = {
                group_id: group
                for group_id, group in groups.items()
                if document["groups"][group_id]["partition"] in held
            }
        return groups
    return {group_id: _old_group(group) for group_id, group in document["groups"].items()}


def answers_pending(case: Case) -> bool:
    """UNSTABLE_OFFSET_COMMIT came with 2.5 (KIP-447); the new coordinator of 3.7 never answers it."""
    release = Release.parse(case.release)
    return not case.is_modern or (release >= (2, 5) and release[:2] != (3, 7))


def asks_for_pending_only_offset_keys(case: Case) -> bool:
    """OffsetFetch of all topics never lists them; the cluster's recorder did not ask by name."""
    return case.name != "k431-cluster"


def _answers_member_types(case: Case) -> bool:
    """ConsumerGroupDescribe version 1."""
    return Release.parse(case.release) >= (4, 0)


def _held_partitions(case: Case) -> set[int]:
    """Torn cases keep only the damaged partition, while the broker answered for all of them."""
    return {int(path.name.rpartition("-")[2]) for path in case.paths[0].glob("__consumer_offsets-*")}


def comparable(group: Json, case: Case) -> Json:
    """A group of our document, reduced to what the broker's answer says too."""
    old = not case.is_modern
    reduced = {
        "state": group["state"],
        "protocol_type": group["protocol_type"],
        "protocol": group["protocol"] if group["type"] != "streams" else None,
        "members": {member["member_id"]: _our_member(member, group["type"], case) for member in group["members"]},
        "offsets": {
            (row["topic"], row["partition"]): _our_offset(row, old)
            for row in group["offsets"]
            if row["committed_offset"] is not None
        },
        "pending": sorted(
            (row["topic"], row["partition"])
            for row in group["offsets"]
            if row["pending"]
            and answers_pending(case)
            and (row["committed_offset"] is not None or asks_for_pending_only_offset_keys(case))
        ),
    }
    if old:
        if group["state"] is not None:
            reduced |= {"generation": group["generation"], "leader": group["leader"]}
    else:
        reduced |= {
            "type": group["type"],
            "group_epoch": group["group_epoch"],
            "assignment_epoch": group["assignment_epoch"],
        }
        if group["type"] == "streams" and Release.parse(case.release) >= (4, 2):
            # 4.1 knows of a topology only once it was sent to it again.
            reduced["topology"] = (
                group["topology"]["epoch"],
                [subtopology["subtopologyId"] for subtopology in group["topology"]["subtopologies"]],
            )
    return reduced


def _our_member(member: Json, group_type: str, case: Case) -> Json:
    common = {
        "instance_id": member["instance_id"],
        "client_id": member["client_id"],
        "client_host": member["client_host"],
    }
    if group_type == "classic":
        common |= {
            "subscribed_topics": member["subscribed_topics"],
            "assignment": {row["topic"]: row["partitions"] for row in member["assignment"]},
        }
        if not case.is_modern:
            common |= {
                "session_timeout_ms": member["session_timeout_ms"],
                "rebalance_timeout_ms": member["rebalance_timeout_ms"],
            }
        return common
    common |= {"rack_id": member["rack_id"], "member_epoch": member["member_epoch"]}
    if group_type == "streams":
        return common | {"assignment": member["assignment"], "target": member["target_assignment"]}
    common |= {
        "subscribed_topics": member["subscribed_topics"],
        "assignment": {row["topic_id"]: row["partitions"] for row in member["assignment"]},
    }
    if group_type == "consumer":
        common |= {
            "subscribed_regex": member["subscribed_regex"],
            "target": {row["topic_id"]: row["partitions"] for row in member["target_assignment"]},
            "is_classic": member["is_classic"] if _answers_member_types(case) else None,
        }
    return common


def _our_offset(row: Json, old: bool) -> Json:
    reduced = {
        "offset": row["committed_offset"],
        "leader_epoch": row["leader_epoch"],
        "metadata": row["metadata"],
    }
    if old:
        reduced |= {
            "commit_timestamp": row["commit_timestamp_ms"],
            "expire_timestamp": row["expire_timestamp_ms"],
        }
    return reduced


def modern_group(group: Json) -> Json:
    """Comparable form of a group as requests answer it (parts 1 and 3 of the corpus)."""
    described, kind = group["describe"], group["type"]
    reduced: Json = {
        "type": kind,
        "state": _STATES[described["groupState"].lower()],
        "protocol_type": (described["protocolType"] or None) if kind == "classic" else kind,
        "protocol": _protocol(described, kind),
        "group_epoch": described.get("groupEpoch"),
        "assignment_epoch": described.get("assignmentEpoch"),
        "members": {member["memberId"]: _modern_member(member, kind, described) for member in described["members"]},
        "offsets": {
            (row["topic"], row["partition"]): {
                "offset": row["offset"],
                "leader_epoch": row["leaderEpoch"] if row["leaderEpoch"] >= 0 else None,
                "metadata": row["metadata"],
            }
            for row in group["offsetFetch"]["offsets"]
        },
        "pending": sorted((row["topic"], row["partition"]) for row in _unstable(group)),
    }
    if kind == "streams" and described["topology"] is not None:
        reduced["topology"] = (
            described["topology"]["epoch"],
            [subtopology["subtopologyId"] for subtopology in described["topology"]["subtopologies"]],
        )
    return reduced


def _protocol(described: Json, kind: str) -> str | None:
    """The protocol of a classic group, the assignor of others. That of a streams group is a setting, not in the log."""
    if kind == "classic":
        return described["protocolData"] or None
    return described.get("assignorName") if kind != "streams" else None


def _unstable(group: Json) -> list[Json]:
    """Offset keys of open transactions: asked for by name, else those that OffsetFetch of all topics refused."""
    if "unstablePartitions" in group:
        named: list[Json] = group["unstablePartitions"]
        return named
    return [
        row
        for row in group.get("offsetFetchRequireStable", {}).get("offsets", [])
        if row["errorCode"] == UNSTABLE_OFFSET_COMMIT
    ]


def _modern_member(member: Json, kind: str, described: Json) -> Json:
    if kind == "classic":
        is_consumer = described["protocolType"] == "consumer"
        return {
            "instance_id": member["groupInstanceId"],
            "client_id": member["clientId"],
            "client_host": member["clientHost"],
            **_blobs(
                base64.b64decode(member["memberMetadata"]),
                base64.b64decode(member["memberAssignment"]),
                is_consumer,
            ),
        }
    common = {
        "instance_id": member.get("instanceId"),
        "client_id": member["clientId"],
        "client_host": member["clientHost"],
        "rack_id": member["rackId"],
        "member_epoch": member["memberEpoch"],
    }
    if kind == "streams":
        return common | {
            "assignment": _tasks(member["assignment"]),
            "target": _tasks(member["targetAssignment"]),
        }
    common |= {
        "subscribed_topics": sorted(member["subscribedTopicNames"]),
        "assignment": _topic_partitions(member["assignment"]),
    }
    if kind == "consumer":
        common |= {
            "subscribed_regex": member["subscribedTopicRegex"] or None,
            "target": _topic_partitions(member["targetAssignment"]),
            "is_classic": member["memberType"] == 0 if "memberType" in member else None,
        }
    return common


def _topic_partitions(assignment: Json) -> Json:
    return {row["topicId"]: sorted(row["partitions"]) for row in assignment["topicPartitions"]}


def _tasks(assignment: Json) -> Json:
    return {
        ours: sorted(
            (
                {"subtopology_id": task["subtopologyId"], "partitions": sorted(task["partitions"])}
                for task in assignment[theirs]
            ),
            key=lambda task: task["subtopology_id"],
        )
        for ours, theirs in (
            ("active_tasks", "activeTasks"),
            ("standby_tasks", "standbyTasks"),
            ("warmup_tasks", "warmupTasks"),
        )
    }


def _blobs(subscription: bytes, assignment: bytes, is_consumer: bool) -> Json:
    if not is_consumer:
        return {"subscribed_topics": [], "assignment": {}}
    assigned = decode_consumer_assignment(assignment)["assignedPartitions"] if assignment else []
    return {
        "subscribed_topics": sorted(decode_consumer_subscription(subscription)["topics"]),
        "assignment": {row["topic"]: sorted(row["partitions"]) for row in assigned},
    }


def _old_group(group: Json) -> Json:
    is_consumer = group["protocol_type"] == "consumer"
    reduced: Json = {
        "state": group["state"],
        "protocol_type": group["protocol_type"],
        "protocol": group["protocol"],
        "members": {
            member["member_id"]: {
                "instance_id": member["group_instance_id"],
                "client_id": member["client_id"],
                "client_host": member["client_host"],
                "session_timeout_ms": member["session_timeout_ms"],
                "rebalance_timeout_ms": member["rebalance_timeout_ms"],
                **_blobs(
                    base64.b64decode(member["subscription_b64"]),
                    base64.b64decode(member["assignment_b64"]),
                    is_consumer,
                ),
            }
            for member in group["members"]
        },
        "offsets": {
            (row["topic"], row["partition"]): {
                "offset": row["offset"],
                "leader_epoch": row["leader_epoch"],
                "metadata": row["metadata"],
                "commit_timestamp": row["commit_timestamp"],
                "expire_timestamp": row["expire_timestamp"],
            }
            for row in group["offsets"]
        },
        "pending": sorted(
            {
                (row["topic"], row["partition"])
                for rows in _pending_lists(group.get("pending_txn_offsets"))
                for row in rows
            }
        ),
    }
    if group["state"] is not None:
        reduced |= {"generation": group["generation"], "leader": group["leader"]}
    return reduced


def _pending_lists(pending: Any) -> list[Any]:
    if not pending:
        return []
    return list(pending.values()) if isinstance(pending, dict) else [pending]

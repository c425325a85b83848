"""The proof of an apply: the records that it added are those of the plan, each once, and the state is as foreseen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coordinator_core.groups.model import GroupType, OffsetKey, PartitionState
from coordinator_core.replay.interpret import GroupRecord, Interpreted, OffsetRecord
from coordinator_core.restore.model import NO_EPOCH, WRITES, Action, GroupPlan, Plan, Value, state_digest, value_of
from coordinator_core.restore.target import TargetGroup, groups_of

PROBLEMS_SHOWN = 20


class Added(NamedTuple):
    """A record that the log has got since the apply began, and what it means."""

    offsets_partition: int
    record_offset: int
    meaning: Interpreted


class Written(NamedTuple):
    """The record that holds what was planned for an offset key."""

    key: OffsetKey
    offsets_partition: int
    record_offset: int


@dataclass(slots=True)
class Proof:
    """``records`` are the planned ones, in log order; ``problems`` is empty where everything is proved."""

    groups: int
    offset_keys: int
    records: list[Written] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """JSON of ``restore verify``."""
        return {
            "verified": not self.problems,
            "groups": self.groups,
            "offset_keys": self.offset_keys,
            "records": [
                {**record.key._asdict(), "offsets_partition": place, "record_offset": offset}
                for record in self.records
                for _, place, offset in (record,)
            ],
            "problems": self.problems,
        }


def prove(
    plan: Plan, added: Iterable[Added], states: Sequence[PartitionState], answered: Mapping[str, TargetGroup]
) -> Proof:
    """Compare a plan with the records added since its apply began, the replayed state, and what coordinators answer.

    A commit by anybody else in one of its groups is a problem, as it is not of the plan: verify before consumers start.
    Of share groups the offsets topic has no offsets: their coordinators alone are compared.
    """
    writing = plan.writing()
    proof = Proof(len(writing), sum(len(list(group.writes())) for group in writing))
    _compare_records(proof, writing, added)
    replayed = groups_of(states, {})
    for group in writing:
        # Start offsets of share groups are in __share_group_state.
        logs = [] if group.type == GroupType.SHARE else [("the replayed log", replayed)]
        for who, groups in (*logs, ("its coordinator", answered)):
            _compare_state(proof, group, groups.get(group.group_id) or TargetGroup(group.group_id), who)
    return proof


def _compare_records(proof: Proof, writing: Sequence[GroupPlan], added: Iterable[Added]) -> None:
    groups = {group.group_id: group for group in writing if group.type != GroupType.SHARE}
    rows = {row.key: row for group in groups.values() for row in group.rows}
    found: set[OffsetKey] = set()
    for place in added:
        at = f"record {place.record_offset} of offsets partition {place.offsets_partition}"
        match place.meaning:
            case OffsetRecord(offset_key=key, value=value) if key.group_id in groups:
                row = rows.get(key)
                name = f"group {key.group_id!r}, {key.topic}-{key.partition}"
                committed = None if value is None else _value(value)
                if row is None or row.action not in WRITES:
                    proof.problems.append(f"{at} is not of the plan: {name}: {_said(committed)}")
                elif committed != value_of(row.after):
                    proof.problems.append(f"{at} is not what was planned for {name}: {_said(committed)}")
                elif key in found:
                    proof.problems.append(f"{at} writes {name} a second time")
                else:
                    found.add(key)
                    proof.records.append(Written(key, place.offsets_partition, place.record_offset))
            case GroupRecord(key=names, value=value):
                group = groups.get(names.get("group") or names.get("groupId") or "")
                if group is not None and not (group.action is Action.DELETE and value is None):
                    proof.problems.append(f"{at} is not of the plan: it changes group {group.group_id!r} itself")
    for key, row in rows.items():
        if row.action in WRITES and key not in found:
            proof.problems.append(
                f"no record has what was planned for group {key.group_id!r}, {key.topic}-{key.partition}"
            )


def _compare_state(proof: Proof, group: GroupPlan, now: TargetGroup, who: str) -> None:
    held = state_digest((OffsetKey(group.group_id, *key), place.value) for key, place in now.offsets.items())
    if held != group.state_digest:
        proof.problems.append(f"{who} has other offsets of group {group.group_id!r} than foreseen")
    if now.unstable:
        proof.problems.append(f"{who} has an open transaction with offsets of group {group.group_id!r}")
    if group.action is Action.DELETE and now.state is not None:
        proof.problems.append(f"{who} still has group {group.group_id!r}")


def _value(value: Mapping[str, Any]) -> Value:
    epoch = value.get("leaderEpoch", NO_EPOCH)
    return Value(value["offset"], NO_EPOCH if epoch is None else epoch, value["metadata"])


def _said(value: Value | None) -> str:
    return "a tombstone" if value is None else f"a commit of {value.offset}"

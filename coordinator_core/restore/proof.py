"""The proof of an apply: the records that it added are those of the plan, each once, and the state is as foreseen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from coordinator_core.groups.model import GroupType, OffsetKey, PartitionState
from coordinator_core.investigate.words import moment
from coordinator_core.log.types import NO_PRODUCER_ID
from coordinator_core.merge.packed import LongTexts
from coordinator_core.replay.interpret import GroupRecord, Interpreted, OffsetRecord
from coordinator_core.restore.model import (
    NO_EPOCH,
    WRITES,
    GroupPlan,
    Plan,
    Value,
    after_of,
    state_digest,
    value_of,
)
from coordinator_core.restore.target import TargetGroup, groups_of

_KEYS_SHOWN = 5
_SHOWN = 60
"""Characters of metadata in a message."""


class Added(NamedTuple):
    """A record that the log has got since the apply began, and its meaning."""

    offsets_partition: int
    record_offset: int
    meaning: Interpreted
    producer_id: int = NO_PRODUCER_ID


class Written(NamedTuple):
    """The record that holds the planned value of an offset key."""

    key: OffsetKey
    offsets_partition: int
    record_offset: int


@dataclass(slots=True)
class Proof:
    """``records`` are the planned ones, in log order; ``problems`` is empty where everything is proved.

    ``start_offsets`` of ``offset_keys`` are those of share groups, which have no record.
    """

    groups: int
    offset_keys: int
    start_offsets: int = 0
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
    plan: Plan,
    added: Iterable[Added],
    states: Sequence[PartitionState],
    answered: Mapping[str, TargetGroup],
    texts: LongTexts | None = None,
) -> Proof:
    """Compare a plan with the records added since its apply began, the replayed state, and the answers of coordinators.

    A foreign record in one of its groups is a problem, which says as far as the log tells by whom it is: verify before
    consumers start. What the log had before, and the plan does not show, is compared with answers alone: these leave
    out topics that may not be described. Of share groups the offsets topic has no offsets: their coordinators alone are
    compared. ``texts`` has the metadata that digests stand for in ``states``.
    """
    writing = plan.writing()
    keys = [(group.type == GroupType.SHARE, len(list(group.writes()))) for group in writing]
    proof = Proof(len(writing), sum(number for _, number in keys), sum(number for shares, number in keys if shares))
    foreign = _compare_records(proof, writing, added)
    replayed = groups_of(states, {}, {group.group_id: group.offsets_partition for group in writing}.get, texts)
    for group in writing:
        # Start offsets of share groups are in __share_group_state.
        if group.type != GroupType.SHARE:
            now = replayed.get(group.group_id) or TargetGroup(group.group_id)
            _compare_state(proof, group, _of_plan(now, group, foreign[group.group_id]), "the replayed log")
        _compare_state(proof, group, answered.get(group.group_id) or TargetGroup(group.group_id), "its coordinator")
    return proof


def _of_plan(now: TargetGroup, group: GroupPlan, foreign: Collection[tuple[str, int]]) -> TargetGroup:
    """The replayed group without offsets that the plan does not show and that no added record is of."""
    shown = {row.key[1:] for row in group.rows}.union(foreign)
    return replace(
        now,
        offsets={key: held for key, held in now.offsets.items() if key in shown},
        unstable={key: producers for key, producers in now.unstable.items() if key in shown},
    )


def _compare_records(
    proof: Proof, writing: Sequence[GroupPlan], added: Iterable[Added]
) -> Mapping[str, Collection[tuple[str, int]]]:
    """Notes planned and foreign records; of the foreign ones the topics and partitions, by group."""
    groups = {group.group_id: group for group in writing if group.type != GroupType.SHARE}
    rows = {row.key: row for group in groups.values() for row in group.rows}
    found: set[OffsetKey] = set()
    foreign: dict[str, set[tuple[str, int]]] = defaultdict(set)
    joined: dict[str, dict[str, str]] = defaultdict(dict)
    for place in added:
        at = f"record {place.record_offset} of offsets partition {place.offsets_partition}"
        match place.meaning:
            case OffsetRecord(offset_key=key, value=value) if key.group_id in groups:
                row = rows.get(key)
                committed = None if value is None else _value(value)
                if row is None or row.action not in WRITES:
                    why = "the plan writes nothing there"
                elif committed != value_of(row.after):
                    why = f"the plan has {_said(value_of(row.after))}"
                elif key in found:
                    why = "it is there a second time"
                else:
                    found.add(key)
                    proof.records.append(Written(key, place.offsets_partition, place.record_offset))
                    continue
                foreign[key.group_id].add(key[1:])
                what = f"{_said(committed)} {_by(place, value, joined[key.group_id])}"
                proof.problems.append(f"{at} is foreign: {key.in_words}: {what}; {why}")
            case GroupRecord(key=names, value=value):
                group_id = names.get("group") or names.get("groupId") or ""
                group = groups.get(group_id)
                # Brokers remove a group without offsets, at once or at their next sweep.
                if group is not None and not (group.leaves_nothing and value is None):
                    members = joined[group_id]
                    _note_members(members, names, value)
                    who = f" (members: {', '.join(members.values())})" if members else ""
                    proof.problems.append(f"{at} is foreign: it changes group {group_id!r} itself{who}")
    for key, row in rows.items():
        if row.action in WRITES and key not in found:
            proof.problems.append(f"no record has the planned value of {key.in_words}")
    return foreign


def _note_members(members: dict[str, str], names: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
    """Clients by member id; all of a classic group are in its record, others have one each."""
    if value is None:
        members.pop(names.get("memberId", ""), None)
    elif "members" in value:
        members.clear()
        members.update((each["memberId"], _client(each)) for each in value["members"])
    elif "clientId" in value:
        members[names["memberId"]] = _client(value)


def _client(member: Mapping[str, Any]) -> str:
    return f"client {member['clientId']!r} at {member['clientHost']}"


def _by(place: Added, value: Mapping[str, Any] | None, members: Mapping[str, str]) -> str:
    """Writer of an offset record, as far as the log tells: a commit has no name in it."""
    if value is None:
        return "by a deletion, or as it expired"
    at = moment(value["commitTimestamp"])
    if place.producer_id != NO_PRODUCER_ID:
        return f"in a transaction of producer {place.producer_id}, {at}"
    if members:
        return f"by {'its member' if len(members) == 1 else 'one of its members'}, {', '.join(members.values())}, {at}"
    return f"by a client that is no member (standalone consumer, admin client), {at}"


def _compare_state(proof: Proof, group: GroupPlan, now: TargetGroup, who: str) -> None:
    held = {OffsetKey(group.group_id, *key): place.value for key, place in now.offsets.items()}
    if state_digest(held.items()) != group.state_digest:
        foreseen = dict(after_of(group.rows))
        other = [key for key in sorted(held | foreseen) if held.get(key) != foreseen.get(key)]
        said = ", ".join(f"{key.topic_partition} holds {_held(held.get(key))}" for key in other[:_KEYS_SHOWN])
        more = f" and {len(other) - _KEYS_SHOWN} more" if len(other) > _KEYS_SHOWN else ""
        proof.problems.append(f"{who} has other offsets of group {group.group_id!r} than foreseen: {said}{more}")
    if now.unstable:
        proof.problems.append(f"{who} has an open transaction with offsets of group {group.group_id!r}")
    if group.is_deleted and now.state is not None:
        proof.problems.append(f"{who} still has group {group.group_id!r}")


def _value(value: Mapping[str, Any]) -> Value:
    epoch = value.get("leaderEpoch", NO_EPOCH)
    return Value(value["offset"], NO_EPOCH if epoch is None else epoch, value["metadata"])


def _held(value: Value | None) -> str:
    return "nothing" if value is None else _said(value).removeprefix("a commit of ")


def _said(value: Value | None) -> str:
    if value is None:
        return "a tombstone"
    epoch = "" if value.leader_epoch == NO_EPOCH else f", leader epoch {value.leader_epoch}"
    metadata = value.metadata and (repr(str(value.metadata)) if len(value.metadata) <= _SHOWN else "that is long")
    return f"a commit of {value.offset}{epoch}{metadata and f', metadata {metadata}'}"

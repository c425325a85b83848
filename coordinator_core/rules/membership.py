"""Rules about groups and members: assignments, subscriptions, leaders, epochs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.groups.model import GroupType
from coordinator_core.history.signs import Seen, disagree, families
from coordinator_core.releases import EPOCH_KEY_TYPES
from coordinator_core.rules.columns import Bools, Int64s, coded, combined, is_in, lookup
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.model import Limits, Rule, Severity
from coordinator_core.rules.needs import Need

_GROUP_TYPES = EPOCH_KEY_TYPES | {2}
_RECORDS_OF_ONE_LIFE = 2


def _group_type_of_members(facts: Facts, *kinds: GroupType) -> Bools:
    found = np.zeros(len(facts.members), np.bool_)
    for kind in kinds:
        found |= facts.members.equals("group_type", kind)
    return found


def _with_partition(facts: Facts, at: Int64s, **more: pa.Array) -> pa.Table:
    """Findings for these rows of ``facts.assigned``, with ``more`` columns."""
    assigned = facts.assigned
    owned = {"topic": facts.topic_names(assigned.identity[at]), "partition": assigned.partition[at]}
    return facts.members.rows(assigned.member[at], "group_id", "member_id", **owned, **more)


def _member_ids(facts: Facts, rows: Int64s) -> pa.Array:
    return facts.members.array("member_id").take(pa.array(rows)).cast(pa.string())


def _owned_twice(facts: Facts, _: Limits) -> pa.Table:
    assigned = facts.assigned
    exclusive = _group_type_of_members(facts, GroupType.CLASSIC, GroupType.CONSUMER)[assigned.member]
    key = combined(assigned.group, assigned.identity, assigned.partition)
    order = np.lexsort((assigned.member, key))
    order = order[exclusive[order]]
    same = np.flatnonzero(
        (key[order][1:] == key[order][:-1]) & (assigned.member[order][1:] != assigned.member[order][:-1])
    )
    return _with_partition(facts, order[same + 1], other_member=_member_ids(facts, assigned.member[order[same]]))


def _not_subscribed(facts: Facts, _: Limits) -> pa.Table:
    assigned = facts.assigned
    member, topic = facts.subscriptions
    width = len(facts.topic_texts) + 1
    wanted = np.unique(member * width + topic)
    own = assigned.member * width + assigned.topic
    judged = facts.subscription_is_known[assigned.group] & facts.is_active[assigned.group] & (assigned.topic >= 0)
    bad = np.flatnonzero(judged & ~is_in(own, wanted))
    _, first, count = np.unique(own[bad], return_index=True, return_counts=True)
    return _with_partition(facts, bad[first], rows=pa.array(count))


def _absent_partition(facts: Facts, _: Limits) -> pa.Table:
    assert facts.topics is not None
    assigned = facts.assigned
    # An id without a name may be that of any topic that is listed without an id.
    known = (assigned.topic >= 0) | facts.topics.have_ids
    bad = np.flatnonzero(known & (facts.topics.locate(facts.live_topic[assigned.topic], assigned.partition) < 0))
    return _with_partition(facts, bad)


def _unowned(facts: Facts, _: Limits) -> pa.Table:
    assert facts.topics is not None
    judged = facts.is_active & facts.subscription_is_known & facts.ownership_is_known
    member, topic = facts.subscriptions
    group = facts.group_row("members")[member]
    keep = judged[group] & (facts.live_topic[topic] >= 0)
    pairs = np.unique(np.stack([group[keep], topic[keep]]), axis=1)
    group, topic = pairs[0], pairs[1]
    old = np.append(0, np.cumsum(~facts.topics.is_new))
    first, count = facts.topics.first[facts.live_topic[topic]], facts.topics.count[facts.live_topic[topic]]
    partitions = old[first + count] - old[first]
    assigned = facts.assigned
    owned = np.stack([assigned.group, assigned.topic, assigned.partition])
    have = _live_partitions(facts, owned, group, topic)
    bad = np.flatnonzero(have < partitions)
    owned = np.hstack([owned[:, is_in(owned[0], group[bad])], np.stack(facts.handed_over(group[bad]))])
    bad = bad[_live_partitions(facts, owned, group[bad], topic[bad]) < partitions[bad]]
    more = {"topic": facts.topic_names(topic[bad]), "partitions": partitions[bad], "owned": have[bad]}
    return facts.groups.rows(group[bad], "group_id", "protocol", **more)


def _live_partitions(facts: Facts, partitions: Int64s, group: Int64s, topic: Int64s) -> Int64s:
    """How many of ``partitions`` (rows in ``groups``, numbers of topics, partitions) are there in the cluster, and not
    new, of each ``group`` and ``topic``."""
    assert facts.topics is not None
    at = facts.topics.locate(facts.live_topic[partitions[1]], partitions[2])
    live = (at >= 0) & ~np.append(facts.topics.is_new, True)[at]
    found = np.unique(partitions[:, live], axis=1)
    keys, counts = np.unique(facts.group_topic(found[0], found[1]), return_counts=True)
    count: Int64s = np.append(counts, 0)[lookup(facts.group_topic(group, topic), keys)]
    return count


def _leader_unknown(facts: Facts, _: Limits) -> pa.Table:
    groups, members = facts.groups, facts.members
    leader, member = coded(groups.array("leader"), members.array("member_id"))[0]
    row = facts.group_row("members")
    is_leader = np.zeros(len(members), np.bool_)
    there = row >= 0
    is_leader[there] = leader[row[there]] == member[there]
    bad = (
        groups.equals("type", GroupType.CLASSIC)
        & (groups.numbers("member_count") > 0)
        & ~facts.group_rows_with(np.where(is_leader, row, -1))
    )
    return groups.rows(bad, "group_id", "leader", "member_count", "generation")


def _no_protocol(facts: Facts, _: Limits) -> pa.Table:
    groups = facts.groups
    lacks = groups.lacks("protocol") | groups.lacks("protocol_type")
    bad = groups.equals("type", GroupType.CLASSIC) & (groups.numbers("member_count") > 0) & lacks
    return groups.rows(bad, "group_id", "protocol_type", "protocol", "member_count")


def _epoch_ahead(facts: Facts, _: Limits) -> pa.Table:
    groups, members = facts.groups, facts.members
    epoch = groups.numbers("group_epoch")
    assignment = groups.numbers("assignment_epoch")
    modern = ~groups.equals("type", GroupType.CLASSIC)
    bad = modern & (assignment > epoch)
    what = pa.repeat("assignment", int(bad.sum()))
    of_groups = groups.rows(bad, "group_id", "group_epoch", epoch=assignment[bad], what=what)
    row = facts.group_row("members")
    ahead = modern[row] & (members.numbers("member_epoch") > epoch[row]) & (row >= 0)
    epochs = {"group_epoch": epoch[row[ahead]].astype(np.int32), "epoch": members.numbers("member_epoch")[ahead]}
    what = pa.repeat("member", int(ahead.sum()))
    of_members = members.rows(ahead, "group_id", "member_id", **epochs, what=what)
    return pa.concat_tables([of_groups, of_members], promote_options="default")


def _target_of_nobody(facts: Facts, _: Limits) -> pa.Table:
    targets, members = facts.table("target_assignments"), facts.members
    names = coded(targets.array("member_id"), members.array("member_id"))[0]
    groups = facts.group_row("target_assignments"), facts.group_row("members")
    both = combined(np.concatenate(groups), np.concatenate(names))
    bad = ~is_in(both[: len(targets)], both[len(targets) :])
    return targets.rows(bad, "group_id", "member_id", "group_type")


def _same_instance(facts: Facts, _: Limits) -> pa.Table:
    members = facts.members
    (instance,), _texts = coded(members.array("instance_id"))
    key = combined(facts.group_row("members"), instance)
    order = np.argsort(key, kind="stable")
    same = np.flatnonzero((key[order][1:] == key[order][:-1]) & (instance[order][1:] >= 0))
    others = _member_ids(facts, order[same])
    return members.rows(order[same + 1], "group_id", "member_id", "instance_id", other_member=others)


def _of_classic_consumers(facts: Facts, row: Int64s) -> Bools:
    return _group_type_of_members(facts, GroupType.CLASSIC) & facts.is_consumers[row] & (row >= 0)


def _broken_assignment(facts: Facts, _: Limits) -> pa.Table:
    members = facts.members
    consumers = _of_classic_consumers(facts, facts.group_row("members"))
    return members.rows(consumers & members.is_null("assignment"), "group_id", "member_id", "client_id")


def _left_out(facts: Facts, _: Limits) -> pa.Table:
    members = facts.members
    row = facts.group_row("members")
    consumers = _of_classic_consumers(facts, row)
    size = pc.fill_null(pc.binary_length(members.array("assignment_data")), 0).to_numpy(zero_copy_only=False)
    has_some = facts.group_rows_with(np.where(consumers & (size > 0), row, -1))
    return members.rows(consumers & (size == 0) & has_some[row], "group_id", "member_id", "client_id")


def _large_record(facts: Facts, limits: Limits) -> pa.Table:
    groups, members = facts.groups, facts.members
    size = np.zeros(len(members), np.int64)
    for name in ("member_id", "instance_id", "client_id", "client_host", "subscription", "assignment_data"):
        column = members.array(name)
        column = column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
        size += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    size += 4 * 2 + 2 * 4 + 2 * 4  # lengths of four strings and two blobs, two timeouts
    row = facts.group_row("members")
    total = np.bincount(row[row >= 0], size[row >= 0], minlength=len(groups)).astype(np.int64)
    most = int(limits["max_message_bytes"])
    bad = groups.equals("type", GroupType.CLASSIC) & (total > most * limits["record_size_share"])
    return groups.rows(bad, "group_id", "member_count", record_bytes=total[bad], max_message_bytes=most)


def _half_a_member(facts: Facts, _: Limits) -> pa.Table:
    members = facts.members
    bad = ~_group_type_of_members(facts, GroupType.CLASSIC) & (members.numbers("record_offset") < 0)
    rows = members.rows(bad, "group_id", "member_id", "group_type", "assignment_record_offset")
    # The record that is there is the one to look at.
    return rows.set_column(rows.column_names.index("record_offset"), "record_offset", rows["assignment_record_offset"])


def _two_applications(facts: Facts, _: Limits) -> pa.Table:
    member, topic = facts.subscriptions
    # Members of one group with other sums subscribe to other topics; only their groups are looked at one by one.
    sums = np.zeros(len(facts.members), np.uint64)
    np.add.at(sums, member, (topic.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
    row = facts.group_row("members")
    judged = facts.of_groups(facts.is_active & facts.subscription_is_known, row) & (sums > 0)
    found: dict[int, str] = {}
    by_group: dict[int, list[int]] = {}
    for number in np.flatnonzero(judged).tolist():
        by_group.setdefault(int(row[number]), []).append(number)
    for group, numbers in by_group.items():
        if len({int(sums[number]) for number in numbers}) < 2:
            continue
        topics = {number: frozenset(topic[member == number].tolist()) for number in numbers}
        if disagree(topics.values()):
            kinds = sorted(
                {tuple(sorted(facts.topic_names(np.array(sorted(one))).to_pylist())) for one in topics.values()}
            )
            found[group] = "; ".join(", ".join(kind) for kind in kinds)
    rows, texts = np.array(list(found), np.int64), pa.array(list(found.values()), pa.string())
    return facts.groups.rows(rows, "group_id", "member_count", subscriptions=texts)


def _one_shot_groups(facts: Facts, _: Limits) -> pa.Table:
    stats = facts.table("group_stats")
    names = [stats.array("offsets_partition").to_pylist(), stats.array("group_id").to_pylist()]
    numbers = (
        stats.numbers(name).tolist()
        for name in (
            *("key_type", "records", "tombstones", "size_bytes"),
            *("first_timestamp_ms", "last_timestamp_ms"),
        )
    )
    with_members = pa.array(facts.groups.numbers("member_count") > 0)
    have_members = set(facts.groups.array("group_id").filter(with_members).to_pylist())
    of_group = np.isin(stats.numbers("key_type"), list(_GROUP_TYPES))
    told = set(stats.array("group_id").filter(pa.array(of_group)).to_pylist())
    groups: dict[str, Seen] = {}
    partitions: dict[str, int] = {}
    for partition, name, key_type, records, tombstones, size, first, newest in zip(*names, *numbers, strict=True):
        # Offsets may be deleted long after the life of a group that has records of its own.
        last = first if tombstones and key_type not in _GROUP_TYPES and name in told else newest
        seen = groups.get(name, Seen(name, first, last, 0, True, name in have_members))
        # A group that lives once has a record as its members join, and one as they leave.
        once = key_type not in _GROUP_TYPES or records - tombstones <= _RECORDS_OF_ONE_LIFE
        groups[name] = seen._replace(
            first_ms=min(seen.first_ms, first),
            last_ms=max(seen.last_ms, last),
            size_bytes=seen.size_bytes + size,
            came_once=seen.came_once and once,
        )
        partitions[name] = partition
    rows = [
        {
            "offsets_partition": partitions[family.groups[-1].group_id],
            "record_offset": None,
            "group_id": family.groups[-1].group_id,
            "pattern": family.pattern,
            "groups": len(family.groups),
            "per_hour": round(family.born_per_hour),
            "size_bytes": family.size_bytes,
        }
        for family in families(groups.values())
    ]
    columns = {"offsets_partition": pa.int32(), "record_offset": pa.int64(), "group_id": pa.string()}
    columns |= {"pattern": pa.string()} | dict.fromkeys(("groups", "per_hour", "size_bytes"), pa.int64())
    return pa.Table.from_pylist(rows, schema=pa.schema(list(columns.items())))


OWNED_TWICE = Rule(
    "R10",
    "partition-owned-twice",
    Severity.CRITICAL,
    summary="Two members of a group own the same partition.",
    why="Both consume it: every record is processed twice, and their commits overwrite each other "
    "(KAFKA-12984). Groups with an assignor that does so on purpose should mute this rule.",
    evidence="Both members, the partition.",
    remedy="Force a rebalance (restart a member); check the assignor and its version on all members.",
    message="{topic}-{partition} is owned by {member_id} and by {other_member}",
    reads=("members", "groups"),
    find=_owned_twice,
)
NOT_SUBSCRIBED = Rule(
    "R11",
    "assigned-but-not-subscribed",
    Severity.WARNING,
    summary="A member owns partitions of a topic that it does not subscribe to.",
    why="Its consumer drops what it fetches or refuses the assignment, and nobody else consumes the "
    "partitions (KAFKA-7961).",
    evidence="The member, the topic, how many partitions.",
    remedy="Check the assignor; force a rebalance.",
    message="{member_id} owns {topic}-{partition} and does not subscribe to {topic}",
    reads=("members", "groups", "regexes"),
    find=_not_subscribed,
)
ABSENT_PARTITION = Rule(
    "R12",
    "assigned-partition-does-not-exist",
    Severity.CRITICAL,
    summary="A member owns a partition that the cluster does not have.",
    why="The topic was deleted or re-created with fewer partitions; the member waits for records that never come.",
    evidence="The member, the partition. Of a topic id without a name nothing is said where the topics lack ids.",
    remedy="Check the topic; force a rebalance.",
    message="{member_id} owns {topic}-{partition}, which is not in the topic snapshot",
    reads=("members", "groups"),
    needs=(Need.TOPICS,),
    find=_absent_partition,
)
UNOWNED = Rule(
    "R13",
    "subscribed-partition-without-owner",
    Severity.CRITICAL,
    summary="A stable group subscribes to a topic, and nobody owns some of its partitions.",
    why="Nobody consumes them; the lag grows without an error anywhere.",
    evidence="How many partitions the topic has, and how many have an owner. Those without a record, or with the first "
    "one in the 5 minutes before the capture, do not count, nor does what a cooperative rebalance hands over.",
    remedy="Force a rebalance; consumers that do not know new partitions yet refresh their metadata.",
    message="{group_id} owns {owned} of the {partitions:partition} of {topic}",
    reads=("members", "groups", "regexes"),
    needs=(Need.TOPICS,),
    find=_unowned,
)
LEADER_UNKNOWN = Rule(
    "R14",
    "leader-is-not-a-member",
    Severity.WARNING,
    summary="The leader of a classic group is not among its members.",
    why="Nobody can compute the next assignment; a coordinator does not write such a record.",
    evidence="The group's record, the leader it names.",
    remedy="Let the members rejoin (restart them one by one).",
    message="leader {leader} of {group_id} is none of its {member_count:member}",
    reads=("groups", "members"),
    find=_leader_unknown,
    also=("D9",),
)
NO_PROTOCOL = Rule(
    "R15",
    "members-without-protocol",
    Severity.WARNING,
    summary="A classic group has members and no protocol, or no protocol type.",
    why="The next join is refused as inconsistent; a coordinator does not write such a record.",
    evidence="The group's record.",
    remedy="Let all members leave, so that the group becomes Empty, and start them again.",
    message="{group_id} has {member_count:member}, protocol type {protocol_type}, protocol {protocol}",
    reads=("groups",),
    find=_no_protocol,
    also=("D9",),
)
EPOCH_AHEAD = Rule(
    "R17",
    "epoch-ahead-of-group",
    Severity.CRITICAL,
    summary="The assignment's or a member's epoch is above the group's epoch.",
    why="Epochs only come from the group's: records are missing or were overwritten. The member is fenced at "
    "its next heartbeat, or never.",
    evidence="Both epochs.",
    remedy="Let the member rejoin; compare the replicas of the offsets partition.",
    message="{what} epoch {epoch} is above group epoch {group_epoch} of {group_id}",
    reads=("groups", "members"),
    find=_epoch_ahead,
)
TARGET_OF_NOBODY = Rule(
    "R18",
    "target-assignment-of-unknown-member",
    Severity.WARNING,
    summary="There is a target assignment for a member that the group does not have.",
    why="Its partitions are reserved for nobody. Of the tombstones of a deleted member compaction took some "
    "and left others (KAFKA-21102): the partition may not load.",
    evidence="The target assignment's record.",
    remedy="Let the group rebalance, which computes the target anew.",
    message="target assignment for {member_id}, which is no member of {group_id}",
    reads=("target_assignments", "members"),
    find=_target_of_nobody,
)
SAME_INSTANCE = Rule(
    "R19",
    "instance-id-used-twice",
    Severity.CRITICAL,
    summary="Two members of a group have the same group instance id.",
    why="A static member is one member: each fences the other. The new coordinator, and the classic one from 3.0 "
    "on, do not load a classic group of this kind.",
    evidence="Both members.",
    remedy="Give each instance its own group.instance.id; restart the older one.",
    message="{member_id} and {other_member} both are instance {instance_id}",
    reads=("members",),
    find=_same_instance,
    also=("D7",),
)
BROKEN_ASSIGNMENT = Rule(
    "R21",
    "assignment-cannot-be-read",
    Severity.WARNING,
    summary="The assignment of a member of a consumer group cannot be read.",
    why="The member idles or dies; tools that read it crash.",
    evidence="The member.",
    remedy="See the bytes with: regroup dump. Check the version of the leader's assignor.",
    message="the assignment of {member_id} is not of the consumer protocol",
    reads=("members", "groups"),
    find=_broken_assignment,
    also=("D8",),
)
LARGE_RECORD = Rule(
    "R23",
    "group-record-near-size-limit",
    Severity.WARNING,
    summary="A group's metadata record is nearly as large as a message may be.",
    why="Beyond it the next rebalance fails, again and again: the record cannot be written.",
    evidence="Bytes of the record, and the limit.",
    remedy="Raise max.message.bytes of __consumer_offsets, or split the group; use compression for it.",
    message="the record of {group_id} with {member_count:member} has about {record_bytes} of {max_message_bytes} bytes",
    reads=("members", "groups"),
    thresholds=("max_message_bytes", "record_size_share"),
    find=_large_record,
    also=("D16",),
)
LEFT_OUT = Rule(
    "R24",
    "member-left-out-of-assignment",
    Severity.INFO,
    summary="The leader left a member out of its assignment altogether.",
    why="It idles. Normal while a member joins, or when the leader did not see it.",
    evidence="The member; others of the group have an assignment.",
    remedy="If it lasts: check that all members use the same assignor.",
    message="{member_id} has no assignment, other members of {group_id} have",
    reads=("members", "groups"),
    find=_left_out,
    also=("D8",),
)
TWO_APPLICATIONS = Rule(
    "R26",
    "two-applications-in-one-group",
    Severity.WARNING,
    summary="Members of a group subscribe to topics of which none is the same.",
    why="Two applications use one group id, or a deployment that changes the topics is half done. Each rebalance of "
    "one stops the other; with some assignors partitions are left without an owner.",
    evidence="The different subscriptions.",
    remedy="Give each application a group id of its own.",
    message="members of {group_id} subscribe to different topics: {subscriptions}",
    reads=("members", "groups", "regexes"),
    find=_two_applications,
)
ONE_SHOT_GROUPS = Rule(
    "R27",
    "family-of-one-shot-groups",
    Severity.WARNING,
    summary="Many groups have ids that differ in a number or a random part only, lived once, for a day at most, and "
    "have no members.",
    why="An application makes a group id at each start. Each stays for the retention time: brokers load and keep them, "
    "and no restart finds its offsets.",
    evidence="The pattern of the ids, how many, how many new ones an hour, their bytes.",
    remedy="Give the application a fixed group.id; if it needs none, assign() and no commits. Delete the old ones.",
    message="{groups:group} named like {pattern}, {per_hour} new ones an hour",
    reads=("group_stats", "groups"),
    find=_one_shot_groups,
    across=True,
)
HALF_A_MEMBER = Rule(
    "R63",
    "part-of-a-deleted-member",
    Severity.WARNING,
    summary="Of a member only its current assignment is there, without the record that describes it.",
    why="A deletion writes several tombstones; the cleaner took them at different times, or some were never "
    "written. Releases before 4.0 do not load such a partition (KAFKA-17306, KAFKA-19862).",
    evidence="The assignment's record.",
    remedy="Let the group rebalance; upgrade before the partition's leader moves to an older release.",
    message="{member_id} of {group_id} has an assignment, but no record says who it is",
    reads=("members",),
    find=_half_a_member,
)

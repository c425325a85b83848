"""Facts for rules: the tables of a run, prepared once for all of them, and the optional inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.groups.classic import owned_at_join
from coordinator_core.groups.model import GroupState, GroupType
from coordinator_core.process.allocator import give_back_freed_memory
from coordinator_core.releases import Profile, profile_from_label
from coordinator_core.rules.columns import Bools, Columns, Int64s, coded, combined, is_in
from coordinator_core.rules.needs import Need
from coordinator_core.rules.parts import PART_ROWS, GroupRange, RunPart, committed_by_group, divided
from coordinator_core.rules.topics import Topics
from coordinator_core.runs.read import Run

T = TypeVar("T")

_OF_GROUPS = ("members", "regexes", "streams_topology", "target_assignments")
"""Tables whose rows exist only with their group."""
_OF_TOPICS = (Need.TOPICS, Need.EPOCHS, Need.REPLICAS, Need.CONFIG)


@dataclass(frozen=True)
class Assigned:
    """Partitions that members own, one a row.

    Arrays of one length. ``member``: row in ``members``; ``group``: row in ``groups``; ``topic``: number of the
    topic's name in :attr:`Facts.topic_names`; ``identity``: number of its name or, when no name is known, of its id.
    """

    member: Int64s
    group: Int64s
    topic: Int64s
    identity: Int64s
    partition: Int64s


@dataclass(frozen=True)
class Part:
    """``facts`` of a part of a run: whole offsets partitions (``has_partitions``), or some groups of one. Each group is
    in one part with ``has_groups``, each offsets partition in one with ``has_partitions``."""

    facts: Facts
    has_partitions: bool = True
    has_groups: bool = True


@dataclass
class Facts:
    """One run, and the facts besides it; columns are read when they are asked for."""

    run: Run
    topics: Topics | None = None
    previous: Facts | None = None
    extra: dict[Need, Any] = field(default_factory=dict)
    captured_ms: int | None = None
    """Time of capture of the newest topics with which the run was reconciled before; ``None``: not known."""

    _notes: dict[str, Any] = field(default_factory=dict)
    _tables: dict[str, Columns] = field(default_factory=dict)

    def noted(self, name: str, make: Callable[[], T]) -> T:
        """An intermediate result by its name: made once, for all rules that use it."""
        if name not in self._notes:
            self._notes[name] = make()
        found: T = self._notes[name]
        return found

    @property
    def now_ms(self) -> int:
        return self.run.now_ms

    def each_part(self, ask: Callable[[Part], T]) -> list[T]:
        """What ``ask`` tells of each part, which it must not keep: these facts, or where that would be more than some
        :data:`PART_ROWS` committed offsets in both runs together, facts of some partitions, or of some groups of one.
        """
        found = []
        for part in self._parts():
            found.append(ask(part))
            if part.facts is not self:
                del part
                give_back_freed_memory()
        return found

    def _parts(self) -> Iterator[Part]:
        runs = [self.run] if self.previous is None else [self.run, self.previous.run]
        if sum(run.rows("offsets") for run in runs) <= PART_ROWS:
            yield Part(self)
            return
        partitions = {int(name) for run in runs for name in run.manifest["cut"]}
        committed = [self.committed_by_group, *([] if self.previous is None else [self.previous.committed_by_group])]
        for numbers, ranges in divided(partitions, pa.concat_tables(committed), PART_ROWS):
            yield Part(self._part(numbers), has_groups=not ranges)
            for groups in ranges:
                yield Part(self._part(numbers, groups), has_partitions=False)

    def _part(self, partitions: Collection[int], groups: GroupRange | None = None) -> Facts:
        previous = None if self.previous is None else self.previous._part(partitions, groups)
        return Facts(RunPart.of(self.run, partitions, groups), self.topics, previous, self.extra, self.captured_ms)

    @cached_property
    def committed_by_group(self) -> pa.Table:
        """:func:`parts.committed_by_group` of the run."""
        return committed_by_group(self.run)

    @cached_property
    def profile(self) -> Profile:
        return profile_from_label(self.run.profile)

    def missing(self, need: Need) -> bool:
        if need in _OF_TOPICS:
            return self.topics is None or need not in self.topics.tells
        if need is Need.PREVIOUS_RUN:
            return self.previous is None
        return need not in self.extra

    def table(self, name: str) -> Columns:
        if name not in self._tables:
            self._tables[name] = Columns(self.run, name)
        return self._tables[name]

    @property
    def offsets(self) -> Columns:
        return self.table("offsets")

    @property
    def groups(self) -> Columns:
        return self.table("groups")

    @property
    def members(self) -> Columns:
        return self.table("members")

    # Names

    @cached_property
    def _groups_coded(self) -> tuple[dict[str, Int64s], pa.Array]:
        tables = [name for name in ("groups", "offsets", *_OF_GROUPS) if self.run.has_table(name)]
        numbers, texts = coded(*(self.table(name).array("group_id") for name in tables))
        return dict(zip(tables, numbers, strict=True)), texts

    def group_row(self, table: str) -> Int64s:
        """Row in ``groups`` of the group of each row of ``table`` (int64).

        -1 for offsets and statistics of a group that is not there; for rows of a group's own (members, subscriptions,
        assignments) that is :class:`DamagedInputError`.
        """
        if table not in self._group_rows:
            codes, _ = self._groups_coded
            wanted = self._group_key(self.table(table).numbers("offsets_partition"), codes[table])
            keys = self._group_key(self.groups.numbers("offsets_partition"), codes["groups"])
            found = self.groups.rows_of(wanted, keys)
            if table in _OF_GROUPS and len(found) and found.min() < 0:
                raise self.table(table).impossible(int(found.argmin()), "its group is not in the table groups")
            self._group_rows[table] = found
        return self._group_rows[table]

    @cached_property
    def _group_rows(self) -> dict[str, Int64s]:
        return {}

    @staticmethod
    def _group_key(partition: Int64s, code: Int64s) -> Int64s:
        return partition << 32 | code

    @cached_property
    def names_by_id(self) -> dict[str, str]:
        """Topic names by topic id, from the snapshot's directories and from the topics."""
        return self.run.topic_names | ({} if self.topics is None else self.topics.names_by_id)

    @cached_property
    def _topics_coded(self) -> tuple[dict[str, Int64s], pa.Array]:
        owned, subscribed, regexes = self._owned, self._subscriptions, self._regex_topics
        live = pa.array([], pa.string()) if self.topics is None else self.topics.names
        columns = {
            "offsets": self.offsets.array("topic"),
            "owned": owned["topic"].combine_chunks(),
            "identity": pc.coalesce(owned["topic"], owned["topic_id"]).combine_chunks(),
            "subscribed": subscribed["topic"].combine_chunks(),
            "regexes": regexes["topic"].combine_chunks(),
            "sources": self._sources["topic"].combine_chunks(),
            "live": live,
        }
        numbers, texts = coded(*columns.values())
        return dict(zip(columns, numbers, strict=True)), texts

    @property
    def topic_texts(self) -> pa.Array:
        """Names of topics, by number."""
        return self._topics_coded[1]

    @property
    def offset_topic(self) -> Int64s:
        """Number of the topic's name of each committed offset (int64)."""
        return self._topics_coded[0]["offsets"]

    def topic_names(self, numbers: Int64s) -> pa.Array:
        """The names that ``numbers`` stand for; null for -1."""
        index = pa.array(numbers, mask=numbers < 0)
        return self.topic_texts.take(index)

    @cached_property
    def live_topic(self) -> Int64s:
        """Position in :attr:`topics` of the topic of each name, by number of the name; -1 for none."""
        live = self._topics_coded[0]["live"]
        position = np.full(len(self.topic_texts) + 1, -1, np.int64)
        position[live] = np.arange(len(live))
        return position

    def live_ids(self, numbers: Int64s) -> pa.Array:
        """Ids in :attr:`topics` of topics by number of the name; null where there is none."""
        ids = pa.array([] if self.topics is None else self.topics.ids, pa.string())
        live = self.live_topic[numbers]
        return ids.take(pa.array(live, mask=live < 0))

    @cached_property
    def offset_place(self) -> Int64s:
        """Row of each committed offset's partition in :attr:`topics`; -1 for none."""
        assert self.topics is not None
        return self.topics.locate(self.live_topic[self.offset_topic], self.offsets.numbers("partition"))

    # Groups

    @cached_property
    def is_active(self) -> Bools:
        """Mask over ``groups``: Stable, with members, offsets kept by subscription."""
        return self.groups.equals("state", GroupState.STABLE) & (self.groups.numbers("member_count") > 0)

    @cached_property
    def is_consumers(self) -> Bools:
        """Mask over ``groups``: groups of consumers, classic of the consumer protocol or KIP-848."""
        classic = self.groups.equals("type", GroupType.CLASSIC)
        return (classic & self.groups.equals("protocol_type", "consumer")) | self.groups.equals(
            "type", GroupType.CONSUMER
        )

    @cached_property
    def is_of_workers(self) -> Bools:
        """Mask over ``groups``: classic groups of another protocol than that of consumers, as of Connect or a schema
        registry, whose members share out work and commit nothing."""
        groups = self.groups
        of_consumers = groups.equals("protocol_type", "consumer") | groups.lacks("protocol_type")
        return groups.equals("type", GroupType.CLASSIC) & ~of_consumers

    @staticmethod
    def of_groups(values: Any, rows: Int64s) -> Any:
        """``values``, one for each group, of the groups in ``rows``; 0 or false for -1."""
        return np.append(values, values.dtype.type(0))[rows]

    def group_rows_with(self, rows: Int64s) -> Bools:
        """Mask over ``groups``: groups whose row is in ``rows`` (-1 for none)."""
        found = np.zeros(len(self.groups), np.bool_)
        found[rows[rows >= 0]] = True
        return found

    @cached_property
    def newest_commit_ms(self) -> Int64s:
        """Timestamp of the newest commit of each group: int64 by row of ``groups``, -1 for none."""
        group = self.group_row("offsets")
        newest = np.full(len(self.groups), -1, np.int64)
        np.maximum.at(newest, group[group >= 0], self.offsets.numbers("commit_timestamp_ms")[group >= 0])
        return newest

    # Members: owned partitions, subscribed topics

    @cached_property
    def _owned(self) -> pa.Table:
        """One row for each partition that a member of a group of consumers, or of a share group, owns."""
        return _exploded_assignment(self.members.array("assignment"), self.names_by_id)

    @cached_property
    def assigned(self) -> Assigned:
        """Partitions that members own, of groups that know partitions (not tasks)."""
        owned = self._owned
        member = owned["row"].to_numpy()
        return Assigned(
            group=self.group_row("members")[member],
            identity=self._topics_coded[0]["identity"],
            member=member,
            partition=owned["partition"].to_numpy(),
            topic=self._topics_coded[0]["owned"],
        )

    @cached_property
    def ownership_is_known(self) -> Bools:
        """Mask over ``groups``: all assignments of its members can be read, and their topics have names."""
        unread = np.where(self.members.is_null("assignment"), self.group_row("members"), -1)
        nameless = self.assigned.group[self.assigned.topic < 0]
        return ~(self.group_rows_with(unread) | self.group_rows_with(nameless))

    def handed_over(self, groups: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Rows in ``groups``, numbers of topics, and partitions that classic members of these groups had when they
        joined, by their subscriptions. Where nobody is assigned one of them, a cooperative rebalance takes it from one
        member and gives it to another in the next generation (KIP-429).

        A group that has committed after the next generation must have begun hands nothing over any more. The member
        joins again within its rebalance timeout, and then all others within theirs."""
        row = self.group_row("members")
        is_classic = self.members.equals("group_type", GroupType.CLASSIC)
        members = np.flatnonzero(is_classic & is_in(row, groups[self._may_hand_over(groups)]))
        found: list[tuple[int, str, int]] = []
        if len(members):
            subscriptions = self.members.array("subscription").take(pa.array(members)).to_pylist()
            for group, subscription in zip(row[members].tolist(), subscriptions, strict=True):
                found += ((group, *partition) for partition in owned_at_join(subscription))
        topics = pc.index_in(pa.array([topic for _, topic, _ in found], pa.string()), value_set=self.topic_texts)
        return (
            np.array([group for group, _, _ in found], np.int64),
            topics.fill_null(-1).to_numpy().astype(np.int64),
            np.array([partition for _, _, partition in found], np.int64),
        )

    def _may_hand_over(self, groups: Int64s) -> Bools:
        row = self.group_row("members")
        timeout = np.full(len(self.groups), -1, np.int64)
        np.maximum.at(timeout, row, self.members.numbers("rebalance_timeout_ms"))
        began, timeout = self.groups.numbers("state_timestamp_ms")[groups], timeout[groups]
        # The time of a copy says nothing: it may be looked at long after it was made.
        return (began < 0) | (timeout < 0) | (self.newest_commit_ms[groups] - began <= 2 * timeout)

    @cached_property
    def _subscriptions(self) -> pa.Table:
        return _exploded_texts(self.members.array("subscribed_topics"))

    @cached_property
    def _regex_topics(self) -> pa.Table:
        return _exploded_texts(self.table("regexes").array("topics"))

    @cached_property
    def _sources(self) -> pa.Table:
        """Topics that streams groups read, by row of ``streams_topology``."""
        return _exploded_topologies(self.table("streams_topology").array("subtopologies"))

    @cached_property
    def subscriptions(self) -> tuple[Int64s, Int64s]:
        """Member rows, and the number of each topic that they subscribe to: by name, or by their regex."""
        member = self._subscriptions["row"].to_numpy()
        topic = self._topics_coded[0]["subscribed"]
        matched_member, matched_topic = self._matched_by_regex
        return np.concatenate([member, matched_member]), np.concatenate([topic, matched_topic])

    @cached_property
    def _matched_by_regex(self) -> tuple[Int64s, Int64s]:
        regex_of_member, regex_of_row = coded(
            self.members.array("subscribed_regex"), self.table("regexes").array("regex")
        )[0]
        row = self._regex_topics["row"].to_numpy()
        keys = combined(
            np.concatenate([self.group_row("members"), self.group_row("regexes")]),
            np.concatenate([regex_of_member, regex_of_row]),
        )
        of_members, of_regexes = keys[: len(self.members)], keys[len(self.members) :]
        with_regex = np.flatnonzero(regex_of_member >= 0)
        members_of: dict[int, list[int]] = {}
        for member in with_regex.tolist():
            members_of.setdefault(int(of_members[member]), []).append(member)
        found_member: list[int] = []
        found_topic: list[int] = []
        for at, topic in zip(row.tolist(), self._topics_coded[0]["regexes"].tolist(), strict=True):
            for member in members_of.get(int(of_regexes[at]), ()):
                found_member.append(member)
                found_topic.append(topic)
        return np.array(found_member, np.int64), np.array(found_topic, np.int64)

    @cached_property
    def subscription_is_known(self) -> Bools:
        """Mask over ``groups``: the subscriptions of all members are known."""
        unknown = self.members.is_null("subscribed_topics")
        has_regex = ~self.members.is_null("subscribed_regex")
        unresolved = has_regex & ~is_in(np.arange(len(self.members)), self._matched_by_regex[0])
        row = self.group_row("members")
        # Of a member that only has an assignment nothing else is known.
        half = ~self.members.equals("group_type", GroupType.CLASSIC) & (self.members.numbers("record_offset") < 0)
        bad = unknown | unresolved | half
        return self.is_consumers & ~self.group_rows_with(np.where(bad, row, -1))

    @cached_property
    def topics_are_known(self) -> Bools:
        """Mask over ``groups``: :meth:`subscribed_keys` has all topics that its members subscribe to."""
        has_topology = self.group_rows_with(self.group_row("streams_topology"))
        return self.subscription_is_known | (self.groups.equals("type", GroupType.STREAMS) & has_topology)

    def subscribed_keys(self) -> Int64s:
        """Numbers (:meth:`group_topic`) of groups and topics that some member subscribes to, or that a topology has for
        sources; ascending, unique."""
        member, topic = self.subscriptions
        row, source = self._sources["row"].to_numpy(), self._topics_coded[0]["sources"]
        of_streams = self.group_topic(self.group_row("streams_topology")[row], source)
        return np.unique(np.append(self.group_topic(self.group_row("members")[member], topic), of_streams))

    def group_topic(self, group: Int64s, topic: Int64s) -> Int64s:
        """One number for a group's row and a topic."""
        return group * (len(self.topic_texts) + 1) + topic


def _exploded_assignment(assignment: pa.Array, names_by_id: dict[str, str]) -> pa.Table:
    """Columns ``row``, ``topic_id``, ``topic``, ``partition`` of a column of assignments."""
    row = pc.list_parent_indices(assignment)
    entries = pc.list_flatten(assignment)
    partitions = entries.field("partitions") if len(entries) else pa.array([], pa.list_(pa.int32()))
    entry = pc.list_parent_indices(partitions)
    topic_id = entries.field("topic_id").cast(pa.string()).dictionary_encode()
    named = pa.array([names_by_id.get(value) for value in topic_id.dictionary.to_pylist()], pa.string()).take(
        topic_id.indices
    )
    topic = pc.coalesce(entries.field("topic").cast(pa.string()), named)
    return pa.table(
        {
            "row": row.cast(pa.int64()).take(entry),
            "topic_id": entries.field("topic_id").cast(pa.string()).take(entry),
            "topic": topic.take(entry),
            "partition": pc.list_flatten(partitions).cast(pa.int64()),
        }
    )


def _exploded_topologies(subtopologies: pa.Array) -> pa.Table:
    """Columns ``row`` and ``topic`` of the source and repartition source topics of a column of topologies."""
    row = pc.list_parent_indices(subtopologies).cast(pa.int64())
    entries = pc.list_flatten(subtopologies)
    tables = [pa.table({"row": pa.array([], pa.int64()), "topic": pa.array([], pa.string())})]
    if len(entries):
        sources, repartitions = (entries.field(name) for name in ("source_topics", "repartition_source_topics"))
        for lists, topics in (
            (sources, pc.list_flatten(sources)),
            (repartitions, pc.struct_field(pc.list_flatten(repartitions), "name")),
        ):
            entry = pc.list_parent_indices(lists)
            tables.append(pa.table({"row": row.take(entry), "topic": topics.cast(pa.string())}))
    return pa.concat_tables(tables)


def _exploded_texts(lists: pa.Array) -> pa.Table:
    """Columns ``row`` and ``topic`` of a column of lists of names."""
    return pa.table(
        {
            "row": pc.list_parent_indices(lists).cast(pa.int64()),
            "topic": pc.list_flatten(lists).cast(pa.string()),
        }
    )

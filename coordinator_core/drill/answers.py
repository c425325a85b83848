"""Answers to the members of a group while its coordinator moves, by the coordinator model."""

from __future__ import annotations

from collections.abc import Iterator

from coordinator_core.coordinator.broker import Broker, Cluster
from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.find_coordinator import FindCoordinator
from coordinator_core.coordinator.java.streams_topology import configure
from coordinator_core.coordinator.log import OffsetsLog
from coordinator_core.coordinator.membership import Client
from coordinator_core.coordinator.metadata import MetadataImage
from coordinator_core.coordinator.protocol import from_json
from coordinator_core.coordinator.record_data import StreamsTopology
from coordinator_core.coordinator.replies import Reply, errors_of
from coordinator_core.coordinator.requests import (
    CommitPartition,
    CommitTopic,
    ConsumerGroupHeartbeat,
    DescribeShareGroupOffsets,
    FetchGroup,
    FetchTopic,
    Heartbeat,
    JoinGroup,
    JoinProtocol,
    OffsetCommit,
    OffsetFetch,
    Request,
    ShareGroupDescribe,
    ShareGroupHeartbeat,
    ShareOffsetsGroup,
    StreamsGroupDescribe,
    StreamsGroupHeartbeat,
    SyncGroup,
)
from coordinator_core.coordinator.requests import FindCoordinator as FindCoordinatorRequest
from coordinator_core.coordinator.settings import BrokerSettings
from coordinator_core.coordinator.timers import Clock
from coordinator_core.coordinator.topology import DEFAULT_LISTENER
from coordinator_core.drill.model import DISCONNECTED, PhaseName
from coordinator_core.drill.seed import seed
from coordinator_core.groups.model import (
    ClassicGroup,
    ClassicMember,
    ConsumerGroup,
    ConsumerMember,
    Group,
    PartitionState,
    ShareGroup,
    ShareMember,
    StreamsGroup,
    StreamsMember,
)
from coordinator_core.releases import Loader, Profile
from coordinator_core.topology import BrokerInfo, PartitionInfo, Topology

WAITS = "NONE"
"""A JoinGroup that is not answered at once waits for the others, and is answered without error."""

_OLD, _NEW = 1, 2
_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
_PROBED = ("probed", 0)

Ask = tuple[int, Request]
"""Version and request."""

Member = ClassicMember | ConsumerMember | ShareMember | StreamsMember


class Failover:
    """A group's failover from one simulated broker to another.

    ``before`` is the group that the members know, ``after`` the one that the new coordinator loads.
    """

    def __init__(
        self, before: PartitionState, after: PartitionState, group_id: str, settings: BrokerSettings, profile: Profile
    ) -> None:
        self._group_id = group_id
        self._group = before.groups.get(group_id) or after.groups[group_id]
        self._partition = before.offsets_partition
        self._java = profile.loader is Loader.JAVA
        offset_key = next((one for one in _offset_keys(after, group_id)), None) or next(
            _offset_keys(before, group_id), None
        )
        self._offset_key = _PROBED if offset_key is None else offset_key
        topic, partition = self._offset_key
        self._clock = Clock(_now_ms(before, after))
        log = OffsetsLog()
        seed(log, after, group_id)
        self._ids = 0
        cluster = Cluster(
            settings,
            self._clock,
            log,
            _with_topics(MetadataImage({topic: (_TOPIC_ID, partition + 1)}), after.groups.get(group_id)),
            self._next_id,
            profile=profile,
        )
        self._topology = Topology.of_offsets(
            {one: BrokerInfo(one, {DEFAULT_LISTENER: ("", one)}) for one in (_OLD, _NEW)},
            [
                PartitionInfo(one, _OLD, 0, (_OLD, _NEW), (_OLD, _NEW))
                for one in range(settings.offsets_topic_num_partitions)
            ],
        )
        self._broker = Broker(
            cluster,
            lambda prefix: f"{prefix}-{self._next_id()}",
            FindCoordinator(lambda: self._topology, share_coordinator=self._java),
        )

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids

    def answers(self, phase: PhaseName, *, orderly: bool, led: bool = True) -> dict[str, str]:
        """Error names by API, of the coordinator that a client finds in this phase.

        The phases must be asked in their order. ``orderly``: the old coordinator resigns, and answers so;
        else it is gone, and requests to it are not answered. ``led``: somebody will lead.
        """
        manager = self._broker.coordinator.manager
        if phase is PhaseName.NOT_AVAILABLE:
            if not led:
                self._topology = self._topology.without(_OLD, _NEW)
            found = {"FindCoordinator": self._find()}
            gone = {_api(request): DISCONNECTED for _, request in self._requests()}
            return found | (self._asked() if orderly and led else gone)
        if phase is PhaseName.LOADING:
            self._topology = self._topology.without(_OLD)
            manager.begin_load(self._partition, 1)
        else:
            self.serve()
        return {"FindCoordinator": self._find()} | self._asked()

    def serve(self) -> None:
        """The new coordinator has loaded the partition."""
        self._topology = self._topology.without(_OLD)
        manager = self._broker.coordinator.manager
        manager.begin_load(self._partition, 1)
        manager.finish_load(self._partition)

    def heartbeats(self) -> dict[str, str]:
        """Once it serves: the error name of each member's next heartbeat, by member id."""
        return {member.member_id: self._error(*_heartbeat(self._group, member)) for member in _members(self._group)}

    def _find(self) -> str:
        return self._error(3, FindCoordinatorRequest((self._group_id,)))

    def _asked(self) -> dict[str, str]:
        return {_api(request): self._error(version, request) for version, request in self._requests()}

    def _error(self, version: int, request: Request) -> str:
        replies: list[Reply] = []
        self._broker.handle(Client("drill", "/", version), request, replies.append)
        if not replies:
            return WAITS
        return next((one.name for one in errors_of(replies[0]) if one is not Errors.NONE), Errors.NONE.name)

    def _requests(self) -> list[Ask]:
        """Requests of a client. A heartbeat of a member with an epoch may raise that epoch, so it comes last."""
        group = self._group
        member = next(iter(_members(group)), None)
        heartbeat: list[Ask] = [] if member is None else [_heartbeat(group, member)]
        if isinstance(group, ShareGroup):
            offsets = DescribeShareGroupOffsets((ShareOffsetsGroup(self._group_id, None),))
            return [(1, ShareGroupDescribe((self._group_id,))), (1, offsets), *heartbeat]
        if isinstance(group, StreamsGroup):
            return [*self._offset_requests(member), (0, StreamsGroupDescribe((self._group_id,))), *heartbeat]
        if isinstance(group, ConsumerGroup):
            return [*self._offset_requests(member), *heartbeat]
        classic = _classic_requests(group, member if isinstance(member, ClassicMember) else None)
        return [*heartbeat, *self._offset_requests(member), *classic]

    def _offset_requests(self, member: Member | None) -> Iterator[Ask]:
        group, topic, partition = self._group, *self._offset_key
        native = _is_native(member)
        fetched = FetchGroup(self._group_id, (FetchTopic((partition,), topic),))
        if self._java and native and member is not None:
            fetched = fetched._replace(member_id=member.member_id, member_epoch=_epoch(group, member))
        # Fetched before anything is committed: the probe's own commit must not answer for the group.
        yield 9 if self._java else 7, OffsetFetch((fetched,), require_stable=True)
        committed = CommitTopic((CommitPartition(partition, 0, ""),), topic)
        commit = OffsetCommit(
            self._group_id,
            (committed,),
            generation_id_or_member_epoch=_epoch(group, member),
            member_id="" if member is None else member.member_id,
            group_instance_id=None if member is None or isinstance(member, ShareMember) else member.instance_id,
        )
        yield 9 if native else 8, commit


def asked_alike(group: Group) -> tuple[object, ...]:
    """Key of the requests of a group's members; a group without name is refused by itself."""
    member = next(iter(_members(group)), None)
    return group.type, member is None, _is_native(member), bool(group.group_id)


def _is_native(member: Member | None) -> bool:
    """Whether the member speaks the protocol of its group, and that has epochs."""
    return isinstance(member, StreamsMember) or (isinstance(member, ConsumerMember) and not member.speaks_classic)


def _members(group: Group) -> Iterator[Member]:
    yield from group.members if isinstance(group, ClassicGroup) else group.members.values()


def _epoch(group: Group, member: Member | None) -> int:
    if isinstance(member, ConsumerMember | ShareMember | StreamsMember):
        return member.member_epoch
    return group.generation if isinstance(group, ClassicGroup) and member is not None else -1


def _heartbeat(group: Group, member: Member) -> Ask:
    if isinstance(member, ShareMember):
        return 1, ShareGroupHeartbeat(group.group_id, member.member_id, member.member_epoch, None, None)
    if isinstance(member, StreamsMember):
        # It asks for no endpoints: their partitions are those of topics, which no offsets log holds.
        return 0, StreamsGroupHeartbeat(group.group_id, member.member_id, member.member_epoch, 0)
    if isinstance(member, ConsumerMember) and not member.speaks_classic:
        return 1, ConsumerGroupHeartbeat(
            group_id=group.group_id,
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            instance_id=member.instance_id,
            rack_id=None,
            rebalance_timeout_ms=-1,
            subscribed_topic_names=None,
            server_assignor=None,
            topic_partitions=None,
        )
    return 3, Heartbeat(group.group_id, _epoch(group, member), member.member_id, member.instance_id)


def _classic_requests(group: ClassicGroup, member: ClassicMember | None) -> Iterator[Ask]:
    """SyncGroup, and last of all JoinGroup, which may begin a rebalance."""
    if member is not None:
        yield (
            5,
            SyncGroup(
                group.group_id,
                group.generation,
                member.member_id,
                (),
                member.instance_id,
                group.protocol_type,
                group.protocol,
            ),
        )
    yield (
        7,
        JoinGroup(
            group_id=group.group_id,
            member_id="" if member is None else member.member_id,
            session_timeout_ms=45_000 if member is None else member.session_timeout_ms,
            protocol_type=group.protocol_type or "consumer",
            protocols=(JoinProtocol(group.protocol or "range", b"" if member is None else member.subscription),),
            rebalance_timeout_ms=300_000 if member is None else member.rebalance_timeout_ms,
            group_instance_id=None if member is None else member.instance_id,
        ),
    )


def _with_topics(image: MetadataImage, group: Group | None) -> MetadataImage:
    """The image with the topics of a streams group that was given tasks of them.

    No offsets log says how many partitions they have: enough for the tasks.
    """
    if not isinstance(group, StreamsGroup) or group.topology is None:
        return image
    members = (member.assigned for member in group.members.values())
    tasks = [one for each in (*group.target_assignment.values(), *members) for one in each.active.items()]
    if not tasks:
        return image
    topology = from_json(StreamsTopology, group.topology)
    sources = {
        topic: max((1 + max(found) for name, found in tasks if name == one.subtopology_id and found), default=1)
        for one in topology.subtopologies
        for topic in one.source_topics
    }
    image = image.having({topic: (_TOPIC_ID, count) for topic, count in sources.items()})
    try:
        internal = configure(topology, image).missing
    except ApiError:
        # The model answers a heartbeat with it.
        return image
    return image.having({topic: (_TOPIC_ID, count) for topic, count in internal.items()})


def _offset_keys(state: PartitionState, group_id: str) -> Iterator[tuple[str, int]]:
    """Offset keys with an open transaction first: their answers differ."""
    for pending in state.pending.values():
        yield from (offset_key[1:] for offset_key in pending if offset_key.group_id == group_id)
    yield from (offset_key[1:] for offset_key in state.offsets if offset_key.group_id == group_id)


def _now_ms(*states: PartitionState) -> int:
    """The newest commit: then nothing of them has expired."""
    return max((one.commit_timestamp_ms for state in states for one in state.offsets.values()), default=0)


def _api(request: Request) -> str:
    return type(request).__name__

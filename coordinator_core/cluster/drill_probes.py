"""Canaries at work: each finds its coordinator, commits, fetches and heartbeats, and every answer is noted.

A canary has no member. Its heartbeat is therefore answered ``UNKNOWN_MEMBER_ID`` by a coordinator that serves
the group, and ``NONE`` by one that loads it: heartbeats are let pass meanwhile
(``GroupCoordinatorService.heartbeat``).

A coordinator of Kafka 4 answers OffsetFetch as of the high watermark that it has heard of
(``CoordinatorRuntime.scheduleReadOperation``: ``lastCommittedOffset``), although it has loaded its partition
to the end of the log (``CoordinatorLoaderImpl``). After an election a leader learns its high watermark from
the next fetches of all followers in sync; until then it answers with offsets older than those acknowledged.
It may even go on with that until the next write: a coordinator listens for high watermarks once it has loaded
(``CoordinatorContext.transitionTo``), and one that came just before, when the loader looked no more, is not
told again. So a lower answer is a loss only when it is given again by a coordinator that has heard of a high
watermark since (:class:`Known`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.protocol.admin import DeleteGroupsRequest
from kafka.protocol.consumer import HeartbeatRequest, OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from coordinator_core.cluster.client import Client, error_text
from coordinator_core.cluster.errors import ClusterError, LoginError, MissingAclError
from coordinator_core.coordinator.errors import Errors
from coordinator_core.drill.canaries import PREFIX, Canary
from coordinator_core.drill.model import DISCONNECTED
from coordinator_core.durations import clock_ms
from coordinator_core.errors import RegroupError
from coordinator_core.log.types import OFFSETS_TOPIC

SERVED_ROUNDS = 3
"""After so many rounds in a row without an error a partition counts as served."""

_MEMBER = "regroup-canary"
_LOST = {Errors.NOT_COORDINATOR.name, Errors.COORDINATOR_NOT_AVAILABLE.name, DISCONNECTED}
_COMMIT_VERSION, _FETCH_VERSION, _HEARTBEAT_VERSION, _FIND_VERSION, _DELETE_VERSION = 8, 5, 3, 3, 2
_SERVED_HEARTBEATS = {Errors.UNKNOWN_MEMBER_ID.name}
_REFUSED = {
    Errors.GROUP_AUTHORIZATION_FAILED.name: f"Group:{PREFIX}*",
    Errors.TOPIC_AUTHORIZATION_FAILED.name: f"Topic:{OFFSETS_TOPIC}",
}
"""Kind of data that a canary may not read, by the answer that says so."""

Note = Callable[..., None]
"""``note(event, **values)``: where events go (:meth:`Journal.write`)."""

OffsetKey = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class _Doubt:
    """The first lower answer, and when it came (monotonic)."""

    after: int
    coordinator: int
    since: float


class Known:
    """The newest committed offsets of a group that were acknowledged or answered: none may go back or vanish.

    A lower answer leaves a doubt. It is noted as ``backwards`` when it is given again by a coordinator that
    has heard of a high watermark since the doubt began, as ``behind`` when it is not given any more.
    """

    def __init__(self, group_id: str, offsets: Mapping[OffsetKey, int], note: Note) -> None:
        self.offsets = dict(offsets)
        self._group_id = group_id
        self._note = note
        self._doubts: dict[OffsetKey, _Doubt] = {}

    @property
    def in_doubt(self) -> bool:
        return bool(self._doubts)

    def compare(
        self, coordinator: int, answered: Mapping[OffsetKey, int], *, heard: bool, failed: Collection[OffsetKey] = ()
    ) -> None:
        """One answer, without the offset keys that ``failed``.

        ``heard``: before it was asked the coordinator had heard of a high watermark since the doubts began.
        """
        for offset_key, before in list(self.offsets.items()):
            if offset_key in failed:
                continue
            found, doubt = answered.get(offset_key, -1), self._doubts.get(offset_key)
            if found >= before:
                if doubt is not None:
                    behind_ms = round((time.monotonic() - doubt.since) * 1000, 1)
                    self._say("behind", offset_key, doubt.after, doubt.coordinator, behind_ms=behind_ms)
            elif doubt is None:
                self._doubts[offset_key] = _Doubt(found, coordinator, time.monotonic())
            elif heard:
                self._say("backwards", offset_key, found, coordinator)
                # Said once; later answers are compared with these.
                del self.offsets[offset_key]
        self.offsets |= {
            offset_key: offset
            for offset_key, offset in answered.items()
            if offset >= 0 and offset_key not in self._doubts
        }

    def _say(self, event: str, offset_key: OffsetKey, after: int, coordinator: int, **more: Any) -> None:
        """The end of a doubt."""
        del self._doubts[offset_key]
        self._note(
            event,
            group_id=self._group_id,
            topic=offset_key[0],
            partition=offset_key[1],
            before=self.offsets[offset_key],
            after=after if after >= 0 else None,
            coordinator=coordinator,
            **more,
        )


class Canaries:
    """Runs canaries in threads of their own from :meth:`start` to :meth:`stop`.

    ``interval_seconds`` is the pause between two rounds of a canary.
    """

    def __init__(self, client: Client, canaries: Sequence[Canary], note: Note, interval_seconds: float) -> None:
        self._states = [_State(client, canary, note) for canary in canaries]
        self._interval = interval_seconds
        self._error: RegroupError | None = None
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._go_on, args=(state,), daemon=True) for state in self._states]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def served(self, offsets_partition: int) -> bool:
        """Whether the latest rounds of the partition's canary were all answered without an error."""
        return any(
            state.served_rounds >= SERVED_ROUNDS
            for state in self._states
            if state.canary.offsets_partition == offsets_partition
        )

    def check_rights(self) -> None:
        """``MissingAclError`` when a canary lacks an ACL."""
        for state in self._states:
            if state.refused is not None:
                raise MissingAclError("Read", state.refused, "a canary")

    def check_going_on(self) -> None:
        """The error that has ended a canary: its answers cannot be noted, say."""
        if self._error is not None:
            raise self._error

    def begin_again(self) -> None:
        """Count rounds from now on."""
        for state in self._states:
            state.served_rounds = 0

    def _go_on(self, state: _State) -> None:
        try:
            while not self._stop.is_set():
                state.round()
                self._stop.wait(self._interval)
        except RegroupError as error:
            self._error = error


class _State:
    """One canary: its coordinator as it believes, the latest offset that was acknowledged.

    In doubt about that it commits beside it: an acknowledged commit shows that the coordinator has
    heard of the high watermark, and one to the same place would hide a loss.

    A commit that was given up may still be carried out, from a connection that the broker has not read to its end: also
    behind later ones, whose place it then takes.
    """

    def __init__(self, client: Client, canary: Canary, note: Note) -> None:
        self.canary = canary
        self.served_rounds = 0
        self.refused: str | None = None
        self._client = client
        self._note = note
        self._coordinator: int | None = None
        self._offset = 0
        self._given_up: set[int] = set()
        """Offsets of commits that got no answer."""
        self._known = Known(canary.group_id, {}, note)
        # Another partition that exists.
        self._beside = canary.offsets_partition - 1 if canary.offsets_partition else 1
        self._heard: int | None = None
        """The coordinator that acknowledged a commit since the doubt began."""

    def round(self) -> None:
        if self._coordinator is None:
            self._find()
        well = self._coordinator is not None
        for api, ask in (
            # A commit waits for the replicas in sync, of which one may just be lost; a fetch for nothing.
            ("OffsetFetch", self._fetch),
            ("OffsetCommit", self._commit),
            ("Heartbeat", self._heartbeat),
        ):
            if self._coordinator is None:
                break
            answer = self._probe(api, self._coordinator, ask)
            well = well and answer in (_SERVED_HEARTBEATS if api == "Heartbeat" else {Errors.NONE.name})
            if answer in _LOST:
                self._coordinator = self._heard = None
        self.served_rounds = self.served_rounds + 1 if well and not self._known.in_doubt else 0

    def _probe(self, api: str, broker: int | None, ask: Callable[[int | None], tuple[str, Any]]) -> str:
        began = time.monotonic()
        at_ms = clock_ms()
        detail: Any = None
        try:
            answer, detail = ask(broker)
        except (ClusterError, LoginError):
            answer = DISCONNECTED
        self.refused = self.refused or _REFUSED.get(answer)
        self._note(
            "probe",
            at_ms=at_ms,
            offsets_partition=self.canary.offsets_partition,
            api=api,
            broker=broker,
            answer=answer,
            detail=detail,
            latency_ms=round((time.monotonic() - began) * 1000, 1),
        )
        return answer

    def _ask(self, request: Callable[[], Any], broker: int | None) -> Any:
        return self._client.ask(request, broker, patience=0)

    def _find(self) -> None:
        def ask(broker: int | None) -> tuple[str, Any]:
            answer = self._ask(
                lambda: FindCoordinatorRequest(key=self.canary.group_id, key_type=0, max_version=_FIND_VERSION), broker
            )
            if not answer.error_code:
                self._coordinator = answer.node_id
            return error_text(answer.error_code), self._coordinator

        self._probe("FindCoordinator", None, ask)

    def _commit(self, broker: int | None) -> tuple[str, Any]:
        self._offset += 1
        in_doubt = self._known.in_doubt
        place = self._beside if in_doubt else self.canary.offsets_partition
        kind = OffsetCommitRequest.OffsetCommitRequestTopic
        partition = kind.OffsetCommitRequestPartition(
            partition_index=place, committed_offset=self._offset, committed_leader_epoch=-1, committed_metadata=""
        )
        try:
            answer = self._ask(
                lambda: OffsetCommitRequest(
                    group_id=self.canary.group_id,
                    generation_id_or_member_epoch=-1,
                    member_id="",
                    group_instance_id=None,
                    topics=[kind(name=OFFSETS_TOPIC, partitions=[partition])],
                    max_version=_COMMIT_VERSION,
                ),
                broker,
            )
        except ClusterError:
            if place == self.canary.offsets_partition:
                self._given_up.add(self._offset)
            raise
        code = answer.topics[0].partitions[0].error_code
        if not code and in_doubt:
            self._heard = broker
        if not code and place == self.canary.offsets_partition:
            self._known.offsets[OFFSETS_TOPIC, place] = self._offset
        if code == Errors.UNKNOWN_TOPIC_OR_PARTITION and place == self._beside:
            # There is only one partition: a loss of the canary is hidden then, losses of other groups are not.
            self._beside = self.canary.offsets_partition
        return error_text(code), self._offset

    def _fetch(self, broker: int | None) -> tuple[str, Any]:
        kind = OffsetFetchRequest.OffsetFetchRequestTopic
        partition = self.canary.offsets_partition
        answer = self._ask(
            lambda: OffsetFetchRequest(
                group_id=self.canary.group_id,
                topics=[kind(name=OFFSETS_TOPIC, partition_indexes=[partition])],
                max_version=_FETCH_VERSION,
            ),
            broker,
        )
        if answer.error_code:
            return error_text(answer.error_code), None
        found = answer.topics[0].partitions[0]
        if not found.error_code and broker is not None:
            answered = {(OFFSETS_TOPIC, partition): found.committed_offset}
            if found.committed_offset in self._given_up:
                # Nothing is lost: the acknowledged commit has been overtaken.
                self._known.offsets |= answered
            self._known.compare(broker, answered, heard=self._heard == broker)
            if not self._known.in_doubt:
                self._heard = None
        return error_text(found.error_code), found.committed_offset

    def _heartbeat(self, broker: int | None) -> tuple[str, Any]:
        answer = self._ask(
            lambda: HeartbeatRequest(
                group_id=self.canary.group_id,
                generation_id=0,
                member_id=_MEMBER,
                group_instance_id=None,
                max_version=_HEARTBEAT_VERSION,
            ),
            broker,
        )
        return error_text(answer.error_code), None


def delete_groups(client: Client, group_ids: Sequence[str], leaders: dict[str, int]) -> dict[str, str]:
    """Deletes groups at their coordinators (``leaders``); the error of each that is left.

    A broker that gives no answer is not asked again: each group would wait for it.
    """
    left: dict[str, str] = {}
    silent: dict[int, str] = {}
    for group_id in group_ids:
        broker = leaders.get(group_id, -1)
        if broker < 0:
            left[group_id] = Errors.COORDINATOR_NOT_AVAILABLE.name
            continue
        if broker in silent:
            left[group_id] = silent[broker]
            continue
        try:
            answer = client.ask(
                lambda group_id=group_id: DeleteGroupsRequest(  # type: ignore[misc]
                    groups_names=[group_id], max_version=_DELETE_VERSION
                ),
                broker,
            )
        except ClusterError as error:
            left[group_id] = silent[broker] = str(error)
            continue
        code = answer.results[0].error_code
        if code not in (Errors.NONE, Errors.GROUP_ID_NOT_FOUND):
            left[group_id] = error_text(code)
    return left

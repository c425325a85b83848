"""A plan carried out: everything is read again, captured, written group by group, and noted before and after.

An attempt after a killed one goes on where the journal ends. Offsets of a group are read before they are written: none
is written twice, and no commit of another client is overwritten.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kafka.protocol.admin import DeleteGroupsRequest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest

from coordinator_core import storage
from coordinator_core.cluster import share_offsets
from coordinator_core.cluster.capture import CaptureOptions, capture
from coordinator_core.cluster.client import (
    RETRIABLE,
    Client,
    by_broker,
    check_answered,
    error_text,
)
from coordinator_core.cluster.drill_states import found_coordinators
from coordinator_core.cluster.errors import ClusterError
from coordinator_core.cluster.groups import OFFSET_FETCH_VERSION, fetched_offsets, waiting_text
from coordinator_core.cluster.restore_target import live_groups, live_topics, replayed
from coordinator_core.coordinator.errors import Errors
from coordinator_core.drill.events import RESTORED
from coordinator_core.drill.journal import (
    JOURNAL,
    JOURNAL_VERSION,
    Event,
    Journal,
    JournalTakenError,
    JournalWriteError,
    journal_bytes,
    of_kind,
    read_journal,
)
from coordinator_core.drill.shared_journal import open_journal
from coordinator_core.durations import is_or_are, numbered
from coordinator_core.errors import RegroupError, UsageError
from coordinator_core.groups.model import GroupType, ShareGroup
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.merge.packed import LongTexts
from coordinator_core.restore.inverse import FIRST_EVENT
from coordinator_core.restore.model import (
    NO_EPOCH,
    ROLLBACK,
    GroupPlan,
    Plan,
    Position,
    Row,
    Value,
    read_plan,
    value_of,
)
from coordinator_core.restore.target import TargetGroup
from coordinator_core.rules.topics import UNKNOWN

PLAN = "plan.json"
CAPTURE = "capture"

_AGAIN = RETRIABLE - {Errors.UNKNOWN_TOPIC_OR_PARTITION}
_COMMIT_VERSION, _DELETE_OFFSETS_VERSION, _DELETE_GROUPS_VERSION = 8, 0, 2
_ROWS_PER_REQUEST = 500
_BYTES_PER_REQUEST = 1 << 18
"""Records of a request are one batch, which ``max.message.bytes`` of the offsets topic limits (1 MiB by default)."""
_RECORD_BYTES = 100
"""More than a record of an offset has beside names and metadata."""
_LOOK_SECONDS = 0.2
_STALE = "STALE: somebody else has committed"
_NO_OFFSET_DELETE = "brokers before Kafka 2.4 delete whole groups alone: kafka-consumer-groups.sh --delete does"
_WAITS = "end it, let --wait-empty wait for it, or plan other groups alone (--group)"

_Error = tuple[str | None, int | None, str]
"""Topic, partition and error of an offset key; of a group, where they are ``None``."""


class Refusal(NamedTuple):
    """Why a plan is not applied; ``passes``: it may be otherwise later."""

    text: str
    passes: bool = False


class InterruptedApplyError(RegroupError):
    """Somebody has stopped the apply (SIGINT, SIGTERM): groups that were begun are ended, no other was begun."""


class _TryAgainError(Exception):
    """The coordinator moves, loads, or does not answer. ``code`` is its error code."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """``wait_seconds``: for groups to lose their members and transactions to end; ``tell`` gets a line of what is
    waited for. ``parallel``: groups of one coordinator at a time. ``plan_digest``: that of the plan that was approved;
    no other is applied."""

    wait_seconds: float = 0.0
    parallel: int = 4
    plan_digest: str | None = None
    tell: Callable[[str], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class GroupResult:
    """Outcome for one group. ``written`` counts the offset keys of this attempt; the others were so already, written
    before a kill."""

    group_id: str
    written: int
    errors: tuple[_Error, ...] = ()


def refusals(client: Client, plan: Plan, events: Sequence[Event] = ()) -> list[Refusal]:
    """Why the plan cannot be applied to the cluster now; everything it rests on is read again.

    ``events`` are those of an apply that was cut off: records of the request may be written already.
    """
    if plan.cluster_id != client.cluster_id:
        told = f"cluster {plan.cluster_id}, this is {client.cluster_id}"
        return [Refusal(f"the plan is for {told if plan.cluster_id else 'a state of no known cluster (--against)'}")]
    if (obstacle := plan.obstacle()) is not None:
        return [Refusal(obstacle)]
    writing = plan.writing()
    if not writing:
        return [Refusal("the plan is empty: nothing is to be written")]
    ended = written_groups(events)
    begun = {event["group_id"] for event in of_kind(events, "begin")}
    left = [group for group in writing if group.group_id not in ended]
    keys = [row.key for group in writing for row in group.writes()]
    groups = live_groups(client, client.topic(OFFSETS_TOPIC), keys, [group.group_id for group in writing])
    found = [one for group in left for one in _refusals_of(group, groups[group.group_id], group.group_id in begun)]
    done = [group for group in writing if group.group_id in ended]
    is_all = not left and events[-1]["event"] == "verdict"
    found += [one for group in done for one in _changes_of(group, groups[group.group_id], is_all=is_all)]
    # A rollback gives back what was there, in the range of the log or not.
    return found if plan.kind == ROLLBACK else [*found, *_of_topics(client, left, groups)]


def _refusals_of(group: GroupPlan, now: TargetGroup, begun: bool) -> Iterator[Refusal]:
    if now.has_members:
        yield Refusal(f"group {group.group_id!r} has members ({now.state})", passes=True)
    if now.state is not None and now.type != group.type and GroupType.SHARE in (now.type, group.type):
        yield Refusal(f"the plan is stale: group {group.group_id!r} is a {now.type} group now; plan again")
    for row in group.writes():
        held = now.offsets.get((row.topic, row.partition))
        if (row.topic, row.partition) in now.unstable:
            yield Refusal(f"{row.key.in_words}: a transaction is open that commits it", passes=True)
        elif value_of(held) != value_of(row.before) and not (begun and value_of(held) == value_of(row.after)):
            is_written = value_of(held) == value_of(row.after)
            how = "as planned; go on with the --output of an apply that has begun it, or " if is_written else ""
            now_is = f"{_now(held, row.before)}{', ' if is_written else '; '}"
            yield Refusal(f"the plan is stale: {row.key.in_words}: {now_is}{how}plan again")
    if group.is_deleted:
        planned = {(row.topic, row.partition) for row in group.writes()}
        for topic, partition in sorted(now.offsets.keys() - planned):
            where = f"group {group.group_id!r} has committed {topic}-{partition} since"
            yield Refusal(f"the plan is stale: {where}; plan again")


def _changes_of(group: GroupPlan, now: TargetGroup, *, is_all: bool) -> Iterator[Refusal]:
    """Offsets of a group that was written before, and does not hold what was written.

    Commits of its consumers keep nobody from going on with other groups, or with the verdict: unless that ``is_all``
    there is, only what was undone is refused.
    """
    for row in group.writes():
        held = now.offsets.get((row.topic, row.partition))
        if value_of(held) != value_of(row.after) and (is_all or value_of(held) == value_of(row.before)):
            found = _now(held, row.after)
            yield Refusal(f"{row.key.in_words}: written before, and changed since: {found}; use another --output")


def _of_topics(client: Client, groups: Sequence[GroupPlan], now: Mapping[str, TargetGroup]) -> Iterator[Refusal]:
    """Offsets yet to be written that are not of the topic that there is now. One of a topic or partition that is gone
    is left to the brokers, which refuse it alone; one that no leader tells the log of is not held against the log."""
    rows = [
        (row, row.after)
        for group in groups
        for row in group.writes()
        if row.after is not None
        and value_of(now[group.group_id].offsets.get((row.topic, row.partition))) != row.after.value
    ]
    if not rows:
        return
    needed = {(row.topic, row.partition) for row, _ in rows}
    names = {topic for topic, _ in needed}
    try:
        topics = live_topics(client, needed.__contains__, needed.__contains__, names)
    except ClusterError:
        # A commit needs the coordinator alone.
        topics = live_topics(client, needed.__contains__, lambda _: False, names)
    for row, after in rows:
        topic = topics.get(row.topic)
        log = None if topic is None else topic.partitions.get(row.partition)
        if topic is None or log is None:
            continue
        if None not in (after.topic_id, topic.topic_id) and after.topic_id != topic.topic_id:
            why = f"the topic was made again (id {topic.topic_id}, planned for {after.topic_id})"
        elif UNKNOWN not in (log.start, log.end) and not log.start <= after.offset <= log.end:
            why = f"offset {after.offset} is outside of the log now, {log.start} to {log.end}"
        elif NO_EPOCH != log.leader_epoch < after.leader_epoch:
            why = f"leader epoch {after.leader_epoch} is above the current one, {log.leader_epoch}"
        else:
            continue
        yield Refusal(f"the plan is stale: {row.key.in_words}: {why}; plan again")


def _now(held: Position | None, before: Position | None) -> str:
    """What is committed now, in place of ``before``."""
    if held is not None and before is not None and held.value[:2] == before.value[:2]:
        return f"offset {held.offset} has other metadata now"
    found = "nothing is" if held is None else f"offset {held.offset} (leader epoch {held.leader_epoch}) is"
    return f"{found} committed now"


def apply_plan(
    client: Client, plan_path: str | Path, directory: str | Path, options: ApplyOptions
) -> tuple[str, list[GroupResult]]:
    """Apply a plan, or go on with it; its plan, journal and capture are in ``directory``. Its digest, and the outcome
    of its groups.

    ``UsageError`` when it is refused: nothing was written then that was not written before. Per-partition errors are
    in the results of groups.
    """
    plan, digest = read_plan(plan_path, options.plan_digest)
    place = str(directory)
    begun_apply(directory, digest)
    storage.make_directory(place)
    with open_journal(storage.join(place, JOURNAL), "another apply") as journal:
        events = begun_apply(directory, digest)
        if found := standing(client, plan, events, options):
            why = _first(found)
            if not of_kind(events, "begin"):
                raise UsageError(f"refused, nothing is written: {why}")
            said = _so_far(plan, written_groups(events), _unended_groups(events))
            raise UsageError(f"refused, nothing more is written: {why}; {said}, restore rollback undoes that")
        # Without an event the plan that lies there is of an attempt that has done nothing, and maybe another one.
        if not events or not storage.exists(storage.join(place, PLAN)):
            storage.write_atomic(storage.join(place, PLAN), storage.read(str(plan_path)))
        if not events:
            journal.write(
                FIRST_EVENT,
                journal_version=JOURNAL_VERSION,
                plan_digest=digest,
                kind=plan.kind,
                cluster_id=client.cluster_id,
                host=socket.gethostname(),
                pid=os.getpid(),
            )
        if not of_kind(events, "captured"):
            manifest = capture(client, storage.join(place, CAPTURE), CaptureOptions())
            (topic,) = manifest["topics"]
            ends = {str(one["partition"]): one["log_end_offset"] for one in topic["partitions"]}
            journal.write("captured", directory=CAPTURE, ends=ends)
        ended = written_groups(events)
        results = [GroupResult(group_id, 0) for group_id in ended]
        left = [group for group in plan.writing() if group.group_id not in ended]
        in_log = _share_topics(storage.join(place, CAPTURE), [group for group in left if group.is_deleted])
        writer = _Writer(client, journal, options.parallel, in_log, _unended_groups(events))
        try:
            results += writer.write(left)
            failed = sorted(one.group_id for one in results if one.errors)
            journal.write("verdict", groups=len(results), failed=failed)
        except JournalTakenError:
            raise
        except (KeyboardInterrupt, JournalWriteError) as error:
            said = _so_far(plan, ended | writer.written, writer.begun)
            ways = f"{said}; the same command goes on, restore rollback undoes them"
            if isinstance(error, JournalWriteError):
                raise JournalWriteError(f"{error}; {ways}") from None
            raise InterruptedApplyError(f"interrupted: {ways}") from None
    return digest, sorted(results, key=lambda one: one.group_id)


def begun_apply(directory: str | Path, digest: str) -> list[Event]:
    """The journal of an apply of the plan with this digest; empty where none has begun in ``directory``.

    Raises ``UsageError`` where ``directory`` has the apply of another plan, or another plan that no apply has left.
    """
    events = journal_of(directory)
    path, journal = (storage.join(str(directory), name) for name in (PLAN, JOURNAL))
    if not storage.exists(journal) and storage.exists(path) and read_plan(path)[1] != digest:
        raise UsageError(f"{path}: is another plan, which no apply has put there; use another --output")
    if events and events[0]["plan_digest"] != digest:
        raise UsageError(f"{directory}: holds the apply of another plan, {events[0]['plan_digest']}")
    return events


def journal_of(directory: str | Path) -> list[Event]:
    """The journal of an apply in ``directory``; empty where none has begun."""
    path = storage.join(str(directory), JOURNAL)
    # Without a whole line it was refused, or cut off, before anything was done.
    return read_journal(path, FIRST_EVENT, RESTORED) if storage.exists(path) and b"\n" in journal_bytes(path) else []


def written_groups(events: Sequence[Event]) -> set[str]:
    """Groups that an apply has ended without an error."""
    return {event["group_id"] for event in of_kind(events, "end") if not event["errors"]}


def _unended_groups(events: Iterable[Event]) -> set[str]:
    """Groups that an apply has begun, and not ended since."""
    found: set[str] = set()
    for event in events:
        if event["event"] == "begin":
            found.add(event["group_id"])
        elif event["event"] == "end":
            found.discard(event["group_id"])
    return found


def _so_far(plan: Plan, written: Collection[str], begun: Collection[str]) -> str:
    """Groups of a plan that are written, and those that may be, in words."""
    more = f", {len(begun)} more {is_or_are(len(begun))} begun" if begun else ""
    return f"{len(written)} of {numbered(len(plan.writing()), 'group')} {is_or_are(len(written))} written{more}"


def standing(client: Client, plan: Plan, events: Sequence[Event], options: ApplyOptions) -> list[Refusal]:
    """Reasons against the plan: first those that waiting does not remove, then those that are left after the wait."""
    deadline = time.monotonic() + options.wait_seconds
    told = ""
    while found := refusals(client, plan, events):
        left = deadline - time.monotonic()
        if not all(one.passes for one in found) or left < 0:
            break
        if found[0].text != told:
            told = found[0].text
            options.tell(f"waits for at most {left:.0f} s: {_first(found)}")
        time.sleep(_LOOK_SECONDS)
    ways = {True: f": {_WAITS}", False: ""}
    return sorted((one._replace(text=f"{one.text}{ways[one.passes]}") for one in found), key=lambda one: one.passes)


def _first(found: Sequence[Refusal]) -> str:
    return f"{found[0].text} (and {len(found) - 1} more)" if len(found) > 1 else found[0].text


def _share_topics(directory: str, groups: Sequence[GroupPlan]) -> dict[str, set[str]]:
    """Topics of which share groups have start offsets, as the log says."""
    if not groups:
        return {}
    partitions = {group.offsets_partition for group in groups}
    group_ids = {group.group_id for group in groups}
    return {
        group_id: {topic.topic for topic in group.topics if topic.partitions is not None}
        for state in replayed(directory, None, LongTexts(), partitions)
        for group_id, group in state.groups.items()
        if group_id in group_ids and isinstance(group, ShareGroup)
    }


class _Writer:
    """Writes groups at their coordinators, a bounded number of each at a time."""

    def __init__(
        self,
        client: Client,
        journal: Journal,
        parallel: int,
        share_topics: Mapping[str, set[str]],
        begun: Iterable[str] = (),
    ) -> None:
        self._client = client
        self.begun = {*begun}
        """Groups of which a try has begun and not ended: some of them may be written."""
        self.written: set[str] = set()
        """Groups that have ended without an error."""
        self._share_topics = share_topics
        self._journal = journal
        self._parallel = parallel
        self._deadline = 0.0
        self._stopped = threading.Event()
        self._said: dict[int, str] = {}
        """Why groups of an offsets partition are tried again."""
        self._wanted: dict[str, set[tuple[str, int]]] = {}
        """What was to be written of a group when it was tried first: a try without an answer may have written some."""
        self._version = client.max_version(OffsetFetchRequest(max_version=OFFSET_FETCH_VERSION))

    def write(self, groups: Sequence[GroupPlan]) -> list[GroupResult]:
        """Results of all groups. One whose coordinator moves or does not answer is tried again while others get on."""
        left = {group.group_id: group for group in groups}
        results: list[GroupResult] = []
        self._progress()
        while left and self._is_patient():
            done = self._round(list(left.values()))
            for result in done:
                del left[result.group_id]
            results += done
            if left:
                time.sleep(_LOOK_SECONDS)
        for group_id in left:
            said = self._said.get(left[group_id].offsets_partition, "not asked, others had no answer before it")
            error = f"no answer of its coordinator in {self._client.patience_seconds:g} s: {said}"
            results.append(self._ended(group_id, 0, [(None, None, error)]))
        return results

    def _say(self, groups: Iterable[GroupPlan], text: str) -> None:
        self._said |= dict.fromkeys((group.offsets_partition for group in groups), text)

    def _progress(self) -> None:
        self._deadline = time.monotonic() + self._client.patience_seconds

    def _is_patient(self) -> bool:
        return time.monotonic() <= self._deadline

    def _round(self, groups: Sequence[GroupPlan]) -> list[GroupResult]:
        by_id = {group.group_id: group for group in groups}
        try:
            places, denied = found_coordinators(self._client, self._client.topic(OFFSETS_TOPIC), by_id)
        except ClusterError as error:
            self._say(groups, str(error))
            return []
        except UsageError as error:
            return self._refused(by_id, error)
        self._say(
            (by_id[group_id] for group_id, broker in places.items() if broker < 0), "no broker is its coordinator"
        )
        # A group that may not be described, say, keeps no other from being written.
        done = [
            self._ended(group_id, 0, _explained("Describe", group_id, [(None, None, error_text(code))]))
            for group_id, code in denied.items()
        ]

        def one(broker: int, part: list[str]) -> None:
            lost = threading.Event()
            waiting: set[int] = set()
            refused: list[UsageError] = []
            ended: set[str] = set()

            def write(group_id: str) -> None:
                partition = by_id[group_id].offsets_partition
                if self._stopped.is_set() or lost.is_set() or partition in waiting or not self._is_patient():
                    return
                try:
                    result = self._group(broker, by_id[group_id])
                except ClusterError as error:
                    # Each group would find the broker gone, and wait for it. Whether this one was written is read
                    # when it is tried again.
                    lost.set()
                    self._say(map(by_id.__getitem__, part), str(error))
                except _TryAgainError as error:
                    # So would the others of the partition be answered, each after offsets.commit.timeout.ms.
                    waiting.add(partition)
                    self._said[partition] = f"broker {broker}, {OFFSETS_TOPIC}-{partition}: {waiting_text(error.code)}"
                except UsageError as error:
                    # The login, say. Others may be written already: it is an error of groups, no refusal of the plan.
                    lost.set()
                    refused.append(error)
                except JournalWriteError:
                    # Nothing is written without its event.
                    self._stopped.set()
                    raise
                else:
                    ended.add(group_id)
                    done.append(result)
                    self._progress()

            with ThreadPoolExecutor(self._parallel) as threads:
                list(threads.map(write, part))
            if refused:
                done.extend(self._refused([group_id for group_id in part if group_id not in ended], refused[0]))

        by_broker(places, one, self._stopped.set)
        return done

    def _group(self, broker: int, group: GroupPlan) -> GroupResult:
        """One group. ``ClusterError`` when the broker does not answer."""
        left, errors = self._left(broker, group)
        keys = {row.key[1:] for row, _ in left}
        wanted = self._wanted.setdefault(group.group_id, keys)
        errors = _explained("Describe", group.group_id, errors)
        untold = {(topic, partition) for topic, partition, _ in errors}
        if (None, None) not in untold:
            known = [(row, held) for row, held in left if row.key[1:] not in untold]
            errors += [_of(row, _STALE) for row, held in known if held != value_of(row.before)]
        if not errors or group.group_id in self.begun:
            # Behind an earlier try this is another one, though it writes nothing: what fails now may be written.
            count = 0 if errors else len(left)
            self._journal.write("begin", group_id=group.group_id, action=group.action.value, offset_keys=count)
            self.begun.add(group.group_id)
        if errors:
            return self._ended(group.group_id, len(wanted - keys), errors)
        if group.is_deleted:
            errors = _explained("Delete", group.group_id, self._delete_group(broker, group.group_id))
        else:
            is_share = group.type == GroupType.SHARE
            commit, delete = (self._alter, self._delete_topics) if is_share else (self._commit, self._delete)
            committed = commit(broker, group.group_id, [row for row, _ in left if row.after is not None])
            deleted = delete(broker, group.group_id, [row for row, _ in left if row.after is None])
            errors = _explained("Read", group.group_id, committed) + _explained("Delete", group.group_id, deleted)
        failed = {(topic, partition) for topic, partition, _ in errors}
        return self._ended(group.group_id, len(wanted - (keys if (None, None) in failed else failed)), errors)

    def _refused(self, group_ids: Iterable[str], error: UsageError) -> list[GroupResult]:
        """Groups end with an error that trying again does not remove."""
        return [self._ended(group_id, 0, [(None, None, str(error))]) for group_id in group_ids]

    def _ended(self, group_id: str, written: int, errors: Sequence[_Error]) -> GroupResult:
        self._wanted.pop(group_id, None)
        rows = [{"topic": topic, "partition": partition, "error": error} for topic, partition, error in errors]
        self._journal.write("end", group_id=group_id, written=written, errors=rows)
        self.begun.discard(group_id)
        if not errors:
            self.written.add(group_id)
        return GroupResult(group_id, written, tuple(errors))

    def _left(self, broker: int, group: GroupPlan) -> tuple[list[tuple[Row, Value | None]], list[_Error]]:
        """Rows whose offset keys do not hold their new value yet, with their present one; and what cannot be told."""
        if group.type == GroupType.SHARE:
            return self._left_of_share_group(broker, group)
        rows = list(group.writes())
        held: dict[tuple[str, int], Value] = {}
        errors: list[_Error] = []
        asked = {group.group_id: [(row.topic, row.partition) for row in rows]}
        for _, code, topics in fetched_offsets(self._client, broker, asked, False, self._version, patience=0):
            if code not in (Errors.NONE, Errors.GROUP_ID_NOT_FOUND):
                errors.append((None, None, _passed(code)))
            errors += _failed(topics)
            for topic in topics:
                for each in topic.partitions:
                    if not each.error_code and each.committed_offset >= 0:
                        epoch = each.committed_leader_epoch
                        place = Value(each.committed_offset, NO_EPOCH if epoch is None else epoch, each.metadata or "")
                        held[topic.name, each.partition_index] = place
        return _not_so_yet(rows, held), errors

    def _left_of_share_group(
        self, broker: int, group: GroupPlan
    ) -> tuple[list[tuple[Row, Value | None]], list[_Error]]:
        ((_, code, starts),) = share_offsets.described(self._client, broker, [group.group_id], patience=0)
        if code not in (Errors.NONE, Errors.GROUP_ID_NOT_FOUND):
            return [], [(None, None, _passed(code))]
        rows = list(group.writes())
        deletes = group.is_deleted
        gone = {row.topic for row in rows if row.after is None}
        deleted = {(row.topic, row.partition) for row in rows if row.after is None}
        asked = {(row.topic, row.partition) for row in rows}
        held: dict[tuple[str, int], Value] = {}
        # Answers leave out topics that may not be described.
        unseen = self._share_topics.get(group.group_id, set()) - gone
        errors: list[_Error] = [
            (None, None, f"it would be deleted with its start offsets of topic {topic}, which the plan does not show")
            for topic in sorted(unseen)
        ]
        for one in starts:
            if one.error_code and (one.topic, one.partition) in asked:
                errors.append((one.topic, one.partition, _passed(one.error_code)))
            elif one.offset >= 0:
                held[one.topic, one.partition] = Value(one.offset, NO_EPOCH, "")
                if (deletes or one.topic in gone) and (one.topic, one.partition) not in deleted:
                    errors.append((one.topic, one.partition, "STALE: it would be deleted with the others of its topic"))
        return _not_so_yet(rows, held), errors

    def _alter(self, broker: int, group_id: str, rows: Sequence[Row]) -> list[_Error]:
        errors: list[_Error] = []
        done = 0
        for part in _requests(rows):
            starts = [(row.topic, row.partition, row.after.offset) for row in part if row.after is not None]
            answer = share_offsets.alter(self._client, broker, group_id, starts)
            if answer.error_code:
                said = _passed(answer.error_code)
                return [*errors, *(_of(row, said) for row in rows[done:])]
            errors += [(topic, partition, _passed(code)) for (topic, partition), code in answer.codes.items() if code]
            errors += _left_out(part, answer.codes)
            done += len(part)
        return errors

    def _delete_topics(self, broker: int, group_id: str, rows: Sequence[Row]) -> list[_Error]:
        if not rows:
            return []
        answer = share_offsets.delete(self._client, broker, group_id, {row.topic: None for row in rows})
        if answer.error_code:
            said = _passed(answer.error_code)
            return [_of(row, said) for row in rows]
        codes = {(row.topic, row.partition): answer.codes.get((row.topic, -1)) for row in rows}
        errors = [_of(row, _passed(code)) for row in rows if (code := codes[row.topic, row.partition])]
        return errors + _left_out(rows, [key for key, code in codes.items() if code is not None])

    def _commit(self, broker: int, group_id: str, rows: Sequence[Row]) -> list[_Error]:
        kind = OffsetCommitRequest.OffsetCommitRequestTopic
        errors: list[_Error] = []
        for part in _requests(rows):
            topics: dict[str, list[Any]] = {}
            for row in part:
                assert row.after is not None
                partition = kind.OffsetCommitRequestPartition(
                    partition_index=row.partition,
                    committed_offset=row.after.offset,
                    committed_leader_epoch=row.after.leader_epoch,
                    committed_metadata=str(row.after.metadata),
                )
                topics.setdefault(row.topic, []).append(partition)
            asked = [kind(name=name, partitions=partitions) for name, partitions in topics.items()]
            answer = self._client.ask(
                lambda asked=asked: OffsetCommitRequest(  # type: ignore[misc]
                    group_id=group_id,
                    generation_id_or_member_epoch=-1,
                    member_id="",
                    group_instance_id=None,
                    topics=asked,
                    max_version=_COMMIT_VERSION,
                ),
                broker,
                patience=0,
            )
            errors += _failed(answer.topics) + _left_out(part, _keys(answer.topics))
        return errors

    def _delete(self, broker: int, group_id: str, rows: Sequence[Row]) -> list[_Error]:
        if rows and not self._client.knows(OffsetDeleteRequest):
            return [_of(row, _NO_OFFSET_DELETE) for row in rows]
        kind = OffsetDeleteRequest.OffsetDeleteRequestTopic
        errors: list[_Error] = []
        done = 0
        for part in _requests(rows):
            topics: dict[str, list[Any]] = {}
            for row in part:
                partition = kind.OffsetDeleteRequestPartition(partition_index=row.partition)
                topics.setdefault(row.topic, []).append(partition)
            asked = [kind(name=name, partitions=partitions) for name, partitions in topics.items()]
            answer = self._client.ask(
                lambda asked=asked: OffsetDeleteRequest(  # type: ignore[misc]
                    group_id=group_id, topics=asked, max_version=_DELETE_OFFSETS_VERSION
                ),
                broker,
                patience=0,
            )
            if answer.error_code:
                said = _passed(answer.error_code)
                return [*errors, *(_of(row, said) for row in rows[done:])]
            errors += _failed(answer.topics) + _left_out(part, _keys(answer.topics))
            done += len(part)
        return errors

    def _delete_group(self, broker: int, group_id: str) -> list[_Error]:
        answer = self._client.ask(
            lambda: DeleteGroupsRequest(groups_names=[group_id], max_version=_DELETE_GROUPS_VERSION), broker, patience=0
        )
        codes = {one.group_id: one.error_code for one in answer.results}
        check_answered(broker, "deleted groups", [group_id], codes)
        code = codes[group_id]
        return [] if code in (Errors.NONE, Errors.GROUP_ID_NOT_FOUND) else [(None, None, _passed(code))]


def _not_so_yet(rows: Iterable[Row], held: Mapping[tuple[str, int], Value]) -> list[tuple[Row, Value | None]]:
    """Rows whose offset keys do not hold their new value, with their present one."""
    now = [(row, held.get((row.topic, row.partition))) for row in rows]
    return [(row, value) for row, value in now if value != value_of(row.after)]


def _of(row: Row, error: str) -> _Error:
    return row.topic, row.partition, error


def _passed(code: int) -> str:
    """Kafka's name of an error; :class:`_TryAgainError` for one that passes."""
    if code in _AGAIN:
        raise _TryAgainError(code)
    return error_text(code)


def _explained(operation: str, group_id: str, errors: Iterable[_Error]) -> list[_Error]:
    """Errors of a request that needs ``operation`` on the group, and Read on topics: with the ACL that is missing, or
    what else is to be done."""

    def said(topic: str | None, error: str) -> str:
        more = {
            Errors.GROUP_AUTHORIZATION_FAILED.name: f"it needs the ACL {operation} on Group:{group_id}",
            Errors.TOPIC_AUTHORIZATION_FAILED.name: f"it needs the ACL Read on Topic:{topic}",
            Errors.UNKNOWN_MEMBER_ID.name: "the group has members now",
            Errors.UNSTABLE_OFFSET_COMMIT.name: "a transaction is open that commits it",
        }.get(error)
        return error if more is None else f"{error}: {more}"

    return [(topic, partition, said(topic, error)) for topic, partition, error in errors]


def _failed(topics: Iterable[Any]) -> list[_Error]:
    return [
        (topic.name, each.partition_index, _passed(each.error_code))
        for topic in topics
        for each in topic.partitions
        if each.error_code
    ]


def _keys(topics: Iterable[Any]) -> set[tuple[str, int]]:
    return {(topic.name, each.partition_index) for topic in topics for each in topic.partitions}


def _left_out(rows: Iterable[Row], answered: Collection[tuple[str, int]]) -> list[_Error]:
    """An error of the group, where an answer leaves rows out: whether they are written is not known."""
    missing = [row for row in rows if (row.topic, row.partition) not in answered]
    return [(None, None, f"no answer for {row.key.topic_partition}") for row in missing[:1]]


def _requests(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Rows in portions that a broker takes as one batch."""
    part: list[Row] = []
    size = 0
    for row in rows:
        metadata = "" if row.after is None else str(row.after.metadata)
        length = _RECORD_BYTES + len(f"{row.group_id}{row.topic}{metadata}".encode())
        if part and (len(part) == _ROWS_PER_REQUEST or size + length > _BYTES_PER_REQUEST):
            yield part
            part, size = [], 0
        part.append(row)
        size += length
    if part:
        yield part

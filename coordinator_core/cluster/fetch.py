"""Raw fetch: batches of one topic from its leaders, in parallel, up to the pinned end, as they are on disk.

Rules of the broker's side: ``ReplicaManager.readFromLog`` and ``UnifiedLog.read``. A fetch answers bytes of
the log from the batch on that holds the asked offset, or the next one where that offset is gone; the last batch may be
cut off, the first never is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.consumer import FetchRequest

from coordinator_core.cluster.chunks import DamagedBatchError, split, wanted
from coordinator_core.cluster.client import (
    EARLIEST,
    LATEST,
    RETRIABLE,
    Client,
    error_name,
    fetch_request,
)
from coordinator_core.cluster.errors import ClusterError, MissingAclError
from coordinator_core.cluster.files import PartitionFiles
from coordinator_core.coordinator.errors import Errors
from coordinator_core.errors import Damage, DamagedInputError, UsageError
from coordinator_core.topology import TopicInfo

FETCH_BYTES = 4 << 20
"""Bytes to ask of a broker at a time; a capture needs some multiples of it as memory for each broker."""

_REPLICA_VERSION = 11
_WAIT_MS = 100
_TRIES_PER_BATCH = 3
_EMPTIED_ANSWERS = 3
"""Answers in a row that a quota may empty, while waiting for it is not being stuck."""
_QUOTA_SECONDS = 11
"""Window of Kafka's quotas: ``quota.window.num`` times ``quota.window.size.seconds``, by their defaults."""
_PAUSE_SECONDS = 0.1
_MAX_BROKERS_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Vanished:
    """Offsets that the pinned range has and the cluster has no more: ``first`` up to ``end``, exclusive."""

    first: int
    end: int
    why: str


@dataclass
class Fetching:
    """Fetch of one partition: pinned range, position, events."""

    partition: int
    start_offset: int
    end_offset: int
    leader: int
    leader_epoch: int
    files: PartitionFiles
    position: int
    kept_bytes: int = 0
    fetched_bytes: int = 0
    vanished: list[Vanished] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    kept_removed: int | None = None
    """``files.removed`` of the files of an earlier capture, while they are kept."""
    replica: int | None = None
    """The broker that the leader sends readers to (KIP-392, ``replica.selector.class``)."""
    damaged_tries: int = 0
    trouble: str = ""

    @property
    def done(self) -> bool:
        return self.position >= self.end_offset


class RateLimiter:
    """Bytes per second over all threads; ``None`` for no limit."""

    def __init__(self, byte_rate: int | None) -> None:
        self._rate = byte_rate
        self._lock = threading.Lock()
        self._free_at = time.monotonic()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End all waits: an error, or an interrupt, is to be told now."""
        self._stopped.set()

    def wait(self, seconds: float) -> None:
        """Wait, unless :meth:`stop` was called."""
        self._stopped.wait(max(0.0, seconds))

    def spend(self, size: int) -> None:
        """Wait until ``size`` bytes that were received are paid for."""
        if self._rate is None:
            return
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + size / self._rate
            pause = self._free_at - time.monotonic()
        self.wait(pause)

    def at_most(self, size: int) -> int:
        """Bytes to ask for at a time, so that a slow rate does not come in bursts of seconds."""
        return size if self._rate is None else max(1, min(size, self._rate // 4))


class Fetcher:
    """Brings :class:`Fetching` partitions of one topic to their ends.

    ``replica`` is the broker to fetch from instead of each partition's leader (KIP-392).
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        *,
        limiter: RateLimiter,
        replica: int | None = None,
        progress: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._client = client
        self._topic = topic
        self._limiter = limiter
        self._replica = replica
        self._progress = progress
        self._latest_progress = time.monotonic()
        self._emptied: dict[int, int] = {}
        """Answers in a row without a record that a broker has throttled."""
        if replica is not None and client.max_version(FetchRequest) < _REPLICA_VERSION:
            raise UsageError("--replica: brokers before Kafka 2.4 are read from their leaders only")

    def run(self, partitions: Sequence[Fetching]) -> None:
        """Fetch until every partition is done. ``ClusterError`` says which are not, when nothing goes on."""
        pending = {state.partition: state for state in partitions if not state.done}
        self._latest_progress = time.monotonic()
        with ThreadPoolExecutor(_MAX_BROKERS_AT_ONCE) as threads:
            try:
                self._run(pending, threads)
            except BaseException:
                # The executor waits for its threads.
                self._limiter.stop()
                raise

    def _run(self, pending: dict[int, Fetching], threads: ThreadPoolExecutor) -> None:
        running: dict[Future[list[Fetching]], int] = {}
        lost: dict[int, Fetching] = {}
        while pending or running:
            for broker, states in self._by_source(pending.values(), set(running.values())).items():
                running[threads.submit(self._round, broker, states)] = broker
                for state in states:
                    del pending[state.partition]
                    lost.pop(state.partition, None)
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for each in finished:
                broker = running.pop(each)
                for state in each.result():
                    if state.done:
                        continue
                    pending[state.partition] = state
                    if state.trouble:
                        lost[state.partition] = state
            self._give_up_when_stuck(pending.values())
            if lost:
                time.sleep(_PAUSE_SECONDS)
                try:
                    self._locate([state for state in lost.values() if state.partition in pending])
                except ClusterError:
                    # What each partition met says more.
                    self._give_up_when_stuck(pending.values())
                    raise

    def _by_source(self, states: Iterable[Fetching], busy: set[int]) -> dict[int, list[Fetching]]:
        groups: dict[int, list[Fetching]] = {}
        for state in sorted(states, key=lambda state: state.partition):
            chosen = state.replica if self._replica is None else self._replica
            source = state.leader if chosen is None or state.leader < 0 else chosen
            if source not in busy:
                groups.setdefault(source, []).append(state)
        return groups

    def _give_up_when_stuck(self, states: Iterable[Fetching]) -> None:
        if time.monotonic() - self._latest_progress <= self._client.patience_seconds:
            return
        missing = "; ".join(
            f"{self._topic}-{state.partition} from offset {state.position} to {state.end_offset} "
            f"({state.trouble or 'waiting'})"
            for state in states
        )
        is_emptied = any(number > _EMPTIED_ANSWERS for number in self._emptied.values())
        why = "; the quota of this client is less than one fetch takes, or others use it up" if is_emptied else ""
        raise ClusterError(f"no progress for {self._client.patience_seconds:g} s; missing are {missing}{why}")

    def _round(self, broker: int, states: list[Fetching]) -> list[Fetching]:
        """Send one request to one broker, and apply its answer to each partition."""
        for state in states:
            state.trouble = ""
        if broker < 0:
            time.sleep(_PAUSE_SECONDS)
            for state in states:
                state.trouble = "it has no leader"
            return states
        asked = self._limiter.at_most(FETCH_BYTES)
        try:
            answer = self._client.ask(lambda: self._request(states, asked), broker, patience=0)
        except ClusterError as error:
            for state in states:
                state.trouble = str(error)
            return states
        by_partition = {each.partition_index: each for topic in answer.responses for each in topic.partitions}
        if getattr(answer, "error_code", 0):
            raise ClusterError(f"broker {broker}: fetching {self._topic}: {error_name(answer.error_code)}")
        total = sum(len(each.records or b"") for each in by_partition.values())
        throttled = answer.throttle_time_ms > 0
        # A partition whose next batch does not fit beside those of others is answered empty. With all empty,
        # the first that had a batch would have brought it, whatever its size.
        nothing_left = total == 0 and not throttled
        for state in states:
            each = by_partition.get(state.partition)
            if each is not None:
                self._take(state, each, broker, nothing_left=nothing_left)
            elif not throttled:
                state.trouble = f"broker {broker} leaves it out of its answer"
        before = time.monotonic()
        self._emptied[broker] = self._emptied.get(broker, 0) + 1 if throttled and not total else 0
        if throttled:
            # The connection takes no request until then; the answer may have been emptied for it, partitions and all
            # (FetchContext.getThrottledResponse).
            # A request quota throttles for a second at most, and counts the requests of a whole window.
            least = _QUOTA_SECONDS if self._emptied[broker] > 1 else 0
            self._limiter.wait(max(least, answer.throttle_time_ms / 1000))
        self._limiter.spend(total)
        if self._emptied[broker] <= _EMPTIED_ANSWERS:
            # Waiting for the byte rate, or for a quota, is not being stuck.
            self._latest_progress += time.monotonic() - before
        else:
            # A quota of less than one answer empties all of them.
            for state in states:
                state.trouble = state.trouble or f"broker {broker} throttles, and empties its answers"
        return states

    def _request(self, states: list[Fetching], max_bytes: int) -> Any:
        # A follower checks the leader epoch as the leader does.
        wanted = [(state.partition, state.leader_epoch, state.position, max_bytes) for state in states]
        return fetch_request(self._topic, wanted, max_bytes=max_bytes, max_wait_ms=_WAIT_MS)

    def _take(self, state: Fetching, answer: Any, broker: int, *, nothing_left: bool) -> None:
        code = answer.error_code
        if code == Errors.TOPIC_AUTHORIZATION_FAILED:
            raise MissingAclError("Read", f"Topic:{self._topic}", f"fetching {self._topic}")
        if code == Errors.OFFSET_OUT_OF_RANGE:
            self._out_of_range(state)
            return
        if code == Errors.CORRUPT_MESSAGE:
            raise self._damaged(state, broker, 0, state.position, "the broker itself finds the batch damaged")
        if code in RETRIABLE:
            state.trouble = f"broker {broker}: {error_name(code)}"
            return
        if code:
            raise ClusterError(f"broker {broker}: {self._topic}-{state.partition}: {error_name(code)}")
        records = answer.records or b""
        if not records:
            if answer.preferred_read_replica not in (None, -1, broker):
                self._sent_on(state, broker, answer.preferred_read_replica)
            elif answer.high_watermark < state.end_offset:
                state.trouble = f"broker {broker} has it up to {answer.high_watermark} only"
            elif nothing_left:
                # Records between here and the end are compacted away.
                state.position = state.end_offset
            return
        try:
            found = split(memoryview(records))
        except DamagedBatchError as error:
            state.damaged_tries += 1
            if state.damaged_tries >= _TRIES_PER_BATCH:
                offset = state.position if error.record_offset is None else error.record_offset
                raise self._damaged(state, broker, error.byte_position, offset, str(error)) from None
            return
        chunk = wanted(found, state.position, state.end_offset)
        if len(chunk):
            state.damaged_tries = 0
            state.files.append(chunk, state.position)
            state.fetched_bytes += len(chunk.data)
            self._progress(len(chunk.data))
        reached = chunk.next_offset if len(chunk) else state.position
        if len(found) and found.next_offset > reached:
            # The rest lies behind the pinned end.
            reached = state.end_offset
        if reached > state.position:
            state.position = reached
            self._latest_progress = time.monotonic()
        if state.kept_removed is not None and state.files.removed > state.kept_removed:
            self.start_over(state, "the log cleaner has removed records behind the end of the earlier capture")

    @staticmethod
    def _sent_on(state: Fetching, broker: int, replica: int) -> None:
        """The answer has no records, whatever the log has: another replica is to be asked."""
        if broker == state.leader:
            state.replica = replica
        else:
            state.trouble = f"broker {broker} sends readers on to broker {replica}"

    def _damaged(self, state: Fetching, broker: int, position: int, offset: int, detail: str) -> DamagedInputError:
        where = f"broker {broker}, {self._topic}-{state.partition}"
        remedy = "another replica may have it whole: --replica"
        return DamagedInputError(Damage(where, position, offset, "bad_crc", f"{detail}; {remedy}"))

    @staticmethod
    def start_over(state: Fetching, why: str) -> None:
        """Fetch a partition from its log start again instead of adding to an earlier capture."""
        state.files.clear()
        state.notes.append(f"fetched again from the log start: {why}")
        state.kept_bytes = 0
        state.kept_removed = None
        state.position = state.start_offset

    def _out_of_range(self, state: Fetching) -> None:
        """The position is not in the log (any more): the log start moved, or the log was cut."""
        earliest, latest = self._offset(state, EARLIEST), self._offset(state, LATEST)
        if earliest is None or latest is None:
            state.trouble = f"broker {state.leader} does not lead it any more"
        elif state.position < earliest:
            gone = Vanished(state.position, min(earliest, state.end_offset), "the log start offset moved on")
            state.vanished.append(gone)
            state.position = earliest
        elif latest < state.end_offset:
            self._check_history(state)
        else:
            state.trouble = "its offset is out of range for a moment"

    def _offset(self, state: Fetching, timestamp: int) -> int | None:
        asked = (self._topic, state.partition)
        return self._client.offsets({asked: state.leader}, timestamp).get(asked)

    def _locate(self, states: list[Fetching]) -> None:
        """Ask where partitions are led now; under a new leader, check that its log is the one we hold."""
        if not states:
            return
        info: TopicInfo = self._client.topic(self._topic)
        known = {each.partition: each for each in info.partitions}
        for state in states:
            state.replica = None
            found = known.get(state.partition)
            if found is None or found.leader < 0:
                state.leader = -1
                continue
            moved = found.leader_epoch != state.leader_epoch or state.leader != found.leader
            state.leader, state.leader_epoch = found.leader, found.leader_epoch
            if moved:
                try:
                    self._check_history(state)
                except ClusterError as error:
                    state.trouble = str(error)
                    # Looked for again; nothing is fetched from a leader whose log was not compared.
                    state.leader = -1

    def _check_history(self, state: Fetching) -> None:
        """Cut batches that the leader's log does not have (unclean election), and lower the pinned end to its end."""
        latest = self._offset(state, LATEST)
        shared = shared_end(self._client, self._topic, state)
        if latest is None or shared is None:
            raise ClusterError(f"broker {state.leader} does not lead {self._topic}-{state.partition} yet")
        why = f"broker {state.leader} leads with leader epoch {state.leader_epoch} and does not have them"
        held = state.files.next_offset or 0
        if shared < held:
            state.files.cut(end_offset=shared)
            state.vanished.append(Vanished(shared, held, why))
            state.position = max(state.start_offset, shared)
        if latest < state.end_offset:
            first = max(latest, held if shared < held else 0)
            if first < state.end_offset:
                state.vanished.append(Vanished(first, state.end_offset, why))
            state.end_offset = latest
            state.position = min(state.position, latest)


def shared_end(client: Client, topic: str, state: Fetching) -> int | None:
    """The offset up to which the leader's log is the one we hold; ``None`` while this broker does not lead.

    As a follower finds out (``AbstractFetcherThread``, KIP-101): the leader says where our epochs ended.
    """
    end = state.files.next_offset or 0
    epochs = list(state.files.epochs)
    while epochs:
        epoch = epochs[-1][0]
        answer = client.epoch_end_offset(topic, state.partition, state.leader, epoch)
        if answer is None:
            return None
        theirs, their_end = answer
        if theirs < 0:
            # All epochs that the leader still knows are newer: the batches held are from before its log start.
            return end
        end = min(end, their_end)
        while epochs and epochs[-1][0] > theirs:
            end = min(end, epochs.pop()[1])
        if theirs == epoch or (epochs and epochs[-1][0] == theirs):
            return end
    return end

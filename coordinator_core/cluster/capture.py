"""A capture: pin, fetch, compare, write down. The result is a snapshot, or says that it is none."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coordinator_core import __version__
from coordinator_core.cluster.client import EARLIEST, LATEST, Client
from coordinator_core.cluster.errors import ClusterError
from coordinator_core.cluster.fetch import Fetcher, Fetching, RateLimiter, Vanished, shared_end
from coordinator_core.cluster.files import PartitionFiles
from coordinator_core.cluster.probe import rewritten
from coordinator_core.cluster.snapshot import CAPTURE_VERSION, GROUPS, CaptureDirectory, Manifest
from coordinator_core.cluster.topics import log_starts, topics_document
from coordinator_core.durations import clock_ms, numbered
from coordinator_core.errors import UsageError
from coordinator_core.jsontext import fields_of
from coordinator_core.log.discovery import TOPICS_FILE, TOPOLOGY_FILE
from coordinator_core.log.segments import DEFAULT_SEGMENT_BYTES
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.releases import Profile
from coordinator_core.topology import TopicInfo, Topology

_TAIL = ".tail"


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """``byte_rate`` in bytes per second; ``replica`` a broker id; ``topics_also`` are captured besides.

    ``check_groups`` has the log replayed, by the rules of ``profile`` (``None``: inferred from the records), and
    compared with what the coordinators say.
    """

    byte_rate: int | None = None
    replica: int | None = None
    topics_also: tuple[str, ...] = ()
    segment_bytes: int = DEFAULT_SEGMENT_BYTES
    check_groups: bool = False
    profile: Profile | None = None


@dataclass
class TopicCapture:
    """One captured topic: what its metadata said when it was pinned, and its partitions."""

    info: TopicInfo
    states: list[Fetching]


def capture(
    client: Client, output: str | Path, options: CaptureOptions, *, progress: Callable[[int], None] = lambda size: None
) -> dict[str, Any]:
    """Capture the offsets topic into ``output``, or bring the capture there up to now; returns its manifest.

    With a URI the capture there is copied to a local temporary directory, brought up to now, and changed files are
    uploaded, its manifest last.

    Segments of an earlier capture are kept when they are of these topics and the cluster still has them: leader epochs,
    log start and sampled batches are compared. ``UsageError`` for a directory of another cluster or a replica that the
    cluster lacks; ``ClusterError`` when the cluster does not go on: the directory then stays marked as incomplete, and
    the next capture goes on from there.
    """
    began = clock_ms()
    with CaptureDirectory.opened(output) as directory:
        previous = directory.previous()
        names = [OFFSETS_TOPIC, *(name for name in options.topics_also if name != OFFSETS_TOPIC)]
        starts = log_starts(client)
        pinned = {name: _pin(client, name) for name in names}
        brokers, controller = client.brokers()
        active, voters = client.quorum()
        if options.replica is not None and options.replica not in {node.broker_id for node in brokers}:
            raise UsageError(f"--replica: the cluster has no broker {options.replica}")
        infos = [info for info, _ in pinned.values()]
        for held in (previous, directory.begun()):
            _check_held(held, client.cluster_id, infos, output)
        directory.begin(client.cluster_id, infos)
        limiter = RateLimiter(options.byte_rate)
        topics = []
        for info, ranges in pinned.values():
            states = _open(client, directory, info, ranges, previous, options)
            topics.append(TopicCapture(info, states))
            Fetcher(client, info.name, limiter=limiter, replica=options.replica, progress=progress).run(states)
        for topic in topics:
            _finish_files(client, topic)
        cross_check = None
        if options.check_groups:
            # A capture without comparison replays nothing, and needs no memory for it.
            from coordinator_core.cluster.check import check_groups

            scratch = directory.path / _TAIL
            groups, cross_check = check_groups(client, topics[0].info, topics[0].states, scratch, options.profile)
            directory.write(GROUPS, groups)
        topology = Topology(
            {broker.broker_id: broker for broker in brokers},
            {topic.info.name: topic.info for topic in topics},
            cluster_id=client.cluster_id,
            captured_at_ms=began,
            controller_id=None if controller < 0 else controller,
            active_controller_id=active,
            voters=voters,
        )
        directory.write(TOPOLOGY_FILE, topology.document())
        listed = topics_document(client, brokers, starts)
        directory.write(TOPICS_FILE, listed)
        directory.write_log_start_offsets(
            {(topic.info.name, state.partition): state.start_offset for topic in topics for state in topic.states}
        )
        manifest = {
            "capture_version": CAPTURE_VERSION,
            "regroup_version": __version__,
            "cluster_id": client.cluster_id,
            "started_at_ms": began,
            "finished_at_ms": clock_ms(),
            "replica": options.replica,
            "cross_check": cross_check,
            "notes": listed["notes"],
            "topics": [_topic_document(topic) for topic in topics],
        }
        directory.finish(manifest)
    return manifest


def _check_held(held: Manifest | None, cluster_id: str | None, infos: Iterable[TopicInfo], output: str | Path) -> None:
    """``UsageError`` when an earlier capture is of another cluster, or of a topic that was made again since."""
    if held is None:
        return
    if held["cluster_id"] != cluster_id:
        raise UsageError(f"{output} holds a capture of cluster {held['cluster_id']}; this one is {cluster_id}")
    ids = {topic["topic"]: topic["topic_id"] for topic in held["topics"]}
    for info in infos:
        if ids.get(info.name) not in (None, info.topic_id):
            raise UsageError(
                f"{output} holds {info.name} of id {ids[info.name]}, the cluster has {info.topic_id} now: "
                "it was deleted and made again; capture it into another directory"
            )


def _pin(client: Client, name: str) -> tuple[TopicInfo, dict[int, tuple[int, int]]]:
    """The topic, and log start and end (high watermark) of each partition, asked of leaders that answer."""
    pins: dict[int, tuple[int, int]] = {}
    missing: list[int] = []

    def attempt() -> TopicInfo | None:
        info = client.topic(name)
        leaders = {(name, each.partition): each.leader for each in info.partitions}
        starts, ends = client.offsets(leaders, EARLIEST), client.offsets(leaders, LATEST)
        for offset_key in starts.keys() & ends.keys():
            pins[offset_key[1]] = starts[offset_key], ends[offset_key]
        missing[:] = sorted({each.partition for each in info.partitions} - pins.keys())
        return None if missing else info

    try:
        return client.until_settled(attempt, f"log start and end of {name}"), pins
    except ClusterError as error:
        partitions = ", ".join(map(str, missing)) or "all"
        raise ClusterError(f"{error}; partitions without a leader that answers: {partitions}") from None


def _open(
    client: Client,
    directory: CaptureDirectory,
    info: TopicInfo,
    ranges: Mapping[int, tuple[int, int]],
    previous: Manifest | None,
    options: CaptureOptions,
) -> list[Fetching]:
    """Every partition with the files of an earlier capture, as far as the cluster still has their batches."""
    states = []
    for each in info.partitions:
        start, end = ranges[each.partition]
        files = PartitionFiles(directory.partition(info.name, each.partition), options.segment_bytes)
        state = Fetching(each.partition, start, end, each.leader, each.leader_epoch, files, start)
        _distrust(previous, info.name, state)
        if files.next_offset is not None:
            _adopt(client, info.name, state)
        states.append(state)
    held = [state for state in states if state.files.batches]
    for partition in sorted(rewritten(client, info.name, held)):
        state = next(state for state in held if state.partition == partition)
        Fetcher.start_over(state, "the log cleaner has rewritten it since the earlier capture")
    return states


def _distrust(previous: Manifest | None, topic: str, state: Fetching) -> None:
    """Let go of segments from the first one on that differs from the manifest of the earlier capture."""
    topics = [] if previous is None else previous["topics"]
    held = [partition for each in topics if each["topic"] == topic for partition in each["partitions"]]
    for segment in [row for each in held if each["partition"] == state.partition for row in each["segments"]]:
        base = segment["base_offset"]
        if not state.files.check(base, segment["bytes"], segment["fingerprint"]):
            state.notes.append(f"fetched again from offset {base}: its file was changed since then")
            state.files.cut(end_offset=base)
            return


def _adopt(client: Client, topic: str, state: Fetching) -> None:
    """Keep the held batches that the leader's log still has."""
    held = state.files.next_offset or 0
    shared = client.until_settled(lambda: shared_end(client, topic, state), f"epochs of {topic}-{state.partition}")
    if shared < held:
        why = f"broker {state.leader} leads with leader epoch {state.leader_epoch} and does not have them"
        state.vanished.append(Vanished(shared, held, why))
        state.files.cut(end_offset=shared)
    if state.files.segments and state.files.segments[0].base_offset < state.start_offset:
        before = len(state.files.segments)
        state.files.cut(first_offset=state.start_offset)
        dropped = before - len(state.files.segments)
        if dropped:
            dropped_segments = numbered(dropped, "segment")
            state.notes.append(f"{dropped_segments} below the log start offset {state.start_offset} dropped")
    if state.files.next_offset is None:
        return
    state.position = max(state.start_offset, state.files.next_offset)
    # A high watermark may come late, but never one that has been passed.
    state.end_offset = max(state.end_offset, state.files.next_offset)
    state.kept_bytes = state.files.bytes
    state.kept_removed = state.files.removed


def _finish_files(client: Client, topic: TopicCapture) -> None:
    for state in topic.states:
        state.files.start_at(state.start_offset)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(lambda state: state.files.seal(), topic.states))
    fetched = [state for state in topic.states if state.fetched_bytes]
    for partition in sorted(rewritten(client, topic.info.name, fetched)):
        state = next(state for state in fetched if state.partition == partition)
        state.notes.append(
            "the log cleaner rewrote it during the capture: older records may stand beside newer ones, "
            "the next capture fetches it again"
        )


def _topic_document(topic: TopicCapture) -> dict[str, Any]:
    return {
        "topic": topic.info.name,
        "topic_id": topic.info.topic_id,
        "partitions": [_partition_document(state) for state in topic.states],
    }


def _partition_document(state: Fetching) -> dict[str, Any]:
    files = state.files
    return {
        **fields_of(state, "partition", "leader", "leader_epoch"),
        "log_start_offset": state.start_offset,
        "log_end_offset": state.end_offset,
        **fields_of(files, "batches", "records", "bytes"),
        **fields_of(state, "kept_bytes", "fetched_bytes"),
        "removed_offsets": _removed_offsets(state),
        "vanished": [asdict(each) for each in state.vanished],
        "notes": state.notes,
        "segments": [
            {
                "base_offset": segment.base_offset,
                "bytes": segment.size,
                "next_offset": segment.next_offset,
                "fingerprint": segment.fingerprint,
            }
            for segment in files.segments
        ],
    }


def _removed_offsets(state: Fetching) -> int:
    """Offsets of the pinned range that no record has: the log cleaner took them, or they vanished."""
    files = state.files
    if files.next_offset is None:
        return state.end_offset - state.start_offset
    before = max(0, files.segments[0].base_offset - state.start_offset)
    return files.removed + before + max(0, state.end_offset - files.next_offset)

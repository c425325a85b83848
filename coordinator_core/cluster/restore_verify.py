"""Verification of an apply on the live cluster, and the plan that undoes it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from coordinator_core import storage
from coordinator_core.cluster.capture import CaptureOptions, capture
from coordinator_core.cluster.client import Client
from coordinator_core.cluster.restore_apply import CAPTURE, PLAN, journal_of, written_groups
from coordinator_core.cluster.restore_target import live_groups, live_target
from coordinator_core.drill.journal import JOURNAL, Event, of_kind
from coordinator_core.durations import clock_ms, numbered
from coordinator_core.errors import UsageError
from coordinator_core.fold.inference import infer_profile
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import read_records
from coordinator_core.log.types import NO_PRODUCER_ID, OFFSETS_TOPIC, Snapshot
from coordinator_core.merge.packed import LongTexts
from coordinator_core.releases import Profile
from coordinator_core.replay.interpret import interpret
from coordinator_core.restore.inverse import begun, inverse
from coordinator_core.restore.model import ROLLBACK, Plan, read_plan
from coordinator_core.restore.proof import Added, Proof, prove
from coordinator_core.runs.local import replay_snapshot


def read_apply(directory: str) -> tuple[Plan, list[Event]]:
    """Plan and journal of an apply; ``UsageError`` where there is none."""
    events = journal_of(directory)
    if not events:
        why = "there is no apply in its" if storage.exists(storage.join(directory, JOURNAL)) else "it has no"
        raise UsageError(f"{directory}: nothing was applied: {why} {JOURNAL}")
    plan, digest = read_plan(storage.join(directory, PLAN))
    if digest != events[0]["plan_digest"]:
        raise UsageError(f"{directory}: {PLAN} is not the plan that was applied")
    return plan, events


def verify(client: Client, directory: str, profile: Profile | None) -> Proof:
    """Capture again, behind the capture that the apply made before its first write, and compare with the plan.

    The capture of the apply is brought up to now where it is local; in object storage it stays as it is. Raises
    ``UsageError`` where nothing was applied, or another cluster is asked.
    """
    plan, events = read_apply(directory)
    _check_cluster(client, plan)
    captured = of_kind(events, "captured")
    if not captured:
        raise UsageError(f"{directory}: nothing was applied: its journal ends before the first group")
    ends = {int(partition): end for partition, end in captured[0]["ends"].items()}
    writing = plan.writing()
    wanted = {group.offsets_partition for group in writing}
    with _place(storage.join(directory, CAPTURE)) as place:
        capture(client, place, CaptureOptions())
        snapshot = discover([place]).only(wanted)
        rules = profile or infer_profile(snapshot.partitions)
        keys = [row.key for group in writing for row in group.writes()]
        answered = live_groups(client, client.topic(OFFSETS_TOPIC), keys, [group.group_id for group in writing])
        texts = LongTexts()
        states = replay_snapshot(snapshot, rules, damage=[], whole_metadata=False, long_texts=texts)
        proof = prove(plan, _added(snapshot, ends, rules), states, answered, texts)
    left = {group.group_id for group in writing} - written_groups(events)
    if left and events[-1]["event"] != "verdict":
        said = f"its journal has no end of {len(left)} of {numbered(len(writing), 'group')}"
        proof.problems.insert(0, f"the apply has not ended: {said}; the same restore apply goes on")
    return proof


@contextmanager
def _place(capture: str) -> Iterator[str]:
    if storage.is_local(capture):
        yield capture
        return
    with TemporaryDirectory(prefix="regroup-") as made:
        storage.download(capture, Path(made))
        yield made


def _added(snapshot: Snapshot, ends: Mapping[int, int], profile: Profile) -> Iterator[Added]:
    for log in snapshot.partitions:
        end = ends.get(log.offsets_partition, 0)
        for _, batch, records in read_records(log.since(end)):
            for record in () if batch.is_control else records:
                if record.offset >= end:
                    meaning = interpret(record.offset, record.key, record.value, profile)
                    producer = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
                    yield Added(log.offsets_partition, record.offset, meaning, producer)


def rollback_plan(client: Client, directory: str, group_ids: Collection[str] = ()) -> Plan:
    """The plan that undoes what an apply has begun, of these groups or of all; applied and verified as every other.

    ``UsageError`` for one of ``group_ids`` that was not begun.
    """
    plan, events = read_apply(directory)
    _check_cluster(client, plan)
    groups = [group for group in begun(plan, events) if not group_ids or group.group_id in group_ids]
    for group_id in sorted({*group_ids} - {group.group_id for group in groups}):
        raise UsageError(f"{directory}: the apply has not begun group {group_id!r}: there is nothing to undo")
    keys = [row.key for group in groups for row in group.writes()]
    # A partition without leader keeps nobody from undoing.
    target = live_target(client, keys, [group.group_id for group in groups], {}, may_be_unknown=True)
    return Plan(
        kind=ROLLBACK,
        cluster_id=client.cluster_id,
        target=target.name,
        source=f"the journal of plan {events[0]['plan_digest']}",
        choices={},
        created_at_ms=clock_ms(),
        groups=tuple(inverse(groups, target)),
    )


def _check_cluster(client: Client, plan: Plan) -> None:
    if plan.cluster_id != client.cluster_id:
        raise UsageError(f"the plan is for cluster {plan.cluster_id}, this is {client.cluster_id}")

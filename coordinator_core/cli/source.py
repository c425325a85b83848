"""Source of a command's state: a published run, or a snapshot that is replayed in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from coordinator_core import storage
from coordinator_core.cli.options import Engine, ReplayOptions, note, note_inferred
from coordinator_core.cli.publish import publish_locally
from coordinator_core.cli.snapshot import warn_about_snapshot
from coordinator_core.cli.spark_app import publish_with_spark
from coordinator_core.durations import numbered
from coordinator_core.errors import Damage, UsageError
from coordinator_core.groups.model import PartitionState
from coordinator_core.ingest.unknown import directory_damage, is_unknown
from coordinator_core.log.discovery import CAPTURE_MANIFEST
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Snapshot
from coordinator_core.merge.packed import LongTexts
from coordinator_core.releases import Profile, profile_from_label
from coordinator_core.replay import writer
from coordinator_core.rules.beside import Beside, beside_log, beside_run
from coordinator_core.rules.topics import read_topics
from coordinator_core.runs.finding import find_snapshot
from coordinator_core.runs.inputs import snapshot_of_run
from coordinator_core.runs.local import replay_snapshot
from coordinator_core.runs.place import OF_SNAPSHOT, RunPlace, is_one_run
from coordinator_core.runs.read import Run, open_run


@dataclass(frozen=True, slots=True)
class ReplayedSource:
    """State, and the notes about it."""

    states: Sequence[PartitionState]
    profile: Profile
    now_ms: int
    partial: bool
    topic_names: dict[str, str]
    held: frozenset[int]
    """Offsets partitions that are there: also those without a record, of which there may be no state."""

    def judged_at_ms(self, options: ReplayOptions) -> int:
        """The time to judge by: the one that was asked for, else that of the run, or the clock."""
        return self.now_ms if options.asked_now_ms is None else options.asked_now_ms

    def placed(self) -> Iterator[tuple[int, Collection[str]]]:
        """Offsets partitions that are there, and the groups in each."""
        groups = {state.offsets_partition: state.groups for state in self.states}
        return ((number, groups.get(number, ())) for number in sorted(self.held))


def load_source(paths: Sequence[str], options: ReplayOptions, *, long_texts: LongTexts | None = None) -> ReplayedSource:
    """The state under ``paths``: one run directory, or the paths of a snapshot.

    A digest may stand for metadata, and ``long_texts`` has them, see ``merge.schema``.
    """
    if is_one_run(paths):
        return _from_run(open_run(paths[0]), options, long_texts)
    if options.engine is Engine.SPARK:
        with as_run(paths, options) as path:
            return _from_run(open_run(path), replace(options, profile=None), long_texts)
    snapshot, profile = open_snapshot(paths, options)
    damage: list[Damage] = []
    states = replay_snapshot(
        snapshot,
        profile,
        on_damage=options.on_damage,
        damage=damage,
        cache=options.fold_cache,
        whole_metadata=False,
        long_texts=long_texts,
    )
    warn_about_damage(damage, options.on_damage)
    warn_about_load_failures(states, profile.label)
    held = frozenset(log.offsets_partition for log in snapshot.partitions)
    return ReplayedSource(states, profile, options.now_ms, bool(damage), snapshot.topic_names, held)


@contextmanager
def as_run(paths: Sequence[str], options: ReplayOptions) -> Iterator[str]:
    """The path of the run that ``paths`` is, or of one that a snapshot is replayed into for as long as it is needed."""
    if is_one_run(paths):
        run = open_run(paths[0])
        if options.profile is not None:
            raise already_replayed(run)
        if options.asked_now_ms not in (None, run.now_ms):
            note(f"regroup: a run is judged by its own time, {run.now_ms} here: --now-ms changes nothing")
        yield paths[0]
        return
    with tempfile.TemporaryDirectory(prefix="regroup-") as directory:
        place = RunPlace(directory, *OF_SNAPSHOT)
        if options.engine is Engine.SPARK:
            publish_with_spark(paths, place, options)
        else:
            publish_locally(paths, place, options)
        run = open_run(place.path)
        note_inferred(options, run.profile, is_told=run.rows("record_counts") > 0)
        warn_about_told(run.manifest, options.on_damage)
        yield place.path


def as_of_capture(paths: Sequence[str], options: ReplayOptions) -> ReplayOptions:
    """Options that judge a capture by its time, unless another one was asked for: it says nothing of what came after
    it, so that every group would be silent, and every sweep late."""
    if options.asked_now_ms is not None or is_one_run(paths):
        return options
    topics = beside_log(paths).topics
    if topics is None or not all(storage.exists(storage.join(path, CAPTURE_MANIFEST)) for path in paths):
        return options
    captured_ms = read_topics(topics).captured_at_ms
    return options if captured_ms is None else replace(options, now_ms=min(options.now_ms, captured_ms))


def found_beside(paths: Sequence[str]) -> Beside:
    """Files beside a snapshot, or those that a run leads to; standard error names each that cannot be used."""
    found = beside_run(open_run(paths[0])) if is_one_run(paths) else beside_log(paths)
    for text in found.notes:
        note(f"regroup: {text}")
    return found


def cluster_of(paths: Sequence[str]) -> str | None:
    """Id of the cluster of a snapshot, or of the log that a run leads to; ``None`` where nothing tells it."""
    log = beside_run(open_run(paths[0])).log if is_one_run(paths) else paths
    return find_snapshot(log).cluster_id if log else None


def refuse_other_rules(paths: Sequence[str]) -> None:
    """``UsageError`` for a run or snapshot whose broker does not keep Kafka's rules: for what answers by them."""
    if is_one_run(paths):
        open_run(paths[0]).refuse_other_rules()
    else:
        writer.refuse_other_rules(find_snapshot(paths))


def already_replayed(run: Run) -> UsageError:
    """Rules were named for a run, which has its own."""
    return UsageError(f"{run.path} is a run: it was replayed with {run.profile} already")


def open_log(paths: Sequence[str], options: ReplayOptions) -> tuple[Snapshot, ReplayOptions]:
    """Discover a snapshot; of a run, the logs that it was made from as far as it has read them, which are to be read by
    its profile, and past damage as it was, unless something else is asked for."""
    if not is_one_run(paths):
        return find_snapshot(paths), options
    run = open_run(paths[0])
    profile = options.profile or profile_from_label(run.profile)
    return snapshot_of_run(run), replace(options, profile=profile, on_damage=run.on_damage(options.on_damage))


def open_to_read(
    paths: Sequence[str], options: ReplayOptions, *, of_any_broker: bool = False
) -> tuple[Snapshot, ReplayOptions, list[Damage], Profile]:
    """:func:`open_log` for what shows single records, with the damage of the directories, and the profile.

    ``UsageError`` for a log whose broker does not keep Kafka's rules, unless it may be one ``of_any_broker``.
    """
    snapshot, options = open_log(paths, options)
    warn_about_snapshot(snapshot)
    if not of_any_broker:
        writer.refuse_other_rules(snapshot)
    damage = directory_damage(snapshot, options.on_damage)
    return snapshot, options, damage, profile_of(snapshot, options)


def open_snapshot(paths: Sequence[str], options: ReplayOptions) -> tuple[Snapshot, Profile]:
    """Discover a snapshot and settle the profile."""
    snapshot = find_snapshot(paths)
    warn_about_snapshot(snapshot)
    return snapshot, profile_of(snapshot, options)


def profile_of(snapshot: Snapshot, options: ReplayOptions) -> Profile:
    """The profile that was asked for, or the one inferred from the records."""
    profile = options.profile
    if profile is None:
        # Loading the kernels takes time that reading a run need not.
        from coordinator_core.fold.inference import inferred_profile

        profile, is_told = inferred_profile(snapshot.partitions)
        note_inferred(options, profile.label, is_told=is_told)
    return profile


def warn_about_damage(damage: Sequence[Damage], on_damage: OnDamage) -> None:
    """Report the damage of the input that was read all the same."""
    unknown = [entry for entry in damage if is_unknown(entry)]
    for entry in (one for one in damage if one not in unknown):
        note(f"regroup: warning: {entry}")
    for entry in unknown[:1]:
        more = f" (and {numbered(len(unknown) - 1, 'partition')} more)" if len(unknown) > 1 else ""
        note(f"regroup: warning: {entry}{more}")
        note("regroup: warning: the log was made of records of a consumer; the result is partial")
    if len(damage) > len(unknown):
        how = "as a restarting broker would" if on_damage is OnDamage.RECOVER else "without the damaged batches"
        note(f"regroup: warning: the input is damaged; it was read {how}, and the result is partial")


def warn_about_told(document: Mapping[str, Any], on_damage: OnDamage) -> None:
    """Report the damage that a manifest or a summary tells."""
    warn_about_damage([Damage(**entry) for entry in document["damage"]], on_damage)


def warn_about_load_failures(states: Sequence[PartitionState], profile_label: str) -> None:
    """Name the first load failure of each partition on standard error."""
    for state in states:
        for failure in state.load_failures[:1]:
            more = len(state.load_failures) - 1
            note(
                f"regroup: warning: {profile_label} does not load offsets partition "
                f"{state.offsets_partition}: record offset {failure.record_offset}: {failure.detail}"
                + (f" (and {more} more)" if more else "")
            )


def _from_run(run: Run, options: ReplayOptions, long_texts: LongTexts | None) -> ReplayedSource:
    if options.profile is not None:
        raise already_replayed(run)
    states = run.states(whole_metadata=False, long_texts=long_texts)
    warn_about_load_failures(states, run.profile)
    held = frozenset(map(int, run.manifest["cut"]))
    return ReplayedSource(states, profile_from_label(run.profile), run.now_ms, run.partial, run.topic_names, held)

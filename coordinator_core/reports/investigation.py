"""An investigation as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from coordinator_core.durations import is_or_are, span
from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.rows import history_rows, place_of
from coordinator_core.history.signs import name_of
from coordinator_core.investigate.bugs import BUGS
from coordinator_core.investigate.investigate import Investigation
from coordinator_core.investigate.losses import TOPIC_DELETED
from coordinator_core.investigate.model import Event, Explanation
from coordinator_core.investigate.words import count, moment, of_topics, some_of
from coordinator_core.jsontext import fields_of
from coordinator_core.rules.model import Severity
from coordinator_core.topology import is_topic_name
from coordinator_core.untrusted import cell, exact_row, shell_words, visible

_CSV_LINES = 12
_INFOS = 5
_MEMBERS = 3
_BEYOND_END = "committed-beyond-log-end"
_OF_ANOTHER_GROUP = "group-took-over"


@dataclass(frozen=True, slots=True)
class Undo:
    """Command of ``regroup restore plan`` that puts back what an explanation names. ``log``: the words that
    name the log and the rules to read it by; ``cluster``: those that name the cluster."""

    log: Sequence[str] = ("SNAPSHOT",)
    cluster: Sequence[str] = ("--bootstrap-server", "HOST:9092")

    def command(self, one: Explanation) -> str | None:
        """The command line; ``None`` where nothing is to be put back, or where no single one does."""
        if not one.restore or not one.evidence or one.group_id is None or one.code == _OF_ANOTHER_GROUP:
            return None
        if one.code == TOPIC_DELETED and one.severity is Severity.INFO:
            return None  # The topic is gone, or nobody has read it again.
        what = ["--group", one.group_id, *of_topics(one.restore)]
        offsets = set(one.restore.values())
        if one.code == _BEYOND_END:
            words = [*self.log, *what, "--out-of-range", "trim"]
        elif one.held_before is not None:
            words = [*self.log, *what, "--before-record", f"{one.offsets_partition}:{one.held_before}"]
        elif len(offsets) == 1:
            words = [*what, "--to-offset", str(offsets.pop())]
        else:
            return None
        return shell_words(["regroup", "restore", "plan", *words, *self.cluster, "--output", "plan.json"])


def investigation_document(
    found: Investigation, *, profile: str, now_ms: int, history: bool, undo: Undo | None = None
) -> dict[str, Any]:
    """The JSON of ``regroup investigate``; ``history`` adds the rows of the table of that name, as an iterator: their
    metadata may be gigabytes."""
    undo = undo or Undo()
    document: dict[str, Any] = {
        "profile": profile,
        "now_ms": now_ms,
        "verdict": verdict_of(found),
        "offsets_retention_at_most_ms": None if found.retention is None else found.retention.at_most_ms,
        "explanations": [_explanation(one) | {"undo": undo.command(one)} for one in found.explanations],
        "coordinators": [
            {
                **place_of(change.place),
                "leader_epoch": change.place.leader_epoch,
                "leader_epoch_before": change.epoch_before,
                "write_pause_ms": change.pause_ms,
            }
            for partition in found.histories
            for change in partition.leaders
        ],
        "removed_ranges": [
            {"offsets_partition": partition.offsets_partition, "first": hole.first, "end": hole.end}
            for partition in found.histories
            for hole in partition.holes
        ],
    }
    if history:
        document["history"] = (row for group in found.groups for row in history_rows(group))
        document["changes"] = [
            {
                "group_id": group.group_id,
                "kind": change.kind.value,
                "generation": change.generation,
                "members": [member.member_id for member in change.members],
                "joined": [member.member_id for member in change.joined],
                "left": [member.member_id for member in change.left],
                "replaced": [list(pair) for pair in change.replaced],
                "cause": change.cause or (None if change.end is None else change.end.kind.value),
                **place_of(change.place),
            }
            for group in found.groups
            for change in group.changes
        ]
    return document


def verdict_of(found: Investigation) -> str:
    """The whole investigation in one sentence: the worst that happened, where the offsets of a group went that has none
    left, or that nothing speaks against it."""
    worst = [one for one in found.explanations if one.severity > Severity.INFO]
    if worst:
        return worst[0].verdict
    groups = list(found.groups)
    others = f"{count(found.left_out, 'explanation')} of more than a note {is_or_are(found.left_out)} left out"
    nothing = f"Nothing that was asked for ({others}) speaks" if found.left_out else "Nothing in this log speaks"
    if len(groups) == 1:
        group = groups[0]
        state = next(
            (
                held.state
                for partition in found.histories
                if partition.state is not None
                for group_id, held in partition.state.groups.items()
                if group_id == group.group_id
            ),
            None,
        )
        now = "is not in the coordinator any more" if state is None else f"is {state.value}"
        shown = ""
        if state is not None and group.changes and (members := group.changes[-1].members):
            shown = f"; {count(len(members), 'member')}: {some_of([*map(name_of, members)], _MEMBERS)}"
        kept = len(group.standing)
        ever = group.versions.keys() | {one.offset_key for one in group.bare if one.offset_key is not None}
        losses = [one for one in found.explanations if one.restore]
        if losses and not kept:
            # Usual as it is: where the offsets went is what was asked.
            return max(losses, key=lambda one: one.newest_ms).verdict
        dropped = f"; {count(group.dropped, 'commit')} of aborted transactions had no effect" if group.dropped else ""
        return (
            f"{nothing} against {group.group_id}: it {now}, with "
            f"{count(kept, 'committed offset')} of {count(len(ever), 'partition')} ever committed{dropped}{shown}."
        )
    if not groups:
        return "This log holds no group."
    whose = "the" if found.left_out else "its"
    return f"{nothing} against {whose} {count(len(groups), 'group')}."


def investigation_text(found: Investigation, *, profile: str, of_groups: bool, undo: Undo) -> Iterator[str]:
    """Lines for a terminal: the verdict, then each explanation, worst first. ``of_groups``: groups were asked for."""
    yield visible(verdict_of(found))
    yield ""
    infos = 0
    for one in found.explanations:
        if one.severity is Severity.INFO:
            infos += 1
            if infos > _INFOS:
                continue
        yield from (visible(line) for line in _lines(one, undo))
        yield ""
    if infos > _INFOS:
        yield f"{count(infos - _INFOS, 'note')} more, of what is usual: --format json has all."
    yield from caveats(found, of_groups=of_groups)
    yield f"Read as {profile}."


def caveats(found: Investigation, *, of_groups: bool) -> Iterator[str]:
    """The retention in force, coordinators that moved, and what cannot be known; where groups were asked for, those of
    their offsets partitions."""
    if found.retention is not None:
        at_most, until = found.retention.at_most_ms, found.retention.until_ms
        yield f"Retention: the brokers applied at most {span(at_most)}, as what expired until {moment(until)} tells."
    for partition in found.histories:
        if of_groups and not partition.groups:
            continue
        for change in partition.leaders:
            yield (
                f"Coordinator: offsets partition {partition.offsets_partition} changed to leader epoch "
                f"{change.place.leader_epoch} at record {change.place.record_offset}, "
                f"{moment(change.place.timestamp_ms)}"
                + (f"; no record for {span(change.pause_ms)} before it." if change.pause_ms else ".")
            )
        if partition.missing:
            longest = partition.holes[0] if partition.holes else None
            at = "" if longest is None else f", the longest range {longest.first} to {longest.end - 1}"
            how = "were removed by the cleaner" + (", or are in a damaged batch" if found.partial else "")
            yield (
                f"Not known: {count(partition.missing, 'record')} of offsets partition "
                f"{partition.offsets_partition} {how}{at}; what they said cannot be told."
            )


def restore_csv(explanations: Sequence[Explanation]) -> list[str]:
    """Lines for ``kafka-consumer-groups --from-file``: topic, partition, offset, behind the group where there are
    several. Of several explanations with one offset key the first one counts.

    A name that no topic may have is of no cluster: it is written so that it is no other row, and no formula.
    """
    rows: dict[OffsetKey, int] = {}
    for one in explanations:
        rows |= {key: offset for key, offset in sorted(one.restore.items()) if key not in rows}
    several = len({key.group_id for key in rows}) > 1
    return [
        exact_row(
            (
                *([key.group_id] if several else []),
                key.topic if is_topic_name(key.topic) else cell(key.topic),
                key.partition,
                offset,
            )
        )
        for key, offset in rows.items()
    ]


def how_to_undo(one: Explanation) -> str:
    """Words before the command that undoes it: a way besides the CSV, or the only one."""
    if one.severity is Severity.INFO:
        return "Undo"
    is_whole = one.held_before is not None and one.code != _BEYOND_END
    with_it = "With metadata, and leader epochs where topic ids are known; proved and undoable"
    return with_it if is_whole else "Proved and undoable"


def _lines(one: Explanation, undo: Undo) -> Iterator[str]:
    yield f"[{one.severity.label}] {one.code}: {one.verdict}"
    yield from _events("What led there:", one.events)
    yield from _events("Evidence:", one.evidence)
    yield from _list("What it is not:", one.not_this)
    if one.bug is not None:
        bug = BUGS[one.bug]
        yield f"  Known bug: {bug.told}."
    yield from _list("What to do now:", one.now)
    if one.restore and one.severity > Severity.INFO:
        lines = restore_csv([one])
        yield "  offsets.csv:"
        yield from (f"    {line}" for line in lines[:_CSV_LINES])
        if len(lines) > _CSV_LINES:
            yield f"    ({len(lines) - _CSV_LINES} more: --format csv)"
    if (command := undo.command(one)) is not None:
        yield f"  {how_to_undo(one)}: {command}"
    if one.severity > Severity.INFO:
        yield from _list("What to save before it goes:", one.capture)


def _events(title: str, events: Sequence[Event]) -> Iterator[str]:
    if events:
        yield f"  {title}"
        for event in events:
            partition, record_offset, timestamp_ms, *_ = event.place
            yield f"    [{partition}] {record_offset:>8}  {moment(timestamp_ms)}  {event.text}"


def _list(title: str, items: Sequence[str]) -> Iterator[str]:
    if items:
        yield f"  {title}"
        for item in items:
            yield f"    - {item}"


def _explanation(one: Explanation) -> dict[str, Any]:
    return {
        "code": one.code,
        "severity": one.severity.label,
        **fields_of(one, "verdict", "at_ms", "group_id", "offsets_partition"),
        "events": [{**place_of(event.place), "text": event.text} for event in one.events],
        "evidence": [{**place_of(event.place), "text": event.text} for event in one.evidence],
        "not_this": list(one.not_this),
        "now": list(one.now),
        "capture": list(one.capture),
        "restore": [
            {"topic": key.topic, "partition": key.partition, "offset": offset}
            for key, offset in sorted(one.restore.items())
        ],
        "bug": None if one.bug is None else _bug(one.bug),
    }


def _bug(bug_id: str) -> dict[str, Any]:
    return fields_of(BUGS[bug_id], "id", "title", "fixed_in", "signature", "consequence", "remedy")

"""An investigation as one HTML page: verdict, picture, what happened in which order, evidence, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from coordinator_core.durations import elapsed, span
from coordinator_core.history.model import GroupHistory
from coordinator_core.investigate.bugs import BUGS
from coordinator_core.investigate.investigate import Investigation, worst
from coordinator_core.investigate.model import Event, Explanation
from coordinator_core.investigate.words import count, moment
from coordinator_core.reports.investigation import Undo, caveats, how_to_undo, restore_csv, verdict_of
from coordinator_core.reports.investigation_pictures import cluster_picture, group_picture, marked
from coordinator_core.reports.pages import page
from coordinator_core.rules.model import Severity
from coordinator_core.untrusted import visible

GROUPS = 5
"""Groups that were asked for of which the page has a picture."""
NOTES = 20
"""Explanations that are only notes; what is left out is counted, and in the JSON."""
_VALUES = 200
_WORDS = {Severity.CRITICAL: "Something went wrong", Severity.WARNING: "Somebody should look"}


def investigation_page(
    found: Investigation, *, profile: str, sources: Sequence[str], of_groups: bool, undo: Undo
) -> str:
    """The page. ``of_groups``: groups were asked for, and each has a picture; else the cluster has one."""
    level = worst(found.explanations)
    severe = [one for one in found.explanations if one.severity > Severity.INFO]
    notes = [one for one in found.explanations if one.severity is Severity.INFO]
    shown = [*severe, *notes[:NOTES]]
    numbers = {id(one): number for number, one in enumerate(marked(found.explanations), 1)}
    asked = list(found.groups) if of_groups else []
    groups, others = asked[:GROUPS], len(asked[GROUPS:])
    more = f" and {count(others, 'group')} more" if others else ""
    sections = [("pictures", "Picture"), *([("explanations", "What happened")] if shown else []), ("values", "Values")]
    return page(
        "investigation.html",
        skip="explanations" if shown else "pictures",
        subject="to " + ", ".join(visible(group.group_id) for group in groups) + more if groups else "in the cluster",
        word=_WORDS.get(level or Severity.INFO, "Nothing speaks against it"),
        style_of_verdict="clean" if level is None or level is Severity.INFO else level.label,
        verdict=visible(verdict_of(found)),
        sections=[*sections, ("provenance", "Provenance")],
        pictures=list(_pictures(found, groups)),
        explanations=[_explanation(one, numbers.get(id(one)), undo) for one in shown],
        left_out=len(notes) - len(notes[:NOTES]),
        values=list(_values(found)),
        values_left_out=max(sum(1 for group in found.groups for _ in group.all_versions()) - _VALUES, 0),
        caveats=[visible(line) for line in caveats(found, of_groups=of_groups)],
        profile=profile,
        sources=[visible(source) for source in sources],
    )


def _pictures(found: Investigation, groups: Sequence[GroupHistory]) -> Iterator[str]:
    """Of each group, or without any of the cluster; none where no record has a time."""
    homes = {home.offsets_partition: home for home in found.histories if home.last_ms >= 0}
    for group in groups:
        if (home := homes.get(group.offsets_partition)) is not None:
            yield group_picture(group, home, found)
    if homes and not groups:
        yield cluster_picture(found)


def _explanation(one: Explanation, number: int | None, undo: Undo) -> dict[str, Any]:
    command = undo.command(one)
    bug = None if one.bug is None else BUGS[one.bug]
    return {
        "number": number,
        "code": one.code,
        "severity": one.severity.label,
        "verdict": visible(one.verdict),
        "events": [_event(event) for event in one.events],
        "evidence": [_event(event) for event in one.evidence],
        "not_this": [visible(text) for text in one.not_this],
        "bug": None if bug is None else bug.told,
        "now": [visible(text) for text in one.now],
        "restore": [visible(line) for line in restore_csv([one])] if one.severity > Severity.INFO else [],
        "undo": None if command is None else (how_to_undo(one), visible(command)),
        "capture": [visible(text) for text in one.capture] if one.severity > Severity.INFO else [],
    }


def _event(event: Event) -> tuple[str, int, int, str]:
    place = event.place
    return moment(place.timestamp_ms), place.offsets_partition, place.record_offset, visible(event.text)


def _values(found: Investigation) -> Iterator[tuple[str, ...]]:
    """Rows of the table behind the pictures, the newest first."""
    rows = sorted(
        ((version, key, group) for group in found.groups for key, version in group.all_versions()),
        key=lambda row: (-row[0].last_place.timestamp_ms, -row[0].last_place.record_offset),
    )
    for version, key, group in rows[:_VALUES]:
        first, last = version.first.committed_offset, version.last.committed_offset
        took = elapsed(version.valid_from.timestamp_ms, version.last_place.timestamp_ms)
        who = "-" if version.origin is None else version.origin.kind.value
        if version.member is not None:
            who = f"{version.member.client_id} on {version.member.client_host}"
        end = "stands"
        if version.end is not None:
            end = f"{version.end.kind.value}, {moment(version.end.place.timestamp_ms)}"
        yield (
            visible(group.group_id),
            visible(key.topic_partition),
            str(last) if first == last else f"{first} to {last}",
            moment(version.valid_from.timestamp_ms) + (f" for {span(took)}" if first != last and took >= 0 else ""),
            visible(who),
            end,
        )

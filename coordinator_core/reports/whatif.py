"""Output of ``regroup whatif``: a document, a text for people; rows for spreadsheets are the document's effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any, Final

from coordinator_core.groups.model import PartitionState
from coordinator_core.lifecycle.whatif import Effect, Outcome
from coordinator_core.reports.expiry import time_text
from coordinator_core.reports.text_table import text_table
from coordinator_core.untrusted import visible

Json = dict[str, Any]

CSV_COLUMNS: Final = tuple(each.name for each in fields(Effect))


def whatif_document(
    states: Sequence[PartitionState],
    effects: Sequence[Effect],
    *,
    change: Json,
    profile: str,
    now_ms: int,
    partial: bool,
) -> Json:
    """The JSON: ``effects`` in the order given; ``changed`` counts groups, committed offsets, and offsets that only an
    open transaction has, by outcome, ``kept`` those that stay as they are."""
    changed: dict[str, Counter[str]] = {
        "groups": Counter(),
        "committed_offsets": Counter(),
        "pending_offsets": Counter(),
    }
    for one in effects:
        of_offset = "pending_offsets" if one.committed_offset is None else "committed_offsets"
        changed["groups" if one.topic is None else of_offset][one.outcome] += 1
    # A group can be in several offsets partitions.
    touched = {(one.offsets_partition, one.group_id, one.topic, one.partition) for one in effects}
    return {
        "profile": profile,
        "now_ms": now_ms,
        "partial": partial,
        "change": change,
        "effects": [asdict(one) for one in effects],
        "changed": {what: dict(sorted(counts.items())) for what, counts in changed.items()},
        "kept": {
            "groups": sum(
                (state.offsets_partition, group_id, None, None) not in touched
                for state in states
                for group_id in state.groups
            ),
            "committed_offsets": sum(
                (state.offsets_partition, *key) not in touched for state in states for key in state.offsets
            ),
        },
    }


def whatif_text(document: Json) -> Iterator[str]:
    """Changes in a table, then the sums."""
    name, value = next(iter(document["change"].items()))
    yield visible(f"{name.replace('_', ' ')}: {value if not isinstance(value, list) else ', '.join(value)}")
    if document["effects"]:
        yield from text_table(
            "OFFSETS-PARTITION RECORD GROUP TOPIC PARTITION OUTCOME AT WAS MOVED-TO DETAIL",
            (_row(effect) for effect in document["effects"]),
        )
    for what, changed in document["changed"].items():
        counts = changed | ({"kept": document["kept"][what]} if what in document["kept"] else {})
        if not counts:
            continue
        said = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        yield f"{what.replace('_', ' ')}: {said}"


def _row(effect: Json) -> list[Any]:
    epoch = None if effect["epoch"] is None else f"group epoch {effect['epoch']}"
    return [
        *(effect[name] for name in ("offsets_partition", "record_offset", "group_id", "topic", "partition", "outcome")),
        *(_time(effect, name) for name in ("at_ms", "was_ms")),
        effect["moved_to"],
        effect["detail"] or epoch,
    ]


def _time(effect: Json, name: str) -> str | None:
    if effect[name] is not None:
        return time_text(effect[name])
    return "never" if effect["outcome"] in (Outcome.EARLIER, Outcome.LATER) else None

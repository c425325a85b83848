"""An investigation in each of its forms, and as files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from coordinator_core import storage
from coordinator_core.investigate.investigate import Investigation
from coordinator_core.jsontext import json_pieces
from coordinator_core.reports.investigation import (
    Undo,
    investigation_document,
    investigation_text,
    restore_csv,
)
from coordinator_core.reports.investigation_page import investigation_page
from coordinator_core.rules.model import Severity

FILES: Mapping[str, str] = {"html": "investigation.html", "json": "investigation.json", "csv": "offsets.csv"}


def investigation_forms(
    found: Investigation, *, profile: str, now_ms: int, sources: Sequence[str], of_groups: bool, undo: Undo
) -> dict[str, Callable[[], Iterable[str]]]:
    """Functions that make the text of each form in pieces, by its name. ``of_groups``: groups were asked for."""

    def document() -> Iterator[str]:
        made = investigation_document(found, profile=profile, now_ms=now_ms, history=of_groups, undo=undo)
        yield from json_pieces(made, depth=2)
        yield "\n"

    def lines(made: Iterable[str]) -> Iterator[str]:
        return (f"{line}\n" for line in made)

    return {
        "text": lambda: lines(investigation_text(found, profile=profile, of_groups=of_groups, undo=undo)),
        "json": document,
        "csv": lambda: lines(restore_csv([one for one in found.explanations if one.severity > Severity.INFO])),
        "html": lambda: lines(
            [investigation_page(found, profile=profile, sources=sources, of_groups=of_groups, undo=undo).rstrip("\n")]
        ),
    }


def write_investigation(directory: str, forms: Mapping[str, Callable[[], Iterable[str]]]) -> str:
    """Write the files into ``directory``, which is made when it is missing; returns the path of the page."""
    for name, file in FILES.items():
        storage.write_text(storage.join(directory, file), forms[name]())
    return storage.join(directory, FILES["html"])

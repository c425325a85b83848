"""An investigation in each of its forms, and as files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from coordinator_core import storage
from coordinator_core.investigate.investigate import Investigation
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
    """Functions that make the lines of each form, by its name. ``of_groups``: groups were asked for."""

    def document() -> list[str]:
        made = investigation_document(found, profile=profile, now_ms=now_ms, history=of_groups, undo=undo)
        return [json.dumps(made, ensure_ascii=False)]

    return {
        "text": lambda: investigation_text(found, profile=profile, undo=undo),
        "json": document,
        "csv": lambda: restore_csv([one for one in found.explanations if one.severity > Severity.INFO]),
        "html": lambda: [
            investigation_page(found, profile=profile, sources=sources, of_groups=of_groups, undo=undo).rstrip("\n")
        ],
    }


def write_investigation(directory: str, forms: Mapping[str, Callable[[], Iterable[str]]]) -> str:
    """Write the files into ``directory``, which is made when it is missing; returns the path of the page."""
    storage.make_directory(directory)
    for name, file in FILES.items():
        text = "".join(f"{line}\n" for line in forms[name]())
        storage.write_text(storage.join(directory, file), text)
    return storage.join(directory, FILES["html"])

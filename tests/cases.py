"""The corpus cases: logs written by real brokers, and what those said of them (``corpus/README.md``)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CORPUS = Path(__file__).parent / "corpus"
MORE = os.environ.get("REGROUP_MORE_CASES")
"""A directory of other cases, which every test of the corpus tries too (``corpus/README.md``, part 3)."""


@dataclass(frozen=True)
class Case:
    """One snapshot. ``paths`` are its log directories, ``directory`` holds ``expected/``.

    ``captured_ms``: when the log was copied, or its broker killed, in ms since the epoch.
    ``is_modern``: answers are those of requests (parts 1 and 3 of the corpus); part 2 has the coordinator's memory.
    """

    name: str
    directory: Path
    paths: tuple[Path, ...]
    release: str
    coordinator: str | None
    offsets_partitions: int
    captured_ms: int
    is_modern: bool = True

    @property
    def expected(self) -> Path:
        return self.directory / "expected"

    def reloaded(self) -> dict[str, Any]:
        """State that a broker rebuilt from a copy of the log alone."""
        document: dict[str, Any] = json.loads((self.expected / "reloaded.json").read_text(encoding="utf-8"))
        return document

    def command_line(self) -> list[str]:
        """Arguments that name the log and the release that wrote it."""
        arguments = [*map(str, self.paths), "--kafka-version", self.release]
        if self.coordinator is not None:
            arguments += ["--coordinator", self.coordinator]
        return arguments


def _cases() -> list[Case]:
    found = []
    roots = [CORPUS, Path(MORE)] if MORE else [CORPUS]
    for root, reloaded in [(each, path) for each in roots for path in sorted(each.rglob("reloaded.json"))]:
        directory = reloaded.parent.parent
        description = _description(directory)
        paths = tuple(sorted(path for path in directory.glob("broker-*/log"))) or (directory / "log",)
        release = description.get("release") or description["kafka"]
        found.append(
            Case(
                name=str(directory.relative_to(root)),
                directory=directory,
                paths=paths,
                release=release,
                coordinator=_coordinator(release, description),
                offsets_partitions=_offsets_partitions(directory, description),
                captured_ms=description.get("captured_at_ms") or description["capturedAtMs"],
                is_modern="capturedAtMs" in description,
            )
        )
    return found


def _description(directory: Path) -> dict[str, Any]:
    for candidate in (directory / "case.json", directory.parent / "case.json"):
        if candidate.exists():
            description: dict[str, Any] = json.loads(candidate.read_text(encoding="utf-8"))
            return description
    raise FileNotFoundError(f"no case.json for {directory}")


def _coordinator(release: str, description: dict[str, Any]) -> str | None:
    """The coordinator, of releases that have two."""
    if release.rpartition(".")[0] not in ("3.7", "3.8", "3.9"):
        return None
    return "classic" if "classic" in description["coordinator"] else "new"


def _offsets_partitions(directory: Path, description: dict[str, Any]) -> int:
    if directory.name == "live-copy":
        return 1  # Its broker had settings of its own, which case.json does not repeat.
    settings = description.get("settings") or description.get("broker_settings") or {}
    return int(settings.get("offsets.topic.num.partitions", 50))


CASES = _cases()
TORN = [case for case in CASES if case.name.startswith("k431-torn/")]
"""Deliberately damaged logs, and one torn copy: ``--partial`` reads them as the restarting broker did."""


def case(name: str) -> Case:
    """The case of that name, such as ``k241/before``."""
    return next(item for item in CASES if item.name == name)


FAST_CASES = (
    "k082/plain",
    "k0102/after",
    "k0102-codecs/plain",
    "k011/plain",
    "k241/cleaned",
    "k392-classic",
    "k431-cluster",
    "k431-expired/A",
    "k431-mixed",
    "k431-torn/bitflip",
    "k431-txn",
    "k440/before",
    "kmix-0102-241/mixed",
)
"""A small log of every release, format and kind of trouble."""


FEW_CASES = ("k0102-codecs/plain", "k241/cleaned", "k431-torn/bitflip", "k431-txn", "k440/before")
"""A log of the old formats, compressed; of each coordinator; damaged; and with the newest types of groups."""


def cross_section(cases: Iterable[Case], names: Sequence[str] = FAST_CASES) -> Any:
    """Parameters of a slow test: the cases of these names, and all others in the tier *full*."""
    return [pytest.param(item, id=item.name, marks=() if item.name in names else pytest.mark.full) for item in cases]

"""Logs of incidents that real brokers wrote, and what was done to whom (``tests/recording/incidents.py``)."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import zstandard

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Act:
    """Something that was done, from ``from_ms`` to ``to_ms``; the broker wrote the records ``first`` to before ``end``
    of the offsets partition meanwhile. A ``fault`` is what the incident comes from."""

    what: str
    fault: bool
    from_ms: int
    to_ms: int
    offsets_partition: int
    first: int
    end: int


@dataclass(frozen=True)
class Expected:
    """What an investigation must find: the code, the cause of lost offsets, kinds of the records that are evidence, and
    words of the verdict."""

    code: str
    cause: str | None
    records: Sequence[str]
    says: Sequence[str]
    bug: str | None


@dataclass(frozen=True)
class Part:
    """What one group went through; ``expected`` is ``None`` for the clean twin of an ``incident``. ``like`` is the
    incident of :mod:`tests.history.page` that is of this kind."""

    log: str
    release: str
    incident: str
    group: str
    acts: Sequence[Act]
    expected: Expected | None
    like: str | None
    retention_ms: int
    """``offsets.retention.minutes`` of the broker."""

    @property
    def fault(self) -> Act:
        return next(act for act in self.acts if act.fault)

    def told(self, document: dict[str, Any]) -> list[dict[str, Any]]:
        """The explanations that are expected: of several with that code, those of the time of the fault."""
        assert self.expected is not None
        found = [one for one in document["explanations"] if one["code"] == self.expected.code]
        return [one for one in found if self.fault.from_ms <= one["at_ms"] <= self.fault.to_ms] or found


@cache
def parts() -> Sequence[Part]:
    """All groups of all logs."""
    found = []
    for path in sorted(DATA.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        retention_ms = 60_000 * int(document["settings"]["offsets.retention.minutes"])
        found += [_part(document["log"], document["kafka"], retention_ms, one) for one in document["incidents"]]
    return found


def _part(log: str, release: str, retention_ms: int, one: dict[str, Any]) -> Part:
    acts = [Act(**act) for act in one["acts"]]
    expected = Expected(**one["expected"]) if "expected" in one else None
    return Part(log, release, one["incident"], one["group"], acts, expected, one.get("like"), retention_ms)


def unpack(log: str, directory: Path) -> Path:
    """The log as its broker left it, in a directory of its own."""
    target = directory / log
    with (
        (DATA / f"{log}.tar.zst").open("rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file) as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        archive.extractall(target, filter="data")
    return target

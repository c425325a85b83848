"""Traces as files: JSON lines, checked while they are read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coordinator_core.coordinator.rules import JAVA
from coordinator_core.coordinator.settings import BrokerSettings
from coordinator_core.coordinator.trace.given import Given
from coordinator_core.errors import Damage, DamagedInputError, UsageError
from coordinator_core.jsontext import parse_json
from coordinator_core.releases import profile_for_release
from coordinator_core.releases.requests import RequestRules
from coordinator_core.storage import read, write_atomic

Json = dict[str, Any]

_HEAD = {"trace": str, "kafka": str, "coordinator": str, "settings": dict, "start_ms": int, "topics": dict}
_LINES: dict[str, dict[str, type | tuple[type, ...]]] = {
    "send": {"send": int, "t": (int, float), "client": str, "api": str, "version": int, "body": dict},
    "reply": {"reply": int, "t": (int, float), "body": dict},
    "wait": {"t": (int, float), "wait": (int, float)},
    "closed": {"t": (int, float), "closed": int, "lost": list},
    "noreply": {"t": (int, float), "noreply": int},
    "killed": {"t": (int, float), "killed": str},
    "started": {"t": (int, float), "started": bool},
    "accepts": {"t": (int, float), "accepts": bool},
    "unanswered": {"unanswered": list},
    "records": {"partition": int, "groups": list, "records": list},
    "variables": {"variables": dict},
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a trace: its number in the file, its kind, its fields."""

    number: int
    kind: str
    fields: Json

    @property
    def t(self) -> float:
        """Milliseconds since the first request."""
        t: float = self.fields["t"]
        return t


@dataclass(frozen=True, slots=True)
class Trace:
    """One recording. ``head`` is its first line."""

    path: str
    head: Json
    lines: tuple[Line, ...]
    variables: Json = field(default_factory=dict)

    @property
    def name(self) -> str:
        name: str = self.head["trace"]
        return name

    @property
    def is_java(self) -> bool:
        return bool(self.head["coordinator"] == "java")

    @property
    def group_rules(self) -> RequestRules:
        """Release by which share and streams groups are served: the recorded one where it is modelled, else 4.3."""
        return self._recorded_rules or JAVA

    @property
    def has_streams(self) -> bool:
        """Tell whether streams groups of the recorded release are modelled."""
        return self._recorded_rules is not None and self._recorded_rules.streams is not None

    @property
    def _recorded_rules(self) -> RequestRules | None:
        """``None`` for a release without rules. A recording that names no release is taken for one of 4.3."""
        kafka: str = self.head["kafka"]
        if not kafka[:1].isdecimal():
            return JAVA
        try:
            return profile_for_release(kafka).requests
        except UsageError:
            return None

    @property
    def settings(self) -> BrokerSettings:
        return BrokerSettings.from_properties(self.head["settings"])

    @property
    def start_ms(self) -> int:
        start: int = self.head["start_ms"]
        return start

    @property
    def given(self) -> Given | None:
        """The field ``given`` of the first line; ``None`` without one."""
        return Given.from_json(self.head["given"]) if "given" in self.head else None

    def of_kind(self, *kinds: str) -> Iterator[Line]:
        return (line for line in self.lines if line.kind in kinds)


def read_trace(path: Path) -> Trace:
    """Read a trace. Raises :class:`DamagedInputError` that names the first malformed line."""
    head: Json | None = None
    lines: list[Line] = []
    variables: Json = {}
    position = 0
    for number, raw in enumerate(bytes(read(str(path))).splitlines(keepends=True), 1):
        if raw.strip():
            fields = _object(path, number, position, raw)
            if head is None:
                head = _checked_head(path, number, position, fields)
            else:
                line = _checked_line(path, number, position, fields)
                lines.append(line)
                if line.kind == "variables":
                    variables = fields["variables"]
        position += len(raw)
    if head is None:
        raise _damage(path, 1, 0, "an empty file is no trace")
    return Trace(str(path), head, tuple(lines), variables)


def _damage(path: Path, number: int, position: int, text: str) -> DamagedInputError:
    return DamagedInputError(Damage(str(path), position, None, "trace", f"line {number}: {text}"))


def _object(path: Path, number: int, position: int, raw: bytes) -> Json:
    try:
        fields = parse_json(raw)
    except ValueError as error:
        raise _damage(path, number, position, f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise _damage(path, number, position, "not a JSON object")
    return fields


def _checked_head(path: Path, number: int, position: int, fields: Json) -> Json:
    for name, type_ in _HEAD.items():
        if not isinstance(fields.get(name), type_):
            raise _damage(path, number, position, f"the first line has no {name} ({type_.__name__})")
    if fields["coordinator"] not in ("java", "scala"):
        raise _damage(path, number, position, f"unknown coordinator {fields['coordinator']!r}")
    for name, topic in fields["topics"].items():
        if not isinstance(topic, dict) or not isinstance(topic.get("partitions"), int) or "id" not in topic:
            raise _damage(path, number, position, f"topic {name!r} has no id or no partitions")
    try:
        BrokerSettings.from_properties(fields["settings"])
        Given.from_json(fields.get("given", {}))
    except ValueError as error:
        raise _damage(path, number, position, str(error)) from None
    return fields


def _checked_line(path: Path, number: int, position: int, fields: Json) -> Line:
    for kind, types in _LINES.items():
        if kind in fields:
            for name, type_ in types.items():
                if not isinstance(fields.get(name), type_):
                    raise _damage(path, number, position, f"a {kind} line without a proper {name}")
            return Line(number, kind, fields)
    raise _damage(path, number, position, f"unknown kind of line: {', '.join(sorted(fields)) or 'empty'}")


def add_given(path: Path, given: Given) -> None:
    """Write ``given`` into the first line of a trace; its other lines stay byte for byte."""
    head, separator, rest = bytes(read(str(path))).lstrip().partition(b"\n")
    fields = parse_json(head) | {"given": given.as_json()}
    write_atomic(str(path), json.dumps(fields, ensure_ascii=False).encode() + separator + rest)

"""Traces as files: JSON lines, checked while they are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict

from coordinator_core.coordinator.metadata import MOST_PARTITIONS
from coordinator_core.coordinator.protocol import read_request
from coordinator_core.coordinator.requests import UUID, Request, Uuid
from coordinator_core.coordinator.rules import JAVA_PROFILE, SCALA_PROFILE
from coordinator_core.coordinator.settings import BrokerSettings
from coordinator_core.coordinator.trace.given import Given, Ms
from coordinator_core.errors import Damage, DamagedInputError, UsageError
from coordinator_core.jsontext import FormError, Matching, Within, parse_json, reader
from coordinator_core.releases import Profile, profile_for_release
from coordinator_core.storage import read, write_atomic
from coordinator_core.untrusted import is_utf8

Json = dict[str, Any]

_MOST_START_MS = 10**15
_MOST_LEVELS = 64
"""Levels of objects and lists in a line; Kafka's messages have ten."""

# Fields of a line that the model and the comparison read; a line may hold more.


class _Topic(TypedDict):
    id: Annotated[str, Matching(r"\$topic:.+|" + UUID, "a topic id or its variable")]
    partitions: Annotated[int, Within(0, MOST_PARTITIONS)]


class _Head(TypedDict):
    trace: str
    kafka: str
    coordinator: Annotated[str, Matching("java|scala", "java or scala")]
    settings: dict[str, str]
    start_ms: Annotated[int, Within(0, _MOST_START_MS)]
    topics: dict[str, _Topic]


class _Timed(TypedDict):
    t: Ms


class _Marked(TypedDict, total=False):
    nondeterministic: list[str]


class _Send(_Timed):
    send: int
    client: str
    api: str
    version: Annotated[int, Within(0, 0x7FFF)]
    body: dict[str, Any]


class _MemberId(TypedDict):
    memberId: str


class _Member(_MemberId, total=False):
    groupInstanceId: str | None


class _GroupId(TypedDict):
    groupId: str


class _Group(_GroupId, total=False):
    groupState: str


class _Answer(TypedDict, total=False):
    memberId: str | None
    errorCode: int
    members: list[_Member]
    groups: list[_Group]


class _Reply(_Timed, _Marked):
    reply: int
    body: _Answer


class _Wait(_Timed):
    wait: Ms


class _Closed(_Timed):
    closed: int
    lost: list[int]


class _NoReply(_Timed):
    noreply: int


class _Killed(_Timed):
    killed: str


class _Started(_Timed):
    started: bool


class _Accepts(_Timed):
    accepts: bool


class _Unanswered(TypedDict):
    unanswered: list[int]


class _KeyData(TypedDict, total=False):
    group: str
    groupId: str
    memberId: str


class _Key(TypedDict):
    type: int
    data: _KeyData


class _Record(_Timed, total=False):
    key: _Key
    value: dict[str, Any] | None
    control: str


class _Records(_Marked):
    partition: int
    groups: list[str]
    records: list[_Record]


class _Variables(TypedDict):
    variables: dict[str, Any]


_LINES: dict[str, Any] = {
    "send": _Send,
    "reply": _Reply,
    "wait": _Wait,
    "closed": _Closed,
    "noreply": _NoReply,
    "killed": _Killed,
    "started": _Started,
    "accepts": _Accepts,
    "unanswered": _Unanswered,
    "records": _Records,
    "variables": _Variables,
}
_VARIABLES: dict[str, Any] = {"$m": str, "$p": int, "$topic:": Uuid}
"""Types of the values of variables, by the beginning of their names."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a trace: its number in the file, its kind, its fields."""

    number: int
    kind: str
    fields: Json

    @property
    def t(self) -> float:
        """Milliseconds since the first request; not of lines at the end, which have no time."""
        t: float = self.fields["t"]
        return t

    @property
    def has_time(self) -> bool:
        return "t" in _LINES[self.kind].__annotations__

    @property
    def end_t(self) -> float:
        """End of a wait, else the time of the line."""
        wait: float = self.fields["wait"] if self.kind == "wait" else 0.0
        return self.t + wait


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
    def kafka(self) -> str:
        kafka: str = self.head["kafka"]
        return kafka

    @property
    def profile(self) -> Profile:
        """The profile of the recorded release; a recording that names none is taken for one of ``stand_in``.

        Raises :class:`UsageError` for a release that is not known, or has not the recorded coordinator.
        """
        if not self.kafka[:1].isdecimal():
            return JAVA_PROFILE if self.is_java else SCALA_PROFILE
        return profile_for_release(self.kafka, "new" if self.is_java else "classic")

    @property
    def stand_in(self) -> str:
        """The release whose classic groups stand for those of a release without rules."""
        return "4.3" if self.is_java else "3.9"

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

    def request(self, line: Line, values: Callable[[Json], Json] = lambda body: body) -> Request:
        """The request of a ``send`` line, ``values`` put in; raises :class:`DamagedInputError` when it is none."""
        api, version = line.fields["api"], line.fields["version"]
        try:
            return read_request(api, version, values(line.fields["body"]))
        except ValueError as error:
            raise self.damage(line.number, f"{api} v{version}: {error}") from None

    def damage(self, number: int, text: str) -> DamagedInputError:
        """The error that line ``number`` of the trace is bad."""
        return _damage(self.path, number, 0, text)


def read_trace(path: Path) -> Trace:
    """Read a trace.

    Raises :class:`DamagedInputError` that names the first malformed line, and :class:`UsageError` for a release that is
    not known, or has not the recorded coordinator.
    """
    head: Json | None = None
    lines: list[Line] = []
    variables: Json = {}
    position = 0
    for number, raw in enumerate(bytes(read(str(path))).splitlines(keepends=True), 1):
        try:
            if raw.strip() and head is None:
                head = _head(_object(raw))
            elif raw.strip():
                line = _line(number, _object(raw))
                lines.append(line)
                if line.kind == "variables":
                    variables = line.fields["variables"]
        except ValueError as error:
            raise _damage(path, number, position, str(error)) from None
        position += len(raw)
    if head is None:
        raise _damage(path, 1, 0, "an empty file is no trace")
    trace = Trace(str(path), head, tuple(lines), variables)
    try:
        _ = trace.profile
    except UsageError as error:
        raise UsageError(f"{path}: line 1: {error}") from None
    return trace


def _damage(path: Path | str, number: int, position: int, text: str) -> DamagedInputError:
    return DamagedInputError(Damage(str(path), position, None, "trace", f"line {number}: {text}"))


def _object(raw: bytes) -> Json:
    try:
        fields = parse_json(raw)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    # Only an escape makes half of a surrogate pair.
    if b"\\u" in raw and not is_utf8(json.dumps(fields, ensure_ascii=False)):
        raise ValueError("text that UTF-8 cannot hold")
    if _is_deep(fields):
        raise ValueError(f"nested more than {_MOST_LEVELS} levels deep")
    return fields


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_MOST_LEVELS):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return bool(level)


def _head(fields: Json) -> Json:
    head = _read(_Head, "first", fields)
    settings = BrokerSettings.from_properties(head["settings"])
    partitions = (settings.offsets_topic_num_partitions, sum(topic["partitions"] for topic in head["topics"].values()))
    if max(partitions) > MOST_PARTITIONS:
        raise ValueError(f"topics of {max(partitions)} partitions, at most {MOST_PARTITIONS} are simulated")
    Given.from_json(head.get("given", {}))
    return head


def _line(number: int, fields: Json) -> Line:
    for kind, shape in _LINES.items():
        if kind in fields:
            found = _read(shape, kind, fields)
            if kind == "variables":
                _check_variables(found["variables"])
            return Line(number, kind, found)
    raise ValueError(f"unknown kind of line: {', '.join(sorted(fields)) or 'empty'}")


def _read(shape: Any, kind: str, fields: Json) -> Json:
    try:
        found: Json = reader(shape)(fields)
    except FormError as error:
        raise ValueError(f"{kind} line: {error}") from None
    return found


def _check_variables(variables: Json) -> None:
    for name, value in variables.items():
        kind = next((kind for beginning, kind in _VARIABLES.items() if name.startswith(beginning)), None)
        if kind is None:
            raise ValueError(f"unknown kind of variable: {name}")
        try:
            reader(kind)(value)
        except FormError as error:
            raise ValueError(f"{name}: {error}") from None


def add_given(path: Path, given: Given) -> None:
    """Write ``given`` into the first line of a trace; its other lines stay byte for byte."""
    head, separator, rest = bytes(read(str(path))).lstrip().partition(b"\n")
    fields = parse_json(head) | {"given": given.as_json()}
    write_atomic(str(path), json.dumps(fields, ensure_ascii=False).encode() + separator + rest)

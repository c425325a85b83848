"""A plan as values: for every offset key its present value, its new value, and the consequences.

A plan is a file of canonical JSON (sorted keys, no spaces, ASCII) with the SHA-256 of itself. Nothing is written to a
cluster that is not in a plan.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from coordinator_core import __version__, storage
from coordinator_core.errors import UsageError
from coordinator_core.groups.model import GroupType, OffsetKey
from coordinator_core.investigate.words import are, count
from coordinator_core.jsontext import FormError, Int32, canonical, from_json, parse_json, to_json
from coordinator_core.merge.packed import LongText, unpacked
from coordinator_core.untrusted import exact_row, is_utf8

if TYPE_CHECKING:
    Metadata = str | LongText
else:
    # The form of a plan's file, which has texts.
    Metadata = str

PLAN_VERSION = 1
PLAN_BEGINS = b'{"choices":{'
"""First bytes of the file of a plan: its keys are sorted."""
ROLLBACK = "rollback"
"""Kind of a plan that undoes an apply."""
_ITEMS = 64
"""Rows that are made text at once."""
_WINDOW = 1024
"""Rows whose long metadata are unpacked together."""
NO_EPOCH = -1
"""``RecordBatch.NO_PARTITION_LEADER_EPOCH``: a consumer takes the offset as it stands."""


class Value(NamedTuple):
    """Value that an OffsetCommit sets and an OffsetFetch answers; ``leader_epoch`` is -1 for none."""

    offset: int
    leader_epoch: int
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class Position:
    """A committed offset, where it is known with the record that holds it and the topic id in that record."""

    offset: int
    leader_epoch: Int32 = NO_EPOCH
    metadata: Metadata = ""
    topic_id: str | None = None
    offsets_partition: int | None = None
    record_offset: int | None = None

    @property
    def value(self) -> Value:
        """The part that requests set and show."""
        return Value(self.offset, self.leader_epoch, self.metadata)


def value_of(place: Position | None) -> Value | None:
    """The part of a committed offset that requests set and show; ``None`` where nothing is committed."""
    return None if place is None else place.value


class Action(StrEnum):
    """Actions on an offset key, or on a group."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    KEEP = "keep"
    BLOCKED = "blocked"
    """It cannot be done, or only in a way that nobody asked for: ``reason`` says why. Nothing of such a plan is
    applied."""


WRITES = frozenset({Action.CREATE, Action.UPDATE, Action.DELETE})


@dataclass(frozen=True, slots=True)
class Row:
    """One offset key. ``before`` is the value in the target, ``after`` the new one; ``None``: nothing.

    ``read_again`` and ``skipped`` count offsets of the topic's log between the two, ``left`` those from ``after`` to
    its end; ``None`` where they cannot be known. Offsets are not all records: transaction markers and cleaned
    records count.
    """

    group_id: str
    topic: str
    partition: Int32
    action: Action
    before: Position | None
    after: Position | None
    reason: str
    read_again: int | None = None
    skipped: int | None = None
    left: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def key(self) -> OffsetKey:
        return OffsetKey(self.group_id, self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One group of the target with all its offset keys, those that stay too.

    ``action`` is ``DELETE`` where the group goes (:attr:`is_deleted`), ``CREATE`` where it is absent, ``BLOCKED`` where
    a row is. ``state`` and ``members`` are as of the plan; ``type`` is the type that an absent group gets.
    ``state_digest`` is that of the group's offsets once the plan is applied (:func:`state_digest`). Offsets of a share
    group are its start offsets, which have neither leader epoch nor metadata.
    """

    group_id: str
    type: str
    state: str | None
    members: int | None
    offsets_partition: int
    action: Action
    rows: tuple[Row, ...]
    state_digest: str
    warnings: tuple[str, ...] = ()

    @property
    def is_deleted(self) -> bool:
        """Whether DeleteGroups takes the group: a share group, which no sweep removes.

        DeleteGroups also takes offsets that no answer shows: those of open transactions, and of topics that may not be
        described. Other groups lose the offsets of the plan alone (plans of before have ``DELETE`` for them), and
        brokers remove an empty group without offsets.
        """
        return self.action is Action.DELETE and self.type == GroupType.SHARE

    @property
    def leaves_nothing(self) -> bool:
        """Whether the group has no offset once the plan is applied, as far as the plan knows."""
        return all(row.after is None for row in self.rows)

    def writes(self) -> Iterator[Row]:
        """The rows that change something."""
        return (row for row in self.rows if row.action in WRITES)


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a restore, with its sources. Groups are in order, and their rows too."""

    kind: str
    cluster_id: str | None
    target: str
    source: str
    choices: dict[str, str]
    created_at_ms: int
    groups: tuple[GroupPlan, ...]
    warnings: tuple[str, ...] = ()
    plan_version: int = PLAN_VERSION
    regroup_version: str = __version__

    def rows(self) -> Iterator[Row]:
        """All rows, group by group."""
        return (row for group in self.groups for row in group.rows)

    def writing(self) -> list[GroupPlan]:
        """The groups that change."""
        return [group for group in self.groups if group.action is Action.DELETE or any(group.writes())]

    def obstacle(self) -> str | None:
        """Why nothing of the plan is applied: the first row that is blocked."""
        blocked = [row for row in self.rows() if row.action is Action.BLOCKED]
        if not blocked:
            return None
        first = blocked[0]
        others = sum(group.action is not Action.BLOCKED for group in self.writing())
        alone = f"; {count(others, 'other group')} can be planned without it (--group)" if others else ""
        return f"{are(len(blocked), 'offset')} blocked, first {first.key.in_words}: {first.reason}{alone}"

    def counts(self) -> dict[str, int]:
        """Offset keys by action."""
        found = Counter(row.action for row in self.rows())
        return {action.value: found[action] for action in Action}


def _canonical(document: Any, texts: Mapping[str, str] | None = None) -> bytes:
    """Canonical JSON of a plan or a part of it; ``texts`` are those of its long metadata that are unpacked already, by
    digest."""
    return canonical(document, partial(_fields, texts=texts or {}))


def _fields(part: Any, texts: Mapping[str, str]) -> Any:
    if isinstance(part, LongText):
        return texts.get(part.digest) or str(part)
    return {name: getattr(part, name) for name in part.__slots__}


def _windows(rows: Iterable[Any]) -> Iterator[tuple[list[Any], dict[str, str]]]:
    """Some rows at a time, or keys with values, with the texts of their long metadata by digest."""
    rows = iter(rows)
    while some := list(itertools.islice(rows, _WINDOW)):
        yield some, unpacked(each for row in some for each in _metadata_of(row) if isinstance(each, LongText))


def _metadata_of(row: Any) -> Iterator[Metadata]:
    if isinstance(row, Row):
        return (place.metadata for place in (row.before, row.after) if place is not None)
    return iter((row[-1],))


def state_digest(offsets: Iterable[tuple[OffsetKey, Value]]) -> str:
    """SHA-256 (hex) of committed offsets, equal exactly when they are: offset, leader epoch and metadata by key."""
    digest = hashlib.sha256()
    for portion in _listed([*key, *value] for key, value in sorted(offsets)):
        digest.update(portion)
    return digest.hexdigest()


def after_of(rows: Iterable[Row]) -> Iterator[tuple[OffsetKey, Value]]:
    """Committed offsets once the rows are applied."""
    return ((row.key, row.after.value) for row in rows if row.after is not None)


def write_plan(path: str | None, plan: Plan) -> str:
    """Write the file of a plan; its digest. ``None``: only its digest."""
    digest, portions = plan_file(plan)
    if path is not None:
        storage.write_atomic(path, portions)
    return digest


def plan_file(plan: Plan) -> tuple[str, Iterator[bytes]]:
    """The digest of a plan, and the file that has it.

    JSON is made row by row: metadata may be gigabytes, and as one document a plan of 500 000 offsets took one.
    """
    about = to_json(replace(plan, groups=())) | {"counts": plan.counts()}
    digest = hashlib.sha256()
    for portion in _portions(about, plan.groups):
        digest.update(portion)
    text = digest.hexdigest()
    return text, itertools.chain(_portions(about | {"digest": text}, plan.groups), [b"\n"])


def _portions(about: dict[str, Any], groups: Iterable[GroupPlan]) -> Iterator[bytes]:
    """Canonical JSON of the document ``about`` with its ``groups``."""
    head, tail = _canonical(about).split(b'"groups":[]')
    yield head + b'"groups":'
    yield from _array(map(_group_portions, groups))
    yield tail


def _group_portions(group: GroupPlan) -> Iterator[bytes]:
    before, after = _canonical(_fields(group, {}) | {"rows": []}).split(b'"rows":[]')
    yield before + b'"rows":'
    yield from _listed(group.rows)
    yield after


def _listed(items: Iterable[Any]) -> Iterator[bytes]:
    """Canonical JSON of a list, some items at a time."""
    return _array(
        [_canonical(window[start : start + _ITEMS], texts)[1:-1]]
        for window, texts in _windows(items)
        for start in range(0, len(window), _ITEMS)
    )


def _array(elements: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """JSON of an array, from the portions of one element, or of some of them, at a time."""
    yield b"["
    for at, portions in enumerate(elements):
        if at:
            yield b","
        yield from portions
    yield b"]"


def read_plan(path: str | Path, approved: str | None = None) -> tuple[Plan, str]:
    """A plan and its digest; ``UsageError`` when the file is no plan, not as it was written, or not the one with the
    digest ``approved``."""
    try:
        document: Any = parse_json(storage.read_utf8(path), _part)
    except ValueError as error:
        raise UsageError(f"{path}: not a plan: {error}") from None
    if not isinstance(document, dict) or "plan_version" not in document:
        raise UsageError(f"{path}: not a plan")
    if document["plan_version"] != PLAN_VERSION:
        raise UsageError(f"{path}: a plan of version {document['plan_version']}, this is for {PLAN_VERSION}")
    digest = document.pop("digest", None)
    counts = document.pop("counts", None)
    try:
        plan = from_json(Plan, document)
        _check(plan)
    except ValueError as error:
        raise UsageError(f"{path}: not a plan: {error}") from None
    if (digest, counts) != (write_plan(None, plan), plan.counts()):
        raise UsageError(f"{path}: it was changed since it was planned: its digest is another")
    if approved not in (None, digest):
        raise UsageError(f"{path}: it is not the plan that was approved: that has digest {approved}, this {digest}")
    return plan, str(digest)


def _check(plan: Plan) -> None:
    """Raises :class:`FormError` for what no plan of ours says, and no request could carry out."""
    group_ids: set[str] = set()
    for at, group in enumerate(plan.groups):
        place = f".groups[{at}]"
        if group.group_id in group_ids:
            raise FormError(f"group {group.group_id!r} is there twice", place)
        group_ids.add(group.group_id)
        keys: set[tuple[str, int]] = set()
        for number, row in enumerate(group.rows):
            key = row.topic, row.partition
            if (problem := _problem(row, group, key in keys)) is not None:
                raise FormError(problem, f"{place}.rows[{number}]")
            keys.add(key)


def _problem(row: Row, group: GroupPlan, is_repeated: bool) -> str | None:
    if row.group_id != group.group_id:
        return f"the row is of group {row.group_id!r}, its group is {group.group_id!r}"
    if is_repeated:
        return f"{row.key.topic_partition} is there twice"
    if row.action is Action.BLOCKED:
        # It is not written, and says what is wrong with it.
        return None
    if row.action is not (action := action_of(row.before, row.after)):
        return f"the action is {row.action}, and what is before and after says {action}"
    if group.action is Action.DELETE and row.after is not None:
        return "an offset stays, and its group is deleted"
    if row.action in WRITES:
        metadata = "" if row.after is None else str(row.after.metadata)
        if row.after is not None and row.after.offset < 0:
            return f"offset {row.after.offset} is none"
        if row.after is not None and row.partition < 0:
            return f"partition {row.partition} is none"
        if not all(map(is_utf8, (row.group_id, row.topic, metadata))):
            return "a name or the metadata is no text that UTF-8 has"
    return None


def action_of(before: Position | None, after: Position | None) -> Action:
    """The action that takes an offset key from ``before`` to ``after``."""
    if value_of(before) == value_of(after):
        return Action.KEEP
    if before is None:
        return Action.CREATE
    return Action.DELETE if after is None else Action.UPDATE


def _part(value: dict[str, Any]) -> Any:
    """Part of a plan for its JSON object, made at once: all objects of a large plan do not fit beside it."""
    for field_name, part in _PARTS.items():
        if field_name in value:
            return from_json(part, value)
    return value


_PARTS = {"record_offset": Position, "read_again": Row, "state_digest": GroupPlan}


def kafka_csv(plan: Plan) -> list[str]:
    """Rows ``group,topic,partition,offset`` of the offsets created and updated, for Kafka's ``--from-file``.

    The tool sets neither epoch nor metadata, and deletes nothing.
    """
    return [
        exact_row((row.group_id, row.topic, row.partition, row.after.offset))
        for row in plan.rows()
        if row.action in (Action.CREATE, Action.UPDATE) and row.after is not None
    ]

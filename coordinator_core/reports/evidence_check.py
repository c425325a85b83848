"""Evidence checked: its signature, its files, its place in a chain, and its rows against the bytes of the log."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

from coordinator_core import __version__, storage
from coordinator_core.errors import Damage
from coordinator_core.history.model import PartitionHistory
from coordinator_core.jsontext import fields_of, parse_json
from coordinator_core.log.types import PartitionLog, Snapshot
from coordinator_core.reports.evidence import (
    BESIDE_SEGMENTS,
    HISTORY,
    STATEMENT,
    Evidence,
    PartitionEvidence,
    Statement,
    gaps_since,
    has_content,
    history_lines,
    missing_since,
    name_of,
    removed_of,
    require_cluster,
    segment_name,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_CHANGED = "changed_since_published"
_SHOWN = 400
"""Characters of a line that a message has."""


@dataclass(frozen=True, slots=True)
class CheckedEvidence:
    """``is_signed`` and ``is_derived`` say that the signature was checked, and that the rows were made again from the
    log; neither says that it is right: ``damage`` does."""

    statement: Statement
    is_signed: bool
    is_derived: bool
    damage: tuple[Damage, ...]

    def as_dict(self) -> dict[str, Any]:
        evidence = self.statement.evidence
        return {
            "path": self.statement.directory,
            "sha256": self.statement.sha256,
            "groups": None if evidence.groups is None else list(evidence.groups),
            "rows": evidence.rows,
            "segments": sum(len(one.segments) for one in evidence.partitions),
            "signature_checked": self.is_signed,
            "rows_derived": self.is_derived,
        }


def check_evidence(
    statement: Statement, before: Statement | None, snapshot: Snapshot | None, key: Ed25519PublicKey | None
) -> CheckedEvidence:
    """Check a statement. ``before`` is the one that it has to follow, ``snapshot`` the log that it is of, or a later
    copy of that, ``key`` whose signature it must have; ``None``: not checked.

    Raises :class:`~coordinator_core.errors.UsageError` for the log of another cluster.
    """
    damage = [*_signature(statement, key), *_chain(statement, before), *_history(statement)]
    is_derived = False
    if snapshot is not None:
        require_cluster(statement, snapshot)
        log, wrong = _as_exported(statement.evidence, snapshot)
        damage += wrong
        if not wrong:
            damage += _rows(statement, log)
            damage += _missing(statement, before, log)
            is_derived = True
    return CheckedEvidence(statement, key is not None, is_derived, tuple(damage))


def _signature(statement: Statement, key: Ed25519PublicKey | None) -> list[Damage]:
    if key is None:
        return []
    # Loaded here: it takes longer than most checks.
    from coordinator_core.runs.signature import checked_bytes

    path = storage.join(statement.directory, STATEMENT)
    data, wrong = checked_bytes(path, key)
    if not wrong and hashlib.sha256(data).hexdigest() != statement.sha256:
        wrong = [Damage(path, 0, None, "file_changed", "the statement changed while it was verified")]
    return wrong


def _chain(statement: Statement, before: Statement | None) -> Iterator[Damage]:
    if before is None:
        return
    path, previous = storage.join(statement.directory, STATEMENT), statement.evidence.previous
    if previous is None or previous.statement_sha256 != before.sha256:
        said = "no statement" if previous is None else f"the statement {previous.statement_sha256}"
        detail = f"it follows {said}, not {before.sha256} of {before.directory}"
        yield Damage(path, 0, None, "broken_chain", detail)
    elif previous.gaps != tuple(gaps_since(before, statement.evidence.partitions)):
        yield Damage(path, 0, None, "broken_chain", f"its gaps are not those that {before.directory} leaves")


def _history(statement: Statement) -> Iterator[Damage]:
    path = storage.join(statement.directory, HISTORY)
    if not storage.exists(path):
        yield Damage(path, 0, None, _CHANGED, "the file is gone")
        return
    digest, rows = hashlib.sha256(), 0
    for line in _lines(path):
        digest.update(line)
        rows += 1
    evidence = statement.evidence
    if (found := digest.hexdigest()) != evidence.history_sha256:
        detail = f"the SHA-256 of its content is {found}, published was {evidence.history_sha256}"
        yield Damage(path, 0, None, _CHANGED, detail)
    elif rows != evidence.rows:
        yield Damage(path, 0, None, _CHANGED, f"it has {rows} lines, the statement says {evidence.rows}")


def _as_exported(evidence: Evidence, snapshot: Snapshot) -> tuple[Snapshot, list[Damage]]:
    """The log as far as the evidence has read it, and what is no longer there as it was."""
    logs = {log.offsets_partition: log for log in snapshot.partitions}
    damage: list[Damage] = []
    partitions = []
    for one in evidence.partitions:
        log = logs.get(one.offsets_partition)
        if log is None:
            where = ", ".join(snapshot.sources)
            detail = f"the log does not hold offsets partition {one.offsets_partition}, which the evidence has read"
            damage.append(Damage(where, 0, None, _CHANGED, detail))
        else:
            partitions.append(_log_as_exported(one, log, damage))
    return replace(snapshot, partitions=tuple(partitions)), damage


def _log_as_exported(one: PartitionEvidence, log: PartitionLog, damage: list[Damage]) -> PartitionLog:
    found = {segment.base_offset: segment for segment in log.segments}
    segments = []
    for entry in one.segments:
        segment = found.get(entry.base_offset)
        if segment is None:
            path = storage.join(log.directory, storage.split(segment_name(log.offsets_partition, entry.base_offset))[1])
            damage.append(Damage(path, 0, entry.base_offset, _CHANGED, "the segment is gone"))
        elif not has_content(segment, entry):
            detail = f"its first {entry.bytes} bytes do not have the SHA-256 {entry.sha256} of the evidence"
            damage.append(Damage(segment.path, 0, entry.base_offset, _CHANGED, detail))
        else:
            segments.append(replace(segment, size=entry.bytes))
    return replace(log, segments=tuple(segments), **fields_of(one, *BESIDE_SEGMENTS))


def _rows(statement: Statement, log: Snapshot) -> Iterator[Damage]:
    """The first line that is not what the log says."""
    path, evidence = storage.join(statement.directory, HISTORY), statement.evidence
    if not storage.exists(path):
        return
    read: list[PartitionHistory] = []
    damage: list[Damage] = []
    derived = chain.from_iterable(history_lines(log, evidence.asked(), damage, read))
    position = 0
    for line, wanted in zip_longest(_lines(path), derived):
        if line != wanted:
            detail = f"the log says {_shown(wanted)}"
            if evidence.regroup_version != __version__:
                detail += f" (the evidence is of Regroup {evidence.regroup_version}, this is {__version__})"
            yield Damage(path, position, _record_offset(line), "not_in_the_log", detail)
            return
        position += len(line)
    path = storage.join(statement.directory, STATEMENT)
    for one, found in zip(evidence.partitions, read, strict=True):
        said = one.first_offset, one.end_offset, one.missing_offsets
        if said != (wanted := (found.first_offset, found.end_offset, found.missing)):
            what = f"offsets partition {one.offsets_partition}: first offset, end offset and missing offsets"
            detail = f"{what} are {wanted} in the log, {said} in the statement"
            yield Damage(path, 0, one.first_offset, "not_in_the_log", detail)
        elif one.removed != removed_of(found):
            detail = f"offsets partition {one.offsets_partition}: the log has other ranges without a record"
            yield Damage(path, 0, one.first_offset, "not_in_the_log", detail)
    names = {segment.path: name_of(segment) for segment in log.segments}
    told = {(place.path, place.byte_position, place.kind) for place in evidence.damage}
    for place in damage:
        if (names.get(place.path, place.path), place.byte_position, place.kind) not in told:
            yield Damage(path, 0, place.record_offset, "not_in_the_log", f"it does not tell this damage: {place}")


def _missing(statement: Statement, before: Statement | None, log: Snapshot) -> Iterator[Damage]:
    """Whether the log has as many records less behind the statement before as this one says."""
    previous = statement.evidence.previous
    if before is None or previous is None or previous.statement_sha256 != before.sha256:
        return
    found = missing_since(before, log, statement.evidence.on_damage)
    if previous.missing != found:
        path = storage.join(statement.directory, STATEMENT)
        detail = f"missing since {before.directory} are {found} in the log, {previous.missing} in the statement"
        yield Damage(path, 0, None, "not_in_the_log", detail)


def _shown(line: bytes | None) -> str:
    if line is None:
        return "that there is no such row"
    text = line.decode().rstrip("\n")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _record_offset(line: bytes | None) -> int | None:
    try:
        row = parse_json(line or b"null")
    except ValueError:
        return None
    offset = row.get("record_offset") if isinstance(row, Mapping) else None
    return offset if isinstance(offset, int) else None


def _lines(path: str) -> Iterator[bytes]:
    """The lines of a file; it may be larger than memory."""
    system, inner = storage.filesystem(path)
    with system.open_input_stream(inner) as file, io.BufferedReader(file) as lines:
        yield from lines

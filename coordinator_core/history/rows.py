"""Rows of the table ``history``: every value of the offset keys of a group, with how long it was valid, who committed
it and what ended it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coordinator_core import storage
from coordinator_core.history.model import GroupHistory, Place
from coordinator_core.jsontext import fields_of


def history_rows(group: GroupHistory) -> Iterator[dict[str, Any]]:
    """One row a value, key by key, in log order; ``valid_to`` is absent while it stands. Times in epoch ms."""
    for key, version in sorted(group.all_versions(), key=lambda item: (item[0], item[1].place.record_offset)):
        origin, member, end = version.origin, version.member, version.end
        yield {
            "group_id": group.group_id,
            "topic": key.topic,
            "partition": key.partition,
            "committed_offset": version.last.committed_offset,
            "first_committed_offset": version.first.committed_offset,
            "commits": version.commits,
            "leader_epoch": version.last.leader_epoch,
            "metadata": str(version.metadata),
            "generation": version.generation,
            **place_of(version.place),
            "valid_from": version.valid_from.record_offset,
            "valid_from_ms": version.valid_from.timestamp_ms,
            "valid_to": None if end is None else end.place.record_offset,
            "valid_to_ms": None if end is None else end.place.timestamp_ms,
            "cause": None if end is None else end.kind.value,
            "cause_certainty": None if end is None else end.certainty.value,
            "cause_evidence": None if end is None else end.why or None,
            "cause_or": [] if end is None else [kind.value for kind in end.others],
            "origin": None if origin is None else origin.kind.value,
            "origin_certainty": None if origin is None else origin.certainty.value,
            "origin_evidence": None if origin is None else origin.why,
            **{name: getattr(member, name, None) for name in ("member_id", "instance_id", "client_id", "client_host")},
            "producer_id": version.last.producer_id,
            "transactional_id": None if origin is None else origin.transactional_id,
        }


def place_of(place: Place) -> dict[str, Any]:
    """The coordinates of a record, as columns."""
    return {
        **fields_of(place, "offsets_partition", "record_offset", "timestamp_ms"),
        "segment": storage.split(place.segment)[1],
        "byte_position": place.byte_position,
    }

"""Release for which a log is taken, by what was seen of it."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_core.releases import Release
from coordinator_core.replay.inference import Evidence, release_of
from tests.groups.test_java_loader import GROUP_KEY, assignment, member_key
from tests.replay.histories import History, parsed


@pytest.mark.parametrize(
    "seen, release, coordinator",
    [
        ({}, "4.3.1", "new"),
        ({"newest_magic": 0, "key_types": {0}}, "0.8.2.2", "classic"),
        ({"newest_magic": 0, "key_types": {0, 1}}, "0.9.0.1", "classic"),
        ({"newest_magic": 1, "key_types": {1, 2}, "group_version": 1}, "0.10.2.2", "classic"),
        (
            {"newest_magic": 2, "key_types": {1, 2}, "group_version": 1, "offset_version": 1},
            "2.0.1",
            "classic",
        ),
        ({"newest_magic": 2, "key_types": {1}}, "2.0.1", "classic"),
        ({"newest_magic": 2, "offset_version": 2}, "2.2.2", "classic"),
        ({"newest_magic": 2, "offset_version": 3, "group_version": 2}, "2.2.2", "classic"),
        ({"newest_magic": 2, "offset_version": 3}, "3.9.2", "classic"),
        ({"newest_magic": 2, "group_version": 3}, "3.9.2", "classic"),
        ({"newest_magic": 2, "group_version": 3, "java_batches": True}, "4.0.2", "new"),
        ({"key_types": {1, 3, 5}, "java_batches": True}, "3.9.2", "new"),
        ({"key_types": {3, 16}, "offset_version": 3}, "4.0.2", "new"),
        ({"key_types": {11}}, "4.0.2", "new"),
        ({"key_types": {11, 17}}, "4.1.2", "new"),
        ({"key_types": {1}, "offset_version": 4}, "4.3.1", "new"),
        ({"key_types": {17}, "offset_version": 4}, "4.3.1", "new"),
        ({"fields_since": {Release((4, 1))}, "offset_version": 4}, "4.1.2", "new"),
        ({"fields_since": {Release((4, 1)), Release((4, 2))}}, "4.2.1", "new"),
        ({"fields_since": {Release((4, 3)), Release((4, 2))}}, "4.3.1", "new"),
        ({"fields_since": {Release((4, 4)), Release((4, 1))}}, "4.4.0", "new"),
    ],
)
def test_evidence_points_to_a_release(seen: dict[str, Any], release: str, coordinator: str) -> None:
    found, of = release_of(Evidence(**seen))
    assert (str(found), of) == (release, coordinator)


@pytest.mark.parametrize(
    "key_type, value, since",
    [
        (3, {"epoch": 1}, None),
        (3, {"epoch": 1, "metadataHash": 5}, "4.1"),
        (11, {"epoch": 1, "metadataHash": 5}, "4.1"),
        (6, {"assignmentEpoch": 1, "assignmentTimestamp": 5}, "4.3"),
        (12, {"assignmentEpoch": 1, "assignmentTimestamp": 5}, "4.3"),
        (20, {"assignmentEpoch": 1, "assignmentTimestamp": 5}, "4.3"),
        (17, {"epoch": 1, "metadataHash": 5}, None),
        (17, {"epoch": 1, "metadataHash": 5, "validatedTopologyEpoch": 0}, "4.2"),
        (17, {"epoch": 1, "metadataHash": 5, "storedDescriptionTopologyEpoch": 0}, "4.4"),
        (8, assignment(1, 0), None),
    ],
)
def test_a_field_that_is_used_tells_the_release_that_added_it(
    key_type: int, value: dict[str, Any], since: str | None
) -> None:
    key = member_key("m") if key_type == 8 else GROUP_KEY
    evidence = Evidence()
    for batch, records in parsed(History().modern(key_type, key, value).batches):
        evidence.add(batch, records)
    assert evidence.fields_since == ({Release.parse(since)} if since else set())

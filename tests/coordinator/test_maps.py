"""Order of the coordinators' maps."""

from __future__ import annotations

import random

from coordinator_core.coordinator.java.simple import ShareSpec, assign_simple
from coordinator_core.coordinator.maps import JavaHashMap, TopicId

PARTITIONS = 100_000
"""As many as a simulated cluster has at most (``coordinator.metadata``)."""


def test_a_computed_entry_goes_to_the_head_of_its_bucket_and_a_put_one_to_the_tail() -> None:
    rng = random.Random(20)
    for _ in range(200):
        entries: JavaHashMap[int, int] = JavaHashMap()
        bucket: list[int] = []
        for _ in range(30):
            # Twelve keys of one bucket, which a table of 16 takes.
            key = 16 * rng.randrange(12)
            step = rng.choice(("compute", "put", "remove", "pop", "count"))
            if step == "compute":
                entries.compute_if_absent(key, int)
                bucket = bucket if key in bucket else [key, *bucket]
            elif step == "put":
                entries[key] = 0
                bucket = bucket if key in bucket else [*bucket, key]
            elif step == "count":
                entries.add(key, -entries.get(key, 0))
                bucket = [one for one in bucket if one != key]
            elif key in entries:
                if step == "pop":
                    entries.pop(key)
                else:
                    del entries[key]
                bucket.remove(key)
            assert list(entries) == bucket
        entries.clear()
        entries[0] = entries[16] = 0
        assert list(entries) == [0, 16]


def test_partitions_of_the_largest_share_group_are_assigned() -> None:
    """One entry after the other was put in front of all others: that took a quarter of an hour."""
    topic_id = TopicId("AAAAAAAAAAAAAAAAAAAAAQ")
    spec = ShareSpec((topic_id,), {})
    found = assign_simple({"a": spec, "b": spec}, {topic_id: frozenset(range(PARTITIONS))}, homogeneous=True)
    assert {len(topics[topic_id]) for topics in found.values()} == {PARTITIONS // 2}

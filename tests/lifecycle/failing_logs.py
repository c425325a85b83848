"""Logs that some releases do not load, and what brokers of these releases wrote when they tried.

``data/loads/<log>/<release>-<coordinator>.json`` are the brokers' words by partition, with the digest of the log that
they were given (``python -m tests.recording.loads RELEASE`` records them).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

from coordinator_core.groups.hashing import partition_for
from coordinator_core.groups.model import OffsetKey
from coordinator_core.lifecycle.half_cleaned import WrittenRecord, first_refused, group_histories
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.releases import profile_for_release
from tests.cases import case
from tests.groups.test_java_loader import assignment, consumer_member
from tests.log.builders import build_batch, segment_name
from tests.replay.histories import History, encoded_key, offset_value

DATA = Path(__file__).parent / "data" / "loads"
PARTITIONS = 8
Segments = dict[int, bytes]
"""Bytes of the segments of a partition, by base offset."""


def group_in(partition: int) -> str:
    """A group of that partition."""
    names = (f"g-{number}" for number in range(1000))
    return next(name for name in names if partition_for(name, PARTITIONS) == partition)


def one_segment(history: History) -> Segments:
    return {0: b"".join(history.batches)}


def sound(partition: int) -> Segments:
    """A group of the classic protocol, and a commit."""
    group = group_in(partition)
    return one_segment(History().group("a", group_id=group).commit(5, OffsetKey(group, "t", 0)))


def taken_partition(partition: int) -> Segments:
    """A member is given what another one owns; the record by which that one gave it up was cleaned (KAFKA-19862)."""
    key = {"groupId": group_in(partition)}
    history = History().modern(3, key, {"epoch": 6})
    for member in ("m", "n"):
        history.modern(5, {**key, "memberId": member}, consumer_member())
    history.modern(6, key, {"assignmentEpoch": 6})
    history.modern(8, {**key, "memberId": "m"}, assignment(5, 0, 1))
    return one_segment(history.modern(8, {**key, "memberId": "n"}, assignment(6, 0)))


def streams_over_simple(partition: int) -> Segments:
    """A streams group over commits; the tombstone of type 2 between them was cleaned (KAFKA-20254)."""
    group = group_in(partition)
    history = History().commit(5, OffsetKey(group, "t", 0))
    streams = {"epoch": 1, "metadataHash": 0, "validatedTopologyEpoch": 0}
    return one_segment(history.modern(17, {"groupId": group}, streams))


def downgraded(partition: int) -> Segments:
    """Tombstones of a KIP-848 group behind the record of the classic one that it became (KAFKA-21117)."""
    group = group_in(partition)
    return one_segment(History().group("a", group_id=group).modern(3, {"groupId": group}, None))


def half_cleaned(refusing: str, offsets_partition: int) -> Segments:
    """Rest that a cleaner can leave of records of a 4.0.2 broker, such that ``refusing`` does not load it."""
    snapshot = discover([str(path) for path in case("k402/before").paths])
    log = next(one for one in snapshot.partitions if one.offsets_partition == offsets_partition)
    histories = group_histories(log, on_damage=OnDamage.FAIL, damage=[])
    found = first_refused(histories, profile_for_release(refusing, "new"))
    assert found is not None
    return {found.left[0].record.offset: b"".join(rewritten(found.left))}


def rewritten(left: Iterable[WrittenRecord]) -> Iterable[bytes]:
    """A batch for each record, at its offset."""
    for one in left:
        yield build_batch(one.record.offset, [(one.record.key, one.record.value, one.record.timestamp_ms)])


def large_batch(_: int) -> Segments:
    """A batch of more than the 5 MiB of ``offsets.load.buffer.size`` (KAFKA-7286)."""
    rows = [
        (
            encoded_key(OffsetKey("g-0", "t", number)),
            offset_value(number, version=1, expireTimestamp=-1, metadata="x" * 4000),
        )
        for number in range(1400)
    ]
    return {0: build_batch(0, rows)}


def gap(_: int) -> Segments:
    """An empty last segment behind a gap (KAFKA-9065)."""
    value = offset_value(5, version=1, expireTimestamp=-1)
    return {0: build_batch(0, [(encoded_key(OffsetKey("g-0", "t", 0)), value)]), 9: b""}


def classic_group(_: int) -> Segments:
    """A group as brokers before 3.0 wrote it, and a group of KIP-848 behind it (KIP-915)."""
    history = History().records((encoded_key(OffsetKey("g-0", "t", 0)), offset_value(5, version=1, expireTimestamp=-1)))
    return one_segment(history.modern(3, {"groupId": "g-0"}, {"epoch": 3}))


LOGS: dict[str, list[Callable[[int], Segments]]] = {
    "new": [
        sound,
        taken_partition,
        streams_over_simple,
        downgraded,
        lambda _: half_cleaned("3.8.1", 0),
        lambda _: half_cleaned("3.8.1", 1),
        lambda _: half_cleaned("4.0.1", 2),
    ],
    "gap": [gap],
    "large": [large_batch],
    "newer": [classic_group],
}
"""Partitions of each log, from 0 on. One whose load never ends stands alone: it keeps others from being loaded."""


def write_log(name: str, log_dir: Path) -> str:
    """Writes the partitions below ``log_dir``, which may have them, empty, and returns the digest of their bytes."""
    digest = hashlib.sha256()
    for partition, make in enumerate(LOGS[name]):
        directory = log_dir / f"__consumer_offsets-{partition}"
        directory.mkdir(parents=True, exist_ok=True)
        for old in directory.glob("0*"):
            old.unlink()
        for base_offset, data in make(partition).items():
            (directory / segment_name(base_offset)).write_bytes(data)
            digest.update(data)
    return digest.hexdigest()

"""Rules about the log itself: records that cannot be read, damage, groups that lie in the wrong place."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from coordinator_core.groups.hashing import partitions_for
from coordinator_core.rules.columns import Bools, Columns, Int64s, coded
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.model import Find, Limits, Rule, Severity


def _carried(kind: str) -> Find:
    def find(facts: Facts, _: Limits) -> pa.Table:
        carried = facts.table("carried_records")
        unknown = np.array([_kind(text) == kind for text in carried.array("detail").to_pylist()], np.bool_)
        return carried.rows(unknown, "key_type", "value_version", "detail")

    return find


def _kind(detail: str) -> str:
    """Part of a carried record that is unknown or undecodable: ``type``, ``version`` or ``body``.

    ``detail`` is a text of ``coordinator_core.replay.interpret``.
    """
    if detail.startswith("key type "):
        return "type"
    return "version" if detail.startswith("value version ") else "body"


def _damage(facts: Facts, _: Limits) -> pa.Table:
    damage = facts.run.manifest["damage"]
    partition_of = {entry["path"]: entry["offsets_partition"] for entry in facts.run.manifest["inputs"]}
    return pa.table(
        {
            "offsets_partition": pa.array([partition_of.get(one["path"]) for one in damage], pa.int32()),
            "record_offset": pa.array([one["record_offset"] for one in damage], pa.int64()),
            "path": pa.array([one["path"] for one in damage], pa.string()),
            "byte_position": pa.array([one["byte_position"] for one in damage], pa.int64()),
            "kind": pa.array([one["kind"] for one in damage], pa.string()),
            "detail": pa.array([one["detail"] for one in damage], pa.string()),
        }
    )


def _load_failures(facts: Facts, _: Limits) -> pa.Table:
    failures = facts.table("load_failures")
    # A record that cannot be read is a finding of its own rule, which says more.
    carried = set(zip(*(facts.table("carried_records").numbers(n).tolist() for n in _PLACE), strict=True))
    places = zip(*(failures.numbers(name).tolist() for name in _PLACE), strict=True)
    return failures.rows(np.array([place not in carried for place in places], np.bool_), "detail")


_PLACE = ("offsets_partition", "record_offset")


def _legacy_values(facts: Facts, _: Limits) -> pa.Table:
    counts = facts.table("record_counts")
    newer = (counts.numbers("key_type") == 0) & (counts.numbers("value_version") > 0)
    return counts.rows(newer, "value_version", "records")


def _misplaced(facts: Facts) -> tuple[Bools, Bools, Int64s]:
    """Masks over ``facts.groups``: groups in a wrong partition, and groups that are in the right one too; with the
    right partition of each group."""
    return facts.noted("misplaced", lambda: _places(facts))


def _places(facts: Facts) -> tuple[Bools, Bools, Int64s]:
    groups = facts.groups
    (code,), names = coded(groups.array("group_id"))
    lies = groups.numbers("offsets_partition")
    home = partitions_for(names.to_pylist(), int(facts.run.manifest["offsets_topic_num_partitions"]))[code]
    told = 0 if facts.topics is None else len(facts.topics.offsets_topic.partitions)
    if told > lies.max(initial=-1) and (home != lies).any():
        # Where no number fits all places, that of a run is the default.
        home = partitions_for(names.to_pylist(), told)[code]
    wrong = home != lies
    at_home = np.zeros(len(names), np.bool_)
    at_home[code[~wrong]] = True
    return wrong, wrong & at_home[code], home


def _with_home(groups: Columns, where: Bools, home: Int64s) -> pa.Table:
    return groups.rows(where, "group_id", "type", expected_partition=home[where])


def _wrong_partition(facts: Facts, _: Limits) -> pa.Table:
    wrong, twice, home = _misplaced(facts)
    return _with_home(facts.groups, wrong & ~twice, home)


def _two_partitions(facts: Facts, _: Limits) -> pa.Table:
    _wrong, twice, home = _misplaced(facts)
    return _with_home(facts.groups, twice, home)


def _segments_of_two_formats(facts: Facts, _: Limits) -> pa.Table:
    segments = facts.table("segments")
    formats: dict[int, set[int]] = {}
    first: dict[int, int] = {}
    for row, (partition, seen) in enumerate(
        zip(segments.numbers("offsets_partition").tolist(), segments.array("formats").to_pylist(), strict=True)
    ):
        formats.setdefault(partition, set()).update(seen)
        first.setdefault(partition, row)
    mixed = [partition for partition, seen in formats.items() if len(seen) > 1]
    texts = [" and ".join(map(str, sorted(formats[partition]))) for partition in mixed]
    return segments.rows(np.array([first[one] for one in mixed], np.int64), formats=pa.array(texts, pa.string()))


UNKNOWN_TYPE = Rule(
    "R01",
    "unknown-record-type",
    Severity.WARNING,
    summary="A record has a type that this release does not know.",
    why="A newer coordinator wrote it, or an upgrade was broken off. Releases before 3.4.1 stop loading the "
    "partition there; later ones skip it, and what it says is lost to them.",
    evidence="The record, its type.",
    remedy="Replay with the rules of the release that wrote it (--kafka-version); do not downgrade below it.",
    message="record of unknown type {key_type}: {detail}",
    reads=("carried_records",),
    find=_carried("type"),
)
UNKNOWN_VERSION = Rule(
    "R02",
    "unknown-value-version",
    Severity.CRITICAL,
    summary="A value has a version that this release does not know.",
    why="Every coordinator stops loading the partition at such a record: its groups are gone after the next "
    "failover. 4.1 and later write committed offsets in version 4, which releases before 3.4.1 cannot read.",
    evidence="The record, its type and version.",
    remedy="Keep the offsets partition on brokers of the newer release; replay with --kafka-version of it.",
    message="value of version {value_version} of record type {key_type}: {detail}",
    reads=("carried_records",),
    find=_carried("version"),
)
DAMAGE = Rule(
    "R03",
    "damaged-log",
    Severity.CRITICAL,
    summary="The log is damaged: a CRC, a length, the order of offsets, a gap, or overlapping segments.",
    why="A broker that recovers cuts the partition there and drops what follows; after a clean shutdown it "
    "checks nothing and loads the wrong bytes.",
    evidence="File, byte position, record offset, kind of damage.",
    remedy="Take the partition from another replica; compare with: regroup verify SNAPSHOT.",
    message="{kind} at byte {byte_position} of {path}: {detail}",
    reads=("segments",),
    across=True,
    find=_damage,
    also=("D13", "D18"),
)
WRONG_PARTITION = Rule(
    "R04",
    "group-in-wrong-partition",
    Severity.CRITICAL,
    summary="A group lies in an offsets partition that its id does not hash to.",
    why="Brokers count the offsets partitions when they start. From then on they send clients to the partition that "
    "the id hashes to, so nothing reaches this state, and nothing expires it. The number of offsets partitions was "
    "changed, or a copy was put in a wrong directory.",
    evidence="The group's record, the partition it belongs to.",
    remedy="Check offsets.topic.num.partitions (--offsets-topic-num-partitions) and where the copy is from; "
    "restore the group's offsets through the Admin API.",
    message="group {group_id} lies in offsets partition {offsets_partition}, its id hashes to {expected_partition}",
    reads=("groups",),
    across=True,
    find=_wrong_partition,
    also=("D1",),
)
UNDECODABLE = Rule(
    "R05",
    "undecodable-record",
    Severity.CRITICAL,
    summary="A key or value does not have the form of its type and version.",
    why="The coordinator stops loading the partition there; the Scala one serves it empty, without an error.",
    evidence="The record and where its bytes end.",
    remedy="See the bytes with: regroup dump --format jsonl. Restore the partition from another replica, or "
    "compact the record away.",
    message="record that cannot be decoded: {detail}",
    reads=("carried_records",),
    find=_carried("body"),
)
LOAD_FAILURE = Rule(
    "R06",
    "partition-does-not-load",
    Severity.CRITICAL,
    summary="The coordinator of this release stops loading the partition at a record that it can read.",
    why="Records in an order that its rules refuse (KAFKA-17306, KAFKA-19862, KAFKA-21102). The Java "
    "coordinator marks the partition failed; the Scala one goes on with what it has read so far, silently.",
    evidence="The first record that is refused, and why.",
    remedy="Do not move the partition's leader before it is repaired: a newer release may load it, or a "
    "compacted copy.",
    message="the partition does not load: {detail}",
    reads=("load_failures", "carried_records"),
    find=_load_failures,
)
LEGACY_VALUE = Rule(
    "R07",
    "legacy-key-with-newer-value",
    Severity.WARNING,
    summary="Keys of type 0 have values of a version other than 0.",
    why="Releases from 4.1 on read values of type 0 in version 0 only, and do not load the partition.",
    evidence="How many, by version.",
    remedy="Let the groups commit again on a release before 4.1, and let the cleaner pass, before upgrading.",
    message="{records:value} of version {value_version} under keys of type 0",
    reads=("record_counts",),
    find=_legacy_values,
    applies=lambda profile: profile.max_legacy_offset_value_version > 0,
    also=("D3",),
)
MIXED_FORMATS = Rule(
    "R08",
    "mixed-message-formats",
    Severity.INFO,
    summary="One offsets partition has batches of several message formats.",
    why="A trace of an upgrade. Releases up to 0.10.1.0 took the format from the wrong place after a "
    "reassignment (KAFKA-4362); 4.0 and later no longer write the old ones.",
    evidence="The formats.",
    remedy="None; the cleaner rewrites old batches in time.",
    message="message formats {formats} in one partition",
    reads=("segments",),
    find=_segments_of_two_formats,
)
TWO_PARTITIONS = Rule(
    "R22",
    "group-in-two-partitions",
    Severity.CRITICAL,
    summary="The same group id lives in two offsets partitions.",
    why="The number of offsets partitions was changed while groups lived: the copy in the partition that the "
    "id no longer hashes to is stale, and comes back if the number is changed back.",
    evidence="The stale group's record, and where the other one is.",
    remedy="Compare both with: regroup describe --group. Restore what the right one lacks.",
    message="group {group_id} lives in offsets partition {offsets_partition} and in {expected_partition}, "
    "where it belongs",
    reads=("groups",),
    across=True,
    find=_two_partitions,
    also=("D15",),
)

"""Which releases load an offsets partition: the log as it is, replayed by the rules of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from coordinator_core.errors import Damage
from coordinator_core.groups.model import LoadFailure
from coordinator_core.history.model import Place
from coordinator_core.investigate.bugs import BUGS
from coordinator_core.investigate.model import Case, Event, Explanation
from coordinator_core.log.reader import OnDamage, read_records
from coordinator_core.log.types import PartitionLog
from coordinator_core.records.codec import RecordDecodeError, decode_key
from coordinator_core.releases import OFFSET_KEY_TYPES, Loader, Profile, Release, every_profile
from coordinator_core.replay.interpret import GroupRecord, interpret
from coordinator_core.replay.sequential import SequentialReplayer
from coordinator_core.rules.model import Severity

_CURRENT_ASSIGNMENT = 8
_SHOWN = 8
_BUG_OF = (
    ("streams group", "KAFKA-20254"),
    ("still owned", "KAFKA-19862"),
    ("not a consumer group", "KAFKA-21117"),
    ("which does not exist", "KAFKA-17306"),
    ("value version", "KAFKA-18672"),
    ("is unknown to Kafka", "KAFKA-14869"),
)


class Refusal(NamedTuple):
    """Where a release stops, and of which group the record is."""

    place: Place
    group_id: str
    detail: str


class Handover(NamedTuple):
    """A partition of a KIP-848 group that went from one member to another."""

    place: Place
    group_id: str
    topic_id: str
    partition: int


def explain_loads(logs: Iterable[PartitionLog], case: Case, on_damage: OnDamage) -> Iterator[Explanation]:
    """For each offsets partition that some release refuses: which, at what record, and which load it."""
    against: list[Refusal] = []
    refused: set[Release] = set()
    for log in logs:
        refusals, handovers = _try_releases(log, case.profile, on_damage)
        own = refusals.get(case.profile.release)
        if own is not None:
            yield _refused(log, case, own, refusals)
        elif handovers and BUGS["KAFKA-19862"].fits(case.profile.release) and case.profile.loader is Loader.JAVA:
            yield _at_risk(log, case, handovers)
        refused |= {release for release, refusal in refusals.items() if refusal is not None}
        against += [refusal for refusal in refusals.values() if refusal is not None and own is None]
    if against:
        yield _elsewhere(case, refused, against)


def _try_releases(
    log: PartitionLog, profile: Profile, on_damage: OnDamage
) -> tuple[dict[Release, Refusal | None], list[Handover]]:
    """The first refusal of each release of the coordinator, oldest first, and what changed hands."""
    releases = {one.release: one for one in every_profile() if one.loader is profile.loader}
    releases[profile.release] = profile
    replayers = {release: SequentialReplayer(one, log.offsets_partition) for release, one in sorted(releases.items())}
    refusals: dict[Release, Refusal | None] = dict.fromkeys(replayers)
    owners: dict[tuple[str, str, int], str] = {}
    handovers: list[Handover] = []
    seen: set[str] = set()
    damage: list[Damage] = []
    for segment, batch, records in read_records(log, on_damage=on_damage, damage=damage):
        if batch.is_control:
            continue
        for record in records:
            try:
                key = decode_key(record.key or b"")
            except RecordDecodeError:
                continue
            data = key.data or {}
            group_id = str(data.get("group", data.get("groupId", "")))
            if key.type in OFFSET_KEY_TYPES:
                # A commit makes a group; no other says more.
                if record.value is None or group_id in seen:
                    continue
                seen.add(group_id)
            elif record.value is None and key.type == 2:
                seen.discard(group_id)
            place = Place(
                log.offsets_partition,
                record.offset,
                record.timestamp_ms,
                segment.path,
                batch.position,
                batch.partition_leader_epoch,
            )
            for release, replayer in replayers.items():
                if refusals[release] is not None:
                    continue
                meaning = interpret(record.offset, record.key, record.value, releases[release])
                if release == profile.release and isinstance(meaning, GroupRecord):
                    handovers += _handed_over(meaning, place, owners)
                replayer.replay_data(batch, records, record, meaning)
                failure: LoadFailure | None = next(iter(replayer.load_failures()), None)
                if failure is not None:
                    refusals[release] = Refusal(place, group_id, failure.detail)
    return refusals, handovers


def _handed_over(record: GroupRecord, place: Place, owners: dict[tuple[str, str, int], str]) -> Iterator[Handover]:
    if record.key_type != _CURRENT_ASSIGNMENT or record.value is None:
        return
    group_id, member_id = record.key["groupId"], record.key["memberId"]
    for topic in record.value["assignedPartitions"]:
        for partition in topic["partitions"]:
            before = owners.get((group_id, topic["topicId"], partition))
            owners[group_id, topic["topicId"], partition] = member_id
            if before not in (None, member_id):
                yield Handover(place, group_id, topic["topicId"], partition)


def _names(refusals: dict[Release, Refusal | None], *, refused: bool) -> str:
    return (
        ", ".join(str(release) for release, refusal in refusals.items() if (refusal is not None) is refused) or "none"
    )


def _bug(detail: str, release: Release) -> str | None:
    """The known bug of ``release`` that refuses such records."""
    found = next((bug for part, bug in _BUG_OF if part in detail), None)
    return found if found is not None and BUGS[found].fits(release) else None


def _refused(log: PartitionLog, case: Case, own: Refusal, refusals: dict[Release, Refusal | None]) -> Explanation:
    bug = _bug(own.detail, case.profile.release)
    return Explanation(
        "load-refused",
        Severity.CRITICAL,
        f"Kafka {case.profile.release} stops loading offsets partition {log.offsets_partition} at record "
        f"{own.place.record_offset}, of {own.group_id}: {own.detail}. All groups of the partition are affected; "
        "releases that "
        f"load it: {_names(refusals, refused=False)}." + (f" This is {bug}." if bug is not None else ""),
        own.place.timestamp_ms,
        own.group_id,
        log.offsets_partition,
        evidence=[Event(own.place, own.detail)],
        not_this=["The bytes are not damaged: other rules read them."],
        now=[
            f"Run a release that loads it: {_names(refusals, refused=False)}.",
            *([BUGS[bug].remedy[0].upper() + BUGS[bug].remedy[1:] + "."] if bug is not None else []),
        ],
        capture=["Copy the partition's directory from its leader before a cleaner or a restart changes it."],
        bug=bug,
    )


def _elsewhere(case: Case, refused: set[Release], against: list[Refusal]) -> Explanation:
    names = ", ".join(map(str, sorted(refused)))
    return Explanation(
        "other-releases-refuse",
        Severity.INFO,
        f"Kafka {case.profile.release} loads this log. No way leads back to these releases, which do not: {names}.",
        evidence=[Event(place, f"{group_id}: {detail}") for place, group_id, detail in against[-_SHOWN:]],
        now=["Before a downgrade, ask this again with that release: regroup investigate --kafka-version RELEASE"],
    )


def _at_risk(log: PartitionLog, case: Case, handovers: list[Handover]) -> Explanation:
    groups = sorted({one.group_id for one in handovers})
    return Explanation(
        "load-at-risk",
        Severity.WARNING,
        f"The load of offsets partition {log.offsets_partition} fails on {case.profile.release} if the cleaner runs "
        "at the "
        f"same time: partitions of {', '.join(groups[:5])} went from member to member ({len(handovers)} times). At "
        "rest "
        "the log is sound. This is KAFKA-19862.",
        handovers[-1].place.timestamp_ms,
        groups[0] if len(groups) == 1 else None,
        log.offsets_partition,
        evidence=[
            Event(one.place, f"{one.group_id}: topic id {one.topic_id}, partition {one.partition} has another owner")
            for one in handovers[:8]
        ],
        not_this=["No record is damaged or out of order: the loader reads before and after a cleaning."],
        now=[
            "Upgrade to 4.0.2, 4.1.2 or 4.2.",
            "If a shard has failed: move the leader of this partition once more, best when no cleaner runs.",
        ],
        bug="KAFKA-19862",
    )

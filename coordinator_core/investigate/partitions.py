"""Trouble of the offsets topic itself: its files, its transactions, what weighs in it, where groups are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from coordinator_core.durations import HOUR_MS, are_close, elapsed, span
from coordinator_core.groups.model import Transaction, TransactionOutcome
from coordinator_core.history.model import ChangeKind, GroupHistory, PartitionHistory, Place
from coordinator_core.history.signs import Seen, families
from coordinator_core.investigate.bugs import BUGS
from coordinator_core.investigate.model import SHOWN, Case, Event, Explanation, first_place
from coordinator_core.investigate.words import consumer_groups, count, moment, when
from coordinator_core.log.reader import OnDamage, read_partition
from coordinator_core.log.types import OFFSETS_TOPIC, Codec, PartitionLog
from coordinator_core.releases import Release
from coordinator_core.rules.model import THRESHOLDS, Severity

_LOAD_BUFFER_BYTES = 5 << 20
"""Default of ``offsets.load.buffer.size``."""
_MAX_TIMEOUT = "transaction_max_timeout_ms"
_HEAVY_RECORDS = 100_000
_HEAVY_SHARE = 0.5
_STORM_RECORDS = int(THRESHOLDS["storm_commits"].default)
_STORM_RATE = THRESHOLDS["storm_commits_per_second"].default
_STORM_RATE_OF_PARTITION = THRESHOLDS["storm_commits_of_partition_per_second"].default
_STORM_MS = 60_000
_SEGMENTS_EMPTY = 3
_LEADERS = 6
"""Changes of the leader epoch in an hour: a rolling restart makes two."""
_CLOSED = 2
"""Segments besides the one that is written to."""
_MAX_MESSAGE_BYTES = 1_048_588
"""Default of ``max.message.bytes``."""
_NEAR = 0.7
_ASKS_PRODUCERS = Release.parse("3.0")
"""Brokers with DescribeProducers (KIP-664)."""
_DIRTY = 0.75
"""Share of the closed bytes that no cleaner has touched; one begins at ``min.cleanable.dirty.ratio``, 0.5."""


def explain_partition(history: PartitionHistory, log: PartitionLog, case: Case) -> Iterator[Explanation]:
    """Everything about one offsets partition as a log."""
    yield from _large_batches(history, case)
    yield from _large_records(history, case)
    yield from _moved_start(history, log, case)
    yield from _empty_segments(history, log, case)
    yield from _hanging(history, case)
    yield from _formats(history, case)
    yield from list(_heavy(history, log)) or _uncleaned(history, log)
    yield from _cleaner_stopped(history, log, case)
    yield from _moving(history)
    yield from _clocks(history)


def _partition(
    code: str, severity: Severity, verdict: str, history: PartitionHistory, at: Place | None = None, **more: Any
) -> Explanation:
    at_ms = history.last_ms if at is None else at.timestamp_ms
    return Explanation(code, severity, verdict, at_ms, offsets_partition=history.offsets_partition, **more)


def _large_batches(history: PartitionHistory, case: Case) -> Iterator[Explanation]:
    large = [group for group in history.groups.values() if group.largest_batch_bytes > _LOAD_BUFFER_BYTES]
    bug = BUGS["KAFKA-7286"]
    for group in large:
        assert group.largest_batch is not None
        hit = bug.fits(case.profile.release)
        yield _partition(
            "batch-larger-than-load-buffer",
            Severity.CRITICAL if hit else Severity.WARNING,
            f"A batch of {group.largest_batch_bytes:,} bytes of {group.group_id} is larger than "
            f"offsets.load.buffer.size ({_LOAD_BUFFER_BYTES:,} by default): "
            + (
                f"{case.profile.release} never loads it. This is {bug.id}."
                if hit
                else "loading needs a buffer of that size."
            ),
            history,
            group.largest_batch,
            evidence=[Event(group.largest_batch, f"batch of {group.largest_batch_bytes:,} bytes")],
            now=[
                "Raise offsets.load.buffer.size above it on all brokers, and restart the one that is stuck."
                if hit
                else "No broker is stuck by it: this release takes a larger buffer by itself. Make the record of the "
                "group smaller (fewer members, topics or assignors), before max.message.bytes refuses it.",
            ],
            bug=bug.id if hit else None,
            group_id=group.group_id,
        )


def _large_records(history: PartitionHistory, case: Case) -> Iterator[Explanation]:
    """Groups of which the next, larger record will be refused."""
    configured = None if case.topics is None else case.topics.offsets_topic.config.get("max.message.bytes")
    most = int(configured or _MAX_MESSAGE_BYTES)
    for group in history.groups.values():
        if not _NEAR * most <= group.largest_record_bytes <= most or group.largest_record is None:
            continue
        yield _partition(
            "record-near-max-message-bytes",
            Severity.WARNING,
            f"A record of {group.group_id} has {group.largest_record_bytes:,} bytes, "
            f"{group.largest_record_bytes / most:.0%} of max.message.bytes of the offsets topic ({most:,}): a "
            "generation that is larger cannot be written, and the group then rebalances for ever "
            "(RecordTooLargeException in the coordinator's log).",
            history,
            group.largest_record,
            evidence=[Event(group.largest_record, f"record of {group.largest_record_bytes:,} bytes")],
            now=[
                "kafka-configs.sh --bootstrap-server HOST:9092 --alter --entity-type topics --entity-name "
                f"__consumer_offsets --add-config max.message.bytes={4 * most} (replicas and loads take it as it is)",
                "Make the record smaller: fewer members or topics a group, one assignor, no topic lists in "
                "subscriptions' user data; KIP-848 groups have no such record.",
            ],
            group_id=group.group_id,
        )


def _moved_start(history: PartitionHistory, log: PartitionLog, case: Case) -> Iterator[Explanation]:
    start, topics = log.start_offset, case.topics
    # Where the cluster's log begins at 0 and this one does not, only the copy lacks something.
    if start == 0 or (topics is not None and topics.begins_at_0(OFFSETS_TOPIC, history.offsets_partition)):
        return
    bounds = None if topics is None else topics.bounds(OFFSETS_TOPIC, history.offsets_partition)
    is_told = log.log_start_offset is not None or bounds is not None
    unsure = " Or only this copy lacks its first segments, unless a log-start-offset-checkpoint beside it says so, too."
    yield _partition(
        "log-start-moved",
        Severity.CRITICAL,
        f"The log of offsets partition {history.offsets_partition} begins at {start}, not at 0: cleanup.policy has "
        "(or had) delete in it, or somebody deleted records; committed offsets and groups before that went without a "
        f"tombstone.{'' if is_told else unsure}",
        history,
        evidence=[Event(_first_record(history, log), f"first record, of {moment(history.first_ms)}")]
        if history.batches
        else [],
        not_this=[
            "It was not the cleaner: compaction keeps the newest record of each key and does not move the start."
        ],
        now=[
            "kafka-configs.sh --bootstrap-server HOST:9092 --alter --entity-type topics --entity-name "
            "__consumer_offsets --add-config cleanup.policy=compact",
            "The coordinators have in memory what went. Before a broker restarts or a leader moves, save what groups "
            "without members have, and commit it again under the right policy; members commit by themselves: "
            "kafka-consumer-groups.sh --bootstrap-server HOST:9092 --group GROUP --all-topics --reset-offsets "
            "--to-current --export --dry-run",
            "After that, find groups whose offsets are missing by their consumers' logs (auto.offset.reset), and set "
            "them.",
        ],
    )


def _first_record(history: PartitionHistory, log: PartitionLog) -> Place:
    return Place(history.offsets_partition, history.first_offset, history.first_ms, log.segments[0].path, 0, -1)


def _empty_segments(history: PartitionHistory, log: PartitionLog, case: Case) -> Iterator[Explanation]:
    empty = [segment for segment in log.segments[:-1] if segment.size == 0]
    if len(empty) < _SEGMENTS_EMPTY:
        return
    bug = BUGS["KAFKA-12889"]
    hit = bug.fits(case.profile.release)
    yield _partition(
        "empty-segments",
        Severity.WARNING,
        f"Offsets partition {history.offsets_partition} has {len(empty)} empty segments of {len(log.segments)}"
        + (f": {bug.id}." if hit else "."),
        history,
        not_this=["No offset is lost by it.", "cleanup.policy=compact,delete is no remedy: it removes live offsets."],
        now=[bug.advice if hit else "Nothing: an older release left them, and the cleaner of this one makes none."],
        bug=bug.id if hit else None,
    )


def _hanging(history: PartitionHistory, case: Case) -> Iterator[Explanation]:
    for transaction in _open_transactions(history, case, hang=True):
        bug = BUGS["KAFKA-9144"]
        hit = bug.fits(case.profile.release)
        partition = history.offsets_partition
        yield _open(
            "hanging-transaction",
            Severity.CRITICAL,
            transaction,
            f"it holds {count(transaction.keys, 'committed offset')} of "
            f"{', '.join(transaction.groups)}, and "
            f"{count(history.end_offset - transaction.first_record_offset, 'record')} that the cleaner may not touch."
            + (f" {bug.id} leaves such transactions in {case.profile.release}." if hit else ""),
            history,
            case,
            not_this=[
                "The transaction is not merely slow: no broker allows more than transaction.max.timeout.ms, "
                f"{_told_most_ms(case)}."
            ],
            now=[
                "kafka-transactions.sh --bootstrap-server HOST:9092 abort --topic __consumer_offsets "
                f"--partition {partition} --start-offset {transaction.first_record_offset}",
                *when(
                    case.profile.release < _ASKS_PRODUCERS,
                    f"Brokers before {_ASKS_PRODUCERS} do not tell whose transaction that is: in place of "
                    "--start-offset they take --producer-id, --producer-epoch and --coordinator-epoch, here "
                    f"{transaction.producer_id}, {transaction.producer_epoch}, and that of the producer's last end "
                    "marker (regroup dump).",
                ),
            ],
            bug=bug.id if hit else None,
        )


def explain_open_transactions(history: PartitionHistory, case: Case) -> Iterator[Explanation]:
    """Transactions that are open and may still end: of groups that were asked for, since a busy log has many."""
    for transaction in _open_transactions(history, case, hang=False):
        yield _open(
            "open-transaction",
            Severity.INFO,
            transaction,
            f"it holds {count(transaction.keys, 'pending offset')} of {', '.join(transaction.groups)}. Until it ends, "
            "what was committed before holds, and OffsetFetch of stable offsets (KIP-447) is answered with "
            "UNSTABLE_OFFSET_COMMIT.",
            history,
            case,
            not_this=[
                "It does not hang by this log: a producer may ask for transaction.max.timeout.ms, "
                f"{_told_most_ms(case)}."
            ],
            now=[
                "Look again later: the transaction coordinator aborts it transaction.timeout.ms after its begin "
                "(the producer's, 1 min by default).",
                "Or start its producer again: initTransactions() of the same transactional.id aborts what is open.",
                "If it is still open then: kafka-transactions.sh --bootstrap-server HOST:9092 find-hanging --topic "
                f"__consumer_offsets --partition {history.offsets_partition}",
            ],
        )


def _open_transactions(history: PartitionHistory, case: Case, *, hang: bool) -> list[Transaction]:
    """Those that are open for longer than any producer may ask for, or the others."""
    assert history.state is not None
    open_ = [one for one in history.state.transactions if one.outcome is TransactionOutcome.OPEN]
    return [one for one in open_ if (elapsed(one.timestamp_ms, case.now_ms) > _most_ms(case)) == hang]


def _most_ms(case: Case) -> float:
    """``transaction.max.timeout.ms`` of the brokers, as a capture has it; else the default."""
    known = {} if case.topics is None else case.topics.offsets_topic.thresholds
    return known.get(_MAX_TIMEOUT, THRESHOLDS[_MAX_TIMEOUT].default)


def _told_most_ms(case: Case) -> str:
    is_known = case.topics is not None and _MAX_TIMEOUT in case.topics.offsets_topic.thresholds
    return f"{span(_most_ms(case))} {'here' if is_known else 'by default'}"


def _open(
    code: str,
    severity: Severity,
    transaction: Transaction,
    what: str,
    history: PartitionHistory,
    case: Case,
    **more: Any,
) -> Explanation:
    partition = history.offsets_partition
    newest = Place(partition, transaction.last_record_offset, transaction.timestamp_ms, "", 0, -1)
    name = case.transactional_ids.get(transaction.producer_id)
    named = "" if name is None else f", transactional id {name},"
    age_ms = elapsed(transaction.timestamp_ms, case.now_ms)
    return _partition(
        code,
        severity,
        f"A transaction of producer {transaction.producer_id}{named} is open since record "
        f"{transaction.first_record_offset} of offsets partition {partition}, and its newest record is "
        + (f"{span(age_ms)} old: {what}" if age_ms >= 0 else f"of an unknown time: {what}"),
        history,
        newest,
        evidence=[
            Event(newest, f"newest record of producer {transaction.producer_id}, epoch {transaction.producer_epoch}")
        ],
        **more,
    )


def _formats(history: PartitionHistory, case: Case) -> Iterator[Explanation]:
    magics = sorted({magic for magic, _ in history.formats})
    bug = BUGS["KAFKA-4362"]
    if len(magics) > 1 and bug.fits(case.profile.release):
        yield _partition(
            "mixed-message-formats",
            Severity.CRITICAL,
            f"Offsets partition {history.offsets_partition} has batches of message formats "
            f"{', '.join(map(str, magics))}, and its last write was at {moment(history.last_ms)}: after a reassignment "
            f"{case.profile.release} refuses commits here for good. This is {bug.id}.",
            history,
            evidence=[
                Event(place, f"first batch of format {magic}, codec {codec}")
                for (magic, codec), place in sorted(history.formats.items())
            ],
            now=[bug.advice],
            bug=bug.id,
        )
    old = history.formats.get((0, Codec.LZ4))
    if old is not None:
        bug = BUGS["KAFKA-3160"]
        yield _partition(
            "old-lz4-checksum",
            Severity.INFO,
            f"Offsets partition {history.offsets_partition} has LZ4 frames of message format 0, whose header "
            f"checksum is wrong ({bug.id}): clients other than Java's refuse them, the data is sound and was read.",
            history,
            old,
            evidence=[Event(old, "first such batch")],
            now=["Read it with regroup dump or describe."],
            bug=bug.id,
        )


def _moving(history: PartitionHistory) -> Iterator[Explanation]:
    """A coordinator that moves again and again."""
    for first, last in zip(history.leaders, history.leaders[_LEADERS - 1 :], strict=False):
        if are_close(first.place.timestamp_ms, last.place.timestamp_ms, HOUR_MS):
            yield _partition(
                "coordinator-moves",
                Severity.WARNING,
                f"The coordinator of offsets partition {history.offsets_partition} changed {len(history.leaders)} "
                f"times, {_LEADERS} of them from {moment(first.place.timestamp_ms)} to "
                f"{moment(last.place.timestamp_ms)} (leader epoch {first.epoch_before} to {last.place.leader_epoch}): "
                f"each time requests of {count(len(history.groups), 'group')} wait for the load, and commits fail with "
                "NOT_COORDINATOR.",
                history,
                first.place,
                evidence=[
                    Event(
                        one.place,
                        f"leader epoch {one.place.leader_epoch}"
                        + (f", {span(one.pause_ms)} without a record" if one.pause_ms else ""),
                    )
                    for one in history.leaders[:SHOWN]
                ],
                until_ms=history.leaders[-1].place.timestamp_ms,
                not_this=["The groups did not cause it: leaders are elected by the controller."],
                now=[
                    "Look at the controller's log for that partition: brokers that restart, sessions that expire, "
                    "a reassignment, auto.leader.rebalance.enable beside an unstable broker.",
                ],
            )
            return


def _uncleaned(history: PartitionHistory, log: PartitionLog) -> Iterator[Explanation]:
    """Closed segments that no cleaner has touched, although all of them are dirty."""
    assert history.state is not None
    records = history.end_offset - history.first_offset
    live = len(history.state.offsets) + len(history.state.groups)
    is_known = sum(group.records for group in history.groups.values()) == records
    if len(log.segments) <= _CLOSED or history.missing or records < _HEAVY_RECORDS or 2 * live > records:
        return
    # Of some groups only, nothing tells what lives.
    if not is_known or elapsed(history.first_ms, history.last_ms) < HOUR_MS:
        return
    yield _partition(
        "not-cleaned",
        Severity.WARNING,
        f"No cleaner has ever run on offsets partition {history.offsets_partition}: "
        f"{count(len(log.segments), 'segment')}, {log.size:,} bytes, {records:,} records since "
        f"{moment(history.first_ms)}, of which {live:,} would stay. A load of its groups reads all of it.",
        history,
        evidence=[Event(_first_record(history, log), "first record, still there")],
        not_this=["No group is to blame: a cleaner would keep up with that rate."],
        now=[
            "Look for a dead cleaner thread in log-cleaner.log of the leader (uncleanable-partitions-count), and "
            "log.cleaner.enable; restart the broker, which starts the thread again.",
            "What compaction would leave: regroup stats SNAPSHOT",
        ],
    )


def _cleaner_stopped(history: PartitionHistory, log: PartitionLog, case: Case) -> Iterator[Explanation]:
    """A cleaner that has run, and has left alone all that was written since."""
    assert history.state is not None
    done = max(history.cleaned_to, log.cleaned_offset or 0)
    dirty = [segment for segment in log.segments[:-1] if segment.base_offset >= done]
    if not done or len(dirty) <= _CLOSED or not history.missing:
        return
    first, end = dirty[0].base_offset, log.segments[-1].base_offset
    records, held = end - first, sum(group.records for group in history.groups.values())
    live = len(history.state.offsets) + len(history.state.groups)
    is_known = 2 * held >= history.end_offset - history.first_offset - history.missing
    is_open = any(one.outcome is TransactionOutcome.OPEN for one in history.state.transactions)
    share = sum(segment.size for segment in dirty) / max(1, sum(segment.size for segment in log.segments[:-1]))
    # A hanging transaction holds the cleaner, too, and is told as such.
    if not is_known or is_open or records < _HEAVY_RECORDS or 2 * live > records or share < _DIRTY:
        return
    oldest = replace(log, segments=tuple(dirty[:1]))
    since = next((batch for _, batch in read_partition(oldest, on_damage=OnDamage.SALVAGE, damage=[])), None)
    if since is None or elapsed(since.max_timestamp_ms, history.last_ms) < HOUR_MS:
        return
    bug = BUGS["KAFKA-3894"]
    hit = bug.fits(case.profile.release)
    known_by = "by its checkpoint" if log.cleaned_offset == done else "nothing was removed since"
    place = Place(history.offsets_partition, since.base_offset, since.max_timestamp_ms, dirty[0].path, 0, -1)
    yield _partition(
        "cleaner-stopped",
        Severity.WARNING,
        f"The cleaner has not run on offsets partition {history.offsets_partition} since about "
        f"{moment(since.max_timestamp_ms)}: up to record {done} it has ({known_by}), behind it {len(dirty)} closed "
        f"segments with {records:,} records are as they were written, {share:.0%} of the closed bytes; {live:,} "
        "records would stay. A load of its groups reads all of it."
        + (f" {bug.id} ends cleaner threads of {case.profile.release}." if hit else ""),
        history,
        place,
        evidence=[Event(place, "first record of the oldest segment that was never cleaned")],
        not_this=[
            "log.cleaner.enable is not false: a cleaner has run before.",
            "No open transaction holds the cleaner back.",
        ],
        now=[
            "Look for a dead cleaner thread in log-cleaner.log of the leader (uncleanable-partitions-count); restart "
            "the broker, which starts the thread again, and see whether it dies at the same segment.",
            *when(hit, bug.advice),
            "What compaction would leave: regroup stats SNAPSHOT",
        ],
        bug=bug.id if hit else None,
    )


def _clocks(history: PartitionHistory) -> Iterator[Explanation]:
    """A broker whose clock was ahead: what expired meanwhile expired too early."""
    first = history.clock
    if first is None:
        return
    gone = sorted(
        (
            removal.place
            for group in history.groups.values()
            for removal in group.removals
            if removal.place.record_offset < first.place.record_offset
            and removal.place.timestamp_ms > first.place.timestamp_ms
        ),
        key=attrgetter("record_offset"),
    )
    verdict = (
        f"The clock of a coordinator of offsets partition {history.offsets_partition} was wrong: record "
        f"{first.place.record_offset} is stamped {moment(first.place.timestamp_ms)}, {span(first.back_ms)} before an "
        f"earlier record of {moment(first.earlier_ms)}."
    )
    if gone:
        verdict += (
            f" {count(len(gone), 'committed offset')} were removed at such times (leader epoch "
            f"{gone[0].leader_epoch}): what a clock that is ahead finds expired is not."
        )
    yield _partition(
        "clock-went-back",
        Severity.WARNING,
        verdict,
        history,
        first.place,
        evidence=[
            Event(first.place, f"{span(first.back_ms)} before an earlier record"),
            *(Event(place, "tombstone of a committed offset") for place in gone[:1]),
        ],
        not_this=["It was no client: the coordinator stamps commits and tombstones by its own clock."],
        now=[
            "Look at NTP (chronyc tracking) on the brokers that led this partition: the leader epoch tells which.",
            "Ages, retention and times of this report follow those stamps: read them with care.",
        ],
    )


def _heavy(history: PartitionHistory, log: PartitionLog) -> Iterator[Explanation]:
    total = sum(group.records for group in history.groups.values())
    state = history.state
    assert state is not None
    live = len(state.offsets) + len(state.groups)
    duration = elapsed(history.first_ms, history.last_ms)
    for group in history.groups.values():
        is_half = total >= _HEAVY_RECORDS and group.records >= _HEAVY_SHARE * total
        is_storm = group.records >= _STORM_RECORDS and group.records * 1000 >= _STORM_RATE * duration
        # One commit is a record for each partition: every 5 s is usual, also of a group that is alone here.
        is_often = group.records * 1000 > _STORM_RATE_OF_PARTITION * max(1, len(group.versions)) * duration
        if not is_often or not (is_half or (is_storm and duration >= _STORM_MS)):
            continue
        rate = f", {group.records * 1000 / duration:.1f} a second" if duration > 0 else ""
        client = next((v.member for _, v in group.all_versions() if v.member is not None), None)
        who = "" if client is None else f", client {client.client_id} on {client.client_host}"
        cleaned = history.missing > 0
        verdict = (
            f"{group.group_id}{who} wrote {group.records / total:.0%} of the records of offsets partition "
            f"{history.offsets_partition}{rate}; "
            f"{live:,} of {total:,} records would stay after compaction"
        )
        verdict += "." if cleaned else ", and none was ever removed: no cleaner has run here."
        yield _partition(
            "heavy-writer",
            Severity.WARNING,
            verdict,
            history,
            now=[
                "Commit less often: by time or after a batch of records, not after each one.",
                *when(
                    not cleaned and len(log.segments) > _CLOSED,
                    "Set log.cleaner.enable=true and look for a dead cleaner thread in log-cleaner.log.",
                ),
                "What compaction would leave: regroup stats SNAPSHOT",
            ],
            group_id=group.group_id,
        )


def explain_families(histories: Sequence[PartitionHistory]) -> Iterator[Explanation]:
    """Families of groups of one shot each, which lie in all offsets partitions."""
    groups = {
        group.group_id: group
        for history in histories
        for group in history.groups.values()
        if group.changes or group.versions
    }
    total = sum(group.size_bytes for group in groups.values())
    for family in families(_seen(group) for group in groups.values()):
        born = [groups[one.group_id] for one in family.groups]
        clients = Counter(
            f"{member.client_id} on {member.client_host}"
            for group in born
            for change in group.changes
            for member in change.joined
        )
        old = next((group.group_id for group in born if _is_left(group)), None)
        behind = f", most of {clients.most_common(1)[0][0]}" if clients else ""
        yield Explanation(
            "one-shot-groups",
            Severity.WARNING,
            f"{len(born):,} groups named like {family.pattern}{behind}: {family.born_per_hour:.1f} new ones an hour, "
            f"{family.size_bytes / max(1, total):.0%} of the bytes; each start of that application leaves one for the "
            "retention time.",
            family.groups[-1].first_ms,
            evidence=[Event(first_place(group), group.group_id) for group in born[:SHOWN]],
            now=[
                "Give the application a fixed group.id; if it needs none, read with assign() and without commits.",
                *when(old, f"Remove the old ones: {consumer_groups(old or '', '--delete')} (--group is repeatable)"),
            ],
        )


def _is_left(group: GroupHistory) -> bool:
    """Whether a group is still there, and nobody in it."""
    last = group.changes[-1] if group.changes else None
    if not group.standing:
        return last is not None and last.kind is ChangeKind.EMPTY
    return last is None or not last.members


def _seen(group: GroupHistory) -> Seen:
    once = sum(one.kind is ChangeKind.GENERATION for one in group.changes) <= 1
    times = first_place(group).timestamp_ms, _end_of_life(group).timestamp_ms
    has_members = bool(group.changes) and bool(group.changes[-1].members)
    return Seen(group.group_id, *times, group.size_bytes, once, has_members)


def _end_of_life(group: GroupHistory) -> Place:
    """The last record that is no removal: the retention removes a group long after its life."""
    places = [one.last_place for _, one in group.all_versions()]
    places += [one.place for one in group.changes if one.kind is not ChangeKind.DELETED]
    return max(places, key=attrgetter("record_offset"), default=first_place(group))

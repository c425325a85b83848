"""Known bugs of Kafka and of clients that leave a mark in the offsets log, as data.

Sources: the tickets they are named after; where a boundary was seen on real brokers, ``releases/lines.py`` has it, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coordinator_core.releases import Release


@dataclass(frozen=True, slots=True)
class Bug:
    """``affected`` are ranges of broker releases, from the first up to before the second (``None``: open); empty:
    no broker release decides, as for bugs of clients. ``fixed_in`` is for people."""

    id: str
    title: str
    affected: tuple[tuple[str, str | None], ...]
    fixed_in: str
    signature: str
    consequence: str
    remedy: str

    @property
    def told(self) -> str:
        """Id, title, and the releases without it."""
        since = "not fixed yet" if self.fixed_in == "open" else f"fixed in {self.fixed_in}"
        return f"{self.id}, {self.title}; {since}"

    @property
    def advice(self) -> str:
        """The remedy as a sentence."""
        return f"{self.remedy[0].upper()}{self.remedy[1:]}."

    def found_in(self, release: Release | str) -> str:
        """The sentence that an explanation is this bug."""
        return f"This is {self.id} of Kafka {release}: {self.title[0].lower()}{self.title[1:]}."

    def fits(self, release: Release) -> bool:
        """Whether brokers of ``release`` have it."""
        return not self.affected or any(
            Release.parse(since) <= release and (until is None or release < Release.parse(until))
            for since, until in self.affected
        )


_BUGS = (
    Bug(
        "KIP-211",
        "Committed offsets of active groups expire by commit age (KAFKA-4682)",
        (("0.9", "2.1"),),
        "2.1",
        "tombstones of an active group's offsets, one retention after their commit",
        "a consumer of a quiet topic starts from auto.offset.reset after its next restart",
        "raise offsets.retention.minutes above the longest silence of a topic; upgrade to 2.1 or later",
    ),
    Bug(
        "KAFKA-13636",
        "Committed offsets expire while their group rebalances",
        (("2.4", "2.8.2"), ("3.0", "3.0.1"), ("3.1", "3.1.1")),
        "2.8.2, 3.0.1, 3.1.1, 3.2.0",
        "tombstones of subscribed offsets between two generations, commit age above the retention",
        "consumers of an active group start from auto.offset.reset",
        "upgrade; until then raise offsets.retention.minutes and keep rebalances short",
    ),
    Bug(
        "KAFKA-12890",
        "A group stays in CompletingRebalance for ever",
        (("2.6.1", "2.8.1"),),
        "2.8.1, 3.0.0",
        "the end of all commits of a group with members, and no generation after it",
        "nobody in the group reads, while heartbeats go on",
        "restart all members of the group; upgrade the brokers",
    ),
    Bug(
        "KAFKA-12759",
        "What a static member subscribes to anew waits for the next rebalance",
        (("2.3", None),),
        "open",
        "a static member that is replaced within a generation, and subscribes to a topic that nobody owns",
        "nobody reads that topic",
        "remove the member with removeMembersFromConsumerGroup and start it again",
    ),
    Bug(
        "KAFKA-10284",
        "The new member id of a static member that came back is not written to the log",
        (("2.3", "2.6.1"),),
        "2.6.1, 2.7.0",
        "static members that go at once after the coordinator has moved, without a commit since",
        "a coordinator that loads the group knows the old id, and fences the member that runs "
        "(FencedInstanceIdException, which is fatal)",
        "restart these members; upgrade the brokers to 2.6.1 or later",
    ),
    Bug(
        "KAFKA-7610",
        "Clients whose join times out stay in the group and join again as new members",
        (("0.9", "2.2"),),
        "2.2.0",
        "a generation with many members of one client on one host",
        "the record of the group grows without limit while a rebalance is long, and the coordinator's memory with it",
        "upgrade the brokers to 2.2 or later (KIP-394 gives a client its member id first); until then lower "
        "max.poll.interval.ms, which bounds a rebalance",
    ),
    Bug(
        "KAFKA-5600",
        "A load takes older records of a group for its state",
        (("0.11", "0.11.0.1"),),
        "0.11.0.1, 1.0.0",
        "offsets of groups that go back, to values committed before, after the coordinator has moved",
        "members begin from older offsets after a failover",
        "upgrade the brokers; put the offsets back while the consumers are stopped",
    ),
    Bug(
        "KAFKA-8069",
        "An expire timestamp of -1 is taken for a time",
        (("2.1", "2.2"),),
        "2.2.0",
        "commits of value version 1 with expireTimestamp -1 go with the next sweep",
        "committed offsets of older brokers vanish after the upgrade",
        "upgrade past 2.1",
    ),
    Bug(
        "librdkafka-3774",
        "A consumer that is assigned a partition again commits what it had stored before",
        (),
        "librdkafka 1.9.0",
        "right after a new generation a value that an earlier generation's owner had committed",
        "records are read again, by hours or days",
        "upgrade librdkafka (and confluent-kafka, racecar, … built on it) to 1.9.0 or later",
    ),
    Bug(
        "KAFKA-9065",
        "Loading loops for ever where a read below the log end returns nothing",
        (("0.9", "2.4"),),
        "2.4.0",
        "a partition without any batch below its end, or with a tail without batches",
        "the loader thread spins; every offsets partition queued behind it stays in COORDINATOR_LOAD_IN_PROGRESS",
        "upgrade; or commit once to a group of this partition, so that a batch stands at its end",
    ),
    Bug(
        "KAFKA-7286",
        "A batch larger than offsets.load.buffer.size is read for ever",
        (("0.9", "2.0.1"),),
        "2.0.1, 2.1.0",
        "a batch of more than 5 MiB",
        "the partition never loads, its groups never come back",
        "raise offsets.load.buffer.size above the batch; make the group smaller; upgrade",
    ),
    # Fixed by pull request 1725, opened when 0.10.0.1 was out.
    Bug(
        "KAFKA-3894",
        "The cleaner thread ends at a segment with more keys than its buffer holds",
        (("0.8.2", "0.10.1"),),
        "0.10.1.0",
        "nothing is removed any more behind some record, while segments are closed",
        "all compacted topics of that broker grow, and after a failover their groups wait for hours",
        "raise log.cleaner.dedupe.buffer.size and restart the broker; upgrade",
    ),
    Bug(
        "KAFKA-12889",
        "The cleaner leaves empty segments",
        (("0.10", "3.0"),),
        "3.0.0",
        "segments without a record, which each cleaning rewrites",
        "slow cleaning; no data is lost",
        "upgrade; keep cleanup.policy=compact: compact,delete removes live offsets without a tombstone",
    ),
    Bug(
        "KAFKA-9144",
        "Early expiry of producer state leaves a transaction open for ever",
        (("0.11", "2.4.1"),),
        "2.4.1; tools by KIP-664 from 3.0",
        "transactional commits without an end marker, older than transaction.max.timeout.ms",
        "offsets stay pending, the cleaner does not pass the transaction, the partition grows",
        "kafka-transactions.sh abort",
    ),
    Bug(
        "KAFKA-8335",
        "The cleaner keeps each emptied batch of a transaction, and with it the end marker",
        (("0.11", "2.0.2"), ("2.1", "2.1.2"), ("2.2", "2.2.1")),
        "2.0.2, 2.1.2, 2.2.1, 2.3.0",
        "many empty batches of one producer, and end markers of whose transactions no commit is left",
        "offsets partitions of transactional groups (Streams with exactly once) grow for ever and load slowly",
        "upgrade the brokers; the cleaner of a release with the fix removes them",
    ),
    # Fixed by pull request 10914 (KIP-534), reviewed when 3.0 was out.
    Bug(
        "KAFKA-8522",
        "The time after which tombstones and end markers may go is put off by each cleaning",
        (("0.9", "3.1"),),
        "3.1.0",
        "end markers without a commit, days older than delete.retention.ms",
        "offsets partitions keep what has no use any more and load slowly",
        "upgrade the brokers to 3.1 or later",
    ),
    # The batches come with KAFKA-17076 (pull request 17193 for 4.0, 20535 for 3.9.2), and go by pull request 22089.
    Bug(
        "KAFKA-20452",
        "Each round of the cleaner may leave one more empty batch",
        (("3.9.2", "4.4"),),
        "4.4.0",
        "empty batches, most without a producer, one a round of the cleaner",
        "none but their bytes, 61 each",
        "nothing is needed; upgrade",
    ),
    Bug(
        "KAFKA-19661",
        "A streams group has no source topics from the load of its coordinator up to the next heartbeat",
        (("4.1", "4.2"),),
        "4.2.0",
        "a tombstone of a source topic's offset of a streams group with members, commit age above the retention",
        "offsets of quiet source partitions expire in a sweep after a failover",
        "upgrade; keep offsets.retention.minutes above the longest time without a commit",
    ),
    Bug(
        "KAFKA-4704",
        "Loading ends where a group id is used for offsets after the group was removed",
        (("0.10.1", "0.10.2"),),
        "0.10.2.0",
        "a group's tombstone and then commits of the same id",
        "offsets behind that record are missing after a failover",
        "upgrade; give standalone consumers a group id of their own",
    ),
    Bug(
        "KAFKA-4362",
        "Commits fail for good after a reassignment of an offsets partition",
        (("0.10", "0.10.1.1"),),
        "0.10.1.1",
        "batches of two message formats, then no more writes",
        "groups of this partition get errors on commit",
        "restart the brokers one by one; upgrade",
    ),
    Bug(
        "KAFKA-3160",
        "LZ4 frames with a wrong header checksum",
        (("0.8.2", "0.10"),),
        "0.10.0",
        "message format 0 compressed with lz4",
        "clients other than Java's refuse to read the topic; the data is sound",
        "none is needed for brokers; read it with a tool that knows the old checksum",
    ),
    Bug(
        "KAFKA-9801",
        "A static member that joins while the group completes a rebalance gets no partitions",
        (("2.3", "2.5"),),
        "2.5.0",
        "a Stable group with a static member without partitions, and partitions without an owner",
        "nobody reads these partitions, without any error",
        "force a rebalance: restart that member, or remove it with removeMembersFromConsumerGroup; upgrade",
    ),
    Bug(
        "KAFKA-17306",
        "Tombstones of KIP-848 groups and members that are gone stop the load",
        (("3.7", "4.0"),),
        "4.0.0",
        "a tombstone of record types 3 to 8 with no value before it",
        "the partition fails to load after a failover",
        "upgrade to 4.0; or use the classic coordinator (group.coordinator.rebalance.protocols=classic)",
    ),
    Bug(
        "KAFKA-19862",
        "Loading fails where a partition moves to a member before its owner's release is read",
        (("3.8", "4.0.2"), ("4.1", "4.1.2")),
        "4.0.2, 4.1.2, 4.2.0",
        "an assigned partition goes from one member of a KIP-848 group to another",
        "if the cleaner runs during the load, the shard fails and all its groups answer NOT_COORDINATOR",
        "upgrade; until then load again (move the leader), best when no cleaner runs",
    ),
    Bug(
        "KAFKA-19453",
        "Tombstones of share groups that are gone stop the load",
        (("4.0", "4.1"),),
        "4.1.0",
        "a tombstone of record types 10 to 15 of a group that the log no longer has",
        "the partition fails to load",
        "upgrade to 4.1",
    ),
    Bug(
        "KAFKA-20254",
        "Records of a streams group over plain offsets stop the load",
        (("4.1", "4.2.1"),),
        "4.2.1, 4.3.0",
        "an offset commit of the group before its first record of types 17 to 23",
        "the partition fails to load once the cleaner has run",
        "upgrade to 4.2.1; do not migrate to streams groups before",
    ),
    # Boundaries seen on brokers: 3.9.2, 4.1.1 and 4.3.1 stop, 4.4.0 loads.
    Bug(
        "KAFKA-20570",
        "A consumer subscription that Kafka cannot read stops the load",
        (("2.7", "4.4"),),
        "4.4.0",
        "a value of type 2 of protocol type consumer, with a subscription that is not Kafka's",
        "the partition does not load after a failover, and its groups have no coordinator",
        "upgrade to 4.4; until then stop the client that writes its own bytes as a subscription, and delete its group "
        "before its coordinator moves",
    ),
    Bug(
        "KAFKA-21117",
        "Records of a KIP-848 group over a classic one stop the load",
        (("4.0", None),),
        "open",
        "a value of type 2, then records of types 3 to 8 of the same id without a tombstone of type 2 between",
        "the partition fails to load after an online downgrade",
        "do not roll clients back while the cleaner may run; repair: regroup compact, then restore the partition",
    ),
    Bug(
        "KAFKA-13664",
        "A load reads on into the zeroes behind the records of a preallocated segment",
        (("4.0", None),),
        "open",
        "zero bytes behind the last batch of the segment that is written to",
        "the new coordinator does not load the partition (Record size 0 is less than the minimum record overhead), and "
        "its groups have none until the leader moves again",
        "set preallocate=false for __consumer_offsets (log.preallocate of the brokers) and let a new segment begin",
    ),
    Bug(
        "KAFKA-5431",
        "The cleaner dies of the zeroes behind the records of a preallocated segment",
        (("0.9", "0.11.0.1"),),
        "0.11.0.1, 1.0.0",
        "zero bytes at the end of a segment that is closed",
        "nothing is removed any more from the partition, nor from others of that cleaner thread",
        "upgrade; until then log.preallocate=false, and a restart of the broker, which cuts the zeroes off",
    ),
    Bug(
        "KAFKA-18672",
        "Records of a newer version are misread after a downgrade",
        (("3.7", "4.0"),),
        "4.0.0",
        "a value version or record type that the release does not know",
        "wrong state, or a partition that does not load",
        "do not downgrade below the newest release that wrote here",
    ),
    Bug(
        "KIP-915",
        "Record types and versions of later releases end the load (KAFKA-14869)",
        (("0.8.2", "3.4.1"),),
        "3.4.1, 3.5.0",
        "record types above 2 or group values above version 3",
        "after a downgrade all groups of the partition are reset",
        "downgrade to 3.5 or later only",
    ),
    Bug(
        "KAFKA-12468",
        "MirrorMaker 2 translates offsets past gaps wrongly",
        (),
        "Connect 3.5.0",
        "offsets written by MirrorMaker that go back, or lie beyond the log end",
        "after failing over consumers skip records or have negative lag",
        "upgrade MirrorMaker to 3.5; check the translated offsets before a failover",
    ),
    Bug(
        "KAFKA-13659",
        "MirrorMaker 2 emits checkpoints before it has read all offset syncs",
        (),
        "Connect 3.5.0",
        "offsets written by MirrorMaker that go back after a restart of its task",
        "groups on the target cluster are set back",
        "upgrade MirrorMaker to 3.5",
    ),
)

BUGS: Mapping[str, Bug] = {bug.id: bug for bug in _BUGS}
"""By id."""

"""Judgement of the rule that ended a committed offset or a group.

A tombstone says nothing of its reason. Facts that tell it: the release's rules, whether the offset could expire at all,
how old it was, whether an older one that could expire just as well stayed, whether the group's own tombstone is
beside it, what else went in the same second, and whether the group lived.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, pairwise

from coordinator_core.durations import DAY_MS, are_close, numbered, span
from coordinator_core.groups.model import GroupType
from coordinator_core.history.lessons import SHORTEST_RETENTION_MS, Lessons, acts_of, sweep_age
from coordinator_core.history.model import (
    Certainty,
    Change,
    ChangeKind,
    Deletions,
    End,
    EndKind,
    GroupHistory,
    Place,
    Removal,
    Version,
)
from coordinator_core.history.removals import ONE_ACT_MS
from coordinator_core.releases import Clock, Deleter, Loader, Profile, ShareSweep

_SWEEPS_MS = 1_200_000
"""Two rounds of ``offsets.retention.check.interval.ms``: an expired offset is gone by then."""
_ANOTHER_SWEEP_MS = 1000
_ALIKE = 0.1
_ALIKE_AGAINST = 0.01
"""Where the brokers kept offsets for longer when the log was copied."""
_BESIDE = 2
_ONE_SWEEP_MS = 250
_NEVER = 1 << 63


class _Act:
    """Removals of one group that belong together, and what they have in common."""

    def __init__(self, removals: Sequence[Removal]) -> None:
        self.removals = removals
        self.first = removals[0]
        self.alike: int | None = None
        """How many other groups lost offsets at that age, once it was asked."""

    @cached_property
    def topics(self) -> set[str]:
        return {one.offset_key.topic for one in self.removals}

    @cached_property
    def has_explicit(self) -> bool:
        """Whether some had an expire timestamp of their own."""
        return any(one.expired_ms_ago is not None for one in self.removals)

    @cached_property
    def has_kept(self) -> bool:
        """Whether some could not expire."""
        return any(one.expired_ms_ago is None and one.age_ms is None for one in self.removals)

    @cached_property
    def has_passed(self) -> bool:
        """Whether all had an expire timestamp of their own that had just passed, whatever protected them."""
        expiries = [one.value.expire_timestamp_ms for one in self.removals]
        times = zip(self.removals, expiries, strict=True)
        return None not in expiries and all(
            0 <= one.place.timestamp_ms - (expiry or 0) <= _SWEEPS_MS for one, expiry in times
        )

    @cached_property
    def age_ms(self) -> int | None:
        return sweep_age(self.removals)


class _Past:
    """A group's history, with what the judge looks up for each of its removals."""

    def __init__(self, group: GroupHistory) -> None:
        self.group = group
        self._changes = sorted(group.changes, key=_record_offset)
        self._deletions = [one for one in self._changes if one.kind is ChangeKind.DELETED]
        keys = {removal.offset_key for removal in group.removals}
        self._ended = {
            one.end.place: (one, following)
            for key in keys
            for one, following in pairwise([*group.versions[key], None])
            if one is not None and one.end is not None
        }

    def before(self, place: Place) -> Change | None:
        """The last change before a record."""
        at = bisect_left(self._changes, place.record_offset, key=_record_offset)
        return self._changes[at - 1] if at else None

    def after(self, place: Place) -> Change | None:
        """The first change behind a record."""
        at = bisect_right(self._changes, place.record_offset, key=_record_offset)
        return self._changes[at] if at < len(self._changes) else None

    def deletion_after(self, place: Place) -> Change | None:
        """The first end of the group behind a record."""
        at = bisect_right(self._deletions, place.record_offset, key=_record_offset)
        return self._deletions[at] if at < len(self._deletions) else None

    def removal_before(self, place: Place) -> Removal | None:
        """The last removal before a record."""
        at = bisect_left(self.group.removals, place.record_offset, key=_record_offset)
        return self.group.removals[at - 1] if at else None

    def ended(self, removal: Removal) -> Version | None:
        """The version that a removal ended."""
        return self._around(removal)[0]

    def has_topic_still(self, removal: Removal) -> bool:
        """Whether the topic has the same id in a commit behind the removal: it was not deleted."""
        known = removal.offset_key.topic, removal.value.topic_id
        return None not in known and self._topic_ids.get(known, -1) > removal.place.record_offset

    def has_epoch_still(self, removal: Removal) -> bool:
        """Whether the partition's leader epoch goes on in the next commit, which begins at 0 in a new topic."""
        epoch, following = removal.value.leader_epoch or 0, self._around(removal)[1]
        return following is not None and (following.first.leader_epoch or 0) >= epoch > 0

    def _around(self, removal: Removal) -> tuple[Version | None, Version | None]:
        """The version that a removal ended, and the next one."""
        return self._ended.get(removal.place, (None, None))

    @cached_property
    def _topic_ids(self) -> dict[tuple[str, str | None], int]:
        """Newest record offset by topic and id."""
        found: dict[tuple[str, str | None], int] = {}
        for key, version in self.group.all_versions():
            known = key.topic, version.last.topic_id
            found[known] = max(found.get(known, -1), version.last_place.record_offset)
        return found


class Judge:
    """Judges removals of one cluster; ``retention_ms`` is ``offsets.retention.minutes`` where it is known.

    ``captured_retention_ms`` is what the brokers had when the log was copied. It may have been another one before, so
    it makes an expiry likelier and excludes none.
    """

    def __init__(
        self,
        profile: Profile,
        deletions: Deletions,
        *,
        retention_ms: int | None = None,
        captured_retention_ms: int | None = None,
        lessons: Lessons | None = None,
    ) -> None:
        """``lessons`` are earlier ones, of which ``deletions`` may be a part."""
        self._profile = profile
        self._deletions = deletions
        self._configured = retention_ms
        self._captured = captured_retention_ms if retention_ms is None else None
        self._lessons = lessons or Lessons()
        self._sweeps: dict[tuple[int, int], set[str]] = {}
        self._idle: dict[int, tuple[int, int]] | None = None
        self._standing: dict[str, tuple[list[int], list[int], int]] = {}
        """By topic what :meth:`_stays` asks: times from which on offsets stood, ascending; up to when the longest one
        so far did; and since when one stands elsewhere."""

    def judge(self, groups: Iterable[GroupHistory]) -> None:
        """Set the cause of every removal and of every end of a group."""
        groups = list(groups)
        self.learn(groups)
        self.decide(groups)

    @staticmethod
    def asks_about(groups: Iterable[GroupHistory]) -> list[tuple[int, int]]:
        """Spans of time (epoch ms, both ends included) of which the judge asks what else was deleted; ascending."""
        reach = _ONE_SWEEP_MS + Deletions.STEP_MS
        spans: list[tuple[int, int]] = []
        for at in sorted({removal.place.timestamp_ms for group in groups for removal in group.removals}):
            if spans and at - reach <= spans[-1][1]:
                spans[-1] = spans[-1][0], at + reach
            else:
                spans.append((at - reach, at + reach))
        return spans

    def learn(self, groups: Iterable[GroupHistory]) -> None:
        """Take in what all groups tell about each other; :func:`~coordinator_core.history.model.outline` will do."""
        groups = list(groups)
        self._idle = None
        self._lessons.learn(groups)
        self.find_sweeps(groups)

    def find_sweeps(self, groups: Iterable[GroupHistory]) -> None:
        """Find the sweeps in offsets partitions of which these are all groups, once everything is learned.

        Another sweep beside an act does not make it one: else the order of groups would decide.
        """
        for act in [_Act(act) for group in groups for act in acts_of(group.removals)]:
            expiry = self._expiry(act, act.first, trusts_sweeps=False)
            if expiry is not None and expiry.certainty is not Certainty.POSSIBLE:
                self._sweeps.setdefault(_moment(act.first), set()).add(act.first.offset_key.group_id)

    def decide(self, groups: Iterable[GroupHistory]) -> None:
        """Set the causes in groups that were learned from."""
        self._standing.clear()
        for group in groups:
            past = _Past(group)
            for act in acts_of(group.removals):
                self._act(past, _Act(act))
            # The end of a group is told from that of its offsets.
            following: Change | None = None
            for change in reversed(group.changes):
                if change.kind is ChangeKind.DELETED:
                    change.end = self._group_end(past, change, following)
                if change.kind is not ChangeKind.REFUSED:
                    following = change

    def _act(self, group: _Past, act: _Act) -> None:
        tombstone = group.deletion_after(act.first.place)
        with_group = tombstone is not None and _are_near(tombstone.place, act.first.place)
        for removal in act.removals:
            removal.end = self._end(group, act, removal, with_group=with_group)
            if (version := group.ended(removal)) is not None:
                version.end = removal.end

    def _end(self, group: _Past, act: _Act, removal: Removal, *, with_group: bool) -> End:
        profile, place = self._profile, removal.place
        if removal.foreign:
            why = "its batch has a producer or a sequence number: a client wrote it, no coordinator"
            return End(EndKind.NO_RULE, place, Certainty.CERTAIN, why)
        if profile.deleters == {Deleter.EXPIRY}:
            return self._by_expiry(removal, Certainty.CERTAIN, "this release removes offsets for no other reason")
        if place.timestamp_ms < 0:
            # Records of message format 0 have no time, also where the cleaner has put them into a newer format.
            why = "the tombstone has no time, which would tell the age of the offset and what else went"
            refused = {
                Deleter.EXPIRY: removal.subscribed and self._sweeps_see_members,
                Deleter.DELETE_GROUPS: removal.had_members,
                Deleter.OFFSET_DELETE: removal.subscribed,
            }
            kind, *as_well = (EndKind(one) for one in Deleter if one in profile.deleters and not refused.get(one))
            return End(kind, place, Certainty.POSSIBLE, why, others=tuple(as_well))
        expiry = None if self._would_end(group, act, removal, with_group=with_group) else self._expiry(act, removal)
        if expiry is None and (by_old_rules := self._by_old_rules(act, removal)) is not None:
            return by_old_rules
        is_unsure = expiry is not None and expiry.certainty is not Certainty.CERTAIN
        no_sweep = is_unsure and self._is_no_sweep(group, removal)
        if expiry is not None and no_sweep:
            expiry = replace(expiry, certainty=Certainty.POSSIBLE)
        if expiry is not None and expiry.certainty is not Certainty.POSSIBLE:
            others: tuple[EndKind, ...] = ()
            if expiry.certainty is Certainty.LIKELY and self._configured is None:
                asked = self._request(act, removal, with_group=with_group)
                others = () if asked is None else (asked.kind, *asked.others)
                topic = self._topic_deletion(group, act, removal, with_group=with_group)
                if self._is_late(removal) and topic is not None:
                    others = EndKind.TOPIC_DELETION, *others
            return replace(expiry, others=others)
        if (gone := self._with_deleted_topic(group, removal, with_group=with_group)) is not None:
            return gone
        topic = self._topic_deletion(group, act, removal, with_group=with_group)
        if topic is not None and expiry is not None:
            # What went with it in other groups may have had the same age, or be older than a retention that is new.
            topic = replace(topic, certainty=Certainty.POSSIBLE)
        requests = self._request(act, removal, with_group=with_group)
        forgotten = self._sources_bug(group, removal)
        if topic is not None and topic.certainty is not Certainty.POSSIBLE:
            if requests is not None and requests.kind is EndKind.DELETE_GROUPS:
                # One request names several groups.
                topic = replace(topic, certainty=Certainty.POSSIBLE, others=(requests.kind, *requests.others))
            if forgotten is None:
                return topic
            forgotten = replace(forgotten, certainty=Certainty.POSSIBLE, others=(topic.kind, *topic.others))
        bug = self._rebalance_bug(group, removal) or forgotten
        if bug is not None:
            return bug
        if requests is not None and self._configured is None:
            # A retention that is shorter than the default would explain it.
            expiry = expiry or self._rebalance_bug(group, removal, SHORTEST_RETENTION_MS)
        order: tuple[End | None, ...] = (requests, topic, expiry)
        if len(self._deletions.around(place.timestamp_ms, _ONE_SWEEP_MS).groups) > _BESIDE:
            # A sweep goes through all groups, and at the same time in all partitions; so does the deletion of a topic.
            is_against = no_sweep or (self._captured is not None and (removal.age_ms or 0) < self._captured)
            order = (topic, requests, expiry) if is_against else (expiry, topic, requests)
        if no_sweep and not self._at_once(removal):
            order = requests, topic, expiry
        if group.has_epoch_still(removal):
            order = *(end for end in order if end is not topic), topic
        candidates = [end for end in order if end is not None]
        if not candidates:
            kept = removal.condition.kept
            why = f"the group kept it ({kept.value if kept else 'its members subscribed to the topic'})"
            at = removal.offset_key.topic, place.timestamp_ms
            if group.has_topic_still(removal):
                why += ", and the topic has the same id afterwards: it was not deleted"
            elif removal.subscribed and self._may_stay(*at) and not self._stays(*at):
                # Of more groups than an instant keeps nobody knows which lost none.
                is_known = len(self._deletions.around(place.timestamp_ms).groups) < Deletions.NAMES
                known = " and lost none then; whether it had them before" if is_known else "; whether it had them then"
                why += f", and another group has offsets of the topic{known}, only a reading of all groups tells"
                return End(EndKind.NO_RULE, place, Certainty.POSSIBLE, why, others=(EndKind.TOPIC_DELETION,))
            return End(EndKind.NO_RULE, place, Certainty.LIKELY, why)
        first, others = candidates[0], tuple(end.kind for end in candidates[1:])
        first = replace(first, others=(*first.others, *others))
        return replace(first, certainty=Certainty.POSSIBLE) if others else first

    def _expiry(self, act: _Act, removal: Removal, *, trusts_sweeps: bool = True) -> End | None:
        """Expiry, if a sweep could have removed the offset; merely possible where nothing speaks for it.

        ``trusts_sweeps``: a sweep that was found at that moment does.
        """
        late = removal.expired_ms_ago
        if late is not None:
            if late < 0:
                return None
            is_swept = late <= _SWEEPS_MS or (trusts_sweeps and self._sweeps_beside(removal))
            sure = Certainty.CERTAIN if is_swept else Certainty.POSSIBLE
            return self._by_expiry(removal, sure, f"its own expire timestamp passed {span(late)} before")
        if removal.age_ms is None or removal.age_ms < SHORTEST_RETENTION_MS:
            return None
        if act.has_kept:
            return None  # A sweep takes nothing that cannot expire.
        if removal.survivor_age_ms is not None and removal.survivor_age_ms >= removal.age_ms:
            return None  # A sweep would have taken the older one, too.
        age = removal.age_ms
        if self._configured is not None:
            if age < self._configured:
                return None
            why = f"{_since(removal)} {span(age)} before, and the retention is {span(self._configured)}"
            return self._by_expiry(removal, Certainty.CERTAIN, why)
        default, captured = self._profile.expiry.default_offsets_retention_ms, self._captured
        why = f"{_since(removal)} {span(age)} before"
        if captured is not None and captured <= age <= captured + _SWEEPS_MS:
            return self._by_expiry(removal, Certainty.CERTAIN, f"{why}, and the retention is {span(captured)}")
        if captured is not None:
            why += f" (the retention is {span(captured)} now)"
        if default <= age <= default + _SWEEPS_MS:
            return self._by_expiry(removal, Certainty.CERTAIN, f"{why}, just past this release's default retention")
        if DAY_MS <= age <= DAY_MS + _SWEEPS_MS:
            why += ", just past 1440 minutes, the default retention before 2.0, which many brokers keep"
            return self._by_expiry(removal, Certainty.LIKELY, why)
        # The Scala coordinator writes a batch for each group: of one that stands, it may come behind the end.
        is_done = self._profile.loader is not Loader.SCALA or not removal.near_end
        if is_done and self._lessons.has_waited(removal.place, age):
            return None  # Likewise of another group.
        if alike := self._alike(act):
            why += f", and offsets of {alike} more group{'s' * (alike > 1)} went at that age"
            return self._by_expiry(removal, Certainty.LIKELY, why)
        if trusts_sweeps and self._sweeps_beside(removal):
            why += ", and a sweep removed offsets of other groups at that moment"
            return self._by_expiry(removal, Certainty.LIKELY, why)
        sure = Certainty.LIKELY if age >= (default if captured is None else captured) else Certainty.POSSIBLE
        return self._by_expiry(removal, sure, why)

    @property
    def _least_known(self) -> int:
        """The default retention, or a shorter one that the brokers had when the log was copied."""
        default = self._profile.expiry.default_offsets_retention_ms
        return default if self._captured is None else min(default, self._captured)

    def _alike(self, act: _Act) -> int:
        """How many other groups lost offsets at about the age of these, at other times: ages at sweeps differ by the
        time between two sweeps."""
        if act.alike is None:
            least, now = act.age_ms, act.first.place.timestamp_ms
            share = _ALIKE_AGAINST if self._captured is not None and (least or 0) < self._captured else _ALIKE
            act.alike = len(
                {
                    group_id
                    for age, group_id, at_ms, _ in self._lessons.ages
                    if least is not None
                    and group_id != act.first.offset_key.group_id
                    and abs(age - least) <= min(least * share, _SWEEPS_MS)
                    # What went at the same moment may have been idle for as long, whatever took it; and of groups that
                    # stopped together, those that go one after the other are about as old, too.
                    and abs(at_ms - now) > max(_ANOTHER_SWEEP_MS, 2 * abs(age - least))
                }
            )
        return act.alike

    def _would_end(self, group: _Past, act: _Act, removal: Removal, *, with_group: bool) -> bool:
        """Whether a sweep that took these offsets would have deleted the group with them, which stayed."""
        before = group.before(removal.place)
        return (
            not with_group
            and not removal.left
            and not removal.had_pending
            and bool(removal.generation)
            and before is not None
            and before.kind is ChangeKind.EMPTY
            and before.group_type is GroupType.CLASSIC
            and not act.has_explicit
        )

    def _is_no_sweep(self, group: _Past, removal: Removal) -> bool:
        """Whether groups lost offsets of different ages at that moment: a sweep that takes the youngest would have
        taken the oldest before, unless the coordinator, or its retention, was new."""
        at = removal.place.timestamp_ms // ONE_ACT_MS
        ages = [age for near in (at - 1, at, at + 1) for age in self._ages_of_idle().get(near, ())]
        if self._configured is not None or not ages or max(ages) - min(ages) <= _SWEEPS_MS:
            return False
        version = group.ended(removal)
        return version is not None and version.last_place.leader_epoch == removal.place.leader_epoch

    def _ages_of_idle(self) -> dict[int, tuple[int, int]]:
        """Youngest and oldest of what groups without members lost, by time in units of :data:`ONE_ACT_MS`. Members
        protect older ones up to the moment in which they subscribe no more."""
        if self._idle is None:
            self._idle = {}
            for age, _, at_ms, had_members in self._lessons.ages:
                at = at_ms // ONE_ACT_MS
                least, most = self._idle.get(at, (age, age))
                if not had_members:
                    self._idle[at] = min(least, age), max(most, age)
        return self._idle

    def _is_late(self, removal: Removal) -> bool:
        """Whether brokers with the default retention would have removed it before; members protect up to the moment in
        which they subscribe no more."""
        default = self._profile.expiry.default_offsets_retention_ms
        return not removal.had_members and (removal.age_ms or 0) > default + _SWEEPS_MS

    def _at_once(self, removal: Removal) -> bool:
        """Whether another group lost offsets in the same moment, as by one request or the deletion of a topic."""
        return len(self._deletions.around(removal.place.timestamp_ms, 0).groups) > 1

    def _sweeps_beside(self, removal: Removal) -> bool:
        partition, at = _moment(removal)
        beside = set().union(*(self._sweeps.get((partition, near), ()) for near in (at - 1, at, at + 1)))
        return bool(beside - {removal.offset_key.group_id})

    def _by_old_rules(self, act: _Act, removal: Removal) -> End | None:
        """Brokers before 2.1 (KIP-211) let offsets of active groups expire; the log may still have their records."""
        if not removal.had_members or removal.expired_ms_ago is not None or not act.has_passed:
            return None
        late = removal.place.timestamp_ms - (removal.value.expire_timestamp_ms or 0)
        why = (
            f"its own expire timestamp passed {span(late)} before; only brokers before 2.1 look at that in such a group"
        )
        return End(EndKind.EXPIRY, removal.place, Certainty.LIKELY, why, bug="KIP-211")

    def _rebalance_bug(self, group: _Past, removal: Removal, least_ms: int | None = None) -> End | None:
        """KAFKA-13636: a group that left Empty for a rebalance still had no subscribed topics, and its offsets
        expired by commit age, of ``least_ms`` or the retention."""
        rules, place = self._profile.expiry, removal.place
        if rules.clock is not Clock.GROUP or not rules.expires_unsubscribed or rules.rebalance_protects:
            return None
        if removal.age_ms is not None and removal.condition.base_timestamp_ms is None:
            return None
        age = place.timestamp_ms - removal.value.commit_timestamp_ms
        least = least_ms or self._configured or self._least_known
        following = group.after(place)
        if age < least or following is None or following.kind is not ChangeKind.GENERATION:
            return None
        why = (
            f"committed {span(age)} before; the group was rebalancing: generation {following.generation} follows, "
            "and this release expires offsets of rebalancing groups by commit age"
        )
        return End(EndKind.EXPIRY, place, Certainty.LIKELY, why, age, bug="KAFKA-13636")

    def _sources_bug(self, group: _Past, removal: Removal) -> End | None:
        """KAFKA-19661: a streams group that was loaded has no source topics up to the next heartbeat of a member."""
        place = removal.place
        before = group.before(place)
        is_streams = before is not None and before.group_type is GroupType.STREAMS
        if self._profile.expiry.knows_sources or not removal.subscribed or not is_streams:
            return None
        age = place.timestamp_ms - removal.value.commit_timestamp_ms
        if age < (self._configured or SHORTEST_RETENTION_MS):
            return None
        why = (
            f"committed {span(age)} before; this release does not know the source topics of a streams group from its "
            "load up to the next heartbeat"
        )
        is_past = self._configured is not None or (self._captured is not None and age >= self._captured)
        certainty = Certainty.LIKELY if is_past else Certainty.POSSIBLE
        return End(EndKind.EXPIRY, place, certainty, why, age, bug="KAFKA-19661")

    def _by_expiry(self, removal: Removal, certainty: Certainty, why: str) -> End:
        return End(EndKind.EXPIRY, removal.place, certainty, why, retention_at_most_ms=removal.age_ms)

    def _topic_deletion(self, group: _Past, act: _Act, removal: Removal, *, with_group: bool) -> End | None:
        """All offsets of the topic went: for sure where no request could have removed them, or others lost it too."""
        key, now = removal.offset_key, removal.place.timestamp_ms
        if not self._may_be_topic_deletion(group, removal, with_group=with_group):
            return None
        around = self._deletions.around(removal.place.timestamp_ms)
        if removal.subscribed and not self._may_stay(key.topic, now):
            why = "all offsets of the topic went while members subscribed to it, which no request may do"
            return End(EndKind.TOPIC_DELETION, removal.place, Certainty.LIKELY, why)
        stay = (self._stays(topic, now) or self._may_stay(topic, now) for topic in around.topics)
        if len(around.groups) > 1 and not any(stay):
            is_one = len(around.topics) == 1
            topics, of_it = ("this topic", "it") if is_one else (_so_many(around.topics, "topic"), "them")
            groups = _so_many(around.groups, "group")
            why = f"{groups} lost their offsets of {topics} at once, and no offset of {of_it} is left"
            sure = Certainty.POSSIBLE if group.has_epoch_still(removal) else Certainty.LIKELY
            return End(EndKind.TOPIC_DELETION, removal.place, sure, why)
        if len(act.topics) == 1 and not removal.subscribed:
            why = "all offsets of this topic went, and no others"
            return End(EndKind.TOPIC_DELETION, removal.place, Certainty.POSSIBLE, why)
        return None

    def _may_be_topic_deletion(self, group: _Past, removal: Removal, *, with_group: bool) -> bool:
        if Deleter.TOPIC_DELETION not in self._profile.deleters or group.has_topic_still(removal):
            return False
        if with_group and self._profile.loader is Loader.JAVA:
            return False  # It deletes no group with a topic.
        return not self._stays(removal.offset_key.topic, removal.place.timestamp_ms)

    def _with_deleted_topic(self, group: _Past, removal: Removal, *, with_group: bool) -> End | None:
        """The deletion of the topic, where what a group with subscribed members lost at that moment proves it."""
        topic, now = removal.offset_key.topic, removal.place.timestamp_ms
        # A sweep with a bug takes such offsets, too, but none that is younger than any retention.
        is_proof = self._sweeps_see_members
        if removal.subscribed or not any(
            abs(at_ms - now) <= 2 * Deletions.STEP_MS and (is_proof or 0 <= age_ms < SHORTEST_RETENTION_MS)
            for at_ms, age_ms in self._lessons.subscribed.get(topic, {}).items()
        ):
            return None
        if not self._may_be_topic_deletion(group, removal, with_group=with_group) or self._may_stay(topic, now):
            return None
        why = "another group, whose members subscribed to it, lost its offsets at once, which no request may do"
        return End(EndKind.TOPIC_DELETION, removal.place, Certainty.LIKELY, why)

    @property
    def _sweeps_see_members(self) -> bool:
        """Whether no sweep of this release takes offsets of topics that members subscribe to."""
        rules = self._profile.expiry
        sees_rebalances = rules.rebalance_protects or not rules.expires_unsubscribed
        return rules.clock is Clock.GROUP and rules.knows_sources and sees_rebalances

    def _stays(self, topic: str, now_ms: int) -> bool:
        """Whether offsets of the topic were there before ``now_ms``, and a second after."""
        found = self._standing.get(topic)
        if found is None:
            times = sorted(
                (since_ms, _NEVER if gone_ms is None else gone_ms)
                for since_ms, gone_ms in self._lessons.topics.get(topic, ())
            )
            gone = [*accumulate((gone_ms for _, gone_ms in times), max)]
            elsewhere = min(self._lessons.elsewhere.get(topic, {}).values(), default=_NEVER)
            found = self._standing[topic] = [since_ms for since_ms, _ in times], gone, elsewhere
        since, gone, elsewhere = found
        before = bisect_left(since, now_ms)
        return elsewhere < now_ms or (before > 0 and gone[before - 1] > now_ms + 1000)

    def _may_stay(self, topic: str, now_ms: int) -> bool:
        """Whether a group of which only the end is known has offsets of the topic and lost none at ``now_ms``: it may
        have had them before."""
        lost = self._deletions.around(now_ms).groups
        return any(group_id not in lost for group_id in self._lessons.elsewhere.get(topic, {}))

    def _request(self, act: _Act, removal: Removal, *, with_group: bool) -> End | None:
        """An Admin request: DeleteGroups takes everything, OffsetDelete the offsets that it names."""
        deleters = self._profile.deleters
        silent = self._profile.expiry.generation_zero_is_silent and not removal.generation
        if not removal.had_members and not removal.left and Deleter.DELETE_GROUPS in deleters:
            if with_group and not silent:
                why = "all offsets and the group went at once"
                # The Scala coordinator removes an Empty group with its last offset, whatever took that.
                as_well = Deleter.OFFSET_DELETE in deleters and self._profile.loader is not Loader.JAVA
                is_unsure = as_well and not removal.had_pending and not self._at_once(removal)
                others = (EndKind.OFFSET_DELETE,) if is_unsure else ()
                return End(EndKind.DELETE_GROUPS, removal.place, Certainty.LIKELY, why, others=others)
            if silent:
                others = (EndKind.OFFSET_DELETE,) if Deleter.OFFSET_DELETE in deleters else ()
                why = "all offsets went; this coordinator writes no tombstone for a group of generation 0"
                return End(EndKind.DELETE_GROUPS, removal.place, Certainty.LIKELY, why, others=others)
        if Deleter.OFFSET_DELETE in deleters and not removal.subscribed and not with_group:
            why = f"offsets that went: {len(act.removals)}; that stayed in the group: {removal.left}"
            return End(EndKind.OFFSET_DELETE, removal.place, Certainty.LIKELY, why)
        return None

    def _group_end(self, group: _Past, change: Change, following: Change | None) -> End:
        place = change.place
        if (
            following is not None
            and _are_near(place, following.place, ONE_ACT_MS)
            and following.group_type is not change.group_type
        ):
            return End(EndKind.MIGRATION, place, Certainty.CERTAIN, "records of another group type follow at once")
        removal = group.removal_before(place)
        if removal is not None and removal.end is not None and _are_near(removal.place, place):
            return replace(removal.end, place=place)
        if change.left:
            return End(EndKind.NO_RULE, place, Certainty.LIKELY, f"it had {numbered(len(change.left), 'member')}")
        swept = change.group_type is not GroupType.SHARE or self._profile.expiry.share_sweep is ShareSweep.DELETES
        if change.had_pending or not swept:
            why = "no sweep deletes such a group" if not swept else "commits of an open transaction went with it"
            return End(EndKind.DELETE_GROUPS, place, Certainty.LIKELY, why)
        if change.had_offsets:
            return End(EndKind.NO_RULE, place, Certainty.LIKELY, f"{change.had_offsets} of its offsets stayed")
        why = "an Empty group without offsets goes with the next sweep"
        others = (EndKind.DELETE_GROUPS,) if Deleter.DELETE_GROUPS in self._profile.deleters else ()
        return End(EndKind.EXPIRY, place, Certainty.LIKELY, why, others=others)


def _record_offset(one: Change | Removal) -> int:
    return one.place.record_offset


def _so_many(names: Collection[str], noun: str) -> str:
    """The number of ``names``, which are those of an instant."""
    return f"{'at least ' if len(names) >= Deletions.NAMES else ''}{numbered(len(names), noun)}"


def _are_near(one: Place, other: Place, within_ms: int = 2 * ONE_ACT_MS) -> bool:
    """Whether records of a group are of one sweep or request; of unknown times neighbours are."""
    if max(one.timestamp_ms, other.timestamp_ms) < 0:
        return abs(one.record_offset - other.record_offset) == 1 or one.byte_position == other.byte_position
    return are_close(one.timestamp_ms, other.timestamp_ms, within_ms)


def _moment(removal: Removal) -> tuple[int, int]:
    return removal.place.offsets_partition, removal.place.timestamp_ms // ONE_ACT_MS


def _since(removal: Removal) -> str:
    return "committed" if removal.condition.base_timestamp_ms is None else "the group became Empty"

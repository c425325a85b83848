"""Incidents of who sets offsets from outside, of restarts, and of ids that two things share."""

from __future__ import annotations

from tests.recording.stage import Member, Play, Programme

PROGRAMME = Programme()
incident = PROGRAMME.add
ALL = [("orders", number) for number in range(4)]


def _sync(play: Play, values: range) -> None:
    """What MirrorMaker's sync of group offsets sends: an Admin client's request for all partitions at once."""
    for value in values:
        play.commits(*((*key, value, "") for key in ALL))


@incident(
    "sync-over-own-commits",
    "synced-over-own-commits",
    like="sync-over-own-commits",
    records=("commit",),
    says=("3 times", "orders-0 from 400", "to 120", "sync.group.offsets.enabled"),
)
def synced_over(play: Play) -> None:
    """A sync from the old cluster goes on after the consumers have moved here."""
    with play.fault("consumers run in turn with a sync of group offsets"):
        for turn in range(3 if play.broken else 1):
            member = play.joins(f"billing-{turn}")
            play.reads(member, range(150 if turn else 100, 401, 50))
            play.leaves(member)
            _sync(play, range(120, 125) if play.broken else range(400, 405))


@incident(
    "reset-undone-by-sync",
    "reset-undone-by-sync",
    like="reset-undone-by-sync",
    records=("commit",),
    says=("from 4004 to 20", "at 4009 again"),
)
def reset_undone(play: Play) -> None:
    _sync(play, range(4000, 4005))
    if play.broken:
        with play.fault("kafka-consumer-groups.sh --reset-offsets --to-offset 20"):
            play.tool("--reset-offsets", "--to-offset", "20", "--topic", "orders", "--execute")
            _sync(play, range(4005, 4010))
    else:
        _sync(play, range(4005, 4010))


@incident(
    "crash-loop",
    "restarts-without-progress",
    like="crash-loop",
    records=("commit", "generation"),
    says=("started 6 times", "stays at 400"),
)
def crash_loop(play: Play) -> None:
    """The only consumer ends at the same record each time, and is started again."""
    with play.fault("a consumer starts and ends, again and again"):
        play.leaves(_reads_on(play, 0, range(100, 401, 50)))
        for turn in range(1, 7):
            values = range(400 + 20 * turn, 410 + 20 * turn, 10)
            play.leaves(play.joins(f"billing-{turn}") if play.broken else _reads_on(play, turn, values))


def _reads_on(play: Play, turn: int, values: range) -> Member:
    member = play.joins(f"billing-{turn}")
    play.reads(member, values)
    return member

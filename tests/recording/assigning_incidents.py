"""Incidents of what members subscribe to and are given: assignors, new partitions, starts without committed offsets."""

from __future__ import annotations

from tests.recording.stage import Member, Play, Programme

PROGRAMME = Programme()
incident = PROGRAMME.add
ALL = [("orders", number) for number in range(4)]
FIRST, SECOND = ALL[:2], ALL[2:]
TOPIC_TOOL = "org.apache.kafka.tools.TopicCommand"


def _pair(play: Play) -> tuple[Member, Member]:
    """Two members, the first of which leads and owns everything until the second one joins."""
    a, b = play.joins("fleet-a"), play.member("fleet-b")
    play.reads(a, range(100, 300, 10))
    a.given = b.given = {"fleet-a": FIRST, "fleet-b": SECOND}
    return a, b


@incident(
    "static-subscription",
    "subscription-not-applied",
    like="KAFKA-12759",
    records=("generation",),
    says=("instance i-1", "to payments, too", "generation 1"),
    bug="KAFKA-12759",
)
def not_applied(play: Play) -> None:
    """A static member is restarted with one more topic in its configuration."""
    member = play.joins("billing-1", instance_id="i-1")
    play.reads(member, range(100, 200, 10))
    member.comes_again()
    member.topics = {"orders": 4, "payments": 2} if play.broken else member.topics
    with play.fault("instance i-1 comes back with other topics"):
        member.join_alone()
    play.reads(member, range(200, 300, 10))


@incident(
    "former-owner-commits-on",
    "commits-out-of-order",
    like="alpakka-118",
    records=("commit",),
    says=("had committed last as the owner, up to generation 1", "what it has lost"),
)
def former_owner(play: Play) -> None:
    """A client commits its last value for what it has lost, each time in a request of its own."""
    a, b = _pair(play)
    with play.act("fleet-b joins"):
        a.join(b)
    with play.fault("fleet-a commits on for what fleet-b owns"):
        for value in range(300, 400, 10):
            b.goes_to(value)
            a.goes_to(value)
            if play.broken:
                a.commit(*((*key, 290, "") for key in SECOND))


@incident(
    "assignors-differ",
    "assignor-changed",
    like="assignors-differ",
    records=("generation",),
    says=("from range to cooperative-sticky in generation 2", "changed 3 times"),
)
def assignors(play: Play) -> None:
    """A fleet of which each deployment has another list of assignors."""
    a, _ = _pair(play)
    a.given = {}
    with play.fault("deployments with range and with cooperative-sticky take turns"):
        for turn in range(3):
            a.protocols = ("range",) if turn % 2 or not play.broken else ("cooperative-sticky",)
            a.join()
            a.goes_to(300 + 10 * turn)


@incident(
    "moved-in-one-rebalance",
    "partitions-moved-in-one-rebalance",
    like="KAFKA-14639",
    records=("generation",),
    says=("2 partitions", "cooperative-sticky", "generation 2"),
)
def moved(play: Play) -> None:
    """The leader of a cooperative group gives a partition to another member before its owner has given it up."""
    a, b = play.member("fleet-a"), play.member("fleet-b")
    for one in (a, b):
        one.protocols = ("cooperative-sticky",)
    with play.act("fleet-a joins"):
        a.join()
    play.reads(a, range(100, 200, 10))
    with play.fault("fleet-b joins"):
        if not play.broken:
            # What is to move is given to nobody first.
            a.given = b.given = {"fleet-a": FIRST}
            a.join(b)
        a.given = b.given = {"fleet-a": FIRST, "fleet-b": SECOND}
        a.join(b)
    play.reads(a, range(200, 300, 10))
    play.reads(b, range(200, 300, 10))


@incident(
    "begun-at-latest",
    "jumped-forward",
    like="platformatic-267",
    records=("commit",),
    says=("orders-0 from 290 to 6000", "did not begin at the committed offset"),
)
def begun_at_latest(play: Play) -> None:
    """A member that cannot fetch its committed offsets when it starts goes to the end."""
    member = play.joins("billing-1")
    play.reads(member, range(200, 300, 10))
    play.leaves(member)
    again = play.joins("billing-2")
    with play.fault("billing-2 begins at the end"):
        again.goes_to(6000 if play.broken else 300)


@incident(
    "partitions-added",
    "partition-begun-late",
    like="KAFKA-12478",
    records=("commit",),
    says=("payments got more partitions: 1 new one", "payments-2 is 1400"),
)
def added(play: Play) -> None:
    """A topic gets another partition, which is written before the group finds it."""
    if not play.broken:
        member = play.joins("billing-1", {"payments": 2})
        return play.reads(member, range(100, 300, 10))
    member = play.joins("billing-1", {"payments": 2})
    play.reads(member, range(100, 300, 10))
    with play.act("kafka-topics.sh --alter --partitions 3"):
        play.stage.tool(TOPIC_TOOL, "--alter", "--topic", "payments", "--partitions", "3")
        play.stage._wait_for_topics()
        play.stage.produce("payments", 3, 1400)
    member.topics = {"payments": 3}
    with play.fault("billing-1 finds it, and begins at its end"):
        member.join()
        member.commit(("payments", 0, 300, ""), ("payments", 1, 300, ""), ("payments", 2, 1400, ""))
    return play.reads(member, range(1401, 1405))

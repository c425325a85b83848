"""Command lines that undo changes that a log shows: for ``regroup investigate`` and ``regroup capture``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from coordinator_core.cli.spark_app import DAMAGE_WORDS
from coordinator_core.drill.canaries import PREFIX
from coordinator_core.durations import DAY_MS, clock_ms
from coordinator_core.errors import RegroupError
from coordinator_core.investigate.investigate import investigate, size_of
from coordinator_core.investigate.model import Case, Explanation
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.releases import Profile, profile_for_release
from coordinator_core.reports.investigation import Undo
from coordinator_core.rules.beside import beside_log
from coordinator_core.rules.topics import read_topics
from coordinator_core.topology import Topology

_RECENT_MS = DAY_MS
_LOOKED_AT_BYTES = 8 << 20
"""Size of a capture above which nobody waits for an investigation that nobody asked for."""
_REMOVALS_AND_RESETS = frozenset(
    {
        "offsets-deleted",
        "offsets-expired-while-active",
        "tombstones-without-a-rule",
        "reset-by-admin",
        "skipped-by-admin",
    }
)
_PLAINTEXT = "PLAINTEXT"


def undo_of(paths: Sequence[str], profile: Profile | None, on_damage: OnDamage, topology: Topology | None) -> Undo:
    """For the log at ``paths``, read as it was; of a cluster with one listener the addresses are in ``topology``.

    ``profile`` is the one that was asked for; ``None``: as the records tell.
    """
    return Undo(log_words(paths, profile, on_damage), cluster_words(topology))


def cluster_words(topology: Topology | None) -> Sequence[str]:
    """The words of a command line that name the cluster: its brokers, where they have one listener."""
    brokers = [] if topology is None else [broker for broker in topology.brokers.values() if broker.alive]
    listeners = {listener for broker in brokers for listener in broker.listeners}
    if len(listeners) != 1:
        return Undo().cluster
    (listener,) = listeners
    servers = ",".join(f"{host}:{port}" for broker in brokers for host, port in broker.listeners.values())
    return _cluster_words(servers, None if listener == _PLAINTEXT else "FILE")


def undo_commands(
    directory: str, bootstrap_server: str, command_config: str | None, profile: Profile | None
) -> list[str]:
    """Commands that put back the offsets that were deleted or reset in the last day, of a capture that was made just
    now; worst groups first. A large capture is not looked at: that is for ``regroup investigate``."""
    # The kernels take time to load.
    from coordinator_core.fold.inference import infer_profile

    now_ms = clock_ms()
    try:
        snapshot = discover([directory])
        if not 0 < size_of(snapshot) <= _LOOKED_AT_BYTES:
            return []
        topics = beside_log([directory]).topics
        case = Case(
            profile or infer_profile(snapshot.partitions), now_ms, None, None if topics is None else read_topics(topics)
        )
        since_ms = now_ms - _RECENT_MS
        found = investigate(snapshot, case, groups=None, since_ms=since_ms, on_damage=OnDamage.SALVAGE, damage=[])
    except RegroupError:
        # The capture is whole, even with changes in it; its readers are told of errors.
        return []
    undo = Undo(log_words([directory], profile, OnDamage.FAIL), _cluster_words(bootstrap_server, command_config))
    acts = _newest_first(
        one
        for one in found.explanations
        # Canaries are groups of `drill observe`, which deletes them.
        if one.code in _REMOVALS_AND_RESETS and not (one.group_id or "").startswith(PREFIX)
    )
    return [command for one in acts if (command := undo.command(one)) is not None]


def _newest_first(explanations: Iterable[Explanation]) -> Iterator[Explanation]:
    """Those of one group together, in the order of the worst, and the newest act first: who carries out all of them
    has what the group held before the oldest."""
    of_groups: dict[str | None, list[Explanation]] = {}
    for one in explanations:
        of_groups.setdefault(one.group_id, []).append(one)
    for acts in of_groups.values():
        yield from sorted(acts, key=lambda one: one.at_ms, reverse=True)


def log_words(paths: Sequence[str], profile: Profile | None, on_damage: OnDamage) -> list[str]:
    """The words of a command line that have the log at ``paths`` read by these rules."""
    rules = [] if profile is None else ["--kafka-version", str(profile.release)]
    if profile is not None and profile != profile_for_release(profile.release):
        rules += ["--coordinator", profile.coordinator]
    return [*paths, *rules, *DAMAGE_WORDS[on_damage]]


def _cluster_words(servers: str, command_config: str | None) -> list[str]:
    secured = () if command_config is None else ("--command-config", command_config)
    return ["--bootstrap-server", servers, *secured]

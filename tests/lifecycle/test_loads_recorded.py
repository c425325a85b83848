"""``loads`` says of logs that some releases do not load what brokers of these releases said of them."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.lifecycle.loads import PartitionLoad, ReleaseLoad, loads
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.releases import Profile, profile_for_release
from tests.lifecycle.failing_logs import DATA, LOGS, write_log

TABLE = {
    "new": ("3.8.1", "4.0.1", "4.0.2", "4.1.1", "4.1.2", "4.2.0", "4.2.1", "4.4.0"),
    "gap": ("2.0.1", "2.3.1", "2.4.1"),
    "large": ("2.0.0", "2.0.1"),
    "newer": ("2.0.1", "2.3.1"),
}
"""Releases by log whose brokers were given it."""
RECORDED = sorted(DATA.glob("*/*.json"))
_AT = re.compile(r" at offset (\d+) ")


def profile_of(recorded: Path) -> Profile:
    release, _, coordinator = recorded.stem.rpartition("-")
    return profile_for_release(release, coordinator)


def loaded(name: str, profile: Profile, directory: Path) -> tuple[str, list[PartitionLoad]]:
    digest = write_log(name, directory)
    (found,) = loads(discover([str(directory)]), profile, [profile], on_damage=OnDamage.FAIL, damage=[])
    return digest, list(found.partitions)


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_loads_says_what_the_broker_said(recorded: Path, tmp_path: Path) -> None:
    said: dict[str, Any] = json.loads(recorded.read_text(encoding="utf-8"))
    digest, found = loaded(recorded.parent.name, profile_of(recorded), tmp_path)
    assert digest == said["sha256"], "the broker was given other bytes"
    for one in found:
        words = said["partitions"].get(str(one.offsets_partition))
        finished = words is not None and "Finished loading" in words
        assert finished == (one.stop is None), (one, words)
        told = _AT.search(words or "")
        if told is not None:
            assert one.stop is not None
            assert one.stop.record_offset == int(told[1]), words


def test_issues_are_named_by_the_first_release_that_a_broker_showed_free_of_them(tmp_path: Path) -> None:
    """By log, partition and release: what the words above cannot tell."""

    @cache
    def loads_of(name: str) -> list[ReleaseLoad]:
        write_log(name, tmp_path / name)
        profiles = [profile_for_release(one, "new" if name == "new" else "classic") for one in TABLE[name]]
        snapshot = discover([str(tmp_path / name)])
        return list(loads(snapshot, profiles[-1], profiles, on_damage=OnDamage.FAIL, damage=[]))

    for name, partition, release, bug, fixed in (
        ("new", 1, "4.0.1", "KAFKA-19862", "4.0.2"),
        ("new", 1, "4.1.1", "KAFKA-19862", "4.1.2"),
        ("new", 2, "4.2.0", "KAFKA-20254", "4.2.1"),
        ("new", 3, "4.4.0", "KAFKA-21117", None),
        ("new", 4, "3.8.1", "KAFKA-17306", "4.0.1"),
        ("new", 6, "4.0.2", "KAFKA-19453", "4.1.1"),
        ("gap", 0, "2.3.1", "KAFKA-9065", "2.4.1"),
        ("large", 0, "2.0.0", "KAFKA-7286", "2.0.1"),
        ("newer", 0, "2.3.1", "KIP-915", None),
    ):
        stop = next(
            load.partitions[partition].stop
            for load in loads_of(name)
            if release in {str(profile.release) for profile in load.profiles}
        )
        assert stop is not None
        assert (stop.bug, stop.fixed_in and str(stop.fixed_in)) == (bug, fixed), (name, partition)


def test_every_log_was_given_to_brokers() -> None:
    given = {name: {path.stem.rpartition("-")[0] for path in RECORDED if path.parent.name == name} for name in LOGS}
    for name, releases in TABLE.items():
        assert given[name] >= set(releases), name

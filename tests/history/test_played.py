"""What was done to real clusters by hand, made of the records that their brokers wrote: what is to blame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coordinator_core.investigate.losses import TOPIC_DELETED
from tests.history.incidents import topics
from tests.history.logs import DAY, HOUR, MINUTE, Client, Log
from tests.history.test_investigate import KEY, explained, out

Capfd = pytest.CaptureFixture[str]
SECOND = 1000
OTHER = ("orders", 1)


def of(found: list[dict[str, Any]], code: str) -> dict[str, Any]:
    (one,) = (one for one in found if one["code"] == code)
    return one


def stays(log: Log, value: int, times: int, *keys: tuple[str, int]) -> Log:
    """A consumer with enable.auto.commit that waits for records."""
    for _ in range(times):
        log.wait(5 * SECOND).commit("g", dict.fromkeys(keys or (KEY,), value))
    return log


def test_what_a_group_lost_comes_before_groups_without_members(tmp_path: Path, capfd: Capfd) -> None:
    log = Log().generation("g", 1, Client("m", partitions=(KEY,)))
    log.commit("g", {KEY: 100}).wait(MINUTE).generation("g", 2).wait(8 * DAY).tombstones("g", KEY, with_group=True)
    for number in range(9):
        name = f"g-{number}"
        log.wait(HOUR).generation(name, 1, Client(name, partitions=(KEY,))).commit(name, {KEY: 1}).generation(name, 2)
    log.write(tmp_path)
    assert [one["code"] for one in explained(tmp_path, capfd)][:2] == ["offsets-expired", "group-is-empty"]
    assert "[info] offsets-expired" in out(capfd, str(tmp_path), "--kafka-version", "3.9.2", "--now-ms", str(log.at))

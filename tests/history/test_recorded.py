"""Logs that real brokers wrote: of each incident the verdict, the cause and the records are what the script did."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.cli.app import run
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import read_records
from coordinator_core.records.codec import decode_key
from tests.history.page import recorded_row
from tests.history.recorded import DATA, Part, parts, unpack

PAGE = (Path(__file__).parents[2] / "docs/investigate.md").read_text(encoding="utf-8")
INCIDENTS = [part for part in parts() if part.expected is not None]
TWINS = [part for part in parts() if part.expected is None]
EXPIRED = [part for part in INCIDENTS if part.expected is not None and part.expected.code == "offsets-expired"]
_KINDS = {
    0: "commit",
    1: "commit",
    2: "generation",
    3: "epoch",
    8: "current assignment",
    11: "share epoch",
    19: "streams member",
}
_TOMBSTONES = {0: "offset tombstone", 1: "offset tombstone", 2: "group tombstone", 3: "group tombstone"}


@pytest.fixture(scope="module")
def log_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Part], Path]:
    place = tmp_path_factory.mktemp("recorded")
    unpacked = cache(lambda log: unpack(log, place))
    return lambda part: unpacked(part.log)


@pytest.fixture(scope="module")
def kinds_of() -> Callable[[Path], Mapping[tuple[int, int], str]]:
    """Kind of each record by offsets partition and record offset, without a replay."""

    @cache
    def kinds(path: Path) -> Mapping[tuple[int, int], str]:
        found = {}
        for log in discover([str(path)]).partitions:
            for _, batch, records in read_records(log):
                for record in records:
                    if batch.is_control:
                        kind = "marker"
                    else:
                        assert record.key is not None
                        names = _TOMBSTONES if record.value is None else _KINDS
                        kind = names.get(decode_key(record.key).type, "another")
                        kind = f"transactional {kind}" if batch.is_transactional else kind
                    found[log.offsets_partition, record.offset] = kind
        return found

    return kinds


def investigated(
    path: Path, part: Part, capfd: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, dict[str, Any]]:
    code = run(["investigate", str(path), "--kafka-version", part.release, "--format", "json", *arguments])
    printed = capfd.readouterr()
    assert printed.out, printed.err
    return code, json.loads(printed.out)


def known(part: Part) -> list[str]:
    """The group, and what an operator knows who has no capture of the brokers' settings."""
    return ["--group", part.group, "--offsets-retention-ms", str(part.retention_ms)]


def above_info(document: dict[str, Any]) -> set[tuple[str, str]]:
    return {(one["group_id"], one["code"]) for one in document["explanations"] if one["severity"] != "info"}


@pytest.mark.parametrize("part", INCIDENTS, ids=lambda part: f"{part.log}-{part.incident}")
def test_tells_what_was_done(
    part: Part,
    log_of: Callable[[Part], Path],
    kinds_of: Callable[[Path], Mapping[tuple[int, int], str]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    path, expected, fault = log_of(part), part.expected, part.fault
    assert expected is not None
    code, document = investigated(path, part, capfd, *known(part))
    told = part.told(document)
    assert len(told) == 1, [(one["code"], one["verdict"]) for one in document["explanations"]]
    (one,) = told
    for words in expected.says:
        assert words in one["verdict"]
    assert (one["bug"] or {}).get("id") == expected.bug
    if part.like is None:
        assert recorded_row(part, one["verdict"]) in PAGE
    # Its records are those that the broker wrote then, and of the kind that it writes for that.
    places = [(event["offsets_partition"], event["record_offset"]) for event in one["evidence"]]
    assert places
    assert {kinds_of(path)[place] for place in places} == set(expected.records)
    for event in one["evidence"]:
        if event["offsets_partition"] == fault.offsets_partition:
            assert fault.first <= event["record_offset"] < fault.end, (event, fault)
    assert any(partition == fault.offsets_partition for partition, _ in places)
    if expected.cause is not None:
        causes = {row["cause"] for row in document["history"] if row["cause"] not in (None, "newer value")}
        assert causes == {expected.cause}
    # Nothing else went wrong.
    others = {code for _, code in above_info(document)} - {expected.code}
    assert others == set()
    assert code == (1 if above_info(document) else 0)


@pytest.mark.parametrize("part", EXPIRED, ids=lambda part: f"{part.log}-{part.incident}")
def test_without_the_retention_it_claims_no_more_than_the_log_tells(
    part: Part, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of one group, a short retention and a deletion by request look the same; the ages of all groups tell."""
    path = unpack(part.log, tmp_path)
    for beside in path.glob("*.json"):
        beside.unlink()
    _, alone = investigated(path, part, capfd, "--group", part.group)
    told = [one for one in alone["explanations"] if one["code"] in ("offsets-expired", "offsets-deleted")]
    assert told
    for one in told:
        assert one["code"] == "offsets-expired" or "Or it was expiry" in one["verdict"]
    for arguments in ([], ["--group", part.group, "--offsets-retention-ms", "60000"]):
        _, document = investigated(path, part, capfd, *arguments)
        codes = {one["code"] for one in document["explanations"] if one["group_id"] == part.group}
        assert "offsets-expired" in codes
        assert "offsets-deleted" not in codes


def test_without_the_retention_a_sweep_in_a_rebalance_is_not_excluded(
    log_of: Callable[[Part], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    (part,) = (one for one in INCIDENTS if one.expected is not None and one.expected.bug == "KAFKA-13636")
    _, document = investigated(log_of(part), part, capfd, "--group", part.group)
    (one,) = (one for one in document["explanations"] if one["severity"] != "info")
    assert one["code"] == "offsets-deleted"
    assert "Or it was expiry, if offsets.retention.minutes of the brokers is 1 or less" in one["verdict"]


@pytest.mark.parametrize("part", TWINS, ids=lambda part: f"{part.log}-{part.group}")
def test_the_clean_twin_has_nothing_above_info(
    part: Part, log_of: Callable[[Part], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    code, document = investigated(log_of(part), part, capfd, *known(part))
    assert [one["verdict"] for one in document["explanations"] if one["severity"] != "info"] == []
    assert code == 0


@pytest.mark.parametrize("log", sorted({part.log for part in parts()}))
def test_the_whole_cluster_has_the_same_and_nothing_of_the_twins(
    log: str, log_of: Callable[[Part], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    of_log = [part for part in parts() if part.log == log]
    codes = {part.expected.code for part in of_log if part.expected is not None}
    _, document = investigated(log_of(of_log[0]), of_log[0], capfd, *known(of_log[0])[2:])
    groups = {part.group for part in of_log if part.expected is None}
    found = above_info(document)
    assert {group for group, _ in found} & groups == set()
    assert {code for _, code in found} <= codes


def test_logs_are_small() -> None:
    """They are part of each clone."""
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 300_000

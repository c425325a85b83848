"""The directory of a capture holds that capture alone: of this cluster, and of the topics that its manifest lists."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator_core.cluster.capture import CaptureOptions, capture
from coordinator_core.cluster.snapshot import CaptureDirectory
from coordinator_core.errors import UsageError
from coordinator_core.log.discovery import CAPTURE_MANIFEST, CAPTURE_MARKER
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.topology import PartitionInfo, TopicInfo
from tests.cluster.kit import Json
from tests.log.builders import write_partition
from tests.restore.one_process import OneProcess

SEGMENT = "00000000000000000000.log"
TRANSACTION_TOPIC = "__transaction_state"


def cluster(**topics: int) -> OneProcess:
    """A cluster with an empty offsets topic of one partition; ids of other topics of two."""
    others = {name: (topic_id, {0: (0, 0, 0), 1: (0, 0, 0)}) for name, topic_id in topics.items()}
    client = OneProcess({}, {OFFSETS_TOPIC: (99, {0: (0, 0, 0)}), **others})
    untold = SimpleNamespace(results=[SimpleNamespace(error_code=0, configs=[])])
    client.answer = lambda name, _: untold if name == "DescribeConfigs" else None
    return client


def topic(name: str, *partitions: int) -> TopicInfo:
    return TopicInfo(name, f"id of {name}", tuple(PartitionInfo(one, 1, 0, (1,), (1,)) for one in partitions))


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_topic_that_is_not_captured_again_goes(tmp_path: Path) -> None:
    """What it held would be of another time than the rest."""
    output = tmp_path / "capture"
    client = cluster(__transaction_state=5)
    capture(client, output, CaptureOptions(topics_also=(TRANSACTION_TOPIC,), check_groups=True))
    assert {"groups.json", f"{TRANSACTION_TOPIC}-0", f"{TRANSACTION_TOPIC}-1"} < names(output)
    (output / "notes.txt").write_text("mine")
    (output / f"{TRANSACTION_TOPIC}-1/notes.txt").write_text("mine")
    (output / "backup-1").mkdir()
    (output / "backup-1/notes.txt").write_text("mine")
    manifest = capture(client, output, CaptureOptions())
    assert [one["topic"] for one in manifest["topics"]] == [OFFSETS_TOPIC]
    held = {"capture.json", "log-start-offset-checkpoint", "topics.json", "topology.json", f"{OFFSETS_TOPIC}-0"}
    assert names(output) == {*held, "notes.txt", f"{TRANSACTION_TOPIC}-1", "backup-1"}
    assert names(output / f"{TRANSACTION_TOPIC}-1") == names(output / "backup-1") == {"notes.txt"}


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_capture_that_was_killed_is_finished_with_what_it_has(tmp_path: Path, is_finished: bool) -> None:
    directory = CaptureDirectory(tmp_path)
    topics = [topic(OFFSETS_TOPIC, 0, 1), topic(TRANSACTION_TOPIC, 0)]
    directory.begin("cluster", topics)
    for name, partition in ((OFFSETS_TOPIC, 0), (OFFSETS_TOPIC, 1), (OFFSETS_TOPIC, 2), (TRANSACTION_TOPIC, 0)):
        write_partition(tmp_path, {0: b""}, partition=partition, topic=name)
    if is_finished:
        of_topics: list[Json] = [{"topic": one.name, "topic_id": one.topic_id, "partitions": []} for one in topics]
        directory.finish({"capture_version": 1, "cluster_id": "cluster", "topics": of_topics})
    directory.begin("cluster", topics)
    kept = {f"{OFFSETS_TOPIC}-0", f"{OFFSETS_TOPIC}-1", f"{TRANSACTION_TOPIC}-0"}
    assert names(tmp_path) - {CAPTURE_MANIFEST} == {*kept, CAPTURE_MARKER}


@pytest.mark.parametrize(("was", "is_now", "told"), [(100, 150, 100), (100, 0, 0), (0, 7, 0)])
def test_log_starts_are_those_before_the_log_was_read(was: int, is_now: int, told: int, tmp_path: Path) -> None:
    """Groups read on while their offsets are captured, and Streams deletes what it has read of repartition topics."""
    client = cluster(events=5)
    client.logs["events"] = (5, {0: (was, 200, 3), 1: (was, 200, 3)})
    usual = client.answer

    def answer(name: str, request: Any) -> Any:
        if name == "ListOffsets" and [topic.name for topic in request.topics] == [OFFSETS_TOPIC]:
            client.logs["events"] = (5, {0: (is_now, 300, 4), 1: (is_now, 300, 4)})
        return usual(name, request)

    client.answer = answer
    capture(client, tmp_path, CaptureOptions())
    (events,) = [one for one in json.loads((tmp_path / "topics.json").read_text())["topics"] if one["name"] == "events"]
    epoch = 3 if told == was else 4
    assert [(one["start_offset"], one["end_offset"], one["oldest_leader_epoch"]) for one in events["partitions"]] == [
        (told, 300, epoch)
    ] * 2


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_is_of_another_cluster_or_topic_is_refused(tmp_path: Path, is_killed: bool) -> None:
    """Also when that capture was killed before it had a manifest."""
    also = CaptureOptions(topics_also=(TRANSACTION_TOPIC,))
    output = tmp_path / "capture"
    capture(cluster(__transaction_state=5), output, also)
    if is_killed:
        manifest = json.loads((output / CAPTURE_MANIFEST).read_text())
        infos = [TopicInfo(one["topic"], one["topic_id"], ()) for one in manifest["topics"]]
        CaptureDirectory(output).begin("cluster", infos)
        (output / CAPTURE_MANIFEST).unlink()
    held = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match="it was deleted and made again"):
        capture(cluster(__transaction_state=6), output, also)
    other = cluster(__transaction_state=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OneProcess, "cluster_id", "another")
        with pytest.raises(UsageError, match="holds a capture of cluster cluster; this one is another"):
            capture(other, output, also)
    assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == held


def test_what_nothing_says_the_cluster_of_is_fetched_again(tmp_path: Path) -> None:
    """A version before this one, or a kill at the very start, leaves a marker without a cluster."""
    for partition in range(3):
        write_partition(tmp_path, {0: b"of another cluster"}, partition=partition)
    (tmp_path / CAPTURE_MARKER).write_text("A capture is being written here\n")
    capture(cluster(), tmp_path, CaptureOptions())
    assert sorted(tmp_path.glob(f"{OFFSETS_TOPIC}-*/*")) == [tmp_path / f"{OFFSETS_TOPIC}-0" / SEGMENT]

"""Brokers for captures, what clients do to them, and the comparison with the leaders' disks."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from kafka import TopicPartition
from kafka.admin import ConfigResource, KafkaAdminClient
from kafka.errors import KafkaError, NoError, RetriableError, TopicAlreadyExistsError, UnknownBrokerIdError
from kafka.structs import OffsetAndMetadata

from coordinator_core.cluster.capture import CaptureOptions, capture
from coordinator_core.cluster.client import Client
from coordinator_core.cluster.settings import client_settings
from coordinator_core.log.discovery import discover
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace, new_run_id
from tests.live.broker import Broker, Kafka, create_topics, free_ports, wait_for
from tests.live.wire import OFFSETS_TOPIC

TOPIC, PARTITIONS = "orders", 64
NOW_MS = 1_800_000_000_000
Json = dict[str, Any]
T = TypeVar("T")


class SecuredBroker(Broker):
    """A broker with a plain listener for the tests, and others (``name: protocol``) on ports of their own."""

    def __init__(
        self, kafka: Kafka, directory: Path, listeners: Mapping[str, str], settings: Mapping[str, str]
    ) -> None:
        self.ports = dict(zip(listeners, free_ports(len(listeners)), strict=True))
        super().__init__(kafka, directory, settings)
        text = self._config.read_text()
        extra = "".join(f",{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        protocols = "".join(f",{name}:{protocol}" for name, protocol in listeners.items())
        lines = []
        for line in text.splitlines():
            key = line.partition("=")[0]
            lines.append(line + {"listeners": extra, "listener.security.protocol.map": protocols}.get(key, ""))
        self._config.write_text("\n".join(lines) + "\n")

    def server(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"


class Commits:
    """Commits offsets of groups without members, ``PARTITIONS`` records in a batch."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap.split(",")
        self.admin = KafkaAdminClient(bootstrap_servers=self._bootstrap)
        self._count = 0

    def ask(self, what: str, question: Callable[[KafkaAdminClient], T]) -> T:
        """The answer to a question, asked again while the cluster has none: a coordinator moves or loads, say."""

        def answered() -> list[T] | None:
            try:
                return [question(self.admin)]
            except (RetriableError, UnknownBrokerIdError):
                self._begin_anew()
                return None

        (answer,) = wait_for(what, answered)
        return answer

    def _begin_anew(self) -> None:
        """A client keeps the coordinators, and the controller, that it has once found."""
        self.admin.close()
        self.admin = KafkaAdminClient(bootstrap_servers=self._bootstrap)

    def create_topic(self, name: str = TOPIC, partitions: int = PARTITIONS, replication_factor: int = 1) -> None:
        def create(admin: KafkaAdminClient) -> None:
            # It is there when the answer to the request before was lost.
            with suppress(TopicAlreadyExistsError):
                create_topics(admin, {name: partitions}, replication_factor)

        self.ask(f"topic {name}", create)

    def held(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets, as the coordinator answers."""
        found: dict[TopicPartition, OffsetAndMetadata] = self.ask(
            f"offsets of {group}", lambda admin: admin.list_group_offsets(group)[group]
        )
        return found

    def reassign(self, topic: str, replicas: Mapping[int, list[int]]) -> None:
        """Begin to have these replicas, by partition, the preferred leader first."""
        wanted = {TopicPartition(topic, number): brokers for number, brokers in replicas.items()}
        self.ask(f"replicas of {topic}", lambda admin: admin.alter_partition_reassignments(wanted))

    def commit(self, rounds: int, groups: int = 6, metadata: str = "round") -> None:
        for number in range(rounds):
            self._count += 1
            offsets = {
                TopicPartition(TOPIC, partition): OffsetAndMetadata(self._count, metadata, -1)
                for partition in range(PARTITIONS)
            }
            wait_for("a commit", lambda group=f"g-{number % groups}", offsets=offsets: self._one(group, offsets))

    def _one(self, group: str, offsets: dict[TopicPartition, OffsetAndMetadata]) -> bool:
        """One commit; ``False`` while the coordinator moves, or has not heard of the topic."""
        try:
            done = set(self.admin.alter_group_offsets(group, offsets).values()) == {NoError}
        except KafkaError:
            done = False
        if not done:
            self._begin_anew()
        return done

    def clean_eagerly(self) -> None:
        """Have the log cleaner clean the offsets topic whenever it can."""
        self.configure({"min.cleanable.dirty.ratio": "0.01", "segment.ms": "1000", "min.compaction.lag.ms": "0"})

    def configure(self, configs: dict[str, str]) -> None:
        """Settings of the offsets topic."""
        resource = ConfigResource("topic", OFFSETS_TOPIC, configs=configs)
        self.ask("the settings", lambda admin: admin.alter_configs([resource]))

    def close(self) -> None:
        self.admin.close()

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Commits again and again from another thread while the block runs."""
        stop = threading.Event()
        failed: list[BaseException] = []

        def go_on() -> None:
            while not stop.is_set():
                try:
                    self.commit(1)
                except BaseException as error:
                    failed.append(error)
                    return

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        assert not failed, failed


def capture_from(server: str, output: Path, properties: Mapping[str, str] | None = None, **options: Any) -> Json:
    with Client(client_settings(server, properties or {})) as client:
        return capture(client, output, CaptureOptions(**options))


def _segments(log_dir: Path, topic: str) -> dict[Path, int]:
    """Segments of a topic, and the numbers of their inodes: the cleaner gives a segment another one."""
    return {path: path.stat().st_ino for path in sorted(log_dir.glob(f"{topic}-*/*.log"))}


def _while_segments_stay(log_dir: Path, topic: str, read: Callable[[], T]) -> T:
    """What is read while the broker of a log directory renames and deletes no segment of the topic."""

    def attempt() -> list[T] | None:
        try:
            before = _segments(log_dir, topic)
            found = read()
            return [found] if _segments(log_dir, topic) == before else None
        except (FileNotFoundError, shutil.Error):
            return None

    (found,) = wait_for("segments that stay", attempt)
    return found


def log_bytes(log_dir: Path, topic: str = OFFSETS_TOPIC) -> dict[int, bytes]:
    """The bytes of every partition in a log directory, its segments one behind the other."""

    def read() -> dict[int, bytes]:
        return {
            int(directory.name.rpartition("-")[2]): b"".join(
                path.read_bytes() for path in sorted(directory.glob("*.log"))
            )
            for directory in log_dir.glob(f"{topic}-*")
        }

    return _while_segments_stay(log_dir, topic, read)


def ends(manifest: Json, topic: str = OFFSETS_TOPIC) -> dict[int, int]:
    """Pinned end of each partition."""
    return {row["partition"]: row["log_end_offset"] for row in partitions(manifest, topic)}


def partitions(manifest: Json, topic: str = OFFSETS_TOPIC) -> list[Json]:
    (found,) = [entry for entry in manifest["topics"] if entry["topic"] == topic]
    rows: list[Json] = found["partitions"]
    return rows


def up_to(data: bytes, end_offset: int) -> bytes:
    """The v2 batches of ``data`` that begin below ``end_offset``."""
    position = 0
    while position + 12 <= len(data):
        base = int.from_bytes(data[position : position + 8], "big")
        if base >= end_offset:
            break
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return data[:position]


def assert_as_on_disk(manifest: Json, output: Path, disks: Mapping[int, bytes], topic: str = OFFSETS_TOPIC) -> None:
    """The capture holds the leaders' bytes up to the pinned ends, and every partition of the topic."""
    captured = log_bytes(output, topic)
    wanted = {partition: up_to(disks[partition], end) for partition, end in ends(manifest, topic).items()}
    assert {partition: len(data) for partition, data in captured.items()} == {
        partition: len(data) for partition, data in wanted.items()
    }
    assert captured == wanted


def state_hash(log_dir: Path | list[str], scratch: Path, release: str = "4.3.1") -> str:
    """State hash of a run over a log directory, or over those of several brokers."""
    place = RunPlace(str(scratch), "c", "w", new_run_id())
    manifest = replay_to_run(
        discover([str(log_dir)] if isinstance(log_dir, Path) else log_dir),
        place,
        profile=profile_for_release(release),
        now_ms=NOW_MS,
    )
    return str(manifest["state_hash"])


def disk_copy(broker: Broker, target: Path) -> Path:
    """A copy of the log directory of a broker that runs, without files that it is about to rename or delete."""
    passing = shutil.ignore_patterns("*.tmp", "*.deleted", "*.cleaned", "*.swap")

    def copy() -> Path:
        shutil.rmtree(target, ignore_errors=True)
        return Path(shutil.copytree(broker.log_dir, target, ignore=passing))

    return _while_segments_stay(broker.log_dir, OFFSETS_TOPIC, copy)


def assert_state_as_on_disk(broker: Broker, output: Path, scratch: Path, release: str = "4.3.1") -> Path:
    """The replay of a capture, brought up to now, tells what that of the disk tells, of which it returns a copy."""

    def copied() -> Path | None:
        """``None`` when something was written meanwhile: the session of a member ends, say, or the cleaner runs."""
        capture_from(broker.bootstrap, output)
        copy = disk_copy(broker, scratch / "copy")
        return copy if log_bytes(copy) == log_bytes(output) else None

    copy = wait_for("a moment without a write", copied)
    hashes = [state_hash(log, scratch / "runs", release) for log in (output, copy)]
    assert hashes[0] == hashes[1]
    return copy

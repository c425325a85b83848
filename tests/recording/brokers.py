"""Brokers of any release from 0.9 on: fetched with Maven, with ZooKeeper where the release needs it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from coordinator_core.releases import Release, profile_for_release
from tests.live.broker import FAST_START, Broker, Kafka, fetch_jars
from tests.live.zookeeper import ZooKeeper
from tests.recording.session import Session

HERE = Path(__file__).resolve().parent
POM = HERE / "pom.xml"
NEWEST_TOOLS = "4.3.1"
"""Newest release of kafka-tools that Maven Central has."""

OFFSETS_PARTITIONS = 5
LONG_MS = "1800000"

SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    # Old offsets expire while the recorder waits.
    "offsets.retention.minutes": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.max.session.timeout.ms": LONG_MS,
    "log.index.size.max.bytes": "4096",
    "log.cleaner.dedupe.buffer.size": "10485760",
    "auto.create.topics.enable": "false",
    "delete.topic.enable": "true",
    "num.network.threads": "2",
    "num.io.threads": "3",
}
MODERN_SETTINGS = {
    "group.consumer.session.timeout.ms": LONG_MS,
    "group.consumer.max.session.timeout.ms": LONG_MS,
    "group.consumer.migration.policy": "bidirectional",
    "group.share.session.timeout.ms": LONG_MS,
    "group.share.max.session.timeout.ms": LONG_MS,
    "group.streams.session.timeout.ms": LONG_MS,
    "group.streams.max.session.timeout.ms": LONG_MS,
    "group.streams.initial.rebalance.delay.ms": "0",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    # Share groups of 4.0 and 4.1, streams groups of 4.1.
    "unstable.api.versions.enable": "true",
    "unstable.feature.versions.enable": "true",
}


@dataclass(frozen=True)
class Recorded:
    """A release with the coordinator that is recorded. ``features`` are set when its log directory is formatted."""

    version: str
    scala: str = "2.13"
    coordinator: str = "new"
    settings: Mapping[str, str] = field(default_factory=dict)
    features: Sequence[str] = ()
    plugin: bool = False

    @property
    def release(self) -> Release:
        return Release.parse(self.version)

    @property
    def needs_zookeeper(self) -> bool:
        return self.release < (3, 7)

    @property
    def name(self) -> str:
        """Directory of the case: ``k440``, and ``k381-new`` where the release has two coordinators."""
        digits = "".join(self.version.split("."))
        return f"k{digits}-new" if (3, 7) <= self.release < (4, 0) else f"k{digits}"

    @classmethod
    def of(cls, version: str) -> Recorded:
        """Another patch of a line that the table has, or a release with its default coordinator."""
        release = Release.parse(version)
        for one in RELEASES.values():
            if one.release[:2] == release[:2]:
                return replace(one, version=version)
        return cls(version, "2.12" if release < (2, 4) else "2.13", profile_for_release(version).coordinator)

    def fetch(self) -> RecordedKafka:
        """The jars, once, in ``.cache/``."""
        tools = min(self.release, Release.parse(NEWEST_TOOLS))
        goal = [
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-Dkafka.version={self.version}",
            f"-Dkafka.tools.version={tools}",
            f"-Dscala.version={self.scala}",
            *(("-Pzookeeper",) if self.release < (2, 4) else ()),
        ]
        jars = fetch_jars(f"recorded-{self.version}", POM, *goal)
        if self.plugin and not (jars / "TopologyPlugin.class").exists():
            source = HERE / "TopologyPlugin.java"
            subprocess.run(["javac", "-cp", f"{jars}/*", "-d", str(jars), str(source)], check=True)
        options = (*FAST_START, f"-Dlog4j.configuration=file:{HERE / 'log4j.properties'}")
        return RecordedKafka(jars, options, self.version)


class RecordedKafka(Kafka):
    """With the classes beside its jars."""

    def command(self, main_class: str, *arguments: str, heap: str = "128m", log_level: str = "WARN") -> list[str]:
        found = super().command(main_class, *arguments, heap=heap, log_level=log_level)
        return [f"{self.jars}/*:{self.jars}" if word == f"{self.jars}/*" else word for word in found]

    @property
    def dump_class(self) -> str:
        """The dump tool, which left the server's jar in 4.3."""
        return (
            "org.apache.kafka.tools.DumpLogSegments"
            if Release.parse(self.version) >= (4, 3)
            else "kafka.tools.DumpLogSegments"
        )


_JAVA = {"group.coordinator.rebalance.protocols": "classic,consumer"}
_SHARE = {"group.coordinator.rebalance.protocols": "classic,consumer,share"}
_STREAMS = {"group.coordinator.rebalance.protocols": "classic,consumer,share,streams"}
RELEASES = {
    one.version: one
    for one in (
        Recorded(
            "4.4.0",
            settings={"group.streams.topology.description.plugin.class": "TopologyPlugin"},
            plugin=True,
        ),
        Recorded("4.2.1"),
        Recorded("4.1.2", settings=_STREAMS, features=("share.version=1", "streams.version=1")),
        Recorded("4.0.2", settings={**_SHARE, "group.share.enable": "true"}),
        Recorded("3.8.1", settings={**_JAVA, "group.coordinator.new.enable": "true"}),
        Recorded(
            "3.7.2",
            settings={
                **_JAVA,
                "group.coordinator.new.enable": "true",
                # Its new coordinator refuses TxnOffsetCommit of a transaction that is open (INVALID_TXN_STATE).
                "transaction.partition.verification.enable": "false",
            },
        ),
        Recorded("3.3.2", coordinator="classic"),
        Recorded("2.0.1", "2.12", "classic"),
        Recorded("1.0.2", "2.12", "classic"),
        Recorded("0.10.1.1", "2.11", "classic"),
        Recorded("0.9.0.1", "2.11", "classic"),
    )
}


class RecordedBroker(Broker):
    """A broker of any release, and the ZooKeeper that it needs."""

    def __init__(self, recorded: Recorded, kafka: Kafka, directory: Path, settings: Mapping[str, str]) -> None:
        self.recorded = recorded
        modern = {} if recorded.needs_zookeeper else MODERN_SETTINGS
        self.settings = {**SETTINGS, **modern, **recorded.settings, **settings}
        super().__init__(kafka, directory, self.settings)
        self._zookeeper = ZooKeeper(kafka, directory, "tickTime=500\n") if recorded.needs_zookeeper else None
        if self._zookeeper is not None:
            self._use_zookeeper(self._zookeeper)

    def _use_zookeeper(self, zookeeper: ZooKeeper) -> None:
        self.log_dir.mkdir(exist_ok=True)
        settings = {
            **self.settings,
            "broker.id": "1",
            "zookeeper.connect": zookeeper.connect,
            # Shorter than a start, so that the session of the killed broker is over.
            "zookeeper.session.timeout.ms": "2500",
            "zookeeper.connection.timeout.ms": "60000",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.log_dir),
        }
        self._config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def start(self) -> None:
        if self._zookeeper is not None:
            self._zookeeper.start()
            self._zookeeper.wait_until_gone("/brokers/ids/1")
        super().start()

    def format(self, cluster_id: str, *options: str) -> None:
        if not self.recorded.needs_zookeeper:
            features = [word for feature in self.recorded.features for word in ("--feature", feature)]
            super().format(cluster_id, *features, *options)

    def _is_up(self) -> bool:
        self._check_alive()
        try:
            session = Session(self.port, self.recorded.release)
            try:
                return session.controller_is_up()
            finally:
                session.close()
        except (OSError, AssertionError):
            return False

    def _has_loaded(self) -> bool:
        return True

    def kill(self) -> None:
        super().kill()
        if self._zookeeper is not None:
            self._zookeeper.kill()

    def stop(self) -> None:
        super().stop()
        if self._zookeeper is not None:
            self._zookeeper.kill()

    def copied(self, directory: Path, settings: Mapping[str, str]) -> RecordedBroker:
        """A broker on a copy of all that this one, which must be dead, has on disk."""
        shutil.copytree(self.directory, directory)
        return RecordedBroker(self.recorded, self.kafka, directory, settings)

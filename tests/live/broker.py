"""A real Kafka for tests: fetched with Maven, run in KRaft mode on loopback, killed by process id.

A missing Java or Maven is an error: these tests are the proof against a real broker, so they do not skip.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, TypeVar
from uuid import uuid4

from kafka.admin import KafkaAdminClient

from tests.live import wire

HERE = Path(__file__).resolve().parent
POM = HERE / "pom.xml"
CACHE = HERE.parent.parent / ".cache"
KAFKA_VERSION = re.search(r"<kafka\.version>(.+)</kafka\.version>", POM.read_text())[1]  # type: ignore[index]

START_SECONDS = 300
"""Time that a broker may take to start or to load its partitions on a loaded machine: ten times what it takes alone."""

TOOL_PATIENCE = ("--timeout", str(START_SECONDS * 1000))
"""Options of Kafka's tool for consumer groups, which gives up after 30 s, of old releases after 5 s."""

FAST_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options that make a JVM start fast and work slowly."""

SESSION_TIMEOUT_MS = 600_000
"""Long enough that members outlive the restart of their broker, so that the reloaded groups keep them."""

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "BROKER",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "3",
    # Open transactions stay open, however long a test takes.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "86400000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.max.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.share.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.share.max.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    # The sweep for expired offsets writes tombstones; it must not run between the kill and the answers.
    "offsets.retention.check.interval.ms": "600000",
    # Index files are preallocated, one pair for each of the offsets partitions.
    "log.index.size.max.bytes": "65536",
    "log.cleaner.dedupe.buffer.size": "10485760",
    "auto.create.topics.enable": "false",
}

_FORMATTED: dict[tuple[str, ...], dict[str, bytes]] = {}
"""Files of a log directory that Kafka's tool has formatted, by jars, options and settings."""

_OF_ONE_BROKER = frozenset({"log.dirs", "listeners", "controller.quorum.voters", "node.id"})
"""Settings that differ between brokers whose formatted log directories have the same files but for ids."""

_LOADED_GROUPS = rf"\[GroupCoordinator .*Finished loading .* from {wire.OFFSETS_TOPIC}-(\d+) with epoch (\d+)"
_LOADED_TRANSACTIONS = (
    rf"Completed loading transaction metadata from {wire.TRANSACTIONS_TOPIC}-(\d+) for coordinator epoch (\d+)"
)

T = TypeVar("T")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def wait_for(what: str, probe: Callable[[], T | None], seconds: float = START_SECONDS) -> T:
    """The first result of ``probe`` that is neither ``None`` nor ``False``."""
    deadline = time.monotonic() + seconds
    while True:
        result = probe()
        if result is not None and result is not False:
            return result
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.1)


def create_topics(admin: KafkaAdminClient, partitions: Mapping[str, int], replication_factor: int = 1) -> None:
    """Topics with so many partitions, once a broker has a leader of each. The client itself waits 10 s for them."""
    topics = {
        name: {"num_partitions": count, "replication_factor": replication_factor} for name, count in partitions.items()
    }
    admin.create_topics(topics)
    admin.wait_for_topics([*topics], timeout_ms=START_SECONDS * 1000)


_FIRST_PORT, _LAST_PORT = 10_000, 32_767
_RESERVATIONS: list[socket.socket] = []


def free_ports(count: int) -> list[int]:
    """Ports of loopback that no other caller on this machine gets while this process lives.

    Servers bind them later, and again after each restart. So they are none that the kernel gives to outgoing
    connections: it would, between a kill and the restart, even to a client that looks for the killed server.
    """
    found: list[int] = []
    candidates = random.SystemRandom().sample(range(_FIRST_PORT, _last_port() + 1), 1000)
    for port in candidates:
        if len(found) == count:
            return found
        reservation = socket.socket(socket.AF_UNIX)
        try:
            # An abstract name: the kernel forgets it when the process ends, however that ends.
            reservation.bind(f"\0regroup-tests-port-{port}")
            with socket.socket() as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
            continue
        _RESERVATIONS.append(reservation)
        found.append(port)
    raise RuntimeError("no free ports")


def _last_port() -> int:
    first_of_kernel = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    return min(_LAST_PORT, first_of_kernel - 1) if first_of_kernel > 2 * _FIRST_PORT else _LAST_PORT


def new_cluster_id() -> str:
    """A random one, as ``kafka-storage random-uuid`` prints it (org.apache.kafka.common.Uuid)."""
    while (text := base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise RuntimeError("Java is missing; `make setup` installs it or says how")
    return found


def fetch_jars(name: str, pom: Path, *goal: str) -> Path:
    """The directory in ``.cache/`` with the jars that a goal of ``pom`` copies, fetched once.

    Safe in several processes.
    """
    jars = CACHE / f"{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.is_dir():
            if shutil.which("mvn") is None:
                raise RuntimeError("Maven is missing; `make setup` installs it or says how")
            with tempfile.TemporaryDirectory(dir=CACHE) as fetched:
                output = f"-DoutputDirectory={fetched}/jars"
                command = ["mvn", "--quiet", "--batch-mode", "--file", str(pom), *goal, output]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    raise RuntimeError(f"Maven could not fetch {name}:\n{done.stdout}{done.stderr}")
                os.replace(f"{fetched}/jars", jars)
    return jars


@cache
def class_archive(jars: Path) -> tuple[str, ...]:
    """Options of a JVM that maps the classes of a broker as they were parsed once; it starts in half the CPU.

    The archive stands beside ``jars``. It is made by a broker that starts and stops. Safe in several processes.
    """
    program = Path(java()).resolve()
    identity = hashlib.sha256(f"{program} {program.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    archive = jars.with_name(f"{jars.name}-{identity}.jsa")
    with (CACHE / "archive.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as place:
                written = Path(place) / "classes.jsa"
                options = (*FAST_START, f"-XX:ArchiveClassesAtExit={written}", "-Xlog:disable")
                broker = Broker(Kafka(jars, options), Path(place) / "broker")
                broker.start()
                broker.stop()
                os.replace(written, archive)
    # The JVM would report an archive that does not fit on standard output, and do without.
    return f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"


class Kafka:
    """One release of Kafka: the jars that ``pom.xml`` names."""

    def __init__(self, jars: Path, jvm_options: Sequence[str] = FAST_START, version: str = KAFKA_VERSION) -> None:
        self.jars = jars
        self.jvm_options = jvm_options
        self.version = version

    @classmethod
    def fetch(cls, version: str = KAFKA_VERSION) -> Kafka:
        """The jars, as :func:`fetch_jars` has them. Most brokers are of the release that ``pom.xml`` names, so that one
        has a :func:`class_archive`."""
        goal = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-Dkafka.version={version}")
        jars = fetch_jars(f"kafka-{version}", POM, *goal)
        archive = class_archive(jars) if version == KAFKA_VERSION else ()
        return cls(jars, (*FAST_START, *archive), version)

    def command(self, main_class: str, *arguments: str, heap: str = "128m", log_level: str = "WARN") -> list[str]:
        return [
            java(),
            f"-Xmx{heap}",
            *self.jvm_options,
            # Java 17 takes the encoding of its output from the locale, later releases from stdout.encoding.
            "-Dfile.encoding=UTF-8",
            "-Dstdout.encoding=UTF-8",
            f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}",
            f"-Dregroup.log.level={log_level}",
            "-cp",
            f"{self.jars}/*",
            main_class,
            *arguments,
        ]

    def tool(self, main_class: str, *arguments: str, heap: str = "256m") -> str:
        """Standard output of one of Kafka's own command-line tools."""
        command = self.command(main_class, *arguments, heap=heap)
        done = subprocess.run(
            command, capture_output=True, text=True, encoding="utf-8", check=False, timeout=START_SECONDS
        )
        if done.returncode != 0:
            raise RuntimeError(f"{main_class} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def dump_log(self, *segments: Path) -> str:
        """Text of Kafka's dump tool for segments of the offsets log."""
        files = ",".join(str(segment) for segment in segments)
        return self.tool(
            "org.apache.kafka.tools.DumpLogSegments",
            "--offsets-decoder",
            "--print-data-log",
            "--files",
            files,
        )


class Broker:
    """A combined broker and controller on two loopback ports. Its directory survives kills and restarts."""

    def __init__(
        self,
        kafka: Kafka,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        heap: str = "512m",
        start_seconds: float = START_SECONDS,
    ) -> None:
        self.kafka = kafka
        self.heap = heap
        self.start_seconds = start_seconds
        self.directory = directory
        self.log_dir = directory / "log"
        self.log_file = directory / "broker.log"
        self.port, self.controller_port = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._log_position = 0
        directory.mkdir(parents=True, exist_ok=True)
        self._config = directory / "server.properties"
        self._values = {
            **SETTINGS,
            "log.dirs": str(self.log_dir),
            "listeners": f"BROKER://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            **(settings or {}),
        }
        self._config.write_text("".join(f"{key}={value}\n" for key, value in self._values.items()))

    def configure(self, settings: Mapping[str, str]) -> None:
        """Settings from the next start on, in place of those before."""
        with self._config.open("a") as file:
            file.writelines(f"{key}={value}\n" for key, value in settings.items())

    @property
    def pid(self) -> int:
        """Process id while it runs."""
        assert self._process is not None
        return self._process.pid

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, and return when clients can use the broker and its coordinators have loaded every partition."""
        if not (self.log_dir / "meta.properties").exists():
            self.format(new_cluster_id())
        self._stderr = self.log_file.open("ab")
        self._log_position = self._stderr.tell()
        command = self.kafka.command("kafka.Kafka", str(self._config), heap=self.heap, log_level="INFO")
        # In a session of its own, a Ctrl-C on the tests reaches it only through their clean-up.
        self._process = subprocess.Popen(command, stdout=self._stderr, stderr=self._stderr, start_new_session=True)
        try:
            wait_for("Kafka to start", self._is_up, self.start_seconds)
            wait_for("Kafka to load its coordinators", self._has_loaded, self.start_seconds)
        except BaseException:
            self.kill()
            raise

    def format(self, cluster_id: str, *options: str) -> None:
        """Make the log directory that of a broker of the cluster.

        Kafka's tool does it for the first broker. What it writes for another one differs in the ids alone.
        """
        # Settings as that for unstable features decide which versions are written.
        settings = (f"{key}={value}" for key, value in self._values.items() if key not in _OF_ONE_BROKER)
        kind = str(self.kafka.jars), *options, *sorted(settings)
        if kind not in _FORMATTED:
            self.kafka.tool("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._config), *options)
            files = [path for path in self.log_dir.rglob("*") if path.is_file()]
            _FORMATTED[kind] = {str(path.relative_to(self.log_dir)): path.read_bytes() for path in files}
            return
        ids = {"cluster.id": cluster_id, "node.id": self._values["node.id"], "directory.id": new_cluster_id()}
        for name, data in _FORMATTED[kind].items():
            if name == "meta.properties":
                lines = [line.partition("=")[::2] for line in data.decode().splitlines()]
                data = "".join(f"{key}={ids.get(key, value)}\n" for key, value in lines if value).encode()
            path = self.log_dir / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def log_since_start(self) -> str:
        with self.log_file.open("rb") as file:
            file.seek(self._log_position)
            return file.read().decode("utf-8", "replace")

    def _check_alive(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"Kafka ended with {self._process.returncode}:\n{self.log_since_start()[-4000:]}")

    def _is_up(self) -> bool:
        self._check_alive()
        try:
            with self.connect() as connection:
                return bool(connection.brokers())
        except OSError:
            return False

    def _has_loaded(self) -> bool:
        """Whether every partition of groups and transactions was loaded under its current leader epoch.

        After a SIGKILL a partition is loaded twice: for the old leader epoch while the broker is still
        fenced, and again for a newer one, so that the first load says nothing. Metadata tell a new epoch before
        the coordinators hear of it.
        """
        self._check_alive()
        try:
            with self.connect() as connection:
                epochs = connection.leader_epochs(wire.OFFSETS_TOPIC)
                if epochs == {}:
                    # The first question for a coordinator creates the topic.
                    connection.find_coordinator("")
                of_transactions = connection.leader_epochs(wire.TRANSACTIONS_TOPIC)
        except TimeoutError:
            return False
        if not epochs or of_transactions is None:
            return False
        log = self.log_since_start()
        return all(
            set(wanted.items()) <= {(int(partition), int(epoch)) for partition, epoch in re.findall(loaded, log)}
            for wanted, loaded in ((epochs, _LOADED_GROUPS), (of_transactions, _LOADED_TRANSACTIONS))
        )

    def connect(self) -> wire.Connection:
        return wire.Connection("127.0.0.1", self.port)

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, no clean-shutdown marker is written."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM: a clean shutdown."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_SECONDS)
            self._process = None
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None

    def copy_log(self, target: Path) -> Path:
        """A copy of the log directory, as an operator would take it."""
        return Path(shutil.copytree(self.log_dir, target))

    def offsets_segments(self, log_dir: Path | None = None) -> list[Path]:
        """Segments of the offsets topic that are not empty, by partition and base offset."""
        found = [
            path for path in (log_dir or self.log_dir).glob(f"{wire.OFFSETS_TOPIC}-*/*.log") if path.stat().st_size
        ]
        return sorted(found, key=lambda path: (int(path.parent.name.rpartition("-")[2]), path.name))

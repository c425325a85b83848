"""Three 4.3.1 brokers on loopback, each a controller too, with one cluster id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from kafka.protocol.metadata import MetadataRequest

from tests.cluster.kit import Commits
from tests.live.broker import Broker, Kafka, free_ports, new_cluster_id, wait_for
from tests.live.wire import OFFSETS_TOPIC

IDS = (1, 2, 3)


class _Node(Broker):
    """One of several brokers: which partitions it has to load is not for it alone to say."""

    def _has_loaded(self) -> bool:
        self._check_alive()
        return True


class ThreeBrokers:
    """``settings`` are those of every broker. Offsets partitions have three replicas."""

    def __init__(self, kafka: Kafka, directory: Path, settings: dict[str, str]) -> None:
        controllers = dict(zip(IDS, free_ports(len(IDS)), strict=True))
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in controllers.items())
        self.nodes: dict[int, _Node] = {}
        for node, controller_port in controllers.items():
            port = free_ports(1)[0]
            broker = _Node(
                kafka,
                directory / f"broker-{node}",
                {
                    "node.id": str(node),
                    "broker.rack": f"rack-{node}",
                    "controller.quorum.voters": voters,
                    "listeners": f"BROKER://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
                    "offsets.topic.replication.factor": "3",
                    "default.replication.factor": "3",
                    # Timeouts are Kafka's own: on a machine that does other things, brokers are silent for seconds,
                    # and those that are given up for it lose leaders and replicas in sync that tests count on.
                    "broker.heartbeat.interval.ms": "500",
                    **settings,
                },
                heap="256m",
            )
            broker.port, broker.controller_port = port, controller_port
            self.nodes[node] = broker
        cluster_id = new_cluster_id()
        with ThreadPoolExecutor(len(IDS)) as threads:
            list(threads.map(lambda node: node.format(cluster_id), self.nodes.values()))

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def start(self, *ids: int) -> None:
        with ThreadPoolExecutor(len(IDS)) as threads:
            list(threads.map(lambda node: self.nodes[node].start(), ids or IDS))

    def kill(self) -> None:
        for node in self.nodes.values():
            node.kill()

    def create_offsets_topic(self) -> None:
        """The first question for a coordinator creates it, once brokers enough are there.

        Every broker is asked. A client that starts at a broker behind the others would not know the controller.
        """

        def created() -> bool:
            with self.nodes[1].connect() as connection:
                connection.find_coordinator("")
            known = [self.isr(node) for node in self.nodes]
            return all(each and all(len(isr) == len(IDS) for isr in each.values()) for each in known)

        wait_for("replicas of the offsets topic", created)

    def _partitions(self, ask: int) -> list[Any]:
        with self.nodes[ask].connect() as connection:
            wanted = MetadataRequest.MetadataRequestTopic(name=OFFSETS_TOPIC)
            answer = connection.send(MetadataRequest[9](topics=[wanted], allow_auto_topic_creation=False))
            return [partition for topic in answer.topics for partition in topic.partitions]

    def leaders(self, ask: int = 1) -> dict[int, int]:
        """Leader of each offsets partition as broker ``ask`` knows it, -1 for none."""
        return {each.partition_index: each.leader_id for each in self._partitions(ask)}

    def isr(self, ask: int = 1) -> dict[int, list[int]]:
        return {each.partition_index: each.isr_nodes for each in self._partitions(ask)}

    def when_led(self, ask: int, by: Callable[[int], bool]) -> dict[int, int]:
        """Leaders, once all partitions have one that ``by`` accepts."""

        def led() -> dict[int, int] | None:
            found = self.leaders(ask)
            return found if found and all(map(by, found.values())) else None

        return wait_for("leaders", led)

    def have_moved(self, before: dict[int, int]) -> bool:
        """Whether every partition has another leader than ``before``, as all brokers know it."""
        now = [self.leaders(node) for node in self.nodes]
        return all(each.get(number, -1) not in (-1, leader) for each in now for number, leader in before.items())

    def when_in_sync(self) -> None:
        """Once every replica is in sync, as all brokers know it."""

        def in_sync() -> bool:
            found = [isr for node in self.nodes for isr in self.isr(node).values()]
            return all(sorted(isr) == list(IDS) for isr in found)

        wait_for("replicas in sync", in_sync)

    def leader_bytes(self, leaders: dict[int, int]) -> dict[int, bytes]:
        """The bytes of each partition on the disk of its leader."""
        return {
            partition: b"".join(
                path.read_bytes()
                for path in sorted((self.nodes[leader].log_dir / f"{OFFSETS_TOPIC}-{partition}").glob("*.log"))
            )
            for partition, leader in leaders.items()
        }


@contextmanager
def three_brokers(kafka: Kafka, directory: Path, settings: dict[str, str]) -> Iterator[tuple[ThreeBrokers, Commits]]:
    """The brokers, running, with the offsets topic and one to commit for on all of them."""
    cluster = ThreeBrokers(kafka, directory, settings)
    try:
        cluster.start()
        cluster.create_offsets_topic()
        with closing(Commits(cluster.bootstrap)) as commits:
            commits.create_topic(replication_factor=3)
            yield cluster, commits
    finally:
        cluster.kill()

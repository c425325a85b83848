"""Brokers whose answers are not about what they were asked: nothing they say becomes a path."""

from __future__ import annotations

import json
import queue
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import NodeNotReadyError, UnknownBrokerIdError
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse

from coordinator_core.cli.app import run
from coordinator_core.cluster.capture import CaptureOptions, capture
from coordinator_core.cluster.client import BROKER_CONFIG, Client
from coordinator_core.cluster.errors import ClusterError
from coordinator_core.cluster.fetch import Fetcher, Fetching, RateLimiter
from coordinator_core.cluster.files import PartitionFiles
from coordinator_core.cluster.settings import client_settings
from coordinator_core.cluster.snapshot import CaptureDirectory
from coordinator_core.errors import ExitCode, UsageError
from coordinator_core.log.types import OFFSETS_TOPIC
from tests.restore.one_process import OneProcess

APIS = {1: (4, 12), 2: (1, 8), 3: (1, 9), 18: (0, 3), 23: (2, 4)}
"""Versions that the broker serves, by API key."""


class _Broker(socketserver.ThreadingTCPServer):
    daemon_threads = True
    names: Sequence[str] = ()
    partitions: Sequence[int] = ()


class _Connection(socketserver.StreamRequestHandler):
    """Answers ApiVersions and Metadata in Kafka's own encoding, and hangs up on anything else."""

    def handle(self) -> None:
        while size := self.rfile.read(4):
            request = self.rfile.read(struct.unpack(">i", size)[0])
            api_key, version, correlation = struct.unpack_from(">hhi", request)
            if api_key == ApiVersionsRequest.API_KEY:
                body = self._api_versions().encode(version=version)
            elif api_key == MetadataRequest.API_KEY:
                asked = MetadataRequest.decode(request, version=version, header=True).topics
                body = self._metadata(bool(asked)).encode(version=version)
            else:
                return
            # Only the header of ApiVersions has no tagged fields when the body is flexible (KIP-511).
            tags = b"\0" if api_key == MetadataRequest.API_KEY and version >= 9 else b""
            answer = struct.pack(">i", correlation) + tags + bytes(body)
            self.wfile.write(struct.pack(">i", len(answer)) + answer)

    def _api_versions(self) -> ApiVersionsResponse:
        kind = ApiVersionsResponse.ApiVersion
        keys = [kind(api_key=key, min_version=low, max_version=high) for key, (low, high) in APIS.items()]
        return ApiVersionsResponse(error_code=0, api_keys=keys, throttle_time_ms=0)

    def _metadata(self, is_of_topics: bool) -> MetadataResponse:
        broker, topic = self.server, MetadataResponse.MetadataResponseTopic
        assert isinstance(broker, _Broker)
        host, port = broker.server_address[:2]
        partitions = [
            topic.MetadataResponsePartition(
                error_code=0,
                partition_index=partition,
                leader_id=1,
                leader_epoch=0,
                replica_nodes=[1],
                isr_nodes=[1],
                offline_replicas=[],
            )
            for partition in broker.partitions
        ]
        return MetadataResponse(
            throttle_time_ms=0,
            brokers=[MetadataResponse.MetadataResponseBroker(node_id=1, host=host, port=port, rack=None)],
            cluster_id="c",
            controller_id=1,
            topics=[
                topic(error_code=0, name=name, is_internal=False, partitions=partitions)
                for name in (broker.names if is_of_topics else ())
            ],
        )


@contextmanager
def lying_broker(names: Sequence[str], partitions: Sequence[int]) -> Iterator[Client]:
    with _Broker(("127.0.0.1", 0), _Connection) as broker:
        broker.names, broker.partitions = names, partitions
        threading.Thread(target=broker.serve_forever, daemon=True).start()
        with Client(client_settings("{}:{}".format(*broker.server_address), {})) as client:
            yield client
        broker.shutdown()


@pytest.mark.parametrize(
    "names",
    [["../../escaped"], ["/tmp/escaped"], ["__consumer_offsets/x"], [".."], ["other"], ["__consumer_offsets"] * 2, []],
    ids=str,
)
def test_a_capture_takes_no_other_topic_than_it_asked_for(tmp_path: Path, names: list[str]) -> None:
    output = tmp_path / "evil" / "snapshot"
    with lying_broker(names, [0]) as client, pytest.raises(ClusterError, match="was asked for the metadata of"):
        capture(client, output, CaptureOptions())
    assert [path for path in tmp_path.rglob("*") if output not in path.parents] == [tmp_path / "evil", output]
    assert list(output.rglob("*.log")) == []


@pytest.mark.parametrize("partitions", [[-1], [0, 0]], ids=str)
def test_a_topic_has_no_such_partitions(partitions: list[int]) -> None:
    with lying_broker([OFFSETS_TOPIC], partitions) as client, pytest.raises(ClusterError, match="no topic has"):
        client.topic(OFFSETS_TOPIC)


def test_sound_answers_of_the_same_broker_are_taken() -> None:
    with lying_broker([OFFSETS_TOPIC], [1, 0]) as client:
        assert [each.partition for each in client.topic(OFFSETS_TOPIC).partitions] == [0, 1]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_topic_that_a_broker_does_not_describe_is_not_waited_for(is_there: bool) -> None:
    """Another error than one that passes; with partitions the topic is there."""
    client = OneProcess({}, {OFFSETS_TOPIC: (99, {0: (0, 0, 0)} if is_there else {})})
    client.patience_seconds = 0
    answer = client._metadata(SimpleNamespace(topics=[SimpleNamespace(name=OFFSETS_TOPIC)]))
    answer.topics[0].error_code = 17
    client.answer = lambda name, _: answer
    if is_there:
        assert client.topic(OFFSETS_TOPIC).partitions
        return
    with pytest.raises(ClusterError, match=rf"metadata of {OFFSETS_TOPIC}: error 17 \("):
        client.topic(OFFSETS_TOPIC)


@pytest.mark.parametrize("answers", [0, 2])
def test_one_question_has_one_answer(answers: int) -> None:
    client = OneProcess({}, {})
    partition = SimpleNamespace(current_voters=[], error_code=0, leader_id=1)
    told = SimpleNamespace(error_code=0, name="n", value="1", configs=[], partitions=[partition])
    client.answer = lambda _name, _request: SimpleNamespace(
        error_code=0, results=[told] * answers, topics=[told] * answers
    )
    client.knows = lambda request: True  # type: ignore[method-assign]
    for ask in (
        lambda: client.configs(BROKER_CONFIG, "1", ["n"], 1),
        lambda: client.epoch_end_offset("t", 0, 1, 0),
        client.quorum,
    ):
        with pytest.raises(ClusterError, match=f"answers {answers} times"):
            ask()


class _ReadsFromReplicas(OneProcess):
    """The leader sends readers to broker 2, which does not answer at first."""

    def __init__(self) -> None:
        super().__init__({}, {})
        self.asked: list[int | None] = []

    def ask(self, make: Callable[[], Any], node_id: int | None = None, *, patience: float | None = None) -> Any:
        if type(make()).__name__ != "FetchRequest":
            return super().ask(make, node_id, patience=patience)
        self.asked.append(node_id)
        if self.asked == [1, 2]:
            raise ClusterError("broker 2 gives no answer")
        preferred = 2 if node_id == 1 else -1
        kinds = {"error_code": 0, "high_watermark": 100, "preferred_read_replica": preferred, "records": b""}
        topic = SimpleNamespace(topic=OFFSETS_TOPIC, partitions=[SimpleNamespace(partition_index=0, **kinds)])
        return SimpleNamespace(error_code=0, throttle_time_ms=0, responses=[topic])


def test_where_a_leader_sends_readers_is_read(tmp_path: Path) -> None:
    """Its answer has no records: that does not mean that they are compacted away."""
    client = _ReadsFromReplicas()
    state = Fetching(0, 0, 100, 1, 0, PartitionFiles(tmp_path / f"{OFFSETS_TOPIC}-0"), 0)
    Fetcher(client, OFFSETS_TOPIC, limiter=RateLimiter(None)).run([state])
    assert (state.done, client.asked) == (True, [1, 2, 1, 2])


@pytest.mark.parametrize("throttle_ms", [0, 200_000])
def test_an_error_does_not_wait_for_a_byte_rate_or_a_quota(tmp_path: Path, throttle_ms: int) -> None:
    """Broker 1 is paid for, or throttles, for minutes; meanwhile broker 2 has an error. An interrupt is the same."""
    client = OneProcess({}, {})
    is_waiting = threading.Event()

    class Limiter(RateLimiter):
        def wait(self, seconds: float) -> None:
            if seconds > 60:
                is_waiting.set()
            super().wait(seconds)

    def ask(make: Callable[[], Any], node_id: int | None = None, *, patience: float | None = None) -> Any:
        if node_id == 2:
            is_waiting.wait()
        kinds = {"error_code": 87 if node_id == 2 else 0, "high_watermark": 100, "preferred_read_replica": -1}
        partition = SimpleNamespace(partition_index=node_id, records=b"x" * 200, **kinds)
        topic = SimpleNamespace(topic=OFFSETS_TOPIC, partitions=[partition])
        return SimpleNamespace(error_code=0, throttle_time_ms=throttle_ms, responses=[topic])

    client.ask = ask  # type: ignore[method-assign]
    states = [
        Fetching(number, 0, 100, number, 0, PartitionFiles(tmp_path / f"{OFFSETS_TOPIC}-{number}"), 0)
        for number in (1, 2)
    ]
    fetcher = Fetcher(client, OFFSETS_TOPIC, limiter=Limiter(None if throttle_ms else 1))
    with ThreadPoolExecutor(1) as threads:
        fetching = threads.submit(fetcher.run, states)
        with pytest.raises(ClusterError, match=f"{OFFSETS_TOPIC}-2: error 87"):
            fetching.result(timeout=60)


class _Throttled(OneProcess):
    """Empties so many answers for a quota of some seconds each, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, emptied: int) -> None:
        super().__init__({}, {OFFSETS_TOPIC: (99, {0: (0, 100, 0)})})
        self.now, self.emptied, self.asked = 0.0, emptied, 0
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self.wait)
        monkeypatch.setattr("coordinator_core.cluster.fetch.time", clock)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def ask(self, make: Callable[[], Any], node_id: int | None = None, *, patience: float | None = None) -> Any:
        if type(make()).__name__ != "FetchRequest":
            return super().ask(make, node_id, patience=patience)
        self.asked += 1
        assert self.asked < 100, "it goes on for ever"
        partition = SimpleNamespace(
            partition_index=0, error_code=0, high_watermark=100, preferred_read_replica=-1, records=b""
        )
        topic = SimpleNamespace(topic=OFFSETS_TOPIC, partitions=[partition])
        is_emptied = self.asked <= self.emptied
        responses = [] if is_emptied else [topic]
        return SimpleNamespace(error_code=0, throttle_time_ms=4000 if is_emptied else 0, responses=responses)

    def fetched(self, place: Path) -> Fetching:
        limiter = RateLimiter(None)
        limiter.wait = self.wait  # type: ignore[method-assign]
        state = Fetching(0, 0, 100, 1, 0, PartitionFiles(place), 0)
        Fetcher(self, OFFSETS_TOPIC, limiter=limiter).run([state])
        return state


def test_a_quota_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than a broker without progress is, 5 s."""
    client = _Throttled(monkeypatch, 3)
    assert client.fetched(tmp_path).done
    assert client.now > 2 * client.patience_seconds


def test_a_quota_that_empties_every_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = rf"{OFFSETS_TOPIC}-0 from offset 0 to 100 \(broker 1 throttles, and empties its answers\); the quota of this"
    with pytest.raises(ClusterError, match=f"no progress for 5 s; missing are {said}"):
        _Throttled(monkeypatch, 100).fetched(tmp_path)


def test_a_broker_that_is_back_is_looked_for_without_patience_too() -> None:
    """The library has looked for brokers while it was gone."""
    client = Client.__new__(Client)
    known: set[int | None] = set()

    class Manager:
        cluster = SimpleNamespace(refresh_metadata=lambda: known.add(2))

        @staticmethod
        def send_in_turn(_: Any, node_id: int | None) -> Any:
            if node_id not in known:
                raise UnknownBrokerIdError(node_id)
            return ApiVersionsResponse()

        @staticmethod
        def run(call: Callable[..., Any], *values: Any) -> Any:
            return call(*values)

    client._manager = Manager()
    client._check_encodes = lambda _: None  # type: ignore[method-assign]
    with pytest.raises(ClusterError, match="broker 2 gives no answer"):
        client.ask(lambda: None, 2, patience=0)
    assert client.ask(lambda: None, 2, patience=0)


@pytest.mark.parametrize("throttle_ms, said", [(600_000, None), (13_027_750, "broker 2 throttles for 13027750 ms")])
def test_a_byte_rate_may_throttle_for_hours(throttle_ms: int, said: str | None) -> None:
    """4.3.1 says so for a rate of 20 bytes a second."""
    client = Client.__new__(Client)
    answer = ApiVersionsResponse(throttle_time_ms=throttle_ms)
    client._manager = SimpleNamespace(run=lambda *_: answer, send_in_turn=None)
    client._check_encodes = lambda _: None  # type: ignore[method-assign]
    with nullcontext() if said is None else pytest.raises(ClusterError, match=said):
        client.ask(lambda: None, 2, patience=0)


def test_where_nobody_can_be_asked_the_error_says_so() -> None:
    client = Client.__new__(Client)

    def run(*_: object) -> None:
        raise NodeNotReadyError("No node_id provided")

    client._manager = SimpleNamespace(run=run, send_in_turn=None)
    client._check_encodes = lambda _: None  # type: ignore[method-assign]
    with pytest.raises(ClusterError, match="no answer: no broker takes requests now, or all throttle this client"):
        client.ask(lambda: None, patience=0)


def test_a_value_that_no_request_holds_is_not_waited_for() -> None:
    """The library would never answer for it."""
    with lying_broker([OFFSETS_TOPIC], [0]) as client, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(client.positions, {(OFFSETS_TOPIC, 0): 1}, 10**20)
        try:
            with pytest.raises(UsageError, match="ListOffsetsRequest cannot hold a value"):
                asked.result(timeout=60)
        finally:
            # Ends the wait of a thread that still asks.
            client._net.stop()


def test_a_listener_that_never_answers_a_tls_handshake_is_not_waited_for() -> None:
    """A process that stands still, or a load balancer without a broker: the kernel takes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = "{}:{}".format(*listener.getsockname())
        settings = client_settings(server, {"security.protocol": "SSL", "default.api.timeout.ms": "1"})
        settings = replace(settings, client={**settings.client, "socket_connection_setup_timeout_ms": 2000})
        # A daemon: without an end of the wait the test fails, and does not hang.
        errors: queue.SimpleQueue[str] = queue.SimpleQueue()

        def connect() -> None:
            with pytest.raises(ClusterError) as raised:
                Client(settings)
            errors.put(str(raised.value))

        threading.Thread(target=connect, daemon=True).start()
        assert "Handshake failed" in errors.get(timeout=60)


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"topics": None}, "topics"),
        ({"topics": [{"topic": "__consumer_offsets"}]}, "topic_id"),
        ({"cluster_id": 7}, "cluster_id"),
        ({"capture_version": 2}, "version 2, this is for 1"),
    ],
)
def test_a_manifest_that_no_capture_wrote_is_refused(tmp_path: Path, changed: dict[str, object], said: str) -> None:
    manifest: dict[str, object] = {"capture_version": 1, "cluster_id": None, "topics": []}
    (tmp_path / "capture.json").write_text(json.dumps(manifest))
    assert CaptureDirectory(tmp_path).previous() == manifest
    (tmp_path / "capture.json").write_text(json.dumps(manifest | changed))
    with pytest.raises(UsageError, match=said):
        CaptureDirectory(tmp_path).previous()


@pytest.mark.parametrize("topic", ["../x", "/x", "a/b", ".", "..", "", "a\nb", "a" * 250])
def test_no_other_name_becomes_a_directory(tmp_path: Path, topic: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="no topic of Kafka"):
        CaptureDirectory(tmp_path).partition(topic, 0)
    # No broker is asked.
    words = ["capture", "--bootstrap-server", "127.0.0.1:1", "--output", str(tmp_path / "capture")]
    assert run([*words, "--topic-also", topic]) == ExitCode.USAGE
    assert "--topic-also: no topic of Kafka has the name" in capfd.readouterr().err

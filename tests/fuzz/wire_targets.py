"""A capture of a broker that lies: sound answers with hostile batches in them, or with some bytes changed."""

from __future__ import annotations

import socketserver
import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse

from coordinator_core.cluster import client, connections
from coordinator_core.log.types import OFFSETS_TOPIC
from tests.fuzz.checks import WrongResultError
from tests.fuzz.file_targets import answer
from tests.fuzz.hostile import changed

APIS = {1: (4, 11), 2: (1, 5), 3: (1, 8), 18: (0, 2), 23: (2, 3)}
"""Versions that the broker serves, by API key: those without tagged fields."""
END = 1000
_CONFIG = "default.api.timeout.ms=800\nrequest.timeout.ms=400\nsocket.connection.setup.timeout.ms=400\n"
_LIES = 0.3
"""Share of answers of which bytes are changed."""


class _Broker(socketserver.ThreadingTCPServer):
    daemon_threads = True
    batches = b""
    random = Random(0)


class _Connection(socketserver.StreamRequestHandler):
    """Answers what a capture asks in Kafka's own encoding, and hangs up on anything else."""

    def handle(self) -> None:
        broker = self.server
        assert isinstance(broker, _Broker)
        while size := self.rfile.read(4):
            request = self.rfile.read(struct.unpack(">i", size)[0])
            api_key, version, correlation = struct.unpack_from(">hhi", request)
            body = self._answer(broker, api_key, version, request)
            if body is None:
                return
            said = bytes(body.encode(version=version))
            if api_key != ApiVersionsRequest.API_KEY and broker.random.random() < _LIES:
                said = changed(said, broker.random)
            reply = struct.pack(">i", correlation) + said
            try:
                self.wfile.write(struct.pack(">i", len(reply)) + reply)
            except OSError:
                return

    @staticmethod
    def _answer(broker: _Broker, api_key: int, version: int, request: bytes) -> Any:
        match api_key:
            case ApiVersionsRequest.API_KEY:
                kind = ApiVersionsResponse.ApiVersion
                keys = [kind(api_key=key, min_version=low, max_version=high) for key, (low, high) in APIS.items()]
                return ApiVersionsResponse(error_code=0, api_keys=keys, throttle_time_ms=0)
            case MetadataRequest.API_KEY:
                asked = MetadataRequest.decode(request, version=version, header=True).topics
                return _metadata(broker, bool(asked))
            case ListOffsetsRequest.API_KEY:
                wanted = ListOffsetsRequest.decode(request, version=version, header=True).topics[0].partitions[0]
                return _offsets(0 if wanted.timestamp == -2 else END)
            case FetchRequest.API_KEY:
                wanted = FetchRequest.decode(request, version=version, header=True).topics[0].partitions[0]
                return _fetched(broker.batches if wanted.fetch_offset < END else b"")
            case OffsetForLeaderEpochRequest.API_KEY:
                return _epochs()
        return None


def _metadata(broker: _Broker, is_of_topics: bool) -> MetadataResponse:
    topic = MetadataResponse.MetadataResponseTopic
    host, port = broker.server_address[:2]
    partition = topic.MetadataResponsePartition(
        error_code=0,
        partition_index=0,
        leader_id=1,
        leader_epoch=0,
        replica_nodes=[1],
        isr_nodes=[1],
        offline_replicas=[],
    )
    return MetadataResponse(
        throttle_time_ms=0,
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=1, host=host, port=port, rack=None)],
        cluster_id="c",
        controller_id=1,
        topics=[topic(error_code=0, name=OFFSETS_TOPIC, is_internal=True, partitions=[partition])] * is_of_topics,
    )


def _offsets(offset: int) -> ListOffsetsResponse:
    topic = ListOffsetsResponse.ListOffsetsTopicResponse
    found = topic.ListOffsetsPartitionResponse(
        partition_index=0, error_code=0, timestamp=-1, offset=offset, leader_epoch=0
    )
    return ListOffsetsResponse(throttle_time_ms=0, topics=[topic(name=OFFSETS_TOPIC, partitions=[found])])


def _fetched(batches: bytes) -> FetchResponse:
    topic = FetchResponse.FetchableTopicResponse
    found = topic.PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=END,
        last_stable_offset=END,
        log_start_offset=0,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=batches,
    )
    return FetchResponse(
        throttle_time_ms=0, error_code=0, session_id=0, responses=[topic(topic=OFFSETS_TOPIC, partitions=[found])]
    )


def _epochs() -> OffsetForLeaderEpochResponse:
    topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    found = topic.EpochEndOffset(error_code=0, partition=0, leader_epoch=0, end_offset=END)
    return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=[topic(topic=OFFSETS_TOPIC, partitions=[found])])


@contextmanager
def _lying_broker(batches: bytes, random: Random) -> Iterator[str]:
    with _Broker(("127.0.0.1", 0), _Connection) as broker:
        broker.batches, broker.random = batches, random
        threading.Thread(target=broker.serve_forever, args=(0.01,), daemon=True).start()
        yield "{}:{}".format(*broker.server_address)
        broker.shutdown()


def capture(data: bytes, choices: Random) -> str:
    """A capture ends with a documented exit code and writes nothing outside its directory."""
    with tempfile.TemporaryDirectory() as place, _lying_broker(data, choices) as server:
        config, output = Path(place, "client.properties"), Path(place, "in/captured")
        config.write_text(_CONFIG)
        words = ["capture", "--bootstrap-server", server, "--command-config", str(config), "--output", str(output)]
        with patch.object(connections, "MOST_PAUSE_SECONDS", 1), patch.object(client, "BACKOFF_SECONDS", (0.01, 0.05)):
            code, said = answer(words)
        if "internal error" in said:
            raise WrongResultError(f"capture ends with {code}:\n{said}")
        outside = [path for path in Path(place).rglob("*") if output not in (path, *path.parents)]
        if set(outside) > {config, output.parent}:
            raise WrongResultError(f"capture writes {outside}")
    return str(code)

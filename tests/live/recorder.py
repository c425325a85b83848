"""Records requests to a real broker as a trace: the form of ``tests/traces``, without its normalised order.

A request is sent when the one before it was answered or is known to wait; what waits is looked at before the
next one. Ids become variables once the recording is over.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coordinator_core.coordinator.errors import Errors
from coordinator_core.coordinator.log import LogRecord
from coordinator_core.coordinator.protocol import read_request
from coordinator_core.coordinator.trace import Given, Trace, observed
from coordinator_core.coordinator.trace.normal import normal_record, normal_reply
from coordinator_core.coordinator.trace.read import Line
from coordinator_core.coordinator.trace.variables import Variables
from coordinator_core.groups.hashing import partition_for
from coordinator_core.log.batch import control_type
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import read_records
from tests.live.broker import Broker
from tests.live.group_protocol import Connection, Definitions, Json, definition

BLOCKING = ("JoinGroup", "SyncGroup")
BLOCKED_SECONDS = 0.03
"""Time that timers of no delay may take; that of the request itself is asked for, see :meth:`_overtake`.

More on a loaded machine: as long as twenty of those requests.
"""
ANSWER_SECONDS = 30.0
RETRIABLE = (14, 15, 16, 51)
_GENERATED = re.compile(r"(?:.+-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[A-Za-z0-9_-]{22}")


class Recorder:
    """Clients of one broker, and what they were told."""

    def __init__(
        self,
        name: str,
        port: int,
        settings: dict[str, str],
        topics: dict[str, Json],
        *,
        java: bool,
        kafka: str = "live",
        definitions: Definitions = definition,
    ) -> None:
        self.name = name
        self._port = port
        self._kafka = kafka
        self._definitions = definitions
        self._settings = settings
        self._topics = topics
        self._java = java
        self._start = time.time()
        self._lines: list[Json] = []
        self._requests = 0
        self._connections: dict[str, Connection] = {}
        self._sentinel = Connection(port, "sentinel", definitions)
        self._asked: dict[str, int] = {}
        self._closed_ms = math.inf
        """Epoch milliseconds from which on what the broker writes is not part of the recording."""
        self._apis: dict[int, tuple[str, int, Json]] = {}

    # Requests

    @property
    def topic_ids(self) -> dict[str, str]:
        return {name: topic["real"] for name, topic in self._topics.items()}

    def is_waiting(self, client: str) -> bool:
        return client in self._connections and self._connections[client].waiting

    def send(self, client: str, api: str, version: int, body: Json) -> Json | None:
        """The answer, or ``None`` when the request waits."""
        self.poll()
        connection = self._connections.get(client) or self._connect(client)
        self._requests += 1
        number = self._asked[client] = self._requests
        self._apis[number] = (api, version, body)
        self._line(
            {
                "send": number,
                "client": client,
                "connection": 1,
                "api": api,
                "version": version,
                "body": body,
            }
        )
        connection.send(api, version, body)
        if api in BLOCKING:
            seconds = self._overtake(body["groupId"])
            answer = connection.poll(max(BLOCKED_SECONDS, 20 * seconds))
            if answer is None:
                self._overtake(body["groupId"])
        else:
            answer = connection.poll(ANSWER_SECONDS)
            assert answer is not None, f"{api} was not answered"
        if answer is not None:
            self._answered(client, answer)
        elif api == "JoinGroup" and not body["memberId"]:
            self._show_members(body["groupId"])
        return answer

    def _show_members(self, group_id: str) -> None:
        """Members that just joined: of two whose joins are never answered, nobody could say later which is which."""
        self.send("witness", "DescribeGroups", 0, {"groups": [group_id]})

    def settled(self, client: str, api: str, version: int, body: Json) -> Json:
        """The first answer that does not ask to try again; only it is recorded."""
        while True:
            answer = self.send(client, api, version, body)
            assert answer is not None
            if answer["errorCode"] not in RETRIABLE:
                return answer
            number = self._requests
            self._lines = [one for one in self._lines if number not in (one.get("send"), one.get("reply"))]
            self._requests -= 1
            time.sleep(0.02)

    def poll(self) -> None:
        """Take the answers that came meanwhile."""
        for client, connection in self._connections.items():
            if connection.waiting:
                answer = connection.poll(0)
                if answer is not None:
                    self._answered(client, answer)

    def drop(self, client: str) -> None:
        """Close a client's connection; what it waits for is lost."""
        connection = self._connections.pop(client)
        lost = [self._asked[client]] if connection.waiting else []
        self._line({"closed": 1, "client": client, "by": "client", "lost": lost})
        connection.close()

    def pause(self, seconds: float) -> None:
        self._line({"wait": seconds * 1000})
        time.sleep(seconds)

    def restart(self, broker: Broker) -> None:
        """SIGKILL the broker and start it again; requests go on once it has loaded all partitions."""
        broker.kill()
        self._line({"killed": "SIGKILL"})
        for connection in (*self._connections.values(), self._sentinel):
            connection.close()
        self._connections.clear()
        broker.start()
        self._line({"started": True})
        self._line({"accepts": True})
        self._sentinel = Connection(self._port, "sentinel", self._definitions)

    @property
    def requests(self) -> int:
        return self._requests

    def close(self) -> None:
        self.pause(0.3)
        self.poll()
        self._closed_ms = time.time() * 1000
        for connection in (*self._connections.values(), self._sentinel):
            connection.close()

    def answer_of(self, number: int) -> Json | None:
        return next((line["body"] for line in self._lines if line.get("reply") == number), None)

    def last_request(self, client: str) -> int:
        return self._asked[client]

    def _connect(self, client: str) -> Connection:
        self._connections[client] = Connection(self._port, client, self._definitions)
        return self._connections[client]

    def _overtake(self, group_id: str) -> float:
        """Returns once the broker, which has one thread, has done what it was asked for the group before; in how many
        seconds."""
        began = time.monotonic()
        sentinel = {"groupId": group_id, "generationId": 0, "memberId": "sentinel", "groupInstanceId": None}
        self._sentinel.send("Heartbeat", 3, sentinel)
        assert self._sentinel.poll(ANSWER_SECONDS) is not None
        return time.monotonic() - began

    def _answered(self, client: str, answer: Json) -> None:
        self._line({"reply": self._asked[client], "body": answer})

    def _line(self, fields: Json) -> None:
        self._lines.append({"t": round((time.time() - self._start) * 1000, 1), **fields})

    # The recording

    def trace(self, log_dir: Path) -> Trace:
        """The recording with the records that the broker, which is down now, wrote for its groups.

        Its first line says what it gives the model, read off here once.
        """
        partitions = int(self._settings["offsets.topic.num.partitions"])
        log = {part.offsets_partition: part for part in discover([str(log_dir)]).partitions}
        groups: dict[int, list[str]] = {}
        for _, _, body in self._apis.values():
            for group_id in _groups(body):
                listed = groups.setdefault(partition_for(group_id, partitions), [])
                if group_id not in listed:
                    listed.append(group_id)
        producers = {line["body"].get("producerId", -1) for line in self._lines if "reply" in line}
        appended = {
            partition: _of_groups(self._written(log, partition), listed, producers)
            for partition, listed in groups.items()
        }
        head = {
            "trace": self.name,
            "kafka": self._kafka,
            "coordinator": "java" if self._java else "scala",
            "settings": self._settings,
            "start_ms": int(self._start * 1000),
            "topics": self._topics,
        }
        bare = Trace("", head, (), self._variables(appended))
        variables = Variables(bare, Given())
        lines = [Line(number, _kind(one), one) for number, one in enumerate(self._normal(variables), 2)]
        for partition, listed in groups.items():
            records = [normal_record(one, head["start_ms"], variables) for one in appended[partition]]
            fields = {"partition": partition, "groups": listed, "records": records}
            lines.append(Line(len(lines) + 2, "records", fields))
        given = observed(Trace("live", head, tuple(lines), bare.variables))
        return Trace("live", head | {"given": given.as_json()}, tuple(lines), bare.variables)

    def _written(self, log: Mapping[int, Any], partition: int) -> list[LogRecord]:
        records = _records(log[partition]) if partition in log else []
        return [record for record in records if record.timestamp_ms < self._closed_ms]

    def _normal(self, variables: Variables) -> list[Json]:
        found = []
        for line in self._lines:
            if "send" in line:
                found.append(line | {"body": variables.named(line["body"])})
            elif "reply" in line:
                api, version, request = self._apis[line["reply"]]
                body = _with_error_names(line["body"])
                if "groups" in body and api == "ListGroups":
                    body["groups"] = [one for one in body["groups"] if one["groupId"].startswith(f"{self.name}.")]
                body = _in_order(api, body, request)
                found.append(line | {"body": normal_reply(api, body, variables, read_request(api, version, request))})
            else:
                found.append(line)
        return found

    def _variables(self, appended: dict[int, list[LogRecord]]) -> Json:
        """Generated member ids and producer ids in the order in which they appeared."""
        variables: Json = {topic["id"]: topic["real"] for topic in self._topics.values()}
        seen: set[Any] = set()

        def look(item: Any, field: str = "") -> None:
            if isinstance(item, dict):
                for name, value in item.items():
                    look(value, name)
            elif isinstance(item, list):
                for value in item:
                    look(value, field)
            elif item not in seen and field == "producerId" and item >= 0:
                seen.add(item)
                variables[f"$p{sum(name[1] == 'p' for name in variables) + 1}"] = item
            elif isinstance(item, str) and item not in seen and _is_generated(field, item):
                seen.add(item)
                variables[f"$m{sum(name[1] == 'm' for name in variables) + 1}"] = item

        for line in self._lines:
            if "reply" in line:
                look(line["body"])
        for records in appended.values():
            for record in records:
                if record.control is None and record.value is not None:
                    look(record.decoded().value)
        return variables


def _is_generated(field: str, text: str) -> bool:
    return field in ("memberId", "leader") and bool(_GENERATED.fullmatch(text))


def _kind(line: Json) -> str:
    return next(kind for kind in ("send", "reply", "wait", "closed", "killed", "started", "accepts") if kind in line)


def _groups(body: Json) -> list[str]:
    named = [body["groupId"]] if body.get("groupId") else []
    listed = body.get("groups") or body.get("groupsNames") or body.get("groupIds") or []
    return named + [one["groupId"] if isinstance(one, dict) else one for one in listed]


def _with_error_names(item: Any) -> Any:
    if isinstance(item, list):
        return [_with_error_names(one) for one in item]
    if not isinstance(item, dict):
        return item
    found: Json = {}
    for name, value in item.items():
        found[name] = _with_error_names(value)
        if name == "errorCode":
            found["error"] = Errors(value).name
    return found


def _in_order(api: str, body: Json, request: Json) -> Json:
    """Results in the order of the request, as in the traces."""
    if api == "DeleteGroups":
        order = request["groupsNames"]
        body["results"] = sorted(body["results"], key=lambda one: order.index(one["groupId"]))
    groups = zip(body.get("groups", [body]), request.get("groups", [request]), strict=False)
    if api in ("OffsetCommit", "TxnOffsetCommit", "OffsetDelete", "OffsetFetch"):
        for answered, asked in groups:
            if asked.get("topics"):
                _order_topics(answered, asked)
    return body


def _order_topics(answered: Json, asked: Json) -> None:
    key = "name" if "name" in asked["topics"][0] else "topicId"
    names = [topic[key] for topic in asked["topics"]]
    answered["topics"].sort(key=lambda topic: names.index(topic[key]))
    for topic in answered["topics"]:
        wanted = asked["topics"][names.index(topic[key])]
        offset_keys = wanted.get("partitionIndexes") or [one["partitionIndex"] for one in wanted["partitions"]]
        topic["partitions"].sort(key=lambda one: offset_keys.index(one["partitionIndex"]))


def _of_groups(records: list[LogRecord], groups: list[str], producers: set[int]) -> list[LogRecord]:
    """Records of these groups, and markers of these producers but those of other groups: recordings may share a broker.

    A transaction without a record in the log has its marker there all the same.
    """
    found = []
    ours: dict[int, bool] = {}
    for record in records:
        if record.control is None:
            key = record.decoded().key
            ours[record.producer_id] = key.get("group", key.get("groupId")) in groups
        if ours.get(record.producer_id, record.producer_id in producers):
            found.append(record)
    return found


def _records(log: Any) -> list[LogRecord]:
    found = []
    for _, batch, records in read_records(log):
        for record in records:
            found.append(
                LogRecord(
                    offset=record.offset,
                    batch_offset=batch.base_offset,
                    timestamp_ms=record.timestamp_ms,
                    key=b"" if batch.is_control else record.key or b"",
                    value=None if batch.is_control else record.value,
                    producer_id=batch.producer_id,
                    producer_epoch=batch.producer_epoch,
                    transactional=batch.is_transactional,
                    control=control_type(record).name if batch.is_control else None,
                )
            )
    return found

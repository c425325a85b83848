"""Requests to a broker of any release: the newest version that both sides know, fields left out by their defaults."""

from __future__ import annotations

import json
import re
import time
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from coordinator_core.releases import Release
from tests.live.broker import CACHE, START_SECONDS
from tests.live.group_protocol import Codec, Connection, Json, has_version, json_name

RETRIABLE = {5, 14, 15, 16, 51}
"""Not yet: no leader, coordinator loading, absent or moved, transaction still ending."""

RETRY_SECONDS = START_SECONDS
ANSWER_SECONDS = 60.0

# What brokers before ApiVersions (0.10) have.
_BEFORE_NEGOTIATION = {
    "Metadata": 0,
    "OffsetCommit": 2,
    "OffsetFetch": 1,
    "FindCoordinator": 0,
    "JoinGroup": 0,
    "Heartbeat": 0,
    "LeaveGroup": 0,
    "SyncGroup": 0,
    "DescribeGroups": 0,
    "ListGroups": 0,
}
_EMPTY = {"string": "", "bytes": "", "bool": False, "uuid": "A" * 22}


NEWEST = "4.4.0"


@cache
def definition(api: str, direction: str, version: str = NEWEST) -> Json:
    """Kafka's message definition, from the newest client jar that the recorder has fetched.

    Definitions keep the fields of versions that brokers no longer speak, so that one set serves all releases but 3.7,
    whose preview of KIP-848 gave version 0 other fields.
    """
    return read_definition(_client_jar(version), f"{api}{direction.capitalize()}")


def _preview_definition(api: str, direction: str) -> Json:
    return definition(api, direction, "3.7.2" if api.startswith("ConsumerGroup") else NEWEST)


def _client_jar(version: str) -> Path:
    (jar,) = CACHE.glob(f"recorded-{version}-*/kafka-clients-{version}.jar")
    return jar


def read_definition(jar: Path, name: str) -> Json:
    """A message definition in a jar of Kafka: JSON with comments."""
    with zipfile.ZipFile(jar) as archive:
        text = archive.read(f"common/message/{name}.json").decode()
    found: Json = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return found


@cache
def _api_names() -> dict[int, str]:
    with zipfile.ZipFile(_client_jar(NEWEST)) as archive:
        names = [re.fullmatch(r"common/message/(\w+)Request\.json", name) for name in archive.namelist()]
    apis = [name[1] for name in names if name is not None]
    found = {definition(api, "request")["apiKey"]: api for api in apis}
    return {key: api for key, api in found.items() if definition(api, "request")["validVersions"] != "none"}


class RefusedError(Exception):
    """A broker answered with an error that the script did not expect."""


class Session:
    """One client, named by its id, and its connection."""

    def __init__(self, port: int, release: Release, client_id: str = "recorder") -> None:
        self.port = port
        self.release = release
        self.client_id = client_id
        self._define = _preview_definition if release[:2] == (3, 7) else definition
        self.connection = Connection(port, client_id, self._define)
        self.versions = dict(_BEFORE_NEGOTIATION)
        if release >= (0, 10):
            answer = self.connection.ask("ApiVersions", 0, {})
            names = _api_names()
            newest = {row["apiKey"]: row["maxVersion"] for row in answer["apiKeys"]}
            self.versions = {
                names[key]: min(version, _newest_defined(names[key])) for key, version in newest.items() if key in names
            }

    def close(self) -> None:
        self.connection.close()

    def another(self, client_id: str) -> Session:
        """A client of its own."""
        return Session(self.port, self.release, client_id)

    def has(self, api: str, version: int = 0) -> bool:
        return self.versions.get(api, -1) >= version

    def send(self, api: str, body: Json, version: int | None = None) -> None:
        """Without waiting for the answer."""
        chosen = self.versions[api] if version is None else version
        request = self._define(api, "request")
        self.connection.send(api, chosen, complete(Codec(request, chosen), request["fields"], body))

    def answer(self) -> Json:
        found = self.connection.poll(ANSWER_SECONDS)
        assert found is not None, f"{self.client_id} got no answer"
        return found

    def ask(self, api: str, body: Json, version: int | None = None, expect: tuple[int, ...] = (0,)) -> Json:
        """The answer; asked again while it says "not yet". Raises :class:`RefusedError` for other errors."""
        deadline = time.monotonic() + RETRY_SECONDS
        while True:
            self.send(api, body, version)
            found = self.answer()
            codes = set(_error_codes(found))
            if codes <= set(expect):
                return found
            if not codes & RETRIABLE or time.monotonic() > deadline:
                raise RefusedError(f"{api} {body}: {found}")
            time.sleep(0.2)

    def controller_is_up(self) -> bool:
        """Whether a broker is there to lead new topics, and may be asked for them."""
        found = self.connection.ask("Metadata", self.versions["Metadata"] and min(self.versions["Metadata"], 9), _ALL)
        return bool(found["brokers"])


_ALL: Json = {
    "topics": [],
    "allowAutoTopicCreation": False,
    "includeClusterAuthorizedOperations": False,
    "includeTopicAuthorizedOperations": False,
}


def _newest_defined(api: str) -> int:
    return int(definition(api, "request")["validVersions"].rpartition("-")[2])


def _error_codes(item: Any) -> list[int]:
    if isinstance(item, list):
        return [code for one in item for code in _error_codes(one)]
    if not isinstance(item, dict):
        return []
    own = [item["errorCode"]] if isinstance(item.get("errorCode"), int) else []
    return own + [code for value in item.values() for code in _error_codes(value)]


def complete(codec: Codec, fields: list[Json], body: Json) -> Json:
    """``body`` with the defaults of the fields that it leaves out."""
    found: Json = {}
    unknown = set(body) - {json_name(each["name"]) for each in fields}
    assert not unknown, unknown
    for each in fields:
        if not has_version(codec.version, each["versions"]) or "tag" in each:
            continue
        name = json_name(each["name"])
        value = body[name] if name in body else _default(each, codec.version)
        if isinstance(value, dict):
            value = complete(codec, codec.inner(each), value)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            value = [complete(codec, codec.inner(each), one) for one in value]
        found[name] = value
    return found


def _default(each: Json, version: int) -> Any:
    is_nullable = has_version(version, each.get("nullableVersions", "none"))
    if each.get("default") == "null" or (is_nullable and "default" not in each and each["type"] not in _EMPTY):
        return None
    if each["type"].startswith("[]"):
        return []
    if each["type"] in _EMPTY:
        default = each.get("default", _EMPTY[each["type"]])
        return default in (True, "true") if each["type"] == "bool" else default
    return int(str(each.get("default", 0)), 0)

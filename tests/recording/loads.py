"""``python -m tests.recording.loads RELEASE[:LOG]…``: what brokers say of logs that some releases do not load."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from coordinator_core.releases import Release
from tests.lifecycle.failing_logs import DATA, LOGS, PARTITIONS, write_log
from tests.recording.brokers import RELEASES, Recorded, RecordedBroker
from tests.recording.session import Session

SETTINGS = {"offsets.topic.num.partitions": str(PARTITIONS), "offsets.retention.check.interval.ms": "86400000"}
SECONDS = 45
"""For all partitions to be loaded, or not."""
QUIET_SECONDS = 8
_LINE = re.compile(
    r"^\S+ \S+ (?P<line>.*(?:Finished loading|Failed to load|Error loading|Exception)"
    r".*__consumer_offsets[-,](?P<number>\d+).*)$",
    re.MULTILINE,
)


def logs_for(release: Release) -> Iterator[str]:
    yield from ["new"] if release >= (3, 7) else ["gap", "large", "newer"]


def last_words(log: str) -> dict[str, str]:
    """Last words of a broker about loading each offsets partition, by partition."""
    return {match["number"]: match["line"] for match in _LINE.finditer(log)}


def said(recorded: Recorded, name: str, scratch: Path) -> tuple[str, dict[str, str]]:
    """Digest of the log, and by partition the last words of a broker of ``recorded`` about loading it."""
    settings = SETTINGS if name == "new" else {**SETTINGS, "offsets.topic.num.partitions": "1"}
    broker = RecordedBroker(recorded, recorded.fetch(), scratch / name, settings)
    broker.start()
    try:
        session = Session(broker.port, recorded.release)
        session.ask(
            "FindCoordinator",
            {"key": "g", "keyType": 0} if session.has("FindCoordinator", 1) else {"key": "g"},
            min(2, session.versions["FindCoordinator"]),
        )
        partitions = int(settings["offsets.topic.num.partitions"])
        _wait(lambda: len(list(broker.log_dir.glob("__consumer_offsets-*/*.log"))) == partitions)
        time.sleep(2)
        session.close()
    finally:
        broker.kill()
    digest = write_log(name, broker.log_dir)
    broker.start()
    found: dict[str, str] = {}
    try:
        deadline = time.monotonic() + SECONDS
        quiet = time.monotonic()
        while time.monotonic() < deadline and (not found or time.monotonic() < quiet + QUIET_SECONDS):
            now = last_words(broker.log_since_start())
            if now != found:
                found, quiet = now, time.monotonic()
            time.sleep(0.5)
    finally:
        broker.kill()
    return digest, {number: line for number, line in sorted(found.items()) if int(number) < len(LOGS[name])}


def _wait(condition: object) -> None:
    deadline = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.2)


def main() -> None:
    for argument in sys.argv[1:]:
        version, _, only = argument.partition(":")
        recorded = RELEASES.get(version) or Recorded.of(version)
        for name in [only] if only else logs_for(recorded.release):
            with tempfile.TemporaryDirectory(prefix="loads-") as scratch:
                digest, words = said(recorded, name, Path(scratch))
            target = DATA / name / f"{version}-{recorded.coordinator}.json"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(json.dumps({"sha256": digest, "partitions": words}, indent=1) + "\n")


if __name__ == "__main__":
    main()

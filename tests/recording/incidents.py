"""``python -m tests.recording.incidents DIRECTORY [LOG…]``: incidents as real brokers write them.

A broker for each log, ``LOG.tar.zst``; ``LOG.json`` says what was done to which group, when, and what an investigation
must find. The test is ``tests/history/test_recorded.py``.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.kit import capture_from
from tests.live.broker import now_ms
from tests.live.group_protocol import Json
from tests.recording import (
    expiry_incidents,
    load_incidents,
    member_incidents,
    outside_incidents,
    reading_incidents,
)
from tests.recording.brokers import Recorded, RecordedBroker
from tests.recording.script import TOPICS
from tests.recording.stage import Play, Programme, Stage, pack

SOUND = "sound-"
"""Group ids of clean twins begin so."""
_RECORDS = {"orders": 6000, "payments": 1500, "gone": 500, "clicks": 1500}
"""Records in each partition of the topics."""

Perform = Callable[[Programme, Stage, list[tuple[str, Play]]], None]


@dataclass(frozen=True)
class LogOf:
    """A log: its broker's release and settings, and who plays. ``captured``: by ``regroup capture``, with topics."""

    name: str
    release: str
    programme: Programme
    perform: Perform
    settings: Mapping[str, str] = field(default_factory=dict)
    captured: bool = True


def one_after_another(programme: Programme, stage: Stage, plays: list[tuple[str, Play]]) -> None:
    for one in programme.incidents:
        for broken in (True, False):
            play = Play(stage, one.group if broken else SOUND + one.group, broken=broken)
            say(f"{play.group}")
            one.play(play)
            plays.append((one.id, play))


LOGS = {
    one.name: one
    for one in (
        LogOf("members-4.3.1", "4.3.1", member_incidents.PROGRAMME, one_after_another, expiry_incidents.WEEK),
        LogOf("outside-4.3.1", "4.3.1", outside_incidents.PROGRAMME, one_after_another, expiry_incidents.WEEK),
        LogOf("reading-4.3.1", "4.3.1", reading_incidents.PROGRAMME, one_after_another, expiry_incidents.WEEK),
        LogOf("streams-4.2.0", "4.2.0", load_incidents.STREAMS, one_after_another, expiry_incidents.WEEK),
        LogOf("handover-4.0.1", "4.0.1", load_incidents.HANDOVER, one_after_another, expiry_incidents.WEEK),
        LogOf("mirror-2.4.1", "2.4.1", load_incidents.MIRROR, one_after_another, expiry_incidents.WEEK),
        *(LogOf(*each) for each in expiry_incidents.LOGS),
    )
}


def record(log: LogOf, output: Path, scratch: Path) -> Json:
    """Play, keep the log in ``output``; returns what was done."""
    # Definitions of all requests are those of its client jar.
    Recorded.of("4.4.0").fetch()
    recorded = Recorded.of(log.release)
    broker = RecordedBroker(recorded, recorded.fetch(), scratch / "broker", log.settings)
    plays: list[tuple[str, Play]] = []
    began = now_ms()
    broker.start()
    try:
        stage = Stage(broker)
        stage.create_topics()
        if log.captured:
            for topic, records in _RECORDS.items():
                stage.produce(topic, TOPICS[topic], records)
        log.perform(log.programme, stage, plays)
        if log.captured:
            capture_from(broker.bootstrap, scratch / "log")
        stage.close()
    finally:
        broker.kill()
    if not log.captured:
        for segment in broker.offsets_segments():
            target = scratch / "log" / segment.parent.name
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(segment, target)
    pack(scratch / "log", output / f"{log.name}.tar.zst")
    return {
        "log": log.name,
        "kafka": log.release,
        "settings": dict(sorted(broker.settings.items())),
        "began_ms": began,
        "ended_ms": now_ms(),
        "incidents": [_described(log, id, play) for id, play in plays],
    }


def _described(log: LogOf, id: str, play: Play) -> Json:
    (one,) = (one for one in log.programme.incidents if one.id == id)
    document: Json = {"incident": id, "group": play.group, "twin": not play.broken, "acts": play.acts}
    if play.broken:
        document["expected"] = {
            "code": one.code,
            "cause": one.cause,
            "records": list(one.records),
            "says": list(one.says),
            "bug": one.bug,
        }
        document["like"] = one.like
    return document


def write(path: Path, document: Json) -> None:
    """JSON with one line for each group, and for each act."""
    text = json.dumps(document, indent=1)
    for inner in re.findall(r"\{[^{}]*\}", text):
        text = text.replace(inner, re.sub(r"\s*\n\s*", " ", inner))
    path.write_text(text + "\n", encoding="utf-8")


def say(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, flush=True)


def main(output: Path, names: Sequence[str]) -> None:
    output.mkdir(parents=True, exist_ok=True)
    for name in names or LOGS:
        with tempfile.TemporaryDirectory(prefix="incidents-") as scratch:
            document = record(LOGS[name], output, Path(scratch))
        write(output / f"{name}.json", document)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

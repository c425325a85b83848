"""Records the scenarios of streams groups: ``python -m tests.live.record_streams OUTPUT [--release …] [--profile …]``.

One broker for each profile of settings. A recording is a trace of ``tests/traces`` with its field ``given``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from coordinator_core.coordinator.trace import Trace
from coordinator_core.releases import Release
from tests.live import streams_client, streams_scenarios_4_4
from tests.live import streams_scenarios as scenarios
from tests.live.broker import KAFKA_VERSION, Broker, Kafka
from tests.live.recorder import Recorder
from tests.live.streams_walk import streams_walk
from tests.live.test_model import ONE_THREAD, create_topics
from tests.recording.brokers import Recorded

WARM_UP = {
    f"warm-up-{number}": one
    for number, one in enumerate((scenarios.lifecycle, scenarios.changelog, scenarios.transactions), 1)
}
WALK_REQUESTS = 150


def write(trace: Trace, path: Path) -> None:
    lines = [trace.head, *(line.fields for line in trace.lines), {"variables": trace.variables}]
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")


def record(release: str, profile: str, output: Path, only: Sequence[str]) -> None:
    changes, wanted = scenarios.PROFILES[profile]
    if Release.parse(release) >= (4, 4):
        wanted = [*wanted, *streams_scenarios_4_4.SCENARIOS.get(profile, [])]
    named = {f"sg-{one.__name__.replace('_', '-')}": one for one in wanted if not only or one.__name__ in only}
    record_all(release, changes, named, output)


def record_walks(release: str, seeds: Sequence[int], output: Path) -> None:
    """Each with a number of standby replicas that follows from its seed."""
    for replicas in (0, 1, 2):
        named = {f"sg-walk-{seed}": walk(seed) for seed in seeds if seed % 3 == replicas}
        record_all(release, {"group.streams.num.standby.replicas": str(replicas)}, named, output)


def walk(seed: int) -> scenarios.Scenario:
    return lambda streams: streams_walk(streams, seed).run(WALK_REQUESTS)


def record_all(release: str, changes: dict[str, str], wanted: dict[str, scenarios.Scenario], output: Path) -> None:
    """Recordings on one broker; ``wanted`` by the names of their traces."""
    if not wanted:
        return
    settings = scenarios.SETTINGS | changes
    kafka = Kafka.fetch() if release == KAFKA_VERSION else Recorded.of(release).fetch()
    define = streams_client.definitions(kafka.jars)
    with tempfile.TemporaryDirectory() as directory:
        fixed = ONE_THREAD | {"group.coordinator.threads": "1"}
        broker = Broker(kafka, Path(directory) / "broker", settings | fixed)
        broker.start()
        recorders: list[Recorder] = []
        try:
            topics = create_topics(broker, scenarios.TOPICS)
            # What a broker does for the first time takes long.
            for name, scenario in (WARM_UP | wanted).items():
                recorder = Recorder(name, broker.port, settings, topics, java=True, definitions=define)
                recorders.append(recorder)
                scenario(streams_client.Streams(recorder, broker))
                recorder.close()
        finally:
            broker.kill()
        for recorder in recorders[len(WARM_UP) :]:
            trace = recorder.trace(broker.log_dir)
            trace.head["kafka"] = release
            write(trace, output / f"{recorder.name}.jsonl")
            print(recorder.name, file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--release", default=KAFKA_VERSION)
    parser.add_argument("--profile", choices=scenarios.PROFILES, action="append")
    parser.add_argument("--walk", action="append", type=int, default=[], help="seed of a random walk, alone")
    parser.add_argument("--only", action="append", default=[], help="name of a scenario")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    if options.walk:
        record_walks(options.release, options.walk, options.output)
        return
    for profile in options.profile or scenarios.PROFILES:
        record(options.release, profile, options.output, options.only)


if __name__ == "__main__":
    main()

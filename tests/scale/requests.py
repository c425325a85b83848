"""Requests that a pinned replay in Spark sends to an object store, by what they are for.

``python -m tests.scale.requests`` prints a line of JSON for each log: some small ones, of which any two differ in one
number, and one of two segments of 64 MiB in which nothing is dead.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from coordinator_core.fold.pin import read_pin, write_pin
from coordinator_core.log.discovery import discover
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.place import RunPlace
from spark_apps.engine import MAX_MERGE_BYTES, replay
from spark_apps.session import Session
from tests.bench.generator import generate
from tests.bench.workload import Workload
from tests.log.object_store import ObjectStore, object_store
from tests.scale.many_segments import write_segments

ALIVE = Workload(
    "alive", 128 << 20, groups=8_000, offset_keys=1_600_000, in_turn=True, segment_bytes=64 << 20, partitions=1
)

KINDS = {
    r"/\?.*list-type=2": "list",
    r"/[^/?]*\?.*list-type=2": "list",
    r"/(\?|$)": "directory",
    r"\.log(\?|$)": "segment",
    r"/_staging/fold-": "fold",
    r"/_staging/(shards|merged)-": "shard",
    r"\.parquet": "table",
    r"pin\.json": "pin",
    r"manifest\.json": "manifest",
}
"""By a pattern of the path, the first that fits."""

LINE = re.compile(r'"(?:\x1b\[[0-9;]*m)*([A-Z]+) (\S+) HTTP')
"""The server colours what was not answered with 200, such as reads of a part."""


def requests_of(store: ObjectStore, since: int) -> Iterator[tuple[str, str]]:
    """Method and path of each request that the server has answered, from the ``since``-th byte of its log on."""
    with (store.directory / "log").open(errors="replace") as lines:
        lines.seek(since)
        for line in lines:
            if found := LINE.search(line):
                yield found[1], found[2]


def kind(path: str) -> str:
    """What a request is for."""
    return next((kind for pattern, kind in KINDS.items() if re.search(pattern, path)), "other")


def measure(
    store: ObjectStore, session: Session, log: Path, name: str, **options: int
) -> tuple[dict[str, int], dict[str, int]]:
    """Requests of the pin and of the replay, as ``METHOD kind``."""
    source = store.copy(log, f"{name}/log")
    counts = []
    place = RunPlace(store.uri(f"{name}/runs"), "c", "w", "r")
    pin = store.uri(f"{name}/pin.json")

    def replayed() -> None:
        replay(session, read_pin(pin), place, profile=profile_for_release("4.3.1"), now_ms=0, **options)

    for step in (lambda: write_pin(discover([source]), pin), replayed):
        before = (store.directory / "log").stat().st_size
        step()
        found = Counter(f"{method} {kind(path)}" for method, path in requests_of(store, before))
        counts.append(dict(sorted(found.items())))
    pinned, replayed_counts = counts
    return pinned, replayed_counts


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, object_store() as store:
        session = Session("regroup-requests", "local[2]")
        # Its workers find the store in the environment of now.
        assert session.context is not None
        place = Path(directory)
        logs = {}
        for segments, partitions in ((20, 4), (40, 4), (40, 8)):
            logs[segments, partitions] = place / f"log-{segments}-{partitions}"
            write_segments(logs[segments, partitions], segments, partitions)
        generate(ALIVE, place / "alive")
        cases = [
            (f"{segments} segments, {partitions} partitions, a task a segment", log, {"bytes_per_task": 1})
            for (segments, partitions), log in logs.items()
        ]
        first = logs[20, 4]
        cases += [
            ("20 segments, 4 partitions, a task a partition", first, {}),
            ("20 segments, 4 giant partitions", first, {"bytes_per_task": 1, "bytes_per_merge": 1 << 13}),
            ("2 segments of 64 MiB", place / "alive", {"bytes_per_task": 1, "bytes_per_merge": MAX_MERGE_BYTES}),
        ]
        with session:
            for number, (name, log, options) in enumerate(cases):
                pinned, replayed = measure(store, session, log, f"case-{number}", **options)
                print(json.dumps({"log": name, "pin": pinned, "replay": replayed}), flush=True)


if __name__ == "__main__":
    main()

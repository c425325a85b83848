"""``python -m tests.recording RELEASE DIRECTORY``: a corpus case with snapshots ``before`` and ``after`` expiry."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import read_records
from coordinator_core.records.codec import decode_key
from coordinator_core.releases import Release
from tests.live.broker import START_SECONDS, now_ms
from tests.live.group_protocol import Json
from tests.recording.answers import answers, settled_answers
from tests.recording.brokers import NEWEST_TOOLS, RELEASES, Recorded, RecordedBroker, RecordedKafka
from tests.recording.script import Script
from tests.recording.session import Session

RETENTION_SECONDS = 60
NO_SWEEP = {"offsets.retention.check.interval.ms": "86400000"}
SWEEPS = {"offsets.retention.check.interval.ms": "1000"}
_LOADING = re.compile(r"^.*(?:Finished loading|(?:WARN|ERROR) .*(?:[Gg]roup|[Oo]ffset|Coordinator)).*$", re.MULTILINE)
_APIS = re.compile(r".*(?:Group|Offset[CDF]|Txn|ProducerId).*")


class Recording:
    """One release, in a scratch directory that goes in the end."""

    def __init__(self, recorded: Recorded, output: Path, scratch: Path) -> None:
        self._recorded, self._output, self._scratch = recorded, output, scratch
        # Definitions of all requests are those of its client jar.
        RELEASES["4.4.0"].fetch()
        self._kafka = recorded.fetch()
        self._steps: list[str] = []
        self._open_transactions_of: set[str] = set()
        self._reload: dict[str, str] = {}

    def record(self) -> None:
        broker = RecordedBroker(self._recorded, self._kafka, self._scratch / "broker", NO_SWEEP)
        auto = {"auto.create.topics.enable": "true", "num.partitions": "4"}
        if self._recorded.release < (0, 10, 1):
            broker = RecordedBroker(self._recorded, self._kafka, self._scratch / "broker", {**NO_SWEEP, **auto})
        broker.start()
        script = Script(self._session(broker))
        try:
            script.everything()
            time.sleep(1.5)
            live = answers(script.session)
        finally:
            broker.kill()
            script.close()
        killed_ms = now_ms()
        self._open_transactions_of = script.open_transactions_of
        self._steps = [*script.steps, "SIGKILL: snapshot before"]
        self._snapshot("before", broker, killed_ms, live)
        self._steps += [
            "sweeps each second, for longer than the retention of one minute",
            "SIGKILL: snapshot after",
        ]
        self._swept_snapshot(broker, SWEEPS, killed_ms)

    def _swept_snapshot(self, broker: RecordedBroker, settings: dict[str, str], killed_ms: int) -> None:
        """Snapshot ``after``: a copy of the broker has swept for longer than the retention."""
        sweeping = broker.copied(self._scratch / "sweeping", settings)
        sweeping.start()
        try:
            session = self._session(sweeping)
            answers(session)
            time.sleep(max(0, killed_ms / 1000 + RETENTION_SECONDS + 15 - time.time()))
            live = answers(session)
            session.close()
        finally:
            sweeping.kill()
        self._snapshot("after", sweeping, now_ms(), live)

    def _session(self, broker: RecordedBroker) -> Session:
        return Session(broker.port, self._recorded.release)

    def _snapshot(self, name: str, broker: RecordedBroker, captured_ms: int, live: Json) -> None:
        directory = self._output / self._recorded.name / name
        expected = directory / "expected"
        expected.mkdir(parents=True)
        _copy_log(broker.log_dir, directory / "log")
        copy = broker.copied(self._scratch / f"{name}-copy", {**NO_SWEEP, **self._reload})
        sizes = _sizes(copy.log_dir)
        copy.start()
        try:
            session = self._session(copy)
            reloaded = settled_answers(session)
            session.close()
        finally:
            copy.kill()
        after = _sizes(copy.log_dir)
        assert after == sizes, f"the restart wrote to the log: {sizes} {after}"
        for document in (live, reloaded):
            _note_partitions(document, directory / "log")
        _write(expected / "live.json", live)
        _write(expected / "reloaded.json", reloaded)
        lines = [re.sub(re.escape(str(self._scratch)), "", line) for line in _LOADING.findall(copy.log_since_start())]
        (expected / "reload-broker-log.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        notes = self._dump(directory / "log", expected)
        _write(
            directory / "case.json",
            {
                "case": f"{self._recorded.name}/{name}",
                "kafka": self._recorded.version,
                "coordinator": self._recorded.coordinator,
                "capturedAtMs": captured_ms,
                "recorder": "tests/recording",
                "settings": dict(sorted(broker.settings.items())),
                "reloadSettings": {**NO_SWEEP, **self._reload},
                "features": list(self._recorded.features),
                "apiVersions": {api: version for api, version in sorted(session.versions.items()) if _APIS.match(api)},
                "dumpTool": notes,
                "openTransactionsOf": sorted(self._open_transactions_of),
                "steps": self._steps,
            },
            indent=1,
        )

    def _dump(self, log_dir: Path, expected: Path) -> dict[str, str]:
        """Output of dump tools, partition by partition; returns how that of the release ended where it broke.

        Tools before 3.8 do not print everything, and not as JSON: 3.9.2 does beside them.
        """
        broke = {}
        others = [Recorded("3.9.2").fetch()] if self._recorded.release < (3, 8) else []
        for partition in sorted(log_dir.glob("__consumer_offsets-*")):
            number = partition.name.rpartition("-")[2]
            for kafka in (self._kafka, *others):
                text, error = _dumped(kafka, partition)
                name = f"dump-{number}.txt" if kafka is self._kafka else f"dump-{number}.{kafka.version}.txt"
                (expected / name).write_text(text.replace(str(log_dir), ""), encoding="utf-8")
                if error and kafka is self._kafka:
                    broke[number] = error
        return broke


def _dumped(kafka: RecordedKafka, partition: Path) -> tuple[str, str]:
    """Text of the dump tool, with the head of the stack trace if it died, and its exit if not 0."""
    segments = [str(path) for path in sorted(partition.glob("*.log"))]
    if Release.parse(kafka.version) <= Release.parse(NEWEST_TOOLS):
        segments = [",".join(segments)]
    # A tool on jars newer than its own ends behind the first file.
    found = [_dumped_files(kafka, each) for each in segments]
    return "".join(text for text, _ in found), next((error for _, error in found if error), "")


def _dumped_files(kafka: RecordedKafka, files: str) -> tuple[str, str]:
    options = ("--offsets-decoder", "--print-data-log", "--deep-iteration", "--files", files)
    command = kafka.command(kafka.dump_class, *options)
    done = subprocess.run(command, capture_output=True, check=False, timeout=START_SECONDS)
    text, said = done.stdout.decode(), done.stderr.decode()
    died = re.search(r"(?:java|org\.apache\.kafka)\.[\w.]+Exception.*\n\tat .*\n", said)
    error = re.search(r".*(?:Exception|Error).*", said)
    if died:
        text += f"{died[0]}[tool ended: {done.returncode}]\n"
    return text, error[0] if error else str(done.returncode or "")


def _write(path: Path, document: Any, indent: int | None = None) -> None:
    path.write_text(json.dumps(document, ensure_ascii=False, indent=indent) + "\n", encoding="utf-8")


def _note_partitions(answered: Json, log_dir: Path) -> None:
    """Offsets partition of each group: no answer tells it, the keys of the log do."""
    found: dict[str, int] = {}
    for log in discover([str(log_dir)]).partitions:
        for _, batch, records in read_records(log):
            for record in () if batch.is_control else records:
                assert record.key is not None
                key = decode_key(record.key).data
                found[str(key.get("group", key.get("groupId")))] = log.offsets_partition
    for group, answer in answered["groups"].items():
        answer["partition"] = found[group]


def _sizes(log_dir: Path) -> dict[str, int]:
    return {
        f"{path.parent.name}/{path.name}": path.stat().st_size
        for path in log_dir.glob("__consumer_offsets-*/*.log")
        if path.stat().st_size
    }


def _copy_log(log_dir: Path, target: Path) -> None:
    """Partitions of the coordinators' topics that are not empty, without index files; checkpoints."""
    target.mkdir()
    for path in sorted(log_dir.iterdir()):
        if path.is_file() and (path.name == "meta.properties" or "checkpoint" in path.name):
            shutil.copy(path, target)
        if not path.name.startswith(("__consumer_offsets-", "__transaction_state-", "__share_group_state-")):
            continue
        if any(segment.stat().st_size for segment in path.glob("*.log")):
            (target / path.name).mkdir()
            for each in path.iterdir():
                if each.suffix not in (".index", ".timeindex"):
                    shutil.copy(each, target / path.name)


def main() -> None:
    version, output = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="recording-") as scratch:
        Recording(RELEASES[version], Path(output), Path(scratch)).record()


if __name__ == "__main__":
    main()

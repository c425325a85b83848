"""Answers of commands about one hostile log, from the log and from its run, in each form: all say the same."""

from __future__ import annotations

import csv
import io
import json
import shutil
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq

from coordinator_core.cli.app import run
from coordinator_core.errors import ExitCode
from tests.fuzz.checks import WrongResultError, require_equal
from tests.fuzz.hostile import Hostile
from tests.fuzz.partition_targets import log_in
from tests.fuzz.segments import segment

_NOW = ["--now-ms", "1700000000000"]
_READ_ALL_FORMATS = ("4.3.1", "4.1.2", "3.9.2")
_RELEASES = (*_READ_ALL_FORMATS, "2.4.1", "0.11.0.3")
_MODES: tuple[list[str], ...] = ([], ["--salvage"], ["--partial"])
_FURTHER = 7
_EXPIRY = {"due": "tombstones", "forecast": "forecast"}
"""Lists of the document, by the status of their rows in CSV."""
_READ = {ExitCode.CLEAN, ExitCode.FINDINGS}

Json = Any


def agreement(data: bytes, choices: Random) -> str:
    """Two offsets partitions by every command that describes them."""
    release = ["--kafka-version", choices.choice(_RELEASES)]
    reading = choices.choice(_MODES)
    with tempfile.TemporaryDirectory() as place:
        log = Path(place, "log")
        for number in range(choices.randint(1, 2)):
            partition = log / f"__consumer_offsets-{number}"
            partition.mkdir(parents=True)
            log_in(partition, data, choices)
        asked = _Asked(str(log), [*release, *_NOW], reading, Path(place))
        code = asked.publish("cold")
        if code not in _READ:
            asked.all_refuse(code)
            return f"refused {code:d}"
        asked.same_of_run_and_log()
        asked.same_of_a_warm_cache()
        asked.same_elsewhere()
        asked.same_records(is_whole=not reading)
        asked.same_values()
        asked.same_failures()
        asked.same_expiry()
        return "read" if code == ExitCode.CLEAN else "stopped"


class _Asked:
    """A log, how it is read, and a place for what commands write."""

    def __init__(self, log: str, rules: list[str], damage: list[str], place: Path) -> None:
        self.log, self.reading, self.damage, self.place = log, rules + damage, damage, place
        self.run = str(place / "runs/c/w/cold")

    def publish(self, run_id: str) -> int:
        return _answer(
            *("replay", self.log, "--output", str(self.place / "runs"), "--cluster", "c", "--window", "w"),
            *("--run-id", run_id, "--fold-cache", str(self.place / "cache"), *self.reading),
        )[0]

    def all_refuse(self, code: int) -> None:
        for words in (["list"], ["describe"], ["stats"], ["expire"], ["history", "--output", str(self.place / "h")]):
            found, _ = _answer(*words, self.log, *self.reading)
            require_equal(found, code, f"exit code of {words[0]}")

    def of(self, source: str, *words: str) -> Json:
        """JSON of a command about the log or its run."""
        code, out = self.answer(source, *words, "--format", "json")
        return json.loads(out) if code in _READ else code

    def answer(self, source: str, *words: str) -> tuple[int, str]:
        # A run has its rules and its time; the log that it was made from is read again.
        return _answer(*words, source, *(self.reading if source == self.log else self.damage))

    def same_of_run_and_log(self) -> None:
        for words in (["list"], ["describe"], ["stats"], ["expire", "--offsets-retention-ms", "1"]):
            require_equal(self.of(self.run, *words), self.of(self.log, *words), f"{words[0]} of the run")

    def same_of_a_warm_cache(self) -> None:
        self.publish("warm")
        code, out = _answer("diff", self.run, str(self.place / "runs/c/w/warm"))
        require_equal(code, ExitCode.CLEAN, f"exit code of diff: {out}")

    def same_elsewhere(self) -> None:
        """In a directory of another name, as other partitions."""
        other = self.place / "elsewhere"
        for partition in Path(self.log).iterdir():
            topic, _, number = partition.name.rpartition("-")
            shutil.copytree(partition, other / f"{topic}-{int(number) + _FURTHER}")
        code, out = _answer("describe", str(other), "--format", "json", *self.reading)
        require_equal(code in _READ, True, "exit code of describe elsewhere")
        require_equal(json.loads(out, object_hook=_moved_back), self.of(self.log, "describe"), "describe elsewhere")

    def same_records(self, *, is_whole: bool) -> None:
        """Records, batches and ends: ``dump``, ``verify`` and ``stats``."""
        _, out = _answer("dump", self.log, "--format", "jsonl", *self.damage)
        # Names may have other characters at which Python ends a line.
        rows = [json.loads(line) for line in out.split("\n") if line]
        counted = {
            number: sum(1 for _ in records) for number, records in groupby(rows, lambda row: row["offsets_partition"])
        }
        self.positions = {(row["offsets_partition"], row["record_offset"]) for row in rows}
        told = self.of(self.log, "stats")
        manifest = json.loads(Path(self.run, "manifest.json").read_text())
        kinds = {each["kind"] for each in manifest["damage"]}
        if told in (ExitCode.DAMAGED_INPUT, ExitCode.USAGE) or kinds & {"not_read", "bad_records"}:
            # The dump has what a broker keeps, stats what it loads, by the counts in the headers of batches, and
            # salvages no log.
            return
        stats = {row["offsets_partition"]: row for row in told["partitions"]}
        require_equal({n: row["records"] for n, row in stats.items() if row["records"]}, counted, "records of stats")
        if is_whole:
            _, out = _answer("verify", self.log, "--format", "json")
            segments = json.loads(out)["segments"]
            for number, row in stats.items():
                own = [each for each in segments if each["offsets_partition"] == number]
                for name in ("records", "batches"):
                    require_equal(sum(each[name] for each in own), row[name], f"{name} of verify")

    def same_values(self) -> None:
        """Committed offsets: ``describe``, its text, ``history`` and ``dump``."""
        told = self.of(self.run, "describe")
        offsets = [
            (group["offsets_partition"], group["group_id"], each)
            for group in told["groups"]
            for each in group["offsets"]
        ] + [(each["offsets_partition"], each["group_id"], each) for each in told["orphaned_offsets"]]
        for partition, group, each in offsets:
            if each["committed_offset"] is not None and (partition, each["record_offset"]) not in self.positions:
                raise WrongResultError(f"no record at {each['record_offset']}, where {group} has {each}")
        file = str(self.place / "history.parquet")
        code, out = self.answer(self.run, "history", "--output", file)
        require_equal(code, ExitCode.CLEAN, f"exit code of history: {out}")
        wanted = [each | {"group_id": of["group_id"]} for of in told["groups"] for each in of["offsets"]]
        wanted += told["orphaned_offsets"]
        require_equal(_values(pq.read_table(file).to_pylist()), _values(wanted), "values of history")
        if not told["load_failures"]:
            self.same_when_compacted(told)

    def same_when_compacted(self, told: Json) -> None:
        output = str(self.place / "compacted")
        code, _ = self.answer(self.log, "compact", "--output", output)
        if code == ExitCode.CLEAN:
            again = json.loads(_answer("describe", output, "--format", "json", *self.reading)[1])
            for name in ("groups", "orphaned_offsets"):
                require_equal(again[name], told[name], f"{name} of the compacted log")

    def same_failures(self) -> None:
        """Partitions that the coordinator gives up: ``describe`` and ``rescue``."""
        failing = {each["offsets_partition"] for each in self.of(self.run, "describe")["load_failures"]}
        found = {each["offsets_partition"] for each in self.of(self.log, "rescue")["partitions"]}
        if not set(_READ_ALL_FORMATS) & set(self.reading):
            # Older brokers stop at formats, codecs and ends of a log, too, of which ``describe`` says nothing.
            found &= failing
        require_equal(found, failing, "partitions of rescue")

    def same_expiry(self) -> None:
        words = ["expire", "--offsets-retention-ms", "1"]
        told = self.of(self.run, *words)
        wanted = [(status, row["key_hex"]) for status in _EXPIRY for row in told[_EXPIRY[status]]]
        _, text = self.answer(self.run, *words, "--format", "csv")
        rows = [(row["status"], row["key_hex"]) for row in csv.DictReader(io.StringIO(text))]
        require_equal(rows, wanted, "rows of CSV")


def _values(rows: list[Json]) -> Json:
    """Committed offsets by offset key, without those that are no longer, or not yet."""
    names = ("group_id", "topic", "partition")
    return {
        tuple(row[name] for name in names): row["committed_offset"]
        for row in rows
        if row["committed_offset"] is not None and row.get("valid_to") is None
    }


def _moved_back(row: Json) -> Json:
    return row | {"offsets_partition": row["offsets_partition"] - _FURTHER} if "offsets_partition" in row else row


def make_another(hostile: Hostile, data: bytes) -> bytes:
    """A segment that has nothing of ``data``: what differs from command to command is not in one byte."""
    del data
    return segment(hostile)


def _answer(*words: str) -> tuple[int, str]:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(out), redirect_stderr(io.StringIO()) as said:
        code = run(list(words))
    if code == ExitCode.INTERNAL:
        raise WrongResultError(f"{words}: {said.getvalue()}")
    out.flush()
    return code, out.buffer.getvalue().decode("utf-8", "surrogateescape")  # type: ignore[attr-defined]

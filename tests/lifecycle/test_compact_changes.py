"""A file that changes while it is compacted or measured: each pass finds that, and says where."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.errors import DamagedInputError
from coordinator_core.kernels.arrays import Array
from coordinator_core.kernels.mode import UNCOMPILED
from coordinator_core.lifecycle import compact, compact_plan
from coordinator_core.lifecycle.compact_plan import CompactionPlan, CompactionRules
from coordinator_core.lifecycle.compact_scan import scan_log
from coordinator_core.lifecycle.compact_write import OutputFormat, write_survivors
from coordinator_core.lifecycle.record_sizes import key_sizes
from coordinator_core.log.discovery import discover
from coordinator_core.log.layout import BatchField
from coordinator_core.log.types import Codec, ControlType, PartitionLog
from tests.cli.test_damaged_input import outcome
from tests.examples import examples
from tests.lifecycle.test_compact_damage import with_crc
from tests.log.builders import NOW_MS, NewRecord, build_batch, build_control_batch, write_partition
from tests.replay.histories import OffsetKey, encoded_key, offset_value

RULES = CompactionRules(NOW_MS)
PLAIN = OutputFormat()
RELEASE = ["--kafka-version", "4.3.1", "--now-ms", str(NOW_MS)]


def commits(number: int, codec: Codec = Codec.NONE, last_delta: int = 2) -> bytes:
    """Three records from offset ``4 * number`` on; the next batch supersedes the second."""
    offset_keys = [OffsetKey("g", "t", 10 + number), OffsetKey("g", "t", 0), OffsetKey("g", "u", number)]
    rows = [NewRecord(encoded_key(offset_key), offset_value(number)) for offset_key in offset_keys[:2]]
    rows.append(NewRecord(encoded_key(offset_keys[2]), None, offset_delta=last_delta))
    return build_batch(4 * number, rows, codec=codec)


BATCHES = (
    commits(0),
    commits(1),
    commits(2),
    commits(3, Codec.LZ4),
    build_batch(16, [(encoded_key(), offset_value(1))], producer_id=9, transactional=True),
    build_control_batch(17, ControlType.COMMIT, producer_id=9),
    commits(5),
)
LOG = b"".join(BATCHES)
CHANGED = 2
AT = sum(map(len, BATCHES[:CHANGED]))
"""Position of the batch that changes."""


def put(field: BatchField, value: int, size: int = 4) -> Callable[[bytes], bytes]:
    raw = value.to_bytes(size, "big", signed=True)
    return lambda batch: with_crc(batch[:field] + raw + batch[field + size :])


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "length of nothing": put(BatchField.LENGTH, -12),
    "length of a header less a byte": put(BatchField.LENGTH, 48),
    "length beyond the file": put(BatchField.LENGTH, 1 << 30),
    "largest length": put(BatchField.LENGTH, (1 << 31) - 1),
    "negative length": put(BatchField.LENGTH, -(1 << 31)),
    "negative record count": put(BatchField.RECORD_COUNT, -1),
    "more records than fit": put(BatchField.RECORD_COUNT, 1 << 30),
    "one record more": put(BatchField.RECORD_COUNT, 4),
    "one record less": put(BatchField.RECORD_COUNT, 2),
    "last offset before the first": put(BatchField.LAST_OFFSET_DELTA, -1),
    "last offset before the last record": put(BatchField.LAST_OFFSET_DELTA, 1),
    "old message format": put(BatchField.MAGIC, 1, 1),
    "no message format": put(BatchField.MAGIC, 77, 1),
    "codec of bytes that are not compressed": put(BatchField.ATTRIBUTES, Codec.ZSTD, 2),
    "record longer than its batch": lambda batch: with_crc(batch[:61] + b"\x7e" + batch[62:]),
    "record of negative length": lambda batch: with_crc(batch[:61] + b"\x01" + batch[62:]),
    "zeroes": lambda batch: bytes(len(batch)),
    "ones": lambda batch: b"\xff" * len(batch),
}


def changed(name: str) -> bytes:
    return b"".join((*BATCHES[:CHANGED], CHANGES[name](BATCHES[CHANGED]), *BATCHES[CHANGED + 1 :]))


class Nowhere:
    def write(self, data: memoryview, batches: Array) -> None:
        assert len(data) > 0
        assert len(batches) > 0


class Passes:
    """The passes over one file, each by itself."""

    def __init__(self, directory: Path) -> None:
        self.path = write_partition(directory, {0: LOG}) / f"{0:020d}.log"
        (self.log,) = discover([str(directory)]).partitions
        self.scan = scan_log(self.log)
        self.planned = self.plan()

    def replace(self, data: bytes) -> None:
        other = self.path.with_suffix(".other")
        other.write_bytes(data)
        os.replace(other, self.path)

    def plan(self) -> CompactionPlan:
        return CompactionPlan.of(self.scan, RULES)

    def write(self, output: OutputFormat = PLAIN) -> None:
        write_survivors(self.planned, Nowhere(), output)

    def measure(self) -> None:
        key_sizes(self.scan, kept=self.planned.stays.offsets, end_offset=self.scan.log_end_offset)

    def each(self) -> dict[str, Callable[[], object]]:
        return {
            "newest": self.plan,
            "write": self.write,
            "renumber": lambda: self.write(OutputFormat(renumber=True)),
            "compress": lambda: self.write(OutputFormat(codec=Codec.ZSTD)),
            "measure": self.measure,
        }


PASSES = ("newest", "write", "renumber", "compress", "measure")


@pytest.mark.parametrize("each", PASSES)
@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_batch_ends_every_pass_with_its_place(name: str, each: str, tmp_path: Path) -> None:
    passes = Passes(tmp_path)
    passes.each()[each]()
    passes.replace(changed(name))
    with pytest.raises(DamagedInputError) as raised:
        passes.each()[each]()
    damage = raised.value.damage
    assert (damage.path, damage.byte_position) == (str(passes.path), AT), damage
    assert damage.kind in ("file_changed", "bad_records", "bad_compression")


@pytest.mark.parametrize("each", PASSES)
def test_a_file_cut_anywhere_is_too_short_for_every_pass(each: str, tmp_path: Path) -> None:
    passes = Passes(tmp_path)
    for length in range(0, len(LOG), 7):
        passes.replace(LOG[:length])
        with pytest.raises(DamagedInputError) as raised:
            passes.each()[each]()
        damage = raised.value.damage
        assert (damage.path, damage.byte_position, damage.kind) == (str(passes.path), length, "file_shorter")


def test_records_other_than_those_that_were_to_stay(tmp_path: Path) -> None:
    """Sound batches of the same sizes, one of them without a record that is to stay."""
    passes = Passes(tmp_path)
    other = commits(CHANGED, last_delta=3)
    assert len(other) == len(BATCHES[CHANGED])
    passes.replace(b"".join((*BATCHES[:CHANGED], other, *BATCHES[CHANGED + 1 :])))
    for each in ("write", "renumber"):
        with pytest.raises(DamagedInputError, match=f"byte {AT}"):
            passes.each()[each]()


@examples(150)
@given(
    st.lists(st.tuples(st.integers(0, len(LOG) - 1), st.integers(0, 255)), min_size=1, max_size=12),
    st.booleans(),
)
def test_any_bytes_end_every_pass_or_are_read(
    tmp_path_factory: pytest.TempPathFactory, places: list[tuple[int, int]], seals: bool
) -> None:
    passes = Passes(tmp_path_factory.mktemp("log"))
    data = bytearray(LOG)
    for place, value in places:
        data[place] = value
    if seals:
        data = bytearray(b"".join(with_crc(part) for part in parts_of(bytes(data))))
    passes.replace(bytes(data))
    found = []
    for each in PASSES:
        try:
            passes.each()[each]()
        except DamagedInputError as error:
            found.append(error.damage)
    assert all(damage.path == str(passes.path) for damage in found)
    assert all(0 <= damage.byte_position < len(LOG) for damage in found)


def parts_of(data: bytes) -> list[bytes]:
    ends = np.cumsum([len(batch) for batch in BATCHES]).tolist()
    return [data[first:end] for first, end in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize("moment", ["before the second pass", "before writing"])
@pytest.mark.parametrize("name", ["length of nothing", "one record more", "cut"])
def test_the_command_ends_with_the_place_and_without_output(
    moment: str, name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").mkdir()
    path = write_partition(tmp_path / "log", {0: LOG}) / f"{0:020d}.log"
    data = LOG[:AT] if name == "cut" else changed(name)

    def swap() -> None:
        other = path.with_suffix(".other")
        other.write_bytes(data)
        os.replace(other, path)

    facts, write = compact_plan.transaction_facts, compact.write_survivors
    if moment == "before writing":
        monkeypatch.setattr(compact, "write_survivors", lambda *given: (swap(), write(*given))[1])
    else:
        monkeypatch.setattr(compact_plan, "transaction_facts", lambda *given: (swap(), facts(*given))[1])
    arguments = ["compact", str(tmp_path / "log"), "--output", str(tmp_path / "out"), *RELEASE]
    code, out, err = outcome(arguments, capfd)
    assert (code, out) == (3, ""), err
    assert f"{path}: byte {AT}" in err
    assert [item.name for item in tmp_path.iterdir()] == ["log"]


def test_uncompiled_kernels_write_and_measure_the_same(tmp_path: Path) -> None:
    """Compiled here, as plain Python in a process of its own: the same bytes, the same sizes."""
    write_partition(tmp_path, {0: LOG})
    script = "import sys; from tests.lifecycle.test_compact_changes import digest; print(digest(sys.argv[1]))"
    environment = {**os.environ, UNCOMPILED: "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == digest(str(tmp_path)) + "\n"


def digest(directory: str) -> str:
    (log,) = discover([directory]).partitions
    return "\n".join(map(repr, (*outputs(log), sizes(log))))


def outputs(log: PartitionLog) -> list[str]:
    class Kept:
        def __init__(self) -> None:
            self.data = b""

        def write(self, data: memoryview, batches: Array) -> None:
            self.data += bytes(data)

    found = []
    plan = CompactionPlan.of(scan_log(log), RULES, workers=2)
    for output in (OutputFormat(), OutputFormat(renumber=True), OutputFormat(codec=Codec.GZIP)):
        kept = Kept()
        write_survivors(plan, kept, output)
        found.append(kept.data.hex())
    return found


def sizes(log: PartitionLog) -> list[tuple[object, ...]]:
    scan = scan_log(log)
    found = key_sizes(scan, kept=np.array([8, 9], np.int64), end_offset=16)
    return [(found.key(number), *row) for number, row in enumerate(found.rows.tolist())]

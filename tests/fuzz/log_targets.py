"""Compaction, sizes of records and the dump: passes over whole logs."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from itertools import zip_longest
from random import Random
from unittest.mock import patch

import numpy as np

from coordinator_core.errors import DamagedInputError
from coordinator_core.kernels.arrays import Array
from coordinator_core.lifecycle import compact_write
from coordinator_core.lifecycle.compact_newest import BUCKETS, merged_newest, store_newest
from coordinator_core.lifecycle.compact_plan import CompactionPlan, CompactionRules
from coordinator_core.lifecycle.compact_scan import NewestRecords, newest_records, scan_log
from coordinator_core.lifecycle.compact_write import OutputFormat, write_survivors
from coordinator_core.lifecycle.record_sizes import key_sizes
from coordinator_core.log.batch import iter_batch_records
from coordinator_core.log.reader import OnDamage, read_records, read_segment
from coordinator_core.log.types import Codec, PartitionLog
from coordinator_core.reports.dump import dump_text
from coordinator_core.reports.dump_styles import STYLES, batch_text, record_text, style_of
from tests.fuzz.checks import WrongResultError, file_of, log_of, require_equal
from tests.fuzz.hostile import changed
from tests.log.builders import NOW_MS

_RELEASES = tuple(".".join(map(str, style.since)) for style in STYLES if style.line is not None)
_RULES = CompactionRules(NOW_MS)
_NONE = np.empty(0, np.int64)


class _Output:
    """Takes what compaction writes."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: memoryview, batches: Array) -> None:
        if len(batches) and not 0 <= int(batches["position"][-1]) < len(data):
            raise WrongResultError("a batch lies outside what was written")
        self.size += len(data)


def compaction(data: bytes, choices: Random) -> str:
    """Each pass of a compaction and of forensics, over the same bytes or over others than the one before."""
    log = log_of(data, choices)
    is_shifting = choices.random() < 0.6
    versions = [data, *(changed(data, choices) for _ in range(3))] if is_shifting else [data]
    output = OutputFormat(renumber=choices.random() < 0.4, codec=choices.choice((None, None, Codec.ZSTD, Codec.LZ4)))
    # Output that is handed on in small pieces, too.
    sizes = {
        "_OUT_BYTES": choices.choice((64, 300, 4 << 20)),
        "_OUT_BATCHES": choices.choice((1, 3, 1 << 14)),
    }
    try:
        with file_of(*versions), patch.multiple(compact_write, **sizes):  # type: ignore[call-overload]
            return _compact(log, output, is_shifting=is_shifting, in_parts=choices.random() < 0.1)
    except DamagedInputError as error:
        return error.damage.kind


def _compact(log: PartitionLog, output: OutputFormat, *, is_shifting: bool, in_parts: bool) -> str:
    scan = scan_log(log)
    plan = CompactionPlan.of(scan, _RULES)
    end = scan.log_end_offset
    sizes = key_sizes(scan, kept=plan.stays.offsets, end_offset=end)
    if not is_shifting:
        found = {sizes.key(row): int(sizes.rows["records"][row]) for row in range(len(sizes.rows))}
        newest = newest_records(scan, aborted=_NONE, end_offset=end)
        _require_records(log, newest, found)
        if in_parts:
            _require_stored(newest)
    written = write_survivors(plan, _Output(), output)
    return "nothing left" if written.records == 0 else "compacted"


def _require_stored(newest: NewestRecords) -> None:
    """Newest records by way of a file, against those in memory."""
    with tempfile.TemporaryDirectory() as place:
        file = store_newest(newest, f"{place}/newest")
        parts = [file.of_buckets(range(begin, begin + 64)) for begin in range(0, BUCKETS, 64)]
        again = merged_newest(parts, [file.unkeyed])
    found, wanted = ({one.key(row): one.rows[row].tolist() for row in range(len(one.rows))} for one in (again, newest))
    require_equal(found, wanted, "stored newest records")
    require_equal(again.unkeyed.tolist(), newest.unkeyed.tolist(), "stored record offsets without a key")


def _require_records(log: PartitionLog, newest: NewestRecords, sizes: dict[bytes, int]) -> None:
    """Newest records and counts by key, against the plain readers."""
    offsets: dict[bytes, tuple[int, bool]] = {}
    counts: Counter[bytes] = Counter()
    start = log.log_start_offset or 0
    for _, batch, records in read_records(log, damage=[]):
        for record in records:
            if batch.is_control:
                continue
            # Records without a key have a size all the same.
            counts[record.key or b""] += record.offset >= start
            if record.key is not None:
                offsets[record.key] = (record.offset, record.value is None)
    rows = newest.rows
    found = {newest.key(row): (int(rows["offset"][row]), bool(rows["is_tombstone"][row])) for row in range(len(rows))}
    require_equal(found, offsets, "newest records")
    require_equal(sizes, {key: count for key, count in counts.items() if count}, "records by key")


def dump(data: bytes, choices: Random) -> str:
    """The text of a release's dump tool, against the formatters in Python."""
    release = choices.choice(_RELEASES)
    log = log_of(data, choices)
    if choices.random() < 0.2:
        return _shifting_dump(data, log, release, choices)
    with file_of(data):
        try:
            text = _text(log, release, OnDamage.FAIL)
        except DamagedInputError as error:
            _text(log, release, OnDamage.SALVAGE)
            return error.damage.kind
        for found, wanted in zip_longest(_without_heads(text), _formatted(log, release)):
            require_equal(found, wanted, f"dump of {release}")
    return "printed"


def _shifting_dump(data: bytes, log: PartitionLog, release: str, choices: Random) -> str:
    """The dump of a file that changes while it is read."""
    with file_of(data, *(changed(data, choices) for _ in range(3))):
        _text(log, release, choices.choice((OnDamage.SALVAGE, OnDamage.RECOVER)))
    return "changed"


def _text(log: PartitionLog, release: str, on_damage: OnDamage) -> str:
    pieces = dump_text(log, release=release, on_damage=on_damage, damage=[])
    return b"".join(map(bytes, pieces)).decode("utf-8", "surrogateescape")


def _without_heads(text: str) -> list[str]:
    """Lines without those about a segment."""
    heads = ("Dumping ", "Starting ", "Log start", "Found ")
    return [line for line in text.split("\n")[:-1] if not line.startswith(heads)]


def _formatted(log: PartitionLog, release: str) -> list[str]:
    style = style_of(release)
    text = ""
    for segment in log.segments:
        for batch in read_segment(segment):
            line = batch_text(batch, style)
            text += "" if line is None else f"{line}\n"
            for record in iter_batch_records(batch, path=segment.path):
                if batch.record_count is None:
                    # A wrapper says only where it ends.
                    batch = replace(batch, base_offset=record.offset, record_count=1)
                text += f"{record_text(batch, record, style)}\n"
    return text.split("\n")[:-1]

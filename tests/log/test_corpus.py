"""Every segment of the corpus against what Kafka's own dump tool printed of it, batch for batch."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_core.log.batch import batch_records, control_type
from coordinator_core.log.reader import OnDamage, read_segment
from coordinator_core.log.types import Batch, Codec, Record, SegmentFile

CORPUS = Path(__file__).resolve().parent.parent / "corpus"
SEGMENTS = sorted(CORPUS.glob("**/log/__consumer_offsets-*/*.log"))

_LINE = re.compile(r"^(baseOffset: \d|offset: \d+ position: |\| offset: \d)")
_RECORD_HEAD = re.compile(r"^(\| offset: .*?(?:headerKeys: \[[^]]*\]|crc: \d+\}))(.*)$")
_RELEASE_RECORD = re.compile(
    r"^(?:\| )?offset: (\d+) .*?(?:keysize|keySize): (-?\d+)(?: (?:valuesize|valueSize): (-?\d+))?"
)


def dump_of(segment: Path) -> Path:
    """The JSON-era dump (3.9.2 for the old releases) of the partition of a segment."""
    log_dir = segment.parent.parent
    partition = segment.parent.name.rpartition("-")[2]
    case = log_dir.parent
    expected = case / "expected" if (case / "expected").exists() else case.parent / "expected" / case.name
    names = (f"dump-{partition}.3.9.2.txt", f"dump-{partition}.txt", f"dump-{partition}.txt.gz")
    found = [expected / name for name in names if (expected / name).exists()]
    assert found, f"no dump of {segment}"
    return found[0]


def dumped_lines(dump: Path, segment: Path) -> list[str]:
    """Batch and record lines that the tool printed for one segment, records without their content."""
    text = gzip.decompress(dump.read_bytes()) if dump.suffix == ".gz" else dump.read_bytes()
    lines = []
    inside = False
    for line in text.decode().split("\n"):
        if line.startswith("Dumping "):
            inside = line.endswith(f"/{segment.name}")
        elif inside and _LINE.match(line):
            head = _RECORD_HEAD.match(line)
            if head is None:
                lines.append(line)
            else:
                marker = re.match(r" endTxnMarker: \w+ coordinatorEpoch: -?\d+$", head[2])
                assert marker or head[2].startswith(" key: "), line
                lines.append(head[1] + (marker[0] if marker else ""))
    return lines


def our_lines(segment: Path) -> Iterator[str]:
    """The same lines from our reader. Like the tool it goes on past a bad CRC and stops at a bad length."""
    file = SegmentFile(str(segment), 0, int(segment.stem), segment.stat().st_size)
    for batch in read_segment(file, on_damage=OnDamage.RECOVER, check_crc=False, damage=[]):
        yield batch_line(batch)
        for record in batch_records(batch, path=str(segment)):
            yield record_line(batch, record)


def batch_line(batch: Batch) -> str:
    time = f"{batch.timestamp_type}: {batch.max_timestamp_ms}"
    tail = (
        f"size: {batch.size} magic: {batch.magic} compresscodec: {Codec(batch.codec_id).name.lower()}"
        f" crc: {batch.crc} isvalid: {str(batch.crc_valid).lower()}"
    )
    if batch.magic < 2:
        return f"offset: {batch.last_offset} position: {batch.position} {time} {tail}"
    horizon = "empty" if batch.delete_horizon_ms is None else f"[{batch.delete_horizon_ms}]"
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.record_count}"
        f" baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence}"
        f" producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch}"
        f" partitionLeaderEpoch: {batch.partition_leader_epoch}"
        f" isTransactional: {str(batch.is_transactional).lower()} isControl: {str(batch.is_control).lower()}"
        f" deleteHorizonMs: OptionalLong{'.' if horizon == 'empty' else ''}{horizon}"
        f" position: {batch.position} {time} {tail}"
    )


def record_line(batch: Batch, record: Record) -> str:
    key_size = -1 if record.key is None else len(record.key)
    value_size = -1 if record.value is None else len(record.value)
    head = (
        f"| offset: {record.offset} {batch.timestamp_type}: {record.timestamp_ms}"
        f" keySize: {key_size} valueSize: {value_size}"
    )
    if batch.magic < 2:
        return f"{head} isValid: {str(record.crc_valid).lower()} crc: {record.crc}}}"
    head += f" sequence: {record.sequence} headerKeys: [{','.join(name for name, _ in record.headers)}]"
    if batch.is_control:
        assert record.value is not None
        epoch = int.from_bytes(record.value[2:6], "big", signed=True)
        head += f" endTxnMarker: {control_type(record).name} coordinatorEpoch: {epoch}"
    return head


@pytest.mark.parametrize("segment", SEGMENTS, ids=lambda path: str(path.relative_to(CORPUS)))
def test_batches_and_records_are_those_of_the_dump_tool(segment: Path) -> None:
    expected = dumped_lines(dump_of(segment), segment)

    assert list(our_lines(segment)) == expected
    assert expected or segment.stat().st_size == 0


def test_the_corpus_holds_every_format_codec_and_kind_of_batch() -> None:
    magics_and_codecs = set()
    seen = dict.fromkeys(("horizon", "empty", "hole", "abort", "commit", "empty file"), 0)
    for segment in SEGMENTS:
        file = SegmentFile(str(segment), 0, int(segment.stem), segment.stat().st_size)
        seen["empty file"] += file.size == 0
        for batch in read_segment(file, on_damage=OnDamage.SALVAGE, damage=[]):
            magics_and_codecs.add((batch.magic, Codec(batch.codec_id)))
            records = batch_records(batch, path=file.path)
            seen["horizon"] += batch.delete_horizon_ms is not None
            seen["empty"] += not records
            seen["hole"] += 0 < len(records) < batch.last_offset - batch.base_offset + 1
            for record in records if batch.is_control else []:
                seen[control_type(record).name.lower()] += 1

    plain = {(magic, Codec.NONE) for magic in (0, 1, 2)}
    wrappers = {(0, Codec.LZ4), (1, Codec.GZIP), (1, Codec.SNAPPY), (1, Codec.LZ4)}
    assert magics_and_codecs == plain | wrappers
    assert all(seen.values()), seen


OLD_DUMPS = sorted(dump for dump in CORPUS.glob("*/*/expected/dump-*.txt") if re.fullmatch(r"dump-\d+\.txt", dump.name))


@pytest.mark.parametrize("dump", OLD_DUMPS, ids=lambda path: str(path.relative_to(CORPUS)))
def test_record_offsets_and_sizes_are_those_of_the_dump_tool_of_the_release(dump: Path) -> None:
    """The tools of old releases die on some legal records; what they printed until then must agree."""
    partition = dump.stem.removeprefix("dump-")
    directory = dump.parent.parent / "log" / f"__consumer_offsets-{partition}"
    ours = {}
    for segment in sorted(directory.glob("*.log")):
        file = SegmentFile(str(segment), 0, int(segment.stem), segment.stat().st_size)
        for batch in read_segment(file, on_damage=OnDamage.RECOVER, check_crc=False, damage=[]):
            for record in batch_records(batch, path=file.path):
                ours[record.offset] = (
                    -1 if record.key is None else len(record.key),
                    -1 if record.value is None else len(record.value),
                )

    printed = 0
    # The raw bytes that 0.8.2 prints hold any line separator but the one of the tool.
    for line in dump.read_bytes().decode("utf-8", "replace").split("\n"):
        match = _RELEASE_RECORD.match(line)
        if match:
            key_size, value_size = ours[int(match[1])]
            assert key_size == int(match[2]), line
            assert match[3] is None or value_size == int(match[3]), line
            printed += 1
    assert printed == len(ours) or "[tool ended" in dump.read_text(errors="replace")

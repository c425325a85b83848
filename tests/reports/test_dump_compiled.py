"""The compiled dump against the formatters in Python, beyond what the tools were run on."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core import storage
from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.kernels.layout import FieldKind
from coordinator_core.log.batch import iter_batch_records
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage, read_segment
from coordinator_core.log.types import Codec, PartitionLog, Record, SegmentFile
from coordinator_core.reports import dump_compiled, dump_styles
from coordinator_core.reports.dump import dump_text
from coordinator_core.reports.dump_styles import STYLES, batch_text, record_text, style_of, tables_of
from tests.cases import CASES
from tests.examples import examples, one_in
from tests.log.builders import NOW_MS, build_batch, build_control_batch, build_message, write_partition
from tests.reports import tool_logs

RELEASES = [".".join(map(str, style.since)) for style in STYLES if style.line is not None]
BATCH_LOGS = [tool_logs.DATA / name / "__consumer_offsets-0" for name in ("odd", "batches")]

Pair = tuple[bytes | None, bytes | None]


def partition(directory: Path) -> PartitionLog:
    [log] = discover([str(directory)]).partitions
    return log


def compiled(log: PartitionLog, release: str, on_damage: OnDamage = OnDamage.FAIL) -> list[str]:
    """Lines, without those that begin a segment."""
    text = b"".join(map(bytes, dump_text(log, release=release, on_damage=on_damage, damage=[])))
    return [line for line in lines_of(text.decode()) if not line.startswith(("Dumping ", "Starting ", "Log st"))]


def lines_of(text: str) -> list[str]:
    return text.split("\n")[:-1]


def formatted(log: PartitionLog, release: str) -> list[str]:
    style = style_of(release)
    text = ""
    for segment in log.segments:
        for batch in read_segment(segment):
            line = batch_text(batch, style)
            text += "" if line is None else f"{line}\n"
            for record in iter_batch_records(batch, path=segment.path):
                text += f"{record_text(batch, record, style)}\n"
    return lines_of(text)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("directory", BATCH_LOGS, ids=lambda path: path.parent.name)
def test_every_release(directory: Path, release: str) -> None:
    log = partition(directory)
    assert compiled(log, release) == formatted(log, release)


def modern_logs(*, but: tuple[str, ...] = ()) -> list[PartitionLog]:
    """The logs of parts 1 and 3 of the corpus, without those of the releases ``but``."""
    cases = [case for case in CASES if case.is_modern and "torn" not in case.name and case.release not in but]
    return [log for case in cases for log in discover([str(path) for path in case.paths]).partitions]


@pytest.mark.parametrize(
    "release",
    [
        "4.4.0",
        *(pytest.param(one, marks=pytest.mark.full) for one in ("2.3.1", "3.7.2", "3.9.2", "4.0.1", "4.1.1")),
    ],
)
def test_records_of_every_type_in_other_releases(release: str) -> None:
    """The corpus's own comparisons are those of the release that wrote a log."""
    types = set()
    for log in modern_logs():
        lines = compiled(log, release)
        assert lines == formatted(log, release)
        types |= {line.partition('key: {"type":"')[2].partition('"')[0] for line in lines}
    assert len(types) > (8 if release > "3.8" else 0)


def test_what_brokers_write_is_left_to_no_formatter(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(record: Record) -> tuple[str | None, str | None]:
        raise AssertionError(f"record offset {record.offset} is not covered")

    style = style_of("4.3.1")
    assert tables_of(style) is not None
    monkeypatch.setattr(dump_styles, "STYLES", (replace(style, texts=refuse),))
    records = 0
    # Message sets of format 0 and 1 are for the formatter; so are records of preview layouts: of members of consumer
    # groups in 3.7, of share groups in 4.0.
    for log in modern_logs(but=("0.9.0.1", "0.10.1.1", "3.7.2", "4.0.2")):
        records += sum(line.startswith("| ") for line in compiled(log, "4.3.1"))
    assert records > 10_000


@cache
def known_pairs() -> list[tuple[bytes, bytes | None]]:
    """Records of every type and version that the corpus and the odd log have."""
    found: dict[tuple[bytes, bytes], tuple[bytes, bytes | None]] = {}
    segments = [segment for log in modern_logs() for segment in log.segments]
    for segment in segments:
        for batch in read_segment(segment):
            if not batch.is_control:
                for record in iter_batch_records(batch, path=segment.path):
                    assert record.key is not None
                    found.setdefault((record.key[:2], (record.value or b"")[:2]), (record.key, record.value))
    pairs = [*found.values(), *((key, value) for key, value in tool_logs.odd_pairs() if key is not None)]
    assert len({key[:2] for key, _ in pairs}) > 20
    return pairs


def changed(data: bytes, generator: random.Random) -> bytes:
    """``data`` with bytes changed, left out, put in, or with its end cut off."""
    out = bytearray(data)
    for _ in range(generator.choice((0, 1, 1, 2, 4))):
        at = generator.randrange(len(out) + 1)
        kind = generator.randrange(6)
        if kind == 0:
            del out[at:]
        elif kind == 1:
            out[at:at] = generator.randbytes(generator.randrange(1, 4))
        elif kind == 2:
            del out[at : at + 1]
        elif at < len(out):
            out[at] = generator.choice((0, 1, 0x22, 0x5C, 0x7F, 0x80, 0xC3, 0xFF, generator.randrange(256)))
    return bytes(out)


@pytest.mark.parametrize("release", one_in(4, ["2.1.1", "3.4.1", "3.9.2", "4.0.1", "4.3.1"]))
def test_changed_records(release: str, tmp_path: Path) -> None:
    generator = random.Random(release)
    pairs: list[Pair] = [
        (changed(key, generator), None if value is None else changed(value, generator))
        for _ in range(150)
        for key, value in known_pairs()
    ]
    batches = [build_batch(at, pairs[at : at + 9]) for at in range(0, len(pairs), 9)]
    log = partition(write_partition(tmp_path, {0: b"".join(batches)}))
    assert compiled(log, release) == formatted(log, release)


@examples(60)
@given(st.lists(st.one_of(st.text(max_size=40), st.binary(max_size=12)), min_size=3, max_size=12))
def test_texts(names: list[str | bytes]) -> None:
    encoded = [name.encode("utf-8", "surrogatepass") if isinstance(name, str) else name for name in names]
    pairs: list[Pair] = [
        (
            b"\0\1" + sized(group) + sized(topic) + b"\xff\xff\xff\xfe",
            b"\0\3" + bytes(range(8)) + b"\0\0\0\7" + sized(metadata) + bytes(8),
        )
        for group, topic, metadata in zip(encoded, encoded[1:], encoded[2:], strict=False)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "read", lambda *_: memoryview(build_batch(0, pairs)))
        segment = SegmentFile("00000000000000000000.log", 0, 0, len(build_batch(0, pairs)))
        log = PartitionLog(0, ".", (segment,), None, True)
        for release in ("2.3.1", "3.7.2", "4.3.1"):
            assert compiled(log, release) == formatted(log, release)


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


EXTREMES = (-(1 << 63), -1, 0, 1, 9, 10, 99, 10**18, 10**18 - 1, (1 << 63) - 1)


@pytest.mark.parametrize("release", ["1.1.1", "2.8.1", "4.3.1"])
def test_extreme_numbers(release: str, tmp_path: Path) -> None:
    pair = known_pairs()[0]
    out = b""
    for at, number in enumerate(EXTREMES):
        epoch = max(min(number, 0x7FFF), -0x8000)
        sequence = max(min(number, 0x7FFFFFFF), -1)
        records = [(*pair, number, 0), (*pair, number, 6)]
        out += build_batch(
            7 * at,
            records,
            producer_id=number,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=at % 2 == 0,
            leader_epoch=sequence,
            log_append_time=number if at % 3 == 0 else None,
            delete_horizon=number if at % 3 == 1 else None,
        )
    log = partition(write_partition(tmp_path, {0: out}))
    assert compiled(log, release) == formatted(log, release)


def mixed_log(directory: Path) -> PartitionLog:
    """Everything that makes the kernel stop, between long runs of what it prints."""
    pairs = known_pairs()
    name = b"\0\1\0\1\xff\0\1t\0\0\0\0"
    out = b""
    for turn in range(60):
        offset = 200 * turn
        many = [pairs[(turn + at) % len(pairs)] for at in range(40)]
        out += build_batch(offset, many, codec=Codec(turn % 5))
        out += build_batch(offset + 40, [*many[:9], (name, many[0][1]), *many[9:20]])
        out += build_batch(offset + 80, [many[0], (*many[1], NOW_MS, 1, (("h", b"x"),)), many[2]])
        out += build_control_batch(offset + 120, turn % 4, producer_id=turn)
        if turn % 20 == 7:
            out += build_message(offset + 160, *many[0])
    return partition(write_partition(directory, {0: out}))


def test_mixed_log(tmp_path: Path) -> None:
    log = mixed_log(tmp_path)
    assert compiled(log, "4.3.1") == formatted(log, "4.3.1")


@pytest.mark.parametrize("enough", [1, 700, 1 << 13])
def test_small_pieces(enough: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = mixed_log(tmp_path)
    whole = formatted(log, "4.3.1")
    monkeypatch.setattr(dump_compiled, "_ENOUGH_BYTES", enough)
    assert compiled(log, "4.3.1") == whole


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_compressed_bytes_that_are_wrong(codec: Codec, tmp_path: Path) -> None:
    pairs = known_pairs()[:5]
    sound = [build_batch(at, pairs, codec=codec) for at in (0, 5, 10)]
    broken = bytearray(sound[1])
    broken[61:] = b"\xff" * len(broken[61:])
    log = partition(write_partition(tmp_path, {0: sound[0] + with_crc(bytes(broken)) + sound[2]}))
    lines = compiled(log, "4.3.1", OnDamage.SALVAGE)
    sound_words = ["baseOffset:", *["|"] * 5]
    assert [line.partition(" ")[0] for line in lines] == [*sound_words, "baseOffset:", *sound_words]
    assert lines[:-6] == printed_before(log, len(sound[0]), "bad_compression")


def test_damage_in_the_order_of_the_file(tmp_path: Path) -> None:
    pairs = known_pairs()[:5]
    batches = [bytearray(build_batch(at, pairs)) for at in range(0, 200, 5)]
    unreadable = build_batch(100, pairs)[:-1] + b"\1"
    batches[20] = bytearray(with_crc(unreadable))
    batches[30][-1] ^= 1
    log = partition(write_partition(tmp_path, {0: b"".join(batches)}))
    damage: list[Damage] = []
    for _ in dump_text(log, release="4.3.1", on_damage=OnDamage.SALVAGE, damage=damage):
        pass
    at = [sum(map(len, batches[:number])) for number in (20, 30)]
    assert {(each.byte_position, each.kind) for each in damage} >= {
        (at[0], "bad_records"),
        (at[1], "bad_crc"),
    }
    assert len(printed_before(log, at[0], "bad_records")) == 21 * 6 - 1


def printed_before(log: PartitionLog, byte_position: int, kind: str) -> list[str]:
    """Text that is printed before the error of these bytes is raised."""
    pieces = []
    error = None
    try:
        for piece in dump_text(log, release="4.3.1"):
            pieces.append(bytes(piece))
    except DamagedInputError as raised:
        error = raised
    assert error is not None
    assert (error.damage.byte_position, error.damage.kind) == (byte_position, kind)
    return lines_of(b"".join(pieces).decode())[2:]


def with_crc(batch: bytes) -> bytes:
    return batch[:17] + crc32c(batch[21:]).to_bytes(4, "big") + batch[21:]


@pytest.mark.parametrize("release", RELEASES)
def test_tables_refer_to_themselves(release: str) -> None:
    tables = tables_of(style_of(release))
    assert tables is not None
    fields, starts = np.asarray(tables.fields), np.asarray(tables.starts)
    assert (starts < len(fields)).all()
    for column in ("label", "text"):
        assert (fields[column] + fields[f"{column}_bytes"]).max() <= len(tables.texts)
    refers = np.isin(fields["kind"], (FieldKind.STRUCT, FieldKind.ARRAY, FieldKind.BLOB))
    own = np.arange(len(fields))
    # Rows refer to rows before them, so that no key or value makes the writer go round.
    assert ((fields["inner"] >= 0) & (fields["inner"] + fields["last_version"] < own))[refers].all()
    assert fields["kind"][-1] == FieldKind.END

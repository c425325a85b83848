"""``dump_text`` against what the dump tool of the release itself printed, character for character.

Normalised: the directory of the ``Dumping`` line; what the tools wrote to stderr and the recordings append
(``Non-consecutive offsets``, stack traces, how the tool ended).  Where an old tool died in the middle of a
file, everything up to that character must be equal.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from coordinator_core.errors import Damage, DamagedInputError, UsageError
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage, read_segment
from coordinator_core.log.types import Batch, PartitionLog
from coordinator_core.reports.dump import dump_text
from coordinator_core.reports.dump_styles import style_of
from tests.cases import CASES, CORPUS, TORN, Case, case
from tests.log.builders import write_partition
from tests.reports import tool_logs

_NAME = re.compile(r"dump-(?P<partition>\d+)(?:\.(?P<release>[\d.]+?))?\.txt(?:\.gz)?")
_DUMPING = re.compile(r"^Dumping .*?([^/\n]+/[^/\n]+)$", re.MULTILINE)
_GAPS = re.compile(r"^Non-(con)?secutive offsets in .*\Z", re.MULTILINE | re.DOTALL)
_CORRUPT = re.compile(r"^\[exception org\.apache\.kafka\.common\.errors\.CorruptRecordException.*\n", re.MULTILINE)
_DIED = re.compile(r"(?:java|org\.apache\.kafka)\.[\w.]+Exception[^\n]*\n\tat .*\Z", re.DOTALL)


def _partition(directory: Path) -> PartitionLog:
    [log] = discover([str(directory)]).partitions
    return log


def _recordings() -> list[object]:
    found: list[object] = []
    for snapshot in _snapshots():
        for recorded in sorted(snapshot.expected.rglob("dump-*.txt*")):
            name = _NAME.fullmatch(recorded.name)
            if name is None:
                continue
            log_dir = next((p for p in snapshot.paths if p.parent.name == recorded.parent.name), snapshot.paths[0])
            directory = log_dir / f"__consumer_offsets-{name['partition']}"
            release = name["release"] or snapshot.release
            label = f"{snapshot.name}/{recorded.relative_to(snapshot.expected).with_suffix('')}"
            found.append(pytest.param(recorded, directory, release, id=label))
    return found


def _snapshots() -> list[Case]:
    # This one has no reloaded.json, so it is not among the cases.
    twin = case("k431-compacted/C-cleaned-short")
    directory = CORPUS / "k431-compacted/C-cleaned-short-pass1"
    pass1 = Case(
        str(directory.relative_to(CORPUS)),
        directory,
        (directory / "log",),
        twin.release,
        None,
        twin.offsets_partitions,
        twin.captured_ms,
    )
    return [*CASES, pass1]


def _read(path: Path) -> str:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return _DUMPING.sub(r"Dumping \1", data.decode())


def _dumped(log: PartitionLog, release: str) -> tuple[str, DamagedInputError | None]:
    """Text that is printed, and the error that is raised behind it."""
    text = b""
    error = None
    try:
        for piece in dump_text(log, release=release):
            text += piece
    except DamagedInputError as raised:
        error = raised
    return _DUMPING.sub(r"Dumping \1", text.decode("utf-8", "surrogateescape")), error


def _lines(log: PartitionLog, on_damage: OnDamage = OnDamage.FAIL, damage: list[Damage] | None = None) -> list[str]:
    pieces = dump_text(log, release="4.3.1", on_damage=on_damage, damage=damage)
    return b"".join(map(bytes, pieces)).decode().splitlines()


@pytest.mark.parametrize(("recorded", "directory", "release"), _recordings())
def test_corpus(recorded: Path, directory: Path, release: str) -> None:
    expected = _CORRUPT.sub("", _GAPS.sub("", _read(recorded)))
    text, error = _dumped(_partition(directory), release)
    is_torn = any(recorded.is_relative_to(torn.directory) for torn in TORN)
    assert error is None or is_torn
    died = _DIED.search(expected)
    if died is not None:
        expected, text = expected[: died.start()], text[: died.start()]
    assert text == expected


def test_every_recorded_dump_is_compared() -> None:
    compared = {parameter.values[0] for parameter in _recordings()}
    recorded = {path for path in CORPUS.rglob("dump-*.txt*") if _NAME.fullmatch(path.name)}
    assert compared == recorded
    assert len(compared) > 300


def _tool_runs() -> list[object]:
    runs = sorted(tool_logs.DATA.glob("*/*.txt"))
    return [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in runs]


@pytest.mark.parametrize("recorded", _tool_runs())
def test_tool_run(recorded: Path) -> None:
    expected = _read(recorded)
    release = recorded.stem
    text, error = _dumped(_partition(recorded.parent / "__consumer_offsets-0"), release)
    assert error is None
    if recorded.parent.name == "odd" and release == "3.9.2":
        # 3.8 and 3.9 read an unknown value version as the nearest one that they know.
        expected, text = _without_unknown_versions(expected), _without_unknown_versions(text)
    if not expected.endswith("\n"):
        # The tool died behind the last character.
        text = text[: len(expected)]
    assert text == expected


def _without_unknown_versions(text: str) -> str:
    offsets = {
        number
        for number, (key, value) in enumerate(tool_logs.odd_pairs())
        if key is not None and value is not None and key[:2] in (b"\0\1", b"\0\2") and len(value) > 1 and value[1] > 4
    }
    assert len(offsets) == 3
    return "".join(
        f"{line}\n"
        for line in text.removesuffix("\n").split("\n")
        if not any(line.startswith(f"| offset: {n} ") for n in offsets)
    )


@pytest.mark.parametrize("name", tool_logs.SEGMENTS)
def test_tools_ran_on_these_bytes(name: str) -> None:
    """Compression apart (its output depends on the library), the segments are what the code builds."""
    segment = tool_logs.DATA / name / "__consumer_offsets-0" / "00000000000000000000.log"
    if name == "odd":
        assert segment.read_bytes() == tool_logs.odd_segment()
    else:
        assert len(segment.read_bytes()) == pytest.approx(len(tool_logs.SEGMENTS[name]()), rel=0.05)


@pytest.mark.parametrize(
    ("release", "since"),
    [
        ("0.8.2.2", (0, 8, 2)),
        ("0.9.0.1", (0, 9)),
        ("0.10.0.1", (0, 9)),
        ("0.10.1.1", (0, 10, 1)),
        ("0.10.2.2", (0, 10, 2)),
        ("1.1.1", (1, 0)),
        ("2.1.1", (1, 0)),
        ("2.3.1", (2, 2)),
        ("2.7.2", (2, 4)),
        ("3.9.2", (3, 8)),
        ("4.3.1", (4, 3)),
        ("4.5.0", (4, 4)),
    ],
)
def test_style_of_release(release: str, since: tuple[int, ...]) -> None:
    assert style_of(release).since == since


@pytest.mark.parametrize("release", ["0.7.2", "latest", "", "4.x"])
def test_unknown_release(release: str) -> None:
    with pytest.raises(UsageError):
        style_of(release)


@pytest.mark.parametrize(
    ("name", "position", "kind"),
    [
        ("truncated", 6357, "torn_tail"),
        ("bitflip", 3205, "bad_crc"),
        ("bitflip-clean-shutdown", 3205, "bad_crc"),
        ("badlength", 3205, "bad_length"),
        ("live-copy", 1368204, "torn_tail"),
    ],
)
def test_damage_is_raised_behind_what_the_tool_prints(name: str, position: int, kind: str) -> None:
    torn = case(f"k431-torn/{name}")
    [log] = discover([str(path) for path in torn.paths]).partitions
    text, error = _dumped(log, torn.release)
    assert error is not None
    assert (error.damage.byte_position, error.damage.kind) == (position, kind)
    assert text.count("\n") > 30


def test_salvage_goes_on_behind_a_bad_length() -> None:
    whole = _offsets(_partition(CORPUS / "k431-mixed/log/__consumer_offsets-16"))
    log = _partition(CORPUS / "k431-torn/badlength/log/__consumer_offsets-16")
    damage: list[Damage] = []
    lines = _lines(log, OnDamage.SALVAGE, damage)
    found = [line.split()[2] for line in lines if line.startswith("| ")]
    assert [kind.kind for kind in damage] == ["bad_length"]
    assert found == [offset for offset in whole if offset != "23"]


def test_salvage_finds_every_damage(tmp_path: Path) -> None:
    segment = bytearray(tool_logs.odd_segment())
    positions = [each.position for each in _batches(bytes(segment), tmp_path / "whole")]
    segment[positions[3] + 8 : positions[3] + 12] = b"\0\0\0\7"
    segment[positions[6] + 61] ^= 1
    log = _partition(write_partition(tmp_path, {0: bytes(segment)}))
    damage: list[Damage] = []
    lines = _lines(log, OnDamage.SALVAGE, damage)
    assert [(each.byte_position, each.kind) for each in damage] == [
        (positions[3], "bad_length"),
        (positions[6], "bad_crc"),
    ]
    shown = {int(line.split()[2]) for line in lines if line.startswith("| ")}
    assert shown == set(range(len(positions))) - {3, 6}


def _batches(segment: bytes, directory: Path) -> list[Batch]:
    [pinned] = _partition(write_partition(directory, {0: segment})).segments
    return list(read_segment(pinned))


def test_recover_shows_what_the_broker_keeps() -> None:
    log = _partition(CORPUS / "k431-torn/bitflip/log/__consumer_offsets-16")
    lines = _lines(log, OnDamage.RECOVER, [])
    # recovery-log.txt: 23 of 37 records survive.
    assert sum(line.startswith("| ") for line in lines) == 23


def _offsets(log: PartitionLog) -> list[str]:
    return [line.split()[2] for line in _lines(log) if line.startswith("| ")]


def test_fail_stops_where_records_cannot_be_read(tmp_path: Path) -> None:
    segment = bytearray(tool_logs.batches_segment())
    segment[61] = 0x7F
    log = _partition(write_partition(tmp_path, {0: bytes(segment)}))
    text, error = _dumped(log, "4.3.1")
    assert error is not None
    assert error.damage.kind == "bad_crc"
    assert "isvalid: false" in text
    damage: list[Damage] = []
    salvaged = _lines(log, OnDamage.SALVAGE, damage)
    assert [found.kind for found in damage] == ["bad_crc", "bad_records"]
    assert any(line.startswith("| offset: 31 ") for line in salvaged)


def test_trailing_bytes(tmp_path: Path) -> None:
    whole = tool_logs.batches_segment()
    log = _partition(write_partition(tmp_path, {0: whole + b"\x00" * 17}))
    text, error = _dumped(log, "4.3.1")
    assert error is None
    assert text.endswith("\nFound 17 invalid bytes at the end of 00000000000000000000.log\n")


def test_several_segments_in_order(tmp_path: Path) -> None:
    first, second = tool_logs.odd_segment(), b""
    log = _partition(write_partition(tmp_path, {0: first, 500: second}))
    text, _ = _dumped(log, "3.2.3")
    assert text.count("Dumping __consumer_offsets-0/") == 2
    assert text.endswith("Dumping __consumer_offsets-0/00000000000000000500.log\nStarting offset: 500\n")

"""Records that brokers of some time wrote, or other programs write, are folded without the scalar code."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NoReturn

import pytest

from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.fold import segments
from coordinator_core.fold.rules import FoldRules
from coordinator_core.log.limits import Limits
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Codec
from coordinator_core.records.codec import encode_key
from coordinator_core.releases import Profile
from tests.fold.parity import PROFILES, assert_merges, fold_all, sequential_outcome, whole_fold, write_log
from tests.fold.random_logs import Log, encoded_key, offset_value
from tests.fold.test_damage import assert_same_outcome
from tests.log.builders import NewRecord, build_batch, build_message, build_wrapper, compress

GROUP = encode_key(2, {"group": "g"}), None
ITEMS = [
    (encoded_key(b"g", b"t", 0), offset_value(1, 5, b"m")),
    (encoded_key(b"g", b"t", 1), offset_value(0, 6, b"")),
    GROUP,
    (encoded_key(b"g", b"t", 0), None),
]
CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
HEADERS = (("a", b"1"), ("größe", None), ("", b""))


def messages(magic: int) -> list[bytes]:
    # A gap, as a cleaner leaves it.
    return [build_message(2 * number, *item, magic=magic) for number, item in enumerate(ITEMS)]


def wrapper(offset: int, content: bytes, magic: int = 1) -> bytes:
    packed = compress(Codec.GZIP, content, magic=magic)
    return build_message(offset, None, packed, magic=magic, attributes=Codec.GZIP)


ORDINARY = {
    "format 0": messages(0),
    "format 1": messages(1),
    "formats after each other": [
        build_message(0, *ITEMS[0], magic=0),
        build_message(1, *ITEMS[1]),
        build_wrapper(2, ITEMS, codec=Codec.LZ4, magic=0),
        build_batch(6, ITEMS),
        build_wrapper(10, ITEMS, codec=Codec.SNAPPY),
        build_batch(14, ITEMS, codec=Codec.LZ4),
    ],
    **{
        f"{codec.name} wrappers of format {magic}": [
            build_wrapper(0, ITEMS, codec=codec, magic=magic),
            build_wrapper(
                10,
                [NewRecord(*ITEMS[0], offset_delta=2), NewRecord(*ITEMS[1], offset_delta=5)],
                codec=codec,
                magic=magic,
            ),
        ]
        for codec in CODECS
        for magic in (0, 1)
    },
    "an append time": [build_wrapper(0, ITEMS, codec=Codec.GZIP, log_append_time=77)],
    "half a message at the end": [wrapper(1, b"".join(messages(1))[:100])],
    "headers": [build_batch(0, [NewRecord(*item, headers=HEADERS) for item in ITEMS])],
    "compressed headers": [build_batch(0, [NewRecord(*item, headers=HEADERS) for item in ITEMS], codec=Codec.ZSTD)],
}
UNUSUAL = {
    "no key": [build_message(0, *ITEMS[0]), build_message(1, None, b"v"), build_message(2, *ITEMS[1])],
    "no key within": [build_wrapper(0, [ITEMS[0], (None, b"v"), ITEMS[1]], codec=Codec.GZIP)],
    "a short key": [build_message(0, b"k", b"v", magic=0)],
    "U+FFFD": [build_message(0, encoded_key("\ufffd".encode(), b"t", 0), ITEMS[0][1])],
    "U+FFFD within": [build_wrapper(0, [(encoded_key(b"\xff", b"t", 0), ITEMS[0][1])], codec=Codec.GZIP)],
    "offsets from 0": [build_wrapper(0, ITEMS, codec=Codec.GZIP, wrapper_offset=0), build_message(9, *ITEMS[0])],
    "offsets below 0": [wrapper(5, build_message(-1, *ITEMS[0]))],
    "formats within each other": [wrapper(1, messages(0)[0] + build_message(1, *ITEMS[1]))],
}
DAMAGED = {
    "a wrapper in a wrapper": [build_message(0, *ITEMS[0]), wrapper(1, wrapper(0, messages(1)[0]))],
    "nothing in a wrapper": [build_message(0, *ITEMS[0]), wrapper(1, b"")],
    "offsets that go back": [wrapper(5, messages(1)[1] + messages(1)[0] + build_message(3, *ITEMS[0]))],
    "another last offset": [wrapper(5, b"".join(messages(0)), magic=0)],
    "a wrapper's offset below those in it": [wrapper(2, b"".join(messages(1)))],
    "a key that is too long": [
        build_message(0, *ITEMS[0]),
        wrapper(1, struct.pack(">qi", 0, 26) + bytes(4) + b"\1\0" + bytes(8) + struct.pack(">i", 100) + bytes(8)),
    ],
}


@pytest.fixture
def no_scalar(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise AssertionError("folded record by record")

    monkeypatch.setattr(segments, "split_scalar", refuse)


@pytest.mark.usefixtures("no_scalar")
@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
@pytest.mark.parametrize("batches", ORDINARY.values(), ids=ORDINARY)
def test_ordinary_ones(tmp_path: Path, batches: list[bytes], profile: Profile) -> None:
    log = write_log(tmp_path, Log(tuple(batches), (0,), 100))
    expected, _ = sequential_outcome(log, profile, OnDamage.FAIL)
    assert not isinstance(expected, Damage)
    assert_merges(expected, fold_all(log, profile), profile)


@pytest.mark.parametrize("on_damage", [OnDamage.FAIL, OnDamage.SALVAGE])
@pytest.mark.parametrize("batches", [*UNUSUAL.values(), *DAMAGED.values()], ids=[*UNUSUAL, *DAMAGED])
def test_others(tmp_path: Path, batches: list[bytes], on_damage: OnDamage) -> None:
    outcome = assert_same_outcome(tmp_path / "segment", b"".join(batches), on_damage)
    assert isinstance(outcome, Damage) is (on_damage is OnDamage.FAIL and batches in DAMAGED.values())


@pytest.mark.parametrize("name", [name for name in ORDINARY if "headers" not in name])
def test_counts_are_those_of_the_scalar_code(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (segment,) = write_log(tmp_path, Log(tuple(ORDINARY[name]), (0,), 100)).segments
    rules = FoldRules.of(PROFILES["4.3.1"])
    found = whole_fold(segment, rules=rules)
    monkeypatch.setattr(segments.Folder, "_fold_wrapper", lambda *_: False)
    monkeypatch.setattr(segments.Folder, "_fold_legacy", lambda _, __, position, ___: position)
    expected = whole_fold(segment, rules=rules)
    assert found.counts == expected.counts
    assert found.counts.formats.keys() & {0, 1}
    assert found.group_stats == expected.group_stats
    assert (found.first_offset, found.next_offset) == (expected.first_offset, expected.next_offset)


def test_headers_count_as_records(tmp_path: Path) -> None:
    """A batch of more records and headers than the limit is refused."""
    (segment,) = write_log(tmp_path, Log(tuple(ORDINARY["headers"]), (0,), 100)).segments
    rules = FoldRules.of(PROFILES["4.3.1"])
    entries = len(ITEMS) * (1 + len(HEADERS))
    assert whole_fold(segment, rules=rules, limits=Limits(max_records=entries)).counts.records == len(ITEMS)
    with pytest.raises(DamagedInputError, match="records and headers"):
        whole_fold(segment, rules=rules, limits=Limits(max_records=entries - 1))

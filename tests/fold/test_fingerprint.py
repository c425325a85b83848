"""A fingerprint changes with every byte, and tells two segments apart however their bytes are divided."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.fold import fingerprint as module
from coordinator_core.fold.fingerprint import fingerprint
from coordinator_core.log.types import Codec
from tests.fold.random_logs import encoded_key, offset_value
from tests.log.builders import build_batch, build_message

from ..cases import CASES, TORN

ITEMS = [(encoded_key(b"g", b"t", 0), offset_value(3, 1, b"m")), (encoded_key(b"g", b"t", 1), None)]
INTACT = build_batch(0, ITEMS) + build_batch(2, ITEMS, codec=Codec.LZ4)
LEGACY = build_message(4, *ITEMS[0])
ENTRIES = [build_batch(0, ITEMS), build_batch(2, ITEMS, codec=Codec.LZ4), LEGACY, bytes(20), INTACT[:70]]


def of(data: bytes) -> str:
    return fingerprint(memoryview(data)).digest


def segments() -> Iterator[Path]:
    for case in [*CASES, *TORN]:
        yield from sorted(path for root in case.paths for path in Path(root).rglob("*.log"))


SEGMENTS = sorted({path for path in segments() if 0 < path.stat().st_size < 4_000})


@pytest.mark.parametrize("data", [INTACT, LEGACY + INTACT, INTACT + LEGACY, INTACT[:-1], INTACT + bytes(100)])
def test_every_changed_byte_changes_it(data: bytes) -> None:
    seen = {of(data)}
    for position in range(len(data)):
        for bit in (0x01, 0x80):
            changed = bytearray(data)
            changed[position] ^= bit
            seen.add(of(bytes(changed)))
    seen |= {of(data[:size]) for size in range(len(data))}
    assert len(seen) == 1 + 2 * len(data) + len(data)


@given(st.data())
def test_a_changed_byte_in_a_segment_of_a_broker(data: st.DataObject) -> None:
    segment = data.draw(st.sampled_from(SEGMENTS)).read_bytes()
    position = data.draw(st.integers(0, len(segment) - 1))
    changed = bytearray(segment)
    changed[position] ^= data.draw(st.integers(1, 255))
    assert of(bytes(changed)) != of(segment)


@given(st.lists(st.sampled_from(ENTRIES), max_size=5), st.lists(st.sampled_from(ENTRIES), max_size=5))
def test_different_bytes_have_different_fingerprints(left: list[bytes], right: list[bytes]) -> None:
    one, other = b"".join(left), b"".join(right)
    assert (of(one) == of(other)) == (one == other)


def test_a_header_alone_is_not_its_batch() -> None:
    assert of(INTACT) != of(INTACT[:61] + INTACT[-61:])
    assert of(build_batch(0, ITEMS)) != of(build_batch(0, ITEMS)[:61])


def test_it_does_not_depend_on_how_much_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = INTACT * 5 + LEGACY
    once = of(data)
    for headers in (1, 2, 10):
        monkeypatch.setattr(module, "_CHUNK_HEADERS", headers)
        assert of(data) == once


def test_what_is_intact() -> None:
    assert fingerprint(memoryview(INTACT)).intact
    assert fingerprint(memoryview(b"")).intact
    for rest in (LEGACY, bytes(1), INTACT[:-1]):
        assert not fingerprint(memoryview(INTACT + rest)).intact

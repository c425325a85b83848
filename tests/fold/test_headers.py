"""The kernel that gathers the headers of intact batches, which stand for their bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coordinator_core.errors import DamagedInputError
from coordinator_core.fold.rules import FoldRules
from coordinator_core.kernels import gather_headers
from coordinator_core.kernels.layout import Stop
from coordinator_core.log.layout import HEADER_BYTES
from coordinator_core.log.types import Codec, SegmentFile
from coordinator_core.releases import profile_for_release
from tests.fold.parity import whole_fold
from tests.fold.random_logs import encoded_key, offset_value
from tests.log.builders import build_batch, build_message

ITEMS = [(encoded_key(b"g", b"t", 0), offset_value(3, 1, b"m")), (encoded_key(b"g", b"t", 1), None)]
BATCHES = [build_batch(0, ITEMS), build_batch(2, ITEMS, codec=Codec.LZ4), build_batch(4, [])]
LOG = b"".join(BATCHES)


def gathered(data: bytes, start: int = 0, room: int = 10) -> tuple[Stop, int, bytes]:
    """Why it stopped, position reached, and the headers."""
    out = np.empty(room * HEADER_BYTES + 7, np.uint8)
    status, position, count = gather_headers(np.frombuffer(data or b"\0", np.uint8), start, len(data), out)
    return Stop(status), position, out[: count * HEADER_BYTES].tobytes()


def headers(*batches: bytes) -> bytes:
    return b"".join(batch[:HEADER_BYTES] for batch in batches)


def test_headers_of_a_sound_log() -> None:
    assert gathered(LOG) == (Stop.END, len(LOG), headers(*BATCHES))
    assert gathered(b"") == (Stop.END, 0, b"")


def test_a_full_buffer_is_gone_on_with() -> None:
    first = len(BATCHES[0])
    assert gathered(LOG, room=1) == (Stop.FULL, first, headers(BATCHES[0]))
    assert gathered(LOG, start=first, room=2) == (Stop.END, len(LOG), headers(*BATCHES[1:]))


@pytest.mark.parametrize("rest", [build_message(6, *ITEMS[0]), bytes(100), LOG[:-1], b"\0"])
def test_it_stops_at_anything_else(rest: bytes) -> None:
    status, position, found = gathered(LOG + rest)
    intact = BATCHES[:2] if rest == LOG[:-1] else []
    assert (status, position) == (Stop.UNUSUAL_BATCH, len(LOG) + sum(map(len, intact)))
    assert found == headers(*BATCHES, *intact)


def test_every_changed_byte_changes_headers_or_stops() -> None:
    sound = gathered(LOG)
    for position in range(len(LOG)):
        changed = bytearray(LOG)
        changed[position] ^= 0x10
        status, reached, found = gathered(bytes(changed))
        assert (status, found) != (Stop.END, sound[2])
        assert status != Stop.END or reached == len(LOG)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_fold_can_do_without_the_crc(tmp_path: Path, codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(build_batch(0, ITEMS, codec=codec))
    data[20] ^= 1
    path = tmp_path / "log"
    path.write_bytes(data)
    segment = SegmentFile(str(path), 0, 0, len(data))
    rules = FoldRules.of(profile_for_release("4.3.1"))
    with pytest.raises(DamagedInputError) as raised:
        whole_fold(segment, rules=rules)
    assert raised.value.damage.kind == "bad_crc"

    def read_again(*_: object, **__: object) -> None:
        raise AssertionError("the segment was read by the scalar reader")

    monkeypatch.setattr("coordinator_core.fold.segments.read_segment", read_again)
    assert whole_fold(segment, rules=rules, check_crc=False).counts.records == 2

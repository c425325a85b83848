"""Segments and partitions: what damage is found, and what each policy reads past it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator_core.errors import Damage, DamagedInputError, UsageError
from coordinator_core.log.discovery import discover
from coordinator_core.log.limits import Limits
from coordinator_core.log.reader import (
    OnDamage,
    read_partition,
    read_records,
    read_segment,
    recover,
)
from coordinator_core.log.types import Codec, PartitionLog, SegmentFile
from tests.log.builders import build_batch, build_empty_batch, build_message, build_raw_batch, build_wrapper

CORPUS = Path(__file__).resolve().parent.parent / "corpus"
Partition = Callable[..., PartitionLog]


def commits(base_offset: int, count: int = 2, **options: object) -> bytes:
    """A batch of ``count`` records whose values name their offsets."""
    items = [(b"key", b"%d" % (base_offset + index)) for index in range(count)]
    return build_batch(base_offset, items, **options)  # type: ignore[arg-type]


def flip(data: bytes, position: int, mask: int = 0x10) -> bytes:
    return data[:position] + bytes((data[position] ^ mask,)) + data[position + 1 :]


def first_damage(log: PartitionLog) -> Damage:
    with pytest.raises(DamagedInputError) as caught:
        for _ in read_records(log):
            pass
    assert caught.value.exit_code == 3
    return caught.value.damage


def offsets(log: PartitionLog, on_damage: OnDamage = OnDamage.FAIL, **options: object) -> list[int]:
    return [
        record.offset
        for _, _, records in read_records(log, on_damage=on_damage, **options)  # type: ignore[arg-type]
        for record in records
    ]


def recovered(log: PartitionLog) -> tuple[list[int], list[str]]:
    damage: list[Damage] = []
    return offsets(log, OnDamage.RECOVER, damage=damage), [found.kind for found in damage]


def salvaged(log: PartitionLog) -> tuple[list[int], list[str]]:
    damage: list[Damage] = []
    return offsets(log, OnDamage.SALVAGE, damage=damage), [found.kind for found in damage]


class TestWholeLogs:
    def test_batches_come_with_their_segment_and_position(self, partition: Partition) -> None:
        log = partition({0: commits(0) + commits(2, 3), 5: commits(5)})
        assert [
            (segment.base_offset, batch.position, batch.base_offset, batch.last_offset)
            for segment, batch in read_partition(log)
        ] == [(0, 0, 0, 1), (0, len(commits(0)), 2, 4), (5, 0, 5, 6)]

    def test_formats_may_be_mixed(self, partition: Partition) -> None:
        data = (
            build_message(0, b"k", b"0", magic=0)
            + build_wrapper(1, [(b"k", b"1"), (b"k", b"2")], codec=Codec.LZ4, magic=0)
            + build_wrapper(3, [(b"k", b"3"), (b"k", b"4")], codec=Codec.SNAPPY, magic=1)
            + commits(5, codec=Codec.ZSTD)
        )
        assert offsets(partition({0: data})) == list(range(7))

    def test_holes_between_batches_and_segments_are_no_damage(self, partition: Partition) -> None:
        assert offsets(partition({0: commits(3) + commits(90), 100: commits(500)})) == [
            3,
            4,
            90,
            91,
            500,
            501,
        ]

    def test_empty_segment_in_the_middle(self, partition: Partition) -> None:
        assert offsets(partition({0: commits(0), 2: b"", 7: commits(7)})) == [0, 1, 7, 8]

    def test_leader_epochs_may_go_backwards(self, partition: Partition) -> None:
        data = commits(0, leader_epoch=5) + commits(2, leader_epoch=3) + commits(4, leader_epoch=-1)
        assert offsets(partition({0: data})) == list(range(6))

    @pytest.mark.parametrize("zeroes", [1, 5, 16, 17, 61, 4096, 100_000])
    def test_zeroes_at_the_end_are_the_end(self, partition: Partition, zeroes: int) -> None:
        log = partition({0: commits(0) + bytes(zeroes)})
        assert offsets(log) == [0, 1]
        assert recovered(log) == ([0, 1], [])

    def test_zeroes_before_other_bytes_are_damage(self, partition: Partition) -> None:
        damage = first_damage(partition({0: commits(0) + bytes(4096) + b"\x01"}))
        assert (damage.kind, damage.byte_position) == ("bad_length", len(commits(0)))

    def test_a_segment_only_of_zeroes(self, partition: Partition) -> None:
        assert offsets(partition({0: bytes(5000)})) == []

    def test_bytes_added_since_the_snapshot_was_pinned_are_not_read(self, partition: Partition) -> None:
        log = partition({0: commits(0)})
        Path(log.segments[0].path).write_bytes(commits(0) + commits(2))
        assert offsets(log) == [0, 1]

    def test_bytes_lost_since_then_are_damage(self, partition: Partition) -> None:
        log = partition({0: commits(0) + commits(2)})
        Path(log.segments[0].path).write_bytes(commits(0))
        damage = first_damage(log)
        assert (damage.kind, damage.byte_position, damage.record_offset) == (
            "file_shorter",
            len(commits(0)),
            2,
        )
        assert salvaged(log) == ([0, 1], ["file_shorter"])

    def test_a_file_that_is_gone_names_its_path(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=re.escape(f"{tmp_path}/gone.log")):
            list(read_segment(SegmentFile(f"{tmp_path}/gone.log", 0, 0, 10)))


class TestLogStartOffset:
    def test_batches_below_it_are_not_part_of_the_log(self, partition: Partition) -> None:
        data = {0: commits(0) + commits(2) + commits(4)}
        assert offsets(partition(data, log_start_offset=2)) == [2, 3, 4, 5]

    def test_the_batch_that_holds_it_is_read_whole(self, partition: Partition) -> None:
        data = {0: commits(0) + commits(2) + commits(4)}
        assert offsets(partition(data, log_start_offset=3)) == [2, 3, 4, 5]

    def test_segments_below_it_are_not_opened(self, partition: Partition) -> None:
        log = partition({0: b"broken", 6: commits(6)}, log_start_offset=6)
        assert offsets(log) == [6, 7]

    def test_a_log_that_ends_before_it_lacks_segments(self, partition: Partition) -> None:
        log = partition({0: commits(0)}, log_start_offset=50)
        damage = first_damage(log)
        assert (damage.kind, damage.record_offset) == ("log_start_offset", 2)
        assert recovered(log) == ([], ["log_start_offset"])

    def test_an_empty_segment_at_it_is_a_whole_log(self, partition: Partition) -> None:
        assert offsets(partition({50: b""}, log_start_offset=50)) == []


A, B, C = commits(0), commits(2, 3), commits(5)
AT_B, AT_C = len(A), len(A) + len(B)
BROKEN_CONTENT = build_raw_batch(2, b"\x7f" * 30, count=1, last_offset_delta=2)


def with_length(length: int) -> bytes:
    """The middle batch declares another length."""
    return A + B[:8] + length.to_bytes(4, "big", signed=True) + B[12:] + C


def with_offset(offset: int) -> bytes:
    """The middle batch declares another base offset."""
    return A + offset.to_bytes(8, "big", signed=True) + B[8:] + C


FAR = 1 << 20
TOO_FAR = 1 << 40
BEFORE, REST, ALL, BUT_LAST = [0, 1], [0, 1, 5, 6], list(range(7)), [0, 1, 2, 3, 4]
NEGATIVE_LAST = A + build_raw_batch(2, b"", count=0, last_offset_delta=-1) + C

# The bytes; kind, position and record offset of the damage; record offsets read under RECOVER and SALVAGE.
DAMAGES = {
    "bad crc": (A + flip(B, 70) + C, "bad_crc", AT_B, 2, BEFORE, REST),
    "length too small": (with_length(7), "bad_length", AT_B, 2, BEFORE, REST),
    "length negative": (with_length(-1), "bad_length", AT_B, 2, BEFORE, REST),
    "length below a v2 header": (with_length(48), "bad_length", AT_B, 2, BEFORE, REST),
    "length above the limit": (with_length(0x7FFFFFFF), "bad_length", AT_B, 2, BEFORE, REST),
    "length one too long": (with_length(len(B) - 11), "bad_crc", AT_B, 2, BEFORE, REST),
    "length past the end": (with_length(1 << 16), "torn_tail", AT_B, 2, BEFORE, REST),
    "magic 3": (A + flip(B, 16, 0x01) + C, "bad_magic", AT_B, 2, BEFORE, REST),
    "magic 1": (A + B[:16] + b"\x01" + B[17:] + C, "bad_crc", AT_B, 2, BEFORE, REST),
    "torn tail": (A + B + C[:-1], "torn_tail", AT_C, 5, BUT_LAST, BUT_LAST),
    "torn in the prefix": (A + B + C[:16], "torn_tail", AT_C, 5, BUT_LAST, BUT_LAST),
    "undecodable records": (A + BROKEN_CONTENT + C, "bad_records", AT_B, 2, BEFORE, REST),
    "leader epoch": (A + flip(B, 12, 0x80) + C, "bad_header", AT_B, 2, ALL, REST),
    "last offset below the base": (NEGATIVE_LAST, "bad_header", AT_B, 2, REST, REST),
    "offset backwards": (with_offset(0), "offset_order", AT_B, 0, [0, 1, 0, 1, 2, 5, 6], REST),
    "offset ahead": (with_offset(FAR), "offset_order", AT_B, FAR, [0, 1, FAR, FAR + 1, FAR + 2, 5, 6], REST),
    "offset negative": (with_offset(-1), "offset_range", AT_B, -1, [0, 1, -1, 0, 1, 5, 6], REST),
    "offset too far for a segment": (
        with_offset(TOO_FAR),
        "offset_range",
        AT_B,
        TOO_FAR,
        [0, 1, TOO_FAR, TOO_FAR + 1, TOO_FAR + 2, 5, 6],
        REST,
    ),
}
A_BROKER_STOPS_AT = {"bad_crc", "bad_length", "bad_magic", "torn_tail", "bad_records"}


class TestDamage:
    @pytest.mark.parametrize("name", DAMAGES)
    def test_it_is_found_with_its_position(self, partition: Partition, name: str) -> None:
        data, kind, position, offset, _, _ = DAMAGES[name]
        log = partition({0: data})
        damage = first_damage(log)
        assert (damage.kind, damage.byte_position, damage.record_offset) == (kind, position, offset)
        assert damage.path == log.segments[0].path

    @pytest.mark.parametrize("name", DAMAGES)
    def test_recover_reads_what_a_broker_keeps(self, partition: Partition, name: str) -> None:
        data, kind, position, _, kept, _ = DAMAGES[name]
        damage: list[Damage] = []
        assert offsets(partition({0: data}), OnDamage.RECOVER, damage=damage) == kept
        # A broker reads on behind a wrong offset, and this reader then finds the next one to contradict it.
        assert damage[0].byte_position == position or name == "offset ahead"
        assert damage[0].kind == kind
        assert ("not_read" in [found.kind for found in damage]) == (kind in A_BROKER_STOPS_AT)

    @pytest.mark.parametrize("name", DAMAGES)
    def test_salvage_leaves_out_the_damaged_batch_only(self, partition: Partition, name: str) -> None:
        data, kind, position, _, _, kept = DAMAGES[name]
        damage: list[Damage] = []
        assert offsets(partition({0: data}), OnDamage.SALVAGE, damage=damage) == kept
        assert [(found.kind, found.byte_position) for found in damage] == [(kind, position)]

    @pytest.mark.parametrize("magic", [0, 1])
    def test_legacy_messages(self, partition: Partition, magic: int) -> None:
        messages = [build_message(offset, b"key", b"%d" % offset, magic=magic) for offset in range(3)]
        log = partition({0: messages[0] + flip(messages[1], 25) + messages[2]})
        assert first_damage(log).kind == "bad_crc"
        assert salvaged(log) == ([0, 2], ["bad_crc"])
        assert recovered(log) == ([0], ["bad_crc", "not_read"])

    def test_format_1_message_of_a_format_0_size(self, partition: Partition) -> None:
        data = bytearray(build_message(0, None, None, magic=0))
        data[16] = 1
        assert first_damage(partition({0: bytes(data)})).kind == "bad_length"

    def test_batches_above_the_limit_are_refused(self, partition: Partition) -> None:
        log = partition({0: commits(0, 50)})
        damage: list[Damage] = []
        limits = Limits(max_batch_bytes=100)
        assert list(read_partition(log, on_damage=OnDamage.SALVAGE, damage=damage, limits=limits)) == []
        assert damage[0].detail.startswith(f"entry of {len(commits(0, 50)) - 12} bytes, the limit is 100")

    def test_two_damaged_batches_in_a_row_are_both_listed(self, partition: Partition) -> None:
        log = partition({0: A + flip(B, 70) + flip(C, 70) + commits(7)})
        assert salvaged(log) == ([0, 1, 7, 8], ["bad_crc", "bad_crc"])

    def test_garbage_between_batches_is_skipped(self, partition: Partition) -> None:
        garbage = bytes(range(1, 255)) * 3
        log = partition({0: A + garbage + B + C})
        assert salvaged(log)[0] == list(range(7))

    def test_a_batch_inside_garbage_that_does_not_fit_is_not_taken(self, partition: Partition) -> None:
        log = partition({0: A + b"\x01" * 40 + commits(0) + b"\x01" * 40 + B})
        assert salvaged(log) == ([0, 1, 2, 3, 4], ["torn_tail"])


class TestSegmentsOfAPartition:
    def test_recover_drops_all_later_segments(self, partition: Partition) -> None:
        log = partition({0: A + flip(B, 70), 5: C, 7: commits(7)})
        damage: list[Damage] = []
        assert offsets(log, OnDamage.RECOVER, damage=damage) == [0, 1]
        assert [(found.kind, Path(found.path).name, found.byte_position) for found in damage] == [
            ("bad_crc", "00000000000000000000.log", AT_B),
            ("not_read", "00000000000000000000.log", AT_B),
            ("not_read", "00000000000000000005.log", 0),
            ("not_read", "00000000000000000007.log", 0),
        ]
        assert str(len(B)) in damage[1].detail
        assert str(len(C)) in damage[2].detail

    def test_salvage_goes_on_with_later_segments(self, partition: Partition) -> None:
        assert salvaged(partition({0: A + flip(B, 70), 5: C})) == ([0, 1, 5, 6], ["bad_crc"])

    def test_after_a_clean_shutdown_nothing_is_verified(self, partition: Partition) -> None:
        log = partition({0: A + flip(B, 70) + C}, clean_shutdown=True)
        damage: list[Damage] = []
        batches = [batch for _, batch in read_partition(log, on_damage=OnDamage.RECOVER, damage=damage)]
        assert [(batch.base_offset, batch.crc_valid) for batch in batches] == [
            (0, True),
            (2, False),
            (5, True),
        ]
        assert [found.kind for found in damage] == ["bad_crc"]
        assert "read all the same" in damage[0].detail
        assert first_damage(log).kind == "bad_crc"

    def test_after_a_clean_shutdown_a_torn_entry_ends_its_segment_only(self, partition: Partition) -> None:
        log = partition({0: A + B[:-5], 5: C}, clean_shutdown=True)
        assert recovered(log) == ([0, 1, 5, 6], ["torn_tail", "not_read"])
        log = partition({0: A + B[:-5], 5: C})
        assert recovered(log) == ([0, 1], ["torn_tail", "not_read", "not_read"])

    def test_after_a_clean_shutdown_nothing_can_be_read_past_a_bad_length(self, partition: Partition) -> None:
        data = A + B[:8] + b"\x00\x00\x00\x07" + B[12:]
        log = partition({0: data, 5: C}, clean_shutdown=True)
        assert recovered(log) == ([0, 1], ["bad_length", "not_read", "not_read"])

    def test_segments_below_the_recovery_point_are_not_verified(self, partition: Partition) -> None:
        segments = {0: A + flip(B, 70), 5: C, 7: flip(commits(7), 70)}
        assert recovered(partition(segments, recovery_point=4))[0] == [0, 1]
        assert recovered(partition(segments, recovery_point=5)) == (
            [0, 1, 2, 3, 4, 5, 6],
            ["bad_crc", "bad_crc", "not_read"],
        )

    def test_zeroes_before_another_segment_end_the_log_of_a_recovering_broker(self, partition: Partition) -> None:
        log = partition({0: A + bytes(100), 5: C})
        assert offsets(log) == [0, 1, 5, 6]
        assert recovered(log) == ([0, 1], ["zero_tail", "not_read"])
        assert recovered(partition({0: A + bytes(100), 5: C}, clean_shutdown=True)) == ([0, 1, 5, 6], [])

    def test_a_batch_that_reaches_into_the_next_segment(self, partition: Partition) -> None:
        log = partition({0: A + B, 4: commits(4)})
        damage = first_damage(log)
        assert (damage.kind, damage.byte_position, damage.record_offset) == ("offset_range", AT_B, 2)
        assert salvaged(log) == ([0, 1, 4, 5], ["offset_range"])

    def test_a_broker_passes_over_what_a_former_segment_covered(self, partition: Partition) -> None:
        log = partition({0: A + B + C, 2: B + C + commits(7)})
        assert recovered(log) == (
            list(range(9)), ["offset_range", "offset_range", "not_read", "not_read"],
        )  # fmt: skip

    def test_a_name_that_lies(self, partition: Partition) -> None:
        damage = first_damage(partition({7: A}))
        assert (damage.kind, damage.byte_position) == ("offset_range", 0)
        assert "below the segment's base offset 7" in damage.detail

    def test_swapped_segments(self, partition: Partition) -> None:
        log = partition({0: C + commits(7), 5: A + B})
        assert first_damage(log).kind == "offset_range"
        assert salvaged(log) == ([], ["offset_range"] * 4)

    def test_a_segment_under_two_names(self, partition: Partition) -> None:
        log = partition({0: A + B, 3: A + B})
        assert first_damage(log).kind == "offset_range"

    def test_recover_hands_back_cut_segments(self, partition: Partition) -> None:
        log = partition({0: A, 2: B + flip(C, 70), 7: commits(7)})
        damage: list[Damage] = []
        cut = recover(log, damage=damage)
        assert [(segment.base_offset, segment.size) for segment in cut.segments] == [(0, len(A)), (2, len(B))]
        assert [found.kind for found in damage] == ["bad_crc", "not_read", "not_read"]
        assert offsets(cut) == offsets(log, OnDamage.RECOVER) == [0, 1, 2, 3, 4]


class TestEmptyBatches:
    def test_they_move_the_offset_on(self, partition: Partition) -> None:
        log = partition({0: A + build_empty_batch(2, 6, producer_id=4, transactional=True) + commits(9)})
        assert [batch.next_offset for _, batch in read_partition(log)] == [2, 9, 11]
        assert offsets(log) == [0, 1, 9, 10]


TORN = sorted(path.parent for path in CORPUS.glob("k431-torn/*/log"))


# Records that a broker of 4.3.1 kept of a damaged log, what is said about it, and the bytes it cut off.
KEPT: dict[str, tuple[int, list[str], int]] = {
    "badlength": (23, ["bad_length", "not_read"], 3725),
    "bitflip": (23, ["bad_crc", "not_read"], 3725),
    "bitflip-clean-shutdown": (37, ["bad_crc"], 0),
    "live-copy": (1503, ["torn_tail", "not_read"], 8052),
    "truncated": (36, ["torn_tail", "not_read"], 286),
    "zerotail": (37, [], 4096),
}


@pytest.mark.parametrize("case", TORN, ids=lambda path: path.name)
def test_recover_keeps_what_a_broker_kept(case: Path) -> None:
    (log,) = discover([str(case / "log")]).partitions
    damage: list[Damage] = []
    count, kinds, dropped = KEPT[case.name]

    assert len(offsets(log, OnDamage.RECOVER, damage=damage)) == count
    assert [found.kind for found in damage] == kinds
    assert log.segments[0].size - recover(log).segments[0].size == dropped

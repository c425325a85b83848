"""The tables of a fold that grows batch after batch."""

import cython

from coordinator_core.kernels.arrays import array_of, grown, new_bytes, new_rows, zeros

if not cython.compiled:
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.framing import *
    from coordinator_core.kernels.key_table import KeyTable

_FIRST_ROWS = 64
_FIRST_SPLIT_RECORDS = 256
_FIRST_BYTES = 4096
_BLOCK_RECORDS, _BLOCK_KEY_BYTES, _BLOCK_VALUE_BYTES = 1 << 13, 1 << 20, 1 << 21
_BYTES_OF_AN_OFFSET_KEY = 128
_BYTES_OF_A_GROUP = 1024
"""For so many bytes of a segment there is a row from the start. Rows that are not used take no memory."""


@cython.final
@cython.cclass
class FoldTables:
    """Tables of a fold, and the rules that it follows (``fold.schema.FoldRules``).

    Bytes of keys and of group records are copied; bytes of commits stay where they were read and are named by
    position: in a segment when below ``ARENA``, else in the arena that holds values of decompressed batches, and
    rewritten batches.
    """

    bounds = cython.declare(Bounds, visibility="public")
    pending_by_producer = cython.declare(cython.bint, visibility="public")
    tombstone_drops_pending = cython.declare(cython.bint, visibility="public")
    ordering = cython.declare(Int, visibility="public")
    max_legacy_version = cython.declare(Int, visibility="public")
    max_version = cython.declare(Int, visibility="public")
    check_utf8 = cython.declare(cython.bint, visibility="public")

    sequence = cython.declare(Int, visibility="public")
    """Records folded so far, control records included: the time axis of the fold."""
    segment_sequence = cython.declare(Int, visibility="public")  # ``sequence`` at the beginning of the segment at hand.
    position = cython.declare(Int, visibility="public")  # Position of the batch at which the last call stopped.
    next_offset = cython.declare(Int, visibility="public")
    first_offset = cython.declare(Int, visibility="public")
    """Base offset of the segment's first batch, -1 before there is one."""
    batches = cython.declare(Int, visibility="public")
    control_records = cython.declare(Int, visibility="public")
    min_timestamp = cython.declare(Int, visibility="public")
    max_timestamp = cython.declare(Int, visibility="public")
    has_malformed_names = cython.declare(cython.bint, visibility="public")
    """A name is not UTF-8, or holds U+FFFD: several keys may mean one committed offset."""
    codecs = cython.declare(MutableInt64s, visibility="public")  # Batches by codec id.
    messages = cython.declare(MutableInt64s, visibility="public")  # Batches of message formats 0 and 1, by format.
    commits = cython.declare(MutableInt64s, visibility="public")
    """Commits by key type and value version (-1 for a tombstone): twice ``COMMIT_VERSIONS``."""

    arena = cython.declare(MutableBytes, visibility="public")
    """Room for as many bytes as are folded, behind ``arena_used``, where values are copied."""
    arena_used = cython.declare(Int, visibility="public")
    scratch = cython.declare(SplitRecordRows, visibility="public")
    keys = cython.declare(KeyTable, visibility="public")
    """Group, topic and partition as in the record key; a row each in ``events`` and ``key_states``."""
    events = cython.declare(EventRows, visibility="public")
    key_states = cython.declare(KeyStateRows, visibility="public")
    group_ids = cython.declare(KeyTable, visibility="public")
    """With int16 length; a row each in ``groups``, two (by key type) in ``statistics``."""
    groups = cython.declare(GroupRows, visibility="public")
    statistics = cython.declare(StatisticsRows, visibility="public")
    topics = cython.declare(KeyTable, visibility="public")
    producer_ids = cython.declare(KeyTable, visibility="public")
    producers = cython.declare(ProducerRows, visibility="public")
    producer_key = cython.declare(MutableBytes)
    pending = cython.declare(PendingRows, visibility="public")
    pending_used = cython.declare(Int, visibility="public")
    pending_free = cython.declare(Int)  # First free row of ``pending``, chained by ``next_of_key``; -1 for none.
    pairs = cython.declare(KeyTable, visibility="public")
    """Offset keys and producers, int64s as they lie in memory; a row each in ``pair_rows``."""
    pair_rows = cython.declare(MutableInt64s)  # Pending row of a pair, as it was when it was noted.
    pair = cython.declare(MutableBytes)
    list_steps = cython.declare(Int, visibility="public")  # Rows of lists of pending rows that were looked at.
    group_records = cython.declare(GroupRecordRows, visibility="public")
    group_records_used = cython.declare(Int, visibility="public")
    group_keys = cython.declare(MutableBytes, visibility="public")
    """Of the group records, end to end. Rows, keys and values are a block: memory that is copied to grow costs more."""
    group_keys_used = cython.declare(Int, visibility="public")
    group_values = cython.declare(MutableBytes, visibility="public")
    group_values_used = cython.declare(Int, visibility="public")
    group_blocks = cython.declare(list, visibility="public")  # Arrays of the blocks before: rows, keys, values.
    group_block_records = cython.declare(Int, visibility="public")
    group_block_bytes = cython.declare(Int, visibility="public")
    creations = cython.declare(CreationRows, visibility="public")
    creations_used = cython.declare(Int, visibility="public")
    fragments = cython.declare(FragmentRows, visibility="public")
    fragments_used = cython.declare(Int, visibility="public")
    fragment_groups = cython.declare(FragmentGroupRows, visibility="public")
    fragment_groups_used = cython.declare(Int, visibility="public")
    stamp = cython.declare(Int)
    prediction_score = cython.declare(Int)
    """From -64 to 64: above 0 while offset keys mostly follow each other as they did the time before."""

    def __init__(self, bounds: Bounds, size: Int = 0) -> None:
        """Empty tables for a segment of ``size`` bytes."""
        keys: Int = max(_FIRST_ROWS, size // _BYTES_OF_AN_OFFSET_KEY)
        groups: Int = max(_FIRST_ROWS, size // _BYTES_OF_A_GROUP)
        self.arena = new_bytes(0)
        self.arena_used = 0
        self.scratch = new_rows("SplitRecord", _FIRST_SPLIT_RECORDS)
        self.keys = KeyTable(keys, size // 2)
        self.events = new_rows("Event", keys)
        self.key_states = new_rows("KeyState", keys)
        self.group_ids = KeyTable(groups)
        self.groups = new_rows("Group", groups)
        self.statistics = new_rows("Statistics", KEY_TYPES * groups)
        self.topics = KeyTable()
        self.producer_ids = KeyTable()
        self.producers = new_rows("Producer", _FIRST_ROWS)
        self.producer_key = new_bytes(8)
        self.pending = new_rows("Pending", _FIRST_ROWS)
        self.pairs = KeyTable()
        self.pair_rows = zeros(_FIRST_ROWS)
        self.pair = new_bytes(16)
        self.creations = new_rows("Creation", _FIRST_ROWS)
        self.fragments = new_rows("Fragment", _FIRST_ROWS)
        self.fragment_groups = new_rows("FragmentGroup", _FIRST_ROWS)
        self.reset(bounds)

    def reset(self, bounds: Bounds) -> None:
        """Empty the tables, whose memory is kept, for another segment."""
        self.bounds = bounds
        self.sequence = 0
        self.position = 0
        self.has_malformed_names = False
        self.keys.clear()
        self.group_ids.clear()
        self.topics.clear()
        self.producer_ids.clear()
        self.pending_free = -1
        self.pending_used = 0
        self.pairs.clear()
        self.list_steps = 0
        self.group_records_used = 0
        self.end_group_block(_FIRST_ROWS, _FIRST_BYTES, _FIRST_BYTES)
        self.group_blocks = []
        self.group_block_records = self.group_block_bytes = 0
        self.creations_used = 0
        self.fragments_used = 0
        self.fragment_groups_used = 0
        self.stamp = 0
        self.prediction_score = 0
        self.begin_segment()

    def begin_segment(self) -> None:
        """Reset the counters of a single segment."""
        self.segment_sequence = self.sequence
        self.next_offset = -0x7FFFFFFFFFFFFFFF
        self.first_offset = -1
        self.batches = 0
        self.control_records = 0
        self.min_timestamp = 0x7FFFFFFFFFFFFFFF
        self.max_timestamp = -1
        self.codecs = zeros(CODECS)
        self.messages = zeros(2)
        self.commits = zeros(KEY_TYPES * COMMIT_VERSIONS)

    @cython.cfunc
    @cython.exceptval(-1)
    def reserve(self, records: Int, data_bytes: Int, groups: Int) -> cython.int:
        """Make room for ``records`` records of ``data_bytes`` bytes, and ``groups`` groups of ended transactions."""
        self.keys.reserve(records, data_bytes)
        self.group_ids.reserve(records, data_bytes)
        self.topics.reserve(records, data_bytes)
        self.producer_ids.reserve(records, 8 * records)
        self.pairs.reserve(records, 16 * records)
        if (
            records > len(self.scratch)
            or self.keys.used + records > len(self.events)
            or self.group_ids.used + records > len(self.groups)
            or self.producer_ids.used + records > len(self.producers)
            or self.pending_used + records > len(self.pending)
            or self.pairs.used + records > len(self.pair_rows)
            or self.creations_used + records > len(self.creations)
            or self.fragments_used + records > len(self.fragments)
            or self.fragment_groups_used + groups > len(self.fragment_groups)
        ):
            with cython.gil:
                self._grow(records, groups)
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def reserve_group_records(self, records: Int, key_bytes: Int, value_bytes: Int) -> cython.int:
        """Make room for ``records`` group records with keys and values of so many bytes."""
        if (
            self.group_records_used + records > len(self.group_records)
            or self.group_keys_used + key_bytes > len(self.group_keys)
            or self.group_values_used + value_bytes > len(self.group_values)
        ):
            with cython.gil:
                self.end_group_block(
                    max(records, _BLOCK_RECORDS), max(key_bytes, _BLOCK_KEY_BYTES), max(value_bytes, _BLOCK_VALUE_BYTES)
                )
        return 0

    def end_group_block(self, records: Int, key_bytes: Int, value_bytes: Int) -> None:
        """Begin another block of group records, with room for so many."""
        if self.group_records_used > 0:
            block = (
                array_of(self.group_records)[: self.group_records_used],
                array_of(self.group_keys)[: self.group_keys_used],
                array_of(self.group_values)[: self.group_values_used],
            )
            self.group_blocks.append(block)
            self.group_block_records += len(block[0])
            self.group_block_bytes += len(block[1]) + len(block[2])
        self.group_records = new_rows("GroupRecord", records)
        self.group_keys, self.group_values = new_bytes(key_bytes), new_bytes(value_bytes)
        self.group_records_used = self.group_keys_used = self.group_values_used = 0

    def reserve_scratch(self, records: Int) -> None:
        """Make room in ``scratch``, for callers that fill it themselves."""
        self.scratch = grown(self.scratch, len(self.scratch), records)

    def _grow(self, records: Int, groups: Int) -> None:
        self.reserve_scratch(records)
        used: Int = self.keys.used
        self.events = grown(self.events, used, used + records)
        self.key_states = grown(self.key_states, used, used + records)
        used = self.group_ids.used
        self.groups = grown(self.groups, used, used + records)
        self.statistics = grown(self.statistics, KEY_TYPES * used, KEY_TYPES * (used + records))
        used = self.producer_ids.used
        self.producers = grown(self.producers, used, used + records)
        self.pending = grown(self.pending, self.pending_used, self.pending_used + records)
        self.pair_rows = grown(self.pair_rows, self.pairs.used, self.pairs.used + records)
        self.creations = grown(self.creations, self.creations_used, self.creations_used + records)
        self.fragments = grown(self.fragments, self.fragments_used, self.fragments_used + records)
        used = self.fragment_groups_used
        self.fragment_groups = grown(self.fragment_groups, used, used + groups)

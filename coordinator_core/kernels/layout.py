"""Rows and numbers that compiled code and its callers share, declared once.

``setup.py`` makes C structs of the :class:`Struct` classes and C constants of the enumerations and integers
when the kernels are built; :func:`coordinator_core.kernels.arrays.dtype` makes numpy dtypes of the same
classes. This module imports the standard library only, so that a build needs nothing of the package.
"""

from __future__ import annotations

from enum import IntEnum

# Fields of C structs, by sign and bits.
i64 = int
i32 = int
i16 = int
i8 = int
u8 = int

INVALID = -1  # A position where there is none.
RECORDS_AT_A_TIME = 128  # Records that a fold looks up together: waits for memory overlap.
SEGMENT = 1 << 40  # Added to positions in a segment for each that was folded before it.
ARENA = 1 << 56  # Added to positions in the arena, to tell them from positions in segments.
COPIED = -1  # Says that bytes are overwritten soon: their values are copied to the arena.
NO_KEY_TYPE = -(1 << 15) - 1  # ``GroupRecord.key_type`` of a key without a type.
CONTROL_KEY = -(1 << 15) - 2  # ``GroupRecord.key_type`` of a record of a control batch whose key is no control key.
KEY_TYPES = 2  # Key types of committed offsets: 0 and 1.
COMMIT_VERSIONS = 6  # Counters of commits of a key type: tombstones, value versions 0 to 4.
CODECS = 8
LOW_32_BITS = 0xFFFFFFFF
ALL_64_BITS = 0xFFFFFFFFFFFFFFFF
TOP_BITS_OF_BYTES = 0x8080808080808080

# Not even, and without a pattern in their bits.
HASH_FINISHER = 0xBF58476D1CE4E5B9

KEY_ROW_BITS = (1 << 40) - 1
KEY_TAG_BITS = (1 << 63) - (1 << 40)
"""An index entry of a key table is the row plus one, below the top bits of the hash; 0 is a free entry."""


class Struct:
    """A C struct; the annotations of a subclass are its fields."""

    def __init__(self, **fields: int) -> None:
        self.__dict__.update(fields)


class Header(Struct):
    """Header of a v2 batch (``log.layout.BatchField``); ``size`` is that of the whole batch."""

    size: i64
    base_offset: i64
    last_offset: i64
    attributes: i64
    base_timestamp: i64
    max_timestamp: i64
    producer_id: i64
    producer_epoch: i64
    count: i64


class Record(Struct):
    """A v2 record, as positions in its batch. ``end`` is ``INVALID`` where the framing is broken."""

    end: i64
    unusual: i64  # Bits of :class:`Unusual`.
    timestamp_delta: i64
    offset_delta: i64
    tail: i64  # Where key length, key, value and headers begin.
    key: i64
    key_bytes: i64  # -1 for a null key.
    value: i64
    value_bytes: i64  # -1 for a null value.


class Unusual(IntEnum):
    """Bits for what clients and brokers do not write in a v2 record."""

    NONE = 0
    FRAMING = 1  # A length or varint is invalid, or the record exceeds its batch.
    OFFSET = 2  # The offset delta does not ascend, or exceeds the last one of the batch.
    NO_KEY = 4
    KEY = 8  # The key exceeds the record.
    VALUE = 16  # The value exceeds the record.
    HEADERS = 32  # Anything but an empty header list follows the value.


class Stop(IntEnum):
    """Reason for which a kernel returned."""

    END = 0
    FULL = 1  # No room is left in the output.
    COMPRESSED = 2  # Records of the batch are compressed.
    UNUSUAL_RECORDS = 3  # The batch itself is sound, a record in it is unusual or invalid.
    UNUSUAL_BATCH = 4  # Not a sound v2 batch, or not in order: legacy, damaged, torn.


class Key(Struct):
    """A byte string of a key table."""

    hash: i64
    start: i64
    length: i64


class OrderingOffset(IntEnum):
    """``MergeOffsetRule`` as a number: which offset decides whether a transactional commit is newer."""

    RECORD = 0
    BATCH_FIRST_RECORD = 1
    BATCH_HEADER = 2
    NONE = 3


class Kind(IntEnum):
    """Kind of a record in the fold."""

    VALUE = 0
    TOMBSTONE = 1
    GROUP = 2  # A record of a group, or one that is kept whole for other reasons.
    CONTROL = 3


class SplitRecord(Struct):
    """A record of the batches at hand."""

    offset: i64
    timestamp: i64
    kind: i64
    detail: i64  # Value version of a commit, type of a control record.
    key_type: i64
    key: i64
    key_bytes: i64  # -1 for a null key.
    body: i64  # Of a commit: group, topic and partition as in the key. Otherwise the group id with its int16 length.
    body_bytes: i64
    value: i64
    value_bytes: i64  # -1 for a null value.
    size_bytes: i64  # Bytes of the record in its batch, its own length field included.
    index: i64  # Number of records before it in its batch.
    hash: i64  # Hash of the body of a commit, -1 where it is not needed so far.
    row: i64  # Row of the offset key of a commit, of the group of another record.
    batch_records: i64  # Of the first record of a batch: number of its records.


class EventKind(IntEnum):
    """The last event of an offset key."""

    NONE = 0
    VALUE = 1
    TOMBSTONE = 2


class Event(Struct):
    """The last event of an offset key, in one cache line."""

    group: i32
    topic: i32
    partition: i32
    next: i32  # One more than the row of the key that followed in the batch this one was last seen in; 0 for none.
    pending: i32  # First pending row of the key, -1 for none.
    value_bytes: i32
    sequence: i64
    value: i64  # Position of the value.
    record_offset: i64
    ordering_offset: i64
    producer_epoch: i16
    kind: i8
    key_type: u8
    is_committed: u8  # 1 when a transaction committed the event.
    unused: u8
    unused_16: i16


class KeyState(Struct):
    """Fields of an offset key that are seldom used."""

    last_tombstone: i64  # Sequence, -1 for none.
    producer_id: i64  # Of an event that a transaction committed.


class Statistics(Struct):
    """Records and bytes of a group's commits of one key type."""

    records: i64
    tombstones: i64
    size_bytes: i64
    first_timestamp: i64
    last_timestamp: i64


class Group(Struct):
    """A group of the fold."""

    touched: i64  # 1 when a commit came since its last group record.
    stamp: i64


class Producer(Struct):
    """A producer id. The fields from ``producer_epoch`` on describe the open transaction, if ``is_open``."""

    producer_id: i64
    first_marker: i64  # Sequence of its first end marker, -1 for none.
    first_marker_offset: i64
    first_marker_commits: i64
    pending: i64  # First of its pending rows, -1 for none.
    is_open: i64
    producer_epoch: i64
    first_offset: i64
    last_offset: i64
    timestamp: i64
    keys: i64


class PendingKind(IntEnum):
    """Kind of a pending row: the transaction's last record of the offset key."""

    NOTED = 0  # A tombstone that changed nothing pending: it only counts as one of the transaction's keys.
    VALUE = 1
    CLEARED = 2  # A tombstone removed pending commits, of this segment and of earlier ones.


class Phase(IntEnum):
    """Life of a pending row."""

    FREE = 0
    OPEN = 1
    CLOSED = 2  # Closed by the producer's first end marker, which may close rows of earlier segments too.


class Pending(Struct):
    """An offset key in a producer's transaction."""

    key: i64
    producer: i64
    kind: i64
    phase: i64
    sequence: i64
    value: i64
    value_bytes: i64
    key_type: i64
    record_offset: i64
    ordering_offset: i64
    producer_epoch: i64
    next_of_key: i64
    previous_of_key: i64
    next_of_producer: i64


class GroupRecord(Struct):
    """A record that is kept whole; also a record of a control batch without a control key."""

    sequence: i64
    record_offset: i64
    key_bytes: i64  # Negative for no key; the same of the value.
    value_bytes: i64
    timestamp: i64
    size_bytes: i64
    group: i64
    key_type: i64  # ``NO_KEY_TYPE`` when the key has none, ``CONTROL_KEY`` in a control batch.


class Creation(Struct):
    """A commit that creates its group where that does not exist."""

    sequence: i64
    record_offset: i64
    group: i64


class Fragment(Struct):
    """A transaction that an end marker of this segment closed."""

    producer_id: i64
    producer_epoch: i64
    first_offset: i64
    last_offset: i64
    timestamp: i64
    marker_offset: i64
    committed: i64
    keys: i64
    first: i64  # 1 when the producer's first end marker closed it: it may have begun in an earlier segment.


class FragmentGroup(Struct):
    """A group in a transaction."""

    fragment: i64
    group: i64


class Commit(Struct):
    """An OffsetCommitValue. ``version`` is -1 where it is none that kernels read."""

    version: i64
    committed_offset: i64
    leader_epoch: i64  # -1 for none, as before version 3.
    metadata: i64  # Position.
    metadata_bytes: i64
    commit_timestamp: i64
    expire_timestamp: i64  # -1 for none: only version 1 has one.
    topic_id: i64  # Position of the 16 bytes, -1 for none.


MERGED_KEY_BYTES = 12  # An offset key in a merge: numbers of group and topic, partition.


class WrittenGroup(Struct):
    """A group whose commits are merged to versions."""

    writer: i64  # Of its commits, -1 where each partition has its own or it is not known.
    next_writer: i64  # After the first commit, -1 for the same.
    generations: i64  # Counts what may have changed the writers.
    records: i64
    is_special: i32  # 1 when more than commits came for its offset keys.
    is_touched: i32  # 1 when a commit came since its last group record.


class OpenVersion(Struct):
    """The version of an offset key that stands, in two cache lines; none without ``commits``."""

    first_committed_offset: i64
    committed_offset: i64
    record_offset: i64  # Of the first commit; likewise the two that follow.
    timestamp: i64
    position: i64
    last_record_offset: i64
    expire_timestamp: i64  # 0 where none ``expires``.
    largest_step: i64
    commits: i64  # The second line begins here.
    first_timestamp: i64  # Of the first version of the offset key.
    metadata: i32
    group: i32
    writer: i32
    owner: i32  # Writer of the partition since the group's ``generations``.
    generations: i64
    leader_epoch: i32  # -1 for none.
    value_version: i16
    expires: i16
    ended: i64  # Versions of the offset key that ended before.
    commit_timestamp: i64  # In the value of the newest commit.


class ClosedVersion(Struct):
    """A version that ended, or stands at the end of the log; fields are those of :class:`OpenVersion`.

    It ended where the next one of its ``key`` begins.
    """

    first_committed_offset: i64
    committed_offset: i64
    record_offset: i64
    timestamp: i64
    position: i64
    last_record_offset: i64
    commits: i64
    metadata: i32
    key: i32
    group: i32
    writer: i32
    leader_epoch: i32
    value_version: i32


PACKED_VERSION_BYTES = 6 + 12 * 8  # Most that a version takes packed: the sizes of 12 numbers, and those.


class GatheredRequest(Struct):
    """Versions of one time in a group."""

    group: i64
    time: i64
    first_offset: i64  # The smallest record offset.
    partitions: i64  # How many versions.
    commits: i64  # Most commits that one of them has.
    leader_epoch: i64  # The largest, -1 if none has one.
    value_version: i64  # The smallest.


class PackedBatch(Struct):
    """A batch to be decompressed."""

    position: i64
    size: i64
    codec: i64  # 0 also of a batch without records: nothing of it is compressed then.
    next_offset: i64
    plain_size: i64  # Size with plain records.


class Witness(Struct):
    """Facts that the records of a log have shown so far, for :func:`pass_known`."""

    has_legacy_keys: i64  # 1 when a commit with key type 0 was seen; ``has_keys`` likewise for 1.
    has_keys: i64
    offset_version: i64  # Newest version of an OffsetCommitValue under key type 1, -1 for none.


LZ4_MAGIC = 0x184D2204
ZSTD_MAGIC = 0xFD2FB528
XXH32_PRIME_1 = 2654435761
XXH32_PRIME_2 = 2246822519
XXH32_PRIME_3 = 3266489917


class CodecFunction(IntEnum):
    """Positions in the addresses of C functions: those that decompress at the number of their codec."""

    LZ4 = 3
    ZSTD = 4
    ZSTD_FRAME_SIZE = 5
    ZSTD_CONTEXT = 6  # A decompression context, for one thread at a time.


NO_CONTROL_TYPE = -(1 << 15) - 1  # ``IndexedBatch.control_type`` of a batch that is no control batch, or is empty.
UNREAD_CONTROL_TYPE = -(1 << 15) - 2
"""``IndexedBatch.control_type`` of a control batch that only the readers of ``log`` understand."""


class IndexedBatch(Struct):
    """A batch that decides about others."""

    base_offset: i64
    last_offset: i64
    attributes: i64
    records: i64
    producer_id: i64
    producer_epoch: i64
    max_timestamp: i64
    delete_horizon: i64  # Epoch milliseconds, -1 for none.
    control_type: i64
    leader_epoch: i64
    position: i64  # In its segment.
    segment: i64  # Number of the segment; the caller fills it in.


class SplitKey(Struct):
    """A record of the batches at hand, to compaction."""

    offset: i64
    key: i64
    key_bytes: i64  # -1 for a null key.
    hash: i64
    delete_horizon: i64
    is_tombstone: i64
    is_aborted: i64


class Newest(Struct):
    """The newest records of a raw key, by record offset: -1 where there is none."""

    offset: i64  # Of the newest record that no abort undid; the two fields below are about it.
    is_tombstone: i64
    delete_horizon: i64  # Delete horizon of its batch, epoch milliseconds; -1 for none.
    value_offset: i64  # Of the newest record with a value that no abort undid.
    aborted_offset: i64  # Of the newest record with a value that an abort undid.


class Action(IntEnum):
    """Action on a batch, where it does not follow from the records."""

    NONE = 0
    COPY = 1
    DROP = 2
    KEEP_EMPTY = 3  # Keep it without records if none of them stays.
    SET_HORIZON = 4  # Keep all records and set the delete horizon.


class BatchAction(Struct):
    """An :class:`Action` on the batch at ``base_offset``."""

    base_offset: i64
    action: i64


class WrittenBatch(Struct):
    """A batch of the output; ``position`` is that in the bytes at hand."""

    position: i64
    base_offset: i64
    last_offset: i64
    records: i64
    source_base_offset: i64  # Base offset of the batch that it was made of.


MOST_BYTES_A_RECORD_GROWS = 16
"""A record that is written again with other deltas: both at their longest, and the length with them."""


class RecordSizes(Struct):
    """Records of a raw key, and their bytes in decompressed batches. Timestamps in epoch milliseconds."""

    records: i64
    tombstones: i64
    size_bytes: i64
    live_records: i64
    live_bytes: i64
    first_timestamp: i64
    last_timestamp: i64


class Number(IntEnum):
    """Numbers of a batch or a record that a line of the dump can have.

    Names are those of the attributes of ``log.types.Batch`` and ``Record``, in capitals.
    """

    POSITION = 0
    SIZE = 1
    BASE_OFFSET = 2
    LAST_OFFSET = 3
    RECORD_COUNT = 4
    BASE_SEQUENCE = 5
    LAST_SEQUENCE = 6
    PRODUCER_ID = 7
    PRODUCER_EPOCH = 8
    PARTITION_LEADER_EPOCH = 9
    CRC = 10
    CODEC_ID = 11
    TIMESTAMP_TYPE = 12
    IS_TRANSACTIONAL = 13
    IS_CONTROL = 14
    BASE_TIMESTAMP_MS = 15
    MAX_TIMESTAMP_MS = 16
    OFFSET = 17
    TIMESTAMP_MS = 18
    KEY_SIZE = 19
    VALUE_SIZE = 20
    SEQUENCE = 21
    COORDINATOR_EPOCH = 22  # Of an end marker.
    LENGTH = 23


class FieldKind(IntEnum):
    """Layout of a field in a key or value, and its text; or the part of a batch or record that it prints."""

    END = 0  # No field: behind the fields of a struct.
    INT = 1
    UUID = 2
    STRING = 3  # A JSON string.
    PLAIN_STRING = 4  # Text without quotes.
    PROTOCOL_TYPE = 5  # A JSON string, which says whether blobs are objects.
    BYTES = 6  # In base64.
    BLOB = 7  # Bytes in base64; an object where the protocol type is that of consumers.
    ARRAY = 8
    STRUCT = 9
    NUMBER = 10  # Of a line: a :class:`Number`.
    CHOICE = 11  # Of a line: one of several texts by a :class:`Number`.


class FieldFlag(IntEnum):
    """Bits of ``TextField.flags``."""

    COMPACT = 1  # The length is an unsigned varint, one more than it is. With ``END``: a tag section follows.
    NULLABLE = 2
    TAGGED = 4
    UNSIGNED = 8
    UNPRINTED = 16  # Read over.
    OMIT_EMPTY = 32  # An empty ``PLAIN_STRING`` is left out with its label.


class TextField(Struct):
    """A field of a record schema as the dump prints it, or a piece of a line.

    The fields of a struct are rows in wire order up to ``END``; if that is ``COMPACT``, its tagged fields are
    behind it in the order of their tags, up to another ``END``.
    """

    label: i64  # Text before the value, its separator included; of ``END``, text behind the last value.
    label_bytes: i64
    kind: i64
    flags: i64
    inner: i64
    """``INT``, ``UUID``: bytes. ``STRUCT``: its first row. ``ARRAY``: the row of its element, whose label is
    empty. ``BLOB``: the first of the rows, one a version, of the structs that it can hold. ``NUMBER`` and
    ``CHOICE``: the :class:`Number`."""
    last_version: i64  # Of a ``BLOB``.
    tag: i64
    text: i64
    """Tagged: the text of the default, with which it is left out. ``PROTOCOL_TYPE``: that of consumers.
    ``CHOICE``: the texts, each a byte for its length and itself, filled up to ``text_bytes``."""
    text_bytes: i64


MAX_INT = 0x7FFFFFFF  # Of Java's ``int``.
MAX_STRING_BYTES = 0x7FFF  # Of a string in Kafka's protocol.
SHORT_TEXT_BYTES = 32  # At most what a field takes besides its label and its own bytes: a number, a UUID, quotes.
TEXT_KEY_TYPES = 32  # Record types that can have fields to print.
TEXT_VERSIONS = 8  # Value versions that can.
BASE64_DIGITS = 0
URL_DIGITS = 64
NULL_TEXT = 128
NULL_TEXT_BYTES = 4
ESCAPES = 132
ESCAPE_BYTES = 8
"""First bytes of the texts of a dump: digits of base64 and of UUIDs, ``null``, and what each byte is in a
JSON string, as the texts of a ``CHOICE``."""


class Text(IntEnum):
    """First row of each line, key and value of the dump, ``INVALID`` where there is none."""

    BATCH = 0
    BATCH_WITH_HORIZON = 1
    RECORD = 2
    ABORT = 3
    COMMIT = 4  # Lines up to here, fields from here on.
    TOMBSTONE = 5  # Payload of a tombstone; without it nothing is printed of its key either.
    KEYS = 6  # By record type.
    VALUES = 38  # By record type and value version.
    LENGTH = 294


class ShapeKind(IntEnum):
    """Kind of a step in the shape of a record (:mod:`coordinator_core.kernels.shapes`)."""

    FIXED = 0  # So many bytes (``size``), whatever they are.
    SIZED = 1  # A length and so many bytes, at most ``size``: text or bytes.
    ARRAY = 2  # A length and as often what the steps before ``behind`` say.
    OPTIONAL = 3  # A sign and, if it says so, what the steps before ``behind`` say.
    TAGS = 4  # A tag section; the steps before ``behind`` are the tags that the schema knows.
    TAG = 5  # A known tag (``size`` is its number), whose steps end before ``behind``.


class Prefix(IntEnum):
    """Encoding of a length or a sign."""

    INT8 = 0
    INT16 = 1
    INT32 = 2
    COMPACT = 3  # An unsigned varint, one more than the length.


class ShapeStep(Struct):
    """A step of a shape."""

    kind: i32
    prefix: i32
    is_nullable: i32
    mark: i32  # ``MarkedField``, or 0.
    size: i64
    behind: i64  # First step behind this one and what belongs to it.


class MarkedField(IntEnum):
    """A field of a group record whose content decides more than what its own record says."""

    NONE = 0
    PROTOCOL_TYPE = 1
    MEMBERS = 2
    INSTANCE_ID = 3
    EPOCH = 4
    OWNED = 5  # A list of topics with partitions that a member owns.
    TOPIC_ID = 6
    PARTITIONS = 7
    SUBSCRIPTION = 8


class Mark(Struct):
    """Place of a marked field: ``at`` is behind its length, ``length`` is -1 for null."""

    field: i64
    start: i64
    at: i64
    length: i64


class GroupKind(IntEnum):
    """Type of the group that a loader has under a group id."""

    ABSENT = 0
    CLASSIC = 1
    CONSUMER = 2
    SHARE = 3
    STREAMS = 4


class Role(IntEnum):
    """Roles of group records. Roles below ``MEMBER`` belong to the group, the others to a name in it."""

    METADATA = 0
    TARGET_METADATA = 1
    EXTRA = 2  # Partition metadata of a consumer group, topics of a share group, topology of a streams group.
    SECOND_EXTRA = 3  # Partition metadata of a share group of 4.0.
    MEMBER = 4
    TARGET = 5
    CURRENT = 6
    REGEX = 7


ROLES = 4  # Roles of a group, and of a name in it; a role of a name is so much greater than its place.
SHAPE_VERSIONS = 5  # Value versions of a key type that have shapes: 0 to 4.
MAX_ELEMENTS = 1 << 20  # Of all arrays in a value that is decoded, see ``records.wire``.
COUNTED_VERSIONS = 6  # Counters of a key type: tombstones, value versions 0 to 4.
LEAVING_EPOCH = -1  # Member epoch of a member whose current assignment has a tombstone.
PARTITION_KEY_BYTES = 24  # Group number, topic id and partition.
TOPIC_KEY_BYTES = 21  # Group number, topic id and number of the list that it is in.


class KeyTypeFacts(Struct):
    """A key type as the loader of a release sees it."""

    kind: i64
    role: i64
    newest_version: i64  # Newest value version that the loader reads, -1 where it does not know the key type.


class ValueShape(Struct):
    """Steps of a value version, from ``first`` to before ``behind``; none where ``behind`` is 0."""

    first: i64
    behind: i64


class Form(IntEnum):
    """Form of a value in a key or a value of a record."""

    NUMBER = 0
    STRUCT = 1
    ARRAY = 2
    STRING = 3
    BYTES = 4
    UUID = 5


class Note(IntEnum):
    """Outcome for a group record: taken, or a reason to leave it to the loader in Python."""

    TAKEN = 0
    CARRIED = 1  # No loader interprets it: it changes no group.
    KEY = 2  # The key is not as Kafka writes it. From here on, the group has records whose order matters.
    VALUE = 3  # The value is not as Kafka writes it.
    TYPE = 4  # The record is for a group of another type.
    TOMBSTONE = 5  # The tombstone is refused, or stays behind without a record that it followed.
    OWNER = 6  # The member takes a partition that it may not take, or one twice.
    INSTANCE_ID = 7  # Two members may have one group instance id.
    NOTED = 8  # The group got its note from an earlier record.
    SUBSCRIPTION = 9  # The load may stop at the subscription of a member.


NO_RECORD = -2  # ``NewestRecord.value_bytes`` of a key without a record that still stands; -1 is a tombstone.


class NewestRecord(Struct):
    """The newest record of a raw key."""

    created: i64  # When a record of the key came after none stood; of a regular expression, when the newest came.
    record_offset: i64
    value: i64
    value_bytes: i64
    replaced_bytes: i64  # Of a tombstone: size of the value at ``value`` that it replaced, 0 for none.
    elements: i64  # Elements of all arrays in the value at ``value``.
    room: i64  # Bytes from ``value`` on that are kept for the key.


class Subject(Struct):
    """Subjects of group records: a group, or a name in it (member id, regular expression).

    Its newest records are the rows from ``ROLES`` times its own on.
    """

    group: i64
    generation: i64  # It stands for nothing unless this is the generation of its group.
    is_named: i64
    created: i64  # When the member came.
    epoch: i64  # Member epoch of the member.


class LoadedGroup(Struct):
    """A group by its number."""

    kind: i64
    note: i64
    generation: i64  # Goes up when the group loses all its records.
    created: i64
    members: i64
    targets: i64
    assignment_epoch: i64
    is_simple: i64  # 1 for a classic group without protocol type and members.
    is_shared: i64  # 1 after a member took a partition that another one still owned.
    has_topics: i64  # 1 while a share group has a record of its topics.


class PartitionOwner(Struct):
    """A partition of a consumer group, and the member (row of ``Subject``) who took it last; -1 for none."""

    group: i64
    generation: i64
    owner: i64
    released: i64
    taken: i64
    """Record that was looked at when the partition was last released or taken."""

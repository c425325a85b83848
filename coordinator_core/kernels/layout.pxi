# Made by setup.py.
cdef extern from "layout.h" nogil:
    const Int HEADER_BYTES
    const Int LENGTH_END
    const Int MIN_RECORD_BYTES
    const Int CODEC_BITS
    const Int LOG_APPEND_TIME_BIT
    const Int TRANSACTIONAL_BIT
    const Int CONTROL_BIT
    const Int DELETE_HORIZON_BIT
    const Int NO_PRODUCER_ID
    const Int LAST_OFFSET
    struct BatchField_values:
        Int BASE_OFFSET, LENGTH, LEADER_EPOCH, MAGIC, CRC, ATTRIBUTES, LAST_OFFSET_DELTA, BASE_TIMESTAMP, MAX_TIMESTAMP, PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE, RECORD_COUNT
    const BatchField_values BatchField
    const Int INVALID
    const Int RECORDS_AT_A_TIME
    const Int SEGMENT
    const Int ARENA
    const Int NO_KEY_TYPE
    const Int CONTROL_KEY
    const Int KEY_TYPES
    const Int COMMIT_VERSIONS
    const Int CODECS
    const Int LOW_32_BITS
    const Word ALL_64_BITS
    const Word TOP_BITS_OF_BYTES
    const Word HASH_SEED
    const Word HASH_MULTIPLIER
    const Word HASH_FINISHER
    const Int KEY_ROW_BITS
    const Int KEY_TAG_BITS
    ctypedef struct Header:
        long long size
        long long base_offset
        long long last_offset
        long long attributes
        long long base_timestamp
        long long max_timestamp
        long long producer_id
        long long producer_epoch
        long long count
    ctypedef struct Record:
        long long end
        long long unusual
        long long timestamp_delta
        long long offset_delta
        long long tail
        long long key
        long long key_bytes
        long long value
        long long value_bytes
    struct Unusual_values:
        Int NONE, FRAMING, OFFSET, NO_KEY, KEY, VALUE, HEADERS
    const Unusual_values Unusual
    struct Stop_values:
        Int END, FULL, COMPRESSED, UNUSUAL_RECORDS, UNUSUAL_BATCH
    const Stop_values Stop
    ctypedef struct Key:
        long long hash
        long long start
        long long length
    struct OrderingOffset_values:
        Int RECORD, BATCH_FIRST_RECORD, BATCH_HEADER, NONE
    const OrderingOffset_values OrderingOffset
    struct Kind_values:
        Int VALUE, TOMBSTONE, GROUP, CONTROL
    const Kind_values Kind
    ctypedef struct SplitRecord:
        long long offset
        long long timestamp
        long long kind
        long long detail
        long long key_type
        long long key
        long long key_bytes
        long long body
        long long body_bytes
        long long value
        long long value_bytes
        long long size_bytes
        long long index
        long long hash
        long long row
        long long batch_records
    struct EventKind_values:
        Int NONE, VALUE, TOMBSTONE
    const EventKind_values EventKind
    ctypedef struct Event:
        int group
        int topic
        int partition
        int next
        int pending
        int value_bytes
        long long sequence
        long long value
        long long record_offset
        long long ordering_offset
        short producer_epoch
        signed char kind
        unsigned char key_type
        unsigned char is_committed
        unsigned char unused
        short unused_16
    ctypedef struct KeyState:
        long long last_tombstone
        long long producer_id
    ctypedef struct Statistics:
        long long records
        long long tombstones
        long long size_bytes
        long long first_timestamp
        long long last_timestamp
    ctypedef struct Group:
        long long touched
        long long stamp
    ctypedef struct Producer:
        long long producer_id
        long long first_marker
        long long first_marker_offset
        long long first_marker_commits
        long long pending
        long long is_open
        long long producer_epoch
        long long first_offset
        long long last_offset
        long long timestamp
        long long keys
    struct PendingKind_values:
        Int NOTED, VALUE, CLEARED
    const PendingKind_values PendingKind
    struct Phase_values:
        Int FREE, OPEN, CLOSED
    const Phase_values Phase
    ctypedef struct Pending:
        long long key
        long long producer
        long long kind
        long long phase
        long long sequence
        long long value
        long long value_bytes
        long long key_type
        long long record_offset
        long long ordering_offset
        long long producer_epoch
        long long next_of_key
        long long previous_of_key
        long long next_of_producer
    ctypedef struct GroupRecord:
        long long sequence
        long long record_offset
        long long key
        long long key_bytes
        long long value
        long long value_bytes
        long long timestamp
        long long size_bytes
        long long group
        long long key_type
    ctypedef struct Creation:
        long long sequence
        long long record_offset
        long long group
    ctypedef struct Fragment:
        long long producer_id
        long long producer_epoch
        long long first_offset
        long long last_offset
        long long timestamp
        long long marker_offset
        long long committed
        long long keys
        long long first
    ctypedef struct FragmentGroup:
        long long fragment
        long long group
    ctypedef struct Commit:
        long long version
        long long committed_offset
        long long leader_epoch
        long long metadata
        long long metadata_bytes
        long long commit_timestamp
        long long expire_timestamp
        long long topic_id
    const Int MERGED_KEY_BYTES
    ctypedef struct PackedBatch:
        long long position
        long long size
        long long codec
        long long next_offset
        long long plain_size
    ctypedef struct Witness:
        long long has_legacy_keys
        long long has_keys
        long long offset_version
    const Int LZ4_MAGIC
    const Int ZSTD_MAGIC
    const Int XXH32_PRIME_1
    const Int XXH32_PRIME_2
    const Int XXH32_PRIME_3
    struct CodecFunction_values:
        Int LZ4, ZSTD, ZSTD_FRAME_SIZE, ZSTD_CONTEXT
    const CodecFunction_values CodecFunction
    const Int NO_CONTROL_TYPE
    const Int UNREAD_CONTROL_TYPE
    ctypedef struct IndexedBatch:
        long long base_offset
        long long last_offset
        long long attributes
        long long records
        long long producer_id
        long long producer_epoch
        long long max_timestamp
        long long delete_horizon
        long long control_type
        long long leader_epoch
        long long position
        long long segment
    ctypedef struct SplitKey:
        long long offset
        long long key
        long long key_bytes
        long long hash
        long long delete_horizon
        long long is_tombstone
        long long is_aborted
    ctypedef struct Newest:
        long long offset
        long long is_tombstone
        long long delete_horizon
        long long value_offset
        long long aborted_offset
    struct Action_values:
        Int NONE, COPY, DROP, KEEP_EMPTY, SET_HORIZON
    const Action_values Action
    ctypedef struct BatchAction:
        long long base_offset
        long long action
    ctypedef struct WrittenBatch:
        long long position
        long long base_offset
        long long last_offset
        long long records
        long long source_base_offset
    const Int MOST_BYTES_A_RECORD_GROWS
    ctypedef struct RecordSizes:
        long long records
        long long tombstones
        long long size_bytes
        long long live_records
        long long live_bytes
        long long first_timestamp
        long long last_timestamp
    struct Number_values:
        Int POSITION, SIZE, BASE_OFFSET, LAST_OFFSET, RECORD_COUNT, BASE_SEQUENCE, LAST_SEQUENCE, PRODUCER_ID, PRODUCER_EPOCH, PARTITION_LEADER_EPOCH, CRC, CODEC_ID, TIMESTAMP_TYPE, IS_TRANSACTIONAL, IS_CONTROL, BASE_TIMESTAMP_MS, MAX_TIMESTAMP_MS, OFFSET, TIMESTAMP_MS, KEY_SIZE, VALUE_SIZE, SEQUENCE, COORDINATOR_EPOCH, LENGTH
    const Number_values Number
    struct FieldKind_values:
        Int END, INT, UUID, STRING, PLAIN_STRING, PROTOCOL_TYPE, BYTES, BLOB, ARRAY, STRUCT, NUMBER, CHOICE
    const FieldKind_values FieldKind
    struct FieldFlag_values:
        Int COMPACT, NULLABLE, TAGGED, UNSIGNED, UNPRINTED, OMIT_EMPTY
    const FieldFlag_values FieldFlag
    ctypedef struct TextField:
        long long label
        long long label_bytes
        long long kind
        long long flags
        long long inner
        long long last_version
        long long tag
        long long text
        long long text_bytes
    const Int MAX_INT
    const Int MAX_STRING_BYTES
    const Int SHORT_TEXT_BYTES
    const Int TEXT_KEY_TYPES
    const Int TEXT_VERSIONS
    const Int BASE64_DIGITS
    const Int URL_DIGITS
    const Int NULL_TEXT
    const Int NULL_TEXT_BYTES
    const Int ESCAPES
    const Int ESCAPE_BYTES
    struct Text_values:
        Int BATCH, BATCH_WITH_HORIZON, RECORD, ABORT, COMMIT, TOMBSTONE, KEYS, VALUES, LENGTH
    const Text_values Text
    struct ShapeKind_values:
        Int FIXED, SIZED, ARRAY, OPTIONAL, TAGS, TAG
    const ShapeKind_values ShapeKind
    struct Prefix_values:
        Int INT8, INT16, INT32, COMPACT
    const Prefix_values Prefix
    ctypedef struct ShapeStep:
        int kind
        int prefix
        int is_nullable
        int mark
        long long size
        long long behind
    struct MarkedField_values:
        Int NONE, PROTOCOL_TYPE, MEMBERS, INSTANCE_ID, EPOCH, OWNED, TOPIC_ID, PARTITIONS
    const MarkedField_values MarkedField
    ctypedef struct Mark:
        long long field
        long long start
        long long at
        long long length
    struct GroupKind_values:
        Int ABSENT, CLASSIC, CONSUMER, SHARE, STREAMS
    const GroupKind_values GroupKind
    struct Role_values:
        Int METADATA, TARGET_METADATA, EXTRA, MEMBER, TARGET, CURRENT, REGEX
    const Role_values Role
    const Int ROLES
    const Int SHAPE_VERSIONS
    const Int COUNTED_VERSIONS
    const Int LEAVING_EPOCH
    const Int PARTITION_KEY_BYTES
    const Int TOPIC_KEY_BYTES
    ctypedef struct KeyTypeFacts:
        long long kind
        long long role
        long long newest_version
    ctypedef struct ValueShape:
        long long first
        long long behind
    struct Note_values:
        Int TAKEN, CARRIED, KEY, VALUE, TYPE, TOMBSTONE, OWNER, INSTANCE_ID, NOTED
    const Note_values Note
    const Int NO_RECORD
    ctypedef struct NewestRecord:
        long long created
        long long record_offset
        long long value
        long long value_bytes
        long long replaced_bytes
        long long room
    ctypedef struct Subject:
        long long group
        long long generation
        long long is_named
        long long created
        long long epoch
    ctypedef struct LoadedGroup:
        long long kind
        long long note
        long long generation
        long long created
        long long members
        long long targets
        long long assignment_epoch
        long long is_simple
        long long is_shared
        long long has_topics
    ctypedef struct PartitionOwner:
        long long group
        long long generation
        long long owner
        long long released
        long long taken
ctypedef Header[::1] HeaderRows
ctypedef Record[::1] RecordRows
ctypedef Key[::1] KeyRows
ctypedef SplitRecord[::1] SplitRecordRows
ctypedef Event[::1] EventRows
ctypedef KeyState[::1] KeyStateRows
ctypedef Statistics[::1] StatisticsRows
ctypedef Group[::1] GroupRows
ctypedef Producer[::1] ProducerRows
ctypedef Pending[::1] PendingRows
ctypedef GroupRecord[::1] GroupRecordRows
ctypedef Creation[::1] CreationRows
ctypedef Fragment[::1] FragmentRows
ctypedef FragmentGroup[::1] FragmentGroupRows
ctypedef Commit[::1] CommitRows
ctypedef PackedBatch[::1] PackedBatchRows
ctypedef Witness[::1] WitnessRows
ctypedef IndexedBatch[::1] IndexedBatchRows
ctypedef SplitKey[::1] SplitKeyRows
ctypedef Newest[::1] NewestRows
ctypedef BatchAction[::1] BatchActionRows
ctypedef WrittenBatch[::1] WrittenBatchRows
ctypedef RecordSizes[::1] RecordSizesRows
ctypedef TextField[::1] TextFieldRows
ctypedef ShapeStep[::1] ShapeStepRows
ctypedef Mark[::1] MarkRows
ctypedef KeyTypeFacts[::1] KeyTypeFactsRows
ctypedef ValueShape[::1] ValueShapeRows
ctypedef NewestRecord[::1] NewestRecordRows
ctypedef Subject[::1] SubjectRows
ctypedef LoadedGroup[::1] LoadedGroupRows
ctypedef PartitionOwner[::1] PartitionOwnerRows

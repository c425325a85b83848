/* Made by setup.py. */
#ifndef REGROUP_LAYOUT_H
#define REGROUP_LAYOUT_H
static const long long HEADER_BYTES = 61LL;
static const long long LENGTH_END = 12LL;
static const long long MIN_RECORD_BYTES = 7LL;
static const long long CODEC_BITS = 7LL;
static const long long LOG_APPEND_TIME_BIT = 8LL;
static const long long TRANSACTIONAL_BIT = 16LL;
static const long long CONTROL_BIT = 32LL;
static const long long DELETE_HORIZON_BIT = 64LL;
static const long long NO_PRODUCER_ID = -1LL;
static const long long LAST_OFFSET = 9223372036854775806LL;
static const struct BatchField_values { long long BASE_OFFSET, LENGTH, LEADER_EPOCH, MAGIC, CRC, ATTRIBUTES, LAST_OFFSET_DELTA, BASE_TIMESTAMP, MAX_TIMESTAMP, PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE, RECORD_COUNT; } BatchField =
    { 0, 8, 12, 16, 17, 21, 23, 27, 35, 43, 51, 53, 57 };
static const long long INVALID = -1LL;
static const long long RECORDS_AT_A_TIME = 128LL;
static const long long SEGMENT = 1099511627776LL;
static const long long ARENA = 72057594037927936LL;
static const long long NO_KEY_TYPE = -32769LL;
static const long long CONTROL_KEY = -32770LL;
static const long long KEY_TYPES = 2LL;
static const long long COMMIT_VERSIONS = 6LL;
static const long long CODECS = 8LL;
static const long long LOW_32_BITS = 4294967295LL;
static const unsigned long long ALL_64_BITS = 18446744073709551615ULL;
static const unsigned long long TOP_BITS_OF_BYTES = 9259542123273814144ULL;
static const unsigned long long HASH_SEED = 15485907386658061715ULL;
static const unsigned long long HASH_MULTIPLIER = 11400714819323198485ULL;
static const unsigned long long HASH_FINISHER = 13787848793156543929ULL;
static const long long KEY_ROW_BITS = 1099511627775LL;
static const long long KEY_TAG_BITS = 9223370937343148032LL;
typedef struct {
    long long size;
    long long base_offset;
    long long last_offset;
    long long attributes;
    long long base_timestamp;
    long long max_timestamp;
    long long producer_id;
    long long producer_epoch;
    long long count;
} Header;
typedef struct {
    long long end;
    long long unusual;
    long long timestamp_delta;
    long long offset_delta;
    long long tail;
    long long key;
    long long key_bytes;
    long long value;
    long long value_bytes;
} Record;
static const struct Unusual_values { long long NONE, FRAMING, OFFSET, NO_KEY, KEY, VALUE, HEADERS; } Unusual =
    { 0, 1, 2, 4, 8, 16, 32 };
static const struct Stop_values { long long END, FULL, COMPRESSED, UNUSUAL_RECORDS, UNUSUAL_BATCH; } Stop =
    { 0, 1, 2, 3, 4 };
typedef struct {
    long long hash;
    long long start;
    long long length;
} Key;
static const struct OrderingOffset_values { long long RECORD, BATCH_FIRST_RECORD, BATCH_HEADER, NONE; } OrderingOffset =
    { 0, 1, 2, 3 };
static const struct Kind_values { long long VALUE, TOMBSTONE, GROUP, CONTROL; } Kind =
    { 0, 1, 2, 3 };
typedef struct {
    long long offset;
    long long timestamp;
    long long kind;
    long long detail;
    long long key_type;
    long long key;
    long long key_bytes;
    long long body;
    long long body_bytes;
    long long value;
    long long value_bytes;
    long long size_bytes;
    long long index;
    long long hash;
    long long row;
    long long batch_records;
} SplitRecord;
static const struct EventKind_values { long long NONE, VALUE, TOMBSTONE; } EventKind =
    { 0, 1, 2 };
typedef struct {
    int group;
    int topic;
    int partition;
    int next;
    int pending;
    int value_bytes;
    long long sequence;
    long long value;
    long long record_offset;
    long long ordering_offset;
    short producer_epoch;
    signed char kind;
    unsigned char key_type;
    unsigned char is_committed;
    unsigned char unused;
    short unused_16;
} Event;
typedef struct {
    long long last_tombstone;
    long long producer_id;
} KeyState;
typedef struct {
    long long records;
    long long tombstones;
    long long size_bytes;
    long long first_timestamp;
    long long last_timestamp;
} Statistics;
typedef struct {
    long long touched;
    long long stamp;
} Group;
typedef struct {
    long long producer_id;
    long long first_marker;
    long long first_marker_offset;
    long long first_marker_commits;
    long long pending;
    long long is_open;
    long long producer_epoch;
    long long first_offset;
    long long last_offset;
    long long timestamp;
    long long keys;
} Producer;
static const struct PendingKind_values { long long NOTED, VALUE, CLEARED; } PendingKind =
    { 0, 1, 2 };
static const struct Phase_values { long long FREE, OPEN, CLOSED; } Phase =
    { 0, 1, 2 };
typedef struct {
    long long key;
    long long producer;
    long long kind;
    long long phase;
    long long sequence;
    long long value;
    long long value_bytes;
    long long key_type;
    long long record_offset;
    long long ordering_offset;
    long long producer_epoch;
    long long next_of_key;
    long long previous_of_key;
    long long next_of_producer;
} Pending;
typedef struct {
    long long sequence;
    long long record_offset;
    long long key;
    long long key_bytes;
    long long value;
    long long value_bytes;
    long long timestamp;
    long long size_bytes;
    long long group;
    long long key_type;
} GroupRecord;
typedef struct {
    long long sequence;
    long long record_offset;
    long long group;
} Creation;
typedef struct {
    long long producer_id;
    long long producer_epoch;
    long long first_offset;
    long long last_offset;
    long long timestamp;
    long long marker_offset;
    long long committed;
    long long keys;
    long long first;
} Fragment;
typedef struct {
    long long fragment;
    long long group;
} FragmentGroup;
typedef struct {
    long long version;
    long long committed_offset;
    long long leader_epoch;
    long long metadata;
    long long metadata_bytes;
    long long commit_timestamp;
    long long expire_timestamp;
    long long topic_id;
} Commit;
static const long long MERGED_KEY_BYTES = 12LL;
typedef struct {
    long long position;
    long long size;
    long long codec;
    long long next_offset;
    long long plain_size;
} PackedBatch;
typedef struct {
    long long has_legacy_keys;
    long long has_keys;
    long long offset_version;
} Witness;
static const long long LZ4_MAGIC = 407708164LL;
static const long long ZSTD_MAGIC = 4247762216LL;
static const long long XXH32_PRIME_1 = 2654435761LL;
static const long long XXH32_PRIME_2 = 2246822519LL;
static const long long XXH32_PRIME_3 = 3266489917LL;
static const struct CodecFunction_values { long long LZ4, ZSTD, ZSTD_FRAME_SIZE, ZSTD_CONTEXT; } CodecFunction =
    { 3, 4, 5, 6 };
static const long long NO_CONTROL_TYPE = -32769LL;
static const long long UNREAD_CONTROL_TYPE = -32770LL;
typedef struct {
    long long base_offset;
    long long last_offset;
    long long attributes;
    long long records;
    long long producer_id;
    long long producer_epoch;
    long long max_timestamp;
    long long delete_horizon;
    long long control_type;
    long long leader_epoch;
    long long position;
    long long segment;
} IndexedBatch;
typedef struct {
    long long offset;
    long long key;
    long long key_bytes;
    long long hash;
    long long delete_horizon;
    long long is_tombstone;
    long long is_aborted;
} SplitKey;
typedef struct {
    long long offset;
    long long is_tombstone;
    long long delete_horizon;
    long long value_offset;
    long long aborted_offset;
} Newest;
static const struct Action_values { long long NONE, COPY, DROP, KEEP_EMPTY, SET_HORIZON; } Action =
    { 0, 1, 2, 3, 4 };
typedef struct {
    long long base_offset;
    long long action;
} BatchAction;
typedef struct {
    long long position;
    long long base_offset;
    long long last_offset;
    long long records;
    long long source_base_offset;
} WrittenBatch;
static const long long MOST_BYTES_A_RECORD_GROWS = 16LL;
typedef struct {
    long long records;
    long long tombstones;
    long long size_bytes;
    long long live_records;
    long long live_bytes;
    long long first_timestamp;
    long long last_timestamp;
} RecordSizes;
static const struct Number_values { long long POSITION, SIZE, BASE_OFFSET, LAST_OFFSET, RECORD_COUNT, BASE_SEQUENCE, LAST_SEQUENCE, PRODUCER_ID, PRODUCER_EPOCH, PARTITION_LEADER_EPOCH, CRC, CODEC_ID, TIMESTAMP_TYPE, IS_TRANSACTIONAL, IS_CONTROL, BASE_TIMESTAMP_MS, MAX_TIMESTAMP_MS, OFFSET, TIMESTAMP_MS, KEY_SIZE, VALUE_SIZE, SEQUENCE, COORDINATOR_EPOCH, LENGTH; } Number =
    { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23 };
static const struct FieldKind_values { long long END, INT, UUID, STRING, PLAIN_STRING, PROTOCOL_TYPE, BYTES, BLOB, ARRAY, STRUCT, NUMBER, CHOICE; } FieldKind =
    { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };
static const struct FieldFlag_values { long long COMPACT, NULLABLE, TAGGED, UNSIGNED, UNPRINTED, OMIT_EMPTY; } FieldFlag =
    { 1, 2, 4, 8, 16, 32 };
typedef struct {
    long long label;
    long long label_bytes;
    long long kind;
    long long flags;
    long long inner;
    long long last_version;
    long long tag;
    long long text;
    long long text_bytes;
} TextField;
static const long long MAX_INT = 2147483647LL;
static const long long MAX_STRING_BYTES = 32767LL;
static const long long SHORT_TEXT_BYTES = 32LL;
static const long long TEXT_KEY_TYPES = 32LL;
static const long long TEXT_VERSIONS = 8LL;
static const long long BASE64_DIGITS = 0LL;
static const long long URL_DIGITS = 64LL;
static const long long NULL_TEXT = 128LL;
static const long long NULL_TEXT_BYTES = 4LL;
static const long long ESCAPES = 132LL;
static const long long ESCAPE_BYTES = 8LL;
static const struct Text_values { long long BATCH, BATCH_WITH_HORIZON, RECORD, ABORT, COMMIT, TOMBSTONE, KEYS, VALUES, LENGTH; } Text =
    { 0, 1, 2, 3, 4, 5, 6, 38, 294 };
static const struct ShapeKind_values { long long FIXED, SIZED, ARRAY, OPTIONAL, TAGS, TAG; } ShapeKind =
    { 0, 1, 2, 3, 4, 5 };
static const struct Prefix_values { long long INT8, INT16, INT32, COMPACT; } Prefix =
    { 0, 1, 2, 3 };
typedef struct {
    int kind;
    int prefix;
    int is_nullable;
    int mark;
    long long size;
    long long behind;
} ShapeStep;
static const struct MarkedField_values { long long NONE, PROTOCOL_TYPE, MEMBERS, INSTANCE_ID, EPOCH, OWNED, TOPIC_ID, PARTITIONS; } MarkedField =
    { 0, 1, 2, 3, 4, 5, 6, 7 };
typedef struct {
    long long field;
    long long start;
    long long at;
    long long length;
} Mark;
static const struct GroupKind_values { long long ABSENT, CLASSIC, CONSUMER, SHARE, STREAMS; } GroupKind =
    { 0, 1, 2, 3, 4 };
static const struct Role_values { long long METADATA, TARGET_METADATA, EXTRA, MEMBER, TARGET, CURRENT, REGEX; } Role =
    { 0, 1, 2, 4, 5, 6, 7 };
static const long long ROLES = 4LL;
static const long long SHAPE_VERSIONS = 5LL;
static const long long COUNTED_VERSIONS = 6LL;
static const long long LEAVING_EPOCH = -1LL;
static const long long PARTITION_KEY_BYTES = 24LL;
static const long long TOPIC_KEY_BYTES = 21LL;
typedef struct {
    long long kind;
    long long role;
    long long newest_version;
} KeyTypeFacts;
typedef struct {
    long long first;
    long long behind;
} ValueShape;
static const struct Note_values { long long TAKEN, CARRIED, KEY, VALUE, TYPE, TOMBSTONE, OWNER, INSTANCE_ID, NOTED; } Note =
    { 0, 1, 2, 3, 4, 5, 6, 7, 8 };
static const long long NO_RECORD = -2LL;
typedef struct {
    long long created;
    long long record_offset;
    long long value;
    long long value_bytes;
    long long replaced_bytes;
    long long room;
} NewestRecord;
typedef struct {
    long long group;
    long long generation;
    long long is_named;
    long long created;
    long long epoch;
} Subject;
typedef struct {
    long long kind;
    long long note;
    long long generation;
    long long created;
    long long members;
    long long targets;
    long long assignment_epoch;
    long long is_simple;
    long long is_shared;
    long long has_topics;
} LoadedGroup;
typedef struct {
    long long group;
    long long generation;
    long long owner;
    long long released;
    long long taken;
} PartitionOwner;
#endif

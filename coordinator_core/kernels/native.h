/* What Cython has no spelling for: unaligned loads and stores, prefetching, CRC-32C by instruction.

   A load takes the addresses of its first and last byte. The second is only there so that a build
   with bounds checks (`make check-kernels`) checks it. */

#ifndef REGROUP_NATIVE_H
#define REGROUP_NATIVE_H

#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define REGROUP_BIG(bits, word) (word)
#define REGROUP_LITTLE(bits, word) __builtin_bswap##bits(word)
#else
#define REGROUP_BIG(bits, word) __builtin_bswap##bits(word)
#define REGROUP_LITTLE(bits, word) (word)
#endif

typedef const unsigned char *regroup_bytes;

#define REGROUP_LOAD(name, kind, bits, in_order) \
    static inline kind##64_t load_##name(regroup_bytes first, regroup_bytes last) { \
        uint##bits##_t word; \
        (void)last; \
        memcpy(&word, first, sizeof word); \
        return (kind##bits##_t)in_order(bits, word); \
    }
REGROUP_LOAD(be64, int, 64, REGROUP_BIG)
REGROUP_LOAD(be32, int, 32, REGROUP_BIG)
REGROUP_LOAD(be16, int, 16, REGROUP_BIG)
REGROUP_LOAD(le64, uint, 64, REGROUP_LITTLE)

/* The same for a store. */
static inline void store_le64(unsigned char *first, unsigned char *last, uint64_t word) {
    (void)last;
    word = REGROUP_LITTLE(64, word);
    memcpy(first, &word, sizeof word);
}

/* How many bytes a number has, without the highest ones that are 0. */
static inline int64_t byte_length(uint64_t word) { return word ? (71 - __builtin_clzll(word)) >> 3 : 0; }

/* Both halves of a product together: no bits of the factors have an effect that is known without the other factor. */
static inline uint64_t folded_product(uint64_t left, uint64_t right) {
    unsigned __int128 product = (unsigned __int128)left * right;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Copies a run of bytes: short ones by words, which a call would cost more than. The ends are included. */
static inline void copy_run(unsigned char *first, unsigned char *last, regroup_bytes from, regroup_bytes to) {
    size_t size = (size_t)(last - first) + 1;
    (void)to;
    if (size > 64) {
        memcpy(first, from, size);
    } else if (size >= 8) {
        for (size_t at = 0; at + 8 < size; at += 8) memcpy(first + at, from + at, 8);
        memcpy(first + size - 8, from + size - 8, 8);
    } else {
        for (size_t at = 0; at < size; at++) first[at] = from[at];
    }
}

/* Copies a field of 1, 2, 4 or 8 bytes from each of `count` rows to a column. */
static inline void copy_fields(
    regroup_bytes row, int64_t row_bytes, unsigned char *column, int64_t size, int64_t count) {
#define REGROUP_COPY_FIELDS(bytes) \
    for (int64_t at = 0; at < count; at++) memcpy(column + at * (bytes), row + at * row_bytes, (bytes))
    switch (size) {
    case 8: REGROUP_COPY_FIELDS(8); break;
    case 4: REGROUP_COPY_FIELDS(4); break;
    case 2: REGROUP_COPY_FIELDS(2); break;
    default: REGROUP_COPY_FIELDS(1); break;
    }
}

/* GCC leaves out a loop that does nothing but fetch: the empty instruction is something. */
static inline void fetch_ahead(const void *address) {
    __builtin_prefetch(address);
    __asm__ volatile("" : : "r"(address));
}

/* CRC-32C (Castagnoli), reflected, as in RFC 3720 appendix B.4; and CRC-32, which message formats 0 and 1 have. */

#define REGROUP_CRC_POLYNOMIAL 0x82F63B78u
#define REGROUP_LEGACY_CRC_POLYNOMIAL 0xEDB88320u
#define REGROUP_CRC_LANE 256

typedef uint32_t regroup_crc_table[8][256];  /* register after one byte and 0 to 7 zero bytes */

static regroup_crc_table regroup_crc_bytes, regroup_legacy_crc_bytes;
static uint32_t regroup_crc_lane[4][256];   /* register after REGROUP_CRC_LANE zero bytes, by its byte */

static void crc_fill(regroup_crc_table table, uint32_t polynomial) {
    for (int byte = 0; byte < 256; byte++) {
        uint32_t value = (uint32_t)byte;
        for (int bit = 0; bit < 8; bit++) value = (value >> 1) ^ (value & 1 ? polynomial : 0);
        table[0][byte] = value;
    }
    for (int distance = 1; distance < 8; distance++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = table[distance - 1][byte];
            table[distance][byte] = (before >> 8) ^ table[0][before & 0xFF];
        }
}

static void crc32c_initialize(void) {
    crc_fill(regroup_crc_bytes, REGROUP_CRC_POLYNOMIAL);
    crc_fill(regroup_legacy_crc_bytes, REGROUP_LEGACY_CRC_POLYNOMIAL);
    for (int place = 0; place < 4; place++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t value = (uint32_t)byte << (8 * place);
            for (int zero = 0; zero < REGROUP_CRC_LANE; zero++)
                value = (value >> 8) ^ regroup_crc_bytes[0][value & 0xFF];
            regroup_crc_lane[place][byte] = value;
        }
}

static uint32_t crc_by_tables(regroup_crc_table table, uint32_t crc, regroup_bytes data, size_t size) {
    while (size >= 8) {
        uint64_t word = load_le64(data, data + 7) ^ crc;
        crc = 0;
        for (int place = 0; place < 8; place++)
            crc ^= table[7 - place][(word >> (8 * place)) & 0xFF];
        data += 8;
        size -= 8;
    }
    while (size--) crc = table[0][(crc ^ *data++) & 0xFF] ^ (crc >> 8);
    return crc;
}

#if defined(__x86_64__)
#include <nmmintrin.h>
#define REGROUP_CRC_TARGET __attribute__((target("sse4.2")))
#define REGROUP_HAS_CRC __builtin_cpu_supports("sse4.2")
#define regroup_crc_word(crc, word) _mm_crc32_u64(crc, word)
#define regroup_crc_byte(crc, byte) _mm_crc32_u8(crc, byte)
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define REGROUP_CRC_TARGET
#define REGROUP_HAS_CRC 1
#define regroup_crc_word(crc, word) __crc32cd(crc, word)
#define regroup_crc_byte(crc, byte) __crc32cb(crc, byte)
#endif

#ifdef REGROUP_CRC_TARGET
static inline uint32_t crc32c_behind_lane(uint32_t crc) {
    return regroup_crc_lane[0][crc & 0xFF] ^ regroup_crc_lane[1][(crc >> 8) & 0xFF] ^
           regroup_crc_lane[2][(crc >> 16) & 0xFF] ^ regroup_crc_lane[3][crc >> 24];
}

REGROUP_CRC_TARGET static uint32_t crc32c_by_instruction(uint32_t crc, regroup_bytes data, size_t size) {
    uint64_t first = crc;
    /* The instruction can begin each cycle and takes three: three lanes go side by side. */
    while (size >= 3 * REGROUP_CRC_LANE) {
        uint64_t second = 0, third = 0;
        for (regroup_bytes at = data; at < data + REGROUP_CRC_LANE; at += 8) {
            first = regroup_crc_word(first, load_le64(at, at + 7));
            second = regroup_crc_word(second, load_le64(at + REGROUP_CRC_LANE, at + REGROUP_CRC_LANE + 7));
            third = regroup_crc_word(third, load_le64(at + 2 * REGROUP_CRC_LANE, at + 2 * REGROUP_CRC_LANE + 7));
        }
        first = crc32c_behind_lane((uint32_t)first) ^ second;
        first = crc32c_behind_lane((uint32_t)first) ^ third;
        data += 3 * REGROUP_CRC_LANE;
        size -= 3 * REGROUP_CRC_LANE;
    }
    while (size >= 8) {
        first = regroup_crc_word(first, load_le64(data, data + 7));
        data += 8;
        size -= 8;
    }
    crc = (uint32_t)first;
    while (size--) crc = regroup_crc_byte(crc, *data++);
    return crc;
}
#endif

/* CRC-32C of the bytes from `first` to `last`, both included. */
static inline int64_t crc32c_of(regroup_bytes first, regroup_bytes last) {
    size_t size = (size_t)(last - first) + 1;
#ifdef REGROUP_CRC_TARGET
    if (REGROUP_HAS_CRC) return (int64_t)(crc32c_by_instruction(~0u, first, size) ^ ~0u);
#endif
    return (int64_t)(crc_by_tables(regroup_crc_bytes, ~0u, first, size) ^ ~0u);
}

static inline int64_t crc32c_by_tables_of(regroup_bytes first, regroup_bytes last) {
    return (int64_t)(crc_by_tables(regroup_crc_bytes, ~0u, first, (size_t)(last - first) + 1) ^ ~0u);
}

static inline int64_t crc32_of(regroup_bytes first, regroup_bytes last) {
    return (int64_t)(crc_by_tables(regroup_legacy_crc_bytes, ~0u, first, (size_t)(last - first) + 1) ^ ~0u);
}

/* C functions of the codec libraries, called by their addresses (`log.compression.libraries`). */

static inline int64_t call_lz4(int64_t function, regroup_bytes source, int64_t size, unsigned char *target, int64_t room) {
    return ((int (*)(const char *, char *, int, int))(intptr_t)function)((const char *)source, (char *)target, (int)size, (int)room);
}

static inline int64_t call_zstd_frame_size(int64_t function, regroup_bytes source, int64_t size) {
    return (int64_t)((size_t (*)(const void *, size_t))(intptr_t)function)(source, (size_t)size);
}

static inline int64_t call_zstd(int64_t function, int64_t context, regroup_bytes source, int64_t size, unsigned char *target, int64_t room) {
    return (int64_t)((size_t (*)(void *, void *, size_t, const void *, size_t))(intptr_t)function)(
        (void *)(intptr_t)context, target, (size_t)room, source, (size_t)size);
}

#endif

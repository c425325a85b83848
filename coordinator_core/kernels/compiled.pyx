# cython: language_level=3, infer_types=True, cdivision=True, wraparound=False, initializedcheck=False
# cython: embedsignature=False
"""All kernels as one extension module, so that the C compiler sees and inlines across them.

Each included file is a module of this package, made into C functions by ``setup.py``, which also makes
``layout.pxi`` of the modules ``layout`` and says whether bounds are checked.
"""

cimport cython
import cython

from coordinator_core.kernels.arrays import HASH_SECRETS, array_of, grown, new_bytes, new_rows, zeros

ctypedef long long Int
ctypedef unsigned long long Word
ctypedef const unsigned char[::1] Bytes
ctypedef unsigned char[::1] MutableBytes
ctypedef const long long[::1] Int64s
ctypedef long long[::1] MutableInt64s
ctypedef const int[::1] Int32s

include "layout.pxi"

cdef extern from "native.h" nogil:
    void crc32c_initialize()
    Int crc32c_of(const unsigned char *first, const unsigned char *last)
    Int crc32c_by_tables_of(const unsigned char *first, const unsigned char *last)
    Int crc32_of(const unsigned char *first, const unsigned char *last)
    Int load_be64(const unsigned char *first, const unsigned char *last)
    Int load_be32(const unsigned char *first, const unsigned char *last)
    Int load_be16(const unsigned char *first, const unsigned char *last)
    Word load_le64(const unsigned char *first, const unsigned char *last)
    void store_le64(unsigned char *first, unsigned char *last, Word word)
    Int byte_length(Word word)
    Word folded_product(Word left, Word right)
    void copy_run(unsigned char *first, unsigned char *last, const unsigned char *source, const unsigned char *end)
    void copy_fields(const unsigned char *row, Int row_bytes, unsigned char *column, Int size, Int count)
    void fetch_ahead(const void *address)
    Int call_lz4(Int function, const unsigned char *source, Int size, unsigned char *target, Int room)
    Int call_zstd_frame_size(Int function, const unsigned char *source, Int size)
    Int call_zstd(Int function, Int context, const unsigned char *source, Int size, unsigned char *target, Int room)

crc32c_initialize()

include "primitives.pxi"
include "framing.pxi"
include "key_table.pxi"
include "commits.pxi"
include "fold_tables.pxi"
include "fold.pxi"
include "legacy.pxi"
include "survivors.pxi"
include "numbering.pxi"
include "unpacking.pxi"
include "witnesses.pxi"
include "passing.pxi"
include "versions.pxi"
include "packing.pxi"
include "requests.pxi"
include "batch_index.pxi"
include "newest.pxi"
include "batch_filter.pxi"
include "record_sizes.pxi"
include "text.pxi"
include "shapes.pxi"
include "group_records.pxi"
include "values.pxi"

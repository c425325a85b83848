"""The kernels as the Python that they are written in: for machines that may not compile, and for debuggers.

Arrays are passed on as views whose items are Python numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import numpy as np

from coordinator_core.kernels import (
    batch_filter,
    batch_index,
    commits,
    fold,
    framing,
    legacy,
    newest,
    numbering,
    packing,
    passing,
    record_sizes,
    requests,
    survivors,
    unpacking,
    versions,
    witnesses,
)
from coordinator_core.kernels.arrays import viewed
from coordinator_core.kernels.batch_index import BatchIndex
from coordinator_core.kernels.fold_tables import FoldTables
from coordinator_core.kernels.framing import Bounds
from coordinator_core.kernels.group_records import GroupRecords
from coordinator_core.kernels.key_table import KeyTable
from coordinator_core.kernels.newest import NewestTable
from coordinator_core.kernels.passing import Passage
from coordinator_core.kernels.text import TextWriter
from coordinator_core.kernels.values import ValueDecoder
from coordinator_core.kernels.versions import VersionTable

__all__ = [
    "BatchFilter",
    "BatchIndex",
    "Bounds",
    "FoldTables",
    "GroupRecords",
    "KeyTable",
    "NewestTable",
    "Passage",
    "SizeTable",
    "TextWriter",
    "ValueDecoder",
    "VersionTable",
    "add_record_sizes",
    "compact_arena",
    "decode_commits",
    "enter_newest",
    "filter_batches",
    "fold_chunk",
    "fold_messages",
    "fold_split",
    "fold_wrapper",
    "gather",
    "gather_headers",
    "gather_requests",
    "index_batches",
    "list_batches",
    "merge_newest",
    "merge_stored_newest",
    "number_keys",
    "pack_versions",
    "pass_batches",
    "pass_known",
    "portion_of",
    "spread",
    "take_commit",
    "take_commits",
    "unpack",
    "unpack_versions",
]

warnings.warn(
    "Regroup's kernels are not compiled: results are the same, at a hundredth of the speed. "
    "`make setup` compiles them where a C compiler is installed.",
    stacklevel=2,
)


def _viewed(arguments: tuple[Any, ...]) -> Iterator[Any]:
    return (viewed(each) if isinstance(each, np.ndarray) else each for each in arguments)


def _entry(kernel: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(kernel)
    def call(*arguments: Any) -> Any:
        return kernel(*_viewed(arguments))

    return call


class BatchFilter(batch_filter.BatchFilter):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*_viewed(arguments))


class SizeTable(record_sizes.SizeTable):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*_viewed(arguments))


add_record_sizes = _entry(record_sizes.add_record_sizes)
compact_arena = _entry(survivors.compact_arena)
decode_commits = _entry(commits.decode_commits)
enter_newest = _entry(newest.enter_newest)
filter_batches = _entry(batch_filter.filter_batches)
fold_chunk = _entry(fold.fold_chunk)
fold_messages = _entry(legacy.fold_messages)
fold_split = _entry(fold.fold_split)
fold_wrapper = _entry(legacy.fold_wrapper)
gather = _entry(survivors.gather)
gather_headers = _entry(framing.gather_headers)
gather_requests = _entry(requests.gather_requests)
index_batches = _entry(batch_index.index_batches)
list_batches = _entry(unpacking.list_batches)
merge_newest = _entry(newest.merge_newest)
merge_stored_newest = _entry(newest.merge_stored_newest)
number_keys = _entry(numbering.number_keys)
pack_versions = _entry(packing.pack_versions)
pass_batches = _entry(passing.pass_batches)
pass_known = _entry(witnesses.pass_known)
portion_of = _entry(passing.portion_of)
spread = _entry(survivors.spread)
take_commit = _entry(versions.take_commit)
take_commits = _entry(versions.take_commits)
unpack = _entry(unpacking.unpack)
unpack_versions = _entry(packing.unpack_versions)

"""The table ``findings``: hits of rules, in words and with coordinates."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.durations import noun
from coordinator_core.rules.columns import Int64s, coded, combined
from coordinator_core.rules.model import Rule, Severity
from coordinator_core.runs.schemas import TableSchema

_COLUMNS: list[tuple[str, pa.DataType, str, bool]] = [
    ("offsets_partition", pa.int32(), "partition of __consumer_offsets", True),
    ("record_offset", pa.int64(), "offset of the record that shows it; null where no single one does", True),
    ("rule", pa.string(), "code of the rule", False),
    ("severity", pa.string(), "critical, warning or info", False),
    ("group_id", pa.string(), "group", True),
    ("topic", pa.string(), "topic", True),
    ("partition", pa.int32(), "partition of the topic", True),
    ("member_id", pa.string(), "member", True),
    ("rows", pa.int64(), "rows of the run's tables that this finding stands for", False),
    ("message", pa.string(), "what is wrong, in words", False),
    ("evidence", pa.string(), "the values that show it: a JSON object", False),
    ("remedy", pa.string(), "what to do", False),
    ("muted", pa.string(), "reason and end of the mute that applies", True),
]

FINDINGS = TableSchema(
    "findings",
    "rules that fired",
    pa.schema(
        [pa.field(name, kind, nullable=null, metadata={"comment": meaning}) for name, kind, meaning, null in _COLUMNS]
    ),
    ("rule", "offsets_partition", "record_offset", "group_id", "topic", "partition", "member_id", "message"),
    is_state=False,
)

SUBJECT = ("offsets_partition", "record_offset", "group_id", "topic", "partition", "member_id")
"""Columns of a finding that name its subject."""

_MUTED = "muted"
_PLACE = re.compile(r"\{(\w+)(?::([\w ]+))?\}")
_NO_OFFSET = np.iinfo(np.int64).max


def findings_of(rule: Rule, severity: Severity, hits: pa.Table, *, gathered: bool = False) -> pa.Table:
    """The findings of ``rule`` that ``hits`` are, in no order. Their column ``muted`` is the mute of each.

    ``gathered``: one for each offsets partition, group and mute, with a count in ``rows``.
    """
    hits, rows = _counted(hits)
    if gathered and "group_id" in hits.column_names:
        hits, rows = _gathered(hits, rows)
    size = hits.num_rows
    message = _message(rule.message, hits)
    if (rows > 1).any():
        more = pc.binary_join_element_wise(
            message, " (and ", pa.array(rows - 1).cast(pa.string()), " more like it)", ""
        )
        message = pc.if_else(pa.array(rows > 1), more, message)
    columns = {
        "rule": pa.repeat(rule.code, size),
        "severity": pa.repeat(severity.label, size),
        "rows": pa.array(rows),
        "message": message,
        "evidence": _evidence(hits),
        "remedy": pa.repeat(rule.remedy, size),
    }
    for name in (*SUBJECT, _MUTED):
        if name in hits.column_names:
            columns[name] = hits[name]
    made = []
    for field in FINDINGS.arrow:
        found = columns.get(field.name)
        made.append(pa.nulls(size, field.type) if found is None else found.cast(field.type))
    return pa.Table.from_arrays(made, schema=FINDINGS.arrow)


def in_order(findings: Sequence[pa.Table]) -> pa.Table:
    """All findings: the worst first, then by rule, coordinates and subject."""
    rows = pa.concat_tables([FINDINGS.arrow.empty_table(), *findings])
    rank = pc.index_in(rows["severity"], value_set=pa.array(["critical", "warning", "info"]))
    keys = [("rank", "ascending"), *((name, "ascending") for name in FINDINGS.key)]
    return rows.append_column("rank", rank).sort_by(keys).drop_columns(["rank"]).combine_chunks()


def _counted(hits: pa.Table) -> tuple[pa.Table, Int64s]:
    """``hits`` and how many rows each stands for (their column ``rows``, when they have one)."""
    if "rows" not in hits.column_names:
        return hits, np.ones(hits.num_rows, np.int64)
    return hits.drop_columns(["rows"]), hits["rows"].to_numpy().astype(np.int64)


def _gathered(hits: pa.Table, rows: Int64s) -> tuple[pa.Table, Int64s]:
    """The first of the hits of each group with the same mute, and how many rows they all stand for."""
    parts = [hits["offsets_partition"].to_numpy().astype(np.int64)]
    parts += [coded(hits[name].combine_chunks())[0][0] for name in ("group_id", _MUTED) if name in hits.column_names]
    key = combined(*parts)
    groups, group = np.unique(key, return_inverse=True)
    # The one that stands for others must not depend on the order in which a rule finds them: it comes first
    # by its subject. Only those of the lowest record offset can, mostly one for each group.
    names = [name for name in SUBJECT if name in hits.column_names]
    candidates = np.arange(len(rows))
    if "record_offset" in names:
        offset = pc.fill_null(hits["record_offset"], _NO_OFFSET).to_numpy().astype(np.int64)
        lowest = np.full(len(groups), _NO_OFFSET)
        np.minimum.at(lowest, group, offset)
        candidates = np.flatnonzero(offset == lowest[group])
    subjects = hits.select(names).take(pa.array(candidates))
    subjects = subjects.cast(pa.schema([FINDINGS.arrow.field(name) for name in names]))
    order = pc.sort_indices(subjects, sort_keys=[(name, "ascending") for name in names]).to_numpy()
    _, first = np.unique(group[candidates][order], return_index=True)
    return hits.take(pa.array(candidates[order][first])), np.bincount(group, rows).astype(np.int64)


def text_of(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Values as text, ``-`` for null, ``''`` for an empty one: group ids may be."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    texts = array.cast(pa.string())
    return pc.fill_null(pc.if_else(pc.equal(texts, ""), "''", texts), "-")


def _message(template: str, hits: pa.Table) -> pa.Array:
    parts: list[pa.Array | str] = []
    position = 0
    for place in _PLACE.finditer(template):
        parts += [template[position : place.start()], text_of(hits[place[1]])]
        if (name := place[2]) is not None:
            is_one = pc.equal(hits[place[1]].combine_chunks(), 1)
            parts.append(pc.if_else(pc.fill_null(is_one, False), f" {noun(1, name)}", f" {noun(2, name)}"))
        position = place.end()
    parts.append(template[position:])
    if len(parts) == 1:
        return pa.repeat(template, hits.num_rows)
    return pc.binary_join_element_wise(*parts, "")


def _evidence(hits: pa.Table) -> pa.Array:
    """A JSON object for each row, of the columns that are not its subject."""
    names = [name for name in hits.column_names if name not in (*SUBJECT, _MUTED)]
    parts: list[pa.Array | str] = []
    for number, name in enumerate(names):
        parts += [f'{", " if number else "{"}"{name}": ', _json(hits[name])]
    if not parts:
        return pa.repeat("{}", hits.num_rows)
    return pc.binary_join_element_wise(*parts, "}", "")


def _json(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    if pa.types.is_integer(array.type) or pa.types.is_boolean(array.type) or pa.types.is_floating(array.type):
        return pc.fill_null(array.cast(pa.string()), "null")
    coded = array.cast(pa.string()).dictionary_encode()
    quoted = [json.dumps(value, ensure_ascii=False) for value in coded.dictionary.to_pylist()]
    return pc.fill_null(pa.array(quoted, pa.string()).take(coded.indices), "null")

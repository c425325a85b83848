"""Text that clients, brokers and file systems chose, on its way to people and spreadsheets.

Group ids, topics, metadata, member and client ids and hosts are any string. JSON and Parquet hold them as they
are; everything else shows them through this module.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

INT32_END, INT64_END = 1 << 31, 1 << 63
"""First numbers that an int32, such as a partition or a broker id, and an int64, such as an offset, cannot be."""

_FORMULA = ("=", "+", "-", "@")
"""Characters that a spreadsheet takes for a formula at the beginning of a cell."""


def visible(text: str) -> str:
    r"""``text`` in one line, with all that is not printable escaped as in Python: ``\n``, ``\x1b``, ``\u202e``.

    So no string moves the cursor, colours a terminal, turns the direction of writing, or makes another line.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def visible_lines(text: str) -> str:
    """Like :func:`visible`, for text of several lines."""
    return "\n".join(map(visible, text.split("\n")))


def is_utf8(text: str) -> bool:
    """Whether ``text`` can be written as UTF-8: names of files with other bytes, and escapes in JSON, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def whole_number(text: str, end: int = INT64_END) -> int | None:
    """The number below ``end`` that ``text`` is, of ASCII digits alone; ``None`` for any other text.

    ``str.isdigit`` takes digits that ``int`` does not, and ``int`` fails on thousands of them.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        return None
    number = int(text)
    return number if number < end else None


def csv_text(header: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """CSV with a header. Strings are :func:`visible`; one that a spreadsheet would compute begins with ``'``."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(map(_cell, row) for row in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    shown = visible(value)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown

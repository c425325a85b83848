"""Text that clients, brokers and file systems chose, on its way to people and spreadsheets.

Group ids, topics, metadata, member and client ids and hosts are any string. JSON and Parquet hold them as they
are, CSV that programs read has them in quotes; everything else shows them through this module.
"""

from __future__ import annotations

import csv
import io
import re
import shlex
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


def shell_words(words: Iterable[str]) -> str:
    r"""The command line that a shell splits into ``words``, on one line and without a character that is not printable.

    Words with such characters are written as bash, ksh and zsh read them, by the octal digits of their UTF-8:
    ``$'a\012b'``.
    """
    return " ".join(map(_shell_word, words))


def _shell_word(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(char if char.isprintable() and char not in "\\'" else _octal(char) for char in word) + "'"


def _octal(char: str) -> str:
    # Bytes of a file name that are no UTF-8 are such surrogates; other ones are "?" in Java's bytes.
    errors = "surrogateescape" if "\udc80" <= char <= "\udcff" else "replace"
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", errors))


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
    writer.writerows(map(cell, row) for row in rows)
    return out.getvalue()


def exact_row(row: Iterable[object]) -> str:
    """A row of CSV for programs: strings as they are, in quotes where one would end its cell or the row.

    Not of :mod:`csv`, which leaves a carriage return without quotes when rows end with a line feed.
    """
    return ",".join(map(_quoted, row))


def _quoted(value: object) -> str:
    text = str(value)
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if re.search('[",\r\n]', text) else text


def cell(value: object) -> object:
    """A value as :func:`csv_text` shows it."""
    if not isinstance(value, str):
        return value
    shown = visible(value)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown

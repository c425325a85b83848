"""Tables of text: columns side by side, as wide as their widest cell, up to :data:`MOST_WIDTH`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coordinator_core.untrusted import visible

MISSING = "-"
MOST_WIDTH = 255
"""Characters up to which cells are padded. A group id may have 32 767: one such would make every row as long."""


def text_table(header: str, rows: Iterable[Sequence[object]]) -> list[str]:
    """Lines of the table. ``header`` has the titles with a space between; ``None`` is shown as :data:`MISSING`."""
    cells = [[MISSING if cell is None else visible(str(cell)) for cell in row] for row in (header.split(" "), *rows)]
    widths = [min(max(map(len, column)), MOST_WIDTH) for column in zip(*cells, strict=True)]
    return [" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]

"""Tables of text: columns side by side, as wide as their widest cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coordinator_core.untrusted import visible

MISSING = "-"


def text_table(header: str, rows: Iterable[Sequence[object]]) -> list[str]:
    """Lines of the table. ``header`` has the titles with a space between; ``None`` is shown as :data:`MISSING`."""
    cells = [[MISSING if cell is None else visible(str(cell)) for cell in row] for row in (header.split(" "), *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]

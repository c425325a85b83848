"""Places of the results in the documentation: nobody types a figure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.bench.plans import FULL
from tests.bench.report import headline, report
from tests.bench.results import ROOT, Result, read_results, write_results

RESULTS = ROOT / "docs" / "performance" / "results.jsonl"
PLACES = {"docs/performance.md": report, "README.md": headline}
"""Text between two marks in each file is what the function makes of the results."""

BEGIN, END = "<!-- bench: written by make bench-full -->\n", "\n<!-- end of bench -->"


def publish(measured: Sequence[Result]) -> None:
    """Put the results into the documents; tables that were not measured stay as they are there."""
    found = {result.plan: result for result in (*read_results(RESULTS), *measured)}
    results = [found[plan.name] for plan in FULL if plan.name in found]
    write_results(RESULTS, results)
    for name, text in PLACES.items():
        path = ROOT / name
        path.write_text(replaced(path.read_text(encoding="utf-8"), text(results)), encoding="utf-8")


def replaced(document: str, text: str) -> str:
    """The document with ``text`` between its marks; ``ValueError`` when it has none."""
    changed, count = re.subn(
        f"(?<={re.escape(BEGIN)}).*?(?={re.escape(END)})", lambda _: text, document, flags=re.DOTALL
    )
    if count != 1:
        raise ValueError("the document has no place for results")
    return changed

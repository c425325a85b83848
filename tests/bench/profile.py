"""``python -m tests.bench.profile STACKS``: where the time of a profile went, as a Markdown table.

STACKS is what ``py-spy record --format raw`` writes: a line a stack, from the outermost frame to the
innermost, then its samples. A sample belongs to the innermost of its frames that is ours, or to an import.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

OURS = re.compile(r"\((?:.*/)?((?:coordinator_core|spark_apps)/[\w/]+\.py)[:)]")
IMPORTING = "<frozen importlib"
LEAST_SHARE = 0.01


def places(lines: Iterable[str]) -> Counter[str]:
    """Samples by file."""
    found: Counter[str] = Counter()
    for line in lines:
        stack, _, samples = line.rstrip().rpartition(" ")
        found[_place(stack.split(";"))] += int(samples)
    return found


def _place(stack: list[str]) -> str:
    for frame in reversed(stack):
        if IMPORTING in frame:
            return "imports"
        match = OURS.search(frame)
        if match:
            return f"`{match[1]}`"
    return "elsewhere"


def table(samples: Counter[str]) -> list[str]:
    total = samples.total()
    shown = [(place, count) for place, count in samples.most_common() if count >= LEAST_SHARE * total]
    rest = total - sum(count for _, count in shown)
    if rest:
        shown.append(("less than 1 % each", rest))
    return [
        "| share | where |",
        "|---|---|",
        *(f"| {count / total:.0%} | {place} |" for place, count in shown),
    ]


if __name__ == "__main__":
    print("\n".join(table(places(Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()))))

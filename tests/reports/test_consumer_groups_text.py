"""``describe`` text against what ``kafka-consumer-groups`` 4.3.1 printed for the same groups.

Cells that only a running cluster can fill (log end offset, lag, coordinator) are blanked to ``-`` on the
other side, by column. Groups, and rows inside a group, come in hash order there: both sides are sorted.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coordinator_core.cli.app import run
from coordinator_core.untrusted import visible
from tests.cases import case

ONLY_IN_A_CLUSTER = ("LOG-END-OFFSET", "LAG", "COORDINATOR (ID)")
SHIFT_COLUMNS = ("😀", "9223372036854")
"""Groups left out: a character of two UTF-16 units and a 19-digit offset move the columns being blanked."""
NAMES_WITH_LINE_BREAKS = "tab\tnew\nline"


def kafka_blocks(path: Path) -> list[list[str]]:
    """Header and rows of each group, live-cluster cells blanked, rows sorted."""
    found = []
    text = path.read_text(encoding="utf-8").replace(NAMES_WITH_LINE_BREAKS, "tab-new-line")
    for block in text.split("\n\n"):
        lines = block.strip("\n").split("\n")
        if not lines[0].startswith("GROUP "):
            continue
        spans = [(match.group(), match.start()) for match in re.finditer(r"COORDINATOR \(ID\)|\S+", lines[0])]
        rows = []
        for line in lines[1:]:
            for index, (title, start) in enumerate(spans):
                if title in ONLY_IN_A_CLUSTER:
                    end = spans[index + 1][1]
                    line = line[:start] + "-".ljust(end - start) + line[end:]
            rows.append(line)
        if not any(mark in line for mark in SHIFT_COLUMNS for line in rows):
            found.append([lines[0], *sorted(rows)])
    return sorted(found)


def our_blocks(output: bytes) -> list[list[str]]:
    # Kafka's tool prints the line break; here it is escaped, two characters for each that it stands for.
    escaped = visible(NAMES_WITH_LINE_BREAKS)
    text = output.decode("utf-8").replace(escaped, "tab-new-line".ljust(len(escaped)))
    found = []
    for block in text.split("\n\n"):
        lines = block.strip("\n").split("\n")
        found.append([lines[0], *sorted(lines[1:])])
    return sorted(found)


@pytest.mark.parametrize(
    "name, arguments, expected",
    [
        ("k431-mixed", [], "describe.txt"),
        pytest.param("k431-mixed", ["--verbose"], "describe-verbose.txt", marks=pytest.mark.full),
        pytest.param("k431-mixed", ["--state"], "state.txt", marks=pytest.mark.full),
        ("k431-mixed", ["--state", "--verbose"], "state-verbose.txt"),
        ("k431-mixed", ["--members", "--verbose"], "members.txt"),
        ("k431-txn", [], "describe.txt"),
    ],
)
def test_text_equals_kafkas(
    name: str, arguments: list[str], expected: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    snapshot = case(name)
    assert run(["describe", *arguments, *snapshot.command_line()]) == 0
    ours = our_blocks(capfdbinary.readouterr().out)
    theirs = kafka_blocks(snapshot.expected / "consumer-groups" / expected)
    assert len(theirs) > 10
    # Kafka's tool was not asked for share and streams groups, nor for the empty group id.
    assert [block for block in theirs if block not in ours] == []

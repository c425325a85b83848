"""The page of a plan: what speaks against it first, and names that would break it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from coordinator_core.cli.app import run
from coordinator_core.errors import ExitCode
from tests.history.logs import Log

HOSTILE = 'a<script>alert(1)</script>"&$x^{\u202e\x1b[31m]]>' + "z" * 300


def stands_at_50(directory: Path, *groups: str) -> Path:
    """A log of groups that stand at 50 of both partitions of a topic, whose logs are 0 to 100."""
    log = Log()
    for group in groups:
        log.commit(group, {("orders", 0): 50, ("orders", 1): 50}, metadata="", leader_epoch=-1)
    path = log.write(directory / "log")
    ends = [{"partition": number, "start_offset": 0, "end_offset": 100} for number in range(2)]
    topics = {"topics": [{"name": "orders", "topic_id": None, "partitions": ends}]}
    (path / "topics.json").write_text(json.dumps(topics))
    return path


def page_of(directory: Path, capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    path = stands_at_50(directory, "ahead", "behind", HOSTILE)
    command = ["restore", "plan", "--against", str(path), "--kafka-version", "3.9.2", "--format", "html"]
    capfd.readouterr()
    assert run([*command, *arguments]) == code, capfd.readouterr().err
    return capfd.readouterr().out


def csv_of(directory: Path, *rows: tuple[str, int, int]) -> str:
    path = directory / "wanted.csv"
    quoted = [(group.replace('"', '""'), partition, offset) for group, partition, offset in rows]
    path.write_text("".join(f'"{group}",orders,{partition},{offset}\n' for group, partition, offset in quoted))
    return str(path)


def word(page: str) -> str:
    return re.findall(r'<p class="word">(.*?)</p>', page)[0]


def cells(page: str, caption: str) -> list[list[str]]:
    """Rows of the table with that caption."""
    table = page[page.index(f"<caption>{caption}") :].partition("</table>")[0]
    return [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in table.split("<tr>")[2:]]


def test_what_is_worst_comes_first(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wanted = csv_of(tmp_path, ("ahead", 0, 20), ("behind", 0, 90), ("behind", 1, 55), ("new", 0, 7))
    page = page_of(tmp_path, capfd, "--from-file", wanted)
    assert word(page) == "Look at it before you approve"
    assert "4 offsets of 3 groups would be written; at most 45 records would be skipped, at most 30 read again" in page
    assert [row[0] for row in cells(page, "What is done to each group")] == ["new", "behind", "ahead"]
    ((of, warning),) = cells(page, "What is to be known beforehand")
    assert (of, warning[:19]) == ("new", "the group is absent")
    assert [row[:7] for row in cells(page, "What is done to each committed offset")] == [
        ["behind", "orders-0", "update", "50", "90", "40", "0"],
        ["behind", "orders-1", "update", "50", "55", "5", "0"],
        ["ahead", "orders-0", "update", "50", "20", "0", "30"],
        ["new", "orders-0", "create", "nothing", "7", "-", "-"],
    ]
    for picture in re.findall(r"<svg .*?</svg>", page, re.DOTALL):
        drawn = ElementTree.fromstring(picture)
        assert {"ahead", "behind", "45", "30"} <= {element.text for element in drawn.iter("text")}
        assert "behind: 45 skipped, 0 read again; ahead: 0 skipped, 30 read again" in str(drawn.get("aria-label"))


@pytest.mark.parametrize(
    "row, code, said",
    [
        (("ahead", 0, 101), ExitCode.FINDINGS, "Blocked: nothing of it is applied"),
        (("ahead", 0, 50), ExitCode.CLEAN, "Nothing is to be written"),
        (("ahead", 0, 49), ExitCode.CLEAN, "Nothing speaks against it"),
        (("ahead", 0, 51), ExitCode.CLEAN, "Look at it before you approve"),
    ],
)
def test_the_verdict(
    row: tuple[str, int, int], code: ExitCode, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    page = page_of(tmp_path, capfd, "--from-file", csv_of(tmp_path, row), code=code)
    assert word(page) == said
    assert ("offset 101 is above the log end 100" in page) == (code is ExitCode.FINDINGS)


def test_a_warning_of_many_groups_is_said_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    page = page_of(tmp_path, capfd, "--from-file", csv_of(tmp_path, ("b", 0, 7), ("a", 0, 7), ("ahead", 0, 20)))
    assert [row[0] for row in cells(page, "What is to be known beforehand")] == ["a and 1 more"]


def test_no_name_gets_out_of_its_place(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    page = page_of(tmp_path, capfd, "--from-file", csv_of(tmp_path, (HOSTILE, 0, 90)))
    assert "<script" not in page
    assert not re.search("[\u202e\x1b]", page)

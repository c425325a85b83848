"""The page of an investigation: what its pictures show, and names that would break it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from coordinator_core.cli.app import run
from coordinator_core.errors import ExitCode
from tests.history.logs import DAY, MINUTE, T0, Client, Log

PARTITIONS = tuple(("orders", number) for number in range(2))
HOSTILE = 'a<script>alert(1)</script>"&$x^{\u202e\x1b[31m]]>' + "z" * 300


def moved(group: str, topic: str = "orders") -> Log:
    """A group in two generations of two members, a coordinator that moves, and a reset by an Admin client."""
    keys = [(topic, number) for number in range(2)]
    first, second = (Client(f"{name}-id", partitions=tuple(keys), client_id=name) for name in ("blue", "green"))
    log = Log().generation(group, 1, first)
    for value in range(100, 900, 100):
        log.wait(MINUTE).commit(group, dict.fromkeys(keys, value))
    log.epoch = 1
    log.wait(3 * MINUTE).generation(group, 2, second)
    for value in range(900, 1200, 100):
        log.wait(MINUTE).commit(group, dict.fromkeys(keys, value))
    log.wait(MINUTE).generation(group, 3)
    return log.wait(MINUTE).commit(group, dict.fromkeys(keys, 10), leader_epoch=-1)


def page_of(log: Log, directory: Path, *arguments: str) -> str:
    log.write(directory / "log")
    command = ["investigate", str(directory / "log"), "--kafka-version", "3.9.2", "--now-ms", str(T0 + DAY)]
    assert run([*command, "--output", str(directory / "page"), *arguments]) in (ExitCode.CLEAN, ExitCode.FINDINGS)
    return (directory / "page/investigation.html").read_text()


def pictures(page: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(text) for text in re.findall(r"<svg .*?</svg>", page, re.DOTALL)]


def texts(picture: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in picture.iter("text")]


def test_the_picture_of_a_group_has_values_generations_owners_and_the_coordinator(tmp_path: Path) -> None:
    narrow, wide = pictures(page_of(moved("shop"), tmp_path, "--group", "shop"))
    for picture in (narrow, wide):
        said = texts(picture)
        assert {"generation", "orders-0", "orders-1", "coordinator", "orders", "0, 1"} <= set(said)
        # A dashed line across each of both axes: the coordinator moved once.
        dashed = [path for path in picture.iter("path") if path.get("stroke-dasharray")]
        assert len(dashed) == 2
    shown = [text.strip() for text in texts(wide)]
    assert {"1", "2", "blue", "green", "epoch 0", "epoch 1"} <= set(shown)
    assert any(text.startswith("admi") for text in shown), "who committed last"
    read = wide.get("aria-label") or ""
    assert "orders-1: 100 at" in read
    assert "10 at" in read
    assert "Generations 1 to 2" in read
    assert "Coordinator of offsets partition 0 moved at" in read


def test_partitions_of_a_topic_with_a_long_name_are_told_apart(tmp_path: Path) -> None:
    topic = "orders-of-all-departments"
    narrow, wide = pictures(page_of(moved("shop", topic), tmp_path, "--group", "shop"))
    assert {"orders-…s-0", "orders-…s-1"} <= set(texts(narrow))
    assert {"orders-of-al…ents-0", "orders-of-al…ents-1"} <= set(texts(wide)), texts(wide)


def test_the_picture_of_the_cluster_counts_what_stands(tmp_path: Path) -> None:
    log = moved("shop").wait(MINUTE).tombstones("shop", *PARTITIONS, with_group=True)
    _, wide = pictures(page_of(log, tmp_path))
    assert {"shop", "coordinator 0", "committed offsets that stand"} <= set(texts(wide))
    read = wide.get("aria-label") or ""
    assert "At most 2 committed offsets stood, 0 do at the end. shop lost 2 offsets, the last at" in read


def test_no_name_gets_out_of_its_place(tmp_path: Path) -> None:
    """Names are any string: markup, formulas of TeX, control characters, or longer than the page."""
    page = page_of(moved(HOSTILE, HOSTILE), tmp_path, "--group", HOSTILE)
    assert "<script" not in page
    assert not re.search("[\u202e\x1b]", page)
    assert all(len(text) < 70 for picture in pictures(page) for text in texts(picture))
    assert not re.search(r'\sstyle="|\son\w+=|https?:', re.sub(r'xmlns="[^"]*"', "", page))


def test_groups_and_values_that_the_page_has_no_room_for_are_counted(tmp_path: Path) -> None:
    log = Log()
    for number in range(6):
        log.commit(f"g{number}", {("orders", partition): 1 for partition in range(35)})
    page = page_of(log, tmp_path, *(word for number in range(6) for word in ("--group", f"g{number}")))
    assert "<h1>What happened to g0, g1, g2, g3, g4 and 1 group more</h1>" in page
    assert '<p class="quiet">And 10 older.</p>' in page


def test_the_same_log_makes_the_same_page(tmp_path: Path) -> None:
    assert page_of(moved("shop"), tmp_path, "--group", "shop") == re.sub(
        "/again/", "/", page_of(moved("shop"), tmp_path / "again", "--group", "shop")
    )


def test_html_is_a_form_and_the_files_are_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = page_of(moved("shop"), tmp_path, "--group", "shop", "--format", "html")
    assert capsys.readouterr().out == page
    document = json.loads((tmp_path / "page/investigation.json").read_text())
    assert document["history"]
    assert document["verdict"] in page
    lines = (tmp_path / "page/offsets.csv").read_text().splitlines()
    assert lines == ["orders,0,1100", "orders,1,1100"]


def test_the_page_has_the_command_that_puts_back(tmp_path: Path) -> None:
    page = page_of(moved("shop"), tmp_path, "--group", "shop")
    (command,) = re.findall(r"<pre[^>]*>(regroup restore plan [^<]*)</pre>", page)
    assert f"{tmp_path / 'log'} " in command
    assert "--group shop --topic orders:0,1 --before-record 0:" in command


def test_times_that_no_calendar_has_are_numbers_on_the_axis(tmp_path: Path) -> None:
    log = Log().commit("g", {PARTITIONS[0]: 100})
    log.at = 2**62
    page = page_of(log.tombstones("g", PARTITIONS[0]), tmp_path)
    assert all(any(re.fullmatch(r"\d{19} ms", text.strip()) for text in texts(one)) for one in pictures(page))

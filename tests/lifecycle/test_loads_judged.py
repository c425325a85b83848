"""``loads`` and ``describe`` say of corpus cases what brokers of other releases made of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from coordinator_core.cli.app import run
from tests.lifecycle.judgements import (
    JUDGEMENTS,
    judge,
    judged_case,
    loads_of,
    our_answer,
    read_judgement,
    table,
)

DOCS = Path(__file__).parents[2] / "docs" / "loads.md"
_AT = re.compile(r"DefaultRecord\(offset=(\d+)")


@pytest.mark.parametrize("judgement", JUDGEMENTS, ids=lambda path: f"{path.parent.name}-{path.name[:-8]}")
def test_a_broker_of_another_release_made_the_same_of_the_log(
    judgement: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    case, profile, said = judged_case(judgement), judge(judgement), read_judgement(judgement)
    load = loads_of(case.name)[profile.label]
    for one in load.partitions:
        words = said["partitions"].get(str(one.offsets_partition), "")
        assert ("Finished loading" in words) == (one.stop is None), (one, words)
        if told := _AT.search(words):
            assert one.stop is not None
            assert one.stop.record_offset == int(told[1]), words
    stopped = {one.offsets_partition for one in load.partitions if one.stop is not None}
    options = ["--kafka-version", str(profile.release), "--coordinator", profile.coordinator]
    code = run(["describe", "--format", "json", "--now-ms", "0", *map(str, case.paths), *options])
    captured = capfdbinary.readouterr()
    assert code == bool(stopped), captured.err.decode()
    ours = {
        group["group_id"]: our_answer(group, case, profile)
        for group in json.loads(captured.out)["groups"]
        if group["offsets_partition"] not in stopped
    }
    theirs = said["groups"]
    assert sorted(ours) == sorted(theirs)
    for group_id, group in theirs.items():
        assert ours[group_id] == group, group_id


def test_the_table_in_the_docs_is_what_loads_says() -> None:
    assert "\n".join(table()) in DOCS.read_text(encoding="utf-8")

"""Answers of brokers of other releases that loaded corpus cases (``tests/recording/judged.py`` asks them).

``python -m tests.lifecycle.judgements`` prints the table of ``docs/loads.md``.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from coordinator_core.lifecycle.loads import ReleaseLoad, loads
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.releases import Profile, profile_for_release
from tests.cases import CORPUS, Case
from tests.cases import case as corpus_case
from tests.reports.broker_answers import comparable, modern_group

DATA = Path(__file__).parent / "data" / "judged"
JUDGEMENTS = sorted(DATA.glob("*/*.json.gz"))
CASES = (
    "k0901/before",
    "k01011/before",
    "k102/before",
    "k201/before",
    "k241/before",
    "k332/before",
    "k372-new/before",
    "k381-new/before",
    "k392-classic",
    "k402/before",
    "k412/before",
    "k421/before",
    "k431-mixed",
    "k440/before",
)
JUDGES = (
    "0.9.0.1",
    "0.10.1.1",
    "1.0.2",
    "2.0.1",
    "2.4.1",
    "3.3.2",
    "3.7.2 new",
    "3.8.1 new",
    "3.9.2 classic",
    "4.0.2",
    "4.1.2",
    "4.2.1",
    "4.3.1",
    "4.4.0",
)
"""Columns of the table: releases, with the coordinator where they have two and more than the default."""
_ANSWERED = ("type", "state", "protocol_type", "group_epoch", "members", "offsets")
Json = dict[str, Any]


def judged_case(path: Path) -> Case:
    """The case that a judgement is of."""
    name = path.parent.name
    return corpus_case(name if (CORPUS / name / "expected").exists() else "/".join(name.rsplit("-", 1)))


def judge_named(column: str) -> Profile:
    """Of a column of the table."""
    release, _, coordinator = column.partition(" ")
    return profile_for_release(release, coordinator or None)


@cache
def loads_of(name: str) -> dict[str, ReleaseLoad]:
    """Answers of ``loads`` about a case, by label of the profile, for all columns."""
    item = corpus_case(name)
    found = loads(
        discover([str(path) for path in item.paths]),
        profile_for_release(item.release, item.coordinator),
        [judge_named(column) for column in JUDGES],
        on_damage=OnDamage.FAIL,
        damage=[],
    )
    return {profile.label: one for one in found for profile in one.profiles}


def table() -> list[str]:
    """Markdown: the answer of ``loads`` for each case and release; bold where a broker of that release was asked."""
    asked = {(judged_case(path).name, judge(path).label) for path in JUDGEMENTS}
    lines = ["| log | " + " | ".join(JUDGES) + " |", "|---|" + "---|" * len(JUDGES)]
    for name in CASES:
        item = corpus_case(name)
        own = profile_for_release(item.release, item.coordinator).label
        cells = []
        for column in JUDGES:
            label = judge_named(column).label
            outcome = loads_of(name)[label].outcome.value
            cells.append(f"**{outcome}**" if label == own or (name, label) in asked else outcome)
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return lines


def judge(path: Path) -> Profile:
    """Of the broker that judged."""
    release, _, coordinator = path.name.removesuffix(".json.gz").rpartition("-")
    return profile_for_release(release, coordinator)


def read_judgement(path: Path) -> Json:
    """``partitions``: last words about loading by partition; ``groups``: :func:`broker_answer` by group id."""
    document: Json = json.loads(gzip.decompress(path.read_bytes()))
    return document


def broker_answer(group: Json) -> Json:
    """A group of ``answers``, reduced to what does not hang on the topics that the broker knows."""
    return _reduced(modern_group(group))


def our_answer(group: Json, case: Case, profile: Profile) -> Json:
    """A group of ``describe --format json`` under ``profile``, reduced likewise."""
    asked = replace(case, release=str(profile.release), coordinator=profile.coordinator, is_modern=True)
    return _reduced(comparable(group, asked))


def _reduced(group: Json) -> Json:
    found = {name: group[name] for name in _ANSWERED}
    found["members"] = {
        member_id: {
            name: member.get(name) for name in ("instance_id", "client_id", "member_epoch", "subscribed_topics")
        }
        for member_id, member in sorted(group["members"].items())
    }
    found["offsets"] = {f"{topic}-{number}": row for (topic, number), row in sorted(group["offsets"].items())}
    return found


if __name__ == "__main__":
    print("\n".join(table()))

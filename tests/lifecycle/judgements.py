"""What brokers of other releases made of corpus cases (``tests/recording/judged.py`` asks them)."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from coordinator_core.releases import Profile, profile_for_release
from tests.cases import CORPUS, Case
from tests.cases import case as corpus_case
from tests.reports.broker_answers import comparable, modern_group

DATA = Path(__file__).parent / "data" / "judged"
JUDGEMENTS = sorted(DATA.glob("*/*.json.gz"))
_ANSWERED = ("type", "state", "protocol_type", "group_epoch", "members", "offsets")
Json = dict[str, Any]


def judged_case(path: Path) -> Case:
    """The case that a judgement is of."""
    name = path.parent.name
    return corpus_case(name if (CORPUS / name / "expected").exists() else "/".join(name.rsplit("-", 1)))


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
        member_id: {name: member.get(name) for name in ("instance_id", "client_id", "member_epoch", "subscribed_topics")}
        for member_id, member in sorted(group["members"].items())
    }
    found["offsets"] = {f"{topic}-{number}": row for (topic, number), row in sorted(group["offsets"].items())}
    return found

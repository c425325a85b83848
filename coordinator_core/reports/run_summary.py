"""The report of a run in a few lines of Markdown, for a chat."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from coordinator_core.durations import noun, numbered
from coordinator_core.reports.findings import counts_text
from coordinator_core.reports.pages import cut_name, number_text, time_text
from coordinator_core.reports.run_page import WORDS, alone_texts
from coordinator_core.reports.run_report import Document
from coordinator_core.untrusted import visible

FINDINGS = 3
"""Findings that the summary names."""

NAME = 60
"""Characters of a group id that the summary shows."""

_MARKS = re.compile(r"([\\`*_\[\]<>|~@])")


def run_summary(report: Document, *, page: str | None = None) -> str:
    """The verdict, the worst findings and the changes; ``page`` is where the whole report is."""
    return "\n".join(_lines(report, page)) + "\n"


def _lines(report: Document, page: str | None) -> Iterator[str]:
    scope = report["scope"]
    yield f"**{WORDS[report['verdict']]}**: {_plain(scope['cluster'])}, {_plain(scope['window'])}"
    yield ""
    muted = f", {report['muted']} muted" if report["muted"] else ""
    yield f"- {counts_text(report['counts'])}{muted}; {numbered(len(report['not_evaluated']), 'rule')} not evaluated"
    if not scope["complete"]:
        yield f"- **Partial**: {scope['partial']}"
    groups, offsets = scope["groups"], scope["committed_offsets"]
    yield (
        f"- {number_text(groups)} {noun(groups, 'group')}, {number_text(offsets)} {noun(offsets, 'committed offset')} "
        f"at {time_text(scope['now_ms'])}"
    )
    for finding in worst(report):
        yield f"- {finding_line(finding, _plain)}"
    if report["changes"] is not None:
        counts = report["changes"]["counts"]
        texts = [
            f"{name} {', '.join(f'{number_text(number)} {kind}' for kind, number in kinds.items())}"
            for name, kinds in counts.items()
        ]
        yield f"- since {_plain(report['changes']['previous_run_id'])}: {'; '.join(texts)}"
        yield from (f"- {_plain(text)}" for text in alone_texts(report["changes"]))
    if page is not None:
        yield f"- report: `{visible(page)}`"


def worst(report: Document) -> list[Document]:
    """The first ``FINDINGS`` findings that are not muted and more than info, of different rules before more of one."""
    rules = [
        [finding for finding in rule["examples"] if finding["muted"] is None]
        for rule in report["rules"]
        if rule["severity"] != "info"
    ]
    depth = max(map(len, rules), default=0)
    in_turn = [findings[at] for at in range(depth) for findings in rules if at < len(findings)]
    return in_turn[:FINDINGS]


def finding_line(finding: Document, shown: Callable[[str], str] = visible) -> str:
    """One finding with its group and its place, as far as it has them; texts of others as ``shown`` makes them."""
    name = finding["group_id"]
    of_group = "" if name is None else f" of {shown(cut_name(name, NAME))}"
    names = {"offsets partition": "offsets_partition", "record offset": "record_offset"}
    places = [f"{name} {finding[key]}" for name, key in names.items() if finding[key] is not None]
    where = f" ({', '.join(places)})" if places else ""
    return f"{finding['severity']} {finding['rule']}{of_group}: {shown(finding['message'])}{where}"


def _plain(text: str) -> str:
    return _MARKS.sub(r"\\\1", visible(text))

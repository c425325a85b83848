"""The catalogue as Markdown: most of ``docs/rules.md``, which ``python -m tests.rules.page`` writes."""

from __future__ import annotations

from coordinator_core.rules.catalogue import RULES
from coordinator_core.rules.findings import FINDINGS
from coordinator_core.rules.model import THRESHOLDS, Rule
from coordinator_core.rules.needs import NEED_OPTIONS

_HEAD = """# Rules

After this page you know what each rule finds, why it matters and what to do, and can set severities and mutes.

`regroup reconcile SNAPSHOT` (or `RUN`) says whether groups and committed offsets agree with each other, with the
topics, and with the run before: what is wrong, at which record, and what to do. This page is made from the
catalogue.

```
regroup reconcile CAPTURE                    # text; --format json, jsonl, csv
regroup reconcile RUN --topics topics.json --against PREVIOUS-RUN --rules rules.yaml --fail-on critical
regroup reconcile RUN --publish              # writes the findings as a table, too
regroup reconcile RUN --engine spark         # by offsets partition, with the same findings
python -m expectations RUN --findings DIR    # each rule as a Great Expectations check on what was published
regroup rules R31                            # what a rule says, why, and the remedy
```

It exits with 1 when a finding reaches `--fail-on` (default: warning). Every finding has the coordinates
(offsets partition, record offset) at which `regroup dump` and Kafka's own dump tool print the record. Most
rules need nothing but the log's state. What the others need is found where it is: a capture holds topics and, if
asked for, the transaction log; a run names its log and lies beside the runs before it. An option wins over what is
found; a file that cannot answer is refused in one sentence. Rules without what they need are listed as *not
evaluated*:

- topics (`--topics FILE`): ids, partitions, start and end offsets of the cluster's topics, as
  `regroup capture` writes them, or `{"topics": [{"name", "topic_id", "partitions": [{"partition",
  "start_offset", "end_offset"}]}]}`. Take it after the snapshot of the log, not before: what was committed in
  between would lie beyond the ends.
- leader epochs, replicas, configuration (`--topics FILE`): what the `topics.json` of a capture has besides, if the
  principal was allowed to ask ([capture.md](capture.md)).
- previous run (`--against RUN`): the run of an earlier snapshot of the same cluster. A run of another cluster, or one
  with a later now, is refused.
- log (`--log SNAPSHOT`): the log that the run was made of. Every record is looked at in Python, so this takes
  many times as long as the replay did; one larger than 64 MB is looked at only when it is named (in Spark: one with
  a partition larger than that).
- transaction log (`--transaction-log DIR`): a log directory, or several below one, with
  `__transaction_state-<n>`.

Files that were written after the run are of another time, and are not used: topics beside a log that has grown.
A log is looked at as far as the run has read it. One that has other bytes there now is not, and a note says so; named
with `--log` it ends in exit code 2.
"""

_SETTINGS = """## Settings

`--rules FILE` is YAML. A mute has a reason and a last day; until then the findings it matches stay in every
report, marked, and do not count. A mute that is over is reported.

```yaml
severities:
  R33: warning
thresholds:
  offsets_retention_ms: 1209600000
mutes:
  - rule: R30
    group: "batch-.*"        # optional, a regular expression for the whole id; topic: likewise
    reason: replay of March
    until: 2026-12-31
```

A threshold that the file does not have is what the brokers' settings say, where the topics are from a capture that
could ask for them, and the default otherwise.

| threshold | default | is |
|---|---|---|
"""

_TABLE = """## The table `findings`

`--publish` writes it to `<output>/<cluster>/<window>/_findings/<run id>/<id>/findings.parquet`, and beside it
`reconciliation.json`: the verdict, the inputs, which rules were evaluated. The id is a hash of all that
decides the findings, so asking again changes nothing. The Spark app `reconcile` adds `figures.json` and
three tables of lag, for the report of the same run. Runs themselves are never written into. When a rule has
very many findings (`findings_per_rule`), those of a group, and of one mute, become one, which says in `rows` for how
many it stands.

| column | type | meaning |
|---|---|---|
"""


def catalogue_page() -> str:
    """The part of the page that follows from the catalogue alone."""
    lines = [_HEAD, "## Catalogue", "", "| code | rule | severity | needs |", "|---|---|---|---|"]
    for rule in RULES.values():
        lines.append(f"| [{rule.code}](#{_anchor(rule)}) | {rule.name} | {rule.severity.label} | {_needs(rule)} |")
    lines += ["", *(_section(rule) for rule in RULES.values()), _SETTINGS.rstrip("\n")]
    for name, threshold in THRESHOLDS.items():
        lines.append(f"| `{name}` | {threshold.default:.10g} | {threshold.meaning} |")
    lines += ["", _TABLE.rstrip("\n")]
    for field in FINDINGS.arrow:
        null = ", null" if field.nullable else ""
        lines.append(f"| `{field.name}` | {field.type}{null} | {field.metadata[b'comment'].decode()} |")
    return "\n".join(lines) + "\n"


def _anchor(rule: Rule) -> str:
    return f"{rule.code.lower()}-{rule.name}"


def _needs(rule: Rule) -> str:
    return ", ".join(need.value for need in rule.needs) or ""


def _inputs(rule: Rule) -> list[str]:
    return [f"{need.value} (`{NEED_OPTIONS[need]}`)" for need in rule.needs]


def _section(rule: Rule) -> str:
    rows = [
        f"### {rule.code} {rule.name}",
        "",
        f"**{rule.severity.label}.** {rule.summary} {rule.why}",
        "",
        f"- Evidence: {rule.evidence}",
        f"- Remedy: {rule.remedy}",
        f"- Reads: {', '.join([*(f'`{table}`' for table in rule.reads), *_inputs(rule)])}",
    ]
    if rule.thresholds:
        rows.append(f"- Thresholds: {', '.join(f'`{name}`' for name in rule.thresholds)}")
    if rule.profiles is not None:
        rows.append(f"- Profiles: {', '.join(rule.profiles)}")
    return "\n".join([*rows, ""])

"""Inputs of rules: a run, optional inputs and settings, as values that can be pickled."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coordinator_core.rules.catalogue import RULES, rule_of
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.needs import Need
from coordinator_core.rules.parts import RunPart
from coordinator_core.rules.previous import check_previous
from coordinator_core.rules.publish import captured_ms
from coordinator_core.rules.settings import RuleSettings, read_settings
from coordinator_core.rules.topics import Topics, read_topics
from coordinator_core.rules.transaction_log import TransactionLog, read_transaction_log
from coordinator_core.runs.inputs import pin_of_run
from coordinator_core.runs.read import Run, open_run


@dataclass(frozen=True)
class Inputs:
    """``codes``: rules to evaluate; ``None``: all. ``log``: paths of a snapshot, none: it is not looked at."""

    run: Run
    topics: Topics | None
    against: Run | None
    log: tuple[str, ...]
    transaction_log: TransactionLog | None
    settings: RuleSettings
    codes: tuple[str, ...] | None
    against_captured_ms: int | None = None
    """:func:`captured_ms` of ``against``."""

    @classmethod
    def read(
        cls,
        run: str,
        *,
        topics: str | None = None,
        against: str | None = None,
        log: Sequence[str] = (),
        transaction_log: Sequence[str] = (),
        settings_file: Path | None = None,
        codes: Sequence[str] = (),
    ) -> Inputs:
        """The inputs at these paths; :class:`UsageError` for an input that is missing or of another kind, and for a run
        of a log that is not Kafka's.

        Thresholds that the file of settings does not have are those of the brokers, where the topics tell them.
        """
        known = None if topics is None else read_topics(topics)
        settings = RuleSettings() if settings_file is None else read_settings(settings_file, RULES)
        if known is not None:
            settings = replace(settings, thresholds={**known.offsets_topic.thresholds, **settings.thresholds})
        made = cls(
            open_run(run),
            known,
            None if against is None else open_run(against),
            tuple(log),
            read_transaction_log(*transaction_log) if transaction_log else None,
            settings,
            tuple(rule_of(code).code for code in codes) or None,
        )
        made.run.refuse_other_rules()
        if made.against is not None:
            check_previous(made.run, made.against)
            made = replace(made, against_captured_ms=captured_ms(made.against))
        if log:
            pin_of_run(made.run, log)
        return made

    def facts(self, partitions: Collection[int] | None = None) -> Facts:
        """``Facts`` of the whole run or of some offsets partitions."""

        def part(run: Run) -> Run:
            return run if partitions is None else RunPart.of(run, partitions)

        previous = None
        if self.against is not None:
            previous = Facts(part(self.against), captured_ms=self.against_captured_ms)
        facts = Facts(part(self.run), self.topics, previous)
        if self.log:
            facts.extra[Need.LOG] = self.log
        if self.transaction_log is not None:
            facts.extra[Need.TRANSACTION_LOG] = self.transaction_log
        return facts


_ARGUMENTS = {
    "topics_file": "--topics",
    "against": "--against",
    "log": "--log",
    "transaction_log": "--transaction-log",
    "settings_file": "--rules",
    "codes": "--rule",
}


def app_arguments(given: Mapping[str, object]) -> list[str]:
    """Arguments of the Spark application ``reconcile``, by kind: ``topics_file``, ``against``, ``log``,
    ``transaction_log``, ``settings_file``, ``codes``; a path, several, or ``None``."""
    found = []
    for name, option in _ARGUMENTS.items():
        value = given.get(name)
        for one in value if isinstance(value, tuple) else () if value is None else (value,):
            found += [option, str(one)]
    return found

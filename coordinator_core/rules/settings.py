"""Settings of rules: severities, thresholds and mutes, from a YAML file of the operator."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

import yaml

from coordinator_core import storage
from coordinator_core.durations import DAY_MS
from coordinator_core.errors import UsageError
from coordinator_core.releases import Profile
from coordinator_core.rules.model import THRESHOLDS, Severity

_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Mute:
    """Findings of ``rule`` that do not count until the end of ``until`` (UTC), and why.

    ``group`` and ``topic`` are regular expressions that the whole name must match; ``None``: all.
    """

    rule: str
    reason: str
    until: date
    group: str | None = None
    topic: str | None = None

    def is_over(self, now_ms: int) -> bool:
        """Whether ``now_ms`` lies after the day ``until``."""
        return now_ms // DAY_MS > (self.until - _EPOCH).days

    @property
    def text(self) -> str:
        return f"{self.reason} (until {self.until.isoformat()})"

    def as_dict(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "group": self.group,
            "topic": self.topic,
            "reason": self.reason,
            "until": self.until.isoformat(),
        }


@dataclass(frozen=True)
class RuleSettings:
    """Without arguments: the rules as the catalogue has them."""

    severities: Mapping[str, Severity] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)
    mutes: tuple[Mute, ...] = ()

    def severity(self, code: str, default: Severity) -> Severity:
        return self.severities.get(code, default)

    def limits(self, profile: Profile) -> dict[str, float]:
        """Every threshold with its value, by the defaults of the release."""
        defaults = {name: known.default for name, known in THRESHOLDS.items()}
        defaults["offsets_retention_ms"] = profile.expiry.default_offsets_retention_ms
        return {**defaults, **self.thresholds}

    def as_dict(self) -> dict[str, Any]:
        """Settings that differ from the catalogue."""
        return {
            "severities": {code: level.label for code, level in sorted(self.severities.items())},
            "thresholds": dict(sorted(self.thresholds.items())),
            "mutes": [mute.as_dict() for mute in self.mutes],
        }


def read_settings(path: Path, codes: Collection[str]) -> RuleSettings:
    """Settings of rules from a YAML file with ``severities``, ``thresholds`` and ``mutes``; ``codes`` are the rules.

    Raises :class:`UsageError` that names the entry for anything else.
    """
    try:
        document: Any = yaml.safe_load(storage.read_utf8(path))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        # ValueError: a day that the calendar does not have.
        raise UsageError(f"{path}: cannot be read: {' '.join(str(error).split())}") from None
    try:
        return settings_from({} if document is None else document, codes)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def settings_from(document: Any, codes: Collection[str]) -> RuleSettings:
    """Settings from a parsed document; ``UsageError`` as :func:`read_settings`."""
    known = {"severities": dict, "thresholds": dict, "mutes": list}
    _only(document, known, "rule settings")
    for name, kind in known.items():
        if not isinstance(document.get(name, kind()), kind):
            raise UsageError(f"{name} is not a {'list' if kind is list else 'mapping'}")
    severities: dict[str, Severity] = {}
    for code, label in document.get("severities", {}).items():
        _known_rule(code, codes)
        if label not in [level.label for level in Severity]:
            raise UsageError(f"severities.{code}: {label!r} is none of critical, warning, info")
        severities[code] = Severity.of(label)
    thresholds: dict[str, float] = {}
    for name, value in document.get("thresholds", {}).items():
        if name not in THRESHOLDS:
            raise UsageError(f"thresholds.{name} is unknown (there are {', '.join(THRESHOLDS)})")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**63:
            raise UsageError(f"thresholds.{name}: {value!r} is no number from 0 on")
        thresholds[name] = value
    mutes = tuple(_mute(entry, f"mutes[{n}]", codes) for n, entry in enumerate(document.get("mutes", [])))
    return RuleSettings(severities, thresholds, mutes)


def _mute(entry: Any, place: str, codes: Collection[str]) -> Mute:
    _only(entry, {"rule", "reason", "until", "group", "topic"}, place)
    for name in ("rule", "reason", "until"):
        if not entry.get(name):
            raise UsageError(f"{place} has no {name}; a mute names its rule, its reason and its last day")
    _known_rule(entry["rule"], codes)
    until = entry["until"]
    if isinstance(until, str):
        try:
            until = date.fromisoformat(until)
        except ValueError:
            raise UsageError(f"{place}.until: {until!r} is no day such as 2026-12-31") from None
    if isinstance(until, datetime) or not isinstance(until, date):
        raise UsageError(f"{place}.until: {until!r} is no day such as 2026-12-31")
    for name in ("group", "topic"):
        pattern = entry.get(name)
        if pattern is not None:
            try:
                re.compile(pattern)
            except (re.error, TypeError, OverflowError) as error:
                raise UsageError(f"{place}.{name}: {pattern!r} is no regular expression: {error}") from None
    return Mute(entry["rule"], str(entry["reason"]), until, entry.get("group"), entry.get("topic"))


def _only(document: Any, known: Collection[str], place: str) -> None:
    if not isinstance(document, dict):
        raise UsageError(f"{place}: not a mapping")
    for name in document:
        if name not in known:
            raise UsageError(f"{place}: {name!r} is unknown (there are {', '.join(known)})")


def _known_rule(code: Any, codes: Collection[str]) -> None:
    if not isinstance(code, str) or code not in codes:
        raise UsageError(f"there is no rule {code!r}; see: regroup rules")

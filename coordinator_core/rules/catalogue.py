"""The catalogue: every rule, by code."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator_core.errors import UsageError
from coordinator_core.rules import (
    commits,
    expiry,
    history,
    membership,
    offsets_topic,
    raw_log,
    states,
    structure,
    timeline,
)
from coordinator_core.rules.model import Rule

_MODULES = (structure, membership, commits, history, states, expiry, raw_log, timeline, offsets_topic)
_RULES = (rule for module in _MODULES for rule in vars(module).values() if isinstance(rule, Rule))
RULES: Mapping[str, Rule] = {rule.code: rule for rule in sorted(_RULES, key=lambda rule: rule.code)}
"""Every rule that one of the modules has."""


def rule_of(code: str) -> Rule:
    """The rule of that code or name; :class:`UsageError` when there is none."""
    wanted = code.strip()
    for rule in RULES.values():
        if wanted.upper() in (rule.code, *rule.also) or wanted.lower() == rule.name:
            return rule
    raise UsageError(f"there is no rule {code!r}; see: regroup rules")

"""Results of the gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from coordinator_core.durations import numbered
from coordinator_core.rules.model import Severity

EXAMPLES = 20
"""Unexpected rows that a failure names; it counts all of them."""

Example = dict[str, Any]
"""Columns of an unexpected row: ``offsets_partition`` and ``record_offset`` where the table has them, then
the others of its key and those that the check is about."""


@dataclass(frozen=True)
class Failure:
    """A check that does not hold. ``unexpected_rows`` is ``None`` for checks of a table as a whole."""

    code: str
    severity: Severity
    summary: str
    unexpected_rows: int | None
    examples: tuple[Example, ...]
    observed: str | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"severity": self.severity.label, "examples": list(self.examples)}

    def __str__(self) -> str:
        lines = [f"{self.severity.label} {self.code}: not so: {self.summary}"]
        if self.observed is not None:
            lines.append(f"  found: {self.observed}")
        if self.unexpected_rows is not None:
            lines[0] += f" ({numbered(self.unexpected_rows, 'row')})"
            lines += [
                "  " + ", ".join(f"{name} {_text(value)}" for name, value in example.items())
                for example in self.examples
            ]
            if len(self.examples) < self.unexpected_rows:
                lines.append(f"  and {self.unexpected_rows - len(self.examples)} more")
        return "\n".join(lines)


def _text(value: Any) -> str:
    return "null" if value is None else repr(value) if isinstance(value, str) else str(value)


@dataclass(frozen=True)
class Refusal:
    """A check that was declared and not evaluated, for any reason. The gate never passes with one."""

    code: str
    reason: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"not evaluated {self.code}: {self.reason}"


@dataclass(frozen=True)
class GateResult:
    """``evaluated`` is ``declared`` unless there are ``refusals``; both lists are in the order of checks.

    ``absent`` are rules that need what nobody gave, or do not apply, with the reason: they are not declared.
    """

    run: str
    declared: int
    evaluated: int
    failures: tuple[Failure, ...]
    refusals: tuple[Refusal, ...]
    absent: Mapping[str, str] = field(default_factory=dict)

    def passed(self, fail_on: Severity = Severity.WARNING) -> bool:
        """No check of that severity or a higher one failed, and every check was evaluated."""
        return not self.refusals and all(failure.severity < fail_on for failure in self.failures)

    @property
    def by_severity(self) -> dict[str, int]:
        """Failed checks by severity, the highest first."""
        counts = Counter(failure.severity for failure in self.failures)
        return {severity.label: counts[severity] for severity in sorted(Severity, reverse=True)}

    def as_dict(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "declared": self.declared,
            "evaluated": self.evaluated,
            "failed": self.by_severity,
            "failures": [failure.as_dict() for failure in self.failures],
            "refusals": [refusal.as_dict() for refusal in self.refusals],
            "absent": dict(self.absent),
        }

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {severity}" for severity, count in self.by_severity.items())
        head = f"{self.run}: {self.evaluated} of {self.declared} expectations evaluated; failed: {counts}"
        if self.absent:
            head += f"; {len(self.absent)} rules need inputs that were not given, or do not apply"
        return "\n".join([head, *map(str, self.refusals), *map(str, self.failures)])

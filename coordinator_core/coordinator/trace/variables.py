"""Variables of a recording: they stand for member ids, producer ids, topic ids, times, hashes.

The order of hash maps of random ids decides who becomes leader. So the model works with the real ids, which the last
line of a trace gives, and prints their variables again.
"""

from __future__ import annotations

import re
import uuid
from typing import Any

from coordinator_core.coordinator.trace.given import Given
from coordinator_core.coordinator.trace.read import Trace

_VARIABLE = re.compile(r"\$(?:topic:[^\s:]+|[mp]\d+)")
_NAMESPACE = uuid.UUID("6b6166a0-0000-4000-8000-000000000000")


class Variables:
    """The variables of one trace, and the ids that the model asks for."""

    def __init__(self, trace: Trace, given: Given) -> None:
        self._start_ms = trace.start_ms
        self._values: dict[str, Any] = dict(trace.variables)
        for name, topic in trace.head["topics"].items():
            if topic["id"].startswith("$"):
                self._values.setdefault(topic["id"], _made_up(f"topic {name}"))
        self._names = {value: name for name, value in self._values.items()}
        self._topics = {value: name for name, value in self._values.items() if name.startswith("$topic:")}
        self._random_parts = given.member_ids
        self._free_producers = sorted((n for n in self._values if n.startswith("$p")), key=natural_key)
        self._count = 0
        self.request: int = 0
        """The request that is being handled."""

    # Ids for the model

    def new_member_id(self, prefix: str) -> str:
        """``prefix`` with the random part given for this request, else with one of the same form."""
        random_part = self._random_parts.get(self.request)
        if random_part is None:
            self._count += 1
            if not prefix:
                return _made_up(f"member {self._count}")
            random_part = str(uuid.uuid5(_NAMESPACE, f"{prefix} {self._count}"))
        return f"{prefix}-{random_part}" if prefix else random_part

    def new_producer_id(self) -> int:
        if self._free_producers:
            return int(self._values[self._free_producers.pop(0)])
        self._count += 1
        return 1_000_000 + self._count

    def new_topic_id(self, name: str) -> str:
        return self._values.get(f"$topic:{name}") or _made_up(f"topic {name}")

    # Variables to values and back

    def value(self, item: Any) -> Any:
        """``item`` of a request with the values of its variables."""
        if isinstance(item, dict):
            if item.keys() == {"t"} and item["t"].__class__ in (int, float):
                return self._start_ms + item["t"]
            return {name: self.value(one) for name, one in item.items()}
        if isinstance(item, list):
            return [self.value(one) for one in item]
        if not isinstance(item, str) or "$" not in item:
            return item
        if item in self._values:
            return self._values[item]
        return _VARIABLE.sub(lambda match: str(self._values.get(match[0], match[0])), item)

    def named(self, item: Any, field: str = "") -> Any:
        """``item`` of an answer or a record with variables for the ids."""
        if isinstance(item, dict):
            return {name: self.named(one, name) for name, one in item.items()}
        if isinstance(item, list):
            return [self.named(one, field) for one in item]
        if isinstance(item, int):
            return self._names.get(item, item) if field == "producerId" else item
        if not isinstance(item, str):
            return item
        if item in self._names:
            return self._names[item]
        for value, name in self._topics.items():
            item = item.replace(value, name)
        return item

    def topic_id(self, name: str) -> str:
        return str(self._values[name]) if name in self._values else name


def _made_up(text: str) -> str:
    import base64

    return base64.urlsafe_b64encode(uuid.uuid5(_NAMESPACE, text).bytes).decode().rstrip("=")


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """``$m2`` before ``$m10``. Numbers may have any length."""
    parts = (part.lstrip("0") if part.isdecimal() else part for part in re.split("([0-9]+)", text) if part)
    return [(1, len(part), part) if not part or part.isdecimal() else (0, 0, part) for part in parts]

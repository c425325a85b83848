"""The number of a Kafka release."""

from __future__ import annotations

import re

from coordinator_core.errors import UsageError


class Release(tuple[int, ...]):
    """Two to four numbers, such as 4.10 or 0.8.2.2; ordered by number, so 4.10 comes after 4.9.

    A shorter number comes before every longer one that begins with it: 4.3, 4.3.0, 4.3.1.
    """

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Release:
        """``"4.3.1"`` to ``Release((4, 3, 1))``; :class:`UsageError` for text of any other form."""
        if not re.fullmatch(r"\d{1,9}(\.\d{1,9}){1,3}", text, re.ASCII):
            raise UsageError(f"not a Kafka release: {text[:40]!r} (expected for example 3.9.2)")
        return cls(int(part) for part in text.split("."))

    def __str__(self) -> str:
        return ".".join(map(str, self))

    def __repr__(self) -> str:
        return f"Release({self})"

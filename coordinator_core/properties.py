"""Properties files, the notation of Kafka's configuration and of ``meta.properties``."""

from __future__ import annotations

import re
from collections.abc import Mapping

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_SPECIAL = re.compile(r"[\\ =:#!\t\f]")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values as ``java.util.Properties`` loads them: continued lines, comments and escapes."""
    found = {}
    for line in _logical_lines(text):
        separator = _first_separator(line)
        key, value = (line, "") if separator is None else (line[: separator[0]], line[separator[1] :])
        found[_unescaped(key)] = _unescaped(value)
    return found


def properties_text(properties: Mapping[str, str]) -> str:
    """The text of which :func:`parse_properties` makes these keys and values."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", text).replace("\n", "\\n").replace("\r", "\\r")


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending: str | None = None
    for raw in re.split(r"\r\n|\r|\n", text):
        stripped = raw.lstrip(" \t\f")
        if pending is None and (not stripped or stripped[0] in "#!"):
            continue
        line = (pending or "") + stripped
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending = line[:-1]
            continue
        lines.append(line)
        pending = None
    if pending:
        lines.append(pending)
    return lines


def _first_separator(line: str) -> tuple[int, int] | None:
    """Positions at which the key ends and the value begins."""
    at = 0
    while at < len(line):
        if line[at] == "\\":
            at += 2
            continue
        if line[at] in "=: \t\f":
            match = re.compile(r"[ \t\f]*[=:]?[ \t\f]*").match(line, at)
            return (at, match.end()) if match else None
        at += 1
    return None


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] == "u" and len(code) == 5:
            return chr(int(code[1:], 16))
        return _CONTROL.get(code, code)

    return _ESCAPE.sub(plain, text)

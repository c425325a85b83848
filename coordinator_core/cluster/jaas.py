"""JAAS lines: how Kafka's client configuration names a login module and its options."""

from __future__ import annotations

import re
from dataclasses import dataclass

from coordinator_core.errors import UsageError

_JAAS = re.compile(r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(?P<options>.*);\s*\Z", re.S)
_OPTION = re.compile(r"""\s*([\w.-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';]+))""")


@dataclass(frozen=True)
class JaasEntry:
    """Login module (its simple class name) and options of ``sasl.jaas.config``."""

    module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        # Options hold passwords: the text of an entry must not have them.
        return f"JaasEntry({self.module})"


def parse_jaas(text: str) -> JaasEntry:
    """The one entry of a ``sasl.jaas.config`` value; ``UsageError`` when it is not of that form."""
    match = _JAAS.match(text)
    if match is None:
        raise UsageError(
            'sasl.jaas.config: expected "<login module> required <name>=\\"<value>\\" …;", with the semicolon'
        )
    options = {}
    at, rest = 0, match["options"]
    while rest[at:].strip():
        option = _OPTION.match(rest, at)
        if option is None:
            raise UsageError('sasl.jaas.config: an option is not of the form name="value"')
        quoted = option[2] if option[2] is not None else option[3]
        options[option[1]] = option[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        at = option.end()
    return JaasEntry(match["module"].rpartition(".")[2], options)

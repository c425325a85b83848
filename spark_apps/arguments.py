"""Arguments that several apps have, in the same words."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from coordinator_core import __version__
from coordinator_core.releases import PROFILE_RELEASES
from coordinator_core.untrusted import visible_lines

if TYPE_CHECKING:
    from coordinator_core.rules.beside import Beside


def add_source(parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """``--pin`` or ``--snapshot``, or what is added to the group: one of them is required."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--pin", metavar="FILE", help="snapshot manifest: read the bytes that it pins")
    source.add_argument("--snapshot", metavar="PATH", nargs="+", action="extend", help="log directories (repeatable)")
    return source


def output_of(output: str, run_id: str | None) -> str:
    """The directory ``run_id`` below ``output``, or ``output``; ``UsageError`` for an id that names no directory."""
    if run_id is None:
        return output
    from coordinator_core.runs.place import check_component
    from coordinator_core.storage import join

    check_component("run_id", run_id)
    return join(output, run_id)


def add_rules(parser: argparse.ArgumentParser) -> None:
    """``--profile`` or ``--kafka-version``, and ``--coordinator``."""
    rules = parser.add_mutually_exclusive_group()
    rules.add_argument("--profile", choices=["auto", *PROFILE_RELEASES], default="auto", help="coordinator rules")
    rules.add_argument("--kafka-version", metavar="RELEASE", help="coordinator rules of this Kafka release")
    parser.add_argument("--coordinator", choices=["classic", "new"], help="which, for releases that have both")


def add_damage(parser: argparse.ArgumentParser) -> None:
    """``--partial`` or ``--salvage``."""
    damage = parser.add_mutually_exclusive_group()
    damage.add_argument("--partial", action="store_true", help="go on past damage as a starting broker would")
    damage.add_argument("--salvage", action="store_true", help="go on past damage at the next whole batch")


def captured_retention_ms(beside: Beside, program: str) -> int | None:
    """``offsets.retention.minutes`` in milliseconds, as a capture has it; standard error names files that cannot be
    used."""
    from coordinator_core.rules.topics import configured_retention_ms, read_topics

    for text in beside.notes:
        print(f"{program}: {visible_lines(text)}", file=sys.stderr)
    return None if beside.topics is None else configured_retention_ms(read_topics(beside.topics))


def warn(program: str, texts: Iterable[str]) -> None:
    """Write warnings to standard error, as the command of the app does."""
    for text in texts:
        print(f"{program}: warning: {visible_lines(text)}", file=sys.stderr)


def whole(least: int, most: int = (1 << 62) - 1) -> Callable[[str], int]:
    """Type of an argument that is a whole number, by default far from the end of an int64."""

    def convert(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{number} is no number from {least} to {most}")
        return number

    return convert


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments, with ``--master`` and ``--version``; ends the process with exit code 2 when they do not go
    together."""
    parser.add_argument("--master", metavar="URL", help="Spark master (default: that of spark-submit, or local[*])")
    parser.add_argument("--version", action="version", version=f"{parser.prog} {__version__}")
    arguments = parser.parse_args(argv)
    if getattr(arguments, "coordinator", None) and not arguments.kafka_version:
        parser.error("--coordinator goes with --kafka-version")
    return arguments

"""Options that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

import click

from coordinator_core import storage
from coordinator_core.durations import clock_ms
from coordinator_core.errors import UsageError
from coordinator_core.fold.cache import FOLD_CACHE_VARIABLE, FoldCache, directory_of_environment
from coordinator_core.groups.hashing import DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS
from coordinator_core.jsontext import json_pieces
from coordinator_core.log.reader import OnDamage
from coordinator_core.releases import PROFILE_RELEASES, Profile, chosen_profile, how_inferred
from coordinator_core.topology import is_topic_name
from coordinator_core.untrusted import INT32_END, INT64_END, csv_text, visible_lines, whole_number

_MOST = 9e9
"""A little below the longest time that Python's clocks can wait, 2^63 nanoseconds."""

F = TypeVar("F", bound=Callable[..., Any])


class Format(StrEnum):
    """Output formats of ``--format``."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    HTML = "html"


class Engine(StrEnum):
    """Engines of ``--engine``."""

    LOCAL = "local"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Options of a replay: ``profile`` None for one inferred from the records, ``asked_now_ms`` None for the clock."""

    profile: Profile | None
    now_ms: int
    asked_now_ms: int | None
    on_damage: OnDamage
    offsets_topic_num_partitions: int | None
    engine: Engine
    master: str
    fold_cache: FoldCache | None


class Whole(click.IntRange):
    """A whole number far from the ends of an int64: a sum with it stays one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number: int = super().convert(value, param, ctx)
        if abs(number) >= INT64_END // 2:
            self.fail(f"{number} is too large.", param, ctx)
        return number


class Finite(click.FloatRange):
    """A number that a clock can wait for, in seconds or days, or that can be a rate in bytes: no NaN, no infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not abs(number) <= _MOST:
            self.fail(f"{number} is no number up to {_MOST:g}.", param, ctx)
        return number


class ExistingFile(click.Path):
    """A local file that is there, or a URI, whose absence is found when it is read; as it was written."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        path = str(value)
        if storage.is_local(path):
            super().convert(str(storage.local_path(path)), param, ctx)
        return path


def together(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Several options as one decorator; ``--help`` shows them in this order."""

    def with_options(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return with_options


def format_option(*formats: Format) -> Callable[[F], F]:
    """``--format``; the first one given is the default."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice([item.value for item in formats]),
        default=formats[0].value,
        show_default=True,
        callback=lambda _ctx, _param, value: Format(value),
        help="Form of the result.",
    )


def choice_option(name: str, choices: Sequence[str], what: str) -> Callable[[F], F]:
    """An option whose help is ``what``; the first of ``choices`` is the default."""
    return click.option(name, type=click.Choice(choices), default=choices[0], show_default=True, help=what)


def engine_options(what_runs: str, *, has_spark: bool = True) -> Callable[[F], F]:
    """``--engine``, whose help is ``what_runs``, and ``--master``; without Spark a line on standard error says so."""

    def engine(_ctx: click.Context, _param: click.Parameter, value: str) -> Engine:
        if value == Engine.SPARK and not has_spark:
            note("regroup: this command works in this process: --engine spark changes nothing")
        return Engine(value)

    return together(
        click.option(
            "--engine",
            type=click.Choice([item.value for item in Engine]),
            default=Engine.LOCAL.value,
            show_default=True,
            callback=engine,
            help=what_runs,
        ),
        click.option(
            "--master",
            default="local[*]",
            show_default=True,
            metavar="URL",
            help="Spark master, with --engine spark.",
        ),
    )


def offsets_partitions_option(command: F) -> F:
    """The option ``--offsets-topic-num-partitions``."""
    return click.option(
        "--offsets-topic-num-partitions",
        type=Whole(min=1, max=INT32_END - 1),
        help="Partitions of __consumer_offsets (default: told by the topology or by where the groups are, else "
        f"{DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS}).",
    )(command)


_SNAPSHOT_OPTIONS = together(
    click.option(
        "--profile",
        default="auto",
        show_default=True,
        metavar=f"[auto|{'|'.join(PROFILE_RELEASES)}]",
        help="Coordinator rules; auto infers them from the records.",
    ),
    click.option("--kafka-version", metavar="RELEASE", help="Rules of this Kafka release, e.g. 3.9.2."),
    click.option(
        "--coordinator",
        type=click.Choice(["classic", "new"]),
        help="Which coordinator, for releases that have both.",
    ),
    click.option("--now-ms", type=Whole(min=0), metavar="MS", help="The time to judge by (default: the clock)."),
    click.option(
        "--partial",
        is_flag=True,
        help="Go on past damage the way a broker that starts on these files would: it cuts a partition "
        "at the first bad batch, or reads it unchecked after a clean shutdown.",
    ),
    click.option(
        "--salvage",
        is_flag=True,
        help="Go on past damage and read every batch that is whole, also behind it.",
    ),
    offsets_partitions_option,
    click.option(
        "--fold-cache",
        default=directory_of_environment,
        metavar="DIR",
        help=f"Where folds of segments are kept for the next run (default: {FOLD_CACHE_VARIABLE}, or "
        "regroup/folds in the user's cache directory).",
    ),
    click.option("--no-fold-cache", is_flag=True, help="Fold every segment, and keep nothing."),
)


def snapshot_options(command: F) -> F:
    """Options of every command that replays a snapshot, passed on as ``options``, a :class:`ReplayOptions`.

    The options of :func:`engine_options` are among its values where they stand below.
    """

    @wraps(command)
    def with_options(**given: Any) -> Any:
        replay = {name: given.pop(name) for name in signature(_replay_options).parameters if name in given}
        return command(options=_replay_options(**replay), **given)

    return _SNAPSHOT_OPTIONS(cast(F, with_options))


replay_options = together(snapshot_options, engine_options("Replay in this process, or as a Spark application."))
"""Options of every command that replays: as ``options``, a :class:`ReplayOptions`."""

WITHOUT_SPARK = "Changes nothing: this command works in this process."

log_options = together(snapshot_options, engine_options(WITHOUT_SPARK, has_spark=False))
"""The same options, of commands that read the log in this process whichever engine is named."""


def _replay_options(
    profile: str,
    kafka_version: str | None,
    coordinator: str | None,
    now_ms: int | None,
    partial: bool,
    salvage: bool,
    offsets_topic_num_partitions: int | None,
    fold_cache: str,
    no_fold_cache: bool,
    engine: Engine = Engine.LOCAL,
    master: str = "local[*]",
) -> ReplayOptions:
    """The options, checked against each other."""
    return ReplayOptions(
        profile=chosen_profile(profile, kafka_version, coordinator),
        now_ms=clock_ms() if now_ms is None else now_ms,
        asked_now_ms=now_ms,
        on_damage=OnDamage.chosen(partial=partial, salvage=salvage),
        offsets_topic_num_partitions=offsets_topic_num_partitions,
        engine=engine,
        master=master,
        fold_cache=None if no_fold_cache or not fold_cache else FoldCache(fold_cache),
    )


_FIRST_DATE = 10_000_000
"""The lowest number of 8 digits, as 20260512."""
_FIRST_MS = 10_000_000_000
"""Behind the highest number of 10 digits, as epoch seconds have."""


def time_ms(text: str, option: str) -> int:
    """A time of the command line, ISO 8601 (UTC unless it says otherwise) or epoch milliseconds, in the latter.

    ``UsageError`` for other text, for a time before 1970, which is none to brokers, and for a number that has the
    digits of a date or of epoch seconds: as milliseconds it is a day of early 1970.
    """
    found = whole_number(text)
    if found is not None and _FIRST_DATE <= found < _FIRST_MS:
        raise UsageError(f"{option} {text}: expected epoch milliseconds (not seconds), or a time like 2026-05-12T02:00")
    if found is None:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise UsageError(f"{option} {text}: expected a time like 2026-05-12T02:00, or epoch milliseconds") from None
        since = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - datetime.fromtimestamp(0, UTC)
        found = since // timedelta(milliseconds=1)
    if found < 0:
        raise UsageError(f"{option} {text}: a time before 1970")
    return found


topics_option = click.option(
    "--topics",
    "topics_file",
    metavar="FILE",
    help="topics.json: ids, partitions, start and end offsets of topics. [default: beside the log]",
)
"""``--topics``: where the topics end, for lag."""


def require_topic_names(topics: Iterable[str], option: str) -> None:
    """``UsageError`` for what Kafka lets no topic be called: nothing could be of such a topic."""
    for topic in topics:
        if not is_topic_name(topic):
            hint = "; `regroup explain` takes TOPIC:PARTITION" if ":" in topic else ""
            raise UsageError(f"{option}: no topic of Kafka has the name {topic!r}{hint}")


group_option = click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group (repeatable).")
"""``--group`` (repeatable)."""

group_options = together(
    group_option,
    click.option("--all-groups", is_flag=True, help="All groups (the default)."),
    click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic (repeatable)."),
)
"""``--group`` (repeatable), ``--all-groups``, ``--topic`` (repeatable)."""


client_options = together(
    click.option("--bootstrap-server", required=True, metavar="HOST:PORT,…", help="Brokers to reach the cluster by."),
    click.option(
        "--command-config",
        metavar="FILE",
        help="Kafka client properties: security.protocol, sasl.*, ssl.* and timeouts.",
    ),
)
"""``--bootstrap-server`` and ``--command-config``."""


def write(data: bytes | memoryview) -> None:
    """Bytes of a result, on standard output."""
    rest = memoryview(data)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]


def write_line(text: str) -> None:
    """Write one line of result. Results are UTF-8 whatever the locale says, as Kafka's tools write them."""
    write(text.encode("utf-8", "backslashreplace") + b"\n")


def write_lines(lines: Iterable[str]) -> None:
    """Write lines of result."""
    for line in lines:
        write_line(line)


def write_result(output_format: Format, document: object, text: Iterable[str]) -> None:
    """Write the result as JSON, or the lines of its text."""
    if output_format is Format.JSON:
        write_json(document)
    else:
        write_lines(text)


def write_json(document: object) -> None:
    """Write one JSON document, on one line, piece by piece: its text is as large as the document."""
    write_pieces(json_pieces(document))
    write_line("")


def write_csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Write rows as CSV, below the names of the columns."""
    write_pieces([csv_text(columns, ([row[name] for name in columns] for row in rows))])


def write_pieces(pieces: Iterable[str]) -> None:
    """Write text that comes in pieces."""
    for piece in pieces:
        write(piece.encode("utf-8", "backslashreplace"))


def note(text: str) -> None:
    """Write one line about the result to standard error."""
    click.echo(visible_lines(text), err=True)


def note_inferred(options: ReplayOptions, label: str, *, is_told: bool) -> None:
    """Say by which rules a snapshot was read, where none were asked for."""
    if options.profile is None:
        note(f"regroup: profile {label}, {how_inferred(is_told=is_told)}")

"""Results as Markdown: what must be shown, a table a log, how cost grows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from tests.bench.measure import Sample, ratio
from tests.bench.plans import Row
from tests.bench.results import Result


@dataclass(frozen=True)
class Claim:
    """A promise: how many times ``row`` goes into ``reference`` in the table ``plan``, at least."""

    text: str
    plan: str
    reference: Row
    row: Row
    least: float
    of: Callable[[Sample], float] = lambda sample: sample.seconds

    def measured(self, result: Result) -> float:
        return ratio(result.rows[self.reference], result.rows[self.row], self.of)


@dataclass(frozen=True)
class Bound:
    """A promise: no more MiB than ``most``."""

    text: str
    plan: str
    row: Row
    most: float
    of: Callable[[Sample], float] = lambda sample: sample.peak_mib

    def measured(self, result: Result) -> float:
        return max(map(self.of, result.rows[self.row]))


def _cpu(sample: Sample) -> float:
    return sample.cpu_seconds


def _worker_peak(sample: Sample) -> float:
    return sample.details["worker_peak_mib"]


def _left(sample: Sample) -> float:
    return sample.details["left_mib"]


LOCAL_1 = Claim("one partition, local engine", "replay", Row.BROKER, Row.LOCAL, 9)
LOCAL_4 = Claim("4 partitions, local engine", "replay-4", Row.BROKER, Row.LOCAL, 11)
REBALANCES = Claim("30 % group records, local engine", "rebalances", Row.BROKER, Row.LOCAL, 6)
SPARK_1 = Claim("one partition, Spark", "replay", Row.BROKER, Row.SPARK, 2.5)
SPARK_4 = Claim("4 partitions, Spark", "replay-4", Row.BROKER, Row.SPARK, 5)
DUMP = Claim("dump", "dump", Row.KAFKA_DUMP, Row.DUMP, 5)

COUNTS = ("partitions", "segments", "batches", "records", "groups", "live_committed_offsets")

CLAIMS = (
    LOCAL_1,
    LOCAL_4,
    Claim("20 % transactional, local engine", "transactional", Row.BROKER, Row.LOCAL, 10),
    Claim("zstd, local engine", "zstd", Row.BROKER, Row.LOCAL, 10),
    Claim("lz4, local engine", "lz4", Row.BROKER, Row.LOCAL, 8),
    Claim("752 000 committed offsets, local engine", "keys", Row.BROKER, Row.LOCAL, 7),
    REBALANCES,
    SPARK_1,
    SPARK_4,
    Claim("CPU seconds of decode, CRC and fold; loader thread", "replay", Row.BROKER, Row.KERNEL, 8, _cpu),
    Claim("second run with 5 % new segments of 4 GB; first run", "cache", Row.FIRST, Row.SECOND, 5),
    Claim("second run with 5 % new segments of 10 GB; first run", "cache-10", Row.FIRST, Row.SECOND, 5),
    DUMP,
    Claim("dump of KIP-848 groups", "dump-groups", Row.KAFKA_DUMP, Row.DUMP, 3),
    Claim("capture; Kafka's consumer", "capture", Row.CONSUMER, Row.CAPTURE, 0.5),
    Claim("compaction of one partition, local engine; cleaner", "cleaner", Row.CLEANER, Row.COMPACT, 2),
    Claim("compaction of 4 partitions, Spark; cleaner", "cleaner-4", Row.CLEANER, Row.COMPACT_SPARK, 2),
    Claim("bytes that the cleaner leaves; compaction", "cleaner", Row.CLEANER, Row.COMPACT, 1, _left),
    Claim("all rules on a run alone; the replay that made it", "rules", Row.LOCAL, Row.RULES, 0.5),
    Claim("with topics and the run before; the replay", "rules", Row.LOCAL, Row.RULES_COMPARED, 0.5),
    Claim("the same in Spark; the replay in Spark", "rules", Row.SPARK, Row.RULES_SPARK, 0.5),
    Claim("investigation of one group; the replay", "investigate", Row.LOCAL, Row.GROUP, 1 / 1.5),
    Claim("history of all groups; the replay", "history", Row.LOCAL, Row.HISTORY, 1 / 3),
    Claim("investigation of all groups; the replay", "investigate-all", Row.LOCAL, Row.CLUSTER, 1 / 3),
)

BOUNDS = (
    Bound("local engine, one partition", "replay", Row.LOCAL, 1536),
    Bound("a Spark worker, one partition", "replay", Row.SPARK, 1024, _worker_peak),
    Bound("a Spark worker, 4 partitions", "replay-4", Row.SPARK, 1024, _worker_peak),
    Bound("capture of 1 GB", "capture", Row.CAPTURE, 300),
    Bound("investigation of one group", "investigate", Row.GROUP, 600),
    Bound("history of all groups", "history", Row.HISTORY, 600),
    Bound("rules, five million offsets in two runs", "rules", Row.RULES_COMPARED, 2048),
)


def report(results: Sequence[Result]) -> str:
    """Everything, without a heading of its own."""
    parts = [machine_line(results), promises(results), growth(results), *map(table, results)]
    return "\n\n".join(part for part in parts if part)


def machine_line(results: Sequence[Result]) -> str:
    machines = dict.fromkeys(tuple(result.machine.items()) for result in results)
    facts = ["; ".join(f"{name} {value}" for name, value in machine) for machine in machines]
    return f"Measured on: {' and '.join(facts)}."


def promises(results: Sequence[Result]) -> str:
    """Ratios with their pairs, then peaks."""
    found = {result.plan: result for result in results}
    lines = [
        "| | must be at least | measured | lowest and highest pair |",
        "|---|---|---|---|",
    ]
    for claim in CLAIMS:
        if claim.plan in found:
            result = found[claim.plan]
            pairs = [
                ratio([theirs], [ours], claim.of)
                for theirs, ours in zip(result.rows[claim.reference], result.rows[claim.row], strict=True)
            ]
            measured = claim.measured(result)
            missed = " (missed)" if measured < claim.least else ""
            spread = f"{min(pairs):.1f} – {max(pairs):.1f}"
            lines.append(f"| {claim.text} | {claim.least:.2g} | **{measured:.1f}**{missed} | {spread} |")
    lines += ["", "| peak resident memory | at most MiB | measured |", "|---|---|---|"]
    for bound in BOUNDS:
        if bound.plan in found:
            measured = bound.measured(found[bound.plan])
            missed = " (missed)" if measured > bound.most else ""
            lines.append(f"| {bound.text} | {bound.most:g} | **{measured:.0f}**{missed} |")
    return "\n".join(lines)


def growth(results: Iterable[Result]) -> str:
    """Least squares over the logs of growing size; empty when fewer than three were measured."""
    linear = [result for result in results if result.plan.startswith("linear-")]
    if len(linear) < 3:
        return ""
    sizes = np.array([result.log["bytes"] / 1e9 for result in linear])
    lines = []
    for name, of in (("Seconds", lambda s: s.seconds), ("CPU seconds", _cpu)):
        taken = np.array([median(map(of, result.rows[Row.LOCAL])) for result in linear])
        slope, start = np.polyfit(sizes, taken, 1)
        fitted = start + slope * sizes
        fit_share = 1 - ((taken - fitted) ** 2).sum() / ((taken - taken.mean()) ** 2).sum()
        lines += [
            f"{name} of the local engine = {start:.2f} + {slope:.2f} × GB (R² = {fit_share:.4f}):",
            "",
            "| GB | measured | fit | residual |",
            "|---|---|---|---|",
            *(
                f"| {size:.1f} | {measured:.2f} | {fit:.2f} | {measured - fit:+.2f} |"
                for size, measured, fit in zip(sizes, taken, fitted, strict=True)
            ),
            "",
        ]
    return "\n".join(["### Growth", "", *lines]).rstrip()


def table(result: Result) -> str:
    """The log in a line, and a row for each thing measured."""
    log = result.log
    lines = [
        f"### {result.title}",
        "",
        ", ".join(
            [f"{_number(log['bytes'] / 1e6)} MB", *(_count(log[name], name) for name in COUNTS)],
        )
        + f". Taken {len(result.rows[result.reference])} times, at revision {result.revision}.",
        "",
        "| | seconds (min / median / max) | CPU seconds | peak MiB | times the first row |",
        "|---|---|---|---|---|",
    ]
    reference = result.rows[result.reference]
    for row, samples in result.rows.items():
        times = sorted(sample.seconds for sample in samples)
        cells = [
            row,
            f"{times[0]:.2f} / {median(times):.2f} / {times[-1]:.2f}",
            _with_details(median(map(_cpu, samples)), samples, {"process_cpu_seconds": "whole process"}, 1),
            _with_details(
                max(sample.peak_mib for sample in samples),
                samples,
                {"jvm_peak_mib": "JVM", "worker_peak_mib": "a worker"},
                0,
            ),
            f"{ratio(reference, samples):.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _with_details(value: float, samples: Sequence[Sample], names: dict[str, str], digits: int) -> str:
    """A figure, and in brackets the parts of it that the samples tell."""
    details = [
        f"{text} {max(sample.details[name] for sample in samples):.{digits}f}"
        for name, text in names.items()
        if all(name in sample.details for sample in samples)
    ]
    return f"{value:.{digits}f}" + (f" ({', '.join(details)})" if details else "")


def headline(results: Sequence[Result]) -> str:
    """The ratios for the README, those that were measured."""
    found = {result.plan: result for result in results}
    replay = found["replay"]

    def times(first: Claim, *others: Claim) -> str:
        measured = {claim: claim.measured(found[claim.plan]) for claim in others if claim.plan in found}
        more = "".join(f" (4 partitions: {value:.1f})" for value in measured.values())
        return f"**{first.measured(found[first.plan]):.1f}** times{more}"

    text = (
        f"On {replay.machine['cores']} cores a replay of {_number(replay.log['bytes'] / 1e6)} MB, from the "
        f"start of the process to the published run, is {times(LOCAL_1, LOCAL_4)} as fast as a "
        f"{replay.machine['Kafka']} broker loads them; on Spark `local[2]`, the start of its session "
        f"included, {times(SPARK_1, SPARK_4)}."
    )
    if REBALANCES.plan in found:
        text += f" Of a log in which 30 % of the batches are group records the replay is {times(REBALANCES)} as fast."
    if DUMP.plan in found:
        text += f" `regroup dump` prints the text of Kafka's dump tool {times(DUMP)} as fast."
    return text


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ")


def _count(value: int, name: str) -> str:
    words = name.replace("_", " ")
    return f"{_number(value)} {words.removesuffix('s') if value == 1 else words}"

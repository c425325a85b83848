"""Many inputs, in processes that a sanitizer may end: what was found, and counts by kind."""

from __future__ import annotations

import json
import mmap
import multiprocessing
import os
import struct
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.fuzz.hostile import Hostile
from tests.fuzz.targets import TARGETS

FAMILY = 16
"""Inputs of which the first is made, and the others are variants of it."""

HANGS_AFTER_S = 120
"""Generous, for a machine that has other things to do: an input takes milliseconds."""

_PROGRESS = struct.Struct("<qd")
_BATCH = 2_000
_MOST_KINDS, _MOST_DEATHS = 20, 20
"""Findings after which nothing new is begun."""


@dataclass(frozen=True)
class Input:
    """``data`` for a target, and the seed of its further choices."""

    data: bytes
    seed: int


@dataclass(frozen=True)
class Finding:
    """``number`` is the input's; ``report`` says what happened, in front of a colon what kind it is."""

    target: str
    number: int
    report: str

    @property
    def kind(self) -> tuple[str, str]:
        return self.target, self.report.partition(":\n")[0][:120]


@dataclass
class Outcome:
    """Inputs by target and what became of them, and what was found."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    deaths: int = 0
    """Processes that did not come to the end of their inputs."""

    def kinds(self) -> dict[tuple[str, str], list[Finding]]:
        """Findings, by kind."""
        kinds: dict[tuple[str, str], list[Finding]] = {}
        for finding in self.findings:
            kinds.setdefault(finding.kind, []).append(finding)
        return kinds

    def total(self) -> int:
        return sum(sum(counted.values()) for counted in self.counts.values())


def input_of(target: str, seed: int, number: int) -> Input:
    """Input ``number`` of the campaign with that seed."""
    return next(inputs(target, seed, range(number, number + 1)))


def inputs(target: str, seed: int, numbers: range) -> Iterator[Input]:
    """Inputs by number: the same for the same seed, wherever one begins."""
    made = TARGETS[target]
    own = (list(TARGETS).index(target) << 48) + (seed << 64)
    family, base = -1, b""
    for number in numbers:
        if number // FAMILY != family:
            family = number // FAMILY
            base = made.generate(Hostile(own + family * FAMILY))
        data = base if number % FAMILY == 0 else made.vary(Hostile(own + number), base)
        yield Input(data, own + number)


def failure_of(target: str, given: Input) -> tuple[str, str | None]:
    """Outcome of an input, and the report if it must not be."""
    try:
        return TARGETS[target].run(given.data, Random(given.seed)), None
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
        return "found", f"{type(error).__name__} at {place}: {str(error)[:2000]}"


def run(target: str, seed: int, numbers: range, note: Callable[[int], None] = lambda number: None) -> Outcome:
    """Run inputs in this process; ``note`` is called before each."""
    outcome = Outcome({target: Counter()})
    for number, given in zip(numbers, inputs(target, seed, numbers), strict=True):
        note(number)
        word, report = failure_of(target, given)
        outcome.counts[target][word] += 1
        if report is not None:
            outcome.findings.append(Finding(target, number, report))
    return outcome


# In processes


def run_in_processes(shares: dict[str, int], seed: int, jobs: int, seconds: float | None = None) -> Outcome:
    """Run so many inputs of each target, in ``jobs`` processes at a time; stop after ``seconds``.

    A process that dies, or that an input holds up, is a finding; the next one goes on behind that input.
    """
    started = time.monotonic()
    waiting = [
        (target, range(first, min(first + _BATCH, count)))
        for first in range(0, max(shares.values(), default=0), _BATCH)
        for target, count in shares.items()
        if first < count
    ]
    waiting.reverse()
    outcome = Outcome({target: Counter() for target in shares})
    running: list[_Worker] = []
    while waiting or running:
        if seconds is not None and time.monotonic() - started > seconds:
            waiting.clear()
        while waiting and len(running) < jobs:
            running.append(_Worker(*waiting.pop(), seed))
        time.sleep(0.02)
        for worker in list(running):
            if worker.is_running():
                continue
            running.remove(worker)
            left = worker.collect(outcome)
            if left:
                waiting.append((worker.target, left))
        if len(outcome.kinds()) >= _MOST_KINDS or outcome.deaths >= _MOST_DEATHS:
            waiting.clear()
    return outcome


class _Worker:
    """A process that runs some inputs, and notes in shared memory which one it is at."""

    def __init__(self, target: str, numbers: range, seed: int) -> None:
        self.target, self.numbers = target, numbers
        self._shared = mmap.mmap(-1, mmap.PAGESIZE)
        self._note(numbers.start)
        self._read, write = os.pipe()
        # Forked: what was imported and read need not be again.
        self._process = multiprocessing.get_context("fork").Process(target=self._work, args=(seed, write))
        self._process.start()
        os.close(write)
        os.set_blocking(self._read, False)
        self._report = bytearray()
        self._hung = False

    def _note(self, number: int) -> None:
        self._shared[: _PROGRESS.size] = _PROGRESS.pack(number, time.monotonic())

    def _work(self, seed: int, write: int) -> None:
        outcome = run(self.target, seed, self.numbers, self._note)
        report = [outcome.counts[self.target], [(each.number, each.report) for each in outcome.findings]]
        with os.fdopen(write, "w") as file:
            json.dump(report, file)

    def is_running(self) -> bool:
        with suppress(BlockingIOError):
            self._report += os.read(self._read, 1 << 16)
        _, since = _PROGRESS.unpack_from(self._shared)
        if time.monotonic() - since > HANGS_AFTER_S and self._process.is_alive():
            self._hung = True
            self._process.kill()
        return self._process.is_alive()

    def collect(self, outcome: Outcome) -> range | None:
        """Add what the ended process did to ``outcome``; the inputs behind one that it did not survive."""
        self._process.join()
        os.set_blocking(self._read, True)
        with os.fdopen(self._read, "rb") as rest:
            self._report += rest.read()
        number, _ = _PROGRESS.unpack_from(self._shared)
        if self._process.exitcode == 0:
            counts, findings = json.loads(self._report)
            outcome.counts[self.target].update(counts)
            outcome.findings += [Finding(self.target, *finding) for finding in findings]
            return None
        said = "took too long" if self._hung else f"ended the process with {self._process.exitcode}"
        outcome.deaths += 1
        outcome.counts[self.target]["found"] += 1
        outcome.counts[self.target]["not counted"] += number - self.numbers.start
        outcome.findings.append(Finding(self.target, number, said))
        return range(number + 1, self.numbers.stop) or None


def shares_of(total: int, names: Sequence[str]) -> dict[str, int]:
    """Inputs for each target."""
    whole = sum(TARGETS[name].share for name in names)
    return {name: max(1, round(total * TARGETS[name].share / whole)) for name in names}

"""Load times of partitions: from observed loads, for want of them from this machine."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from coordinator_core import storage
from coordinator_core.drill.load_lines import load_lines
from coordinator_core.drill.model import Band, Calibration
from coordinator_core.errors import UsageError
from coordinator_core.jsontext import Within, from_json, parse_json
from coordinator_core.records.codec import decode_key, decode_value, encode_key, encode_value
from coordinator_core.untrusted import INT32_END, INT64_END

US_PER_RECORD = 1.4
"""Microseconds of a 4.3.1 broker for a record of a large log, on the machine of docs/performance.md."""
REFERENCE_US = 6.7
"""Microseconds that :func:`_probe_us` takes there."""

_LARGE = 20_000
"""Fewest records of a load that shows a rate: below, it is start-up and the clock's milliseconds."""


_Ms = Annotated[float, Within(0, INT32_END - 1)]


@dataclass(frozen=True, slots=True)
class LoadSample:
    """One observed load: ``load_ms`` as the broker reports it, of it ``queued_ms`` behind other loads."""

    records: Annotated[int, Within(0, INT64_END - 1)]
    load_ms: _Ms
    queued_ms: _Ms = 0.0

    @property
    def own_ms(self) -> float:
        return max(0.0, self.load_ms - self.queued_ms)


def server_log_samples(lines: Iterable[str], records: Mapping[int, int]) -> list[LoadSample]:
    """Loads in a broker's log, of any release.

    ``records`` has the records of offsets partitions, for releases that do not log how many they loaded;
    of a partition that is in neither, the line is passed over.
    """
    counted = (
        (one, records.get(one.offsets_partition) if one.records is None else one.records) for one in load_lines(lines)
    )
    return [
        LoadSample(count, float(one.load_ms), float(one.queued_ms or 0)) for one, count in counted if count is not None
    ]


def read_samples(path: Path) -> list[LoadSample]:
    """Observed loads from JSON lines of :class:`LoadSample`. Raises :class:`UsageError` with the line."""
    found = []
    for number, line in enumerate(storage.read_text(str(path)).splitlines(), 1):
        try:
            found.append(from_json(LoadSample, parse_json(line)))
        except ValueError as error:
            raise UsageError(f"{path}: line {number}: {error}") from None
    return found


def calibrated(samples: Sequence[LoadSample], method: str) -> Calibration:
    """A rate from observed loads, with a band that holds every one of them, wider the fewer they are.

    Without a load of some size the rate is this machine's.
    """
    machine = machine_calibration()
    if not samples:
        return machine
    small = [one.own_ms for one in samples if one.records < _LARGE]
    base = statistics.median(small) if small else 0.0
    large = [one for one in samples if one.records >= _LARGE]
    rate = machine.us_per_record
    if large:
        weight = sum(one.records**2 for one in large)
        rate = sum(one.records * max(0.0, one.own_ms - base) for one in large) / weight * 1000

    def expected(sample: LoadSample) -> float:
        return base + sample.records * rate / 1000

    ratios = [one.own_ms / expected(one) for one in large if expected(one)] or [machine.low_factor, machine.high_factor]
    slack = 1.5 if len(large) >= 5 else 2.0
    high_factor = max(ratios) * slack
    extra = max(one.own_ms - high_factor * expected(one) for one in samples)
    return Calibration(
        method=method,
        samples=len(samples),
        base_ms=_rounded(base),
        us_per_record=_rounded(rate),
        low_factor=_rounded(min(ratios) / slack),
        high_factor=_rounded(high_factor),
        high_extra_ms=_rounded(max(250.0, 2 * extra)),
    )


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def machine_calibration() -> Calibration:
    """The rate of a broker on this machine, from how fast Python decodes records here.

    The band is wide: heap, compiler and the state of the page cache are not known.
    """
    rate = US_PER_RECORD * _probe_us() / REFERENCE_US
    return Calibration("machine", 0, 15.0, _rounded(rate), 0.3, 5.0, 1_000.0)


def load_band(calibration: Calibration, records: int, queue: Sequence[int]) -> Band:
    """Milliseconds of the load of a partition of so many records, as the broker reports it.

    A broker loads one partition after the other, in the order in which it learned of them, and counts the waiting:
    ``queue`` has the records of all partitions that it loads, this one among them.
    """
    least = calibration.low_factor * records * calibration.us_per_record / 1000
    longest = len(queue) * calibration.base_ms + sum(queue) * calibration.us_per_record / 1000
    high = calibration.high_factor * longest + calibration.high_extra_ms
    return Band(math.floor(least), math.ceil(high))


@cache
def _probe_us() -> float:
    key = encode_key(1, {"group": "group-000", "topic": "topic-000", "partition": 1})
    data = {"offset": 1, "leaderEpoch": 1, "metadata": "", "commitTimestamp": 1}
    value = encode_value(1, 3, data)
    rounds, best = 1_000, math.inf
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(rounds):
            decode_key(key)
            decode_value(1, value)
        best = min(best, time.perf_counter() - began)
    return best / rounds * 1_000_000

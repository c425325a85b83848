"""``python -m tests.fuzz``: fuzz the kernels that this process would use.

With ``REGROUP_CHECKED_KERNELS=1`` those are the checked ones (``make check-kernels``).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from coordinator_core.kernels.mode import CHECKED, IS_COMPILED
from tests.fuzz import corpus
from tests.fuzz.campaign import Finding, Outcome, input_of, run_in_processes, shares_of
from tests.fuzz.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="how many in all")
    parser.add_argument("--seconds", type=float, help="stop after so many seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", action="append", choices=list(TARGETS), help="only this target")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--findings", type=Path, default=Path("build/fuzz"), help="where to put inputs")
    options = parser.parse_args()
    started = time.monotonic()
    shares = shares_of(options.inputs, options.kind or list(TARGETS))
    outcome = run_in_processes(shares, options.seed, options.jobs, options.seconds)
    _print_counts(outcome, time.monotonic() - started)
    for findings in outcome.kinds().values():
        first = findings[0]
        print(f"FOUND {len(findings)} times, in {first.target} {first.number}: {first.report}")
        print(f"      {_keep(first, options.seed, options.findings)}")
    return 1 if outcome.findings else 0


def _print_counts(outcome: Outcome, seconds: float) -> None:
    build = "uncompiled" if not IS_COMPILED else "checked" if os.environ.get(CHECKED) else "optimized"
    for target, counts in outcome.counts.items():
        words = ", ".join(f"{word} {count}" for word, count in counts.most_common())
        print(f"{target:14} {sum(counts.values()):>9}  {words}")
    found = f"{len(outcome.findings)} findings"
    print(f"{'all':14} {outcome.total():>9}  inputs, {found}, {build} kernels, {seconds:.0f} s")


def _keep(finding: Finding, seed: int, directory: Path) -> Path:
    """Write the input that found something where ``tests.fuzz.corpus`` can read it."""
    directory.mkdir(parents=True, exist_ok=True)
    given = input_of(finding.target, seed, finding.number)
    return corpus.write(directory, f"{finding.target}.{seed}-{finding.number}", given)


if __name__ == "__main__":
    sys.exit(main())

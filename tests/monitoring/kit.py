"""Prometheus' own programs, and what they are given: exports of real runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
ALERTS = DOCS / "monitoring/alerts.yaml"
DASHBOARD = DOCS / "monitoring/dashboard.json"


def program(name: str) -> str:
    """Path of one of Prometheus' programs: where ``.ci/setup.sh prometheus`` puts it, else on the PATH."""
    found = shutil.which(name, path=os.pathsep.join([str(ROOT / ".cache/prometheus/usr/bin"), os.environ["PATH"]]))
    assert found is not None, f"{name} is missing: make prometheus"
    return found


def promtool(*arguments: str, given: str = "") -> str:
    """Output of promtool; it has to succeed."""
    done = subprocess.run([program("promtool"), *arguments], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@contextmanager
def server(name: str, ready: str, *arguments: str) -> Iterator[str]:
    """URL of one of Prometheus' servers on a free port, once its log says ``ready``; it is ended afterwards."""
    command = [program(name), "--web.listen-address=127.0.0.1:0", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        said, address = "", None
        # Threads of the server write the two lines, in either order.
        while address is None or ready not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
            address = address or re.search(r'Listening on" address=(\S+)', line)
        yield f"http://{address[1]}"
    finally:
        process.terminate()
        process.communicate(timeout=60)


def samples(text: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def series(sample: Sample) -> str:
    """The series of a sample, as PromQL writes it."""
    labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(sample.labels.items()))
    return f"{sample.name}{{{labels}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def open_metrics(exports: Sequence[str], time_seconds: float) -> str:
    """Exports as one OpenMetrics text with a time, from which ``promtool tsdb`` makes blocks."""
    by_name: dict[str, list[str]] = {}
    for export in exports:
        for sample in samples(export):
            by_name.setdefault(sample.name, []).append(f"{series(sample)} {sample.value} {time_seconds}")
    lines = [line for name, found in by_name.items() for line in (f"# TYPE {name} gauge", *found)]
    return "\n".join([*lines, "# EOF", ""])

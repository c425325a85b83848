"""Measurements, kept as JSON."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.bench.measure import Sample
from tests.bench.plans import Row
from tests.live.broker import java

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Result:
    """One table. ``log`` counts what the log holds, ``machine`` says where it was measured."""

    plan: str
    title: str
    log: dict[str, int]
    rows: dict[Row, list[Sample]]
    machine: dict[str, str]
    revision: str

    @property
    def reference(self) -> Row:
        return next(iter(self.rows))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, data: dict[str, Any]) -> Result:
        rows = {Row(name): [Sample(**sample) for sample in samples] for name, samples in data["rows"].items()}
        return cls(**{**data, "rows": rows})


def read_results(path: Path) -> list[Result]:
    """Results of a file of JSON lines; none when there is no file."""
    if not path.exists():
        return []
    return [Result.of_json(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def write_results(path: Path, results: Sequence[Result]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(_rounded(result.to_json()), ensure_ascii=False) + "\n" for result in results)
    path.write_text("".join(lines), encoding="utf-8")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return round(value, 3) if isinstance(value, float) else value


def machine(kafka_version: str) -> dict[str, str]:
    """Facts on which the figures depend; nothing that tells one machine from another of its kind."""
    found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    jdk = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True).stderr
    return {
        "CPU": found[1] if found else platform.machine(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory / (1 << 30):.0f} GiB",
        "Linux": re.match(r"[\d.]+", platform.release())[0].rstrip("."),  # type: ignore[index]
        "Python": platform.python_version(),
        "JDK": jdk.split('"')[1],
        "Kafka": kafka_version,
    }


def revision() -> str:
    """The commit that is measured, with a ``+`` when files differ from it; empty outside a checkout."""

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=False
        )
        return done.stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")

"""Locks what ``pyproject.toml`` declares: one resolution, in layers of which each begins with the one below it.

    python .ci/lock.py [--upgrade]        (make lock)

A layer holds only what the layers below lack, so packages that two of them need have one version. Without ``--upgrade``
locked versions stay, where the declarations allow it. ``oldest.txt`` has the oldest versions that are supported, as
constraints.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / ".ci/locks"
LAYERS: tuple[tuple[Path, tuple[str, ...]], ...] = (
    (LOCKS / "core.txt", ()),
    (LOCKS / "spark.txt", ("spark",)),
    (
        LOCKS / "airflow.txt",
        ("spark", "airflow", "celery", "postgres", "kubernetes", "msk", "quality", "iceberg"),
    ),
)
"""Locks, and the extras that each is for."""
EVERYTHING = ROOT / "requirements.lock"
FILES = (*(path for path, _ in LAYERS), EVERYTHING)
OLDEST = ROOT / ".ci/oldest.txt"

_HEAD = "# Written by make lock.\n"
_PACKAGE = re.compile(r"^[a-z0-9].*\n(?:(?:    .*|\s*)\n)*", re.MULTILINE)


def resolved(*arguments: str) -> str:
    """The versions that uv resolves the declarations to, for every supported Python and platform."""
    command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet", "--no-header", "--universal"]
    command += ["--python-version", "3.11", *arguments, "pyproject.toml"]
    return subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout


def of_extras(extras: tuple[str, ...]) -> list[str]:
    return [f"--extra={extra}" for extra in extras]


def packages(text: str) -> dict[str, str]:
    """Lines of each package by its requirement: name, version, marker."""
    return {re.split(r" \\?\n", each[0])[0]: each[0] for each in _PACKAGE.finditer(text)}


def main() -> None:
    with TemporaryDirectory() as directory:
        whole = Path(directory, "whole.txt")
        # uv keeps the versions that are there.
        locked = [path.read_text() for path in FILES if path.exists()]
        whole.write_text("".join(package for text in locked for package in packages(text).values()))
        resolved("--all-extras", "--generate-hashes", "--output-file", str(whole), *sys.argv[1:])
        left = packages(whole.read_text())
        below = None
        LOCKS.mkdir(exist_ok=True)
        for path, extras in LAYERS:
            chosen = resolved("--no-annotate", "--constraints", str(whole), *of_extras(extras))
            names = {line.partition("==")[0] for line in chosen.splitlines()}
            taken = {each: left.pop(each) for each in list(left) if re.split(r"\[|==", each)[0] in names}
            write(path, below and below.name, taken)
            below = path
        write(EVERYTHING, below and str(below.relative_to(ROOT)), left)
    OLDEST.write_text(_HEAD + resolved("--no-annotate", "--resolution", "lowest-direct", *of_extras(LAYERS[-1][1])))


def write(path: Path, below: str | None, taken: dict[str, str]) -> None:
    path.write_text(_HEAD + (f"-r {below}\n" if below else "") + "".join(taken.values()))


if __name__ == "__main__":
    main()

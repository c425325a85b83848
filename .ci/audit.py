"""Compares the locked packages with a copy of known vulnerabilities; asks nobody.

    python .ci/audit.py ADVISORIES        (make audit ADVISORIES=…)

ADVISORIES is a directory of OSV files (``*.json``, schema 1.x) or a zip of them, such as ``PyPI/all.zip`` of osv.dev.
Exit code 0: none concerns a locked package; 1: these do; 2: there is no advisory for PyPI to compare with.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lock import FILES
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

Json = dict[str, Any]


def advisories(place: Path) -> Iterator[Json]:
    if place.is_dir():
        yield from (json.loads(path.read_bytes()) for path in sorted(place.rglob("*.json")))
        return
    with zipfile.ZipFile(place) as archive:
        yield from (json.loads(archive.read(name)) for name in sorted(archive.namelist()) if name.endswith(".json"))


def locked() -> set[tuple[str, str]]:
    """Canonical names and versions; one package has several when releases of Python need different ones."""
    lines = [line for path in FILES for line in path.read_text(encoding="utf-8").splitlines()]
    pins = [Requirement(line.removesuffix(" \\")) for line in lines if line[:1].isalnum()]
    return {(canonicalize_name(pin.name), str(pin.specifier).removeprefix("==")) for pin in pins}


def concerns(affected: Json, version: str) -> bool:
    """Whether an entry ``affected`` of an advisory means that version (OSV: listed, or in a range of events)."""
    return version in affected.get("versions", ()) or any(
        _within(each["events"], Version(version)) for each in affected.get("ranges", ()) if each["type"] == "ECOSYSTEM"
    )


def _within(events: list[Json], version: Version) -> bool:
    """The state behind the last event that is not above ``version``."""
    found = False
    for at, kind in sorted((_version(text), kind) for event in events for kind, text in event.items()):
        if at > version or kind == "limit":
            break
        found = kind == "introduced" or (kind == "last_affected" and found and at == version)
    return found


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise SystemExit(f"audit: {text!r} is no version of PyPI") from None


def main(place: str) -> int:
    pins, read, found = locked(), 0, []
    for advisory in advisories(Path(place)):
        concerned = [
            each for each in advisory.get("affected", ()) if each.get("package", {}).get("ecosystem") == "PyPI"
        ]
        read += bool(concerned)
        for each in concerned if not advisory.get("withdrawn") else ():
            name = canonicalize_name(each["package"]["name"])
            for version in (version for pinned, version in pins if pinned == name and concerns(each, version)):
                names = ", ".join([advisory["id"], *advisory.get("aliases", ())])
                found.append(f"{name} {version}: {names}: {advisory.get('summary', 'no summary')}")
    if not read:
        print(f"audit: {place}: no advisory for PyPI", file=sys.stderr)
        return 2
    print(*sorted(set(found)), f"{len(pins)} packages, {read} advisories, {len(set(found))} found", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

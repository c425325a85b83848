"""Writes what Regroup is made of: ``coordinator_core/sbom.cdx.json`` (CycloneDX 1.6) and ``docs/licences.md``.

    python .ci/sbom.py        in the environment of requirements.lock (make sbom)

Names, versions, markers and who needs what come from the lock; licences from the metadata of the installed packages.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from pathlib import Path
from typing import Any

from lock import FILES

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
SBOM, PAGE = ROOT / "coordinator_core/sbom.cdx.json", ROOT / "docs/licences.md"

_PIN = re.compile(r"^([a-z0-9.-]+)(?:\[[^]]*])?==([^ ;\\]+)(?: ; ([^\\]+?))? \\$")
_VIA = re.compile(r"^    # (?:via )?(?:  )?([a-z0-9.-]+)")
_PROJECT = "regroup"
# Locked for other platforms, or without a licence in their metadata: from the licence files of their sources.
_TOLD = {"async-timeout": "Apache-2.0", "axe-playwright-python": "MIT", "colorama": "BSD-3-Clause", "pyyaml-ft": "MIT"}

_HEAD = """# Licences of dependencies

After this page you know under which licences the packages stand that Regroup is installed with.

`make sbom` writes it, from the metadata of the packages of `requirements.lock` and the locks below it; the same is in
`coordinator_core/sbom.cdx.json` (CycloneDX 1.6), which wheels and the images hold. Extras are among them: a core alone
installs few of these. Regroup itself is under Apache-2.0. Java, Spark's jars and the C libraries lz4 and zstd are no
Python packages, and not listed.

| package | version | licence |
|---|---|---|
"""


def components() -> list[dict[str, Any]]:
    """The locked packages as CycloneDX components, with ``via``: the names of packages that need them."""
    found: list[dict[str, Any]] = []
    for line in (line for path in FILES for line in path.read_text().splitlines()):
        if pin := _PIN.match(line):
            name, version, marker = pin.groups()
            purl = f"pkg:pypi/{name}@{version}"
            found.append(
                {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, "via": []}
            )
            found[-1]["licenses"] = _licences(name)
            if marker:
                found[-1]["properties"] = [{"name": "regroup:marker", "value": marker}]
        elif (via := _VIA.match(line)) and via[1] != "via":
            found[-1]["via"].append(via[1])
    return found


def _licences(name: str) -> list[dict[str, Any]]:
    if name in _TOLD:
        return [{"license": {"name": _TOLD[name]}}]
    metadata = importlib.metadata.metadata(name)
    if expression := metadata.get("License-Expression"):
        return [{"expression": expression}]
    prefix = "License :: "
    classifiers = (each for each in metadata.get_all("Classifier") or [] if each.startswith(prefix))
    names = [each.rpartition(" :: ")[2] for each in classifiers if each != f"{prefix}OSI Approved"]
    if not names:
        names = [str(metadata.get("License", "")).strip().split("\n")[0]]
    if names in ([""], ["UNKNOWN"]):
        raise SystemExit(f"sbom: {name} says nothing of its licence: add it to _TOLD in {__file__}")
    return [{"license": {"name": each}} for each in names]


def main() -> None:
    from coordinator_core import __version__

    made = sorted(components(), key=lambda each: each["name"])
    needs: dict[str, list[str]] = {}
    for component in made:
        for parent in component.pop("via"):
            needs.setdefault(parent, []).append(component["bom-ref"])
    root = {"type": "application", "bom-ref": _PROJECT, "name": _PROJECT, "version": __version__}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": root | {"licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": made,
        "dependencies": [
            {"ref": each["bom-ref"], "dependsOn": needs[each["name"]]}
            for each in (root, *made)
            if each["name"] in needs
        ],
    }
    SBOM.write_text(json.dumps(document, indent=1) + "\n")
    PAGE.write_text(_HEAD + "".join(f"| {each['name']} | {each['version']} | {licence(each)} |\n" for each in made))


def licence(component: dict[str, Any]) -> str:
    """Licences of a component, as the page has them."""
    told = [each.get("expression") or each["license"]["name"] for each in component["licenses"]]
    return "; ".join(told).replace("|", "\\|")


if __name__ == "__main__":
    main()

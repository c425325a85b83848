"""The bill of materials and the page of licences are those of the lock."""

from __future__ import annotations

import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

from coordinator_core import __version__

ROOT = Path(__file__).resolve().parent.parent
SBOM = ROOT / "coordinator_core/sbom.cdx.json"
DOCUMENT = json.loads(SBOM.read_text())
LOCKED = {
    tuple(match)
    for path in (*ROOT.glob(".ci/locks/*.txt"), ROOT / "requirements.lock")
    for match in re.findall(r"^([a-z0-9.-]+)(?:\[.*\])?==([^ ;]+)", path.read_text(), re.M)
}
AGAIN = "run make sbom"


def test_components_are_the_locked_packages() -> None:
    assert {(each["name"], each["version"]) for each in DOCUMENT["components"]} == LOCKED, AGAIN
    assert len(DOCUMENT["components"]) == len(LOCKED)
    assert (DOCUMENT["bomFormat"], DOCUMENT["specVersion"]) == ("CycloneDX", "1.6")
    assert DOCUMENT["metadata"]["component"]["version"] == __version__, AGAIN


def test_dependencies_are_those_of_the_project() -> None:
    refs = {each["bom-ref"] for each in DOCUMENT["components"]}
    assert refs >= {ref for each in DOCUMENT["dependencies"] for ref in each["dependsOn"]}
    direct = next(each["dependsOn"] for each in DOCUMENT["dependencies"] if each["ref"] == "regroup")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(each for extra in project["optional-dependencies"].values() for each in extra)]
    names = {re.split(r"[\[<>=]", each)[0] for each in asked}
    assert {ref.removeprefix("pkg:pypi/").partition("@")[0] for ref in direct} == names, AGAIN
    # Every package is needed by another one, or by the project.
    assert {ref for each in DOCUMENT["dependencies"] for ref in each["dependsOn"]} == refs


def test_every_package_has_a_licence_on_the_page() -> None:
    page = (ROOT / "docs/licences.md").read_text()
    rows = re.findall(r"^\| ([a-z0-9.-]+) \| ([^|]+) \| (.+) \|$", page, re.M)
    assert {(name, version) for name, version, _ in rows if name != "package"} == LOCKED, AGAIN
    listed = {(name, version): licence for name, version, licence in rows}
    for each in DOCUMENT["components"]:
        told = [one.get("expression") or one["license"]["name"] for one in each["licenses"]]
        assert all(told)
        assert listed[each["name"], each["version"]] == "; ".join(told), AGAIN


def test_wheels_hold_it() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["*"]
    assert any(fnmatch(SBOM.name, pattern) for pattern in patterns)

"""Record schemas, field by field, against those that Kafka's own jars carry: the sources of its generated classes.

``make kafka-next`` compares those of the newest release that Maven has, which the table of releases may not know yet.
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.records.schemas import RECORD_TYPES, RecordType
from coordinator_core.records.types import ZERO_UUID, ArrayOf, Field, Primitive, Schema, Struct
from coordinator_core.releases import Release, profile_for_release
from tests.live.broker import CACHE, KAFKA_VERSION, POM, fetch_jars

Row = tuple[str, tuple[Any, ...]]
"""Path of a field, and its type, versions, those in which it may be null, tag and default."""
NEWEST = "4.4.0"
EARLIER = ("3.7.2", "3.8.1", "3.9.2", "4.0.2", "4.1.2", "4.2.1")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    asked = metafunc.config.getoption("--kafka-schemas")
    earlier = [pytest.param(one, marks=pytest.mark.full) for one in EARLIER]
    releases = [asked] if asked else [KAFKA_VERSION, NEWEST, *earlier]
    metafunc.parametrize("version", releases, indirect=True)


@pytest.fixture(scope="module")
def version(request: pytest.FixtureRequest) -> str:
    release: str = request.param
    return release


@pytest.fixture(scope="module")
def jar(version: str) -> Path:
    """The coordinator's jar of a release; ``RELEASE`` is the newest that Maven has."""
    artifact = f"-Dartifact=org.apache.kafka:kafka-group-coordinator:{version}"
    if version == "RELEASE":
        shutil.rmtree(CACHE / "kafka-next", ignore_errors=True)
        jars = fetch_jars("kafka-next", POM, "-U", "dependency:copy", artifact).rename(CACHE / "kafka-next")
    else:
        jars = fetch_jars(f"group-coordinator-{version}", POM, "dependency:copy", artifact)
    (found,) = jars.glob("*.jar")
    return found


def release_of(jar: Path) -> Release:
    return Release.parse(jar.stem.rpartition("-")[2])


def definitions(jar: Path) -> dict[str, dict[str, Any]]:
    """Definitions by name, such as ``OffsetCommitValue``."""
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"common/message/\w+(Key|Value)\.json", name):
                text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                definition = json.loads(text)
                found[definition["name"]] = definition
    return found


def lower(name: str) -> str:
    return name[0].lower() + name[1:]


def span(text: str, last: int) -> range:
    """``"1"``, ``"0-3"``, ``"2+"`` and ``"none"`` as versions up to ``last``."""
    if text == "none":
        return range(0)
    low, separator, high = text.replace("+", "-").partition("-")
    return range(int(low), min(int(high or last) if separator else int(low), last) + 1)


def theirs(fields: list[dict[str, Any]], structs: dict[str, Any], last: int, path: str = "") -> Iterator[Row]:
    for each in fields:
        versions = span(each.get("versions", "0+"), last)
        if not versions:
            continue
        name = f"{path}{lower(each['name'])}"
        kind = each["type"].removeprefix("[]")
        inner = each.get("fields") or structs.get(kind)
        is_array = each["type"].startswith("[]")
        nullable = [*span(each.get("nullableVersions", "none"), last)]
        described = "struct" if inner else kind
        default = None if is_array or inner else default_of(kind, each.get("default"))
        if each.get("default") == "null":
            default = "null"
        yield name, (is_array, described, [*versions], [v for v in nullable if v in versions], each.get("tag"), default)
        if inner:
            yield from theirs(inner, structs, last, f"{name}.")


def default_of(kind: str, default: Any) -> Any:
    if kind in ("string", "bytes"):
        return default or ""
    if kind == "uuid":
        return ZERO_UUID
    return int(str(default or 0), 0)


def ours(struct: Struct, last: int, release: Release, path: str = "") -> Iterator[Row]:
    for each in struct.fields:
        if each.added_in is not None and each.added_in > release:
            continue
        versions = range(each.since, min(last if each.until is None else each.until, last) + 1)
        if not versions:
            continue
        name = f"{path}{each.name}"
        is_array = isinstance(each.type, ArrayOf)
        element = each.type.element if isinstance(each.type, ArrayOf) else each.type
        described = "struct" if isinstance(element, Struct) else element.value
        nullable = [*versions] if each.nullable else []
        yield name, (is_array, described, [*versions], nullable, each.tag, _own_default(each, element, is_array))
        if isinstance(element, Struct):
            yield from ours(element, last, release, f"{name}.")


def _own_default(each: Field, element: Primitive | Struct, is_array: bool) -> Any:
    default = each.default_value(each.since)
    if default is None:
        return "null"
    if is_array or isinstance(element, Struct):
        return None
    return "" if element is Primitive.BYTES else default


def last_version(definition: dict[str, Any]) -> int:
    return span(definition["validVersions"], 1 << 15)[-1]


def test_the_coordinator_knows_the_record_types_that_its_jar_has(jar: Path) -> None:
    names = {name.removesuffix("Value") for name in definitions(jar) if name.endswith("Value")}
    known = {RECORD_TYPES[number].name for number in profile_for_release(release_of(jar), "new").known_key_types}
    if release_of(jar) < (4, 0):
        # Drafts, which no class of 3.9 reads.
        names = {name for name in names if not name.startswith("Share")}
    # Up to 4.0 one schema is that of both types of committed offsets.
    assert names | {"LegacyOffsetCommit"} == known


def test_keys_are_those_of_the_jar(jar: Path) -> None:
    for name, definition in definitions(jar).items():
        if name.endswith("Key"):
            own = record_type(name.removesuffix("Key"))
            if "apiKey" in definition:
                assert definition["apiKey"] == own.type, name
            names = [(lower(field["name"]), field["type"]) for field in definition["fields"]]
            assert [(field.name, field.type.value) for field in own.key.struct.fields] == names, name  # type: ignore[union-attr]


def record_type(name: str) -> RecordType:
    return next(one for one in RECORD_TYPES.values() if one.name == name)


def test_values_are_those_of_the_jar(jar: Path) -> None:
    release = release_of(jar)
    compared = 0
    for name, definition in definitions(jar).items():
        if not name.endswith("Value"):
            continue
        own = record_type(name.removesuffix("Value"))
        last = min(last_version(definition), own.value.last_version)
        structs = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", ())}
        expected = [*theirs(definition["fields"], structs, last)]
        # Previews wrote other layouts under the same version; the newest release of all writes the current one.
        layouts: list[Schema] = [own.value]
        if release < (4, 1):
            layouts += own.other_layouts.values()
        found = [[*ours(layout.struct, last, release)] for layout in layouts]
        assert expected in found, (name, expected, found)
        assert definition["flexibleVersions"] == ("4+" if own.type < 3 else "0+") or last < 4
        compared += 1
    assert compared >= 7

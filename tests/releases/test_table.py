"""The table of releases: rows, patches, and what is asked of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from coordinator_core.records.schemas import RECORD_TYPES
from coordinator_core.records.types import ArrayOf, Struct
from coordinator_core.releases import PROFILE_RELEASES, Loader, PendingHold, Release, profile_for_release
from coordinator_core.releases.facts import DumpText, Sign
from coordinator_core.releases.lines import LINES, Line, Patch
from coordinator_core.releases.table import TABLE, ReleaseTable
from coordinator_core.reports.dump_styles import STYLES


def release(text: str) -> Release:
    return Release.parse(text)


def test_rows_stand_in_the_order_of_their_numbers() -> None:
    with pytest.raises(ValueError, match=r"row 4\.9 stands below 4\.10"):
        ReleaseTable((*LINES, Line("4.10"), Line("4.9")))
    assert ReleaseTable((*LINES, Line("4.9"), Line("4.10"))).newest == release("4.10")


@pytest.mark.parametrize("patch", ["4.6", "4.7", "4.5.9"])
def test_a_patch_belongs_to_the_line_of_its_row(patch: str) -> None:
    with pytest.raises(ValueError, match="stands below"):
        ReleaseTable((*LINES, Line("4.6", patches=(Patch(patch),)), Line("4.7")))


def test_a_change_needs_a_coordinator_above_it() -> None:
    with pytest.raises(AssertionError, match=r"0\.8\.2 changes a coordinator"):
        ReleaseTable((Line("0.8.2", classic=lambda was: was, coordinators=(Loader.SCALA,)),))


@pytest.mark.parametrize(
    "fact, since",
    [
        ("rebalance_protects", "2.8.2 3.0.1 3.1.1 3.2.0"),
        ("unknown_key_aborts", "3.0.3 3.1.3 3.2.4 3.3.3 3.4.1 3.5.0"),
        ("empty_group_keeps_protocol_type", "1.0.1 1.1.0"),
    ],
)
def test_a_correction_in_a_patch_is_not_in_the_next_line_unless_its_row_says_so(fact: str, since: str) -> None:
    def has(text: str) -> bool:
        profile = profile_for_release(text, "classic")
        value = getattr(profile if hasattr(profile, fact) else profile.expiry, fact)
        return bool(value) is not (fact == "unknown_key_aborts")

    for first in since.split():
        *line, patch = release(first)
        assert has(first), first
        assert has(str(Release((*line, patch + 1))))
        before = Release((*line, patch - 1)) if patch else release("0.8.2")
        assert not has(str(before)), before


def test_a_shorter_number_is_the_beginning_of_its_line() -> None:
    holds = [profile_for_release(text).expiry.pending_hold for text in ("4.0", "4.0.0", "4.0.1")]
    beside = PendingHold.TRANSACTION_BESIDE_OFFSETS
    assert holds == [beside, beside, PendingHold.OFFSET_KEY]


def test_the_newest_release_of_a_family_by_default_stands_for_it() -> None:
    assert {name: str(number) for name, (number, _) in PROFILE_RELEASES.items()} == {
        "S0": "0.8.2.2",
        "S1": "2.0.1",
        "S2": "2.3.1",
        "S3": "3.3.2",
        "S4": "3.9.2",
        "J0": "3.7.2",
        "J1": "4.0.2",
        "J2": "4.1.2",
        "J3": "4.3.1",
        "J4": "4.4.0",
    }


def test_every_sign_belongs_to_one_released_line() -> None:
    told = Counter(sign for line in LINES for sign in line.inferred_from)
    assert told == Counter(Sign)
    assert all(line.latest for line in LINES if line.inferred_from)


def test_the_latest_release_is_one_of_its_line() -> None:
    for line, latest in ((line, release(line.latest)) for line in LINES if line.latest):
        assert TABLE.coordinators(latest)
        assert latest[: len(release(line.since))] == release(line.since)


def _fields(name: str, struct: Struct) -> Iterator[str]:
    for each in struct.fields:
        if each.added_in is not None:
            assert str(each.added_in) in {line.since for line in LINES}
            yield f"{name}.{each.name}"
        inner = each.type.element if isinstance(each.type, ArrayOf) else each.type
        if isinstance(inner, Struct):
            yield from _fields(name, inner)


def test_the_table_and_the_schemas_name_the_same_new_fields() -> None:
    schemas = {each.value for each in RECORD_TYPES.values()}
    found = {name for schema in schemas for name in _fields(schema.struct.name, schema.struct)}
    assert found == {name for line in LINES for name in line.new_fields}


def test_every_form_of_the_dump_tool_begins_once_and_has_a_style() -> None:
    changes = list(TABLE.dump_changes())
    assert {text for _, text in changes} == set(DumpText)
    assert [style.since for style in STYLES] == [since for since, _ in changes]


@pytest.mark.parametrize(
    "key_types, first, latest",
    [
        ({0, 1, 2}, None, None),
        ({1, 99}, None, None),
        ({1, 3, 8}, "3.7", "3.9.2"),
        ({3, 16}, "4.0", "4.0.2"),
        ({10}, "4.0", "4.0.2"),
        ({3, 11, 22}, "4.1", "4.1.2"),
    ],
)
def test_record_types_have_a_first_release_and_a_last_that_writes_no_more(
    key_types: set[int], first: str | None, latest: str | None
) -> None:
    found = TABLE.first_with_key_types(key_types)
    assert (found and str(found)) == first
    if found is not None:
        assert str(TABLE.latest_alike(found)) == latest

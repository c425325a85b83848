"""Release numbers: their order, and what is none."""

from __future__ import annotations

import pickle

import pytest

from coordinator_core.errors import UsageError
from coordinator_core.releases import Release

IN_ORDER = ["0.8.2", "0.8.2.2", "0.9.0.1", "0.10.1", "0.10.2.2", "3.9.2", "4.0", "4.0.0", "4.9.3", "4.10.0"]


def test_numbers_are_ordered_as_numbers_and_not_as_text() -> None:
    releases = [Release.parse(text) for text in IN_ORDER]
    assert sorted([releases[-1], *releases[:-1]]) == releases
    assert sorted(IN_ORDER) != IN_ORDER
    assert max(Release.parse("4.9.3"), Release.parse("4.10.0")) == Release((4, 10, 0))


@pytest.mark.parametrize("text", IN_ORDER)
def test_a_number_survives_text_and_pickling(text: str) -> None:
    release = Release.parse(text)
    assert (str(release), f"{release}") == (text, text)
    copy = pickle.loads(pickle.dumps(release))
    assert (type(copy), copy) == (Release, release)


@pytest.mark.parametrize("text", ["", "4", "4.", "four.1", "4.1-rc1", "1.2.3.4.5", "4.٣", f"4.{'9' * 5000}"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a Kafka release"):
        Release.parse(text)

"""Examples of a property, parameters of a slow test: few, the same each time; all by ``make test-full``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings


def examples(most: int) -> settings:
    """``most`` of them in the profile ``all`` (``tests/conftest.py``), an eighth in ``few``."""
    is_few = settings.get_current_profile_name() == "few"
    return settings(max_examples=max(5, most // 8) if is_few else most)


def one_in(share: int, values: Sequence[Any]) -> list[Any]:
    """Parameters of a slow test: one in ``share`` of the values, and the others in the tier *full*."""
    return [pytest.param(one, marks=pytest.mark.full if at % share else ()) for at, one in enumerate(values)]


def strides(few: int, most: int = 1) -> pytest.MarkDecorator:
    """The argument ``stride`` of a test that tries each place: one in ``few`` places, and *full* one in ``most``."""
    return pytest.mark.parametrize("stride", [few, pytest.param(most, marks=pytest.mark.full)])

"""Examples of a property: few, the same each time; all, others each time, by ``make test-full``."""

from __future__ import annotations

from hypothesis import settings


def examples(most: int) -> settings:
    """``most`` of them in the profile ``all`` (``tests/conftest.py``), a quarter in ``few``."""
    is_few = settings.get_current_profile_name() == "few"
    return settings(max_examples=max(5, most // 4) if is_few else most)

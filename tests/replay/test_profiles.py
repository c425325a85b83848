"""Profiles: which release has which rules, and what is refused."""

from __future__ import annotations

import pytest

from coordinator_core.errors import UsageError
from coordinator_core.releases import (
    PROFILE_RELEASES,
    Loader,
    profile_for,
    profile_for_release,
    profile_from_label,
)


@pytest.mark.parametrize("name", PROFILE_RELEASES)
def test_the_representative_release_of_a_profile_has_that_profile(name: str) -> None:
    assert profile_for(name).name == name


@pytest.mark.parametrize(
    "release, coordinator, name, loader",
    [
        ("0.8.2.2", None, "S0", Loader.SCALA),
        ("0.9.0.1", None, "S1", Loader.SCALA),
        ("2.0.1", None, "S1", Loader.SCALA),
        ("2.1.0", None, "S2", Loader.SCALA),
        ("2.4.1", None, "S3", Loader.SCALA),
        ("3.4.0", None, "S3", Loader.SCALA),
        ("3.4.1", None, "S4", Loader.SCALA),
        ("3.0.3", None, "S4", Loader.SCALA),
        ("3.2.3", None, "S3", Loader.SCALA),
        ("3.9.2", None, "S4", Loader.SCALA),
        ("3.9.2", "new", "J1", Loader.JAVA),
        ("3.7.0", "new", "J0", Loader.JAVA),
        ("4.0.0", "classic", "S4", Loader.SCALA),
        ("4.0.0", None, "J1", Loader.JAVA),
        ("4.1.1", None, "J2", Loader.JAVA),
        ("4.3.1", None, "J3", Loader.JAVA),
        ("4.4.0", None, "J4", Loader.JAVA),
    ],
)
def test_release_to_profile(release: str, coordinator: str | None, name: str, loader: Loader) -> None:
    profile = profile_for_release(release, coordinator)
    assert (profile.name, profile.loader, str(profile.release)) == (name, loader, release)
    assert profile_from_label(profile.label) == profile


@pytest.mark.parametrize(
    "release, coordinator",
    [
        ("0.8.1", None),
        ("9.0", None),
        ("four", None),
        ("4.3.1", "classic"),
        ("2.8.2", "new"),
        ("4.0.0", "old"),
    ],
)
def test_what_does_not_exist_is_refused(release: str, coordinator: str | None) -> None:
    with pytest.raises(UsageError, match=r"Kafka|coordinator|release"):
        profile_for_release(release, coordinator)

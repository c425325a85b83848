"""The profile that a user, a label or a family name asks for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from coordinator_core.errors import UsageError
from coordinator_core.releases.facts import Loader, Profile
from coordinator_core.releases.number import Release
from coordinator_core.releases.table import TABLE


def _profile_releases() -> dict[str, tuple[Release, str]]:
    found: dict[str, tuple[Release, str]] = {}
    by_default: set[str] = set()
    for release, loader in TABLE.latest():
        name = TABLE.profile(release, loader).name
        is_default = TABLE.coordinators(release)[0] is loader
        if is_default or name not in by_default:
            found[name] = release, loader.coordinator
        if is_default:
            by_default.add(name)
    return found


PROFILE_RELEASES: Final = _profile_releases()
"""The release that stands for each family, for ``--profile S2`` without a release, and its coordinator: the
newest one, before those that have that coordinator only by choice."""


def parse_release(text: str) -> Release:
    """``"4.3.1"`` to ``Release((4, 3, 1))``; :class:`UsageError` for one that the table does not have."""
    release = Release.parse(text)
    newest = TABLE.newest
    if release < TABLE.oldest or release[: len(newest)] > newest:
        raise UsageError(f"no rules for Kafka {text}: releases {TABLE.oldest} to {newest} are known")
    return release


def profile_for(name: str) -> Profile:
    """Profile of a family (``S0`` … ``J4``), by its representative release; ``UsageError`` for another name."""
    try:
        release, coordinator = PROFILE_RELEASES[name]
    except KeyError:
        known = ", ".join(PROFILE_RELEASES)
        raise UsageError(f"unknown profile {name!r} (one of: auto, {known})") from None
    return profile_for_release(release, coordinator)


def every_profile() -> list[Profile]:
    """One for each coordinator of every release at which facts can change, oldest first; it holds for the releases
    that follow, up to the next one of the list."""
    return [TABLE.profile(release, loader) for release, loader in TABLE.changes()]


def profile_names(has: Callable[[Profile], bool]) -> tuple[str, ...]:
    """The families whose representative release has a fact."""
    return tuple(name for name in PROFILE_RELEASES if has(profile_for(name)))


def chosen_profile(name: str, release: str | None, coordinator: str | None) -> Profile | None:
    """The profile that ``--profile``, ``--kafka-version`` and ``--coordinator`` ask for.

    ``None`` for ``auto``: the profile is inferred from the records. Raises ``UsageError`` for options that exclude each
    other, and as :func:`profile_for` and :func:`profile_for_release` do.
    """
    if release is not None:
        if name != "auto":
            raise UsageError("--profile and --kafka-version exclude each other")
        return profile_for_release(release, coordinator)
    if coordinator is not None:
        raise UsageError("--coordinator goes with --kafka-version")
    return None if name == "auto" else profile_for(name)


def how_inferred(*, is_told: bool) -> str:
    """Where a profile comes from that nobody asked for: records that tell it, or none."""
    return "told from the records" if is_told else "assumed: no record tells it"


_LABEL = re.compile(r"\w+ \((?P<release>[\d.]+), (?P<coordinator>classic|new) coordinator\)")


def profile_from_label(label: str) -> Profile:
    """The profile that :attr:`Profile.label` was printed from, as manifests keep it; ``UsageError`` for other text."""
    found = _LABEL.fullmatch(label)
    if found is None:
        raise UsageError(f"not a profile: {label!r}")
    return profile_for_release(found["release"], found["coordinator"])


def profile_for_release(release: str | Release, coordinator: str | None = None) -> Profile:
    """Profile of a release; ``coordinator`` (``classic`` or ``new``) where that release has both.

    Raises ``UsageError`` for a release that is not in the table, and for a coordinator that the release lacks.
    """
    number = release if isinstance(release, Release) else parse_release(release)
    return TABLE.profile(number, _loader(number, coordinator))


def profiles_of_release(release: str) -> list[Profile]:
    """Profiles of all coordinators of a release, the default first; ``UsageError`` for an unknown release."""
    number = parse_release(release)
    return [TABLE.profile(number, loader) for loader in TABLE.coordinators(number)]


def _loader(release: Release, coordinator: str | None) -> Loader:
    existing = TABLE.coordinators(release)
    if coordinator is None:
        return existing[0]
    if coordinator not in {loader.coordinator for loader in Loader}:
        raise UsageError(f"unknown coordinator {coordinator!r} (classic or new)")
    for loader in existing:
        if loader.coordinator == coordinator:
            return loader
    raise UsageError(f"Kafka {release} has only the {existing[0].coordinator} coordinator")

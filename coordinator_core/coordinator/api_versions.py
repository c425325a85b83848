"""Replies to ApiVersions, by release."""

from __future__ import annotations

from coordinator_core.coordinator.errors import Errors
from coordinator_core.coordinator.replies import ApiKey, ApiVersionsReply, FinalizedFeature, SupportedFeature
from coordinator_core.releases.requests import RequestRules


def api_versions(rules: RequestRules) -> ApiVersionsReply:
    """The answer of the coordinator that has these ``rules``."""
    found = rules.api_versions
    keys = (entry.replace("-", ":").split(":") for entry in found.api_keys.split())
    return ApiVersionsReply(
        Errors.NONE,
        api_keys=tuple(ApiKey(*map(int, key_and_versions)) for key_and_versions in keys),
        supported_features=(SupportedFeature("metadata.version", *found.metadata_versions),),
        finalized_features_epoch=0,
        finalized_features=tuple(FinalizedFeature(name, level, level) for name, level in found.features),
    )

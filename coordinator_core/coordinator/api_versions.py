"""What a release answers to ApiVersions."""

from __future__ import annotations

from typing import Any

from coordinator_core.releases.requests import RequestRules


def api_versions(rules: RequestRules, features_epoch: int = 0) -> dict[str, Any]:
    """The answer of the coordinator that has these ``rules``."""
    found = rules.api_versions
    keys = (entry.split(":") for entry in found.api_keys.split())
    low, high = found.metadata_versions
    return {
        "errorCode": 0,
        "apiKeys": [
            {
                "apiKey": int(key),
                "minVersion": int(versions.split("-")[0]),
                "maxVersion": int(versions.split("-")[1]),
            }
            for key, versions in keys
        ],
        "supportedFeatures": [{"name": "metadata.version", "minVersion": low, "maxVersion": high}],
        "finalizedFeaturesEpoch": features_epoch,
        "finalizedFeatures": [
            {"name": name, "maxVersionLevel": level, "minVersionLevel": level} for name, level in found.features
        ],
    }

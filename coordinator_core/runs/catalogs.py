"""Entry to :mod:`coordinator_core.runs.iceberg`, whose package may be missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from coordinator_core.errors import UsageError

if TYPE_CHECKING:
    from coordinator_core.runs.iceberg import Tables


def open_tables(catalog: str, namespace: str, properties: Mapping[str, str]) -> Tables:
    """``Tables`` of a namespace of a catalogue; :class:`UsageError` where the optional packages are not installed."""
    try:
        from coordinator_core.runs.iceberg import Tables
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyiceberg":
            raise
        raise UsageError("catalogues need pyiceberg: install the extra regroup[iceberg]") from None
    return Tables(catalog, namespace, properties)

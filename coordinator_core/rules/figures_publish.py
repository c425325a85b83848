"""Figures of a run beside its findings, so that its report need not read all committed offsets again.

``figures.json``, and where topics are known the lag in tables: ``lag-partitions.parquet``, ``lag-groups.parquet``,
``lag-topics.parquet``.
"""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coordinator_core import files, storage
from coordinator_core.errors import UsageError
from coordinator_core.rules.figures import DAYS, Changes, Figures
from coordinator_core.rules.lag import Lag

FIGURES_FILE = "figures.json"
_TABLES = ("partitions", "groups", "topics")
_NUMBERS = ("count", "known", "total")


def publish_figures(figures: Figures, directory: str) -> None:
    """Write the figures into ``directory``, that of the findings, unless they are there."""
    target = storage.join(directory, FIGURES_FILE)
    if storage.exists(target):
        return
    lag, changes = figures.lag, figures.changes
    if lag is not None:
        for name in _TABLES:
            buffer = io.BytesIO()
            pq.write_table(getattr(lag, name), buffer, compression="zstd")
            storage.write_atomic(_lag_path(directory, name), buffer.getvalue())
    document = {
        "lag": None if lag is None else {name: getattr(lag, name) for name in _NUMBERS},
        "changes": None if changes is None else {"counts": changes.counts, "groups": list(changes.groups)},
        "ages": figures.ages.tolist(),
    }
    files.write_json(target, document)


def _lag_path(directory: str, table: str) -> str:
    return storage.join(directory, f"lag-{table}.parquet")


def figure_files(directory: str) -> list[str]:
    """Names of the files that :func:`publish_figures` wrote into ``directory``."""
    names = [FIGURES_FILE, *(storage.split(_lag_path(directory, name))[1] for name in _TABLES)]
    return [name for name in names if storage.exists(storage.join(directory, name))]


def read_figures(directory: str) -> Figures | None:
    """What :func:`publish_figures` wrote into ``directory``; ``None`` where there are none.

    Raises :class:`UsageError` when it is nothing of the kind.
    """
    path = storage.join(directory, FIGURES_FILE)
    if not storage.exists(path):
        return None
    try:
        document = files.read_json(path)
        lag, changes = document["lag"], document["changes"]
        if len(document["ages"]) != DAYS:
            raise ValueError(f"ages of {len(document['ages'])} days")
        return Figures(
            None if lag is None else Lag(**{name: _read(directory, name) for name in _TABLES}, **lag),
            None if changes is None else Changes(changes["counts"], changes["groups"]),
            np.array(document["ages"], np.int64),
        )
    except (OSError, KeyError, TypeError, ValueError) as error:
        storage.raise_refused(path, error)
        raise UsageError(f"{path} cannot be read: {type(error).__name__}: {error}") from None


def _read(directory: str, table: str) -> pa.Table:
    system, inner = storage.filesystem(_lag_path(directory, table))
    with system.open_input_file(inner) as source:
        return pq.ParquetFile(source).read()

"""What a manifest must have, so that no reader of it meets anything else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

_INT64 = range(-(1 << 63), 1 << 63)


class _Each:
    """An object whose values are all alike, below any names."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Number(_Each):
    """The same, below names that are numbers."""


_CUT = {"log_start_offset": int, "log_end_offset": int}
_INPUT = {"path": str, "offsets_partition": int, "fingerprint": str, "bytes": int, "base_offset": int}
_DAMAGE = {"path": str, "byte_position": int, "kind": str, "detail": str}
_TABLE = {"rows": int, "files": [str], "hash": str}
_MANIFEST = {
    "cluster": str,
    "window": str,
    "run_id": str,
    "now_ms": int,
    "profile": str,
    "profile_inferred": bool,
    "complete": bool,
    "offsets_topic_num_partitions": int,
    "sources": [str],
    "inputs": [_INPUT],
    "cut": _Number(_CUT),
    "topic_names": _Each(str),
    "damage": [_DAMAGE],
    "tables": _Each(_TABLE),
    "state_hash": str,
}
_TABLES = ("groups", "members", "offsets")
"""Every run has them, whatever version published it."""


def check_manifest(manifest: Any) -> None:
    """``ValueError``, with the place, when ``manifest`` cannot be that of a run."""
    _check(manifest, _MANIFEST, "manifest")
    for name in _TABLES:
        if name not in manifest["tables"]:
            raise ValueError(f"tables: no {name}")
    for name, table in manifest["tables"].items():
        for file in table["files"]:
            path = PurePosixPath(file)
            if path.is_absolute() or ".." in path.parts or ":" in file:
                raise ValueError(f"tables.{name}.files: {file!r} is not in the run")
        proofs = table.get("proofs")
        if proofs is not None:
            _check(proofs, [{"bytes": int, "sha256": str, "footer_sha256": str}], f"tables.{name}.proofs")
            if len(proofs) != len(table["files"]):
                raise ValueError(f"tables.{name}.proofs: not one for each file")


def _check(value: Any, shape: Any, place: str) -> None:
    if isinstance(shape, _Each):
        _require(value, dict, place)
        for name, each in value.items():
            if isinstance(shape, _Number) and not (name.isascii() and name.isdigit() and len(name) <= 10):
                raise ValueError(f"{place}: {name[:20]!r} is no number")
            _check(each, shape.value, f"{place}.{name[:80]}")
    elif isinstance(shape, Mapping):
        _require(value, dict, place)
        for name, wanted in shape.items():
            if name not in value:
                raise ValueError(f"{place}: no {name}")
            _check(value[name], wanted, name if place == "manifest" else f"{place}.{name}")
    elif isinstance(shape, list):
        _require(value, list, place)
        for number, each in enumerate(value):
            _check(each, shape[0], f"{place}[{number}]")
    else:
        _require(value, shape, place)


def _require(value: Any, kind: type, place: str) -> None:
    # True is an int to Python.
    if not isinstance(value, kind) or (kind is int and (isinstance(value, bool) or value not in _INT64)):
        raise ValueError(f"{place}: not {_NAMES[kind]}")


_NAMES = {dict: "an object", list: "a list", str: "text", int: "a 64-bit number", bool: "true or false"}

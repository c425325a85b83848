"""Shape of a manifest, checked once, so that no reader of it meets anything else."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, TypedDict

from coordinator_core.jsontext import from_json
from coordinator_core.log.reader import OnDamage
from coordinator_core.untrusted import is_utf8


class _Cut(TypedDict):
    log_start_offset: int
    log_end_offset: int


class _Input(TypedDict):
    path: str
    offsets_partition: int
    fingerprint: str
    bytes: int
    base_offset: int


class _Damage(TypedDict):
    path: str
    byte_position: int
    kind: str
    detail: str


class _Proof(TypedDict):
    bytes: int
    sha256: str
    footer_sha256: str


class _Table(TypedDict):
    rows: int
    files: list[str]
    hash: str


class _ProvedTable(_Table, total=False):
    proofs: list[_Proof]


class _Always(TypedDict):
    cluster: str
    window: str
    run_id: str
    now_ms: int
    profile: str
    profile_inferred: bool
    complete: bool
    offsets_topic_num_partitions: int
    sources: list[str]
    inputs: list[_Input]
    cut: dict[int, _Cut]
    topic_names: dict[str, str]
    damage: list[_Damage]
    tables: dict[str, _ProvedTable]
    state_hash: str


class _Manifest(_Always, total=False):
    on_damage: OnDamage


_TABLES = ("groups", "members", "offsets")
"""Every run has them, of every version."""


def check_manifest(manifest: Any) -> None:
    """``ValueError``, with the place, when ``manifest`` cannot be that of a run."""
    tables = from_json(_Manifest, manifest)["tables"]
    for name in _TABLES:
        if name not in tables:
            raise ValueError(f"tables: no {name}")
    for name, table in tables.items():
        for file in table["files"]:
            path = PurePosixPath(file)
            if path.is_absolute() or ".." in path.parts or ":" in file or not is_utf8(file):
                raise ValueError(f"tables.{name}.files: {file!r} is not in the run")
        proofs = table.get("proofs")
        if proofs is not None and len(proofs) != len(table["files"]):
            raise ValueError(f"tables.{name}.proofs: not one for each file")

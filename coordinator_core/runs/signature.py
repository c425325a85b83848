"""Signatures of runs: Ed25519 (RFC 8032) over the bytes of the manifest, whose digests stand for all tables.

``manifest.json.sig`` beside the manifest is the 64 bytes as ``openssl pkeyutl -sign -rawin`` makes them. Keys are PEM
files of ``openssl genpkey -algorithm ed25519``.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from coordinator_core import storage
from coordinator_core.errors import Damage, UsageError
from coordinator_core.jsontext import parse_json
from coordinator_core.runs.publish import MANIFEST
from coordinator_core.runs.read import Run

SIGNATURE = f"{MANIFEST}.sig"


def read_private_key(path: str) -> Ed25519PrivateKey:
    """The key in a file, without a passphrase; :class:`UsageError` when that is none."""
    try:
        key = load_pem_private_key(bytes(storage.read(path)), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError(f"{path}: no private key: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{path}: no Ed25519 key")
    return key


def read_public_key(path: str) -> Ed25519PublicKey:
    """The key in a file; :class:`UsageError` when that is none."""
    try:
        key = load_pem_public_key(bytes(storage.read(path)))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UsageError(f"{path}: no public key: {error}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError(f"{path}: no Ed25519 key")
    return key


def sign_run(run_path: str, key: Ed25519PrivateKey) -> None:
    """Write the signature beside the manifest of a run that was just published."""
    manifest = bytes(storage.read(storage.join(run_path, MANIFEST)))
    storage.write_atomic(storage.join(run_path, SIGNATURE), key.sign(manifest))


def check_signature(run: Run, key: Ed25519PublicKey) -> list[Damage]:
    """Damage of the signature of the manifest that ``run`` was opened by: none, or one."""
    path = storage.join(run.path, SIGNATURE)
    if not storage.exists(path):
        return [Damage(path, 0, None, "not_signed", "the run has no signature")]
    manifest = bytes(storage.read(storage.join(run.path, MANIFEST)))
    try:
        key.verify(bytes(storage.read(path)), manifest)
    except InvalidSignature:
        return [Damage(path, 0, None, "bad_signature", "not that of the manifest by this key")]
    if parse_json(manifest) != run.manifest:
        detail = "the manifest changed while the run was verified"
        return [Damage(storage.join(run.path, MANIFEST), 0, None, "file_changed", detail)]
    return []

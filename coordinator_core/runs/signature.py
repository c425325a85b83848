"""Signatures: Ed25519 (RFC 8032) over the bytes of a file whose digests stand for all files beside it.

Of a run that is its manifest; of a report, and of findings, ``SHA256SUMS``, as ``sha256sum -c`` reads it. ``….sig``
beside the file is the 64 bytes as ``openssl pkeyutl -sign -rawin`` makes them. Keys are PEM files of
``openssl genpkey -algorithm ed25519``.
"""

from __future__ import annotations

from collections.abc import Iterable

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from coordinator_core import files, storage
from coordinator_core.errors import Damage, UsageError
from coordinator_core.jsontext import parse_json
from coordinator_core.runs.place import MANIFEST
from coordinator_core.runs.read import Run
from coordinator_core.runs.verify import RunReport

SUMS = "SHA256SUMS"


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
    _sign_file(storage.join(run_path, MANIFEST), key)


def sign_files(directory: str, names: Iterable[str], key: Ed25519PrivateKey) -> None:
    """Write the digests of files of ``directory``, and their signature."""
    lines = [f"{files.sha256(storage.join(directory, name))}  {name}\n" for name in names]
    path = storage.join(directory, SUMS)
    storage.write_atomic(path, "".join(lines).encode())
    _sign_file(path, key)


def check_signature(run: Run, key: Ed25519PublicKey) -> list[Damage]:
    """Damage of the signature of the manifest that ``run`` was opened by: none, or one."""
    path = storage.join(run.path, MANIFEST)
    manifest, wrong = checked_bytes(path, key)
    if not wrong and parse_json(manifest) != run.manifest:
        wrong = [Damage(path, 0, None, "file_changed", "the manifest changed while the run was verified")]
    return wrong


def has_signed_files(directory: str) -> bool:
    """Whether :func:`sign_files` has signed files of ``directory``."""
    return storage.exists(storage.join(directory, SUMS))


def check_files(directory: str, key: Ed25519PublicKey) -> RunReport:
    """Files that :func:`sign_files` has signed, and their damage."""
    sums, damage = checked_bytes(storage.join(directory, SUMS), key)
    signed = []
    for line in sums.decode().splitlines() if not damage else ():
        published, _, name = line.partition("  ")
        signed.append(path := storage.join(directory, name))
        if not storage.exists(path):
            damage.append(Damage(path, 0, None, "changed_since_published", "the file is gone"))
        elif (found := files.sha256(path)) != published:
            detail = f"the SHA-256 of its content is {found}, published was {published}"
            damage.append(Damage(path, 0, None, "changed_since_published", detail))
    return RunReport(tuple(signed), tuple(damage))


def sign_bytes(path: str, data: bytes, key: Ed25519PrivateKey) -> None:
    """Write the signature of what the file at ``path`` has, or will have."""
    storage.write_atomic(f"{path}.sig", key.sign(data))


def _sign_file(path: str, key: Ed25519PrivateKey) -> None:
    sign_bytes(path, bytes(storage.read(path)), key)


def checked_bytes(path: str, key: Ed25519PublicKey) -> tuple[bytes, list[Damage]]:
    """Bytes of a file, and damage of its signature: none, or one."""
    data, signature = bytes(storage.read(path)), f"{path}.sig"
    if not storage.exists(signature):
        return data, [Damage(signature, 0, None, "not_signed", "there is no signature")]
    try:
        key.verify(bytes(storage.read(signature)), data)
    except InvalidSignature:
        return data, [Damage(signature, 0, None, "bad_signature", f"not that of {path} by this key")]
    return data, []

"""TLS as Kafka's client properties describe it: PEM and PKCS12 stores become an ``ssl.SSLContext``."""

from __future__ import annotations

import os
import secrets
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from coordinator_core.errors import UsageError

KEYS = {
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
    "ssl.truststore.certificates",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "ssl.enabled.protocols",
    "ssl.protocol",
}
"""Supported ``ssl.*`` properties; any other is refused, not ignored."""

_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_PROTOCOLS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def ssl_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """The context for ``security.protocol`` SSL and SASL_SSL.

    ``UsageError`` names the property, and never the content of a store. Without a truststore, the authorities that this
    machine trusts are trusted. The broker's name is checked, as Kafka's clients do, unless
    ``ssl.endpoint.identification.algorithm`` is empty.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _limit_versions(context, properties.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3"))
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("", "https"):
        raise UsageError("ssl.endpoint.identification.algorithm: expected https, or nothing to switch it off")
    context.check_hostname = algorithm == "https"
    _trust(context, properties)
    _identify(context, properties)
    return context


def _limit_versions(context: ssl.SSLContext, names: str) -> None:
    asked = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in asked if name not in _PROTOCOLS]
    if unknown or not asked:
        raise UsageError(f"ssl.enabled.protocols: expected {' and '.join(_PROTOCOLS)}, found {names!r}")
    versions = sorted(_PROTOCOLS[name] for name in asked)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]


def _trust(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    inline = properties.get("ssl.truststore.certificates")
    location = properties.get("ssl.truststore.location")
    if inline is not None and location is not None:
        raise UsageError("ssl.truststore.location and ssl.truststore.certificates exclude each other")
    if inline is None and location is None:
        context.load_default_certs()
        return
    if inline is not None:
        pem = inline
    else:
        name = "ssl.truststore.location"
        data = _store(name, str(location))
        if _is_pem(data):
            pem = data.decode("ascii", "replace")
        else:
            password = properties.get("ssl.truststore.password")
            _, certificate, others = _pkcs12(name, str(location), data, password)
            held = [*([certificate] if certificate else []), *others]
            pem = "".join(each.public_bytes(Encoding.PEM).decode() for each in held)
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError, TypeError):
        where = "ssl.truststore.certificates" if inline is not None else f"ssl.truststore.location: {location}"
        raise UsageError(f"{where}: holds no certificate that can be read") from None


def _identify(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    """Our own certificate, when there is a keystore."""
    chain, key = properties.get("ssl.keystore.certificate.chain"), properties.get("ssl.keystore.key")
    location = properties.get("ssl.keystore.location")
    if location is not None and (chain is not None or key is not None):
        other = "ssl.keystore.certificate.chain" if key is None else "ssl.keystore.key"
        raise UsageError(f"ssl.keystore.location and {other} exclude each other")
    if location is not None:
        name = "ssl.keystore.location"
        data = _store(name, location)
        if not _is_pem(data):
            password = properties.get("ssl.keystore.password")
            private, certificate, others = _pkcs12(name, location, data, password)
            if private is None or certificate is None:
                raise UsageError(f"{name}: {location} holds no private key")
            pem = b"".join(each.public_bytes(Encoding.PEM) for each in (certificate, *others))
            _load(context, name, pem, private)
            return
        chain = key = data.decode("ascii", "replace")
    if chain is None and key is None:
        return
    name = "ssl.keystore.key" if location is None else "ssl.keystore.location"
    if chain is None or key is None:
        raise UsageError("ssl.keystore.certificate.chain and ssl.keystore.key belong together")
    password = properties.get("ssl.key.password")
    try:
        private = load_pem_private_key(_key_block(key), password.encode() if password else None)
    except UnsupportedAlgorithm:
        raise UsageError(f"{name}: the private key is of an algorithm or a curve that is not supported") from None
    except (ValueError, TypeError):
        raise UsageError(f"{name}: the private key cannot be read (wrong or missing ssl.key.password?)") from None
    _load(context, name, chain.encode(), private)


def _key_block(pem: str) -> bytes:
    begin = pem.find("-----BEGIN", max(0, pem.find("PRIVATE KEY-----") - 40))
    return pem[max(0, begin) :].encode()


def _load(context: ssl.SSLContext, name: str, chain: bytes, private: object) -> None:
    """OpenSSL takes a chain from files only: they are ours alone, encrypted, and gone when this returns."""
    password = secrets.token_bytes(24).hex().encode()
    key = private.private_bytes(  # type: ignore[attr-defined]
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password)
    )
    with tempfile.TemporaryDirectory(prefix="regroup-tls-") as directory:
        chain_file, key_file = Path(directory, "chain.pem"), Path(directory, "key.pem")
        chain_file.write_bytes(chain)
        key_file.touch(mode=0o600)
        key_file.write_bytes(key)
        try:
            context.load_cert_chain(chain_file, key_file, password)
        except ssl.SSLError:
            raise UsageError(f"{name}: certificate chain and private key do not belong together") from None


def _store(name: str, location: str) -> bytes:
    try:
        data = Path(location).read_bytes()
    except OSError as error:
        raise UsageError(f"{name}: {location}: {error.strerror or error}") from None
    if data.startswith(_JKS):
        target = os.path.splitext(location)[0] + ".p12"
        raise UsageError(
            f"{name}: {location} is a JKS store, which only Java reads. Convert it: keytool -importkeystore "
            f"-srckeystore {location} -destkeystore {target} -deststoretype PKCS12"
        )
    return data


def _is_pem(data: bytes) -> bool:
    return b"-----BEGIN" in data


def _pkcs12(
    name: str, location: str, data: bytes, password: str | None
) -> tuple[object | None, x509.Certificate | None, list[x509.Certificate]]:
    try:
        return pkcs12.load_key_and_certificates(data, password.encode() if password else None)
    except UnsupportedAlgorithm:
        raise UsageError(f"{name}: {location} has an algorithm or a curve that is not supported") from None
    except (ValueError, TypeError):
        store = name.removesuffix(".location")
        raise UsageError(f"{name}: {location} is neither PEM nor a PKCS12 store that {store}.password opens") from None

"""A certificate authority for loopback, made anew by each test session."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

KEY_PASSWORD = "key-pa55word"
STORE_PASSWORD = "store-pa55word"


@dataclass(frozen=True)
class Identity:
    """Files of one certificate: PEM with a plain key, PEM with an encrypted key, PKCS12."""

    pem: Path
    encrypted_pem: Path
    p12: Path


class Authority:
    def __init__(self, directory: Path, name: str = "Regroup test CA") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._signed(name, self._key.public_key(), name, authority=True)
        self.pem = directory / "ca.pem"
        self.pem.write_bytes(self.certificate.public_bytes(Encoding.PEM))
        self.p12 = directory / "ca.p12"
        self.p12.write_bytes(
            pkcs12.serialize_java_truststore(
                [pkcs12.PKCS12Certificate(self.certificate, b"ca")],
                BestAvailableEncryption(STORE_PASSWORD.encode()),
            )
        )

    def identity(self, name: str, address: str | None = None) -> Identity:
        """A certificate with ``name`` as its common name, for ``address`` when it is a server's."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(name, key.public_key(), self._issuer, address=address)
        chain = certificate.public_bytes(Encoding.PEM) + self.certificate.public_bytes(Encoding.PEM)

        def pem(suffix: str, encryption: NoEncryption | BestAvailableEncryption) -> Path:
            path = self._directory / f"{name}{suffix}.pem"
            path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption) + chain)
            return path

        p12 = self._directory / f"{name}.p12"
        p12.write_bytes(
            pkcs12.serialize_key_and_certificates(
                name.encode(),
                key,
                certificate,
                [self.certificate],
                BestAvailableEncryption(STORE_PASSWORD.encode()),
            )
        )
        return Identity(pem("", NoEncryption()), pem("-encrypted", BestAvailableEncryption(KEY_PASSWORD.encode())), p12)

    @property
    def _issuer(self) -> str:
        value = self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        return str(value)

    def _signed(
        self,
        name: str,
        public_key: ec.EllipticCurvePublicKey,
        issuer: str,
        *,
        authority: bool = False,
        address: str | None = None,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)

        def named(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

        builder = (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named(issuer))
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if authority:
            usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
            builder = builder.add_extension(usage, critical=True)
        if address is not None:
            alternative = x509.IPAddress(ipaddress.ip_address(address))
            builder = builder.add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        return builder.sign(self._key, hashes.SHA256())

"""Connection settings: Kafka's client properties, as ``--command-config`` of its own tools takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from coordinator_core.cluster import msk, oauth, tls
from coordinator_core.cluster.jaas import JaasEntry, parse_jaas
from coordinator_core.errors import UsageError
from coordinator_core.properties import parse_properties
from coordinator_core.untrusted import INT32_END, whole_number

CLIENT_ID = "regroup"
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LOGIN_MODULES = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "GSSAPI": "Krb5LoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
    msk.MECHANISM: msk.LOGIN_MODULE,
}
_SASL_KEYS = {
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.kerberos.service.name",
    "sasl.login.callback.handler.class",
    "sasl.client.callback.handler.class",
    oauth.ENDPOINT,
}
_REFUSED = ("ssl.", "sasl.", "config.providers")
"""Begins of properties that are refused unless they are understood."""
_HANDLERS = ("OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler", *msk.HANDLERS)
KEYS = tls.KEYS | _SASL_KEYS | {"security.protocol", "client.id", "request.timeout.ms", "default.api.timeout.ms"}
"""Properties that are understood."""


@dataclass(frozen=True)
class ClientSettings:
    """Connection settings. ``client`` holds kafka-python's options, secrets among them, and is never printed.

    ``api_timeout_seconds`` is how long to go on without any progress (``default.api.timeout.ms``).
    """

    bootstrap_servers: tuple[str, ...]
    security_protocol: str = "PLAINTEXT"
    api_timeout_seconds: float = 60.0
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)


def read_settings(bootstrap_server: str, command_config: str | Path | None = None) -> ClientSettings:
    """Settings from ``--bootstrap-server`` (``host:port,…``) and the file of ``--command-config``.

    Raises ``UsageError`` for a file that cannot be read, and as :func:`client_settings` does.
    """
    if command_config is None:
        return client_settings(bootstrap_server, {})
    try:
        text = Path(command_config).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{command_config}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return client_settings(bootstrap_server, parse_properties(text))


def client_settings(bootstrap_server: str, properties: Mapping[str, str]) -> ClientSettings:
    """Settings from client properties; ``UsageError`` names the property that is missing or not understood.

    Properties that have nothing to do with the connection are ignored, as Kafka's tools do; one of ``ssl.*``
    or ``sasl.*`` that is not understood is refused, and so are ``config.providers``, which fill in other values.
    """
    for key in sorted(properties):
        if key.startswith(_REFUSED) and key not in KEYS:
            raise UsageError(f"{key}: this property is not supported")
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise UsageError(f"security.protocol: expected one of {', '.join(_PROTOCOLS)}, found {protocol!r}")
    options: dict[str, Any] = {
        "client_id": properties.get("client.id") or CLIENT_ID,
        "security_protocol": protocol,
        "request_timeout_ms": _milliseconds(properties, "request.timeout.ms", 30_000),
    }
    if protocol.endswith("SSL"):
        options["ssl_context"] = tls.ssl_context(properties)
    servers = _servers(bootstrap_server)
    if protocol.startswith("SASL"):
        options |= _sasl(properties, servers)
    return ClientSettings(
        bootstrap_servers=servers,
        security_protocol=protocol,
        api_timeout_seconds=_milliseconds(properties, "default.api.timeout.ms", 60_000) / 1000,
        client=options,
    )


def _servers(text: str) -> tuple[str, ...]:
    servers = tuple(part.strip() for part in text.split(",") if part.strip())
    for server in servers:
        host, colon, port = server.rpartition(":")
        if not (colon and host and whole_number(port, 65536)):
            raise UsageError(f"--bootstrap-server: expected host:port, found {server!r}")
    if not servers:
        raise UsageError("--bootstrap-server: names no broker")
    return servers


def _sasl(properties: Mapping[str, str], servers: Sequence[str]) -> dict[str, Any]:
    mechanism = properties.get("sasl.mechanism", "GSSAPI").strip().upper()
    if mechanism not in _LOGIN_MODULES:
        raise UsageError(f"sasl.mechanism: expected one of {', '.join(_LOGIN_MODULES)}, found {mechanism!r}")
    handlers = set()
    for key in ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class"):
        if key in properties:
            handler = properties[key].rpartition(".")[2]
            if handler not in _HANDLERS:
                raise UsageError(f"{key}: handlers are Java; only Kafka's own and those of Amazon MSK are known here")
            handlers.add(handler)
    text = properties.get("sasl.jaas.config")
    if text is None:
        raise UsageError(f"sasl.jaas.config: missing, and {mechanism} needs it")
    entry = parse_jaas(text)
    expected = _LOGIN_MODULES[mechanism]
    if entry.module != expected:
        raise UsageError(f"sasl.jaas.config: {mechanism} needs {expected}, found {entry.module}")
    if mechanism == msk.MECHANISM or handlers & set(msk.HANDLERS):
        provider = msk.token_provider(servers, entry.options)
        return {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": provider}
    return {"sasl_mechanism": mechanism, **_login(mechanism, entry, properties)}


def _login(mechanism: str, entry: JaasEntry, properties: Mapping[str, str]) -> dict[str, Any]:
    if mechanism == "GSSAPI":
        return _kerberos(entry, properties)
    if mechanism == "OAUTHBEARER":
        return {"sasl_oauth_token_provider": oauth.token_provider(properties, entry.options)}
    if entry.options.get("tokenauth", "").lower() == "true":
        raise UsageError("sasl.jaas.config: delegation tokens (tokenauth) are not supported")
    for name in ("username", "password"):
        if name not in entry.options:
            raise UsageError(f"sasl.jaas.config: {name} is missing")
    return {"sasl_plain_username": entry.options["username"], "sasl_plain_password": entry.options["password"]}


def _kerberos(entry: JaasEntry, properties: Mapping[str, str]) -> dict[str, Any]:
    """Tickets come from the credential cache (``kinit``) or from the keytab of the environment."""
    if entry.options.get("useKeyTab", "").lower() == "true":
        raise UsageError(
            "sasl.jaas.config: a keytab is for Java's login; set KRB5_CLIENT_KTNAME to it, or use kinit -kt"
        )
    if find_spec("gssapi") is None:
        raise UsageError("sasl.mechanism: GSSAPI needs the Python package gssapi, which is not installed")
    service = properties.get("sasl.kerberos.service.name") or entry.options.get("serviceName")
    return {"sasl_kerberos_service_name": service or "kafka"}


def _milliseconds(properties: Mapping[str, str], key: str, default: int) -> int:
    value = properties.get(key)
    if value is None:
        return default
    # Kafka's settings of this kind are int32.
    number = whole_number(value.strip(), INT32_END)
    if not number:
        raise UsageError(f"{key}: expected milliseconds, found {value!r}")
    return number

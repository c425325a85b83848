"""A live cluster as a source: ``kafka://<Airflow connection>`` is captured, and its snapshot pinned."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException

log = logging.getLogger(__name__)

SCHEME = "kafka://"
_LOGINS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
    "GSSAPI": "com.sun.security.auth.module.Krb5LoginModule",
    "AWS_MSK_IAM": "software.amazon.msk.auth.iam.IAMLoginModule",
}
"""Login modules that need no more than a connection of librdkafka says."""

_LIBRDKAFKA = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
"""Properties of librdkafka (its CONFIGURATION.md), and their names in Kafka's Java clients."""

_FILES = {
    "ssl.ca.location": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}
"""Properties that name PEM files, each with the property that has the content of such a file."""

_LOGIN_OPTIONS = {
    "sasl.username": "username",
    "sasl.password": "password",
    "sasl.oauthbearer.client.id": "clientId",
    "sasl.oauthbearer.client.secret": "clientSecret",
    "sasl.oauthbearer.scope": "scope",
}
"""Properties of librdkafka that are options of the JAAS line of Kafka's Java clients."""

_MSK_HANDLER = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
_SECRETS = re.compile(r"password|secret|jaas|[.]key$|key[.]pem$")
"""In names of properties: Airflow must not log the values."""

_OPTIONS = ("directory", "replica", "byte_rate")


def captured(source: str, default_directory: str) -> str:
    """Bring the snapshot of a ``kafka://`` source up to now; any other source is returned as it is.

    The snapshot is kept in ``directory`` of the source's query, or in ``default_directory``, under the name
    of the connection, so that the next run fetches only new batches. Secrets come from the connection alone and go
    nowhere else.
    """
    if not source.startswith(SCHEME):
        return source
    connection_id, directory, options = _parsed(source, default_directory)

    from coordinator_core import storage
    from coordinator_core.cluster.capture import CaptureOptions, capture
    from coordinator_core.cluster.client import Client
    from coordinator_core.cluster.settings import client_settings

    server, properties = connection_properties(connection_id)
    path = storage.join(directory, connection_id)
    log.info("capturing %s into %s", connection_id, path)
    with Client(client_settings(server, properties)) as client:
        manifest = capture(client, path, CaptureOptions(**options))
    for topic in manifest["topics"]:
        rows = topic["partitions"]
        fetched, kept = (sum(row[name] for row in rows) for name in ("fetched_bytes", "kept_bytes"))
        log.info("%s: %d partitions, %d bytes fetched, %d kept", topic["topic"], len(rows), fetched, kept)
        for row in rows:
            for gone in row["vanished"]:
                log.warning(
                    "%s-%d: offsets %d to %d vanished: %s",
                    *(topic["topic"], row["partition"], gone["first"], gone["end"] - 1, gone["why"]),
                )
    return path


def _parsed(source: str, default_directory: str) -> tuple[str, str, dict[str, Any]]:
    parts = urlsplit(source)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(query) - set(_OPTIONS))
    if not parts.netloc or parts.path.strip("/") or "@" in parts.netloc or unknown:
        problem = f"unknown {unknown[0]}" if unknown else "expected kafka://<connection id>"
        raise AirflowFailException(f"source {SCHEME}…: {problem}; options are {', '.join(_OPTIONS)}")
    directory = query.pop("directory", default_directory)
    from coordinator_core.untrusted import whole_number

    numbers = {name: whole_number(value) for name, value in query.items()}
    for name, number in numbers.items():
        least = 1 if name == "byte_rate" else 0
        if number is None or number < least:
            raise AirflowFailException(f"source {source}: {name} is a whole number, at least {least}")
    return parts.netloc, directory, numbers


def connection_properties(connection_id: str) -> tuple[str, dict[str, str]]:
    """Bootstrap servers and client properties of an Airflow connection.

    Its extra holds Kafka client properties by name, or those of librdkafka, as connections of the provider
    apache-kafka have them; host and port, or ``bootstrap.servers``, the brokers; login and password (or
    ``sasl.username`` and ``sasl.password``) stand for the JAAS line of PLAIN and SCRAM. OAUTHBEARER at a broker of
    Amazon MSK is its IAM authentication, as for the provider.
    """
    from airflow.sdk import Connection
    from airflow.sdk.log import mask_secret

    from coordinator_core.cluster import msk, oauth, settings

    try:
        connection = Connection.get(connection_id)
    except AirflowNotFoundException:
        raise AirflowFailException(
            f"Airflow has no connection {connection_id}, which the cluster file or the form names"
        ) from None
    properties = {str(key): _text(value) for key, value in connection.extra_dejson.items()}
    for name, value in properties.items():
        if _SECRETS.search(name):
            mask_secret(value)
    servers = properties.pop("bootstrap.servers", "")
    if not servers and connection.host:
        servers = connection.host if connection.port is None else f"{connection.host}:{connection.port}"
    if not servers:
        raise AirflowFailException(f"connection {connection_id}: names no host, and no bootstrap.servers")
    if connection.login and "sasl.username" not in properties:
        properties |= {"sasl.username": connection.login, "sasl.password": connection.password or ""}
    properties = _of_kafka(connection_id, properties)
    options = {to: properties.pop(name) for name, to in _LOGIN_OPTIONS.items() if name in properties}
    mechanism = properties.get("sasl.mechanism", "").upper()
    if "sasl.jaas.config" not in properties and mechanism in _LOGINS:
        quoted = "".join(f' {name}="{_escaped(value)}"' for name, value in options.items())
        properties["sasl.jaas.config"] = f"{_LOGINS[mechanism]} required{quoted};"
        if mechanism == "OAUTHBEARER" and oauth.ENDPOINT not in properties and msk.region_of(servers.split(",")):
            properties["sasl.login.callback.handler.class"] = _MSK_HANDLER
    unknown = sorted(set(properties) - settings.KEYS)
    if refused := [name for name in unknown if name.startswith(("ssl.", "sasl."))]:
        raise AirflowFailException(f"connection {connection_id}: not supported: {', '.join(refused)}")
    if unknown:
        log.info("connection %s: of no use here: %s", connection_id, ", ".join(unknown))
    return servers, {name: value for name, value in properties.items() if name not in unknown}


def _of_kafka(connection_id: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Properties of librdkafka by the names that Kafka's own clients have for them; the others unchanged."""
    if properties.get("enable.ssl.certificate.verification", "true").strip().lower() not in ("true", "1"):
        raise AirflowFailException(
            f"connection {connection_id}: enable.ssl.certificate.verification: certificates are always verified; "
            "name the authority in ssl.ca.location"
        )
    found = {_LIBRDKAFKA.get(key, key): value for key, value in properties.items()}
    # It is told by the endpoint.
    found.pop("sasl.oauthbearer.method", None)
    for name in _FILES:
        if name in found:
            try:
                found[_FILES[name]] = Path(found.pop(name)).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise AirflowFailException(f"connection {connection_id}: {name}: cannot be read: {error}") from None
    if found.get("ssl.endpoint.identification.algorithm") == "none":
        found["ssl.endpoint.identification.algorithm"] = ""
    return found


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')

"""Airflow connections of Kafka clusters: with the properties of Kafka's clients, and with those of librdkafka."""

from __future__ import annotations

import json
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from coordinator_core.cluster.jaas import parse_jaas
from coordinator_core.cluster.oauth import ENDPOINT
from coordinator_core.cluster.settings import client_settings
from dags.common.capture import captured, connection_properties
from tests.cluster.certificates import KEY_PASSWORD, Authority


def told(monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any], **connection: Any) -> tuple[str, dict[str, str]]:
    monkeypatch.setenv("AIRFLOW_CONN_K", json.dumps({"conn_type": "kafka", **connection, "extra": extra}))
    return connection_properties("k")


LIBRDKAFKA = {
    "bootstrap.servers": "b1:9092,b2:9092",
    "group.id": "airflow",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanisms": "SCRAM-SHA-512",
    "sasl.username": "regroup",
    "sasl.password": 'p"w\\d',
}
"""Connections as the provider's documentation has them, in ``extra`` alone."""


def test_a_connection_of_the_kafka_provider_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    servers, properties = told(monkeypatch, LIBRDKAFKA)
    settings = client_settings(servers, properties)
    assert settings.bootstrap_servers == ("b1:9092", "b2:9092")
    assert settings.client["sasl_mechanism"] == "SCRAM-SHA-512"
    assert settings.client["sasl_plain_username"] == "regroup"
    assert settings.client["sasl_plain_password"] == 'p"w\\d'


def test_it_says_the_same_as_one_with_the_properties_of_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    of_provider = told(monkeypatch, LIBRDKAFKA)
    extra = {"group.id": "airflow", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}
    login = {"login": "regroup", "password": LIBRDKAFKA["sasl.password"]}
    assert told(monkeypatch, extra, host="b1:9092,b2:9092", **login) == of_provider


def test_an_endpoint_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    _, properties = told(
        monkeypatch,
        {
            "bootstrap.servers": "b:1",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": 's"ecret',
            "sasl.oauthbearer.scope": "kafka",
            ENDPOINT: "https://login/token",
        },
    )
    assert properties[ENDPOINT] == "https://login/token"
    entry = parse_jaas(properties["sasl.jaas.config"])
    assert entry.options == {"clientId": "me", "clientSecret": 's"ecret', "scope": "kafka"}
    assert client_settings("b:1", properties).client["sasl_mechanism"] == "OAUTHBEARER"


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "AWS_MSK_IAM"])
def test_brokers_of_amazon_msk_are_logged_in_to_by_iam(monkeypatch: pytest.MonkeyPatch, mechanism: str) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    brokers = "boot-x.c1.kafka-serverless.us-east-1.amazonaws.com:9098"
    extra = {"bootstrap.servers": brokers, "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism}
    client = client_settings(*told(monkeypatch, extra)).client
    assert client["sasl_mechanism"] == "OAUTHBEARER"
    assert client["sasl_oauth_token_provider"].token()


def test_what_is_not_understood_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        _, properties = told(monkeypatch, LIBRDKAFKA | {"error_cb": "my.hidden", "debug": "all"})
    assert caplog.messages == ["connection k: of no use here: debug, error_cb, group.id"]
    assert set(properties) == {"security.protocol", "sasl.mechanism", "sasl.jaas.config"}
    wrong = {"ssl.crl.location": "/hidden", "sasl.kerberos.keytab": "hidden"}
    with pytest.raises(AirflowFailException) as caught:
        told(monkeypatch, LIBRDKAFKA | wrong)
    assert str(caught.value) == "connection k: not supported: sasl.kerberos.keytab, ssl.crl.location"


def test_secrets_of_a_connection_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Airflow's own the names are passwords and the like; a JAAS line and a key are secrets, too."""
    masked: list[Any] = []
    monkeypatch.setattr("airflow.sdk.log.mask_secret", masked.append)
    secrets = {"sasl.password": "one", "ssl.key.pem": "two", "sasl.jaas.config": "three"}
    told(monkeypatch, LIBRDKAFKA | secrets)
    assert {each for each in masked if isinstance(each, str)} == {"one", "two", "three"}


def test_certificates_are_files_of_the_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    client = authority.identity("regroup")
    extra = {
        "bootstrap.servers": "b:9093",
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.pem),
        "ssl.certificate.location": str(client.pem),
        "ssl.key.location": str(client.encrypted_pem),
        "ssl.key.password": KEY_PASSWORD,
    }
    settings = client_settings(*told(monkeypatch, extra))
    context = settings.client["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert len(context.get_ca_certs()) == 1


def test_a_file_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AirflowFailException, match=r"connection k: ssl\.ca\.location: cannot be read"):
        told(monkeypatch, {"bootstrap.servers": "b:1", "ssl.ca.location": "/nowhere.pem"})


def test_a_connection_that_airflow_does_not_have_is_named() -> None:
    with pytest.raises(AirflowFailException, match=r"^Airflow has no connection not_there, "):
        connection_properties("not_there")


def test_certificates_are_verified_whatever_a_connection_says(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AirflowFailException, match="certificates are always verified"):
        told(monkeypatch, {"bootstrap.servers": "b:1", "enable.ssl.certificate.verification": False})


@pytest.mark.parametrize("option", ["byte_rate=0", "byte_rate=fast", "replica=-1"])
def test_options_of_a_source_are_whole_numbers(option: str) -> None:
    """A rate of 0 was divided by."""
    with pytest.raises(AirflowFailException, match=f"{option.partition('=')[0]} is a whole number"):
        captured(f"kafka://k?{option}", "captures")

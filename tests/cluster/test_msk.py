"""Tokens of Amazon MSK's IAM authentication, of which the signature is computed again here."""

from __future__ import annotations

import base64
import hashlib
import hmac
import urllib.parse
from typing import Any

import pytest

from coordinator_core.cluster.errors import LoginError
from coordinator_core.cluster.settings import client_settings
from coordinator_core.errors import UsageError

BROKERS = "b-1.blue.abc.c2.kafka.eu-central-1.amazonaws.com:9098,b-2.blue.abc.c2.kafka.eu-central-1.amazonaws.com:9098"
SECRET = "wJalrXUtnFEMI/K7MDENG"
OF_JAVA = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}
OF_OAUTH = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
    "sasl.login.callback.handler.class": "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
}


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Nothing of the machine's own AWS settings."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@pytest.fixture
def somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


def signed(token: str) -> tuple[str, dict[str, str]]:
    """Host and query of the signed address that a token is."""
    address = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    parts = urllib.parse.urlsplit(address)
    return parts.netloc, dict(urllib.parse.parse_qsl(parts.query))


def signature(host: str, query: dict[str, str]) -> str:
    """The signature by AWS's Signature Version 4, for a query string."""
    covered = {key: value for key, value in query.items() if key not in ("X-Amz-Signature", "User-Agent")}
    canonical = "&".join(
        f"{urllib.parse.quote(key, safe='-_.~')}={urllib.parse.quote(covered[key], safe='-_.~')}"
        for key in sorted(covered)
    )
    request = "\n".join(["GET", "/", canonical, f"host:{host}\n", "host", hashlib.sha256(b"").hexdigest()])
    scope = query["X-Amz-Credential"].partition("/")[2]
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", query["X-Amz-Date"], scope, digest])
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, text.encode(), "sha256").hexdigest()


@pytest.mark.usefixtures("somebody")
@pytest.mark.parametrize("properties", [OF_JAVA, OF_OAUTH], ids=["AWS_MSK_IAM", "OAUTHBEARER"])
def test_a_token_is_signed_for_the_region_of_the_brokers(properties: dict[str, str]) -> None:
    client = client_settings(BROKERS, properties).client
    assert client["sasl_mechanism"] == "OAUTHBEARER"
    provider = client["sasl_oauth_token_provider"]
    token = provider.token()
    host, query = signed(token)
    assert host == "kafka.eu-central-1.amazonaws.com"
    assert query["Action"] == "kafka-cluster:Connect"
    assert query["X-Amz-Credential"].startswith("AKIDEXAMPLE/")
    assert query["X-Amz-Credential"].endswith("/eu-central-1/kafka-cluster/aws4_request")
    assert query["X-Amz-Signature"] == signature(host, query)
    assert provider.token() == token, "it is used until most of its life is over"


@pytest.mark.usefixtures("somebody")
def test_brokers_of_another_name_need_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="set AWS_REGION"):
        client_settings("broker.internal:9098", OF_JAVA)
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    host, _ = signed(client_settings("broker.internal:9098", OF_JAVA).client["sasl_oauth_token_provider"].token())
    assert host == "kafka.ap-south-1.amazonaws.com"


def test_a_profile_may_be_named(tmp_path: Any) -> None:
    (tmp_path / "credentials").write_text(f"[blue]\naws_access_key_id=AKIDBLUE\naws_secret_access_key={SECRET}\n")
    jaas = OF_JAVA["sasl.jaas.config"].replace(";", ' awsProfileName="blue";')
    provider = client_settings(BROKERS, OF_JAVA | {"sasl.jaas.config": jaas}).client["sasl_oauth_token_provider"]
    host, query = signed(provider.token())
    assert query["X-Amz-Credential"].startswith("AKIDBLUE/")
    assert query["X-Amz-Signature"] == signature(host, query)


@pytest.mark.parametrize("option", ["", ' awsProfileName="red"'])
def test_without_credentials_that_is_said(option: str) -> None:
    jaas = OF_JAVA["sasl.jaas.config"].replace(";", f"{option};")
    provider = client_settings(BROKERS, OF_JAVA | {"sasl.jaas.config": jaas}).client["sasl_oauth_token_provider"]
    with pytest.raises(LoginError, match=r"MSK IAM: no (AWS credentials|token: .*red)"):
        provider.token()

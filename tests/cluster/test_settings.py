"""Client properties in Kafka's notations, and what is said of those that cannot be used."""

from __future__ import annotations

import base64
import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import kafka.errors
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from coordinator_core.cluster.client import Client
from coordinator_core.cluster.errors import ClusterError, LoginError
from coordinator_core.cluster.jaas import parse_jaas
from coordinator_core.cluster.oauth import ENDPOINT
from coordinator_core.cluster.settings import client_settings, read_settings
from coordinator_core.errors import UsageError
from coordinator_core.properties import parse_properties, properties_text

SERVER = "127.0.0.1:9092"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hidden";'
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a: b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("# a=b\n! c=d\n\n  e=f", {"e": "f"}),
        ("a=one, \\\n   two", {"a": "one, two"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        (r"a\ b=c\=d", {"a b": "c=d"}),
        (r"a=\u00e4\t\"", {"a": 'ä\t"'}),
        ("a", {"a": ""}),
        ("a=1\r\na=2", {"a": "2"}),
        ("a=b\\", {"a": "b"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_properties_that_are_written_are_read_back() -> None:
    given = {"a b=c": " \\d: e\n#f\r\t\f", "!": "", "sasl.jaas.config": PLAIN, "ü": "\\u00e4\\"}
    text = properties_text(given)
    assert parse_properties(text) == given
    assert text.count("\n") == len(given)


def test_jaas_entries() -> None:
    entry = parse_jaas(r"""  a.b.ScramLoginModule required username="u \"x\"" password='p;=' tokenauth=true ; """)
    assert entry.module == "ScramLoginModule"
    assert entry.options == {"username": 'u "x"', "password": "p;=", "tokenauth": "true"}
    assert "p;=" not in repr(entry)


@pytest.mark.parametrize("text", ["", "a.B", 'a.B required x="1"', "a.B required x;", 'a.B sometimes x="1";'])
def test_other_jaas_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(UsageError, match=r"sasl\.jaas\.config"):
        parse_jaas(text)


@pytest.mark.parametrize(
    "properties, complaint",
    [
        ({"security.protocol": "TLS"}, "security.protocol: expected one of"),
        ({"ssl.cipher.suites": "x"}, "ssl.cipher.suites: this property is not supported"),
        ({"sasl.login.class": "x"}, "sasl.login.class: this property"),
        ({"config.providers": "file"}, "config.providers: this property is not supported"),
        *(
            (
                {"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM", key: "my.own.Handler"},
                f"{key}: handlers are Java; only Kafka's own and those of Amazon MSK",
            )
            for key in ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class")
        ),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "MAGIC"}, "sasl.mechanism: expected one of"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config: missing"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": PLAIN},
            "SCRAM-SHA-512 needs ScramLoginModule, found PlainLoginModule",
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": PLAIN.replace("username", "user"),
            },
            "username is missing",
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "GSSAPI",
                "sasl.jaas.config": f"{KERBEROS} required useKeyTab=true;",
            },
            "KRB5_CLIENT_KTNAME",
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "GSSAPI",
                "sasl.jaas.config": f"{KERBEROS} required useTicketCache=true;",
            },
            "needs the Python package gssapi",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": f"{OAUTH} x=1;",
            },
            "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url",
        ),
        ({"security.protocol": "SSL", "ssl.enabled.protocols": "SSLv3"}, "ssl.enabled.protocols: expected"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/no/such/file"}, "No such file"),
        # Kafka's clients refuse each, too (DefaultSslEngineFactory of 3.9.2 and 4.3.1, whatever the type of the store).
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "f", "ssl.truststore.certificates": "c"},
            "ssl.truststore.location and ssl.truststore.certificates exclude each other",
        ),
        (
            {"security.protocol": "SSL", "ssl.keystore.location": "f", "ssl.keystore.key": "k"},
            "ssl.keystore.location and ssl.keystore.key exclude each other",
        ),
        (
            {"security.protocol": "SSL", "ssl.keystore.location": "f", "ssl.keystore.certificate.chain": "c"},
            "ssl.keystore.location and ssl.keystore.certificate.chain exclude each other",
        ),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldap"}, "expected https"),
        ({"default.api.timeout.ms": "soon"}, "default.api.timeout.ms: expected milliseconds"),
    ],
)
def test_what_cannot_be_used_is_named(properties: dict[str, str], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        client_settings(SERVER, properties)
    assert complaint in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("server", ["", "localhost", "localhost:", "localhost:0", "localhost:x", ":9092"])
def test_bootstrap_servers_are_host_and_port(server: str) -> None:
    with pytest.raises(UsageError, match="--bootstrap-server"):
        client_settings(server, {})


def test_a_jks_store_is_refused_with_the_way_to_convert_it(tmp_path: Path) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    with pytest.raises(UsageError, match=r"keytool -importkeystore .*trust\.p12 -deststoretype PKCS12"):
        client_settings(SERVER, {"security.protocol": "SSL", "ssl.truststore.location": str(store)})


def test_a_key_on_an_unknown_curve_is_refused(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    der = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    prime256v1, prime239v3 = bytes.fromhex("2a8648ce3d030107"), bytes.fromhex("2a8648ce3d030106")
    text = base64.encodebytes(der.replace(prime256v1, prime239v3)).decode()
    store = tmp_path / "key.pem"
    store.write_text(f"-----BEGIN PRIVATE KEY-----\n{text}-----END PRIVATE KEY-----\n")
    with pytest.raises(UsageError, match=r"ssl\.keystore\.location: the private key is of an algorithm or a curve"):
        client_settings(SERVER, {"security.protocol": "SSL", "ssl.keystore.location": str(store)})


def test_settings_do_not_show_secrets(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN}\ngroup.id=x\n")
    settings = read_settings(SERVER, config)
    assert settings.client["sasl_plain_password"] == "hidden"
    assert "hidden" not in repr(settings)


class _Endpoint(http.server.BaseHTTPRequestHandler):
    asked: ClassVar[list[tuple[str, dict[str, list[str]]]]] = []
    status = 200
    location: ClassVar[str | None] = None

    def do_GET(self) -> None:
        self.asked.append((self.headers["Authorization"], {}))
        self.send_error(404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.asked.append((self.headers["Authorization"], urllib.parse.parse_qs(body)))
        answer = json.dumps({"access_token": f"token-{len(self.asked)}", "expires_in": 3600}).encode()
        self.send_response(self.status)
        if self.location is not None:
            self.send_header("Location", self.location)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    _Endpoint.asked.clear()
    _Endpoint.status, _Endpoint.location = 200, None
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/token"
    server.shutdown()
    server.server_close()


def oauth(endpoint: str) -> dict[str, str]:
    jaas = f'{OAUTH} clientId="me:1" clientSecret="hidden" scope="kafka";'
    protocol = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    return {**protocol, "sasl.jaas.config": jaas, ENDPOINT: endpoint}


def test_tokens_of_an_endpoint_are_asked_for_once_and_kept(endpoint: str) -> None:
    provider = client_settings(SERVER, oauth(endpoint)).client["sasl_oauth_token_provider"]
    assert [provider.token(), provider.token()] == ["token-1", "token-1"]
    ((authorization, form),) = _Endpoint.asked
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"me%3A1:hidden"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}


def test_an_endpoint_that_refuses_is_named_without_the_secret(endpoint: str) -> None:
    _Endpoint.status = 401
    provider = client_settings(SERVER, oauth(endpoint)).client["sasl_oauth_token_provider"]
    with pytest.raises(LoginError, match="answers 401") as caught:
        provider.token()
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed_with_the_secret(endpoint: str, status: int) -> None:
    _Endpoint.status, _Endpoint.location = status, endpoint.replace("/token", "/elsewhere")
    provider = client_settings(SERVER, oauth(endpoint)).client["sasl_oauth_token_provider"]
    with pytest.raises(LoginError, match=f"answers {status}.* no redirect is followed") as caught:
        provider.token()
    assert len(_Endpoint.asked) == 1
    assert "hidden" not in str(caught.value)


def test_tokens_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-a-file\n")
    properties = oauth(f"file://{tmp_path}/token") | {"sasl.jaas.config": f"{OAUTH};"}
    assert client_settings(SERVER, properties).client["sasl_oauth_token_provider"].token() == "from-a-file"


def test_the_reason_of_a_broker_that_is_not_tried_again_yet_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [ConnectionRefusedError("[Errno 111] refused"), kafka.errors.NodeNotReadyError("bootstrap-0")]

    async def first_contact(self: Client, node_id: Any) -> None:
        raise errors.pop(0) if len(errors) > 1 else errors[0]

    monkeypatch.setattr(Client, "_first_contact", first_contact)
    with pytest.raises(ClusterError, match=r"^no bootstrap server can be used: 127\.0\.0\.1:1: \[Errno 111\] refused"):
        Client(client_settings("127.0.0.1:1", {"default.api.timeout.ms": "500"}))
    assert len(errors) == 1

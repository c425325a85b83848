"""A 4.3.1 broker with an authorizer, TLS and SASL: who may capture, and what the others are told."""

from __future__ import annotations

import logging
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import pytest
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from coordinator_core.cluster.errors import ClusterError, LoginError, MissingAclError
from coordinator_core.errors import ExitCode, UsageError
from coordinator_core.log.discovery import discover
from coordinator_core.releases import profile_for_release
from tests.cluster.certificates import KEY_PASSWORD, STORE_PASSWORD, Authority, Identity
from tests.cluster.kit import Commits, SecuredBroker, assert_as_on_disk, capture_from, log_bytes
from tests.cluster.test_one_broker import regroup
from tests.drill.kit import events
from tests.live.broker import Kafka, wait_for
from tests.live.scenario import ROOT

PASSWORD = "s3cret-of-the-capture"
WRONG = "not-the-s3cret"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
UNSECURED = f'{OAUTH} required unsecuredLoginStringClaim_sub="capture";'


@dataclass(frozen=True)
class Place:
    broker: SecuredBroker
    commits: Commits
    authority: Authority
    client: Identity

    def sasl(self, mechanism: str, jaas: str, **others: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": jaas,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.pem),
            **others,
        }

    def plain(self, user: str = "capture", password: str = PASSWORD) -> dict[str, str]:
        return self.sasl("PLAIN", f'{PLAIN} required username="{user}" password="{password}";')

    def allow(self, *permissions: tuple[str, str, str], user: str = "capture") -> None:
        created = self.commits.admin.create_acls([_acl(user, *permission) for permission in permissions])
        assert not created["failed"], created
        self._wait([_acl(user, *permission) for permission in permissions], there=True)

    def forbid(self, *permissions: tuple[str, str, str], user: str = "capture") -> None:
        self.commits.admin.delete_acls([_acl(user, *permission) for permission in permissions])
        self._wait([_acl(user, *permission) for permission in permissions], there=False)

    def _wait(self, acls: list[ACL], *, there: bool) -> None:
        """The controller knows of a change before the broker's authorizer does."""
        for acl in acls:
            wait_for("the authorizer", lambda acl=acl: bool(self.commits.admin.describe_acls(acl)[0]) == there)


def _acl(user: str, operation: str, kind: str, name: str) -> ACL:
    return ACL(
        principal=f"User:{user}",
        host="*",
        operation=ACLOperation[operation],
        permission_type=ACLPermissionType.ALLOW,
        resource_pattern=ResourcePattern(ResourceType[kind], name.removesuffix("*") or "*", _pattern(name)),
    )


def _pattern(name: str) -> ACLResourcePatternType:
    is_prefix = name.endswith("*") and name != "*"
    return ACLResourcePatternType.PREFIXED if is_prefix else ACLResourcePatternType.LITERAL


@pytest.fixture(scope="module")
def place(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("secured")
    authority = Authority(directory / "certificates")
    server = authority.identity("broker", "127.0.0.1")
    settings = {
        "offsets.topic.num.partitions": "2",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Who comes without credentials is the test itself, or the broker.
        "super.users": "User:ANONYMOUS",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server.pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.pem),
        "listener.name.tls.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.secure.plain.sasl.jaas.config": f'{PLAIN} required user_capture="{PASSWORD}" '
        f'user_other="{PASSWORD}";',
        "listener.name.secure.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
        "listener.name.secure.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
        "listener.name.secure.oauthbearer.sasl.jaas.config": UNSECURED,
    }
    listeners = {"SECURE": "SASL_SSL", "TLS": "SSL"}
    broker = SecuredBroker(kafka, directory / "broker", listeners, settings)
    broker.start()
    commits = Commits(broker.bootstrap)
    try:
        commits.create_topic()
        commits.commit(12)
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            wanted = UserScramCredentialUpsertion("capture", mechanism, PASSWORD.encode())
            altered = commits.admin.alter_user_scram_credentials([wanted])
            assert altered == {"capture": None}
        found = Place(broker, commits, authority, authority.identity("capture-client"))
        found.allow(*ACLS)
        found.allow(*ACLS, user="CN=capture-client")
        yield found
    finally:
        commits.close()
        broker.kill()


ACLS = [("READ", "TOPIC", "__consumer_offsets")]
CHECK_ACLS = [("DESCRIBE", "GROUP", "*"), ("DESCRIBE", "TOPIC", "*")]
"""Permissions that docs/capture.md lists, without and with --check-groups."""


def logins(place: Place) -> dict[str, tuple[str, dict[str, str]]]:
    """Ways into the cluster: listener and properties."""
    scram = f'{SCRAM} required username="capture" password="{PASSWORD}";'
    store = {
        "ssl.truststore.location": str(place.authority.pem),
        "ssl.endpoint.identification.algorithm": "https",
    }
    tls = {"security.protocol": "SSL", **store}
    pem = place.client.pem.read_text()
    at = pem.index("-----BEGIN CERTIFICATE")
    inline = {"ssl.keystore.key": pem[:at], "ssl.keystore.certificate.chain": pem[at:]}
    trusted = {"ssl.truststore.certificates": place.authority.pem.read_text()}
    return {
        "plain": ("SECURE", place.plain()),
        "scram-256": ("SECURE", place.sasl("SCRAM-SHA-256", scram)),
        "scram-512": ("SECURE", place.sasl("SCRAM-SHA-512", scram)),
        "oauthbearer": ("SECURE", place.sasl("OAUTHBEARER", UNSECURED)),
        "pem": ("TLS", {**tls, "ssl.keystore.location": str(place.client.pem)}),
        "encrypted-pem": (
            "TLS",
            {
                **tls,
                "ssl.keystore.location": str(place.client.encrypted_pem),
                "ssl.key.password": KEY_PASSWORD,
            },
        ),
        "pkcs12": (
            "TLS",
            {
                "security.protocol": "SSL",
                "ssl.keystore.location": str(place.client.p12),
                "ssl.keystore.password": STORE_PASSWORD,
                "ssl.truststore.location": str(place.authority.p12),
                "ssl.truststore.password": STORE_PASSWORD,
            },
        ),
        "inline": ("TLS", {"security.protocol": "SSL", **trusted, **inline}),
    }


LOGINS = ("plain", "scram-256", "scram-512", "oauthbearer", "pem", "encrypted-pem", "pkcs12", "inline")


@pytest.mark.parametrize("login", LOGINS)
def test_a_capture_over_tls_and_sasl(place: Place, tmp_path: Path, login: str) -> None:
    listener, properties = logins(place)[login]
    manifest = capture_from(place.broker.server(listener), tmp_path / "capture", properties)
    disks = log_bytes(place.broker.log_dir)
    assert sum(map(len, disks.values())) > 50_000
    assert_as_on_disk(manifest, tmp_path / "capture", disks)


def refused(place: Place, tmp_path: Path, listener: str, properties: Mapping[str, str]) -> str:
    with pytest.raises((LoginError, UsageError)) as caught:
        capture_from(place.broker.server(listener), tmp_path / "capture", properties)
    assert not (tmp_path / "capture").exists() or not list((tmp_path / "capture").iterdir())
    return str(caught.value)


def test_a_wrong_password_is_named_as_such(place: Place, tmp_path: Path) -> None:
    scram = f'{SCRAM} required username="capture" password="{WRONG}";'
    assert "refuses the credentials (PLAIN)" in refused(place, tmp_path, "SECURE", place.plain(password=WRONG))
    assert "credentials (SCRAM-SHA-256)" in refused(place, tmp_path, "SECURE", place.sasl("SCRAM-SHA-256", scram))


def test_a_certificate_of_somebody_else_is_refused(place: Place, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "stranger", "Another CA")
    properties = {**place.plain(), "ssl.truststore.location": str(stranger.pem)}
    assert "certificate is refused" in refused(place, tmp_path, "SECURE", properties)


def test_the_name_of_the_broker_is_checked_unless_switched_off(place: Place, tmp_path: Path) -> None:
    """The certificate is for 127.0.0.1, not for localhost."""
    server = place.broker.server("SECURE").replace("127.0.0.1", "localhost")
    with pytest.raises(LoginError, match="certificate is refused"):
        capture_from(server, tmp_path / "capture", place.plain())
    properties = {**place.plain(), "ssl.endpoint.identification.algorithm": ""}
    assert capture_from(server, tmp_path / "capture", properties)["topics"]


@pytest.mark.parametrize("listener, hint", [("plain", "speak TLS"), ("SECURE", "is security.protocol right")])
def test_the_wrong_protocol_for_a_listener_is_hinted_at(place: Place, tmp_path: Path, listener: str, hint: str) -> None:
    """The broker closes the connection, as it does when it restarts: tried again until time is over."""
    plain = listener == "plain"
    server = place.broker.bootstrap if plain else place.broker.server(listener)
    properties = {"default.api.timeout.ms": "1500", **(place.plain() if plain else {})}
    with pytest.raises(ClusterError, match=f"no bootstrap server can be used: .*{hint}"):
        capture_from(server, tmp_path / "capture", properties)


def test_a_client_certificate_is_asked_for(place: Place, tmp_path: Path) -> None:
    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(place.authority.pem),
        "default.api.timeout.ms": "1500",
    }
    with pytest.raises((LoginError, ClusterError)):
        capture_from(place.broker.server("TLS"), tmp_path / "capture", properties)


@pytest.mark.parametrize("missing", ACLS, ids=lambda acl: "-".join(acl))
def test_one_acl_less_is_named(place: Place, tmp_path: Path, missing: tuple[str, str, str]) -> None:
    """With the ACLs of docs/capture.md it works, with one less the message says which."""
    operation, kind, name = missing
    place.forbid(missing)
    try:
        with pytest.raises(MissingAclError) as caught:
            capture_from(place.broker.server("SECURE"), tmp_path / "capture", place.plain())
    finally:
        place.allow(missing)
    assert caught.value.resource == f"{kind.capitalize()}:{name}"
    assert caught.value.operation.upper() in (operation, "DESCRIBE")
    capture_from(place.broker.server("SECURE"), tmp_path / "capture", place.plain())


def test_a_configuration_that_may_not_be_asked_for_is_a_note(place: Place, tmp_path: Path) -> None:
    acls = [("DESCRIBE_CONFIGS", "TOPIC", "__consumer_offsets"), ("DESCRIBE_CONFIGS", "CLUSTER", "kafka-cluster")]
    server = place.broker.server("SECURE")
    notes = capture_from(server, tmp_path / "capture", place.plain())["notes"]
    assert [note.partition(" needs the ACL ")[2] for note in notes] == [
        "DescribeConfigs on Cluster",
        "DescribeConfigs on Topic:__consumer_offsets",
    ]
    place.allow(*acls)
    try:
        assert capture_from(server, tmp_path / "capture", place.plain())["notes"] == []
    finally:
        place.forbid(*acls)


@pytest.mark.parametrize("missing", CHECK_ACLS, ids=lambda acl: "-".join(acl[:2]))
def test_one_acl_less_for_the_comparison_is_named(place: Place, tmp_path: Path, missing: tuple[str, str, str]) -> None:
    """Brokers leave out what may not be described; that is told from what is not there."""
    server, profile = place.broker.server("SECURE"), profile_for_release("4.3.1")
    others = [acl for acl in CHECK_ACLS if acl != missing]
    place.allow(*others)
    try:
        with pytest.raises(MissingAclError) as caught:
            capture_from(server, tmp_path / "capture", place.plain(), check_groups=True, profile=profile)
        place.allow(missing)
        whole = capture_from(server, tmp_path / "capture", place.plain(), check_groups=True, profile=profile)
    finally:
        place.forbid(*CHECK_ACLS)
    expected = {"GROUP": "Group:g-", "TOPIC": "Topic:orders"}[missing[1]]
    assert (caught.value.operation, caught.value.resource[: len(expected)]) == ("Describe", expected)
    assert whole["cross_check"]["differences"] == []
    assert whole["cross_check"]["groups"] == 6


def test_describe_is_not_read(place: Place, tmp_path: Path) -> None:
    place.allow(("DESCRIBE", "TOPIC", "__consumer_offsets"), user="other")
    with pytest.raises(MissingAclError, match="needs the ACL Read on Topic:__consumer_offsets"):
        capture_from(place.broker.server("SECURE"), tmp_path / "capture", place.plain("other"))
    with pytest.raises(UsageError, match="not whole"):
        discover([str(tmp_path / "capture")])


DRILL_ACLS = [
    (operation.upper(), kind.upper(), name)
    for operation, kind, name in re.findall(
        r"^\| `(\w+)` on `(\w+):(\S+)` \|", (ROOT / "docs/drill.md").read_text(), re.MULTILINE
    )
]
"""Permissions that docs/drill.md lists."""


@pytest.fixture(scope="module")
def prediction(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a restart of the only broker."""
    output = tmp_path_factory.mktemp("prediction")
    capture_from(place.broker.bootstrap, output / "capture")
    words = ["--topology", output / "capture/topology.json", "--scenario", "rolling-restart"]
    words += ["--kafka-version", "4.3.1", "--output", output / "prediction.json"]
    done = regroup("drill", "predict", *map(str, [*words, output / "capture"]))
    assert done.returncode in (ExitCode.CLEAN, ExitCode.FINDINGS), done.stderr
    return output / "prediction.json"


def drill(place: Place, prediction: Path, tmp_path: Path) -> tuple[subprocess.CompletedProcess[str], Path]:
    """A drill of the user ``other`` in which nothing is broken, and its journal."""
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in place.plain("other").items()))
    words = ["--bootstrap-server", place.broker.server("SECURE"), "--command-config", config]
    words += ["--prediction", prediction, "--output", tmp_path / "drill", "--observe-seconds", "0"]
    words += ["--interval-ms", "50", "--fault-command", "true", "--recover-command", "true"]
    return regroup("drill", "observe", *map(str, words)), tmp_path / "drill/journal.jsonl"


def test_a_drill_with_the_acls_of_the_manual(place: Place, prediction: Path, tmp_path: Path) -> None:
    """Then it is ended half-way, and another process recovers."""
    assert len(DRILL_ACLS) == 5
    place.allow(*DRILL_ACLS, user="other")
    try:
        done, journal = drill(place, prediction, tmp_path)
        cut = tmp_path / "cut.jsonl"
        cut.write_text("".join(takewhile(lambda line: '"rollback"' not in line, journal.open())))
        words = ["drill", "recover", str(cut), "--command-config", str(tmp_path / "client.properties")]
        recovered = regroup(*words)
    finally:
        place.forbid(*DRILL_ACLS, user="other")
    assert done.returncode == ExitCode.CLEAN, done.stderr
    assert recovered.returncode == ExitCode.CLEAN, recovered.stderr
    for path in (journal, cut):
        told = {
            phase: {one["group_id"] for one in events(path, "group", phase=phase)} for phase in ("before", "recovered")
        }
        assert told["before"] == told["recovered"] == {f"g-{number}" for number in range(6)}
        assert {len(one["offsets"]) for one in events(path, "group")} == {64}
        assert not events(path, "trouble")
        assert [one["left"] for one in events(path, "cleanup")] == [{}]


@pytest.mark.full
@pytest.mark.parametrize("missing", DRILL_ACLS, ids=lambda acl: "-".join(acl[:2]))
def test_one_acl_less_of_a_drill(place: Place, prediction: Path, tmp_path: Path, missing: tuple[str, str, str]) -> None:
    others = [acl for acl in DRILL_ACLS if acl != missing]
    place.allow(*others, user="other")
    try:
        done, journal = drill(place, prediction, tmp_path)
    finally:
        place.forbid(*others, user="other")
    operation, kind, name = missing
    told = events(journal, "group", phase="before")
    if operation == "DELETE":
        assert done.returncode == ExitCode.CLEAN, done.stderr
        (cleanup,) = events(journal, "cleanup")
        assert set(cleanup["left"].values()) == {"GROUP_AUTHORIZATION_FAILED"}
    elif (operation, kind) == ("DESCRIBE", "TOPIC"):
        assert done.returncode == ExitCode.CLEAN, done.stderr
        assert [one["offsets"] for one in told] == [[]] * 6
    else:
        assert done.returncode == ExitCode.APPLY_FAILED, done.stderr
        named = f"{operation.capitalize()} on {kind.capitalize()}:{'g-' if name == '*' else name}"
        assert f"needs the ACL {named}" in done.stderr
        assert not events(journal, "method")


def test_secrets_are_in_no_output_log_or_manifest(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tmp_path / "client.properties"
    for password in (PASSWORD, WRONG):
        properties = place.plain(password=password)
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        output = tmp_path / f"capture-{password}"
        with caplog.at_level(logging.DEBUG):
            done = regroup(
                *("capture", "--bootstrap-server", place.broker.server("SECURE")),
                *("--output", str(tmp_path / f"capture-{len(password)}"), "--command-config", str(config)),
                *("--format", "json"),
                REGROUP_DEBUG="1" if password == PASSWORD else "",
            )
            if password == PASSWORD:
                capture_from(place.broker.server("SECURE"), output, properties)
        assert done.returncode == (0 if password == PASSWORD else 2), done.stderr
        assert password not in done.stdout + done.stderr + caplog.text
    files = [path for path in tmp_path.rglob("*.json") if path.is_file()]
    assert len(files) >= 6
    assert not [path for path in files if PASSWORD in path.read_text()]

"""``offsets_load`` with a live cluster as source: captured, pinned, replayed; the password stays put."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_core.runs.read import open_run
from tests.cluster.kit import Commits, SecuredBroker, assert_as_on_disk, disk_copy, log_bytes, state_hash
from tests.dags.airflow_home import AirflowHome
from tests.dags.published import published
from tests.live.broker import Kafka

pytestmark = pytest.mark.full
PASSWORD = "p4ssw0rd-of-the-connection"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {
        "offsets.topic.num.partitions": "3",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f'{PLAIN} required user_regroup="{PASSWORD}";',
    }
    directory = tmp_path_factory.mktemp("live-cluster")
    broker = SecuredBroker(Kafka.fetch(), directory / "broker", {"LOGIN": "SASL_PLAINTEXT"}, settings)
    broker.start()
    commits = Commits(broker.bootstrap)
    try:
        commits.create_topic()
        commits.commit(12)
        yield broker
    finally:
        commits.close()
        broker.kill()


def connection(broker: SecuredBroker, password: str = PASSWORD) -> str:
    host, _, port = broker.server("LOGIN").partition(":")
    extra = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    login = {"login": "regroup", "password": password}
    return json.dumps({"conn_type": "kafka", "host": host, "port": int(port), **login, "extra": extra})


def test_a_cluster_is_captured_pinned_and_replayed(
    home: AirflowHome, place: Path, broker: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(home.environment, "AIRFLOW_CONN_LIVE", connection(broker))
    before = set(published(place / "runs", "live"))
    done = home.airflow("dags", "test", "offsets_load", "--conf", json.dumps({"cluster": "live"}), check=True)
    [path] = set(published(place / "runs", "live")) - before
    capture = place / "runs/live/_captures/live"
    manifest = json.loads((capture / "capture.json").read_text())
    assert_as_on_disk(manifest, capture, log_bytes(broker.log_dir))
    run = open_run(str(path))
    assert len(run.manifest["inputs"]) == 3
    assert all(entry["path"].startswith(str(capture)) for entry in run.manifest["inputs"])
    copy = disk_copy(broker, tmp_path / "copy")
    assert run.state_hash == state_hash(copy, tmp_path / "runs")
    assert re.search(r"__consumer_offsets: 3 partitions, \d{5,} bytes fetched, 0 kept", done.stdout)

    files = [file for file in home.directory.rglob("*") if file.is_file() and file.suffix != ".py"]
    files += [file for file in (place / "runs/live").rglob("*") if file.is_file()]
    assert any(file.name == "airflow.db" for file in files)
    assert PASSWORD not in done.stdout
    assert [file for file in files if PASSWORD.encode() in file.read_bytes()] == []


def test_refused_credentials_are_not_retried(
    home: AirflowHome, broker: SecuredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(home.environment, "AIRFLOW_CONN_LIVE", connection(broker, "wrong"))
    done = home.airflow("dags", "test", "offsets_load", "--conf", json.dumps({"cluster": "live"}))
    assert done.returncode != 0
    assert re.search("impossible request, so no retry: .*refuses the credentials", done.stdout), done.stdout
    assert done.stdout.count("[DAG TEST] starting task_id=pin") == 1

"""The cluster file: what it means, and what it says when it is wrong."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
import yaml

from dags.common.cluster_model import (
    CompactionSettings,
    DrillSettings,
    IcebergSettings,
    LinkSettings,
    MetricsSettings,
    NotifierSettings,
    RestoreSettings,
    SparkSettings,
    TimeoutSettings,
    schema,
)
from dags.common.clusters import (
    BUNDLED_FILE,
    Cluster,
    ClusterFileError,
    ClusterNotifier,
    clusters_path,
    load_clusters,
)
from dags.common.links import address, linked, spark_address

ROOT = Path(__file__).resolve().parents[2]


def written(directory: Path, text: str) -> Path:
    path = directory / "clusters.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_bundled_file_names_the_bundled_snapshot() -> None:
    demo = load_clusters(BUNDLED_FILE).clusters["demo"]
    assert demo.source == (str(ROOT / "demo/shop"),)
    assert Path(demo.source[0]).is_dir()
    assert demo.output == str(ROOT / "demo-output/runs")
    assert demo.kafka_version == "4.3.1"
    assert demo.schedule is None
    assert demo.asset("offsets").uri == "regroup://demo/offsets"


def test_every_key_arrives(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        root: data
        retries: 5
        retry_delay_seconds: 7
        clusters:
          eu-1:
            description: Payments
            source: [broker-1, "s3://bucket/snapshots/{window}/2", /mnt/3]
            output: s3://bucket/runs
            state: state
            offsets_topic_num_partitions: 100
            kafka_version: "3.9.2"
            coordinator: classic
            partial: true
            schedule: "30 2 * * *"
            start_date: 2026-02-03
            spark:
              connection: spark_eu
              conf: {spark.executor.instances: 4, spark.dynamicAllocation.enabled: false}
              environment: dist/regroup-environment.tar.gz
              archives: "names.zip#names"
              py_files: more.zip
              packages: [org.apache.hadoop:hadoop-aws:3.4.1]
              driver_memory: 2g
              executor_memory: 4g
              executor_cores: 3
              num_executors: 6
            compaction:
              schedule: "0 4 * * 0"
              output: compacted
              expire: false
              offsets_retention_ms: 86400000
              delete_retention_ms: 1000
              approval_hours: 5
            drill:
              connection: eu
              fault_command: stop {brokers}
              recover_command: start {brokers}
              server_logs: {1: logs/1.log}
              rto_seconds: 30
              observe_seconds: 10
              limit_seconds: 100
              approval_hours: 2
            restore: {connection: eu, approval_hours: 3}
            lineage: true
            iceberg: {catalog: lake}
            metrics: {textfile: textfile, pushgateway: "https://gateway:9091/push"}
            links: {output: "https://reports/eu", spark_history: "http://spark:18080"}
            timeouts: {task_minutes: 60, run_minutes: 600}
            pool: eu
            notify: [{notifier: tests.dags.notifier.Teller, arguments: {path: p, subject: s}, when: success}]
        """,
    )
    file = load_clusters(path)
    assert (file.retries, file.retry_delay_seconds) == (5, 7)
    assert file.clusters == {
        "eu-1": Cluster(
            name="eu-1",
            description="Payments",
            source=(f"{tmp_path}/data/broker-1", "s3://bucket/snapshots/{window}/2", "/mnt/3"),
            output="s3://bucket/runs",
            state=f"{tmp_path}/data/state",
            offsets_topic_num_partitions=100,
            profile=None,
            kafka_version="3.9.2",
            coordinator="classic",
            partial=True,
            schedule="30 2 * * *",
            start_date=datetime(2026, 2, 3, tzinfo=UTC),
            spark=SparkSettings(
                connection="spark_eu",
                conf={"spark.executor.instances": "4", "spark.dynamicAllocation.enabled": "false"},
                environment=f"{tmp_path}/data/dist/regroup-environment.tar.gz",
                archives=(f"{tmp_path}/data/names.zip#names",),
                py_files=(f"{tmp_path}/data/more.zip",),
                packages=("org.apache.hadoop:hadoop-aws:3.4.1",),
                driver_memory="2g",
                executor_memory="4g",
                executor_cores=3,
                num_executors=6,
            ),
            compaction=CompactionSettings(
                schedule="0 4 * * 0",
                output=f"{tmp_path}/data/compacted",
                expire=False,
                offsets_retention_ms=86_400_000,
                delete_retention_ms=1000,
                approval_hours=5,
            ),
            drill=DrillSettings(
                connection="eu",
                fault_command="stop {brokers}",
                recover_command="start {brokers}",
                server_logs={1: f"{tmp_path}/data/logs/1.log"},
                rto_seconds=30,
                observe_seconds=10,
                limit_seconds=100,
                approval_hours=2,
            ),
            restore=RestoreSettings(connection="eu", approval_hours=3),
            lineage=True,
            iceberg=IcebergSettings(catalog="lake", namespace="regroup"),
            metrics=MetricsSettings(textfile=f"{tmp_path}/data/textfile", pushgateway="https://gateway:9091/push"),
            links=LinkSettings(output="https://reports/eu", spark_history="http://spark:18080"),
            timeouts=TimeoutSettings(task_minutes=60, run_minutes=600),
            pool="eu",
            notify=[
                NotifierSettings(
                    notifier="tests.dags.notifier.Teller", arguments={"path": "p", "subject": "s"}, when="success"
                )
            ],
        )
    }


def test_the_manual_documents_every_key() -> None:
    manual = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    kinds = (Cluster, CompactionSettings, DrillSettings, IcebergSettings, MetricsSettings, SparkSettings)
    keys = {field for kind in kinds for field in kind.model_fields} - {"name"}
    assert sorted(key for key in keys if f"`{key}`" not in manual) == []


def test_the_schema_for_editors_is_that_of_the_model(tmp_path: Path) -> None:
    stored = json.loads((ROOT / "dags/clusters.schema.json").read_text(encoding="utf-8"))
    assert stored == schema(), "python -m dags.common.cluster_model > dags/clusters.schema.json"
    editor = jsonschema.Draft202012Validator(stored)
    assert list(editor.iter_errors(yaml.safe_load(BUNDLED_FILE.read_text(encoding="utf-8")))) == []
    inherits = {"defaults": {"output": "o"}, "clusters": {"a": {"source": "s", "spark": {"conf": {"x": 1}}}}}
    assert editor.is_valid(inherits)
    for wrong in ({"sources": "s"}, {"partial": "maybe"}, {"coordinator": "java"}, {"kafka_version": 3.9}):
        assert not editor.is_valid({"clusters": {"a": wrong}}), wrong


def test_an_entry_wins_over_the_defaults(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        defaults: {output: runs, kafka_version: "3.9.2", coordinator: classic, schedule: "@daily"}
        clusters:
          a: {source: a}
          b: {source: b, kafka_version: "4.3.1", coordinator: null, schedule: null, output: elsewhere}
          c: {source: c, profile: auto, compaction: {}}
          d: {source: d, kafka_version: "2.8.0"}
        """,
    )
    clusters = load_clusters(path).clusters
    a, b, c, d = clusters.values()
    assert (a.kafka_version, a.coordinator, a.schedule) == ("3.9.2", "classic", "@daily")
    assert (b.kafka_version, b.coordinator, b.schedule) == ("4.3.1", None, None)
    assert (c.profile, c.kafka_version, c.coordinator, c.schedule) == ("auto", None, None, "@daily")
    # A coordinator is that of the release beside it.
    assert (d.kafka_version, d.coordinator) == ("2.8.0", None)
    assert (b.compaction, c.compaction) == (None, CompactionSettings())
    assert [Path(cluster.output).name for cluster in clusters.values()] == ["runs", "elsewhere", "runs", "runs"]


def test_the_path_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "clusters: {a: {source: s, output: o}}")
    monkeypatch.setenv("REGROUP_CLUSTERS", str(path))
    assert clusters_path() == path
    assert list(load_clusters().clusters) == ["a"]


ENTRY = "source: s, output: o"
WRONG = {
    "no mapping": ("- a", "expected keys and values, found list"),
    "empty": ("", "expected keys and values, found nothing"),
    "not YAML": ("clusters: {a: [}", "is not valid YAML"),
    "no clusters": ("root: .", "clusters: missing"),
    "clusters empty": ("clusters: {}", "clusters: name at least one cluster"),
    "same name twice": (f"clusters:\n  a: {{{ENTRY}}}\n  a: {{{ENTRY}}}", "key 'a' appears twice"),
    "same key twice": ("clusters: {a: {source: s, source: t, output: o}}", "key 'source' appears twice"),
    "key is a list": ("clusters: {a: {[x]: s}}", "a key must be text"),
    "key is a number": (f"clusters: {{1: {{{ENTRY}}}}}", "clusters: key 1 is not text"),
    "name": (f"clusters: {{Prod EU: {{{ENTRY}}}}}", "clusters.Prod EU: a cluster name is"),
    "name is a path": (f"clusters: {{../a: {{{ENTRY}}}}}", "clusters.../a: a cluster name is"),
    "entry empty": ("clusters: {a: }", "clusters.a: expected keys and values, found nothing"),
    "no source": ("clusters: {a: {output: o}}", "clusters.a.source: missing"),
    "source empty": ("clusters: {a: {source: [], output: o}}", "clusters.a.source: missing"),
    "source number": (
        "clusters: {a: {source: [1], output: o}}",
        "clusters.a.source: expected text or a list",
    ),
    "no output": ("clusters: {a: {source: s}}", "clusters.a.output: missing"),
    "output blank": ("clusters: {a: {source: s, output: ' '}}", "clusters.a.output: expected text"),
    "window in output": (
        "clusters: {a: {source: s, output: 'o/{window}'}}",
        "clusters.a.output: the window has its own directory",
    ),
    "unknown key": (
        f"clusters: {{a: {{{ENTRY}, sources: t}}}}",
        "clusters.a.sources: unknown key",
    ),
    "unknown key on top": (f"cluster: x\nclusters: {{a: {{{ENTRY}}}}}", "cluster: unknown key"),
    "unknown default": (f"defaults: {{x: 1}}\nclusters: {{a: {{{ENTRY}}}}}", "defaults.x: unknown key"),
    "partitions": (
        f"clusters: {{a: {{{ENTRY}, offsets_topic_num_partitions: 0}}}}",
        "clusters.a.offsets_topic_num_partitions: expected a whole number, at least 1, found int 0",
    ),
    "more partitions than a topic has": (
        f"clusters: {{a: {{{ENTRY}, offsets_topic_num_partitions: 2147483648}}}}",
        "clusters.a.offsets_topic_num_partitions: expected a whole number, at most 2147483647, found int 2147483648",
    ),
    "partitions in text": (
        f"clusters: {{a: {{{ENTRY}, offsets_topic_num_partitions: '50'}}}}",
        "offsets_topic_num_partitions: expected a whole number, found str '50'",
    ),
    "retries": (f"retries: yes\nclusters: {{a: {{{ENTRY}}}}}", "retries: expected a whole number"),
    "release is a number": (
        f"clusters: {{a: {{{ENTRY}, kafka_version: 3.9}}}}",
        "clusters.a.kafka_version: expected a release in quotes",
    ),
    "release is a name": (
        f"clusters: {{a: {{{ENTRY}, kafka_version: latest}}}}",
        "a.kafka_version: expected",
    ),
    "profile and release": (
        f"clusters: {{a: {{{ENTRY}, profile: auto, kafka_version: 3.9.2}}}}",
        "clusters.a: give either profile or kafka_version",
    ),
    "coordinator": (
        f"clusters: {{a: {{{ENTRY}, kafka_version: 3.9.2, coordinator: java}}}}",
        "clusters.a.coordinator: expected 'classic' or 'new', found str 'java'",
    ),
    "unknown release": (
        f"clusters: {{a: {{{ENTRY}, kafka_version: '9.9.9'}}}}",
        "clusters.a: no rules for Kafka 9.9.9: releases ",
    ),
    "unknown profile": (
        f"clusters: {{a: {{{ENTRY}, profile: S9}}}}",
        "clusters.a: unknown profile 'S9' (one of: auto, ",
    ),
    "a coordinator that the release lacks": (
        f"clusters: {{a: {{{ENTRY}, kafka_version: 2.8.0, coordinator: new}}}}",
        "clusters.a: Kafka 2.8.0 has only the classic coordinator",
    ),
    "root is a URI": (
        f"root: s3://b/x\nclusters: {{a: {{{ENTRY}}}}}",
        "root: expected a local directory, found 's3://b/x'",
    ),
    "no such day": (
        f"clusters: {{a: {{{ENTRY}, start_date: 2026-02-30}}}}",
        "clusters.a.start_date: expected a date such as 2026-01-31, found str '2026-02-30'",
    ),
    "no number": (f"retries: !!int x\nclusters: {{a: {{{ENTRY}}}}}", "is not valid YAML: invalid literal"),
    "minutes without end": (
        f"clusters: {{a: {{{ENTRY}, timeouts: {{task_minutes: 100000000000000000}}}}}}",
        "clusters.a.timeouts.task_minutes: expected a whole number, at most 5258880, found int 1000",
    ),
    "hours without end": (
        f"clusters: {{a: {{{ENTRY}, compaction: {{approval_hours: 100000000000000000}}}}}}",
        "clusters.a.compaction.approval_hours: expected a whole number, at most 87648, found int 1000",
    ),
    "delay without end": (
        f"retry_delay_seconds: 100000000000000000\nclusters: {{a: {{{ENTRY}}}}}",
        "retry_delay_seconds: expected a whole number, at most 315532800, found int 1000",
    ),
    "window in a log's place": (
        f"clusters: {{a: {{{ENTRY}, compaction: {{output: 'c/{{window}}'}}}}}}",
        "clusters.a.compaction.output: {window} stands for nothing here",
    ),
    "window in a metrics place": (
        f"clusters: {{a: {{{ENTRY}, metrics: {{textfile: 't/{{window}}'}}}}}}",
        "clusters.a.metrics.textfile: {window} stands for nothing here",
    ),
    "windows in source": (
        "clusters: {a: {source: 's/{windows}', output: o}}",
        "clusters.a.source.0: {windows} stands for nothing; write {window}",
    ),
    "coordinator alone": (
        f"clusters: {{a: {{{ENTRY}, coordinator: new}}}}",
        "clusters.a: coordinator only means something together with kafka_version",
    ),
    "partial": (
        f"clusters: {{a: {{{ENTRY}, partial: maybe}}}}",
        "clusters.a.partial: expected true or false",
    ),
    "schedule": (
        f"clusters: {{a: {{{ENTRY}, schedule: daily}}}}",
        "clusters.a.schedule: expected a cron expression or @daily and the like: ",
    ),
    "cron": (f"clusters: {{a: {{{ENTRY}, schedule: 61 * * * *}}}}", "a.schedule: expected a cron expression"),
    "start date": (
        f"clusters: {{a: {{{ENTRY}, start_date: soon}}}}",
        "clusters.a.start_date: expected a date",
    ),
    "compaction schedule": (
        f"clusters: {{a: {{{ENTRY}, compaction: {{schedule: weekly}}}}}}",
        "clusters.a.compaction.schedule: expected a cron expression",
    ),
    "compaction key": (
        f"clusters: {{a: {{{ENTRY}, compaction: {{renumber: true}}}}}}",
        "clusters.a.compaction.renumber: unknown key",
    ),
    "state by window": (
        f"clusters: {{a: {{{ENTRY}, state: 's3://b/{{window}}'}}}}",
        "clusters.a.state: the window has its own directory",
    ),
    "compaction retention": (
        f"clusters: {{a: {{{ENTRY}, compaction: {{delete_retention_ms: 9223372036854775807}}}}}}",
        "clusters.a.compaction.delete_retention_ms: expected a whole number, at most 46116860184273",
    ),
    "compaction hours": (
        f"clusters: {{a: {{{ENTRY}, compaction: {{approval_hours: 0}}}}}}",
        "clusters.a.compaction.approval_hours: expected a whole number, at least 1",
    ),
    "metrics nowhere": (f"clusters: {{a: {{{ENTRY}, metrics: {{}}}}}}", "clusters.a.metrics: name textfile"),
    "gateway with a password": (
        f"clusters: {{a: {{{ENTRY}, metrics: {{pushgateway: 'http://a:b@c:1'}}}}}}",
        "clusters.a.metrics.pushgateway: expected http://HOST:PORT, without a password",
    ),
    "drill without commands": (
        f"clusters: {{a: {{{ENTRY}, drill: {{connection: c, fault_command: f}}}}}}",
        "clusters.a.drill.recover_command: missing",
    ),
    "drill logs": (
        f"clusters: {{a: {{{ENTRY}, drill: {{connection: c, fault_command: f, recover_command: r, "
        "server_logs: [x]}}}",
        "clusters.a.drill.server_logs: expected files by broker id",
    ),
    "restore": (f"clusters: {{a: {{{ENTRY}, restore: {{}}}}}}", "clusters.a.restore.connection: missing"),
    "restore key": (
        f"clusters: {{a: {{{ENTRY}, restore: {{connection: c, wait: 1}}}}}}",
        "clusters.a.restore.wait: unknown key",
    ),
    "spark": (f"clusters: {{a: {{{ENTRY}, spark: local}}}}", "clusters.a.spark: expected keys and values"),
    "spark key": (
        f"clusters: {{a: {{{ENTRY}, spark: {{master: x}}}}}}",
        "clusters.a.spark.master: unknown key",
    ),
    "spark conf": (
        f"clusters: {{a: {{{ENTRY}, spark: {{conf: [x]}}}}}}",
        "clusters.a.spark.conf: expected Spark properties",
    ),
    "spark conf value": (
        f"clusters: {{a: {{{ENTRY}, spark: {{conf: {{x: }}}}}}}}",
        "clusters.a.spark.conf.x: expected one value, found nothing",
    ),
}


@pytest.mark.parametrize("text, problem", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ClusterFileError) as raised:
        load_clusters(path)
    assert f"cluster file {path}" in str(raised.value)
    assert problem in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterFileError, match=r"nowhere\.yaml cannot be read"):
        load_clusters(tmp_path / "nowhere.yaml")


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ClusterFileError, match="cannot be read"):
        load_clusters(tmp_path / "x.yaml")


def test_a_wrong_entry_does_not_hide_the_others(tmp_path: Path) -> None:
    path = written(tmp_path, f"clusters: {{a: {{{ENTRY}}}, B: {{{ENTRY}}}, c: {{source: s}}}}")
    file = load_clusters(path)
    assert list(file.clusters) == ["a"]
    assert file.problems == {
        "B": f"cluster file {path}: clusters.B: a cluster name is at most 64 of a-z 0-9 _ -, not starting with _ or -",
        "c": f"cluster file {path}: clusters.c.output: missing",
    }


def test_all_that_is_wrong_with_an_entry_is_said(tmp_path: Path) -> None:
    path = written(tmp_path, f"clusters: {{a: {{{ENTRY}}}, b: {{sauce: s, partial: 1, output: o}}}}")
    assert load_clusters(path).problems["b"].splitlines() == [
        f"cluster file {path}: clusters.b.source: missing",
        f"cluster file {path}: clusters.b.partial: expected true or false, found int 1",
        f"cluster file {path}: clusters.b.sauce: unknown key",
    ]


@pytest.mark.parametrize(
    "notifier, said",
    [
        ("gone.Chat", "gone.Chat cannot be made: No module named 'gone'"),
        ("tests.dags.notifier.Gone", "has no attribute 'Gone'"),
        ("tests.dags.notifier.Teller", "missing 2 required positional arguments"),
        ("pathlib.Path", "pathlib.Path is no notifier of Airflow"),
        ("Chat", "expected text"),
    ],
)
def test_a_notifier_that_cannot_be_made_is_shown(tmp_path: Path, notifier: str, said: str) -> None:
    entry = f"{{source: s, output: o, notify: [{{notifier: {notifier}}}]}}"
    with pytest.raises(ClusterFileError, match=r"clusters\.c\.notify\.0") as caught:
        load_clusters(written(tmp_path, f"clusters: {{c: {entry}}}"))
    assert said in str(caught.value)


def test_a_notifier_that_fails_keeps_no_other_one_from_telling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tellers = [
        f"{{notifier: tests.dags.notifier.Teller, arguments: {{path: {place}, subject: s}}}}"
        for place in (tmp_path, tmp_path / "told")
    ]
    path = written(tmp_path, f"clusters: {{c: {{{ENTRY}, notify: [{', '.join(tellers)}]}}}}")
    monkeypatch.setenv("REGROUP_CLUSTERS", str(path))
    context: Any = {"dag_run": SimpleNamespace(state="failed"), "params": {"cluster": "c"}}
    with pytest.raises(IsADirectoryError):
        ClusterNotifier("failure").notify(context)
    assert (tmp_path / "told").read_text() == "failure s: c\n"


def test_timeouts_and_pools_of_dags(tmp_path: Path) -> None:
    one = "{source: s, output: o, pool: %s, timeouts: {task_minutes: %d, run_minutes: 100}}"
    text = f"pool: any\nclusters: {{a: {one % ('p', 5)}, b: {one % ('q', 7)}}}"
    file = load_clusters(written(tmp_path, text))
    own, on_request = file.dag_arguments("a", approval_hours=2), file.dag_arguments()
    assert own["dagrun_timeout"] == timedelta(hours=2, minutes=100)
    assert (own["default_args"]["execution_timeout"], own["default_args"]["pool"]) == (timedelta(minutes=5), "p")
    assert on_request["default_args"]["execution_timeout"] == timedelta(minutes=7)
    assert on_request["default_args"]["pool"] == "any"
    unlimited = file.dag_arguments(limited=False)
    assert (unlimited["dagrun_timeout"], unlimited["default_args"]["execution_timeout"]) == (None, None)
    # A cluster that may take as long as it wants shares the DAGs on request.
    file = load_clusters(written(tmp_path, f"{text[:-1]}, c: {{source: s, output: o}}}}"))
    assert file.dag_arguments()["dagrun_timeout"] is None


def test_addresses_of_what_lies_below_the_output_or_the_state(tmp_path: Path) -> None:
    links = "links: {output: 'https://w/x/', spark_history: 'http://h:18080'}"
    file = load_clusters(
        written(tmp_path, f"clusters: {{a: {{source: s, output: o, {links}}}, b: {{source: s, output: o}}}}")
    )
    a, b = file.clusters["a"], file.clusters["b"]
    page = f"{a.output}/a/2026-11-25T02-30-00Z/_reports/1/report ü.html"
    assert address(a, page) == "https://w/x/a/2026-11-25T02-30-00Z/_reports/1/report%20%C3%BC.html"
    assert (address(a, "/elsewhere/report.html"), address(b, page)) == ("", "")
    state = "clusters: {a: {source: s, output: o, state: 's3://b/state', links: {state: 'https://w/s'}}}"
    elsewhere = load_clusters(written(tmp_path, state)).clusters["a"]
    plan = elsewhere.state_path("_restores", "1", "plan.html")
    assert address(elsewhere, plan) == "https://w/s/a/_restores/1/plan.html"
    assert linked(elsewhere, plan) == f"[`{plan}`](https://w/s/a/_restores/1/plan.html)"
    assert linked(a, plan) == f"`{plan}`"
    assert spark_address(a, "app-1") == "http://h:18080/history/app-1/jobs/"
    assert (spark_address(a, None), spark_address(b, "app-1")) == ("", "")

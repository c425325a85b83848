"""The files of docs/kubernetes: valid by the schemas of Kubernetes and the Spark operator, closed, as the images."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml
from kubeflow_spark_api.models.spark_v1beta2_spark_application import SparkV1beta2SparkApplication

from coordinator_core.cli.app import cli
from coordinator_core.errors import ExitCode
from spark_apps import replay
from tests.image import instructions

ROOT = Path(__file__).resolve().parent.parent
FILES = ROOT / "docs/kubernetes"
VERSIONS = ("1.30", kubernetes_validate.latest_version())


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FILES / name).read_text()))


MANIFESTS = [each for name in ("command-line.yaml", "spark-application.yaml") for each in documents(name)]
(APPLICATION,) = (each for each in MANIFESTS if each["kind"] == "SparkApplication")
(CRON_JOB,) = (each for each in MANIFESTS if each["kind"] == "CronJob")
POD = CRON_JOB["spec"]["jobTemplate"]["spec"]["template"]["spec"]
CONTAINERS = [*POD["initContainers"], *POD["containers"]]
VALUES = documents("airflow-values.yaml")[0]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "manifest", [each for each in MANIFESTS if each is not APPLICATION], ids=lambda each: each["kind"]
)
def test_a_manifest_is_valid(manifest: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**manifest, "unheard": 1}, version, strict=True)


def test_the_application_is_one_of_the_spark_operator() -> None:
    """Its models drop what they do not know, and refuse values of another type."""
    assert APPLICATION["apiVersion"] == "sparkoperator.k8s.io/v1beta2"
    model = SparkV1beta2SparkApplication.from_dict(APPLICATION)
    assert model is not None
    assert model.to_dict() == APPLICATION


def test_the_values_are_those_of_kubernetes_where_the_chart_hands_them_on() -> None:
    contexts = VALUES["securityContexts"]
    container = {
        "name": "any",
        "image": VALUES["defaultAirflowRepository"],
        "env": VALUES["env"],
        "envFrom": yaml.safe_load(VALUES["extraEnvFrom"]),
        "volumeMounts": VALUES["volumeMounts"],
        "securityContext": contexts["container"],
    }
    for component in ("scheduler", "dagProcessor"):
        spec = {
            "containers": [{**container, "resources": VALUES[component]["resources"]}],
            "volumes": VALUES["volumes"],
            "securityContext": contexts["pod"],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "any"}, "spec": spec}
        kubernetes_validate.validate(pod, VERSIONS[-1], strict=True)
    assert contexts["pod"]["runAsNonRoot"] is True


def users() -> dict[str, str]:
    """The user of each image."""
    found, stage = {}, ""
    for instruction, arguments in instructions():
        if instruction == "FROM":
            stage = arguments.partition(" AS ")[2]
        elif instruction == "USER":
            found[stage] = arguments
    return found


def test_pods_run_as_the_users_of_the_images_and_can_write_nowhere_but_volumes() -> None:
    spark = [APPLICATION["spec"]["driver"], APPLICATION["spec"]["executor"]]
    pods = [(POD["securityContext"], "cli"), *((each["podSecurityContext"], "spark") for each in spark)]
    for context, image in pods:
        assert context["runAsNonRoot"] is True
        assert str(context["runAsUser"]) == users()[image]
    for each in (*CONTAINERS, *spark):
        closed = each["securityContext"]
        assert closed["readOnlyRootFilesystem"] is True
        assert closed["allowPrivilegeEscalation"] is False
        assert closed["capabilities"] == {"drop": ["ALL"]}
        assert "/tmp" in {mount["mountPath"] for mount in each["volumeMounts"]}


def test_nothing_is_tried_again_that_ends_the_same_way_or_is_published() -> None:
    rules = [rule["onExitCodes"] for rule in CRON_JOB["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]]

    def final(container: str) -> set[int]:
        found = [rule["values"] for rule in rules if rule.get("containerName", container) == container]
        return {value for values in found for value in values}

    assert final("capture") == {ExitCode.USAGE, ExitCode.DAMAGED_INPUT, ExitCode.APPLY_FAILED}
    assert final("replay") == final("capture") | {ExitCode.FINDINGS}


def test_arguments_are_those_of_the_commands() -> None:
    for container in CONTAINERS:
        name, *arguments = container["args"]
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        # Not parsed: paths that must exist do so in the pod only.
        parameters = {option: each for each in command.params for option in each.opts}
        for argument in arguments:
            option, is_option, _ = argument.partition("=")
            assert not is_option or option in parameters
        given = {parameters[argument.partition("=")[0]].name for argument in arguments if argument.startswith("--")}
        assert {each.name for each in command.params if each.required and each.opts[0].startswith("--")} <= given


def test_the_application_runs_an_app_of_the_image_with_its_arguments() -> None:
    spec = APPLICATION["spec"]
    assert spec["mainApplicationFile"] == f"local:///opt/regroup/spark_apps/{Path(replay.__file__).name}"
    assert f"COPY --from=apache/spark:{spec['sparkVersion']}-" in (ROOT / "Dockerfile").read_text()
    parsed = replay.parse_arguments(spec["arguments"])
    assert parsed.cluster == "payments"


def test_the_values_name_the_locked_airflow() -> None:
    (locked,) = re.findall(r"^apache-airflow==(\S+)", (ROOT / ".ci/locks/airflow.txt").read_text(), re.MULTILINE)
    assert VALUES["airflowVersion"] == locked
    assert f"FROM apache/airflow:{locked}-python3.11 AS airflow\n" in (ROOT / "Dockerfile").read_text()

"""Parts that forms of DAGs share."""

from __future__ import annotations

from airflow.sdk import Param

from dags.common.clusters import COORDINATORS


def cluster_param(names: list[str]) -> Param:
    """Which cluster."""
    return Param(names[0], type="string", enum=names, title="Cluster", description="An entry of the cluster file.")


def snapshot_params(names: list[str]) -> dict[str, Param]:
    """The form: everything but the cluster is optional, and overrides the cluster file for one run."""
    return {
        "cluster": cluster_param(names),
        "source": Param(
            None,
            type=["null", "string"],
            format="multiline",
            title="Source",
            description="Paths or URIs of log directories, one a line, instead of those of the cluster file.",
        ),
        "window": Param(
            None,
            type=["null", "string"],
            pattern="^[A-Za-z0-9][A-Za-z0-9._=-]{0,127}$",
            title="Window",
            description="Directory of the run. Default: start of the data interval, or time of the run.",
        ),
        "now_ms": Param(
            None,
            type=["null", "integer"],
            minimum=0,
            title="Now",
            description="Epoch milliseconds. Default: end of the data interval, or time of the run.",
        ),
        "profile": Param(
            None,
            type=["null", "string"],
            title="Profile",
            description="Coordinator rules: a profile's name, or auto to infer it from the records.",
        ),
        "kafka_version": Param(
            None,
            type=["null", "string"],
            pattern="^[0-9]+([.][0-9]+){1,3}$",
            title="Kafka release",
            description="Coordinator rules of this release, for example 3.9.2. Not together with a profile.",
        ),
        "coordinator": Param(
            None,
            type=["null", "string"],
            enum=[None, *COORDINATORS],
            title="Coordinator",
            description="Where the release has both: classic or new.",
        ),
        "partial": Param(
            False,
            type="boolean",
            title="Partial",
            description="Go on past damage, and say in the run that it is partial.",
        ),
    }

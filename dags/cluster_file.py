"""Says in Airflow's import errors which entries of the cluster file cannot be used; has no DAG itself.

The DAGs leave such entries out, so that the other clusters keep theirs.
"""

from __future__ import annotations

from dags.common.clusters import ClusterFileError, load_clusters

_problems = load_clusters().problems
if _problems:
    raise ClusterFileError("\n".join(_problems.values()))

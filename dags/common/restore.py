"""Functions of the tasks of ``offsets_restore``. The core is imported when a task runs, never before.

A restore has a directory of its own below the cluster's state, ``_restores/<attempt>``: ``plan.json`` and
``plan.html``, ``applied/`` with journal and capture, and where it was undone ``rollback.json``, ``rollback.html`` and
``rolled-back/``. Plans share ``_restores/capture``.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from dags.common.attempts import attempt_id
from dags.common.capture import captured
from dags.common.cluster_model import RestoreSettings
from dags.common.clusters import Cluster, ClusterFile, load_clusters
from dags.common.command import regroup
from dags.common.links import linked
from dags.common.load import final_errors, lines_of, offsets_partitions, replay_rules

if TYPE_CHECKING:
    from coordinator_core.drill.journal import Journal
    from coordinator_core.restore.model import Plan

log = logging.getLogger(__name__)

WAIT_SECONDS, LOOK_SECONDS = 600.0, 5.0
"""Wait of the teardown for an apply that still writes, and how often it looks."""

Planned = Mapping[str, Any]


def _cluster(params: Mapping[str, Any]) -> tuple[Cluster, RestoreSettings]:
    cluster = load_clusters().clusters[params["cluster"]]
    if cluster.restore is None:
        raise AirflowFailException(f"cluster {cluster.name} has no section restore in the cluster file")
    return cluster, cluster.restore


def plan(params: Mapping[str, Any], dag_run: Any, try_number: int) -> dict[str, Any]:
    """Plans; returns the files, and the question to the person. A blocked plan is an error: nobody could approve it."""
    cluster, settings = _cluster(params)
    with final_errors():
        from coordinator_core import storage
        from coordinator_core.investigate.words import count

        directory = cluster.state_path("_restores", attempt_id(dag_run.run_id, try_number))
        asked = list(arguments(load_clusters(), cluster, params, cluster.state_path("_captures")))
    path = storage.join(directory, "plan.json")
    # Its own: one that offsets_load is writing to would refuse it.
    capture = cluster.state_path("_restores", "capture")
    regroup(*("restore", "plan", *asked, "--capture", capture, "--output", path), connection=settings.connection)
    made, digest = _read(path)
    if (obstacle := made.obstacle()) is not None:
        raise AirflowFailException(f"nobody is asked: {obstacle}: {_page(path)}")
    offsets, groups = sum(len(list(group.writes())) for group in made.groups), len(made.writing())
    return {
        "directory": directory,
        "plan": path,
        "digest": digest,
        "not_asked": "" if made.writing() else "the plan changes nothing, so nobody is asked",
        "approval_hours": settings.approval_hours,
        "subject": f"Restore {count(offsets, 'offset')} of {count(groups, 'group')} of {cluster.name}?",
        "body": "".join(_body(cluster, made, digest, path)),
    }


def arguments(file: ClusterFile, cluster: Cluster, params: Mapping[str, Any], captures: str) -> Iterator[str]:
    """Arguments of ``regroup restore plan``, but for the target. Live sources are brought up to now in ``captures``."""
    from coordinator_core.runs.place import is_run

    has_point = bool(params["at_time"] or params["before_records"] or params["before_incident"])
    sources = [file.located(path) for path in lines_of(params, "source")] or (list(cluster.source) if has_point else [])
    # A restore has no window.
    if windows := [source for source in sources if "{window}" in source]:
        raise AirflowFailException(f"{windows[0]} has a directory for each window: name that of one as source")
    sources = [captured(source, captures) for source in sources]
    yield from sources
    if params["from_file"]:
        yield f"--from-file={file.located(params['from_file'])}"
    for name, option in (
        ("before_records", "before-record"),
        ("groups", "group"),
        ("topics", "topic"),
        ("group_names", "map-group"),
        ("topic_names", "map-topic"),
    ):
        # One word each: a name may begin with a dash.
        yield from (f"--{option}={line}" for line in lines_of(params, name))
    if params["at_time"]:
        yield f"--at-time={params['at_time']}"
    if params["move"]:
        yield f"--{params['move']}"
    for name in ("before_incident", "all_groups", "other_topics", "delete_others"):
        if params[name]:
            yield f"--{name.replace('_', '-')}"
    for name in ("out_of_range", "metadata", "new_groups"):
        yield f"--{name.replace('_', '-')}={params[name]}"
    yield from offsets_partitions(cluster)
    if not (len(sources) == 1 and is_run(sources[0])):
        # A run has its rules, and says how its log was read.
        yield from replay_rules(cluster)
        if sources and cluster.partial:
            yield "--partial"


def _page(path: str) -> str:
    return path.removesuffix(".json") + ".html"


def _read(path: str) -> tuple[Plan, str]:
    """A plan and its digest; writes its page beside it."""
    with final_errors():
        from coordinator_core import storage
        from coordinator_core.reports.restore_page import restore_page
        from coordinator_core.restore.model import read_plan

        found, digest = read_plan(path)
        storage.write_atomic(_page(path), restore_page(found, digest).encode())
    return found, digest


def _body(cluster: Cluster, made: Plan, digest: str, path: str) -> Iterator[str]:
    """The plan in Markdown, worst first. Its lines are indented: no name can end that."""
    from coordinator_core.reports.restore import plan_text

    yield "The plan, worst first:\n\n"
    yield from (f"    {line}\n" for line in plan_text(made, digest))
    yield f"\n- page, with a picture: {linked(cluster, _page(path))}\n- plan: {linked(cluster, path)}\n"


def _apply(plan_path: str, digest: str, directory: str, params: Mapping[str, Any], *more: str) -> None:
    _, settings = _cluster(params)
    regroup(
        *("restore", "apply", plan_path, "--plan-digest", digest, "--output", directory),
        *("--wait-empty", str(params["wait_empty_seconds"]), *more),
        connection=settings.connection,
    )


def check(planned: Planned, params: Mapping[str, Any]) -> None:
    """Reads again everything that the approved plan rests on; nothing is written."""
    _refuse_undone(planned)
    _apply(planned["plan"], planned["digest"], _applied(planned), params)


def apply(planned: Planned, params: Mapping[str, Any]) -> None:
    """Carries the approved plan out, or goes on with it."""
    _refuse_undone(planned)
    _apply(planned["plan"], planned["digest"], _applied(planned), params, "--execute")


def _applied(planned: Planned) -> str:
    from coordinator_core import storage

    return storage.join(planned["directory"], "applied")


def _refuse_undone(planned: Planned) -> None:
    """A plan of which something was undone is over: its journal has groups as written that are so no more."""
    if _has_begun(undoing := _undoing(planned)):
        raise AirflowFailException(f"the plan was applied and undone, so plan again: {undoing}")


def _undoing(planned: Planned) -> str:
    """Path of the journal of the way back."""
    from coordinator_core import storage
    from coordinator_core.drill.journal import JOURNAL

    return storage.join(planned["directory"], "rolled-back", JOURNAL)


def _has_begun(journal: str) -> bool:
    from coordinator_core import storage
    from coordinator_core.drill.journal import journal_bytes

    return storage.exists(journal) and bool(journal_bytes(journal))


def verify(planned: Planned, params: Mapping[str, Any]) -> str:
    """Proves from the log that exactly the plan was written; returns its digest.

    The digest says what was verified. A result stays when tasks are cleared, until its own task begins again.
    """
    _verify(_applied(planned), params)
    return str(planned["digest"])


def _verify(directory: str, params: Mapping[str, Any]) -> None:
    cluster, settings = _cluster(params)
    rules = replay_rules(cluster)
    regroup(
        *("restore", "verify", directory, *(rules if rules[0] == "--kafka-version" else ())),
        connection=settings.connection,
    )


def rollback(planned: Planned, verified: str | None, params: Mapping[str, Any]) -> None:
    """Undoes an apply that failed, was killed or does not hold; does nothing when this plan is the ``verified`` one.

    It runs when the plan was approved and an apply may have begun. So a journal that is not here is an error, not
    good news: it may lie on the disk of another worker.
    """
    from coordinator_core import storage
    from coordinator_core.drill.journal import JOURNAL

    if verified == planned["digest"]:
        log.info("verified: there is nothing to undo")
        return
    if not storage.exists(journal := storage.join(_applied(planned), JOURNAL)):
        raise AirflowException(
            f"no journal on worker {socket.gethostname()}, so nobody knows whether something was written: {journal}. "
            "Look at the worker of apply, and run regroup restore rollback there"
        )
    with _taken(journal):
        _roll_back(planned, params)


def _taken(journal: str) -> Journal:
    """The journal of an apply that has ended: nothing is written any more while it is ours.

    ``JournalBusyError``, which is retried, when the apply goes on.
    """
    from coordinator_core.drill.journal import JournalBusyError
    from coordinator_core.drill.shared_journal import open_journal

    deadline = time.monotonic() + WAIT_SECONDS
    told = False
    while True:
        try:
            return open_journal(journal, "an apply")
        except JournalBusyError as error:
            if time.monotonic() > deadline:
                raise
            if not told:
                log.info("waiting at most %d s: %s", WAIT_SECONDS, error)
                told = True
        time.sleep(LOOK_SECONDS)


def _roll_back(planned: Planned, params: Mapping[str, Any]) -> None:
    from coordinator_core import storage

    _, settings = _cluster(params)
    applied = _applied(planned)
    undone, path = (storage.join(planned["directory"], name) for name in ("rolled-back", "rollback.json"))
    with final_errors():
        from coordinator_core.cluster.restore_apply import begun_apply
        from coordinator_core.drill.journal import of_kind

        begun = of_kind(begun_apply(applied, planned["digest"]), "begin")
    if not begun:
        log.info("nothing was written: there is nothing to undo")
        return
    # One that has begun goes on with its own plan.
    if not _has_begun(_undoing(planned)):
        regroup("restore", "rollback", applied, "--output", path, connection=settings.connection)
    made, digest = _read(path)
    if (obstacle := made.obstacle()) is not None:
        raise AirflowFailException(f"NOT rolled back: {obstacle}: {_page(path)}")
    if made.writing():
        _apply(path, digest, undone, params, "--execute")
        _verify(undone, params)
    log.info("rolled back: committed offsets are as they were before")

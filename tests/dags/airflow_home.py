"""An Airflow of its own for the tests: home, database, command line, and the real components on loopback."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.live.broker import free_ports

ROOT = Path(__file__).resolve().parents[2]
_DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
PATIENCE_SECONDS = 600
"""Time to wait for Airflow to come to a state, on a machine that does other things at the same time."""

_PATIENT = (
    # A file that takes longer to parse, or whose DAGs were not stored once, makes its DAGs stale until it is parsed
    # again. Nothing starts them then, no asset either.
    "CORE__DAGBAG_IMPORT_TIMEOUT",
    "DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT",
    "DAG_PROCESSOR__STALE_DAG_THRESHOLD",
    # A task says it to the API server once more, which may do both: its assets have two events.
    "WORKERS__EXECUTION_API_TIMEOUT",
    # A scheduler that was silent for longer takes itself for dead, and starts its own tasks again.
    "SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD",
    # A task is sent to Celery once more: the second one fails, and the first one with it.
    "CELERY__OPERATION_TIMEOUT",
)
"""Times after which Airflow gives something up that is still under way on a slow machine: some are a few seconds."""


class AirflowHome:
    """A migrated Airflow home below ``directory`` that sees the DAGs of this project.

    ``bundles`` are further directories with DAGs, ``more`` further settings (``SECTION__KEY``). Nothing of the outer
    environment's Airflow is used.
    """

    def __init__(
        self, directory: Path, cluster_file: Path, bundles: dict[str, Path] | None = None, **more: str
    ) -> None:
        self.directory = directory
        (self.port,) = free_ports(1)
        self.password = secrets.token_hex(8)
        passwords = directory / "passwords.json"
        directory.mkdir(parents=True, exist_ok=True)
        passwords.write_text(json.dumps({"tester": self.password}))
        places = {"regroup": ROOT / "dags", **(bundles or {})}
        local = "airflow.dag_processing.bundles.local.LocalDagBundle"
        settings = {
            "CORE__EXECUTOR": "LocalExecutor",
            "CORE__PARALLELISM": "2",
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__SIMPLE_AUTH_MANAGER_USERS": "tester:admin",
            "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
            "CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{self.port}/execution/",
            "API__BASE_URL": f"http://127.0.0.1:{self.port}/",
            "API__SECRET_KEY": secrets.token_hex(16),
            "API__EXPOSE_STACKTRACE": "True",
            # Signs the tokens with which tasks speak to the API server: all components need the same one.
            "API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(
                [{"name": name, "classpath": local, "kwargs": {"path": str(path)}} for name, path in places.items()]
            ),
            # A writer waits for another one. After the 5 s of Python's SQLite a component ends, a task fails.
            "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{directory}/airflow.db?timeout={PATIENCE_SECONDS}",
            "LOGGING__COLORED_CONSOLE_LOG": "False",
            "USAGE_DATA_COLLECTION__ENABLED": "False",
            **dict.fromkeys(_PATIENT, str(PATIENCE_SECONDS)),
            **more,
        }
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "REGROUP"))},
            **{f"AIRFLOW__{key}": value for key, value in settings.items()},
            "AIRFLOW_HOME": str(directory),
            "REGROUP_CLUSTERS": str(cluster_file),
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }
        self.airflow("db", "migrate", check=True)

    def airflow(self, *arguments: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        """Runs the ``airflow`` command; standard error goes into ``stdout``."""
        done = subprocess.run(
            [sys.executable, "-m", "airflow", *arguments],
            env=self.environment,
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout
        return done

    @contextmanager
    def running(self, **environment: str) -> Iterator[AirflowApi]:
        """API server, scheduler and DAG processor, each in a process group that is ended afterwards.

        ``environment`` comes on top of that of the home.
        """
        commands = {
            "api-server": ["api-server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"],
            # The scheduler would serve task logs on every interface; the API server reads them from disk.
            "scheduler": ["scheduler", "--skip-serve-logs"],
            "dag-processor": ["dag-processor"],
        }
        components: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for name, command in commands.items():
                components[name] = self._component(name, command, environment)
            api = AirflowApi(self, components)
            api.log_in()
            yield api
        finally:
            end_groups(components.values())

    @contextmanager
    def worker(self, directory: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
        """A Celery worker with a machine of its own, but for the DAGs: home, temporary files, copy of the cluster file.

        It does not know the database of Airflow, and whatever it starts runs in its home.
        """
        for name in ("airflow", "tmp"):
            (directory / name).mkdir(parents=True)
        clusters = shutil.copy(self.environment["REGROUP_CLUSTERS"], directory)
        own = {"HOME": str(directory), "AIRFLOW_HOME": str(directory / "airflow"), "TMPDIR": str(directory / "tmp")}
        own |= {"REGROUP_CLUSTERS": str(clusters), **environment}
        command = ["celery", "worker", "--skip-serve-logs", "--concurrency", "2", "--celery-hostname", directory.name]
        process = self._component(directory.name, [*command, "--without-mingle"], own, {_DATABASE})
        try:
            yield process
        finally:
            # It would wait for its tasks.
            kill_all_of(directory)
            process.wait(60)

    def _component(
        self, name: str, command: list[str], environment: dict[str, str], without: Collection[str] = ()
    ) -> subprocess.Popen[bytes]:
        inherited = {key: value for key, value in self.environment.items() if key not in without}
        with self.log_of(name).open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "airflow", *command],
                env={**inherited, **environment},
                cwd=environment.get("HOME", self.directory),
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def log_of(self, component: str) -> Path:
        return self.directory / f"{component}.log"


class AirflowApi:
    """The REST API of a running Airflow, as an operator's script would use it."""

    def __init__(self, home: AirflowHome, components: dict[str, subprocess.Popen[bytes]]) -> None:
        self._home = home
        self._components = components
        self._token: str | None = None

    def log_in(self) -> None:
        """Waits for the API server and gets a token."""
        credentials = {"username": "tester", "password": self._home.password}

        def token() -> Any:
            try:
                return self.call("POST", "/auth/token", credentials)["access_token"]
            except (urllib.error.URLError, ConnectionError):
                return None

        self._token = self.wait_for("the API server", token)

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """One request; the JSON of the answer. Raises ``HTTPError`` with the answer in its message.

        Sent again while Airflow answers that its SQLite is locked: nothing was done then. Some of its transactions
        cannot wait for another writer, since they have read before they write.
        """

        def answer() -> list[Any]:
            try:
                return [self._ask(method, path, body)]
            except urllib.error.HTTPError as error:
                if "database is locked" not in error.msg.lower():
                    raise
                return []

        return self.wait_for(f"an answer to {method} {path}", answer)[0]

    def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._home.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Accept": "application/json"},
        )
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(request, timeout=PATIENCE_SECONDS) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            error.msg = f"{error.msg}: {error.read().decode(errors='replace')}"
            raise
        return json.loads(text) if text else None

    def get(self, path: str) -> Any:
        return self.call("GET", f"/api/v2{path}")

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """One request, sent again while Airflow answers 404: nothing was done then.

        A DAG is stale while the last try to parse its file failed.
        """

        def answer() -> list[Any]:
            try:
                return [self.call("POST", f"/api/v2{path}", body)]
            except urllib.error.HTTPError as error:
                if error.code != 404:
                    raise
                return []

        return self.wait_for(f"an answer to POST {path}", answer)[0]

    def wait_for(self, what: str, probe: Callable[[], Any], pause_seconds: float = 0.5) -> Any:
        """The first true answer of ``probe``. Fails with the components' logs."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if found := probe():
                return found
            ended = [name for name, process in self._components.items() if process.poll() is not None]
            if ended:
                raise AssertionError(f"waiting for {what}: {ended} ended\n{self.logs()}")
            time.sleep(pause_seconds)
        raise AssertionError(f"waited {PATIENCE_SECONDS} s for {what}\n{self.logs()}")

    def wait_for_dag(self, dag_id: str) -> None:
        """Waits until the DAG processor has brought the DAG into the database, and unpauses it."""

        def known() -> bool:
            try:
                self.get(f"/dags/{dag_id}/details")
            except urllib.error.HTTPError as error:
                if error.code != 404:
                    raise
                return False
            return True

        self.wait_for(f"DAG {dag_id}", known)
        self.call("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": False})

    def trigger(self, dag_id: str, conf: dict[str, Any]) -> str:
        """Starts a run as the form does, without a logical date; its id."""
        started = self.post(f"/dags/{dag_id}/dagRuns", {"logical_date": None, "conf": conf})
        return str(started["dag_run_id"])

    def finished(self, dag_id: str, run_id: str) -> str:
        """State in which the run ended."""

        def state() -> str | None:
            found = self.get(f"/dags/{dag_id}/dagRuns/{run_id}")["state"]
            return str(found) if found in ("success", "failed") else None

        return str(self.wait_for(f"run {run_id} of {dag_id}", state))

    def asked(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
        """Question of a task to a person, once it waits for the answer.

        Answered before the scheduler has noticed that the asking process ended, as no person does, the task
        is queued again too early, and fails.
        """

        def waits() -> bool:
            task = self.tasks(dag_id, run_id)[task_id]
            assert task["state"] not in ("failed", "skipped", "upstream_failed"), self.logs()
            return task["state"] == "awaiting_input" and self._has_ended(dag_id, run_id, task_id, task["try_number"])

        self.wait_for(f"{task_id} of {dag_id} to ask", waits)
        found: dict[str, Any] = self.get(_hitl(dag_id, run_id, task_id))
        return found

    def answer(self, dag_id: str, run_id: str, task_id: str, option: str) -> None:
        """Answers it, as the button of the page does."""
        body = {"chosen_options": [option], "params_input": {}}
        self.call("PATCH", f"/api/v2{_hitl(dag_id, run_id, task_id)}", body)

    def tasks(self, dag_id: str, run_id: str) -> dict[str, dict[str, Any]]:
        """Task instances of a run by task id."""
        found = self.get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
        return {task["task_id"]: task for task in found}

    def xcom(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> Any:
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/return_value"
        return self.get(f"{path}?deserialize=true&map_index={map_index}")["value"]

    def links(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> Any:
        """Addresses behind a task's buttons, by name, once they are there: a task that has succeeded says them then."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/links?map_index={map_index}"

        def said() -> Any:
            found = self.get(path)["extra_links"]
            return found if all(found.values()) else None

        return self.wait_for(f"links of {task_id} of {dag_id}", said)

    def task_log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1) -> str:
        """What an attempt has logged, once its process has ended: its last lines may come after its state."""
        self.wait_for(f"the end of {task_id} of {dag_id}", lambda: self._has_ended(dag_id, run_id, task_id, try_number))
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}"
        return json.dumps(self.get(f"{path}?full_content=true")["content"])

    def _has_ended(self, dag_id: str, run_id: str, task_id: str, try_number: int) -> bool:
        """Whether the scheduler has noticed that the process of an attempt ended, which is later than its state."""
        key = f"dag_id='{dag_id}', task_id='{task_id}', run_id='{run_id}', try_number={try_number}, "
        noticed = rf"state (success|failed) for task instance TaskInstanceKey\({re.escape(key)}"
        return re.search(noticed, self._home.log_of("scheduler").read_text(errors="replace")) is not None

    def logs(self) -> str:
        """The end of every component's log, and of every task's."""
        files = [self._home.log_of(name) for name in self._components]
        files += sorted((self._home.directory / "logs").rglob("attempt=*.log"))
        return "\n".join(f"=== {file}\n{file.read_text(errors='replace')[-6000:]}" for file in files)


def _hitl(dag_id: str, run_id: str, task_id: str) -> str:
    return f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/-1/hitlDetails"


def processes_of(home: Path) -> Iterator[tuple[int, str]]:
    """Processes that run in that directory, each with its command line. Not by their environment: titles cover it."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            pid = int(entry.name)
            if (entry / "cwd").readlink() == home:
                yield pid, (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def kill_all_of(home: Path) -> int:
    """Kills them, as if the machine lost its power; how many there were."""
    killed = 0
    while found := [pid for pid, command in processes_of(home) if command]:
        # Stopped first: none of them sees another one die, and tells of it.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        killed += len(found)
    return killed


def end_groups(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Ends processes and everything they started: politely and at once, then not."""
    started = list(processes)
    _signal_groups(started, signal.SIGTERM)
    deadline = time.monotonic() + 20
    for process in started:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0, deadline - time.monotonic()))
    # Also when the leader ended: its children may not have.
    _signal_groups(started, signal.SIGKILL)
    for process in started:
        process.wait(20)


def _signal_groups(leaders: list[subprocess.Popen[bytes]], number: signal.Signals) -> None:
    for leader in leaders:
        with suppress(ProcessLookupError):
            os.killpg(leader.pid, number)

"""PostgreSQL and Redis on loopback, for an Airflow that has more than one machine."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.live.broker import free_ports, wait_for

ROOT = Path(__file__).resolve().parents[2]
UNPACKED = ROOT / ".cache/services"
"""Where ``.ci/setup.sh services`` puts what the machine does not have."""

LIBRARIES = os.pathsep.join(str(path) for path in sorted((UNPACKED / "usr/lib").glob("*-linux-gnu")))


@contextmanager
def postgres() -> Iterator[str]:
    """Address of an empty database, ``HOST:PORT/NAME`` with user and password before it; gone afterwards."""
    (port,) = free_ports(1)
    password = secrets.token_hex(8)
    # Its server refuses to be root's; so its directory lies where another user finds it.
    owner = "nobody" if os.geteuid() == 0 else None
    directory = Path(tempfile.mkdtemp(prefix="regroup-postgres-"))
    try:
        (directory / "password").write_text(password)
        if owner is not None:
            for path in (directory, directory / "password"):
                shutil.chown(path, owner)
        data = directory / "data"
        made = ["--no-sync", "--auth=scram-sha-256", "--username=airflow", f"--pwfile={directory / 'password'}"]
        _run([_postgres("initdb"), *made, "--encoding=UTF8", "--locale=C", str(data)], owner)
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
            "fsync": "off",
            "max_connections": "200",
        }
        command = [_postgres("postgres"), "-D", str(data), *(f"--{name}={value}" for name, value in settings.items())]
        with _server(command, directory / "log", "ready to accept connections", owner):
            yield f"airflow:{password}@127.0.0.1:{port}/postgres"
    finally:
        shutil.rmtree(directory)


@contextmanager
def redis(directory: Path) -> Iterator[str]:
    """URL of an empty Redis that keeps nothing on the disk."""
    (port,) = free_ports(1)
    command = [_redis(), "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(directory)]
    with _server(command, directory / "redis.log", "Ready to accept connections"):
        yield f"redis://127.0.0.1:{port}/0"


def _postgres(name: str) -> str:
    for directory in ("/usr/lib/postgresql", str(UNPACKED / "usr/lib/postgresql")):
        for found in sorted(Path(directory).glob(f"*/bin/{name}"), reverse=True):
            return str(found)
    return _on_path(name)


def _redis() -> str:
    found = UNPACKED / "usr/bin/redis-server"
    return str(found) if found.exists() else _on_path("redis-server")


def _on_path(name: str) -> str:
    found = shutil.which(name)
    assert found is not None, f"{name} is missing: make services"
    return found


def _environment() -> Mapping[str, str]:
    return {**os.environ, "LD_LIBRARY_PATH": LIBRARIES, "LC_ALL": "C"}


def _run(command: Sequence[str], owner: str | None) -> None:
    done = subprocess.run(
        command, user=owner, cwd="/", env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def _server(command: Sequence[str], log: Path, ready: str, owner: str | None = None) -> Iterator[None]:
    """The server, once its log says ``ready``; it is ended afterwards, by its process id."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            user=owner,
            cwd="/",
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    def is_ready() -> bool:
        said = log.read_text(errors="replace")
        assert process.poll() is None, said
        return ready in said

    try:
        wait_for(command[0], is_ready)
        yield
    finally:
        # PostgreSQL's fast shutdown: it does not wait for clients.
        process.send_signal(signal.SIGINT)
        process.wait(60)

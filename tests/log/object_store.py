"""An S3 server on loopback (moto's), in a process of its own."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyarrow.fs import S3FileSystem

from coordinator_core import storage

# What the AWS chain finds in the environment; moto lets any key in.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "not-to-be-seen",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}

START_SECONDS = 300
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class ObjectStore:
    """``environment`` is what a process needs to reach it by the URIs of one bucket, ``directory`` the server's own."""

    environment: dict[str, str]
    bucket: str
    directory: Path

    def uri(self, key: str) -> str:
        return f"s3://{self.bucket}/{key}"

    def copy(self, source: Path, key: str) -> str:
        """Upload the files below a directory; the URI of the copy."""
        for path in source.rglob("*"):
            if path.is_file():
                target = storage.join(self.uri(key), *path.relative_to(source).parts)
                storage.write_atomic(target, path.read_bytes())
        return self.uri(key)

    def hold(self, name: str, request: str) -> None:
        """Have requests (``PUT /bucket/key?query``) that match the pattern wait, and never happen."""
        self._tell(f"{name}.hold", request)

    @contextmanager
    def refusing(self, request: str, status: str = "", code: str = "") -> Iterator[None]:
        """Have requests that match the pattern fail (``503 Slow Down``, ``SlowDown``), or their connections be cut."""
        name = f"{secrets.token_hex(4)}.refuse"
        self._tell(name, f"{request}\n{status}\n{code}")
        try:
            yield
        finally:
            (self.directory / name).unlink()

    def _tell(self, name: str, text: str) -> None:
        # A pattern that is half written would match anything.
        part = self.directory / f"{name}.part"
        part.write_text(text)
        part.rename(self.directory / name)

    def held(self, name: str) -> str | None:
        """The request that waits, if there is one."""
        held = self.directory / f"{name}.held"
        return held.read_text() if held.exists() else None

    def release(self, name: str) -> None:
        (self.directory / f"{name}.hold").unlink()


@contextmanager
def object_store(age_days: float = 0) -> Iterator[ObjectStore]:
    """A server with a bucket, for the time of the context; this process reaches it too.

    Its objects say that they were written so many days before they were.
    """
    place = Path(tempfile.mkdtemp(prefix="regroup-store-"))
    command = [sys.executable, "-m", "tests.log.held_store", str(place), str(age_days)]
    before = {name: os.environ.get(name) for name in (*CREDENTIALS, "AWS_ENDPOINT_URL")}
    with (
        (place / "log").open("wb") as log,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=log) as server,
    ):
        try:
            endpoint, port = _address(server, place / "log")
            environment = {**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint}
            os.environ.update(environment)
            # File systems are kept by bucket, so another server must have another.
            bucket = f"logs-{port}"
            S3FileSystem(allow_bucket_creation=True, endpoint_override=endpoint).create_dir(bucket)
            yield ObjectStore(environment, bucket, place)
        finally:
            server.terminate()
            server.wait(60)
            shutil.rmtree(place)
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _address(server: subprocess.Popen[bytes], log: Path) -> tuple[str, str]:
    """Endpoint and port, once the server has said them."""
    deadline = time.monotonic() + START_SECONDS
    while not (found := re.search(r"(http://127\.0\.0\.1:(\d+))\s", log.read_text())):
        assert server.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    return found[1], found[2]

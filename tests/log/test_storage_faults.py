"""A storage that does not answer, or not now, is no fault of the request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from coordinator_core import conditional, storage
from coordinator_core.errors import ExitCode, RegroupError, StorageError, UsageError, WriteError
from tests.log.object_store import CREDENTIALS

OPERATIONS: dict[str, Callable[[str], object]] = {
    "read": storage.read,
    "stat": storage.stat,
    "list": storage.list_directory,
    "write": lambda path: storage.write_atomic(path, b"content"),
    "delete": storage.delete,
    "replace": lambda path: conditional.update(path, lambda _: b"content"),
}


@contextmanager
def s3_that_answers(code: int) -> Iterator[int]:
    """Port of a server that answers every request so."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing: standard error is the tests'."""

    for method in ("HEAD", "PUT", "POST"):
        setattr(Answer, f"do_{method}", Answer.do_GET)
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def errors_at(port: int, patch: pytest.MonkeyPatch) -> dict[str, RegroupError]:
    """What each operation raises, all at once: each tries for seconds."""
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}.items():
        patch.setenv(name, value)

    def error_of(operation: Callable[[str], object]) -> RegroupError:
        with pytest.raises(RegroupError) as raised:
            # File systems are kept by bucket.
            operation(f"s3://faulty-{port}/file")
        return raised.value

    with ThreadPoolExecutor(len(OPERATIONS)) as threads:
        return dict(zip(OPERATIONS, threads.map(error_of, OPERATIONS.values()), strict=True))


def test_a_fault_of_the_server_may_be_over_when_it_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_that_answers(503) as port:
        errors = errors_at(port, monkeypatch)
    assert {name: type(error) for name, error in errors.items()} == dict.fromkeys(OPERATIONS, StorageError), errors
    assert {error.exit_code for error in errors.values()} == {ExitCode.INTERNAL}
    assert all(f"s3://faulty-{port}/file: the storage does not answer: " in str(error) for error in errors.values())


@pytest.mark.full
def test_nobody_at_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_that_answers(200) as port:
        """Its port is free again behind this."""
    errors = errors_at(port, monkeypatch)
    assert {name: type(error) for name, error in errors.items()} == dict.fromkeys(OPERATIONS, StorageError), errors


def test_a_refusal_is_one_however_often_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_that_answers(403) as port:
        errors = errors_at(port, monkeypatch)
    expected = dict.fromkeys(OPERATIONS, UsageError) | {"replace": WriteError}
    assert {name: type(error) for name, error in errors.items()} == expected, errors

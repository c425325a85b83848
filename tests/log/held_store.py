"""moto's S3 server with three more properties: objects may be days old, a put under a condition is one step, as S3
promises and moto's threads do not, and it holds requests back, or refuses them, when it is told to.

    python -m tests.log.held_store DIRECTORY DAYS

A file ``NAME.hold`` in the directory has a pattern: the first request (``PUT /bucket/key?query``) that it matches is
told in ``NAME.held``, and waits, as do those behind it, until ``NAME.hold`` is gone. Then they fail: they never happen.

A file ``NAME.refuse`` has a pattern, a status and S3's code of an error, a line each: so are all requests answered that
the pattern matches, as long as the file is there. Where the code is empty the connection is cut instead.
"""

from __future__ import annotations

import re
import socket
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import moto.s3.models
import moto.server
from moto.server import DomainDispatcherApplication


class Held:
    """The WSGI application before which requests wait."""

    def __init__(self, application: Any, directory: Path) -> None:
        self._application, self._directory = application, directory
        self._one_step = threading.Lock()

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        for hold in self._directory.glob("*.hold"):
            if re.search(_told(hold), request):
                hold.with_suffix(".held").write_text(request)
                while hold.exists():
                    time.sleep(0.02)
                start_response("503 Service Unavailable", [])
                return []
        for refusal in self._directory.glob("*.refuse"):
            pattern, status, code = _told(refusal).split("\n")
            if re.search(pattern, request):
                if not code:
                    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
                answer_text = f"<Error><Code>{code}</Code><Message>told to</Message></Error>".encode()
                start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(answer_text)))])
                return [b"" if environ["REQUEST_METHOD"] == "HEAD" else answer_text]
        is_conditional = not environ.keys().isdisjoint({"HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"})
        with self._one_step if is_conditional else nullcontext():
            answer: Iterable[bytes] = self._application(environ, start_response)
        return answer


def _told(file: Path) -> str:
    """What a file says; where it is gone meanwhile, a pattern that no request matches."""
    try:
        return file.read_text()
    except FileNotFoundError:
        return "(?!)\n\n"


def main() -> None:
    directory, age = Path(sys.argv[1]), timedelta(days=float(sys.argv[2]))
    now = moto.s3.models.utcnow

    def earlier() -> datetime:
        return now() - age

    def held(*arguments: Any) -> Held:
        return Held(DomainDispatcherApplication(*arguments), directory)

    moto.s3.models.utcnow = earlier
    moto.server.DomainDispatcherApplication = held  # type: ignore[misc, assignment]
    moto.server.main(["-H", "127.0.0.1", "-p", "0"])


if __name__ == "__main__":
    main()

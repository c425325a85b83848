"""moto's S3 server with two more properties: objects may be days old, and it holds requests back when it is told to.

    python -m tests.log.held_store DIRECTORY DAYS

A file ``NAME.hold`` in the directory has a pattern: the first request (``PUT /bucket/key?query``) that it matches is
told in ``NAME.held``, and waits, as do those behind it, until ``NAME.hold`` is gone. Then they fail: they never happen.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable
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

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        for hold in self._directory.glob("*.hold"):
            if re.search(hold.read_text(), request):
                hold.with_suffix(".held").write_text(request)
                while hold.exists():
                    time.sleep(0.02)
                start_response("503 Service Unavailable", [])
                return []
        answer: Iterable[bytes] = self._application(environ, start_response)
        return answer


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

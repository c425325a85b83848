"""A small object store on loopback that speaks as much of the S3 protocol as ``pyarrow.fs`` uses."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import IO
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "logs"


def _unchunked(stream: IO[bytes]) -> bytes:
    data = b""
    while size := int(stream.readline().split(b";")[0], 16):
        data += stream.read(size)
        stream.readline()
    while stream.readline().strip():
        pass
    return data


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        self.server.requests.append(f"{self.command} {self.path}")

    def _target(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.path)
        key = unquote(parts.path).removeprefix(f"/{BUCKET}").lstrip("/")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        return key, query

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = _unchunked(self.rfile)
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        # The client may sign chunk by chunk, which frames the content once more.
        return _unchunked(BytesIO(data)) if "x-amz-decoded-content-length" in self.headers else data

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        key, _ = self._target()
        data = self.server.objects.get(key) if key else b""
        if data is None:
            self._answer(404)
        else:
            self._answer(200, Content_Length=str(len(data)), ETag='"e"', Last_Modified=_DATE)

    def do_GET(self) -> None:
        key, query = self._target()
        if not key:
            self._answer(200, self._listing(query), Content_Type="application/xml")
            return
        data = self.server.objects.get(key)
        if data is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not wanted:
            self._answer(200, data, ETag='"e"', Last_Modified=_DATE)
            return
        start, end = int(wanted[1]), min(int(wanted[2] or len(data)), len(data) - 1)
        part = data[start : end + 1]
        self._answer(206, part, Content_Range=f"bytes {start}-{end}/{len(data)}", ETag='"e"')

    def _listing(self, query: dict[str, str]) -> bytes:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        keys, prefixes = [], set()
        for key in sorted(self.server.objects):
            if not key.startswith(prefix):
                continue
            inside, mark, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            if mark:
                prefixes.add(prefix + inside + delimiter)
            else:
                keys.append(key)
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.server.objects[key])}</Size>"
            f"<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>e</ETag></Contents>"
            for key in keys
        ) + "".join(
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(prefixes)
        )
        count = len(keys) + len(prefixes)
        return (
            f"<ListBucketResult><Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{count}</KeyCount>"
            f"<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>"
        ).encode()

    def do_PUT(self) -> None:
        key, query = self._target()
        body = self._body()
        if "partNumber" in query:
            self.server.parts[int(query["partNumber"])] = body
        else:
            self.server.objects[key] = body
        self._answer(200, ETag='"e"')

    def do_POST(self) -> None:
        key, query = self._target()
        body = self._body()
        if "delete" in query:
            for name in re.findall(rb"<Key>(.*?)</Key>", body):
                self.server.objects.pop(name.decode(), None)
            self._answer(200, b"<DeleteResult/>")
        elif "uploads" in query:
            self.server.parts.clear()
            self._answer(
                200,
                f"<InitiateMultipartUploadResult><Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key>"
                "<UploadId>1</UploadId></InitiateMultipartUploadResult>".encode(),
            )
        else:
            parts = self.server.parts
            self.server.objects[key] = b"".join(parts[number] for number in sorted(parts))
            self._answer(
                200,
                f"<CompleteMultipartUploadResult><Key>{escape(key)}</Key><ETag>e</ETag>"
                "</CompleteMultipartUploadResult>".encode(),
            )

    def do_DELETE(self) -> None:
        self.server.objects.pop(self._target()[0], None)
        self._answer(204)


_DATE = "Thu, 01 Jan 2026 00:00:00 GMT"


class _Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.parts: dict[int, bytes] = {}
        self.requests: list[str] = []


class ObjectStore:
    """``objects`` maps keys to bytes; :meth:`uri` names one."""

    def __init__(self, server: _Server) -> None:
        self.objects = server.objects
        self.requests = server.requests
        self._port = server.server_address[1]

    def uri(self, key: str) -> str:
        options = f"endpoint_override=127.0.0.1:{self._port}&scheme=http&region=us-east-1"
        return f"s3://key:secret@{BUCKET}/{key}?{options}"


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    server = _Server()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield ObjectStore(server)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

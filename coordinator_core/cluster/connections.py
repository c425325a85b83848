"""kafka-python's connections, receiving differently (``transport`` of ``REGROUP_PLAIN``).

CPU of receiving bytes that have arrived: 0.17 s/GB with it, 0.40 s/GB without.
"""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress
from functools import partial
from typing import Any

from kafka import errors as kafka_errors
from kafka.net.manager import KafkaConnectionManager

from coordinator_core.process.plain import is_plain

MOST_PAUSE_SECONDS = 600
"""Longer than a request quota throttles (a second by default), and than anybody waits for a byte rate."""
_PAUSE_SECONDS = 0.01
_RECEIVE_BYTES = 1 << 18
_NOTHING_YET = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Connections(KafkaConnectionManager):  # type: ignore[misc]
    """A connection manager whose transports receive much at a time, and lose nothing at the end, and which waits for
    connections that are paused, but not for ever for a broker that says nothing.

    In kafka-python 3.0 a transport takes 4 KiB at a time, and when the peer closes the connection it forgets the bytes
    that came just before: of a broker that refuses a login, the very answer that says so.
    """

    def __init__(self, net: Any, **configs: Any) -> None:
        super().__init__(net, **configs)
        if (context := self.config["ssl_context"]) is not None:
            seconds = self.config["socket_connection_setup_timeout_ms"] / 1000
            self.config["ssl_context"] = _Context(context, net, seconds)

    async def send_in_turn(self, request: Any, node_id: Any = None) -> Any:
        """The answer to a request that waits while its connection is paused: throttled by a quota, or with as many
        requests under way as may be. ``send`` refuses it then, as if the broker were not there."""
        waits_until = time.monotonic() + MOST_PAUSE_SECONDS
        while (conn := self._conns.get(node_id)) is not None and conn.connected and conn.paused:
            if time.monotonic() > waits_until:
                raise kafka_errors.KafkaTimeoutError(f"the connection is paused for {MOST_PAUSE_SECONDS} s")
            await self._net.sleep(_PAUSE_SECONDS)
        return await self.send(request, node_id)

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at=timeout_at)
        if not is_plain("transport"):
            transport._sock_recv = partial(_receive, transport)
        return transport


class _Context:
    """A TLS context for kafka-python, which waits without a limit for the answer to its part of a handshake.

    A socket of which the handshake takes longer than ``seconds`` is shut down, and the handshake fails.
    """

    def __init__(self, context: ssl.SSLContext, net: Any, seconds: float) -> None:
        self._context, self._net, self._seconds = context, net, seconds

    def wrap_socket(self, plain: socket.socket, **options: Any) -> ssl.SSLSocket:
        found = self._context.wrap_socket(plain, **options)
        self._net.call_later(self._seconds, lambda: _end_handshake(found))
        return found


def _end_handshake(found: ssl.SSLSocket) -> None:
    # Before the end of the handshake there is no version. SSLSocket's own shutdown would take away what it needs.
    if found.version() is None:
        with suppress(OSError):
            socket.socket.shutdown(found, socket.SHUT_RDWR)


def _receive(transport: Any) -> tuple[bytes, kafka_errors.KafkaConnectionError | None]:
    """Bytes that have arrived; an error only when there are none."""
    parts: list[bytes] = []
    error = None
    while error is None:
        try:
            part = transport._sock.recv(_RECEIVE_BYTES)
        except _NOTHING_YET:
            break
        except OSError as problem:
            error = kafka_errors.KafkaConnectionError(problem)
        else:
            if part:
                parts.append(part)
            else:
                error = kafka_errors.KafkaConnectionError("socket disconnected")
    return b"".join(parts), None if parts else error

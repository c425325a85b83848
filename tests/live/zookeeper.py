"""The ZooKeeper that brokers before KRaft need, from their own jars."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

from tests.live.broker import Kafka, free_ports, wait_for


class ZooKeeper:
    """One on loopback, with its files in ``directory``; ``lines`` are more of its configuration."""

    def __init__(self, kafka: Kafka, directory: Path, lines: str = "") -> None:
        (port,) = free_ports(1)
        self.connect = f"127.0.0.1:{port}"
        self._port = port
        self._kafka = kafka
        self._log = directory / "zookeeper.log"
        self._config = directory / "zookeeper.cfg"
        self._process: subprocess.Popen[bytes] | None = None
        data = directory / "zookeeper"
        data.mkdir(exist_ok=True)
        self._config.write_text(
            f"dataDir={data}\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
            f"4lw.commands.whitelist=dump\n{lines}"
        )

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._process is None:
            command = self._kafka.command("org.apache.zookeeper.server.ZooKeeperServerMain", str(self._config))
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def wait_until_gone(self, node: str) -> None:
        """Wait until no session holds the ephemeral node: that of a killed broker outlives the broker."""
        wait_for(f"the end of the session that holds {node}", lambda: self._is_gone(node))

    def _is_gone(self, node: str) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), 30) as connection:
                connection.sendall(b"dump")
                with connection.makefile() as answer:
                    text = answer.read()
        except OSError:
            return False
        # While it reads its data it answers something else.
        return "ephemeral nodes dump" in text and node not in text.split()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

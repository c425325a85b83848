"""The ZooKeeper that brokers before KRaft need, from their own jars."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.live.broker import Kafka, free_ports


class ZooKeeper:
    """One on loopback, with its files in ``directory``; ``lines`` are more of its configuration."""

    def __init__(self, kafka: Kafka, directory: Path, lines: str = "") -> None:
        (port,) = free_ports(1)
        self.connect = f"127.0.0.1:{port}"
        self._kafka = kafka
        self._log = directory / "zookeeper.log"
        self._config = directory / "zookeeper.cfg"
        self._process: subprocess.Popen[bytes] | None = None
        data = directory / "zookeeper"
        data.mkdir(exist_ok=True)
        self._config.write_text(
            f"dataDir={data}\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n{lines}"
        )

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._process is None:
            command = self._kafka.command("org.apache.zookeeper.server.ZooKeeperServerMain", str(self._config))
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

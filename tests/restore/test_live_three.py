"""An apply on three 4.3.1 brokers of which one is killed while it writes: coordinators move, and it goes on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from coordinator_core.errors import ExitCode
from tests.cluster.kit import TOPIC
from tests.cluster.three import IDS, three_brokers
from tests.drill.kit import signalled
from tests.live.broker import Kafka
from tests.restore.kit import regroup

GROUPS, OFFSETS_PER_GROUP = 200, 4
SETTINGS = {"offsets.topic.num.partitions": "6", "min.insync.replicas": "1"}


def test_a_broker_that_dies_meanwhile(tmp_path: Path) -> None:
    with three_brokers(Kafka.fetch(), tmp_path / "brokers", SETTINGS) as (cluster, _):
        server = ("--bootstrap-server", cluster.bootstrap)
        rows = [
            f"group-{group:03},{TOPIC},{number},0\n" for group in range(GROUPS) for number in range(OFFSETS_PER_GROUP)
        ]
        (tmp_path / "wanted.csv").write_text("".join(rows))
        plan, directory = tmp_path / "plan.json", tmp_path / "applied"
        regroup("restore", "plan", "--from-file", tmp_path / "wanted.csv", *server, "--output", plan)
        apply = ["restore", "apply", str(plan), *server, "--execute", "--output", str(directory), "--parallel", "1"]
        process = signalled(GROUPS // 2, "after", signal.SIGSTOP, *apply)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        lost = cluster.leaders()[0]
        cluster.nodes[lost].kill()
        process.send_signal(signal.SIGCONT)
        code = process.wait(180)
        asked = next(node for node in IDS if node != lost)
        cluster.when_led(asked, lambda leader: leader not in (-1, lost))
        if code == ExitCode.APPLY_FAILED:
            regroup(*apply)
        else:
            assert code == ExitCode.CLEAN
        done = regroup("restore", "verify", directory, *server, "--format", "json")
        proof = json.loads(done.stdout)
        assert proof["verified"]
        assert len(proof["records"]) == GROUPS * OFFSETS_PER_GROUP

"""A log made of records under Spark: refused, or with the state and the damage of the local engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_core.errors import DamagedInputError
from coordinator_core.ingest.publish import IsolationLevel, import_records
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace
from spark_apps.engine import replay
from spark_apps.session import Session

from ..cases import case
from ..ingest.dumps import consumed, write


def test_spark_reads_records_as_the_local_engine_does(session: Session, tmp_path: Path) -> None:
    dump = write(tmp_path / "dump.parquet", consumed(case("k431-txn").paths[0], "read_uncommitted"))
    import_records([str(dump)], str(tmp_path / "log"), IsolationLevel.READ_UNCOMMITTED)
    snapshot = discover([str(tmp_path / "log")])
    profile = profile_for_release("4.3.1")

    def place(run_id: str) -> RunPlace:
        return RunPlace(str(tmp_path / "runs"), "c", "w", run_id)

    with pytest.raises(DamagedInputError, match="transactions_unknown"):
        replay(session, snapshot, place("refused"), profile=profile, now_ms=0)
    on_damage = OnDamage.RECOVER
    spark = replay(session, snapshot, place("spark"), profile=profile, now_ms=0, on_damage=on_damage)
    local = replay_to_run(snapshot, place("local"), profile=profile, now_ms=0, on_damage=on_damage)
    assert spark["state_hash"] == local["state_hash"]
    assert spark["damage"] == local["damage"]
    assert (spark["complete"], len(spark["damage"])) == (False, len(snapshot.partitions))

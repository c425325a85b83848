"""Sweeps of 3.7.2, 3.9.2 (both coordinators) and 4.1.1 brokers over random groups, recorded once."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from coordinator_core.lifecycle.expiry import plan_expiry
from coordinator_core.lifecycle.plan import ExpiryPlan, TombstoneKind
from coordinator_core.releases import profile_for_release
from tests.lifecycle.sweeps import batches_of, logs, state_before, sweeps_of

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("recorded", sorted(DATA.glob("*.json")), ids=lambda path: path.stem)
def test_a_recorded_sweep_is_planned(recorded: Path, tmp_path: Path) -> None:
    document = json.loads(recorded.read_text(encoding="utf-8"))
    profile = profile_for_release(document["kafka"], document["coordinator"])
    segment = tmp_path / "__consumer_offsets-0" / "00000000000000000000.log"
    segment.parent.mkdir()
    segment.write_bytes(gzip.decompress(recorded.with_suffix(".log.gz").read_bytes()))
    (log,) = logs([str(tmp_path)]).values()
    batches = batches_of(log)

    def plan_at(offset: int, now_ms: int) -> ExpiryPlan:
        state = state_before(batches, offset, profile, 0)
        return plan_expiry(state, profile, now_ms=now_ms, offsets_retention_ms=document["offsets_retention_ms"])

    sweeps = sweeps_of(batches, document["loaded_end_offset"])
    written = [key for sweep in sweeps for key in sweep.keys]
    planned = plan_at(document["loaded_end_offset"], document["end_ms"])
    # What one sweep leaves to the next is in the forecast a millisecond later.
    soon = [item for item in planned.forecast if item.expires_at_ms <= document["end_ms"] + 1]
    assert sorted(written) == sorted(item.key for item in (*planned.tombstones, *soon))
    assert len(written) > 80
    assert {item.kind for item in soon} <= set(TombstoneKind) - {TombstoneKind.OFFSET}
    assert bool(soon) == (recorded.stem == "3.9.2-new")
    for sweep in sweeps:
        assert sweep.keys <= {item.key for item in plan_at(sweep.base_offset, sweep.last_ms).tombstones}

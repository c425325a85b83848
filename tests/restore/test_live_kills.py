"""Applies and rollbacks killed again and again: they go on with nothing lost and nothing written twice."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path

from tests.drill.kit import signalled
from tests.restore.kit import PARTITIONS, TOPIC, Place, offsets_of, plan_of, regroup

SEED, KILLS = 20261123, 30


def test_killed_at_30_points(place: Place, tmp_path: Path) -> None:
    groups = [f"many-{number:03}" for number in range(90)]
    for number, group in enumerate(groups[::3]):
        place.commit(group, offsets_of(number))
    before = place.held(*groups)
    csv = "".join(f"{group},{TOPIC},{number},{40 + number}\n" for group in groups for number in range(PARTITIONS))
    (tmp_path / "wanted.csv").write_text(csv)
    plan_of(place, "--from-file", tmp_path / "wanted.csv", output=tmp_path / "plan.json")
    chance = random.Random(SEED)
    apply_killed(place, tmp_path / "plan.json", tmp_path / "applied", KILLS // 2, chance)
    proof = json.loads(regroup("restore", "verify", tmp_path / "applied", *place.server, "--format", "json").stdout)
    assert proof["verified"]
    assert len(proof["records"]) == len(groups) * PARTITIONS
    after = place.held(*groups)
    assert {group: {key: offset[0] for key, offset in held.items()} for group, held in after.items()} == {
        group: {(TOPIC, number): 40 + number for number in range(PARTITIONS)} for group in groups
    }
    regroup("restore", "rollback", tmp_path / "applied", *place.server, "--output", tmp_path / "back.json")
    apply_killed(place, tmp_path / "back.json", tmp_path / "back", KILLS // 2, chance)
    regroup("restore", "verify", tmp_path / "back", *place.server)
    assert place.held(*groups) == before


def apply_killed(place: Place, plan: Path, directory: Path, kills: int, chance: random.Random) -> None:
    """A plan applied, killed at so many points, and then to its end."""
    command = ["restore", "apply", plan, *place.server, "--execute", "--output", directory, "--parallel", "2"]
    for _ in range(kills):
        event, moment = chance.randint(1, 11), chance.choice(("before", "after"))
        assert signalled(event, moment, signal.SIGKILL, *command).wait() == -signal.SIGKILL
    regroup(*command)

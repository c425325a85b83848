"""Inputs that found something stay found; and a short campaign, with whatever kernels these tests run on."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from coordinator_core import storage
from tests.fuzz import campaign, corpus
from tests.fuzz.campaign import FAMILY, Input, Outcome
from tests.fuzz.checks import WrongResultError, file_of
from tests.fuzz.hostile import Hostile
from tests.fuzz.segments import entries_of, pieces, resealed, segment
from tests.fuzz.shrink import shrunk
from tests.fuzz.targets import TARGETS, Target

every_target = pytest.mark.parametrize("target", TARGETS)
INPUTS = {
    "capture": 24,
    "fold": 200,
    "groups": 200,
    "shifting_fold": 200,
    "inference": 400,
    "commands": 200,
    "partition": 60,
    "run_directory": 48,
    "run_tables": 12,
    "cluster_file": 300,
    "traces": 64,
    "agreement": 6,
    "rearranged": 40,
}
"""Inputs of targets that take milliseconds for each; others have ``SHORT`` inputs."""
SHORT = 2_000
FEWEST = 4
SLOW = {"run_tables"}
"""Targets of the full tier: there are few inputs that go two ways, and each takes a second."""


def found(outcome: Outcome) -> list[str]:
    return [f"{each.target} {each.number}: {each.report}" for each in outcome.findings]


@pytest.mark.parametrize(
    ("target", "share"),
    [
        pytest.param(
            target, share, id=f"{name}-{target}", marks=pytest.mark.full if share == 1 or target in SLOW else ()
        )
        for target in TARGETS
        for share, name in ((8, "an eighth"), (1, "all"))
    ],
)
def test_a_short_campaign(target: str, share: int) -> None:
    inputs = INPUTS.get(target, SHORT)
    # Fewer inputs go one way in some targets.
    outcome = campaign.run(target, 20261122, range(min(inputs, max(10 if target in SLOW else FEWEST, inputs // share))))
    assert found(outcome) == []
    # Inputs go different ways: a target that sees one word only is fed nothing that counts.
    assert len(outcome.counts[target]) > 1


@pytest.mark.parametrize("path", corpus.files(), ids=lambda path: path.name)
@pytest.mark.parametrize(
    ("seeds", "everywhere"),
    [
        ((), False),
        pytest.param((), True, marks=pytest.mark.full),
        pytest.param((1, 2, 3), True, marks=pytest.mark.full),
    ],
    ids=["its target", "all targets", "other seeds"],
)
def test_what_was_found_before(path: Path, seeds: tuple[int, ...], everywhere: bool) -> None:
    """By the target that found it; *full* by every one."""
    given = corpus.read(path)
    own = path.name.partition(".")[0]
    assert own in TARGETS
    for target in [name for name in TARGETS if not seeds or TARGETS[name].share > 0.0005] if everywhere else [own]:
        for seed in seeds or (given.seed,):
            _, report = campaign.failure_of(target, Input(given.data, seed))
            assert report is None, f"{target} {seed}: {report}"


# The fuzzer itself


@every_target
def test_an_input_is_known_by_its_number(target: str) -> None:
    several = list(campaign.inputs(target, 5, range(FAMILY - 2, FAMILY + 3)))
    assert several == [campaign.input_of(target, 5, number) for number in range(FAMILY - 2, FAMILY + 3)]
    assert campaign.input_of(target, 6, FAMILY) != several[2]


def test_real_batches_are_among_the_inputs() -> None:
    entries = [entry for piece in pieces() for entry in piece]
    assert {entry[16] for entry in entries} == {0, 1, 2}
    # All but those of the torn logs.
    assert sum(resealed(entry) == entry for entry in entries) > 0.95 * len(entries)


def test_a_hostile_segment_is_mostly_sound_batches() -> None:
    sizes = [len(segment(Hostile(number))) for number in range(200)]
    whole = [sum(map(len, entries_of(segment(Hostile(number))))) for number in range(200)]
    assert sum(map(int.__eq__, sizes, whole)) > len(sizes) / 2


def _fails_at_a_seven(data: bytes, choices: Random) -> str:
    del choices
    if b"\7" in data:
        raise WrongResultError("a seven")
    return "none"


@pytest.fixture
def target_that_fails(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(TARGETS, "sevens", Target(_fails_at_a_seven, 0.1))
    return "sevens"


def test_findings_are_counted_and_named(target_that_fails: str) -> None:
    outcome = campaign.run_in_processes({target_that_fails: 300}, seed=1, jobs=2)
    assert outcome.total() == 300
    assert 0 < len(outcome.findings) == outcome.counts[target_that_fails]["found"]
    ((target, kind),) = outcome.kinds()
    assert (target, "a seven" in kind) == (target_that_fails, True)
    number = outcome.findings[0].number
    assert b"\7" in campaign.input_of(target_that_fails, 1, number).data


def _dies_at_number_3(data: bytes, choices: Random) -> str:
    del data
    if choices.random() == Random(campaign.input_of("deadly", 1, 3).seed).random():
        os._exit(7)
    return "alive"


def test_a_process_that_dies_is_a_finding_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "deadly", Target(_dies_at_number_3, 0.1))
    outcome = campaign.run_in_processes({"deadly": 40}, seed=1, jobs=1)
    assert [each.number for each in outcome.findings] == [3]
    assert "ended the process" in outcome.findings[0].report
    assert outcome.total() == 40


def _hangs_at_number_2(data: bytes, choices: Random) -> str:
    del data
    is_endless = choices.random() == Random(campaign.input_of("endless", 1, 2).seed).random()
    while is_endless:
        pass
    return "ended"


def test_an_input_without_an_end_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "endless", Target(_hangs_at_number_2, 0.1))
    monkeypatch.setattr(campaign, "HANGS_AFTER_S", 1)
    outcome = campaign.run_in_processes({"endless": 5}, seed=1, jobs=1)
    assert [(each.number, each.report) for each in outcome.findings] == [(2, "took too long")]
    assert outcome.total() == 5


def test_an_input_shrinks_to_what_fails(target_that_fails: str) -> None:
    data = bytes(range(100)) + bytes(50)
    assert shrunk(target_that_fails, Input(data, 1)).data == b"\7"


def test_a_file_of_the_corpus_comes_back(tmp_path: Path) -> None:
    given = Input(b"bytes", 1 << 70)
    assert corpus.read(corpus.write(tmp_path, "name", given)) == given


def test_a_file_changes_from_read_to_read() -> None:
    with file_of(b"one", b"two"):
        assert [bytes(storage.read("any")) for _ in range(3)] == [b"one", b"two", b"two"]

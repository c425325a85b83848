"""Functions in several processes: results in order, errors as they were raised, nothing left running."""

from __future__ import annotations

import os
import resource
import signal
from multiprocessing import active_children

import pytest

from coordinator_core.errors import Damage, DamagedInputError, RegroupError
from coordinator_core.process.workers import in_workers

DAMAGE = Damage("00000000000000000000.log", 17, 3, "crc", "the checksum is another one")


def _process_id(_: int) -> int:
    return os.getpid()


def _square(number: int) -> int:
    return number * number


def _find_damage(number: int) -> int:
    if number == 2:
        raise DamagedInputError(DAMAGE)
    return number


def _be_killed(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_results_come_in_order_from_other_processes() -> None:
    assert list(in_workers(_square, range(20), 2)) == [_square(number) for number in range(20)]
    assert os.getpid() not in set(in_workers(_process_id, range(4), 2))
    assert set(in_workers(_process_id, range(4), 1)) == {os.getpid()}
    assert not active_children()


def test_errors_come_through_and_end_the_processes() -> None:
    results = in_workers(_find_damage, range(9), 2)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(DamagedInputError) as raised:
        next(results)
    assert raised.value.damage == DAMAGE
    for child in active_children():
        child.join(60)
    assert not active_children()


@pytest.mark.parametrize("more_files", [3, 8, 13, 20])
def test_where_files_are_too_few_this_process_does_it(more_files: int) -> None:
    """Also if some of the processes were started."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + more_files, limits[1]))
    try:
        found = list(in_workers(_square, range(4), 2))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert found == [0, 1, 4, 9]
    assert not active_children()


def test_a_killed_process_is_an_error() -> None:
    with pytest.raises(RegroupError, match="was killed"):
        list(in_workers(_be_killed, range(4), 2))

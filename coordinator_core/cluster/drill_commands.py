"""The operator's commands, which break the cluster and mend it; and interruptions of a drill."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

from coordinator_core.errors import ExitCode, RegroupError

_OUTPUT_CHARACTERS = 4000


class DrillError(RegroupError):
    """The drill could not be done: the fault was not caused, or the cluster is not as it was before."""

    exit_code = ExitCode.APPLY_FAILED


class InterruptedDrillError(DrillError):
    """Somebody wants the drill to end."""


@dataclass(frozen=True, slots=True)
class Ended:
    """End of a command. ``exit_code`` is ``None`` when it took too long and was killed.

    ``output`` is the end of its output.
    """

    exit_code: int | None
    output: str

    @property
    def well(self) -> bool:
        return self.exit_code == 0

    @property
    def how(self) -> str:
        """The end of the command in words, for messages."""
        code = "took too long" if self.exit_code is None else f"exit code {self.exit_code}"
        return f"{code}: {self.output.strip()}" if self.output.strip() else code


def run_command(command: str, seconds: float) -> Ended:
    """Runs ``command`` with ``/bin/sh``, in a session of its own; kills it when it takes too long.

    It is killed, too, when the drill is interrupted meanwhile.
    """
    process = subprocess.Popen(
        command,
        shell=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    exit_code: int | None = None
    try:
        # Its output is read by a thread: processes that it leaves in the background may keep the pipe open.
        parts: list[bytes] = []
        assert process.stdout is not None
        stream = process.stdout
        reader = threading.Thread(target=lambda: parts.extend(iter(lambda: os.read(stream.fileno(), 65536), b"")))
        reader.daemon = True
        reader.start()
        with suppress(subprocess.TimeoutExpired):
            exit_code = process.wait(seconds)
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    reader.join(1)
    return Ended(exit_code, b"".join(parts).decode("utf-8", "replace")[-_OUTPUT_CHARACTERS:])


def kill_processes(pids: tuple[int, ...]) -> Ended:
    """SIGKILL to each process."""
    problems = []
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError as error:
            problems.append(f"process {pid}: {error.strerror}")
    return Ended(1 if problems else 0, "; ".join(problems))


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGINT raise :class:`InterruptedDrillError` in the main thread while the block runs."""

    def interrupt(number: int, _: FrameType | None) -> None:
        raise InterruptedDrillError(f"interrupted by {signal.Signals(number).name}")

    with _handling(interrupt):
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """SIGTERM and SIGINT do nothing while the block runs: only SIGKILL ends a recovery half-way."""
    with _handling(lambda *_: None):
        yield


@contextmanager
def _handling(handler: object) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        # Signals go to the main thread, which has its own mind about them.
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)}  # type: ignore[arg-type]
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)

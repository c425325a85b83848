"""A drill on a real cluster: steady state, fault, observation, recovery, all of it in the journal."""

from __future__ import annotations

import hashlib
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from coordinator_core import __version__, storage
from coordinator_core.cluster.client import Client
from coordinator_core.cluster.drill_commands import (
    DrillError,
    InterruptedDrillError,
    interruptible,
    kill_processes,
    run_command,
    undisturbed,
)
from coordinator_core.cluster.drill_probes import Canaries
from coordinator_core.cluster.drill_restore import clean_up, recover_cluster
from coordinator_core.cluster.drill_states import committed, note_states, rebalancing
from coordinator_core.cluster.drill_tail import Pin, gained, pins
from coordinator_core.cluster.drill_watch import Watch
from coordinator_core.cluster.settings import ClientSettings
from coordinator_core.drill.canaries import canaries
from coordinator_core.drill.events import Outcome
from coordinator_core.drill.journal import JOURNAL, JOURNAL_VERSION, Journal, JournalWriteError, journal_bytes
from coordinator_core.drill.load_lines import load_lines
from coordinator_core.drill.model import Prediction
from coordinator_core.drill.shared_journal import open_journal
from coordinator_core.drill.verdict import hypothesis
from coordinator_core.errors import RegroupError, UsageError
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.topology import TopicInfo

_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class DrillOptions:
    """Options of a drill: commands, times to wait.

    The fault is ``fault_command``, or SIGKILL to ``pids``. After it the drill observes for at least
    ``observe_seconds`` and until all is served again, at most ``limit_seconds``; as long it waits for a
    steady state before, and for replicas to be in sync after the recovery. ``server_logs`` are files by
    broker. ``interval_seconds`` is between rounds of probes and looks.
    """

    recover_command: str
    fault_command: str | None = None
    pids: tuple[int, ...] = ()
    observe_seconds: float = 30.0
    limit_seconds: float = 300.0
    command_seconds: float = 600.0
    interval_seconds: float = 0.5
    probe_timeout_seconds: float = 5.0
    server_logs: Mapping[int, Path] = field(default_factory=dict)
    allow_under_replicated: bool = False


def observe(
    settings: ClientSettings, prediction: Prediction, output: str | Path, options: DrillOptions
) -> tuple[Outcome, str | None, bool]:
    """Do the drill and write ``output/journal.jsonl``. Returns outcome, reason, and whether all was recovered.

    ``output`` is a local path or a URI. ``UsageError`` when it has a journal already, and for the prediction of another
    cluster. A fault is always followed by the recovery.
    """
    if bool(options.fault_command) == bool(options.pids):
        raise UsageError("a drill needs either --fault-command or --pid")
    prediction.check_led()
    output = str(output)
    storage.make_directory(output)
    path = storage.join(output, JOURNAL)
    timeout_ms = round(options.probe_timeout_seconds * 1000)
    probing = replace(
        settings,
        api_timeout_seconds=options.probe_timeout_seconds,
        client={
            **settings.client,
            "request_timeout_ms": timeout_ms,
            # Else 10 s, and up to 30 s after several failures: a broker that stands still takes connections.
            "socket_connection_setup_timeout_ms": timeout_ms,
            "socket_connection_setup_timeout_max_ms": timeout_ms,
            # The queue has room for the probes of all partitions.
            "max_in_flight_requests_per_connection": 1 << 20,
        },
    )
    with ExitStack() as stack:
        stack.enter_context(interruptible())
        journal = stack.enter_context(open_journal(path))
        if journal_bytes(path):
            raise UsageError(f"{path}: is the journal of an earlier drill")
        client = stack.enter_context(Client(settings))
        prediction.check_cluster(client.cluster_id, ",".join(settings.bootstrap_servers))
        probes = stack.enter_context(Client(probing))
        return _Drill(client, probes, settings, prediction, output, options, journal).run()


class _Drill:
    def __init__(
        self,
        client: Client,
        probes: Client,
        settings: ClientSettings,
        prediction: Prediction,
        output: str,
        options: DrillOptions,
        journal: Journal,
    ) -> None:
        self._client = client
        self._prediction = prediction
        self._output = output
        self._options = options
        self._note = journal.write
        self._info = client.topic(OFFSETS_TOPIC)
        prediction.check_partitions([each.partition for each in self._info.partitions])
        self._pins: dict[int, Pin] = {}
        self._log_positions: dict[int, int] = {}
        numbers = [each.partition for each in self._info.partitions]
        drill_id = uuid.uuid4().hex[:8]
        self._canary_groups = canaries(drill_id, numbers, len(numbers))
        self._canaries = Canaries(probes, self._canary_groups, self._note, options.interval_seconds)
        self._probes = probes
        self._watch: Watch | None = None
        self._begin(drill_id, settings)

    def _begin(self, drill_id: str, settings: ClientSettings) -> None:
        prediction = self._prediction
        text = repr(prediction.to_json()).encode("utf-8", "surrogatepass")
        self._note(
            "drill",
            journal_version=JOURNAL_VERSION,
            regroup_version=__version__,
            drill_id=drill_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            bootstrap_server=",".join(settings.bootstrap_servers),
            cluster_id=self._client.cluster_id,
            scenario=str(prediction.scenario),
            predicted_at_ms=prediction.predicted_at_ms,
            prediction_hash=hashlib.sha256(text).hexdigest()[:16],
            fault_command=self._options.fault_command,
            pids=list(self._options.pids),
            recover_command=self._options.recover_command,
            canaries=[asdict(each) for each in self._canary_groups],
        )
        self._note("hypothesis", text=hypothesis(prediction))

    def run(self) -> tuple[Outcome, str | None, bool]:
        outcome, reason, recovered = Outcome.FAILED, None, True
        try:
            self._canaries.start()
            problems = self._unsteady()
            self._note("steady_state", steady=not problems, problems=problems)
            if problems:
                outcome, reason = Outcome.NOT_STEADY, "; ".join(problems)
            else:
                self._before()
                recovered = False
                try:
                    outcome, reason = self._fault_and_observe()
                finally:
                    with undisturbed():
                        recovered = self._recover()
        except InterruptedDrillError as error:
            outcome, reason = Outcome.INTERRUPTED, str(error)
        except RegroupError as error:
            outcome, reason = Outcome.FAILED, str(error)
        finally:
            with undisturbed():
                self._end(outcome, reason, recovered)
        return outcome, reason, recovered

    def _wait(self, seconds: float, ready: Callable[[], bool]) -> bool:
        """Whether ``ready()`` became true in time. Raises what has ended a canary, or the watch."""
        deadline = time.monotonic() + seconds
        while not ready():
            self._canaries.check_going_on()
            if self._watch is not None:
                self._watch.check_going_on()
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    # Before

    def _unsteady(self) -> list[str]:
        """Deviations from the state that the prediction begins with; empty once there are none."""
        problems: list[str] = []

        def steady() -> bool:
            nonlocal problems
            problems = self._problems()
            return not problems

        self._wait(self._options.limit_seconds, steady)
        return problems

    def _problems(self) -> list[str]:
        self._canaries.check_rights()
        self._info = self._client.topic(OFFSETS_TOPIC)
        return unlike_predicted(
            self._info, self._prediction, allow_under_replicated=self._options.allow_under_replicated
        ) + [
            f"{OFFSETS_TOPIC}-{each.partition}: the canary is not served"
            for each in self._info.partitions
            if each.leader >= 0 and not self._canaries.served(each.partition)
        ]

    def _before(self) -> None:
        self._pins = pins(self._client, self._info)
        groups = note_states(
            self._client,
            self._note,
            "before",
            {number: pin.end_offset for number, pin in self._pins.items()},
            expected=[group.group_id for group in self._prediction.groups],
        )
        if (moving := rebalancing(groups)) is not None:
            raise DrillError(moving)
        self._log_positions = {broker: path.stat().st_size for broker, path in self._options.server_logs.items()}
        self._watch = Watch(self._probes, self._info, committed(groups), self._note, self._options.interval_seconds)
        self._watch.start()

    # The fault

    def _fault_and_observe(self) -> tuple[Outcome, str | None]:
        options = self._options
        began = time.monotonic()
        self._note("method", stage="begins", command=options.fault_command, pids=list(options.pids))
        if options.fault_command:
            ended = run_command(options.fault_command, options.command_seconds)
        else:
            ended = kill_processes(options.pids)
        self._note("method", stage="ended", **asdict(ended))
        if not ended.well:
            return Outcome.FAILED, f"the fault: {ended.how}"
        self._canaries.begin_again()
        time.sleep(max(0.0, options.observe_seconds - (time.monotonic() - began)))
        settled = self._wait(options.limit_seconds, self._settled)
        self._note("settled", settled=settled, phase="fault")
        self._after("fault")
        if not settled:
            return Outcome.OBSERVED, f"not all was served again within {options.limit_seconds:g} s"
        return Outcome.OBSERVED, None

    def _settled(self) -> bool:
        """Every partition that is to have a leader has one, and its canary is served."""
        lost = {number for number, leader in self._prediction.last_leaders().items() if leader is None}
        watch = self._watch
        assert watch is not None
        return all(
            self._canaries.served(each.partition) and each.leader >= 0
            for each in watch.partitions.values()
            if each.partition not in lost
        )

    def _after(self, phase: str) -> None:
        assert self._watch is not None
        info = self._client.topic(OFFSETS_TOPIC)
        if all(each.leader >= 0 for each in info.partitions):
            self._watch.look_until_all_answer(self._options.limit_seconds)
        with storage.directory_of(storage.join(self._output, "gained", phase)) as directory:
            tails = gained(self._client, info, self._pins, directory)
        for tail in tails:
            self._note(
                "log",
                phase=phase,
                offsets_partition=tail.offsets_partition,
                pinned_end_offset=self._pins[tail.offsets_partition].end_offset,
                shared_end_offset=tail.shared_end,
                end_offset=tail.end_offset,
            )
            for generation in tail.generations:
                self._note("generation", phase=phase, **asdict(generation))
        self._note_loads(phase)
        note_states(self._client, self._note, phase, {tail.offsets_partition: tail.end_offset for tail in tails})

    def _note_loads(self, phase: str) -> None:
        """Loads in the brokers' logs since the last call; from the beginning where a log was begun anew."""
        for broker, path in self._options.server_logs.items():
            try:
                with path.open("rb") as file:
                    size = file.seek(0, os.SEEK_END)
                    position = self._log_positions.get(broker, 0)
                    file.seek(position if position <= size else 0)
                    text = file.read().decode("utf-8", "replace")
                    self._log_positions[broker] = file.tell()
            except OSError as error:
                self._note("trouble", text=f"log of broker {broker}: {error}")
                continue
            for line in load_lines(text.splitlines()):
                self._note("load", phase=phase, broker=broker, **asdict(line))

    # The recovery

    def _recover(self) -> bool:
        recovered = recover_cluster(
            lambda: self._client,
            self._note,
            self._options.recover_command,
            in_sync_before={each.partition: set(each.isr) for each in self._info.partitions},
            command_seconds=self._options.command_seconds,
            limit_seconds=self._options.limit_seconds,
            by="the drill",
        )
        if recovered:
            try:
                self._canaries.begin_again()
                self._wait(self._options.limit_seconds, self._settled)
                self._after("recovered")
            except RegroupError as error:
                # The end tells of a journal that cannot be written to, and that the cluster is as it was.
                with suppress(JournalWriteError):
                    self._note("trouble", text=f"after the recovery: {error}")
        return recovered

    def _end(self, outcome: Outcome, reason: str | None, recovered: bool) -> None:
        self._canaries.stop()
        if self._watch is not None:
            self._watch.stop()
        try:
            clean_up(self._client, self._note, [each.group_id for each in self._canary_groups])
            self._note("verdict", outcome=outcome.value, reason=reason, recovered=recovered)
        except JournalWriteError as error:
            state = "the cluster is as it was" if recovered else "drill recover tells whether the cluster is as it was"
            raise JournalWriteError("; ".join(filter(None, [str(error), reason, state]))) from None


def unlike_predicted(info: TopicInfo, prediction: Prediction, *, allow_under_replicated: bool = False) -> list[str]:
    """Deviations of the offsets topic from the prediction: leaders, and replicas out of sync.

    Where an unclean election is predicted, some are.
    """
    expected = prediction.first_leaders()
    lenient = allow_under_replicated or prediction.scenario.unclean
    found = []
    for each in info.partitions:
        name = f"{OFFSETS_TOPIC}-{each.partition}"
        predicted = expected.get(each.partition, each.leader)
        if each.leader != predicted:
            now = "has no leader" if each.leader < 0 else f"is led by {each.leader}"
            found.append(f"{name} {now}, the prediction has {predicted}")
        if not lenient and set(each.isr) != set(each.replicas):
            found.append(f"{name}: only {list(each.isr)} of replicas {list(each.replicas)} are in sync")
    return found

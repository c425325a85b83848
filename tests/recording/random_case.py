"""``python -m tests.recording.random_case RELEASE SEED DIRECTORY``: a case of a random script, compared at once.

Differences that it finds are to be stored as small tests; the case itself is not kept.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

from tests.live.broker import now_ms
from tests.recording import answers as answering
from tests.recording import session as asking
from tests.recording.__main__ import NO_SWEEP, SWEEPS, Recording
from tests.recording.answers import answers
from tests.recording.brokers import RELEASES, Recorded, RecordedBroker
from tests.recording.random_script import RandomScript


class RandomRecording(Recording):
    """With other counts of partitions, codecs, segments of some records, and a cleaner that runs."""

    def __init__(self, recorded: Recorded, output: Path, scratch: Path, seed: int) -> None:
        super().__init__(recorded, output, scratch)
        self._seed = seed

    def record(self) -> None:
        chosen = random.Random(self._seed)
        partitions = chosen.choice((1, 2, 3, 7, 11))
        answering.OFFSETS_PARTITIONS = partitions
        asking.ANSWER_SECONDS = 8.0
        settings = {**NO_SWEEP, "offsets.topic.num.partitions": str(partitions)}
        if chosen.random() < 0.7:
            settings["log.roll.ms"] = str(chosen.choice((700, 2000, 5000)))
        if chosen.random() < 0.7:
            settings |= {
                "log.cleaner.backoff.ms": "300",
                "log.cleaner.min.cleanable.ratio": "0.01",
                "log.cleaner.delete.retention.ms": chosen.choice(("0", "2000", "86400000")),
            }
        if self._recorded.release < (0, 10, 1):
            settings |= {"auto.create.topics.enable": "true", "num.partitions": "4"}
        self._reload = {"offsets.topic.num.partitions": str(partitions), "log.cleaner.enable": "false"}
        broker = RecordedBroker(self._recorded, self._kafka, self._scratch / "broker", settings)
        print(self._recorded.version, self._seed, settings, flush=True)

        def restart(how: random.Random) -> None:
            newest = 4 if self._recorded.release >= (2, 1) else 3
            codec = {"offsets.topic.compression.codec": str(how.randint(0, newest))}
            if how.random() < 0.5 or self._recorded.needs_zookeeper:
                broker.kill()
            else:
                broker.stop()
            broker.configure(codec)
            broker.start()
            answers(self._session(broker))

        broker.start()
        script = RandomScript(broker, self._session(broker), self._seed, restart)
        try:
            script.play(actions=chosen.choice((60, 100, 140)), restarts=chosen.choice((0, 1, 3)))
            live = answers(script.session)
        finally:
            broker.kill()
            script.close()
        killed_ms = now_ms()
        self._open_transactions_of = script.groups_in_transactions
        self._steps = [*script.steps, *script.refused]
        print(len(script.steps), "done,", len(script.refused), "refused", flush=True)
        self._snapshot("before", broker, killed_ms, live)
        if self._seed % 2:
            self._swept_snapshot(broker, {**settings, **SWEEPS}, killed_ms)


def main() -> None:
    version, seed, output = sys.argv[1:]
    recorded = RELEASES.get(version) or Recorded.of(version)
    with tempfile.TemporaryDirectory(prefix="random-", dir=output) as scratch:
        RandomRecording(recorded, Path(output) / f"random-{seed}", Path(scratch), int(seed)).record()


if __name__ == "__main__":
    main()

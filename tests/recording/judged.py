"""``python -m tests.recording.judged RELEASE[-classic] CASE…``: answers of a release about logs of others."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tests.cases import Case, case
from tests.lifecycle.judgements import DATA, broker_answer
from tests.live.group_protocol import Json
from tests.recording.answers import NOT_LOADED, _describe_classic, _group, _listed
from tests.recording.brokers import RELEASES, Recorded, RecordedBroker
from tests.recording.loads import last_words
from tests.recording.script import TOPICS, Script
from tests.recording.session import Session

SECONDS = 60
QUIET_SECONDS = 6
NO_SWEEP = {"offsets.retention.minutes": "1000000", "offsets.retention.check.interval.ms": "86400000"}


def judge_of(word: str) -> Recorded:
    """The release, with the classic coordinator where asked for."""
    version, _, coordinator = word.partition("-")
    if coordinator == "classic":
        return replace(Recorded.of(version), settings={"group.coordinator.new.enable": "false"}, coordinator="classic")
    return RELEASES.get(version) or Recorded.of(version)


def stopped_broker(judge: Recorded, partitions: int, scratch: Path) -> RecordedBroker:
    """One that has an offsets topic of this many partitions, dead."""
    settings = {**NO_SWEEP, "offsets.topic.num.partitions": str(partitions)}
    broker = RecordedBroker(judge, judge.fetch(), scratch / f"of-{partitions}", settings)
    broker.start()
    try:
        script = Script(Session(broker.port, judge.release))
        script.create_topics()
        deadline = time.monotonic() + 60
        while len(list(broker.log_dir.glob("__consumer_offsets-*/*.log"))) < partitions:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        time.sleep(1)
        script.session.close()
    finally:
        broker.stop()
    return broker


def ask_for_topics_of(judged: Case) -> None:
    """Answers are of the topics that have committed offsets in the case."""
    for group in judged.reloaded()["groups"].values():
        for row in group["offsetFetch"]["offsets"] if "offsetFetch" in group else group["offsets"]:
            TOPICS[row["topic"]] = max(TOPICS.get(row["topic"], 0), row["partition"] + 1)


def judgement(judge: Recorded, judged: Case, broker: RecordedBroker, directory: Path) -> Json:
    """Last words by partition, and of groups of partitions that loaded what the broker answers."""
    settings = {**NO_SWEEP, "offsets.topic.num.partitions": str(judged.offsets_partitions)}
    copy = broker.copied(directory, settings)
    for target in copy.log_dir.glob("__consumer_offsets-*"):
        for old in target.glob("0*"):
            old.unlink()
        for source in judged.paths[0].glob(f"{target.name}/0*"):
            if source.suffix in (".log", ".snapshot"):
                shutil.copy(source, target)
        if not list(target.glob("*.log")):
            (target / "00000000000000000000.log").touch()
    for stale in copy.log_dir.glob("*-checkpoint"):
        stale.unlink()
    (copy.log_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
    held = {path.name.rpartition("-")[2] for path in judged.paths[0].glob("__consumer_offsets-*")}
    copy.start()
    try:
        words: dict[str, str] = {}
        deadline = quiet = time.monotonic()
        while time.monotonic() < deadline + SECONDS and (
            len(words) < len(held) or time.monotonic() < quiet + QUIET_SECONDS
        ):
            now = {number: line for number, line in last_words(copy.log_since_start()).items() if number in held}
            if now != words:
                words, quiet = now, time.monotonic()
            time.sleep(0.5)
        session = Session(copy.port, judge.release)
        groups = {}
        for row in map(_listed, session.ask("ListGroups", {}, expect=(0, 14, 15))["groups"]):
            if _describe_classic(session, row["groupId"])["errorCode"] not in NOT_LOADED:
                groups[row["groupId"]] = _group(session, row["groupId"], row["groupType"])
        session.close()
    finally:
        copy.kill()
        shutil.rmtree(directory)
    return {
        "partitions": dict(sorted(words.items())),
        "groups": {name: broker_answer(one) for name, one in sorted(groups.items())},
    }


def main() -> None:
    word, *names = sys.argv[1:]
    judge = judge_of(word)
    RELEASES["4.4.0"].fetch()
    with tempfile.TemporaryDirectory(prefix="judged-") as scratch:
        brokers: dict[int, RecordedBroker] = {}
        for name in names:
            judged = case(name)
            count = judged.offsets_partitions
            if count not in brokers:
                brokers[count] = stopped_broker(judge, count, Path(scratch))
            ask_for_topics_of(judged)
            found = judgement(judge, judged, brokers[count], Path(scratch) / "copy")
            target = DATA / name.replace("/", "-") / f"{judge.version}-{judge.coordinator}.json.gz"
            target.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(found, ensure_ascii=False, indent=1) + "\n"
            target.write_bytes(gzip.compress(text.encode(), mtime=0))
            print(name, word, len(found["groups"]), "groups", found["partitions"], flush=True)


if __name__ == "__main__":
    main()

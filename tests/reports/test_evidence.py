"""``regroup audit``: evidence follows from the bytes that it names, and nobody can change either unseen."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.cli.app import run
from coordinator_core.errors import ExitCode
from coordinator_core.jsontext import canonical
from coordinator_core.reports.evidence import HISTORY, STATEMENT
from tests.cases import CORPUS
from tests.history.incidents import topics
from tests.history.logs import MINUTE, Client, Log
from tests.history.test_causes import removed_together
from tests.log.builders import build_batch
from tests.rules.logs import commit

Json = dict[str, Any]
RULES = ["--kafka-version", "4.3.1", "--now-ms", "1800000000000"]
KEY = ("orders", 0)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A group record, and commits in five partitions."""
    keys = [("orders", partition) for partition in range(5)]
    made = Log().generation("billing", 1, Client("m-1", partitions=tuple(keys)))
    for partition, key in enumerate(keys):
        made.commit("billing", {key: 100 * partition + 100}).wait(MINUTE)
    made.write(tmp_path / "log")
    return made


def export(log: Path, output: Path, *more: str, code: int = 0) -> Json:
    assert run(["audit", "export", str(log), "--output", str(output), *RULES, *more]) == code
    return {} if code else statement(output)


def statement(directory: Path) -> Json:
    document: Json = json.loads((directory / STATEMENT).read_text())
    return document


def rows(directory: Path) -> list[Json]:
    return [json.loads(line) for line in (directory / HISTORY).read_text().splitlines()]


def verified(capfd: pytest.CaptureFixture[str], *words: str | Path, code: int = 0) -> Json:
    capfd.readouterr()
    assert run(["audit", "verify", *map(str, words), "--format", "json"]) == code
    document: Json = json.loads(capfd.readouterr().out)
    assert document["status"] == ("damaged" if code else "clean")
    return document


def damage(capfd: pytest.CaptureFixture[str], *words: str | Path) -> list[tuple[str, str]]:
    found = verified(capfd, *words, code=ExitCode.DAMAGED_INPUT)["damage"]
    return [(Path(one["path"]).name, one["kind"]) for one in found]


def forge(directory: Path, name: str, value: object) -> int:
    """Change a field in the third row, and all digests that tell; returns the byte at which the row begins."""
    lines = (directory / HISTORY).read_bytes().splitlines(keepends=True)
    lines[2] = canonical(json.loads(lines[2]) | {name: value}) + b"\n"
    (directory / HISTORY).write_bytes(b"".join(lines))
    document = statement(directory)
    digest = hashlib.sha256(b"".join(lines)).hexdigest()
    document["predicate"]["history_sha256"] = digest
    for subject in document["subject"]:
        if subject["name"] == HISTORY:
            subject["digest"]["sha256"] = digest
    (directory / STATEMENT).write_bytes(canonical(document) + b"\n")
    return sum(map(len, lines[:2]))


@pytest.mark.parametrize("case", ["k431-txn/log", "k241/after/log", "k0102/before/log", "k440/before/log"])
def test_evidence_of_a_brokers_log_follows_from_its_bytes(
    case: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = export(CORPUS / case, tmp_path / "evidence")
    found = verified(capfd, tmp_path / "evidence", "--log", CORPUS / case)["statements"][0]
    assert found["rows_derived"]
    assert found["rows"] == len(rows(tmp_path / "evidence")) > 0
    segments = {f"{path.parent.name}/{path.name}": path for path in (CORPUS / case).rglob("*.log")}
    digests = {one["name"]: one["digest"]["sha256"] for one in made["subject"]}
    assert digests.pop(HISTORY) == hashlib.sha256((tmp_path / "evidence" / HISTORY).read_bytes()).hexdigest()
    assert digests == {name: hashlib.sha256(segments[name].read_bytes()).hexdigest() for name in digests}
    assert {
        f"__consumer_offsets-{row['offsets_partition']}/{row['segment']}" for row in rows(tmp_path / "evidence")
    } <= (digests.keys())


def test_a_row_leads_to_who_and_where(log: Log, tmp_path: Path) -> None:
    made = export(tmp_path / "log", tmp_path / "evidence")
    first = rows(tmp_path / "evidence")[0]
    assert (first["committed_offset"], first["record_offset"], first["member_id"]) == (100, 1, "m-1")
    (partition,) = made["predicate"]["partitions"]
    assert (partition["first_offset"], partition["end_offset"], partition["missing_offsets"]) == (0, 6, 0)


def test_a_signature_is_that_of_openssl(log: Log, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    private, public = str(tmp_path / "key.pem"), str(tmp_path / "key.pub.pem")
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    evidence = tmp_path / "evidence"
    export(tmp_path / "log", evidence, "--sign-key", private)
    document = verified(capfd, evidence, "--public-key", public)
    assert document["statements"][0]["signature_checked"]
    assert not document["statements"][0]["rows_derived"]
    openssl = ["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", public]
    signed = ["-sigfile", f"{evidence / STATEMENT}.sig", "-in", str(evidence / STATEMENT)]
    subprocess.run([*openssl, *signed], check=True)
    forge(evidence, "member_id", "m-2")
    assert damage(capfd, evidence, "--public-key", public) == [(f"{STATEMENT}.sig", "bad_signature")]
    (evidence / f"{STATEMENT}.sig").unlink()
    assert damage(capfd, evidence, "--public-key", public) == [(f"{STATEMENT}.sig", "not_signed")]


@pytest.mark.parametrize(("name", "value"), [("member_id", "m-2"), ("committed_offset", 7), ("timestamp_ms", 1)])
def test_a_row_that_is_not_in_the_log_is_named(
    name: str, value: object, log: Log, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its digests were made to fit: without a signature only the log tells."""
    export(tmp_path / "log", tmp_path / "evidence")
    at = forge(tmp_path / "evidence", name, value)
    verified(capfd, tmp_path / "evidence")
    document = verified(capfd, tmp_path / "evidence", "--log", tmp_path / "log", code=ExitCode.DAMAGED_INPUT)
    (found,) = document["damage"]
    assert (Path(found["path"]).name, found["kind"]) == (HISTORY, "not_in_the_log")
    assert (found["byte_position"], found["record_offset"]) == (at, 3)
    assert '"committed_offset":300' in found["detail"]


def test_bounds_that_are_not_those_of_the_log_are_named(
    log: Log, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    export(tmp_path / "log", tmp_path / "evidence")
    document = statement(tmp_path / "evidence")
    document["predicate"]["partitions"][0]["missing_offsets"] = 1
    (tmp_path / "evidence" / STATEMENT).write_bytes(canonical(document))
    assert damage(capfd, tmp_path / "evidence", "--log", tmp_path / "log") == [(STATEMENT, "not_in_the_log")]


def test_files_that_were_changed_or_removed_are_named(
    log: Log, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    evidence = tmp_path / "evidence"
    export(tmp_path / "log", evidence)
    whole = (evidence / HISTORY).read_bytes()
    (evidence / HISTORY).write_bytes(whole[:-1])
    assert damage(capfd, evidence) == [(HISTORY, "changed_since_published")]
    (evidence / HISTORY).unlink()
    assert damage(capfd, evidence, "--log", tmp_path / "log") == [(HISTORY, "changed_since_published")]


def test_a_log_may_grow_and_not_be_rewritten(log: Log, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    evidence = tmp_path / "evidence"
    export(tmp_path / "log", evidence)
    log.commit("billing", {KEY: 700}).write(tmp_path / "later")
    verified(capfd, evidence, "--log", tmp_path / "later")
    (segment,) = (tmp_path / "later").rglob("*.log")
    data = segment.read_bytes()
    segment.write_bytes(data[:-1])
    verified(capfd, evidence, "--log", tmp_path / "later")
    segment.write_bytes(data[:100])
    assert damage(capfd, evidence, "--log", tmp_path / "later") == [(segment.name, "changed_since_published")]
    segment.rename(segment.with_name(f"{7:020}.log"))
    assert damage(capfd, evidence, "--log", tmp_path / "later") == [(segment.name, "changed_since_published")]
    # Its one partition is not in this log.
    shutil.copytree(segment.parent, tmp_path / "other/__consumer_offsets-1")
    assert damage(capfd, evidence, "--log", tmp_path / "other") == [("other", "changed_since_published")]


def test_a_chain_names_what_it_lost(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = Log().commit("g", {KEY: 1}).commit("g", {KEY: 2})
    log.write(tmp_path / "monday")
    log.commit("g", {KEY: 3}).write(tmp_path / "tuesday")
    days = ["monday", "tuesday"]
    made = [export(tmp_path / days[0], tmp_path / "1")]
    made.append(export(tmp_path / days[1], tmp_path / "2", "--previous", str(tmp_path / "1")))
    sha256 = hashlib.sha256((tmp_path / "1" / STATEMENT).read_bytes()).hexdigest()
    assert made[1]["predicate"]["previous"] == {
        "statement_sha256": sha256,
        "gaps": [],
        "rewritten": [],
        "missing": {},
    }
    follows = f"{tmp_path / '2'}: it follows statement {sha256}, which is not given"
    verified(capfd, tmp_path / "1", tmp_path / "2", "--log", tmp_path / "tuesday")
    assert run(["audit", "verify", str(tmp_path / "1"), str(tmp_path / "2")]) == ExitCode.CLEAN
    assert follows not in capfd.readouterr().err
    assert run(["audit", "verify", str(tmp_path / "2")]) == ExitCode.CLEAN
    assert follows in capfd.readouterr().err
    assert damage(capfd, tmp_path / "2", tmp_path / "1") == [(STATEMENT, "broken_chain")]
    # On Wednesday the segment has other bytes, of the same length or not.
    wednesday = tmp_path / "wednesday"
    Log().commit("g", {KEY: 9}).write(wednesday)
    (segment,) = wednesday.rglob("*.log")
    made.append(export(wednesday, tmp_path / "3", "--previous", str(tmp_path / "2")))
    previous = made[2]["predicate"]["previous"]
    assert previous["rewritten"] == [f"{segment.parent.name}/{segment.name}"]
    assert "1 segment was rewritten since the evidence before" in capfd.readouterr().err
    verified(capfd, *(tmp_path / name for name in "123"))
    document = statement(tmp_path / "3")
    document["predicate"]["previous"]["gaps"] = [{"offsets_partition": 0, "from_offset": 3, "to_offset": 5}]
    (tmp_path / "3" / STATEMENT).write_bytes(canonical(document))
    assert damage(capfd, *(tmp_path / name for name in "23")) == [(STATEMENT, "broken_chain")]


def test_records_that_were_cleaned_between_two_statements_are_a_gap(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "e1", tmp_path / "e2"
    made = Log().commit("billing", {KEY: 1}).roll()
    export(made.write(tmp_path / "before"), first)
    end = statement(first)["predicate"]["partitions"][0]["end_offset"]
    later = made.skip(2000).roll().commit("billing", {KEY: 9}).write(tmp_path / "after")
    found = export(later, second, "--previous", str(first))["predicate"]
    assert found["previous"]["gaps"] == [{"offsets_partition": 0, "from_offset": end, "to_offset": end + 2000}]
    assert (
        f"no evidence of offsets partition 0, from record offset {end} on, up to {end + 2000}" in capfd.readouterr().err
    )
    verified(capfd, first, second, "--log", later)
    found["partitions"][0]["removed"] = found["previous"]["gaps"] = []
    (second / STATEMENT).write_bytes(canonical(statement(second) | {"predicate": found}) + b"\n")
    assert damage(capfd, first, second, "--log", later) == [(STATEMENT, "not_in_the_log")]


def test_records_that_went_from_a_batch_or_from_short_ranges_are_counted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Longer and older ranges are all that ``removed`` has room for, and no range tells what a kept batch lacks."""
    first, second = tmp_path / "e1", tmp_path / "e2"
    made = Log().commit("billing", {KEY: 1})
    for number in range(64):
        made.skip(50).commit("billing", {KEY: number})
    export(made.roll().write(tmp_path / "before"), first)
    made.skip(7).commit("billing", {KEY: 100})
    record = (*commit("billing", "orders", offset=101), made.at, 4)
    made.data += build_batch(made.next_offset, [record], timestamp=made.at)
    made.next_offset += 5
    later = made.write(tmp_path / "after")
    previous = export(later, second, "--previous", str(first))["predicate"]["previous"]
    assert (previous["gaps"], previous["missing"]) == ([], {"0": 11})
    said = "no evidence of 11 more records of offsets partition 0 behind the evidence before: the cleaner has removed"
    assert said in capfd.readouterr().err
    verified(capfd, first, second, "--log", later)
    document = statement(second)
    document["predicate"]["previous"]["missing"] = {}
    (second / STATEMENT).write_bytes(canonical(document) + b"\n")
    assert damage(capfd, first, second, "--log", later) == [(STATEMENT, "not_in_the_log")]


def test_a_partition_that_is_gone_is_a_gap(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    copy = shutil.copytree(CORPUS / "k431-txn/log", tmp_path / "log")
    before = export(copy, tmp_path / "1")["predicate"]["partitions"][0]
    shutil.rmtree(copy / f"__consumer_offsets-{before['offsets_partition']}")
    after = export(copy, tmp_path / "2", "--previous", str(tmp_path / "1"))
    gap = {"offsets_partition": before["offsets_partition"], "from_offset": before["end_offset"], "to_offset": None}
    assert after["predicate"]["previous"]["gaps"] == [gap]
    assert "the partition is gone" in capfd.readouterr().err


def test_some_groups_of_a_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = CORPUS / "k431-txn/log"
    words = ["replay", str(log), "--output", str(tmp_path / "runs"), "--cluster", "c", *RULES, "--format", "json"]
    assert run(words) == 0
    made = Path(json.loads(capfd.readouterr().out)["run"])
    assert run(["audit", "export", str(made), "--output", str(tmp_path / "1"), "--group", "x-live-classic"]) == 0
    assert {row["group_id"] for row in rows(tmp_path / "1")} == {"x-live-classic"}
    assert statement(tmp_path / "1")["predicate"]["groups"] == ["x-live-classic"]
    verified(capfd, tmp_path / "1", "--log", log)


@pytest.mark.parametrize(("minutes", "certainty"), [(4320, "certain"), (43200, "possible")])
def test_the_retention_of_a_capture_goes_with_the_rows(
    minutes: int, certainty: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It was that of one moment; the option is said of all the time."""
    log = removed_together(tmp_path / "log")
    beside = topics(log, offsets_retention_minutes=minutes) / "topics.json"
    predicate = export(log, tmp_path / "evidence")["predicate"]
    beside.unlink()
    assert predicate["offsets_retention_ms"] is None
    assert predicate["offsets_retention_captured_ms"] == minutes * MINUTE
    removed = [row for row in rows(tmp_path / "evidence") if row["group_id"] == "a"]
    assert [row["cause_certainty"] for row in removed] == [certainty]
    assert "expiry" in (removed[0]["cause"], *removed[0]["cause_or"])
    verified(capfd, tmp_path / "evidence", "--log", log)
    assert "offsets_retention_captured_ms" not in export(log, tmp_path / "without")["predicate"]


def test_evidence_of_nothing_says_so(log: Log, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log.write(tmp_path / "empty", 1)
    (segment,) = (tmp_path / "empty").rglob("*.log")
    segment.write_bytes(b"")
    export(tmp_path / "empty", tmp_path / "0")
    assert f"warning: {tmp_path / 'empty'} holds no record" in capfd.readouterr().err
    export(tmp_path / "log", tmp_path / "1")
    assert "warning" not in capfd.readouterr().err
    log.generation("idle", 1, Client("m-2")).write(tmp_path / "grown")
    export(tmp_path / "grown", tmp_path / "2", "--group", "idle", "--previous", str(tmp_path / "1"))
    said = capfd.readouterr().err
    other = f"warning: {tmp_path / '2'} follows {tmp_path / '1'}, and has other options: groups"
    assert "warning: no committed offset of group 'idle' is in this log" in said
    assert other in said
    (first, second) = verified(capfd, tmp_path / "1", tmp_path / "2")["statements"]
    assert (first["groups"], second["groups"]) == (None, ["idle"])
    assert run(["audit", "verify", str(tmp_path / "1"), str(tmp_path / "2")]) == 0
    out, said = capfd.readouterr()
    assert "; only of 'idle'" in out
    assert other in said


def test_evidence_of_a_group_that_was_never_there_is_refused(
    log: Log, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    export(tmp_path / "log", tmp_path / "1", "--group", "billing", "--group", "biling", code=ExitCode.USAGE)
    assert "error: no record in this log concerns group 'biling'" in capfd.readouterr().err
    assert not (tmp_path / "1").exists()
    export(tmp_path / "log", tmp_path / "1", "--group", "billing")
    # Of a group that was there before, the cleaner may have taken all.
    later = tmp_path / "later"
    Log().commit("other", {KEY: 1}).write(later)
    more = ["--group", "billing", "--previous", str(tmp_path / "1")]
    capfd.readouterr()
    export(later, tmp_path / "2", *more)
    assert "warning: no committed offset of group 'billing' is in this log" in capfd.readouterr().err
    export(later, tmp_path / "3", "--group", "biling", *more, code=ExitCode.USAGE)


def test_a_damaged_log_is_evidence_only_when_that_is_asked_for(
    log: Log, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (segment,) = (tmp_path / "log").rglob("*.log")
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    export(tmp_path / "log", tmp_path / "1", code=ExitCode.DAMAGED_INPUT)
    assert not (tmp_path / "1" / STATEMENT).exists()
    made = export(tmp_path / "log", tmp_path / "1", "--partial")
    name = f"{segment.parent.name}/{segment.name}"
    assert [(one["path"], one["kind"]) for one in made["predicate"]["damage"]] == [
        (name, "bad_crc"),
        (name, "not_read"),
    ]
    verified(capfd, tmp_path / "1", "--log", tmp_path / "log")
    assert run(["audit", "verify", str(tmp_path / "1"), "--log", str(tmp_path / "log")]) == 0
    assert "; 2 places were damaged, and read with --partial" in capfd.readouterr().out
    (tmp_path / "1" / STATEMENT).write_bytes(
        canonical(made | {"predicate": made["predicate"] | {"damage": []}}) + b"\n"
    )
    assert damage(capfd, tmp_path / "1", "--log", tmp_path / "log") == [(STATEMENT, "not_in_the_log")] * 2


def test_what_is_refused(log: Log, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    evidence = tmp_path / "evidence"
    export(tmp_path / "log", evidence)
    export(tmp_path / "log", evidence, code=ExitCode.USAGE)
    assert "has evidence already" in capfd.readouterr().err
    export(tmp_path / "log", tmp_path / "2", "--previous", str(tmp_path), code=ExitCode.USAGE)
    assert f"there is no {STATEMENT}" in capfd.readouterr().err
    changes: list[Json] = [
        {"_type": "https://in-toto.io/Statement/v0.1"},
        {"subject": []},
        {"predicate": {}},
        {"predicate": statement(evidence)["predicate"] | {"profile": "X9"}},
        {"predicate": statement(evidence)["predicate"] | {"transactional_ids": {"one": "t"}}},
    ]
    for change in changes:
        forged = shutil.copytree(evidence, tmp_path / "forged", dirs_exist_ok=True)
        (forged / STATEMENT).write_bytes(canonical(statement(evidence) | change))
        assert run(["audit", "verify", str(forged)]) == ExitCode.USAGE
        assert "is no statement of regroup audit export" in capfd.readouterr().err
    (forged / STATEMENT).write_bytes(b"[[")
    assert run(["audit", "verify", str(forged)]) == ExitCode.USAGE


def test_a_statement_of_another_version_says_which(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    export(Log().commit("g", {KEY: 1}).write(tmp_path / "log"), tmp_path / "1")
    document = statement(tmp_path / "1") | {"predicateType": "urn:regroup:consumer-offsets-history:1"}
    (tmp_path / "1" / STATEMENT).write_bytes(canonical(document) + b"\n")
    capfd.readouterr()
    assert run(["audit", "verify", str(tmp_path / "1")]) == ExitCode.USAGE
    assert (
        "its predicate is of type urn:regroup:consumer-offsets-history:1, this version reads" in capfd.readouterr().err
    )

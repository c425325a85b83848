"""Signed runs: whoever changes the manifest, with its digests or without, is found out."""

from __future__ import annotations

import json
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from coordinator_core.cli import spark_app
from coordinator_core.cli.app import run as regroup
from coordinator_core.errors import ExitCode
from coordinator_core.log.discovery import discover
from coordinator_core.releases import profile_for_release
from coordinator_core.runs import signature
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.manifest import summary
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.publish import promote
from coordinator_core.runs.signature import sign_run
from tests.cases import case
from tests.runs.logs import snapshot

(SOURCE,) = snapshot(case("k431-txn")).sources
OPTIONS = [
    "--cluster",
    "c",
    "--kafka-version",
    "4.3.1",
    "--now-ms",
    "1800000000000",
    "--window",
    "w",
    "--no-fold-cache",
]


def write_keys(directory: Path, name: str) -> tuple[Path, Path]:
    private, public = directory / f"{name}.pem", directory / f"{name}.pub.pem"
    key = Ed25519PrivateKey.generate()
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with keys, and the run ``c/w/r`` that is signed."""
    place = tmp_path_factory.mktemp("signed")
    private, _ = write_keys(place, "key")
    command = ["replay", SOURCE, "--output", str(place), *OPTIONS, "--run-id", "r", "--sign-key", str(private)]
    assert regroup(command) == ExitCode.CLEAN
    return place


@pytest.mark.parametrize("signed", [True, False])
def test_a_run_of_spark_is_signed_before_it_is_the_latest(
    signed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of ``latest.json`` verifies what it names."""
    latest, private = tmp_path / "runs/c/latest.json", write_keys(tmp_path, "key")[0]

    def replayed(_: str, __: str, arguments: list[str], *___: object) -> dict[str, Any]:
        options = dict(pairwise(arguments))
        place = RunPlace(*(options[f"--{name}"] for name in ("output", "cluster", "window", "run-id")))
        manifest = replay_to_run(discover([SOURCE]), place, profile=profile_for_release("4.3.1"), now_ms=1)
        is_latest = "--no-latest" not in arguments and promote(place, manifest)
        return summary(manifest, path=place.path, latest=is_latest)

    def sign(run: str, key: Any) -> None:
        assert not latest.exists()
        sign_run(run, key)

    monkeypatch.setattr(spark_app, "run_spark_app", replayed)
    monkeypatch.setattr(signature, "sign_run", sign)
    command = ["replay", SOURCE, "--output", str(tmp_path / "runs"), *OPTIONS, "--run-id", "r", "--engine", "spark"]
    assert regroup([*command, *(["--sign-key", str(private)] if signed else [])]) == ExitCode.CLEAN
    assert json.loads(latest.read_text())["path"] == "w/r"
    assert (tmp_path / "runs/c/w/r/manifest.json.sig").exists() is signed


@pytest.fixture
def run(published: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(published / "c/w/r", tmp_path / "r"))


def verified(run: Path, key: Path) -> int:
    return regroup(["verify", str(run), "--public-key", str(key)])


def test_a_signed_run_is_verified(published: Path, run: Path, tmp_path: Path) -> None:
    assert verified(run, published / "key.pub.pem") == ExitCode.CLEAN
    assert regroup(["verify", str(run)]) == ExitCode.CLEAN
    _, other = write_keys(tmp_path, "other")
    assert verified(run, other) == ExitCode.DAMAGED_INPUT


@pytest.mark.parametrize("change", ["a space", "a figure", "another signature", "none", "a table"])
def test_what_is_changed_is_found_out(
    published: Path, run: Path, change: str, capfd: pytest.CaptureFixture[str]
) -> None:
    manifest, signature = run / "manifest.json", run / "manifest.json.sig"
    kind = "bad_signature"
    match change:
        case "a space":
            manifest.write_text(manifest.read_text() + " ")
        case "a figure":
            document = json.loads(manifest.read_text())
            document["now_ms"] += 1
            manifest.write_text(json.dumps(document))
        case "another signature":
            signature.write_bytes(bytes(64))
        case "none":
            signature.unlink()
            kind = "not_signed"
        case _:
            table = run / "offsets/part-00000.parquet"
            table.write_bytes(table.read_bytes()[:-1])
            kind = "changed_since_published"
    assert verified(run, published / "key.pub.pem") == ExitCode.DAMAGED_INPUT
    assert kind in capfd.readouterr().out


def test_a_key_that_is_none_publishes_nothing(
    published: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "ec.pem"
    key = generate_private_key(SECP256R1())
    other.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (tmp_path / "no.pem").write_text("none")
    for path in (other, tmp_path / "no.pem", published / "key.pub.pem", tmp_path / "missing.pem"):
        command = ["replay", SOURCE, "--output", str(tmp_path / "out"), *OPTIONS, "--sign-key", str(path)]
        assert regroup(command) == ExitCode.USAGE
        assert capfd.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("what", ["report", "findings"])
def test_reports_and_findings_are_signed(
    what: str, published: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(published / "c/w/r", tmp_path / "c/w/r")
    key, public = str(published / "key.pem"), published / "key.pub.pem"
    if what == "report":
        directory = tmp_path / "report"
        words = ["report", str(run), "--no-log", "--output", str(directory)]
    else:
        words = ["reconcile", str(run), "--no-log", "--fail-on", "never", "--publish"]
    assert regroup([*words, "--sign-key", str(public)]) == ExitCode.USAGE
    assert regroup([*words, "--sign-key", key]) == ExitCode.CLEAN
    if what == "findings":
        (summary,) = tmp_path.glob("c/w/_findings/r/*/reconciliation.json")
        directory = summary.parent
    assert verified(directory, public) == ExitCode.CLEAN
    by_hand = (
        f"openssl pkeyutl -verify -rawin -pubin -inkey {public} -sigfile SHA256SUMS.sig -in SHA256SUMS"
        " && sha256sum --check --quiet SHA256SUMS"
    )
    assert subprocess.run(by_hand, shell=True, cwd=directory, capture_output=True, check=False).returncode == 0
    _, other = write_keys(tmp_path, "other")
    assert verified(directory, other) == ExitCode.DAMAGED_INPUT
    changed = next(path for path in sorted(directory.iterdir()) if path.suffix in (".html", ".parquet"))
    sound = changed.read_bytes()
    changed.write_bytes(sound + b" ")
    capfd.readouterr()
    assert verified(directory, public) == ExitCode.DAMAGED_INPUT
    assert f"{changed}: byte 0: changed_since_published" in capfd.readouterr().out
    assert subprocess.run(by_hand, shell=True, cwd=directory, capture_output=True, check=False).returncode != 0
    changed.unlink()
    assert verified(directory, public) == ExitCode.DAMAGED_INPUT
    changed.write_bytes(sound)
    (directory / "SHA256SUMS.sig").unlink()
    assert verified(directory, public) == ExitCode.DAMAGED_INPUT


@pytest.mark.parametrize("words", [["report"], ["reconcile"]])
def test_what_is_printed_is_not_signed(words: list[str], published: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert regroup([*words, str(published / "c/w/r"), "--sign-key", str(published / "key.pem")]) == ExitCode.USAGE
    assert "--sign-key signs files" in capfd.readouterr().err


def test_only_runs_are_signed(published: Path) -> None:
    assert verified(Path(SOURCE), published / "key.pub.pem") == ExitCode.USAGE
    for path in (published / "key.pem", published / "missing.pem"):
        assert verified(published / "c/w/r", path) == ExitCode.USAGE

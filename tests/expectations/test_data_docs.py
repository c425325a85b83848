"""Data Docs are written whole or not at all: killed, on a full disk, beyond a quota."""

from __future__ import annotations

import errno
import re
import shutil
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coordinator_core import storage
from coordinator_core.errors import ExitCode
from coordinator_core.runs.read import open_run
from expectations import data_docs, gate
from expectations.__main__ import main
from expectations.gate import GateResult, evaluate
from tests import rights
from tests.kills import events_of, in_child, killed_at
from tests.log.object_store import object_store
from tests.quota import refuse_writes
from tests.rules.logs import HEALTHY, one

KILLS = 50
Pages = dict[str, bytes]


def pages(place: Path) -> Pages:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("[!.]*") if path.is_file()}


def test_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of the gate, with the pages that GX has built once. The index leads to what is there."""
    writing, write, kills = {data_docs.__file__, storage.__file__}, data_docs.write_data_docs, []

    def killed(context: Any, result: GateResult, declared: Mapping[str, int], path: str) -> None:
        def work(place: Path) -> Callable[[], None]:
            return partial(write, context, result, declared, str(place))

        context.build_data_docs()
        site = Path(context.root_directory, "data_docs")
        shutil.copytree(site, tmp_path / "built")

        def build() -> None:
            shutil.rmtree(site)
            shutil.copytree(tmp_path / "built", site)

        monkeypatch.setattr(context, "build_data_docs", build)
        work(tmp_path / "expected")()
        expected, place = pages(tmp_path / "expected"), tmp_path / "docs"
        events = events_of(writing, work(tmp_path / "counted"))
        for number in range(KILLS):
            kills.append(killed_at(1 + number * (events - 1) // KILLS, writing, work(place)))
            found = pages(place)
            assert found.items() <= expected.items()
            if "index.html" in found:
                links = re.findall(r'href="([^"#]+)"', found["index.html"].decode())
                assert links
                assert set(links) <= found.keys()
            if number % 10 == 9:
                work(place)()
                assert pages(place) == expected
                place = tmp_path / f"docs-{number}"
        write(context, result, declared, path)

    monkeypatch.setattr(gate, "write_data_docs", killed)
    evaluate(open_run(one(*HEALTHY).publish(tmp_path / "log").path), data_docs=str(tmp_path / "last"))
    assert sum(kills) > 0.8 * KILLS


def test_in_object_storage(tmp_path: Path) -> None:
    run = open_run(one(*HEALTHY).publish(tmp_path / "log").path)
    with object_store() as bucket:
        evaluate(run, data_docs=bucket.uri("run/docs"))
        written = [name for name, _ in storage.files_below(bucket.uri("run/docs"))]
        # As a browser opens them, which knows the bucket's server alone.
        root = f"{bucket.environment['AWS_ENDPOINT_URL']}/{bucket.bucket}/run/docs/"
        seen, wanted = set[str](), [f"{root}index.html"]
        while wanted:
            page = wanted.pop()
            if page not in seen:
                assert page.startswith(root)
                seen.add(page)
                with urllib.request.urlopen(page) as answer:
                    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
                    text = answer.read().decode()
                assert text.startswith("<!DOCTYPE html>")
                wanted += [urllib.parse.urljoin(page, link) for link in re.findall(r'href="([^"#]+)"', text)]
    assert {page.removeprefix(root) for page in seen} >= {name for name in written if name.startswith("validations/")}
    assert len(seen) > 3


@pytest.mark.parametrize(
    ("begin", "code", "reason"),
    [
        (partial(refuse_writes, errno.EDQUOT), ExitCode.APPLY_FAILED, "Disk quota exceeded"),
        (partial(refuse_writes, errno.ENOSPC), ExitCode.APPLY_FAILED, "No space left on device"),
        (rights.give_up, ExitCode.USAGE, "Permission denied"),
    ],
)
def test_a_disk_that_takes_nothing(tmp_path: Path, begin: Callable[[], None], code: ExitCode, reason: str) -> None:
    run, docs = one(*HEALTHY).publish(tmp_path / "log").path, tmp_path / "docs"
    docs.mkdir(mode=0o555)
    found, said = in_child(begin, lambda: main([run, "--data-docs", str(docs)]))
    assert (found, said.splitlines()[-1].endswith(f"cannot be written: {reason}")) == (code, True), said
    assert pages(docs) == {}

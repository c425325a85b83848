"""Names that clients chose, in Data Docs and in what the gate prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_core.errors import ExitCode
from expectations.__main__ import main
from expectations.data_docs import self_contained
from tests.cli.test_untrusted import EVIL, obeyed
from tests.rules.logs import assignment, classic, commit, member, one

MARKUP = {
    "refresh": '<meta http-equiv="refresh" content="0;url=http://evil/">',
    "script": "<script>alert(1)</script>",
    "attribute": '"><img src=x onerror=alert(1)>',
}


def test_no_page_and_no_line_obeys_a_client(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Rows with these names fail checks, so that they are shown."""
    records = []
    for text in (*EVIL.values(), *MARKUP.values()):
        owner = member(f"m{text}", owns=assignment(**{text: [0]})) | {"clientId": text, "clientHost": f"/{text}"}
        records += [
            classic(f"live{text}", owner, protocol=text),
            commit(text, text, partition=-5, offset=-7, metadata=text),
        ]
    run = one(*records).publish(tmp_path).path
    docs = tmp_path / "docs"
    assert main([run, "--data-docs", str(docs)]) == ExitCode.FINDINGS
    captured = capfd.readouterr()
    assert "not so" in captured.out
    assert obeyed(captured.out + captured.err) == []
    pages = {path: path.read_text("utf-8") for path in docs.rglob("*.html")}
    assert any("abc\\u202edcba" in page for page in pages.values())
    assert any("&lt;script&gt;alert(1)" in page for page in pages.values())
    for path, page in pages.items():
        assert obeyed(page) == [], path
        assert [text for text in MARKUP.values() if text in page] == [], path


def test_character_references_are_shown_as_what_they_stand_for() -> None:
    page = self_contained("<p title='\u202e'>&#x202e;&lt;&#60;&#39;</p>")
    assert page == "<p title='\\u202e'>\\u202e&lt;&lt;&#x27;</p>"

from __future__ import annotations

from pathlib import Path

from tests.runs.documentation import tables_page

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "tables.md"


def test_the_page_is_made_from_the_schemas() -> None:
    """After a change: python -m tests.runs.documentation > docs/tables.md"""
    assert PAGE.read_text(encoding="utf-8") == tables_page()

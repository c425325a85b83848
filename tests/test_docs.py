"""README and docs are true: tables, examples, links, commands, names of packages and modules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

import click
import pytest

from coordinator_core.cli.app import cli, run
from coordinator_core.cli.options import WITHOUT_SPARK
from coordinator_core.history.model import EndKind, OriginKind
from coordinator_core.lifecycle.cleaning import BlockerKind
from coordinator_core.lifecycle.plan import Kept, Reason, TombstoneKind
from tests import proved
from tests.cli.commands import leaf_commands
from tests.test_architecture import LAYERS
from tests.writing import missing_tests

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted(DOCS.rglob("*.md"))
MANUAL = (DOCS / "cli.md").read_text(encoding="utf-8")
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
STALE = re.compile(r"\bslots?\b|coordinator_core[./](?:columnar|imports|profiles)\b|runs[./]merge_cache")
PACKAGES = sorted(
    path.parent.relative_to(ROOT).as_posix()
    for package in ("coordinator_core", "spark_apps", "dags", "expectations")
    for path in (ROOT / package).rglob("__init__.py")
)


def test_the_table_of_releases_is_what_the_corpus_holds() -> None:
    assert "\n".join(proved.table()) in README


def test_the_example_prints_what_the_readme_shows(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    commands = re.findall(r"```\n\$ regroup (.+)\n((?:.*\n)*?)```", README)
    assert len(commands) >= 3
    for command, output in commands:
        assert run(command.split()) == 0
        printed = capfd.readouterr()
        assert [line.rstrip() for line in printed.out.strip().splitlines()] == [
            line.rstrip() for line in output.strip().splitlines()
        ], command


def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def is_outside(target: str) -> bool:
    return "://" in target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_a_page_opens_with_what_its_reader_can_do_after_it(page: Path) -> None:
    title, _, opening = page.read_text(encoding="utf-8").partition("\n\n")
    assert title.startswith("# ")
    assert re.match(r"After this page you (can|know) \w+", opening)


@pytest.mark.parametrize(
    "page",
    [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("tests/*/README.md")],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_links_of_a_page_lead_to_pages_and_headings(page: Path) -> None:
    dead = []
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if not is_outside(target):
            file = page.parent / target if target else page
            if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
                dead.append(f"{target}#{anchor}")
    assert dead == []


def test_the_index_links_every_page() -> None:
    index = DOCS / "README.md"
    linked = {(DOCS / target).resolve() for target, _ in LINK.findall(index.read_text(encoding="utf-8")) if target}
    assert [page for page in PAGES if page != index and page not in linked] == []


def test_no_page_has_a_name_that_is_gone() -> None:
    found = [
        f"{page.name}: {match[0]}"
        for page in (*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md")
        for match in STALE.finditer(page.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_files_that_pages_name_exist() -> None:
    named = re.compile(r"`((?:coordinator_core|spark_apps|dags|expectations|tests)/[\w/.-]+\.\w+)`")
    missing = [
        f"{page.name}: {path}"
        for page in (*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md")
        for path in named.findall(page.read_text(encoding="utf-8"))
        if not (ROOT / path).exists()
    ]
    assert missing == []


def test_tests_that_pages_name_exist() -> None:
    missing = {page.name: missing_tests(page.read_text(encoding="utf-8")) for page in PAGES}
    assert {name: tests for name, tests in missing.items() if tests} == {}


def test_every_command_is_in_the_manual() -> None:
    listed = set(re.findall(r"^\| `regroup ([\w-]+)", MANUAL, re.MULTILINE))
    assert listed == set(cli.list_commands(None))  # type: ignore[arg-type]


@pytest.mark.parametrize("name, command", [pytest.param(*each, id=each[0]) for each in leaf_commands(cli)])
def test_pages_that_name_a_command_name_all_its_options(name: str, command: click.Command) -> None:
    assert f"| `regroup {name} " in MANUAL
    pages = [text for page in PAGES if f"regroup {name}" in (text := page.read_text(encoding="utf-8"))]
    options = {option for one in command.params for option in one.opts if option.startswith("--")}
    told = {option for text in pages for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)}
    assert options - told == set()


COMMAND = re.compile(r"\bregroup ((?:[a-z]+-)?[a-z]+)(?: ([a-z]+))?\b([^`\n|]*)")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_options_behind_a_command_are_its_own(page: Path) -> None:
    commands = dict(leaf_commands(cli))
    unknown = []
    for first, second, words in COMMAND.findall(page.read_text(encoding="utf-8").replace("\\\n", " ")):
        command = commands.get(f"{first} {second}") or commands.get(first)
        if command is not None:
            options = {option for one in command.params for option in one.opts} | {"--help", "--version"}
            named = re.findall(r"(?<![\w-])--[a-z][a-z-]*", words)
            unknown += [f"{command.name} {option}" for option in named if option not in options]
    assert unknown == []


def test_the_manual_names_the_commands_that_have_no_spark() -> None:
    (named,) = re.findall(r"as a Spark application\. (.+?) work in this process with either", MANUAL)
    without = {
        name
        for name, command in leaf_commands(cli)
        if WITHOUT_SPARK in [one.help for one in command.params if isinstance(one, click.Option)]
    }
    assert set(re.findall("`([^`]+)`", named)) == without


@pytest.mark.parametrize(
    ("page", "values"),
    [
        ("expiry.md", [*TombstoneKind, *Reason, *Kept]),
        ("forensics.md", BlockerKind),
        ("investigate.md", [*EndKind, *OriginKind]),
    ],
)
def test_a_page_names_every_value_that_a_column_may_have(page: str, values: Iterable[StrEnum]) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert [value for value in values if f"`{value}`" not in text] == []


def test_architecture_and_contributing_have_every_package_of_the_core() -> None:
    packages = {path.parent.name for path in (ROOT / "coordinator_core").glob("*/__init__.py")}
    drawn = re.findall(
        r"^ coordinator_core\.(\w+)", (DOCS / "architecture.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert packages <= set(drawn)
    order = re.search(r"    durations < .*?\n\n", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)
    assert order is not None
    assert tuple(order[0].replace("<", " ").split()) == LAYERS


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_what_it_may_import_and_where_to_start_reading(package: str) -> None:
    source = (ROOT / package / "__init__.py").read_text(encoding="utf-8")
    text = " ".join((ast.get_docstring(ast.parse(source)) or "").split())
    if package.count("/") > 1:  # Packages inside of packages: those above them say it.
        assert text
        return
    assert "import" in text.lower()
    start = re.search(r"Start (?:reading at|with) (.*?)(?:\. |\.$|$)", text)
    assert start is not None, text
    named = re.findall(r"``([\w./]+)``", start[1])
    assert named, text
    for name in named:
        path = ROOT / package / name.replace(".", "/") if not name.endswith(".py") else ROOT / package / name[:-3]
        assert path.with_suffix(".py").exists() or path.is_dir() or (ROOT / name).exists(), name

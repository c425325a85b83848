"""The direction of imports, and what may be imported where."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.sources import import_statements, imports_of

ROOT = Path(__file__).resolve().parent.parent

# A package imports itself and those before it.
LAYERS = (
    "durations",
    "errors",
    "jsontext",
    "untrusted",
    "properties",
    "process",
    "releases",
    "storage",
    "conditional",
    "claims",
    "files",
    "file_ranges",
    "log",
    "kernels",
    "topology",
    "ingest",
    "records",
    "groups",
    "replay",
    "fold",
    "merge",
    "runs",
    "lifecycle",
    "history",
    "rules",
    "investigate",
    "coordinator",
    "drill",
    "restore",
    "cluster",
    "reports",
    "cli",
)
OUTER = {"spark_apps", "dags", "expectations", "tests"}
ENGINES = {"pyspark", "airflow", "great_expectations"}
CLI = "coordinator_core.cli"
HEAVY = {"pyspark", "great_expectations", "pandas", "matplotlib"}

# What each package must not import, anywhere in its files.
FORBIDDEN = {
    "coordinator_core": ENGINES | OUTER,
    "spark_apps": {"airflow", "dags", "tests"},
    "dags": {"tests"},
    "expectations": {"airflow", "dags", "tests"},
}


def imports(source: str | Path, module: str, *, is_package: bool) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that ``source``, the text of ``module`` or its file, imports."""
    for node in imports_of(source) if isinstance(source, Path) else import_statements(source):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        else:
            base = node.module or ""
            if node.level:
                package = module.split(".") if is_package else module.split(".")[:-1]
                parents = package[: len(package) - node.level + 1]
                base = ".".join([*parents, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def layer(name: str) -> int | None:
    """Position of a module in ``LAYERS``; -1 for ``coordinator_core`` itself, ``None`` outside it."""
    package, _, rest = name.partition(".")
    if package != "coordinator_core":
        return None
    part = rest.partition(".")[0]
    if part == "__main__":
        return len(LAYERS)
    return LAYERS.index(part) if part in LAYERS else -1


def violations(source: str | Path, module: str, *, is_package: bool = False) -> list[str]:
    own = layer(module)
    found = []
    for line, name in imports(source, module, is_package=is_package):
        package = name.partition(".")[0]
        if package in FORBIDDEN.get(module.partition(".")[0], set()):
            found.append(f"{module}:{line} imports {name}")
        if not module.startswith("coordinator_core") and f"{name}.".startswith(f"{CLI}."):
            found.append(f"{module}:{line} imports {name}: the command line is run as a process")
        target = layer(name)
        if own is not None and target is not None and target > own:
            found.append(f"{module}:{line} imports {name}, which is above it")
    return found


def modules(package: str) -> list[tuple[str, Path]]:
    found = []
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


@pytest.mark.parametrize("package", FORBIDDEN)
def test_imports_point_downwards(package: str) -> None:
    found = [
        violation
        for module, path in modules(package)
        for violation in violations(path, module, is_package=path.name == "__init__.py")
    ]
    assert found == []


def test_every_part_of_the_core_has_a_layer() -> None:
    parts = {path.stem for path in (ROOT / "coordinator_core").iterdir() if path.suffix == ".py"}
    parts |= {path.parent.name for path in (ROOT / "coordinator_core").glob("*/__init__.py")}
    assert parts - {"__init__", "__main__"} <= set(LAYERS)


@pytest.mark.parametrize(
    "source",
    [
        "from coordinator_core.cli import main",
        "from coordinator_core import replay",
        "import coordinator_core.runs.publish",
        "from ..groups import model",
        "from .. import cli",
        "def late():\n    import pyspark.sql",
        "import airflow",
        "from great_expectations.core import suite",
        "import spark_apps.replay",
    ],
)
def test_the_rule_finds(source: str) -> None:
    assert len(violations(source, "coordinator_core.records.codec")) == 1


@pytest.mark.parametrize("module", ["spark_apps.exits", "dags.common.load", "expectations.gate"])
@pytest.mark.parametrize("source", ["import coordinator_core.cli.output", "from coordinator_core import cli"])
def test_the_rule_keeps_the_command_line_out_of_engines(module: str, source: str) -> None:
    assert len(violations(source, module)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "from coordinator_core.log.types import Record",
        "from coordinator_core import __version__, errors",
        "from . import schema",
        "from .schema import SCHEMAS",
        "import json",
    ],
)
def test_the_rule_accepts(source: str) -> None:
    assert violations(source, "coordinator_core.records.codec") == []


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Strongly connected components of more than one node, or of one that points to itself (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            first = stack.index(node)
            component = set(stack[first:])
            del stack[first:]
            if len(component) > 1 or node in graph[node]:
                found.append(component)

    for node in graph:
        if node not in index:
            visit(node)
    return found


def import_graph(sources: Mapping[str, tuple[str | Path, bool]]) -> dict[str, set[str]]:
    """Imports of each module of ``sources`` (text or file by name, and whether it is a package).

    Imports within functions and under ``TYPE_CHECKING`` count too: both hide that neither of two modules can be
    read, moved or tested without the other. That a module loads the packages around it does not count: it need not
    know what is in them.
    """
    return {
        module: {
            name if name in sources else name.rpartition(".")[0]
            for _, name in imports(source, module, is_package=is_package)
        }
        & sources.keys()
        for module, (source, is_package) in sources.items()
    }


def test_no_modules_import_each_other() -> None:
    sources = {module: (path, path.name == "__init__.py") for package in FORBIDDEN for module, path in modules(package)}
    graph = import_graph(sources)
    assert sum(map(len, graph.values())) > len(graph)
    assert circles(graph) == []


@pytest.mark.parametrize(
    "texts",
    [
        {"a": "import b", "b": "import a"},
        {"a": "import b", "b": "def late():\n    from a import name"},
        {"a": "import b", "b": "if TYPE_CHECKING:\n    from a import Name"},
        {"a": "import b", "b": "from c import name", "c": "import a"},
        {"a": "from . import b", "a.b": "from a.c import name", "a.c": "from a import name"},
        {"a": "from a import name"},
    ],
)
def test_the_rule_about_circles_finds(texts: dict[str, str]) -> None:
    sources = {name: (text, any(other.startswith(f"{name}.") for other in texts)) for name, text in texts.items()}
    assert circles(import_graph(sources)) == [set(texts)]


@pytest.mark.parametrize(
    "texts",
    [
        {"a": "import b; import c", "b": "import c", "c": "import json"},
        {"a": "from a.b import name", "a.b": "from a.c import name", "a.c": ""},
    ],
)
def test_the_rule_about_circles_accepts(texts: dict[str, str]) -> None:
    sources = {name: (text, name == "a") for name, text in texts.items()}
    assert circles(import_graph(sources)) == []


_NUMBER = re.compile(r"\(\s*\d\w*\s*,|[\"']\d[\d.]*[\"']")


def release_comparisons(source: str) -> list[int]:
    """Lines that order something by a release number: a tuple of integers, or text such as ``"3.9"``."""
    found: list[int] = []
    # No such number is in most sources.
    for node in ast.walk(ast.parse(source)) if _NUMBER.search(source) else ():
        if isinstance(node, ast.Compare) and any(
            isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops
        ):
            for side in (node.left, *node.comparators):
                parts = side.elts if isinstance(side, ast.Tuple) else []
                numbers = [part.value for part in parts if isinstance(part, ast.Constant)]
                text = side.value if isinstance(side, ast.Constant) else None
                if (len(numbers) == len(parts) > 1 and all(type(number) is int for number in numbers)) or (
                    isinstance(text, str) and re.fullmatch(r"\d+(\.\d+)*", text)
                ):
                    found.append(node.lineno)
    return found


@pytest.mark.parametrize("package", FORBIDDEN)
def test_only_the_table_of_releases_compares_releases(package: str) -> None:
    found = [
        f"{module}:{line}"
        for module, path in modules(package)
        if not module.startswith("coordinator_core.releases")
        for line in release_comparisons(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    ["if release >= (4, 1): pass", "x = (3, 0) <= release < (4, 0)", "old = profile.release < '3.9'"],
)
def test_the_rule_about_releases_finds(source: str) -> None:
    assert release_comparisons(source)


@pytest.mark.parametrize("source", ["a < b", "(a, 1) < (b, 2)", "release == (4, 1)", "x > 3", "name < 'S3'"])
def test_the_rule_about_releases_accepts(source: str) -> None:
    assert not release_comparisons(source)


def loaded_by(names: list[str], **environment: str) -> set[str]:
    """Top-level packages that a new interpreter has loaded after importing the modules ``names``."""
    report = "import json, sys\nprint(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", "".join(f"import {name}\n" for name in names) + report],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_core_loads_no_engine() -> None:
    loaded = loaded_by([module for module, _ in modules("coordinator_core") if not module.endswith("__main__")])
    assert "coordinator_core" in loaded
    assert loaded & ENGINES == set()


@pytest.mark.full
def test_parsing_the_dags_loads_nothing_heavy(tmp_path: Path) -> None:
    names = [module for module, _ in modules("dags") if not module.endswith("__main__")]
    assert loaded_by(names, AIRFLOW_HOME=str(tmp_path)) & HEAVY == set()

"""GX's Data Docs as a directory that needs nothing but itself.

GX's pages load styles, scripts and pictures from other hosts.  Ours keep GX's content, with a style sheet of
their own, no script, and a content security policy under which a browser makes no request.  GX fills its
index page by script, so the index is ours.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from coordinator_core import storage
from coordinator_core.errors import UsageError
from coordinator_core.rules.model import Severity
from coordinator_core.untrusted import visible, visible_lines
from expectations.checks import suite_of
from expectations.result import GateResult

if TYPE_CHECKING:
    from great_expectations.data_context.data_context.file_data_context import FileDataContext

STYLES = Path(__file__).parent / "data_docs.css"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_SITE = "data_docs"
"""Directory in which the site of ``great_expectations.yml`` is built."""


def check_directory(path: str) -> None:
    """:class:`UsageError` when ``path``, which need not exist, cannot be a directory or be asked for."""
    found = storage.stat(path)
    if found is not None and not found.is_directory:
        raise UsageError(f"{path} is not a directory")


def write_data_docs(context: FileDataContext, result: GateResult, declared: Mapping[str, int], path: str) -> None:
    """Write the pages of the suites that ``context`` has evaluated, and ``index.html``, into the directory ``path``, a
    URI too.

    ``declared`` is the number of checks of each suite.  Pages of other runs that are there stay.
    """
    context.build_data_docs()
    built = Path(context.root_directory) / _SITE
    shutil.rmtree(built / "static")
    for page in built.rglob("*.html"):
        page.write_text(self_contained(page.read_text("utf-8")), "utf-8")
    # The index comes last, when the pages that it leads to are there.
    index = visible_lines(_index(result, declared, built))
    (built / "index.html").unlink(missing_ok=True)
    for page in sorted(one for one in built.rglob("*") if one.is_file()):
        storage.write_atomic(storage.join(path, *page.relative_to(built).parts), page.read_bytes())
    storage.write_atomic(storage.join(path, "index.html"), index.encode())


def self_contained(page: str) -> str:
    """A page of GX without remote files, and without parts that need a script."""
    rewriter = _Rewriter()
    rewriter.feed(page)
    rewriter.close()
    return "".join(rewriter.parts)


def _head(title: str) -> str:
    return (
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(title)}</title><style>{STYLES.read_text('utf-8')}</style>"
    )


class _Rewriter(HTMLParser):
    """Passes everything on as it is, but for whole elements and attributes that are left out."""

    WITHOUT_CONTENT = frozenset({"link", "img", "input"})
    # The one picture is GX's logo, and all there is in the link to the index.
    INSTEAD = MappingProxyType({"img": "All suites"})
    WITH_CONTENT = frozenset({"script", "style", "footer", "title", "label", "button"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.parts: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.WITH_CONTENT:
            self._inside.append(tag)
        elif tag in self.WITHOUT_CONTENT:
            self._keep(self.INSTEAD.get(tag, ""))
        elif not self._inside:
            self._keep(self._accessible(tag, dict(attrs)))
            if tag == "head":
                self._keep(_head("Regroup: Data Docs"))

    def _accessible(self, tag: str, attrs: dict[str, str | None]) -> str:
        """The start tag, with what people need who do not see the page or use no mouse."""
        text = self.get_starttag_text() or ""
        if tag == "html":
            return '<html lang="en">'
        if "table-responsive" in (attrs.get("class") or "").split():
            return f'{text.removesuffix(">")} role="region" tabindex="0" aria-label="Table">'
        return text

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._keep(self.INSTEAD.get(tag, "") if tag in self.WITHOUT_CONTENT else self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.WITH_CONTENT:
            self._keep(f"</{tag}>")
        elif self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        self._keep(data)

    def handle_entityref(self, name: str) -> None:
        self._keep(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self._keep(escape(visible(unescape(f"&#{name};"))))

    def handle_decl(self, decl: str) -> None:
        self._keep(f"<!{decl}>")

    def _keep(self, text: str) -> None:
        if not self._inside:
            self.parts.append(visible_lines(text))


def _index(result: GateResult, declared: Mapping[str, int], site: Path) -> str:
    verdict = "not passed"
    if result.passed(Severity.CRITICAL):
        verdict = "passed" if result.passed(Severity.WARNING) else "passed, with warnings"
    rows = "".join(_row(name, count, result, site) for name, count in declared.items())
    problems = "".join(f"<pre>{escape(str(problem))}</pre>" for problem in _problems(result))
    counts = ", ".join(f"{count} {severity}" for severity, count in result.by_severity.items())
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{_head('Regroup: quality gate')}</head><body><main><h1>Quality gate: {verdict}</h1>"
        f"<p>Run {escape(result.run)}: {result.evaluated} of {result.declared} expectations evaluated; "
        f"failed: {counts}.</p>{problems}{_absent(result)}"
        '<div class="scroll" role="region" tabindex="0" aria-label="Suites">'
        "<table><thead><tr><th>table</th><th>expectations</th><th>not evaluated</th>"
        + "".join(f"<th>{severity.label}</th>" for severity in _SEVERITIES)
        + f"</tr></thead><tbody>{rows}</tbody></table></div></main></body></html>\n"
    )


def _absent(result: GateResult) -> str:
    if not result.absent:
        return ""
    reasons = "".join(f"<li>{escape(code)}: {escape(reason)}</li>" for code, reason in sorted(result.absent.items()))
    return f"<details><summary>{len(result.absent)} rules not looked at</summary><ul>{reasons}</ul></details>"


_SEVERITIES = sorted(Severity, reverse=True)


def _problems(result: GateResult) -> list[Any]:
    return [*result.refusals, *sorted(result.failures, key=lambda failure: -failure.severity)]


def _row(name: str, declared: int, result: GateResult, site: Path) -> str:
    failed = [failure.severity for failure in result.failures if suite_of(failure.code) == name]
    refused = sum(suite_of(refusal.code) == name for refusal in result.refusals)
    pages = sorted((site / "validations" / name).rglob("*.html"))
    link = escape(name)
    if pages:
        link = f'<a href="{escape(pages[-1].relative_to(site).as_posix())}">{link}</a>'
    numbers = [declared, refused, *(failed.count(severity) for severity in _SEVERITIES)]
    return f"<tr><td>{link}</td>{''.join(f'<td>{number}</td>' for number in numbers)}</tr>"

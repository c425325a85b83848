"""The page ``docs/rules.md``, made from the catalogue and the reasons for findings on the corpus.

``python -m tests.rules.page > docs/rules.md`` writes it.
"""

from __future__ import annotations

from tests.rules.catalogue import catalogue_page
from tests.rules.corpus import findings_page


def page() -> str:
    """The whole page."""
    return catalogue_page() + "\n" + "\n".join(findings_page()) + "\n"


if __name__ == "__main__":
    print(page(), end="")

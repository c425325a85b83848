"""The page ``docs/rules.md``, made from the catalogue and the corpus.

``python -m tests.rules.page > docs/rules.md`` writes it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from coordinator_core.rules.evaluate import Reconciliation
from tests.rules.catalogue import catalogue_page
from tests.rules.corpus import all_reconciled, findings_page


def page(of_case: Mapping[str, Reconciliation]) -> str:
    """The whole page, of the reconciliations of all cases."""
    return catalogue_page() + "\n" + "\n".join(findings_page(of_case)) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        print(page(all_reconciled(Path(directory))), end="")

"""JSON that others wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def parse_json(text: str | bytes, made: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """The document in ``text``; ``ValueError`` when it is none, or is nested too deeply to be one of ours.

    ``made`` is asked what each object becomes, inner ones first.
    """
    try:
        return json.loads(text, object_hook=made)
    except RecursionError:
        raise ValueError("nested too deeply") from None

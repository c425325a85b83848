"""JSON that others wrote."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """The document in ``text``; ``ValueError`` when it is none, or is nested too deeply to be one of ours."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None

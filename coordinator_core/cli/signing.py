"""``--sign-key``: signatures of published files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click


def sign_key_option(what: str) -> Callable[[Any], Any]:
    return click.option("--sign-key", metavar="FILE", help=f"Sign {what} with this Ed25519 key (PEM).")


class Signing:
    """Key of ``--sign-key``; without one nothing is signed.

    Made before anything is published, so that a key that cannot be used publishes nothing.
    """

    def __init__(self, key_path: str | None) -> None:
        self._key: Any = None
        if key_path is not None:
            # Loaded here: it takes longer than most commands.
            from coordinator_core.runs.signature import read_private_key

            self._key = read_private_key(key_path)

    def run(self, path: str) -> None:
        """Sign the manifest of a run."""
        if self._key is not None:
            from coordinator_core.runs.signature import sign_run

            sign_run(path, self._key)

    def content(self, path: str, data: bytes) -> None:
        """Sign what a file is about to have."""
        if self._key is not None:
            from coordinator_core.runs.signature import sign_bytes

            sign_bytes(path, data, self._key)

    def files(self, directory: str, names: Iterable[str]) -> None:
        """Sign files of a directory."""
        if self._key is not None:
            from coordinator_core.runs.signature import sign_files

            sign_files(directory, names, self._key)

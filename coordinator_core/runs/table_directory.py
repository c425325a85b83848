"""A directory with one table that tasks have written, and a document that makes its files count.

``<directory>/<table>/<file>``, then ``<directory>/<document>``. A task writes a file whole before it is moved there;
another attempt of the task writes another file, and only files that the document names count.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from coordinator_core import files, storage
from coordinator_core.errors import RegroupError, UsageError
from coordinator_core.runs.place import check_output_outside
from coordinator_core.runs.proof import FileProof, proof_of

STAGING = "_staging"
"""Directory in which tasks write until their files are whole; readers of directories pass over names with ``_``."""


class TableDirectory:
    """Publishes one table. A context manager: it removes its files, directories too, unless :meth:`publish` was
    reached.

    Raises :class:`UsageError` when the directory exists, and when it would lie inside one of ``sources``.
    """

    def __init__(self, directory: str, table: str, document: str, *, sources: Iterable[str]) -> None:
        check_output_outside(directory, sources)
        self.directory = directory
        self._table = table
        self._document = document
        try:
            self._made = files.create_directory(directory)
        except FileExistsError:
            raise UsageError(
                f"{directory} exists already; a {table} is never overwritten, choose another directory"
            ) from None
        self._published = False

    def __enter__(self) -> Self:
        try:
            storage.make_directory(staging_path(self.directory))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if not self._published:
            remove_unpublished(self.directory, self._made)

    def publish(self, names: Collection[str], document: Mapping[str, Any]) -> None:
        """Write the document, which makes the files ``names`` count, and delete those of other attempts."""
        remove_other_attempts(self.directory, [self._table], names)
        files.write_json(storage.join(self.directory, self._document), document)
        self._published = True


def remove_unpublished(directory: str, made: Sequence[Path]) -> None:
    """Delete what a writer that failed has written, and the local directories that it has ``made`` above.

    Where that is refused, it stays: without its document it is nothing to readers, and ``prune`` takes it. The error of
    the writer is the one to hear of.
    """
    with suppress(RegroupError):
        storage.delete_while_written(directory)
    storage.remove_empty(made)


def remove_other_attempts(directory: str, tables: Iterable[str], names: Collection[str]) -> None:
    """Delete what is staged, and files of the tables that are not among ``names`` (relative to ``directory``)."""
    # What is staged first: an attempt that still runs can then move nothing out of it.
    storage.delete_while_written(staging_path(directory))
    for table in tables:
        for entry in storage.list_directory(storage.join(directory, table)):
            if f"{table}/{entry.name}" not in names:
                storage.delete(entry.path)


def staging_path(directory: str) -> str:
    """Directory for messages between tasks, and for files that are not whole."""
    return storage.join(directory, STAGING)


def message_path(directory: str, kind: str) -> str:
    """Path of a message from one task to another, which no other attempt writes."""
    return storage.join(staging_path(directory), f"{kind}-{secrets.token_hex(8)}.arrows")


def publish_file(directory: str, table: str, name: str) -> FileProof:
    """Move a file that is whole from the staging directory into the table; its proof."""
    staged = storage.join(staging_path(directory), name)
    proof = proof_of(staged)
    storage.make_directory(storage.join(directory, table), parents=False)
    files.move(staged, storage.join(directory, table, name))
    return proof

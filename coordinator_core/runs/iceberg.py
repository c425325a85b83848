"""Runs in tables of Apache Iceberg: published files are added to them as they are; no row is written.

A namespace has one Iceberg table for each table of a run, for all clusters. ``cluster``, ``window_key`` and ``run_id``,
which files do not have, are identity partitions: readers take them from the table's metadata (Iceberg's specification,
"Column Projection"). A branch has at most one run of each window of a cluster.

Loads ``pyiceberg``, an optional package: import it where it is asked for.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError, ValidationException
from pyiceberg.expressions import And, BooleanExpression, EqualTo
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import CreateTableTransaction, Table, TableProperties
from pyiceberg.typedef import Record
from pyiceberg.utils.config import Config

from coordinator_core import storage
from coordinator_core.errors import ExitCode, RegroupError, UsageError, lack_behind
from coordinator_core.runs.place import MANIFEST, RunPlace
from coordinator_core.runs.proof import open_parquet
from coordinator_core.runs.read import Run
from coordinator_core.runs.registered import check_names, forget_registration, is_registered, note_registration
from coordinator_core.runs.rows import declared
from coordinator_core.runs.schemas import TABLES

MAIN, AUDITED = "main", "audited"
"""Branches: the newest registered run of each window, and the newest that a gate has let through."""

PARTITIONS = {"cluster": "cluster", "window_key": "window", "run_id": "run_id"}
"""Columns by which tables are partitioned, and the field of a manifest that each has: WINDOW is a word of SQL."""

_ATTEMPTS = 10
_PROPERTIES = {
    # The files belong to runs: engines that expire snapshots must not delete them.
    "gc.enabled": "false",
    # A commit that another one overtook is decided anew here: repeated as it is, it would leave two runs of a window.
    TableProperties.COMMIT_NUM_RETRIES: "0",
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
}
_SECRET = re.compile(r"secret|token|password|credential|key|auth|sas|session|header", re.IGNORECASE)
_URI_PASSWORD = re.compile(r"(://[^/@\s:]*):[^@\s]+@")


class CatalogError(RegroupError):
    """A catalogue failed at a request; its earlier commits stay, and the same request may be repeated."""

    exit_code = ExitCode.APPLY_FAILED


@dataclass(frozen=True)
class Registration:
    """Result of :func:`register` and :func:`unregister`; ``changed`` names tables of the run, sorted."""

    catalog: str
    namespace: str
    branches: tuple[str, ...]
    changed: tuple[str, ...]


class Tables:
    """The tables of one namespace of a catalogue; a context manager, which closes the catalogue.

    ``properties`` come before those that pyiceberg finds in its file and in the environment. :class:`UsageError` for
    names that are none, and for properties that hold credentials: arguments and cluster files are shown.
    """

    def __init__(self, catalog: str, namespace: str, properties: Mapping[str, str]) -> None:
        check_names(catalog, namespace)
        for name, value in properties.items():
            if _SECRET.search(name) or _URI_PASSWORD.search(value):
                raise UsageError(
                    f"catalog property {name}: leave credentials to pyiceberg's file or to the environment "
                    f"(PYICEBERG_CATALOG__{catalog.upper()}__…)"
                )
        self.catalog, self.namespace = catalog, namespace
        self._configured = {**(Config().get_catalog_config(catalog) or {}), **properties}
        if not self._configured:
            raise UsageError(f"catalog {catalog!r} is not known to pyiceberg; give --property, or set it in its file")
        with self._said():
            self._catalog: Catalog = load_catalog(catalog, **properties)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):
            self._catalog.close()

    def register(self, run: Run, branch: str = MAIN) -> Registration:
        """Let ``branch`` have ``run``, in place of another run of its window; repeated, it changes nothing.

        :class:`DamagedInputError` when a file differs from the published one; :class:`CatalogError` too where another
        run of the window came into the branch meanwhile: then its tables may have either.
        """
        place = run_place(run)
        files = {name: _files_of(run, name) for name in sorted(run.manifest["tables"]) if name in TABLES}
        facts = _facts(run)
        with self._said():
            self._catalog.create_namespace_if_not_exists(self.namespace)
        # Before any commit: runs that a catalogue refers to must not be pruned meanwhile.
        note_registration(place.path, self.catalog, self.namespace)
        others: set[str] = set()
        changed = []
        with self._said():
            for name, wanted in files.items():
                told = facts | {"regroup.table-hash": run.table_hash(name) or ""}
                replaced = self._commit(name, place, branch, wanted, told)
                if replaced is not None:
                    changed.append(name)
                    others |= replaced
        self._forget_unless_referred_to(place, others - {place.run_id})
        self._check_whole(place, branch, files)
        return Registration(self.catalog, self.namespace, (branch,), tuple(changed))

    def _forget_unless_referred_to(self, place: RunPlace, run_ids: set[str]) -> None:
        """Remove the notes of runs of the window that are in no branch."""
        for run_id in sorted(run_ids - self._run_ids(place) if run_ids else ()):
            other = RunPlace(place.output, place.cluster, place.window, run_id)
            forget_registration(other.path, self.catalog, self.namespace)
            if run_id in self._run_ids(place):  # It was registered again meanwhile.
                note_registration(other.path, self.catalog, self.namespace)

    def _check_whole(self, place: RunPlace, branch: str, files: Mapping[str, Mapping[str, _File]]) -> None:
        """Of two registrations of a window at once, the one that ends later sees the tables of the other."""
        with self._said():
            there = {name: _entries(self._table(name), branch, place).keys() for name in files}
        if any(there[name] != wanted.keys() for name, wanted in files.items()):
            raise CatalogError(
                f"branch {branch} of {self.catalog}.{self.namespace}: another run of the window {place.window} was "
                "registered at the same time, and some tables have that one; register the run again that is to stay"
            )
        if not is_registered(place.path):  # Another registration had replaced the run, and was replaced.
            note_registration(place.path, self.catalog, self.namespace)

    def unregister(self, run: Run) -> Registration:
        """Take ``run`` out of all branches; its files may go then. Older snapshots of the tables still name them."""
        place, facts = run_place(run), _facts(run)
        changed = []
        with self._said():
            for name in sorted(TABLES):
                for branch in (MAIN, AUDITED):
                    if self._remove(name, place, branch, facts):
                        changed.append(name)
        forget_registration(place.path, self.catalog, self.namespace)
        return Registration(self.catalog, self.namespace, (MAIN, AUDITED), tuple(dict.fromkeys(changed)))

    def _commit(
        self, name: str, place: RunPlace, branch: str, wanted: Mapping[str, _File], told: Mapping[str, str]
    ) -> set[str] | None:
        """Ids of the runs whose files went, ``None`` where there was nothing to do."""
        for _ in range(_ATTEMPTS):
            table = self._table(name)
            if branch != MAIN and table.current_snapshot() is None:
                # Iceberg lets no other branch begin before this one. Another process may begin it, too.
                _committed(table, MAIN, [], [], {})
                table.refresh()
            there = _entries(table, branch, place)
            old = [entry for uri, entry in there.items() if uri not in wanted]
            new = [_data_file(table, uri, file, place) for uri, file in wanted.items() if uri not in there]
            # A branch without a snapshot is unknown to readers, of a table without rows too.
            if not old and not new and table.metadata.snapshot_by_name(branch) is not None:
                return None
            if _committed(table, branch, old, new, told):
                return {_run_id(entry) for entry in old}
        raise CatalogError(f"table {self.namespace}.{name}: others commit all the time")

    def _remove(self, name: str, place: RunPlace, branch: str, told: Mapping[str, str]) -> bool:
        """Whether files of the run were in the branch."""
        for _ in range(_ATTEMPTS):
            try:
                table = self._catalog.load_table(f"{self.namespace}.{name}")
            except NoSuchTableError:
                return False
            old = [entry for entry in _entries(table, branch, place).values() if _run_id(entry) == place.run_id]
            if not old:
                return False
            if _committed(table, branch, old, [], told):
                return True
        raise CatalogError(f"table {self.namespace}.{name}: others commit all the time")

    def _run_ids(self, place: RunPlace) -> set[str]:
        """Runs of a window that any branch of any table has."""
        with self._said():
            tables = [self._table(name) for name in TABLES]
            entries = [_entries(table, branch, place) for table in tables for branch in (MAIN, AUDITED)]
        return {_run_id(entry) for found in entries for entry in found.values()}

    def _table(self, name: str) -> Table:
        """The table, made if it is missing, with the columns of this version."""
        identifier, columns = f"{self.namespace}.{name}", _columns(name)
        try:
            table = self._catalog.load_table(identifier)
        except NoSuchTableError:
            # Another process may make it meanwhile.
            with suppress(TableAlreadyExistsError), self._making(name, columns) as made:
                with made.update_spec() as spec:
                    for column in PARTITIONS:
                        spec.add_identity(column)
                # Files tell no identifiers of columns: they are found by name.
                mapping = made.table_metadata.schema().name_mapping
                made.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping.model_dump_json()})
            table = self._catalog.load_table(identifier)
        if not set(columns.names) <= set(table.schema().column_names):
            with table.update_schema() as update:
                update.union_by_name(columns)
        return table

    def _making(self, name: str, columns: pa.Schema) -> CreateTableTransaction:
        return self._catalog.create_table_transaction(f"{self.namespace}.{name}", columns, properties=_properties(name))

    @contextmanager
    def _said(self) -> Iterator[None]:
        """Errors of a catalogue become one line without the credentials that opened it."""
        try:
            yield
        except (RegroupError, MemoryError):
            raise
        except Exception as error:
            if lack_behind(error) is not None:
                raise
            lines = str(error).strip().splitlines()
            said = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
            raise CatalogError(f"catalog {self.catalog}: {redacted(said, self._configured)}") from None


def redacted(text: str, properties: Mapping[str, object]) -> str:
    """``text`` without passwords of URIs, and without the values of ``properties`` that may be credentials."""
    for name, value in properties.items():
        if _SECRET.search(name) and isinstance(value, str) and value:
            text = text.replace(value, "***")
    return _URI_PASSWORD.sub(r"\1:***@", text)


def run_place(run: Run) -> RunPlace:
    """Output, cluster, window and id of a run, by its path.

    :class:`UsageError` where the manifest has others: it was moved, and nothing would tell its name.
    """
    path = os.path.abspath(storage.local_path(run.path)) if storage.is_local(run.path) else run.path
    place = RunPlace.of(path)
    if (place.cluster, place.window, place.run_id) != tuple(run.manifest[name] for name in PARTITIONS.values()):
        raise UsageError(f"{run.path}: its manifest names another cluster, window or run id than its path")
    return place


def _columns(name: str) -> pa.Schema:
    """Columns of an Iceberg table, with their meanings as documentation."""
    # Optional, though each row has them: pyiceberg refuses files without a required column before it looks further.
    place = [pa.field(column, pa.string()) for column in PARTITIONS]
    fields = [field.with_metadata({"doc": (field.metadata or {})[b"comment"]}) for field in TABLES[name].arrow]
    return pa.schema([*place, *fields])


def _properties(name: str) -> dict[str, str]:
    """Properties of an Iceberg table. Our files have statistics of the columns of the key alone.

    As they are: where pyiceberg shortens an upper bound, it may make a surrogate of the last character, and fail.
    """
    of_column = TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX
    metrics = {f"{of_column}.{column}": "full" for column in TABLES[name].key}
    return _PROPERTIES | {TableProperties.DEFAULT_WRITE_METRICS_MODE: "none"} | metrics


def _facts(run: Run) -> dict[str, str]:
    """Properties of a snapshot: the proof of the run."""
    manifest = bytes(storage.read(storage.join(run.path, MANIFEST)))
    return {
        **{f"regroup.{name.replace('_', '-')}": str(run.manifest[name]) for name in PARTITIONS.values()},
        "regroup.state-hash": run.state_hash,
        "regroup.manifest-sha256": hashlib.sha256(manifest).hexdigest(),
    }


@dataclass(frozen=True)
class _File:
    footer: pq.FileMetaData
    size_bytes: int


def _files_of(run: Run, name: str) -> dict[str, _File]:
    """The files of a table that have rows, by the URI that Iceberg knows them by."""
    found = {}
    for path, proof in run.parquet_files(name):
        with open_parquet(path, proof) as parquet:
            declared(path, parquet.schema_arrow.empty_table(), TABLES[name].arrow)
            # Readers pass over files without rows.
            if parquet.metadata.num_rows:
                entry = storage.stat(path)
                found[_uri(path)] = _File(parquet.metadata, 0 if entry is None else entry.size)
    return found


def _uri(path: str) -> str:
    if not storage.is_local(path):
        # How the storage is reached is the catalogue's matter.
        uri = path.partition("?")[0]
    else:
        uri = f"file://{os.path.abspath(storage.local_path(path))}"
    if "?" in uri or "#" in uri:
        raise UsageError(f"{path}: readers of Iceberg take no path with ? or #")
    return uri


def _data_file(table: Table, uri: str, file: _File, place: RunPlace) -> DataFile:
    """The entry of a file, with the statistics of its footer."""
    schema = table.schema()
    columns = parquet_path_to_id_mapping(schema)
    found = data_file_statistics_from_parquet_metadata(
        parquet_metadata=file.footer,
        # Not by the table's properties: those of earlier versions shorten bounds.
        stats_columns=compute_statistics_plan(schema, _properties(table.name()[-1])),
        parquet_column_mapping=columns,
    )
    for name in _without_bounds(file.footer):
        found.column_aggregates.pop(columns[name], None)
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=uri,
        file_format=FileFormat.PARQUET,
        partition=Record(place.cluster, place.window, place.run_id),
        file_size_in_bytes=file.size_bytes,
        sort_order_id=None,
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
        **found.to_serialized_dict(),
    )


def _without_bounds(footer: pq.FileMetaData) -> Iterator[str]:
    """Columns of which a row group has values, but no bounds: Parquet leaves out those above 4 KiB.

    Those of the other row groups are no bounds of the file: engines would pass over it.
    """
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for place in range(footer.num_columns):
            column = group.column(place)
            found = column.statistics
            if found is None or (not found.has_min_max and found.null_count < column.num_values):
                yield column.path_in_schema


def _entries(table: Table, branch: str, place: RunPlace) -> dict[str, DataFile]:
    """Files that a branch has of a window of a cluster, by URI."""
    head = table.metadata.snapshot_by_name(branch)
    if head is None:
        return {}
    window = And(_is("cluster", place.cluster), _is("window_key", place.window))
    scan = table.scan(row_filter=window, snapshot_id=head.snapshot_id)
    return {task.file.file_path: task.file for task in scan.plan_files()}


def _is(column: str, value: str) -> BooleanExpression:
    # Pydantic's signature, which knows nothing of the names that pyiceberg takes here.
    return EqualTo(column, value)  # type: ignore[call-arg, arg-type]


def _run_id(entry: DataFile) -> str:
    return str(entry.partition[list(PARTITIONS).index("run_id")])


def _committed(
    table: Table, branch: str, old: Sequence[DataFile], new: Sequence[DataFile], told: Mapping[str, str]
) -> bool:
    """Whether the branch has ``new`` in place of ``old`` now; false when another commit came first."""
    try:
        with table.transaction() as transaction:
            update = transaction.update_snapshot(snapshot_properties=dict(told), branch=branch)
            with update.overwrite() as snapshot:
                for entry in old:
                    snapshot.delete_data_file(entry)
                for entry in new:
                    snapshot.append_data_file(entry)
    except (CommitFailedException, ValidationException):
        return False
    return True

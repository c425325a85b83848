"""Reading a published run: its manifest, its tables, and the replayed state that they hold."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coordinator_core import files, storage
from coordinator_core.errors import DamagedInputError, UsageError, lack_behind
from coordinator_core.groups.model import PartitionState
from coordinator_core.log.reader import OnDamage
from coordinator_core.merge.packed import LongTexts
from coordinator_core.merge.schema import without_long_texts
from coordinator_core.replay.writer import REDPANDA, written_by_redpanda
from coordinator_core.runs.place import LATEST, MANIFEST, is_run
from coordinator_core.runs.proof import FileProof, open_parquet, parsing
from coordinator_core.runs.publish import Manifest
from coordinator_core.runs.rows import BLOCK_ROWS, Bounded, ImpossibleRowError, blocks, impossible_row
from coordinator_core.runs.schemas import READ_VERSIONS, TABLES
from coordinator_core.runs.shape import check_manifest
from coordinator_core.runs.states import partition_states


class RunError(UsageError):
    """The directory is no run that this version can read."""


@dataclass(frozen=True)
class Run:
    """A published run at ``path``; tables are read when asked for."""

    path: str
    manifest: Manifest
    _opened: set[str] = field(default_factory=set, repr=False, compare=False, kw_only=True)
    """Files that were opened before, by this object or one that it is a part of."""

    @property
    def state_hash(self) -> str:
        return str(self.manifest["state_hash"])

    @property
    def now_ms(self) -> int:
        return int(self.manifest["now_ms"])

    @property
    def profile(self) -> str:
        return str(self.manifest["profile"])

    @property
    def partial(self) -> bool:
        return not self.manifest["complete"]

    def on_damage(self, asked: OnDamage = OnDamage.FAIL) -> OnDamage:
        """How its log is read again: past damage as it was read, unless another way is ``asked`` for."""
        if asked is not OnDamage.FAIL:
            return asked
        # Runs of earlier versions do not say it.
        return OnDamage(self.manifest.get("on_damage", (OnDamage.RECOVER if self.partial else OnDamage.FAIL).value))

    @property
    def topic_names(self) -> dict[str, str]:
        return dict(self.manifest["topic_names"])

    def refuse_other_rules(self) -> None:
        """``UsageError`` for a run of a log whose broker does not keep Kafka's rules: for what answers by them."""
        # Runs of earlier versions do not say it.
        if self.manifest.get("written_by") == REDPANDA:
            raise UsageError(written_by_redpanda(self.path, self.manifest["offsets_topic_num_partitions"]))

    def has_table(self, name: str) -> bool:
        return name in self.manifest["tables"]

    def rows(self, name: str) -> int:
        """Rows of a table, by the manifest."""
        return int(self.manifest["tables"][name]["rows"])

    def table_hash(self, name: str) -> str | None:
        """Digest of the rows of a table; ``None`` where the run has no such table."""
        return str(self.manifest["tables"][name]["hash"]) if self.has_table(name) else None

    def table(
        self,
        name: str,
        *,
        group_ids: Collection[str] | None = None,
        whole_metadata: bool = True,
        long_texts: LongTexts | None = None,
    ) -> pa.Table:
        """Rows of one table, of the given groups only where ``group_ids`` is set and the table has groups.

        ``whole_metadata`` and ``long_texts`` are those of ``merge.schema.MergedPartition.to_state``.

        Raises :class:`DamagedInputError` when a file differs from the published one, or is more than is allowed in
        memory (``runs.rows.Bounded``), and :class:`RunError` when it cannot be read.
        """
        kept = list(self._kept(name, group_ids, whole_metadata, long_texts))
        return pa.concat_tables([TABLES[name].arrow.empty_table(), *kept])

    def _kept(
        self, name: str, group_ids: Collection[str] | None, whole_metadata: bool, long_texts: LongTexts | None
    ) -> Iterator[pa.Table]:
        """The blocks of :meth:`table`."""
        wanted = None if group_ids is None else pa.array(sorted(group_ids), pa.string())
        bounded = Bounded(self.table_bytes(name))
        for path, rows in self.blocks(name, TABLES[name].arrow):
            if wanted is not None and "group_id" in rows.column_names:
                rows = rows.filter(pc.is_in(rows["group_id"], wanted))
            if long_texts is not None:
                # Their arguments are kept as well.
                bounded.take(path, rows)
            if not whole_metadata and "metadata" in rows.column_names:
                place = rows.schema.get_field_index("metadata")
                try:
                    metadata = without_long_texts(rows["metadata"], long_texts)
                except ValueError as error:
                    raise impossible_row(path, None, f"column metadata: {error}") from None
                rows = rows.set_column(place, rows.schema.field(place), metadata)
            yield rows if long_texts is not None else bounded.take(path, rows)

    def blocks(self, name: str, schema: pa.Schema, block_rows: int = BLOCK_ROWS) -> Iterator[tuple[str, pa.Table]]:
        """Rows of one table with the path of their file, in the columns of ``schema``, ``block_rows`` at a time."""
        read = 0
        dictionaries = [field.name for field in schema if pa.types.is_dictionary(field.type)]
        try:
            for path, proof in self.parquet_files(name):
                is_again = path in self._opened
                with (
                    open_parquet(path, proof, is_again=is_again, read_dictionary=dictionaries) as parquet,
                    parsing(path),
                ):
                    self._opened.add(path)
                    for rows in self._blocks(name, path, parquet, schema, block_rows):
                        yield path, rows
                        read += rows.num_rows
        except KeyError as error:
            raise impossible_row(path, None, f"the table has no column {error}") from None
        except (OSError, ValueError, pa.ArrowException) as error:
            if lack_behind(error) is not None:
                raise
            storage.raise_refused(self.path, error)
            raise RunError(f"{self.path}: table {name} cannot be read: {error}") from None
        self._check_rows(name, read)

    def _blocks(
        self, name: str, path: str, parquet: pq.ParquetFile, schema: pa.Schema, block_rows: int
    ) -> Iterator[pa.Table]:
        return blocks(path, parquet, schema, block_rows=block_rows)

    def _check_rows(self, name: str, read: int) -> None:
        listed = self.manifest["tables"][name]["rows"]
        if read != listed:
            path = next((path for path, _ in self.parquet_files(name)), storage.join(self.path, name))
            raise impossible_row(path, None, f"table {name} has {read} rows, its manifest says {listed}")

    @property
    def log_bytes(self) -> Counter[int]:
        """Bytes of the log that the run was made of, by offsets partition."""
        found: Counter[int] = Counter()
        for entry in self.manifest["inputs"]:
            found[entry["offsets_partition"]] += int(entry["bytes"])
        return found

    def table_bytes(self, name: str) -> int:
        """Bytes of the files of a table."""
        found = 0
        for path, proof in self.parquet_files(name):
            entry = storage.stat(path) if proof is None else None
            found += proof["bytes"] if proof is not None else 0 if entry is None else entry.size
        return found

    def parquet_files(self, name: str) -> Iterator[tuple[str, FileProof | None]]:
        """Path of each file of a table, with its published facts; earlier versions told nothing.

        :class:`RunError` when there is no such table.
        """
        if not self.has_table(name):
            raise RunError(f"{self.path} has no table {name!r} (it has {', '.join(self.manifest['tables'])})")
        listed = self.manifest["tables"][name]
        for file, proof in zip_longest(listed["files"], listed.get("proofs", ())):
            yield storage.join(self.path, file), proof

    def check_files(self) -> None:
        """:class:`DamagedInputError` for a file that differs from the published one, as far as :meth:`table` tells."""
        for name in self.manifest["tables"]:
            for path, proof in self.parquet_files(name):
                if proof is not None:
                    open_parquet(path, proof).close()

    def states(
        self,
        *,
        tables: Collection[str] = tuple(TABLES),
        group_ids: Collection[str] | None = None,
        whole_metadata: bool = True,
        long_texts: LongTexts | None = None,
    ) -> list[PartitionState]:
        """The replayed state, by offsets partition, as far as ``tables`` hold it; of some groups only, when
        ``group_ids`` is set. ``whole_metadata`` and ``long_texts`` are those of :meth:`table`.

        :class:`DamagedInputError` for rows that contradict each other.
        """
        found: dict[str, Iterable[pa.Table]] = {
            name: self._kept(name, group_ids, whole_metadata, long_texts) for name in tables if self.has_table(name)
        }
        if "members" in found:
            found["members"] = list(found["members"])
        try:
            return partition_states(found)
        except ImpossibleRowError as error:
            raise self.impossible(error, is_whole=group_ids is None) from error

    def impossible(self, error: ImpossibleRowError, *, is_whole: bool = True) -> DamagedInputError:
        """The error that names the file; and the row in it, where the rows that were read are all of the table."""
        row, place = error.row, storage.join(self.path, error.table)
        for path, proof in self.parquet_files(error.table) if is_whole else ():
            with open_parquet(path, proof) as parquet:
                if row < parquet.metadata.num_rows:
                    return impossible_row(path, row, error.reason)
                row -= parquet.metadata.num_rows
            # A footer may tell of fewer rows than there are.
            place = path
        return impossible_row(place, None, error.reason)


def open_run(path: str) -> Run:
    """The run at ``path``; :class:`RunError` when there is none, or one of a version unknown here."""
    if not is_run(path):
        raise RunError(f"{path} is not a published run: it has no {MANIFEST}")
    try:
        manifest: Any = files.read_json(storage.join(path, MANIFEST))
    except ValueError as error:
        raise RunError(f"{path}: {MANIFEST} cannot be read: {error}") from None
    except UsageError:
        if is_run(path):
            raise
        raise RunError(f"{path} is no published run any more: its {MANIFEST} was deleted") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("tables"), dict):
        raise RunError(f"{path}: {MANIFEST} is not the manifest of a run")
    schema_version = manifest.get("schema_version")
    if schema_version not in READ_VERSIONS:
        known = " and ".join(map(str, READ_VERSIONS))
        raise RunError(f"{path} has schema version {schema_version}; this version of Regroup reads {known}")
    try:
        check_manifest(manifest)
    except ValueError as error:
        raise RunError(f"{path}: {MANIFEST} is not the manifest of a run: {error}") from None
    return Run(_named(path, manifest), manifest)


def _named(path: str, manifest: Manifest) -> str:
    """``path`` if it ends in cluster, window and id of the run; of ``.``, ``RUN/.`` or a link the real one.

    Other runs of the cluster, and what is kept about this one, are found by it.
    """
    window_path, run_id = storage.split(path)
    cluster_path, window = storage.split(window_path)
    names = (storage.split(cluster_path)[1], window, run_id)
    if not storage.is_local(path) or names == (manifest["cluster"], manifest["window"], manifest["run_id"]):
        return path
    return os.path.realpath(storage.local_path(path))


def resolve_latest(output: str, cluster: str) -> Run:
    """The run that ``latest.json`` of ``cluster`` names; :class:`RunError` when there is none."""
    path = storage.join(output, cluster, LATEST)
    if not storage.exists(path):
        raise RunError(f"{output} has no published run of cluster {cluster!r}")
    try:
        window, run_id = files.read_json(path)["path"].split("/")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RunError(f"{path} cannot be read") from None
    return open_run(storage.join(output, cluster, window, run_id))

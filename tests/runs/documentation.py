"""The page ``docs/tables.md``, made from the schemas.

``python -m tests.runs.documentation > docs/tables.md`` writes it.
"""

from __future__ import annotations

import pyarrow as pa

from coordinator_core.runs.schemas import SCHEMA_VERSION, TABLES, TableSchema

_HEAD = f"""# Tables of a run

After this page you can read the tables and the manifest of a run with any tool.

A run is `<output>/<cluster>/<window>/<run id>/<table>/part-*.parquet` and, written last, `manifest.json`,
which names the files that count. `<output>/<cluster>/latest.json` names the newest run. This page is made
from the schemas (version {SCHEMA_VERSION}) in `coordinator_core/runs/schemas.py`.

Runs of version 2 are read too. They have no digests of their files, so `regroup verify` refuses them.

- `offsets_partition` and `record_offset` are the coordinates at which Kafka's dump tool prints the record
  that a row comes from. Where no single record made the row, `record_offset` is null or missing.
- Times end in `_ms` (epoch milliseconds), sizes in `_bytes`. Topic ids are Kafka's 22-character text; the
  manifest's `topic_names` says what they are called. Null stands for what Kafka calls absent.
- Rows of a file are in the order of the table's key. It is unique, but in a run that is not complete those of
  `transactions`, `load_failures` and `carried_records`: record offsets of a damaged log may repeat.
- Tables marked *state* make up the manifest's `state_hash`; their columns marked † do not.
  `coordinator_core/runs/state_hash.py` gives the scheme.

## `manifest.json`

| field | meaning |
|---|---|
| `regroup_version`, `schema_version`, `state_hash_version`, `versions` | what wrote the run, and how |
| `cluster`, `window`, `run_id` | where it lies |
| `now_ms` | the time that ages were measured from |
| `profile`, `profile_name`, `release`, `coordinator`, `profile_inferred` | whose rules were applied |
| `complete`, `damage` | false when anything in the input was damaged; all of that, with its positions |
| `on_damage` | `fail`, `recover` (`--partial`) or `salvage`: how commands read the log of the run again |
| `engine`, `seconds`, `steps` | `local` or `spark`, and how long it took |
| `sources`, `inputs` | what was named, and the segments with their sizes and fingerprints: absolute paths, or URIs |
| `fold_cache` | segments whose folds the cache had (`hits`), had not (`misses`), or had `corrupt` |
| `cut` | by offsets partition: log start offset and log end offset of what was read, and how far it was cleaned |
| `topic_names` | topic id to name, as far as directories of the snapshot or partition metadata records tell |
| `tables` | by table: `rows`, `files`, `hash`, which depends on the rows alone, and `proofs`: SHA-256 of the files |
| `state_hash` | equal exactly when two replays found the same state |
| `load_failures`, `carried_records` | rows of these tables |
| `findings` | null for each severity: rules look at a run later, and publish beside it (`_findings/<run id>/`) |
| `offsets_topic_num_partitions` | as given, else that of `topology.json`, else what fits every group (first 50) |
| `written_by` | `kafka`, or `redpanda`: groups are where [Redpanda](cli.md#logs-of-other-brokers) puts them |
"""

_HISTORY = """\
## `history`, beside a run

On request only, and not in the run: `<output>/<cluster>/<window>/_history/<run id>/<id>/history/part-*.parquet` and,
written last, `history.json` in the directory above. A row is a value of an offset key, of all groups or of chosen ones;
[investigate](investigate.md#the-table-history) has the columns, and how it is written. Rows are in the order of the
files in `history.json`: by offsets partition, those of a group together. `history.json` has:

| field | meaning |
|---|---|
| `regroup_version`, `history_version`, `versions` | what wrote the table, and how |
| `run`, `sources` | the run, null for the table of a snapshot; the log directories |
| `profile`, `profile_inferred` | rules that causes are told by |
| `offsets_retention_ms`, `offsets_retention_captured_ms` | the retention that was given, and the captured one |
| `groups` | the groups asked for, null: all |
| `complete`, `damage` | as in a manifest |
| `engine`, `seconds` | `spark`, and how long it took |
| `rows`, `files`, `proofs`, `hash` | as of a table in a manifest; `hash` is that of `regroup history --digest` |
"""


def tables_page() -> str:
    """The whole page, Markdown."""
    return "\n".join([_HEAD, *(_section(table) for table in TABLES.values()), _HISTORY])


def _section(table: TableSchema) -> str:
    state = " (state)" if table.is_state else ""
    key = ", ".join(f"`{name}`" for name in table.key)
    lines = [
        f"## `{table.name}`{state}",
        "",
        f"{table.summary[0].upper()}{table.summary[1:]}. Key: {key}.",
        "",
        "| column | type | meaning |",
        "|---|---|---|",
    ]
    for field in table.arrow:
        mark = " †" if field.name in table.not_state else ""
        meaning = field.metadata[b"comment"].decode()
        null = ", null" if field.nullable else ""
        lines.append(f"| `{field.name}`{mark} | {_type(field.type)}{null} | {meaning} |")
    return "\n".join([*lines, ""])


def _type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"list of {_type(kind.value_type)}"
    if pa.types.is_struct(kind):
        return f"({', '.join(f'{field.name} {_type(field.type)}' for field in kind)})"
    return str(kind)


if __name__ == "__main__":
    print(tables_page(), end="")

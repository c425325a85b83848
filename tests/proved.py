"""Table of what the corpus proves, counted from its logs (``python -m tests.proved`` prints the README's table)."""

from __future__ import annotations

from collections import defaultdict

from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage, read_records
from coordinator_core.log.types import Codec
from coordinator_core.records.codec import decode_key
from tests.cases import CASES


def table() -> list[str]:
    """Markdown: a row per Kafka release whose broker wrote and answered for at least one log."""
    formats: dict[str, set[str]] = defaultdict(set)
    records: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    snapshots: dict[str, int] = defaultdict(int)
    for case in CASES:
        release = f"{case.release} ({case.coordinator} coordinator)" if case.coordinator else case.release
        snapshots[release] += 1
        for log in discover([str(path) for path in case.paths]).partitions:
            for _, batch, found in read_records(log, on_damage=OnDamage.SALVAGE, damage=[]):
                formats[release].add(f"{batch.magic} {Codec(batch.codec_id).name.lower()}")
                for record in [] if batch.is_control else found:
                    assert record.key is not None
                    versions = records[release][decode_key(record.key).type]
                    if record.value is not None:
                        versions.add(int.from_bytes(record.value[:2], "big"))
    lines = [
        "| Kafka | logs | message format and codec | record types (value versions) |",
        "|---|---|---|---|",
    ]
    for release in sorted(snapshots, key=lambda text: [int(part) for part in text.split(" ")[0].split(".")]):
        types = ", ".join(
            f"{key_type} ({' '.join(f'v{version}' for version in sorted(versions)) or 'tombstones'})"
            for key_type, versions in sorted(records[release].items())
        )
        lines.append(f"| {release} | {snapshots[release]} | {', '.join(sorted(formats[release]))} | {types} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table()))

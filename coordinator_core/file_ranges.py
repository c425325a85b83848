"""Parts of files, in which tasks find what others have written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordinator_core import storage

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class FileRange:
    """Bytes of a file."""

    path: str
    position: int
    size: int

    def read(self) -> pa.Buffer:
        with storage.input_file(self.path) as file:
            file.seek(self.position)
            return file.read_buffer(self.size)

    def joined(self, later: FileRange, most_bytes: int) -> FileRange | None:
        """This range and ``later``; ``None`` where that does not begin at its end, or where both are larger."""
        size = self.size + later.size
        is_next = (self.path, self.position + self.size) == (later.path, later.position)
        return FileRange(self.path, self.position, size) if is_next and size <= most_bytes else None

"""What the process of the command line does without, for the sake of its start."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

_GC_THRESHOLD = 100_000


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is kept out of this process", name=fullname)


def keep_pandas_out() -> None:
    """Have Arrow find no pandas: its first ``pa.array`` imports it, which takes longer than to fold 100 MB.

    For processes of our own only: pandas is then missing for everybody.
    """
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas())


def start_light() -> None:
    """To be called before anything large is imported."""
    # Nothing here multiplies matrices; numpy would start threads for it all the same.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # What a command makes lives in arrays or as long as the process; looking for cycles took a tenth of it.
    gc.set_threshold(_GC_THRESHOLD)
    keep_pandas_out()

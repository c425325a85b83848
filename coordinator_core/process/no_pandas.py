"""An import blocker for pandas (``pandas`` of ``REGROUP_PLAIN``).

CPU of ``regroup replay`` where pandas is installed, without it and with it: 1.0 and 1.2 s for a log of some kilobytes,
1.8 and 2.1 s for 1 GB. Arrow has no setting for that.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType

from coordinator_core.process.plain import is_plain


class _NoPandas:
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is kept out of this process", name=fullname)


def keep_pandas_out() -> None:
    """Have Arrow find no pandas: its first ``pa.array`` imports it where it is installed.

    For processes of our own only: pandas is then missing for everybody.
    """
    if "pandas" not in sys.modules and not is_plain("pandas"):
        sys.meta_path.insert(0, _NoPandas())

"""The archive of parsed classes with which Spark's JVM starts (JEP 350; ``class-archive`` of ``REGROUP_PLAIN``).

CPU of the JVM in a small replay on ``local[2]``: 2.1 s with it, 3.7 s without. Java 19 and newer keep such an archive
themselves (``-XX:+AutoCreateSharedArchive``); Java 17 does not.

The first session on a machine writes it when it ends, later ones map it. The JVM checks itself that it was
made by the same JVM from the same jars, and does without when it was not.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from subprocess import Popen, TimeoutExpired

from coordinator_core.process.plain import is_plain
from coordinator_core.storage import is_private, user_cache

_WRITE_SECONDS = 60.0
_STALE_SECONDS = 3600.0


class ClassData:
    """The archive for the JVM and the Spark that would run now."""

    def __init__(self) -> None:
        self.archive = cache_directory() / f"{_identity()}.jsa"
        self._new: Path | None = None

    def jvm_options(self) -> list[str]:
        """Options that use the archive or, when there is none, have the JVM write one as it ends."""
        if is_plain("class-archive"):
            return []
        try:
            self.archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # The JVM runs the classes of an archive, so nobody else may have put them there, or put them there later.
            if not is_private(self.archive.parent.lstat()):
                return []
            if os.path.lexists(self.archive):
                status = self.archive.lstat()
                if not stat.S_ISREG(status.st_mode) or not is_private(status):
                    return []
                # The JVM would report an archive that does not fit on standard output, which is the app's.
                return [f"-XX:SharedArchiveFile={self.archive}", "-Xlog:disable"]
            _remove_leftovers(self.archive.parent)
            handle, name = tempfile.mkstemp(prefix=".", suffix=".new", dir=self.archive.parent)
            os.close(handle)
        except OSError:
            return []
        self._new = Path(name)
        return [f"-XX:ArchiveClassesAtExit={self._new}", "-Xlog:disable"]

    def keep(self, jvm: Popen[bytes]) -> None:
        """Let the JVM end, and keep the archive that it writes meanwhile, if it does."""
        if self._new is None:
            return
        with suppress(OSError, TimeoutExpired):
            if jvm.stdin is not None:
                jvm.stdin.close()
            jvm.wait(_WRITE_SECONDS)
            if self._new.stat().st_size:
                os.replace(self._new, self.archive)
        with suppress(OSError):
            self._new.unlink()


def cache_directory() -> Path:
    """Directory of archives, below the user's cache directory."""
    return Path(user_cache("spark"))


def _identity() -> str:
    """Digest of the facts that identify this JVM and this Spark."""
    import pyspark

    java_home = os.environ.get("JAVA_HOME")
    java = Path(java_home, "bin", "java") if java_home else Path(shutil.which("java") or "java")
    facts = [pyspark.__version__, str(Path(pyspark.__file__).parent)]
    with suppress(OSError):
        found = java.resolve(strict=True)
        facts += [str(found), str(found.stat().st_mtime_ns)]
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]


def _remove_leftovers(directory: Path) -> None:
    """Delete the files of sessions that were killed."""
    oldest = time.time() - _STALE_SECONDS
    for path in directory.glob(".*.new"):
        with suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()

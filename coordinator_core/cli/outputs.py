"""What commands write: never what they read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from functools import cache, wraps
from itertools import accumulate
from typing import Any

import click

from coordinator_core import storage
from coordinator_core.errors import UsageError

_OUTPUTS = {"--output", "--repair", "--names", "--textfile", "--openlineage"}
"""Options that name a file or directory to write."""
_LOGS, _FILES = {"SNAPSHOT", "RUN"}, {"FILE", "CSV", "PARQUET", "PREDICTION", "JOURNAL"}
"""Words in the metavar of parameters that name logs or runs, and files."""
_OTHER_LOGS = {"brokers", "transaction_log"}


@cache
def refusing_inputs(command: click.Command) -> click.Command:
    """``command``, which ends with :class:`UsageError`, before it begins, where an output is a file that it reads, or
    lies inside a run or a partition directory that it reads, there already or not. Others beside a log may be
    written."""
    run, outputs = command.callback, [param for param in command.params if _OUTPUTS.intersection(param.opts)]
    if run is not None and outputs:

        @wraps(run)
        def checked(*args: Any, **given: Any) -> Any:
            params = click.get_current_context().params
            inputs = [(param, params[str(param.name)]) for param in command.params if param not in outputs]
            for output in (params[str(param.name)] for param in outputs):
                if output is not None:
                    _check(output, *_inputs(inputs))
            return run(*args, **given)

        command.callback = checked
    return command


def refuse_read(path: str, files: Iterable[str]) -> None:
    """:class:`UsageError` where ``path``, which is to be written, is one of ``files``, which are read."""
    if _place(path) in map(_place, files):
        raise _read(path)


def refuse_other_file(path: str, begins: bytes, what: str) -> None:
    """:class:`UsageError` where ``path``, which is to be written, is a file but no earlier ``what``: all these
    begin with ``begins``."""
    found = storage.stat(path)
    if found is not None and found.size and bytes(storage.read(path, len(begins))) != begins:
        raise UsageError(f"the output {path} is there already, and is no {what}; choose another file")


def _read(path: str) -> UsageError:
    return UsageError(f"the output {path} is read by this command; choose another file")


def _check(output: str, logs: Iterable[str], files: Iterable[str]) -> None:
    # Loaded here: not needed for help.
    from coordinator_core.runs.place import check_output_outside, is_run

    for path in logs:
        if is_run(path):
            # Loaded here: a replay loads the Arrow behind runs while it folds.
            from coordinator_core.runs.read import open_run

            run = open_run(path)
            check_output_outside(output, [run.path])
            for source in run.manifest["sources"]:
                _check_log(output, source)
        else:
            _check_log(output, path)
    refuse_read(output, files)


def _check_log(output: str, path: str) -> None:
    """Refuse an output in a partition directory of the log at ``path``, and one with the name of a file that is read
    beside partition directories."""
    is_segment = path.endswith(".log") and not os.path.isdir(_place(path))
    top = storage.split(path)[0] if is_segment else path
    # A partition directory may be a link to another disk, and an output be named by either path.
    places = {(_place(top, resolve), _place(output, resolve)) for resolve in (os.path.realpath, os.path.abspath)}
    places |= {(link, _place(output)) for link in _links(top)}
    for directory, target in places:
        _check_below(output, directory, target, is_segment)


def _check_below(output: str, top: str, target: str, is_segment: bool) -> None:
    directories = _from_to(top, target)
    if not directories and os.path.dirname(target) != os.path.dirname(top):
        return
    # Loaded here: most outputs lie elsewhere.
    from coordinator_core.log.discovery import FILES_BESIDE
    from coordinator_core.runs.place import check_output_outside

    has_name = os.path.basename(target) in FILES_BESIDE
    if not (directories or has_name):
        return
    is_partition = is_segment or _is_partition(top)
    check_output_outside(output, [top] if is_partition else filter(_is_partition, directories[1:]))
    if has_name and (directories or is_partition):
        raise _read(output)


def _from_to(top: str, path: str) -> list[str]:
    """The directories from ``top`` down to ``path``, with both; none where it lies elsewhere."""
    top = top.rstrip("/")
    if not f"{path}/".startswith(f"{top}/"):
        return []
    return list(accumulate(path[len(top) :].split("/")[1:], "{}/{}".format, initial=top))


def _is_partition(directory: str) -> bool:
    """Whether it has the name of a partition directory of an internal topic, or holds segments."""
    from coordinator_core.log.discovery import has_segments

    if re.fullmatch(r"__.+-\d{1,10}", storage.split(directory)[1]):
        return True
    entry = storage.stat(directory)
    if entry is None or not entry.is_directory:
        return False
    return has_segments(storage.list_directory(directory))


def _inputs(params: Iterable[tuple[click.Parameter, Any]]) -> tuple[list[str], list[str]]:
    """Logs and runs among the values of parameters, and files."""
    logs: list[str] = []
    files: list[str] = []
    for param, value in params:
        if value is None:
            continue
        words = set(re.findall("[A-Z]+", param.metavar or ""))
        paths = [str(one) for one in value] if isinstance(value, tuple) else [str(value)]
        if words & _LOGS or param.name in _OTHER_LOGS:
            named = (path.partition("=")[2] if param.name == "brokers" else path for path in paths)
            logs += filter(None, named)
        elif words & _FILES or isinstance(param.type, click.Path):
            files += paths
    return logs, files


def _links(top: str) -> list[str]:
    """Where the links of a local directory lead to."""
    if not storage.is_local(top) or not os.path.isdir(storage.local_path(top)):
        return []
    with os.scandir(storage.local_path(top)) as entries:
        return [os.path.realpath(entry.path) for entry in entries if entry.is_symlink()]


def _place(path: str, resolve: Callable[[str], str] = os.path.realpath) -> str:
    return resolve(str(storage.local_path(path))) if storage.is_local(path) else path.rstrip("/")

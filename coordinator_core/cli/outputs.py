"""What commands write: never what they read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cache, wraps
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
    """``command``, which ends with :class:`UsageError`, before it begins, where an output is a file of what it reads,
    or lies inside a run that it reads. New files beside a log are none of it."""
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
        raise UsageError(f"the output {path} is read by this command; choose another file")


def _check(output: str, logs: Iterable[str], files: Iterable[str]) -> None:
    # Loaded here: not needed for help.
    from coordinator_core.runs.place import check_output_outside, is_run

    is_file = storage.is_local(output) and os.path.isfile(storage.local_path(output))
    for path in logs:
        if is_run(path):
            # Loaded here: a replay loads the Arrow behind runs while it folds.
            from coordinator_core.runs.read import open_run

            run = open_run(path)
            check_output_outside(output, [run.path, *(run.manifest["sources"] if is_file else [])])
        elif is_file:
            check_output_outside(output, [storage.split(path)[0] if path.endswith(".log") else path])
    refuse_read(output, files)


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


def _place(path: str) -> str:
    return os.path.realpath(storage.local_path(path)) if storage.is_local(path) else path

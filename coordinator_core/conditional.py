"""Files that several processes replace, by local path or URI: a writer that replaces one knows its content.

Local files are replaced under a lock file beside them, objects of S3, GCS and ABFS by conditional puts
(``obstore``: pyarrow has none). Where neither is to be had (HDFS, or ``AWS_CONDITIONAL_PUT=disabled`` for a server that
knows no conditions) the last of two that write at the same moment wins.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from coordinator_core import storage
from coordinator_core.errors import StorageError, UsageError, WriteError, not_written

if TYPE_CHECKING:
    from obstore.store import ObjectStore

Change = Callable[[bytes | None], bytes | None]
"""Makes the new content of what is there (``None``: nothing is); ``None`` leaves it as it is.

It may be called again, also with content that it has made itself: a put whose answer was lost is tried again.
"""

_TRIES = 20
_PASSING = re.compile(r"HTTP error: |status code: (5\d\d|429)\b")
"""Texts of obstore's errors after which a later try may succeed."""
_RETRIES: Any = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}


def update(path: str, change: Change) -> bool:
    """Replace the file at ``path`` by the result of ``change``; whether it wanted to.

    Where another process comes between, ``change`` is asked again with the content that it has written. ``WriteError``
    when others always come between, or the store does not take it, ``StorageError`` when it does not answer, and what
    :func:`storage.write_atomic` raises.
    """
    if storage.is_local(path):
        return _locked_update(path, change)
    store = _store(path)
    if store is None:
        return _plain_update(path, change)
    return _conditional_update(store, path, change)


def _plain_update(path: str, change: Change) -> bool:
    wanted = change(bytes(storage.read(path)) if storage.exists(path) else None)
    if wanted is not None:
        storage.write_atomic(path, wanted)
    return wanted is not None


def _locked_update(path: str, change: Change) -> bool:
    local = storage.local_path(path)
    storage.make_directory(str(local.parent))
    try:
        lock = local.with_name(f".{local.name}.lock").open("a")
    except OSError as error:
        raise not_written(path, error) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _plain_update(path, change)


def _conditional_update(store: ObjectStore, path: str, change: Change) -> bool:
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

    key = storage.below_root(path)
    try:
        for _ in range(_TRIES):
            content, condition = _found(store, key)
            wanted = change(content)
            if wanted is None:
                return False
            try:
                obstore.put(store, key, wanted, mode=condition)
                return True
            except (AlreadyExistsError, PreconditionError):
                continue
            except NotImplementedError:
                return _plain_update(path, change)
    except (BaseError, OSError) as error:
        # Behind that stand the answer of the server, and the error as Rust shows it.
        said = str(error).splitlines()[0].partition(": <?xml")[0]
        if _PASSING.search(said):
            raise StorageError(f"{path}: the storage does not answer: {said}") from None
        raise WriteError(f"{path}: cannot be replaced: {said}") from None
    raise WriteError(f"{path}: cannot be replaced: other processes write to it all the time")


def _found(store: ObjectStore, key: str) -> tuple[bytes | None, Any]:
    """Content of an object, and the condition under which exactly that is replaced."""
    import obstore

    try:
        found = obstore.get(store, key)
    except FileNotFoundError:
        return None, "create"
    known = {name: value for name in ("e_tag", "version") if (value := found.meta[name]) is not None}
    return bytes(found.bytes()), known


def _store(path: str) -> ObjectStore | None:
    """The store of a URI, over the credentials that pyarrow takes; ``None`` where it has no conditional put."""
    if not storage.is_object(path):
        return None
    main, _, query = path.partition("?")
    scheme, _, rest = main.partition("://")
    root = f"{scheme}://{rest.partition('/')[0]}"
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    try:
        return _opened(root, query, endpoint, os.environ.get("AWS_CONDITIONAL_PUT"))
    except ValueError as error:
        raise UsageError(f"{root}: {error}") from None


@lru_cache(maxsize=32)
def _opened(root: str, query: str, endpoint: str | None, conditions: str | None) -> ObjectStore:
    from obstore.exceptions import BaseError
    from obstore.store import S3Store, from_url

    try:
        if not root.lower().startswith("s3://"):
            return from_url(root.replace("gcs://", "gs://"), retry_config=_RETRIES)
        given = dict(parse_qsl(query))
        if "endpoint_override" in given:
            endpoint = f"{given.get('scheme', 'https')}://{given['endpoint_override'].rpartition('://')[2]}"
        settings: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
        if conditions:
            settings["conditional_put"] = conditions
        return S3Store(
            urlsplit(root).netloc,
            region=storage.filesystem(f"{root}/?{query}" if query else f"{root}/")[0].region,
            client_options={"allow_http": bool(endpoint) and str(endpoint).startswith("http://")},
            credential_provider=_credentials(),
            retry_config=_RETRIES,
            **settings,
        )
    except BaseError as error:
        raise ValueError(str(error)) from None


def _credentials() -> Any:
    """Credentials of a profile, where boto3 is there to read it; ``None``: of the environment or the machine."""
    if os.environ.get("AWS_ACCESS_KEY_ID") or importlib.util.find_spec("boto3") is None:
        return None
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return Boto3CredentialProvider()
    except ValueError:
        return None

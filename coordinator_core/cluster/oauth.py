"""Sources of OAUTHBEARER tokens: an endpoint (KIP-768), a file, or unsecured as is Kafka's default."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from kafka.net.sasl.oauth import AbstractTokenProvider

from coordinator_core.cluster.errors import LoginError
from coordinator_core.errors import UsageError

ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_CLAIM = "unsecuredLoginStringClaim_"
_LIFETIME_SECONDS = 3600
_TIMEOUT_SECONDS = 30
_RENEW_AT = 0.8
"""Share of a token's life after which a new one is asked for, as ``sasl.login.refresh.window.factor``."""


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Hands out a token until most of its life is over, then asks for the next. Safe in several threads."""

    def __init__(self, ask: Callable[[], tuple[str, float]]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._token = ""
        self._renew_at = 0.0

    def token(self) -> str:
        with self._lock:
            if time.monotonic() >= self._renew_at:
                self._token, seconds = self._ask()
                self._renew_at = time.monotonic() + seconds * _RENEW_AT
            return self._token


def token_provider(properties: Mapping[str, str], options: Mapping[str, str]) -> TokenProvider:
    """The provider for properties and options of ``OAuthBearerLoginModule``; ``UsageError`` names a wrong one."""
    endpoint = properties.get(ENDPOINT)
    if endpoint is not None:
        scheme = urllib.parse.urlsplit(endpoint).scheme
        if scheme == "file":
            path = Path(urllib.parse.unquote(urllib.parse.urlsplit(endpoint).path))
            return TokenProvider(lambda: (_from_file(path), _TIMEOUT_SECONDS))
        if scheme not in ("http", "https"):
            raise UsageError(f"{ENDPOINT}: expected an https:// or file:// address")
        for name in ("clientId", "clientSecret"):
            if name not in options:
                raise UsageError(f"sasl.jaas.config: OAuthBearerLoginModule needs {name} with {ENDPOINT}")
        return TokenProvider(lambda: _from_endpoint(endpoint, options))
    claims = {key.removeprefix(_CLAIM): value for key, value in options.items() if key.startswith(_CLAIM)}
    if "sub" not in claims:
        raise UsageError(f"OAUTHBEARER needs {ENDPOINT}, or {_CLAIM}sub in sasl.jaas.config for unsecured tokens")
    return TokenProvider(lambda: (_unsecured(claims), _LIFETIME_SECONDS))


def _from_file(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"{ENDPOINT}: {path} cannot be read") from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an error like any other: the secret is for the address that was configured alone."""

    def redirect_request(self, *_: object) -> None:
        return None


def _from_endpoint(endpoint: str, options: Mapping[str, str]) -> tuple[str, float]:
    """Client credentials grant (RFC 6749, 4.4): the token and its life in seconds."""
    pair = ":".join(urllib.parse.quote(options[name], safe="") for name in ("clientId", "clientSecret"))
    form = {"grant_type": "client_credentials", **({"scope": options["scope"]} if "scope" in options else {})}
    request = urllib.request.Request(
        endpoint,
        data=urllib.parse.urlencode(form).encode(),
        headers={"Authorization": "Basic " + base64.b64encode(pair.encode()).decode(), "Accept": "application/json"},
    )
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=_TIMEOUT_SECONDS) as answer:
            document = json.load(answer)
        return str(document["access_token"]), float(document.get("expires_in", _LIFETIME_SECONDS))
    except urllib.error.HTTPError as error:
        redirects = ", and no redirect is followed with a secret" if 300 <= error.code < 400 else ""
        raise LoginError(f"{ENDPOINT}: the endpoint answers {error.code} {error.reason}{redirects}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LoginError(f"{ENDPOINT}: no token from the endpoint ({type(error).__name__})") from None


def _unsecured(claims: Mapping[str, str]) -> str:
    """An unsigned JWT as ``OAuthBearerUnsecuredLoginCallbackHandler`` makes it; for brokers under test."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"iat": now, "exp": now + _LIFETIME_SECONDS, **claims})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, ""])

"""Requests to one registry: retried where that is harmless, authorized as it asks, errors in one line each."""

import json
import re
import threading
from collections.abc import Iterable, Mapping
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from images.registry import credentials, faults, trust
from images.registry.errors import RegistryError

TRIES = 4
BACKOFF_SECONDS = 0.25
_LONGEST_PAUSE = 20
# To connect, and between two pieces of an answer: a registry may take minutes to store gigabytes.
TIMEOUT_SECONDS = (15.0, 300.0)
_AGENT = "moet"
_TOKEN_BYTES = 1 << 20
_PARAMETER = re.compile(r'([a-z_]+)="([^"]*)"', re.IGNORECASE)

Body = bytes | Iterable[bytes]


class Transport:
    """What sends requests to `address` (HOST[:PORT]). Safe to use from several threads.

    Raises:
        RegistryError: from the constructor, when a CA file cannot be read.
    """

    def __init__(self, address: str, plain_http: bool = False, authfile: Path | None = None) -> None:
        self.address = address
        self._plain = plain_http
        self._authfile = authfile
        self._base: str | None = None
        self._headers: dict[tuple[str, str], str] = {}
        self._lock = threading.RLock()
        self._session = requests.Session()
        # Proxies and certificates are chosen here; ~/.netrc is nobody's log-in to a registry.
        self._session.trust_env = False
        self._session.verify = not plain_http
        self._session.headers["User-Agent"] = _AGENT
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        retry = Retry(
            total=TRIES - 1,
            other=0,
            status_forcelist=faults.TRANSIENT,
            allowed_methods=("GET", "HEAD"),
            backoff_factor=BACKOFF_SECONDS,
            raise_on_status=False,
            retry_after_max=_LONGEST_PAUSE,
        )
        adapter = _Adapter(None if plain_http else trust.context(address), max_retries=retry, pool_maxsize=8)
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)

    def close(self) -> None:
        """Gives the connections back."""
        self._session.close()

    def send(
        self,
        method: str,
        place: str,
        what: str,
        scope: str,
        *,
        accepted: tuple[int, ...],
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        stream: bool = False,
    ) -> requests.Response:
        """Sends one request and returns the answer, which has one of the `accepted` statuses.

        Args:
            method: GET, HEAD, POST, PUT.
            place: path from /v2/ on, or the URL that the registry gave.
            what: what is to be done, for messages.
            scope: what a token is asked for: "repository:NAME:pull" or "repository:NAME:pull,push".
            accepted: statuses that are no error.
            headers: headers of the request.
            body: what is sent; iterated anew each time that it is sent.
            stream: leave the answer's body to be read.

        Raises:
            RegistryError: no answer, or one with another status.
        """
        url = urljoin(self._origin(what), place)
        response = self._once(method, url, what, scope, headers, body, stream)
        if response.status_code == 401:
            response.close()
            with self._lock:
                self._headers.pop((self._repository(scope), scope), None)
                self._authorize(response, scope, what)
            response = self._once(method, url, what, scope, headers, body, stream)
        if response.status_code not in accepted:
            raise faults.refused(response, self.address, what, _tries(response))
        return response

    def _once(
        self,
        method: str,
        url: str,
        what: str,
        scope: str,
        headers: Mapping[str, str] | None,
        body: Body | None,
        stream: bool,
    ) -> requests.Response:
        sent = dict(headers or {})
        own = urljoin(url, "/") == self._base
        if own and (known := self._headers.get((self._repository(scope), scope))):
            sent["Authorization"] = known
        return self._request(method, url, what, headers=sent, data=body, stream=stream)

    def _request(self, method: str, url: str, what: str, **options: Any) -> requests.Response:
        try:
            return self._session.request(method, url, timeout=TIMEOUT_SECONDS, proxies=trust.proxies(url), **options)
        except requests.exceptions.RequestException as error:
            retried = method in ("GET", "HEAD") and not isinstance(error, requests.exceptions.SSLError)
            request = f"{method} {urlsplit(url).path}"
            raise faults.broken(error, self.address, what, request, TRIES if retried else 1) from None
        except (ValueError, OSError) as error:
            raise faults.broken(error, self.address, what, f"{method} {urlsplit(url).path}") from None

    def _origin(self, what: str) -> str:
        with self._lock:
            if self._base is None:
                self._base = self._find_origin(what) if self._plain else f"https://{self.address}/"
            return self._base

    def _find_origin(self, what: str) -> str:
        # --plain-http is also for registries whose certificate does not verify, as skopeo has it.
        plain = f"http://{self.address}/"
        answer = self._request("GET", f"{plain}v2/", what, allow_redirects=False, stream=True)
        said = next(answer.iter_content(500), b"")
        answer.close()
        wants_tls = answer.status_code == 400 and b"HTTPS" in said
        return f"https://{self.address}/" if wants_tls else plain

    def _repository(self, scope: str) -> str:
        return scope.split(":")[1] if scope.count(":") >= 2 else ""

    def _authorize(self, response: requests.Response, scope: str, what: str) -> None:
        name = self._repository(scope)
        known = credentials.find(self.address, name, self._authfile)
        challenge = response.headers.get("WWW-Authenticate", "")
        scheme = challenge.partition(" ")[0].lower()
        if scheme == "bearer":
            value = "Bearer " + self._token(dict(_PARAMETER.findall(challenge)), known, scope, what)
        elif scheme == "basic" and known is not None and known.user:
            value = known.basic
        else:
            return
        self._headers[name, scope] = value

    def _token(
        self, challenge: dict[str, str], known: credentials.Credentials | None, scope: str, what: str
    ) -> str:
        realm = urljoin(self._base or "", challenge.get("realm", ""))
        if self._base and self._base.startswith("https:") and not realm.startswith("https:"):
            raise RegistryError(f"{what}: {self.address} asks for a log-in at {realm}, which is not https: not done")
        asked = {"service": challenge.get("service", ""), "scope": scope}
        asked = {key: value for key, value in asked.items() if value}
        if known is not None and known.token:
            form = {**asked, "grant_type": "refresh_token", "client_id": _AGENT, "refresh_token": known.token}
            answer = self._request("POST", realm, what, data=form, stream=True)
        else:
            headers = {"Authorization": known.basic} if known else {}
            answer = self._request("GET", realm, what, params=asked, headers=headers, stream=True)
        if answer.status_code != 200:
            raise faults.refused(answer, self.address, what, _tries(answer))
        try:
            document = json.loads(limited(answer, _TOKEN_BYTES))
            return str(document.get("token") or document["access_token"])
        except (ValueError, KeyError, AttributeError, RecursionError):
            raise RegistryError(f"{what}: {realm} gave no token; see the log of the registry") from None


class _Adapter(HTTPAdapter):
    def __init__(self, context: Any, **options: Any) -> None:
        self._context = context
        super().__init__(**options)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, ssl_context=self._context, **options)

    def proxy_manager_for(self, *arguments: Any, **options: Any) -> Any:
        return super().proxy_manager_for(*arguments, ssl_context=self._context, **options)


def limited(response: requests.Response, most: int) -> bytes:
    """The body of a streamed answer, cut after `most` + 1 bytes. Raises requests' exceptions."""
    data = b""
    for chunk in response.iter_content(1 << 16):
        data += chunk
        if len(data) > most:
            response.close()
            break
    return data


def _tries(response: requests.Response) -> int:
    history = getattr(getattr(response.raw, "retries", None), "history", ())
    return len(history) + 1

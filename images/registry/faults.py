"""From what went wrong with a request to one line that says what to do."""

import json
import re

import requests

from images.registry.errors import RegistryError

# Statuses that may pass by themselves.
TRANSIENT = (429, 500, 502, 503, 504)
_BODY = 2000

_STATUS = {
    400: "the registry did not take it",
    401: "log in first: skopeo login {host}, or name a file of credentials with --authfile",
    403: "no right to do this there: ask the registry's owner, or log in as someone else with skopeo login {host}",
    404: "there is no such thing in the registry: check the name",
    405: "the registry does not allow it: it may be a read-only mirror",
    413: "too large for the registry, or for a proxy before it: raise its limit on bodies",
    416: "the registry lost its place in the upload: run this again",
    429: "the registry asks for a pause: run this again later",
    507: "the registry's disk is full",
}
_CODE = {
    "DENIED": _STATUS[403],
    "DIGEST_INVALID": "the bytes that arrived do not have the digest: run this again, or build the layout again",
    "MANIFEST_BLOB_UNKNOWN": "the registry lost a blob of the image: run this again",
    "UNAUTHORIZED": _STATUS[401],
}


def refused(response: requests.Response, host: str, what: str, tries: int = 1) -> RegistryError:
    """The error for an answer with a status that nobody wanted. `what` names what was to be done."""
    code, said = _said(response)
    advice = _CODE.get(code) or _STATUS.get(response.status_code)
    if "no space left" in said:
        advice = _STATUS[507]
    if advice is None:
        whose = "the registry fails" if response.status_code >= 500 else "the registry gave an answer that is not known"
        advice = f"{whose}: run this again later, or see the registry's log"
    request = f"{response.request.method} {_shown(response.request.url)} answered {response.status_code}"
    detail = f"{request} {said}".rstrip()
    again = tries == 1 and response.status_code in TRANSIENT
    return RegistryError(f"{what}: {advice.format(host=host)} ({detail}){tried(tries)}", again)


def broken(error: Exception, host: str, what: str, request: str, tries: int = 1) -> RegistryError:
    """The error for a request that got no whole answer. `request` is method and path."""
    text = _reason(error)
    again = tries == 1 and not isinstance(error, requests.exceptions.SSLError)
    return RegistryError(f"{what}: {_advice(error, text, host)} ({request}: {text}){tried(tries)}", again)


def _advice(error: Exception, text: str, host: str) -> str:
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy of the environment (HTTPS_PROXY, HTTP_PROXY) did not let it through: mend it or set NO_PROXY"
    if isinstance(error, requests.exceptions.SSLError):
        if "CERTIFICATE_VERIFY_FAILED" in text.upper().replace(" ", "_"):
            return (
                f"the certificate of {host} is not trusted: install its CA, or skip the check with --plain-http if you"
                " trust the way there"
            )
        return f"{host} speaks plain HTTP or a TLS of its own: pass --plain-http if you trust the way there"
    if isinstance(error, requests.exceptions.TooManyRedirects):
        return f"{host} sends us round in circles: see its log"
    # urllib3's word for an answer that stopped coming does not say so by its type.
    if isinstance(error, requests.exceptions.Timeout) or "timed out" in text:
        return f"{host} did not answer in time: check it and run this again"
    if "refused" in text:
        return f"nothing listens at {host}: check the host and the port"
    if re.search("name resolution|not known|No address|nodename", text, re.IGNORECASE):
        return f"the host of {host} is unknown: check its name"
    return "the line was cut: run this again, what is there already is kept"


def _said(response: requests.Response) -> tuple[str, str]:
    try:
        body = next(response.iter_content(_BODY), b"") if response.request.method != "HEAD" else b""
    except requests.RequestException:
        return "", ""
    try:
        first = json.loads(body)["errors"][0]
        code, message = str(first.get("code", "")), str(first.get("message", ""))
        detail = first.get("detail")
        more = detail if isinstance(detail, str) else ""
        return code, _clean(": ".join(part for part in (code, message, more) if part))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return "", _clean(body.decode(errors="replace"))


def _clean(text: str) -> str:
    words = "".join(mark if mark.isprintable() else " " for mark in text).split()
    return " ".join(words)[:200]


def _shown(url: str | None) -> str:
    # A signed address of a storage service holds a secret after the question mark.
    return _clean((url or "").partition("?")[0])


def tried(tries: int) -> str:
    """The end of a message: how often it was tried."""
    return f"; tried {tries} times" if tries > 1 else ""


def _reason(error: BaseException) -> str:
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        inner = error.__cause__ or error.__context__ or getattr(error, "reason", None)
        if not isinstance(inner, BaseException):
            break
        error = inner
    return _clean(getattr(error, "strerror", None) or str(error) or type(error).__name__)

"""Log-ins, certificates and proxies: what registries and hosts ask of a client."""

import base64
import datetime
import ipaddress
import json
import os
import ssl
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Literal

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from images.registry import credentials
from images.registry.client import Registry
from images.registry.descriptor import Descriptor
from images.registry.errors import RegistryError
from tests.engine.engines import loopback_registry
from tests.registry_faults import proxy as fault
from tests.registry_faults.proxy import Faulty

NAME = "moet/login"


def auths(key: str, user: str = "u", password: str = "p:w") -> dict[str, Any]:
    return {"auths": {key: {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}}}


def write(path: Path, document: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def refusal(pattern: str) -> "pytest.RaisesExc[RegistryError]":
    return pytest.raises(RegistryError, match=pattern)


def use(registry: Registry) -> None:
    data = os.urandom(1000)
    blob = Descriptor.of("application/octet-stream", data)
    registry.push_blob(NAME, blob, data)
    assert b"".join(registry.blob(NAME, blob)) == data


@pytest.mark.parametrize("kind", ["basic", "bearer"])
def test_logs_in(proxy: Faulty, tmp_path: Path, kind: Literal["basic", "bearer"]) -> None:
    proxy.login = kind, "u", "p:w"
    with Registry(proxy.address, plain_http=True) as stranger, pytest.raises(RegistryError) as caught:
        stranger.tags(NAME)
    assert f"log in first: skopeo login {proxy.address}, or name a file of credentials" in str(caught.value)
    right = write(tmp_path / "right", auths(proxy.address))
    with Registry(proxy.address, plain_http=True, authfile=right) as registry:
        use(registry)
    wrong = write(tmp_path / "wrong", auths(proxy.address, password="other"))
    with Registry(proxy.address, plain_http=True, authfile=wrong) as registry, refusal("log in first"):
        registry.tags(NAME)


def test_a_token_for_each_scope_is_asked_for_once(proxy: Faulty, tmp_path: Path) -> None:
    proxy.login = "bearer", "u", "p:w"
    with Registry(proxy.address, plain_http=True, authfile=write(tmp_path / "f", auths(proxy.address))) as registry:
        use(registry)
        use(registry)
        assert proxy.count("GET", "^/token") == 2
        # A token that ran out is asked for anew.
        proxy._tokens.clear()
        use(registry)
        assert proxy.count("GET", "^/token") == 4


@pytest.mark.parametrize(
    "place",
    ["home/.docker/config.json", "run/containers/auth.json", "home/.config/containers/auth.json", "named.json"],
)
def test_files_of_docker_podman_and_skopeo(
    proxy: Faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    proxy.login = "basic", "u", "p:w"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    if place == "named.json":
        monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / place))
    write(tmp_path / place, auths(proxy.address))
    with Registry(proxy.address, plain_http=True) as registry:
        use(registry)


def test_the_most_specific_credentials_are_taken(tmp_path: Path) -> None:
    document = auths("r.test:5000", "host") | {"credHelpers": {}}
    document["auths"] |= auths("r.test:5000/team", "team")["auths"]
    document["auths"] |= auths("https://old.test/v1/", "old")["auths"]
    path = write(tmp_path / "auth", document)
    found = {
        "/".join(place): getattr(credentials.find(*place, path), "user", None)
        for place in (("r.test:5000", "team/x"), ("r.test:5000", "other"), ("old.test", "x"), ("r.test", "x"))
    }
    assert found == {"r.test:5000/team/x": "team", "r.test:5000/other": "host", "old.test/x": "old", "r.test/x": None}


def test_a_credential_helper(proxy: Faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy.login = "basic", "u", "p:w"
    helper = tmp_path / "docker-credential-test"
    answer = """{"ServerURL": "'$host'", "Username": "u", "Secret": "p:w"}"""
    helper.write_text(f"#!/bin/sh\nread -r host\necho '{answer}'\n")
    helper.chmod(helper.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for document in ({"credsStore": "test"}, {"credHelpers": {proxy.address: "test"}}):
        with Registry(proxy.address, plain_http=True, authfile=write(tmp_path / "config", document)) as registry:
            use(registry)
    helper.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    refused = refusal("docker-credential-test gave no credentials")
    with Registry(proxy.address, plain_http=True, authfile=tmp_path / "config") as registry, refused:
        registry.tags(NAME)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"auths": []}', '{"auths": {"%s": {"auth": "?"}}}', '{"auths": {"%s": {"auth": "/w=="}}}']
)
def test_a_broken_file_is_named(proxy: Faulty, tmp_path: Path, text: str) -> None:
    proxy.login = "basic", "u", "p"
    path = tmp_path / "auth.json"
    path.write_text(text.replace("%s", proxy.address))
    refused = refusal("auth.json: cannot be read as a file of credentials")
    with Registry(proxy.address, plain_http=True, authfile=path) as registry, refused:
        registry.tags(NAME)


def test_a_missing_authfile_is_named(proxy: Faulty, tmp_path: Path) -> None:
    proxy.login = "basic", "u", "p"
    refused = refusal("none: no such file; skopeo login --authfile")
    with Registry(proxy.address, plain_http=True, authfile=tmp_path / "none") as registry, refused:
        registry.tags(NAME)


def test_a_closed_registry() -> None:
    with loopback_registry(closed=True) as address, Registry(address, plain_http=True) as registry, refusal("log in"):
        use(registry)


def test_credentials_stay_at_the_registry(proxy: Faulty, tmp_path: Path) -> None:
    """A registry that hands out blobs from another host must not hand out its users' passwords."""
    proxy.login = "basic", "u", "p:w"
    seen: list[str | None] = []

    class Storage(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"bytes")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Storage) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        place = f"http://localhost:{server.server_address[1]}/blob"
        proxy.add(fault.answers(307, headers={"Location": place}), "GET", "/blobs/")
        authfile = write(tmp_path / "auth", auths(proxy.address))
        with Registry(proxy.address, plain_http=True, authfile=authfile) as registry:
            blob = Descriptor.of("application/octet-stream", b"bytes")
            assert b"".join(registry.blob(NAME, blob)) == b"bytes"
        server.shutdown()
        thread.join()
    assert seen == [None]
    assert proxy.requests[-1].headers.get("Authorization")


def test_proxies_of_the_environment_do_not_stand_before_loopback(
    proxy: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Registry(proxy.address, plain_http=True) as registry:
        use(registry)
    refused = refusal(r"the proxy of the environment .* did not let it through")
    with Registry("registry.invalid", plain_http=False) as registry, refused:
        registry.tags(NAME)


def test_netrc_is_nobodys_login(proxy: Faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login u password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with Registry(proxy.address, plain_http=True) as registry:
        use(registry)
    assert not [one for one in proxy.requests if "Authorization" in one.headers]


def test_nobody_there(proxy: Faulty) -> None:
    for address, advice in (
        ("127.0.0.1:1", "nothing listens at 127.0.0.1:1: check the host and the port"),
        ("registry.invalid:5000", "the host of registry.invalid:5000 is unknown: check its name"),
    ):
        with Registry(address, plain_http=True) as registry, refusal(advice):
            registry.tags(NAME)


def test_plain_http_must_be_asked_for(proxy: Faulty) -> None:
    with Registry(proxy.address) as registry, refusal("pass --plain-http if you trust"):
        registry.tags(NAME)
    assert not proxy.requests


@contextmanager
def tls(folder: Path) -> Iterator[tuple[str, Path]]:
    """A server with a certificate of its own that has an empty list of tags: its address, its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"tags": ["r1"]}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def get_request(self) -> Any:
            connection, address = super().get_request()
            # As servers do that are written in Go.
            if connection.recv(1, 2) != b"\x16":
                connection.recv(4096)
                text = b"Client sent an HTTP request to an HTTPS server.\n"
                head = f"HTTP/1.0 400 Bad Request\r\nContent-Length: {len(text)}\r\n\r\n".encode()
                connection.sendall(head + text)
                connection.close()
                raise OSError
            return context.wrap_socket(connection, server_side=True), address

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, private)
    with Server(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}", certificate
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_certificates(proxy: Faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    with tls(tmp_path) as (address, certificate):
        with Registry(address) as registry, refusal(f"the certificate of {address} is not trusted: install its CA"):
            registry.tags(NAME)
        with Registry(address, plain_http=True) as registry:
            assert registry.tags(NAME) == ["r1"]
        monkeypatch.setenv(variable, str(certificate))
        with Registry(address) as registry:
            assert registry.tags(NAME) == ["r1"]
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "none"))
        with refusal("none: cannot be read as certificates"):
            Registry(address)

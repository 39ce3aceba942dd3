"""A Bazel cache server of a test's own: nginx, with the configuration that docs/remote-cache.md gives."""

import re
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.engine import scratch
from tests.engine.ports import free_port

_START_SECONDS = 120
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_MAIN = """daemon off;
user root;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    log_format asked '$request_method $uri $status';
    {servers}
}}
"""


@dataclass(frozen=True)
class Server:
    """A cache: where it is written and where it is only read, its files, and the requests that it had."""

    write: str
    read: str
    files: Path
    log: Path

    def asked(self) -> list[tuple[str, str, int]]:
        """(method, path, status) of every request so far."""
        rows = [line.split() for line in self.log.read_text().splitlines()] if self.log.exists() else []
        return [(method, path, int(status)) for method, path, status in rows]

    def entries(self, kind: str) -> list[Path]:
        """The files of the content store ("cas") or the action store ("ac")."""
        return [path for path in sorted((self.files / kind).rglob("*")) if path.is_file()]


@contextmanager
def running(files: Path, documented: str) -> Iterator[Server]:
    """A server of the cache at `files`, on free loopback ports.

    Args:
        files: the cache; made where it is missing, and left.
        documented: the text of docs/remote-cache.md.

    Raises:
        RuntimeError: nginx is missing or did not start; the message says why.
    """
    program = shutil.which("nginx", path=_PATH)
    if program is None:
        raise RuntimeError("nginx is not installed; apt-get install nginx")
    found = re.search(r"```nginx\n(.*?)```", documented, re.DOTALL)
    assert found, "docs/remote-cache.md has no nginx configuration"
    files.mkdir(parents=True, exist_ok=True)
    with scratch.folder() as folder:
        ports = [free_port() for _ in range(2)]
        servers = found[1].replace("/srv/bazel-cache", str(files))
        servers = servers.replace("access_log off;", f"access_log {folder}/access.log asked;")
        for stated, port in zip(("8080", "8081"), ports, strict=True):
            servers = servers.replace(f"127.0.0.1:{stated}", f"127.0.0.1:{port}")
        (folder / "nginx.conf").write_text(_MAIN.format(folder=folder, servers=servers))
        command = [program, "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf"]
        with scratch.process(command, folder / "log") as process:
            deadline = time.monotonic() + _START_SECONDS
            while not _answers(ports[1]):
                if process.poll() is not None or time.monotonic() > deadline:
                    said = [path.read_text() for path in (folder / "log", folder / "error.log") if path.exists()]
                    raise RuntimeError(f"nginx did not start: {' '.join(said)}")
                time.sleep(0.05)
            yield Server(f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}", files, folder / "access.log")


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0

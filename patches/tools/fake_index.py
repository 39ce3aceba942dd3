"""A package index on loopback whose downloads can be held, cut or counted, and the program run against it."""

import contextlib
import functools
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path


class Index:
    """Serves `folder` (of <project>/<wheel> files). Attributes:

    held: while set, a wheel stops after its first half until `release` is set; `reached` is set then.
    cut: while true, the line is cut there.
    status: while set, every request is answered with it.
    downloads: how many wheels were asked for.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.held = False
        self.cut = False
        self.status: int | None = None
        self.downloads = 0
        self.reached = threading.Event()
        self.release = threading.Event()
        self.address = ""


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[Index]:
    """The index, for as long as the block runs."""
    index = Index(folder)
    handler = functools.partial(_Handler, index, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        index.address = f"http://127.0.0.1:{server.server_port}/"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield index
        finally:
            index.release.set()
            server.shutdown()
            thread.join()


def environment(index: Index, cache: Path) -> dict[str, str]:
    """An environment in which pip knows this index alone, and Moet's cache is `cache`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "BUILD_WORK"))}
    return kept | {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": index.address,
        "PIP_RETRIES": "0",
        "XDG_CACHE_HOME": str(cache),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HOME": str(cache),
    }


def start(index: Index, cache: Path, *arguments: str | Path, before: str = "") -> "subprocess.Popen[str]":
    """Starts `moet` with these arguments in a process of its own; `before` is Python to run first."""
    code = f"import sys\n{before}\nfrom tools.moet import main\nsys.exit(main.main(sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment(index, cache),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class _Handler(http.server.SimpleHTTPRequestHandler):
    def __init__(self, index: Index, *arguments: object, **more: str) -> None:
        self._index = index
        super().__init__(*arguments, **more)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        index = self._index
        if index.status is not None:
            self.send_error(index.status)
            return
        if not self.path.endswith(".whl"):
            super().do_GET()
            return
        index.downloads += 1
        data = (index.folder / self.path.lstrip("/")).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            if index.held:
                index.reached.set()
                index.release.wait()
            if not index.cut:
                self.wfile.write(data[len(data) // 2 :])

    def log_message(self, *_: object) -> None:
        pass

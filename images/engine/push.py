"""Push an image of an OCI layout to a registry, its digests kept, and check what arrived."""

import argparse
import json
import shutil
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

from rich.console import Console

from images.engine import layout, reference
from images.engine.errors import EngineError
from images.engine.layout import Image
from images.engine.reference import Reference

# skopeo's words for a refusal, and what to do about it.
_ADVICE = {
    "unauthorized": "log in first: skopeo login REGISTRY, or name a file of credentials with --authfile",
    "denied": "log in first: skopeo login REGISTRY, or ask for the right to write there",
    "gave HTTP response to HTTPS client": "it speaks plain HTTP: pass --plain-http if you trust the way there",
    "certificate": "the registry's certificate is not trusted: install its CA, or skip the check with --plain-http",
    "connection refused": "nothing listens there: check the host and the port",
    "no such host": "the host is unknown: check its name",
    "no space left on device": "the registry's disk is full",
}


def push(image: Image, target: Reference, plain_http: bool, authfile: Path | None) -> str:
    """Copy `image` to `target` and return the manifest's digest there.

    Raises:
        EngineError: skopeo is missing, the registry refused, or it holds another manifest afterwards.
    """
    if not shutil.which("skopeo"):
        raise EngineError("skopeo is not on PATH; install it (Debian: apt-get install skopeo)")
    auth = ["--authfile", str(authfile)] if authfile else []
    tls = str(not plain_http).lower()
    # The layout is our own build: a policy on who signed what we fetch does not concern it.
    base = ["skopeo", "--insecure-policy"]
    copy = [*base, "copy", "--quiet", "--preserve-digests", f"--dest-tls-verify={tls}", *auth]
    _run([*copy, image.source, f"docker://{target}"], target)
    found = _run([*base, "inspect", "--raw", f"--tls-verify={tls}", *auth, f"docker://{target}"], target)
    digest = f"sha256:{sha256(found).hexdigest()}"
    if digest != image.manifest.digest:
        held = f"{target} holds {digest}, {image.manifest.digest} was pushed"
        raise EngineError(f"{held}; someone else wrote the tag, push again")
    return digest


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="push", description=__doc__)
    parser.add_argument("--layout", type=Path, required=True, help="directory of the OCI image layout")
    parser.add_argument("--ref", required=True, help="the image's name in the layout, NAME:TAG")
    parser.add_argument(
        "--plain-http", action="store_true", help="allow plain HTTP and certificates that do not verify"
    )
    parser.add_argument(
        "--tls-verify", choices=("true", "false"), default="true", help="false is the same as --plain-http"
    )
    parser.add_argument("--authfile", type=Path, help="credentials, as skopeo login and podman login write them")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.add_argument("target", metavar="REF", help="where to: REGISTRY/NAME:TAG")
    options = parser.parse_args(arguments)
    console = Console(stderr=True)
    start = time.monotonic()
    try:
        target = reference.parse(options.target)
        if not target.registry:
            raise EngineError(f"{options.target!r} names no registry; write REGISTRY/{options.target}")
        image = layout.read(options.layout, options.ref)
        with console.status(f"pushing {len(image.layers)} layers to {target}"):
            digest = push(image, target, options.plain_http or options.tls_verify == "false", options.authfile)
    except EngineError as error:
        print(f"push: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("push: interrupted", file=sys.stderr)
        return 130
    seconds = round(time.monotonic() - start, 3)
    if options.json:
        result = {"reference": str(target), "manifest_digest": digest, "layers": len(image.layers), "seconds": seconds}
        print(json.dumps(result))
    else:
        print(f"{target}@{digest}\n{len(image.layers)} layers in {seconds:.1f} s")
    return 0


def _run(command: list[str], target: Reference) -> bytes:
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        text = " ".join(done.stderr.decode(errors="replace").split())
        advice = next((words for mark, words in _ADVICE.items() if mark in text), "skopeo's message above says more")
        raise EngineError(f"{target} was not pushed: {advice} (skopeo: {text[-400:]})")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())

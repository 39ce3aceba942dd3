"""moet serve render."""

import argparse
import os
from pathlib import Path

from serving.launch import request
from serving.render import form
from serving.render.file import File
from tools.cli.errors import UserError
from tools.cli.output import Output
from tools.files import atomic
from tools.moet.verb import Verb


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    request.add_arguments(parser)
    parser.add_argument("--form", required=True, choices=form.FORMS, help="what to write")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the files (default: one file, to stdout)")
    parser.add_argument(
        "--nodes", type=_positive, default=1, metavar="N", help="hosts that serve it together (default: %(default)s)"
    )
    parser.add_argument("--master-addr", metavar="ADDRESS", help="the first host's address, as the others reach it")
    parser.add_argument(
        "--master-port", type=_port, default=29501, metavar="PORT", help="TCP port there (default: %(default)s)"
    )


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb."""
    asked = request.chosen(options)
    hosts = form.Hosts(options.nodes, options.master_addr, options.master_port)
    files = form.render(asked, options.form, hosts, os.environ)
    for note in asked.notes:
        out.note(f"note: {note}")
    if options.out is None:
        if len(files) > 1 and not out.as_json:
            raise UserError(f"{len(files)} files, one a host: say where to with --out DIR")
        out.text(files[0].text)
    else:
        for file in files:
            _write(options.out / file.name, file)
            out.line(str(options.out / file.name))
    out.document({
        "schema": "moet.serve-render.v1",
        "profile": asked.settings.profile.line,
        "form": options.form,
        "files": [{"name": file.name, "text": file.text} for file in files],
    })
    return 0


def _write(path: Path, file: File) -> None:
    atomic.write(path, file.text.encode())
    if file.executable:
        path.chmod(path.stat().st_mode | 0o111)


def _positive(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"{text!r}: expected an integer from 1 to 64")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a port from 1 to 65535")
    return int(text)


VERB = Verb(
    summary="write a profile and its knobs as a Docker script, Compose file, systemd unit or Kubernetes objects",
    description="""The same server in every form: image, arguments, variables, folders, GPUs, limits.

Kubernetes: a StatefulSet and a Service; the server listens on the pod network and so always needs the API key, in the
Secret NAME-api-key. Folders are the node's (hostPath); a CACHE_DIR that is a volume's name is a PersistentVolumeClaim.

With --nodes N, vLLM itself spreads TP x DP GPUs over N hosts: one file a host, the first of which answers requests.
They share the host's network, and anyone on it could join them: keep it to themselves.""",
    arguments=arguments,
    run=run,
    examples=(
        ("serve render dsv41 --form systemd --set MODEL_DIR=/models/dsv41 --out /etc/systemd/system", "a unit"),
        (
            "serve render dsv41 --form docker --set MODEL_DIR=/models/dsv41 --set TP=8 --nodes 2"
            " --master-addr 192.0.2.1 --out .",
            "a script for each of two hosts of four GPUs",
        ),
    ),
)

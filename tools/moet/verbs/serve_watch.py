"""moet serve watch."""

import argparse
import ipaddress
import math
import re
import sys

from images.engine.docker_engine import DockerEngine
from images.manifest import model
from releases.known import Known
from serving.control import options as shared
from serving.control.starter import Starter
from serving.preflight.host import Host
from serving.probe.api import base_url
from serving.profiles import load
from serving.watch import unit
from serving.watch.looking import Engine
from serving.watch.machine import Limits
from serving.watch.meters import Meters
from serving.watch.notify import Notify
from serving.watch.once import SCHEMA, once
from serving.watch.subject import ContainerSubject, ServerSubject, Subject
from serving.watch.unit import GAVE_UP
from serving.watch.watch import Watch
from tools.cli.errors import UserError
from tools.cli.output import Output
from tools.moet.verb import Verb

_DEFAULTS = Limits()
_INTERVAL = 10.0


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    shared.add_server(parser)
    parser.add_argument(
        "--container", type=_name, metavar="NAME", help="watch this container, which `moet serve up` did not make"
    )
    parser.add_argument("--port", type=_port, help="with --container: TCP port of this host that its API is at")
    parser.add_argument(
        "--bind", type=_address, default="127.0.0.1", help="with --container: and the address (default: %(default)s)"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--once", action="store_true", help="say whether the server is ready, and end; change nothing")
    what.add_argument("--unit", action="store_true", help="print a systemd unit of this watchdog, and end")
    parser.add_argument(
        "--stall",
        type=_seconds,
        default=_DEFAULTS.stall,
        metavar="SECONDS",
        help="a server that neither moves nor computes a token for so long hangs (default: %(default)g; vLLM itself"
        " gives a step up after 300)",
    )
    parser.add_argument(
        "--starts",
        type=_count,
        default=_DEFAULTS.starts,
        metavar="N",
        help="starts in six hours, before it gives up (default: %(default)s)",
    )
    parser.add_argument(
        "--deadline",
        type=_seconds,
        metavar="SECONDS",
        help=f"a start that takes longer has failed (default: the profile's, with --container {_DEFAULTS.deadline:g})",
    )
    parser.add_argument(
        "--interval",
        type=_seconds,
        default=_INTERVAL,
        metavar="SECONDS",
        help="time between two looks (default: %(default)g)",
    )
    parser.add_argument("--metrics-port", type=_port, metavar="PORT", help="show Prometheus metrics at 127.0.0.1:PORT")


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb."""
    known = Known.find(options.tree)
    subject = _subject(options, known)
    if options.unit:
        text = unit.text(subject.name, [*unit.program(sys.argv[0]), *_words(options, subject)])
        out.text(text)
        out.document({"schema": SCHEMA, "server": subject.name, "unit": text})
        return 0
    engine = Engine(options.host)
    if options.once:
        return 0 if once(subject, engine, out) else 1
    host = Host(docker=lambda: DockerEngine(options.host))
    starter = Starter(lambda line: load.load(line, known.root), host, out)
    meters = Meters(subject.name)
    if options.metrics_port:
        meters.serve(options.metrics_port)
    watch = Watch(subject, engine, _limits(options), meters, starter.clear, out)
    watch.run(options.interval, Notify())
    # It ends by itself only where it gives up, which its last line says.
    if watch.record is not None:
        out.document(model.encode(watch.record))
    return GAVE_UP


def _subject(options: argparse.Namespace, known: Known) -> Subject:
    if options.container is None:
        if options.port:
            raise UserError("--port is for --container; a server's own is known")
        return ServerSubject(shared.server(options), known.root, options.deadline)
    if options.server:
        raise UserError("--server and --container: name one of them")
    if options.port is None:
        raise UserError("--container needs --port: where its API is reached")
    return ContainerSubject(options.container, base_url(options.bind, options.port), options.deadline)


def _limits(options: argparse.Namespace) -> Limits:
    # A token is asked for often enough to fail twice before the server counts as hung.
    return Limits(stall=options.stall, canary=min(_DEFAULTS.canary, options.stall / 4), starts=options.starts)


def _words(options: argparse.Namespace, subject: Subject) -> list[str]:
    """The command without --unit."""
    named = "container" if options.container else "server"
    words = ["serve", "watch", f"--{named}={subject.name}"]
    if options.container:
        words += [f"--port={options.port}", f"--bind={options.bind}"]
    words += [f"--stall={options.stall:g}", f"--starts={options.starts}", f"--interval={options.interval:g}"]
    if options.deadline is not None:
        words.append(f"--deadline={options.deadline:g}")
    if options.metrics_port:
        words.append(f"--metrics-port={options.metrics_port}")
    if options.host:
        words.append(f"--host={options.host}")
    if options.tree:
        words.append(f"--tree={options.tree.absolute()}")
    return words


def _name(text: str) -> str:
    # Docker's own rule; a folder is called by it.
    if not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a container's name")
    return text


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 7 * 24 * 3600:
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds, more than 0 and at most a week")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100:
        raise argparse.ArgumentTypeError(f"{text!r}: expected an integer from 1 to 100")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a port from 1 to 65535")
    return int(text)


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected an IP address") from None


VERB = Verb(
    summary="watch a server: start it again when it crashed or hangs, save its last log, give up on a restart loop",
    description="""Runs until it is ended. Live is: the figures of its engines move, or it computes a token that it is
asked for. /health is not asked: it stays 200 while an engine hangs. A token is asked for when nothing has moved for a
minute. Ready is: live, and its image attested.

A server that crashed, hangs or does not become ready in time has its last output saved below
~/.local/state/moet/servers/NAME/logs, and is started again after 10 s, 20 s, 40 s and so on, up to 10 min. After five
starts in six hours the watch gives up; so it does at once where the image's own entry point refused to start (status 2
to 5). watch.json beside the logs says where it is.

What others do is not fought: `docker stop`, a container that was removed or paused, `moet serve up`, `down` and
`rollback`. A container that had ended before the watch began is started, unless a watch before saw it being stopped.
An engine that does not answer is waited for. A container that its engine removes when it ends (docker run --rm, as in
a systemd unit) is only killed when it hangs: whoever ran it starts it again.

--once is for cron jobs and probes: exit status 0 where the server is ready, else 1, and nothing is changed.""",
    arguments=arguments,
    run=run,
    examples=(
        ("serve watch", "this user's only server, in the foreground"),
        ("serve watch --unit --metrics-port 9101", "the same as a systemd unit, with metrics"),
        ("serve watch --container dsv41 --port 8001", "beside Compose or a unit of `moet serve render`"),
        ("serve watch --once --json", "a verdict, for programs"),
    ),
    exits=((GAVE_UP, "it gave up; its last line, and watch.json, say why and what to do"),),
)

"""All forms: what each needs to be told, and who renders it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from serving.launch import key
from serving.launch.launch import ALONE, Launch, Network, Node
from serving.launch.plan import plan
from serving.launch.request import Request
from serving.render import compose, docker, kubernetes, systemd
from serving.render.file import File
from tools.cli.errors import UserError

_RENDER: dict[str, Callable[[list[Launch]], list[File]]] = {
    "compose": compose.render,
    "docker": docker.render,
    "kubernetes": kubernetes.render,
    "systemd": systemd.render,
}
FORMS = tuple(_RENDER)


@dataclass(frozen=True)
class Hosts:
    """How many hosts serve one model together; `master` is the first one's address, as the others reach it."""

    count: int = 1
    master: str | None = None
    master_port: int = 29501


ONE = Hosts()


def render(request: Request, form: str, hosts: Hosts, environment: Mapping[str, str]) -> list[File]:
    """Renders a form (of FORMS): its files, one a host, or one for all in Kubernetes.

    Raises UserError for settings that the form cannot say, and for a server that anyone could use.
    """
    launches = [_launch(request, form, hosts, rank, environment) for rank in range(hosts.count)]
    return _RENDER[form](launches)


def _launch(request: Request, form: str, hosts: Hosts, rank: int, environment: Mapping[str, str]) -> Launch:
    settings = request.settings
    if form == "kubernetes":
        network: Network = "pod"
        for setting in (settings.of("bind"), settings.of("gpus")):
            if setting.explicit:
                raise UserError(f"{setting.knob.name} ({setting.source}): a cluster decides that: leave it out")
        if hosts.master:
            raise UserError("--master-addr: in Kubernetes it is a Service's name: leave it out")
        found, master = None, kubernetes.master(settings.of("name").text)
    else:
        network = "host" if hosts.count > 1 else "published"
        found, master = key.find(settings, environment), hosts.master or ""
        if hosts.count > 1 and not master:
            raise UserError(f"--nodes {hosts.count} needs --master-addr: the first host, as the others reach it")
    node = Node(hosts.count, rank, master, hosts.master_port) if hosts.count > 1 else ALONE
    return plan(settings, request.image, found, network, node).launch

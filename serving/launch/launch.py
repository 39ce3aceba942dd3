"""One server to be started on one host: everything that Docker, systemd or Kubernetes must be told."""

from dataclasses import dataclass
from typing import Literal

from serving.launch.key import Key

# published: a bridge network, the port on an address of the host; host: the host's own; pod: a cluster's; none: no
# other than loopback, for what serves nobody.
Network = Literal["host", "none", "pod", "published"]


@dataclass(frozen=True)
class Bind:
    """A folder (absolute path) or volume (name) of the host, at `target` in the container."""

    source: str
    target: str
    write: bool

    @property
    def is_volume(self) -> bool:
        """Whether `source` is a volume's name."""
        return not self.source.startswith("/")


@dataclass(frozen=True)
class Node:
    """Which of `count` hosts that serve one model together this is: `rank` from 0; `master` is rank 0's address."""

    count: int = 1
    rank: int = 0
    master: str = ""
    master_port: int = 29501


ALONE = Node()


@dataclass(frozen=True)
class Launch:
    """A server. It is stored with its generation (images.manifest.model reads it): a new field needs a default.

    Attributes:
        line: the profile's line.
        title: the profile's title.
        name: of the container.
        image: by tag or digest.
        gpus: by index or UUID.
        network: what the container's port is in.
        bind: IP address of the host.
        port: TCP port of the host.
        inner_port: TCP port that the server listens at in its own network.
        binds: folders and volumes.
        environment: variables of the container, without the API key.
        arguments: what follows the image: `serve`, the model, flags.
        ulimits: name to value.
        shared_memory_gib: what /dev/shm must hold, in GiB.
        key: where the API key comes from; None for none.
        docker_options: further words for docker run.
        node: which host of several.
    """

    line: str
    title: str
    name: str
    image: str
    gpus: tuple[str, ...]
    network: Network
    bind: str
    port: int
    inner_port: int
    binds: tuple[Bind, ...]
    environment: dict[str, str]
    arguments: tuple[str, ...]
    ulimits: dict[str, int]
    shared_memory_gib: float
    key: Key | None
    docker_options: tuple[str, ...] = ()
    node: Node = ALONE

    @property
    def host_name(self) -> str:
        """The name, with the rank where there are several hosts."""
        return f"{self.name}-{self.node.rank}" if self.node.count > 1 else self.name

    @property
    def api(self) -> bool:
        """Whether this host answers requests; of several, only rank 0 does."""
        return self.node.rank == 0

"""The machine that experts are placed on: GPUs, NUMA nodes, and what bytes cost on their way."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from serving.experts.placement.problem import PlanError, cut


@dataclass(frozen=True)
class Rate:
    """Bandwidth of a way.

    Attributes:
        gbs: 10^9 bytes a second.
        source: where the figure is from.
    """

    gbs: float
    source: str


# Rates of one GPU, one link, or one NUMA node. Those that are assumed are to be measured on the host.
RATES: Mapping[str, Rate] = {
    "hbm": Rate(1600.0, "RTX PRO 6000, as a peer measured it (datasheet 1792); one GPU reads its own memory"),
    "peer": Rate(50.0, "assumed, PCIe 5.0 x16 (64 raw); one GPU reads another's memory"),
    "pcie": Rate(50.0, "assumed, PCIe 5.0 x16 (64 raw); one GPU reads the host's memory"),
    "ram": Rate(
        98.0, "a plain stream on 16 vCPUs of an Emerald Rapids Xeon, the least of its runs (98 to 115); one node"
    ),
    "nvme": Rate(7.0, "assumed, one PCIe 4.0 x4 drive; the whole host"),
}


@dataclass(frozen=True)
class Node:
    """A NUMA node.

    Attributes:
        cores: its CPUs, as Linux lists them ("0-15,32-47"); empty where unknown.
        ranks: ranks whose GPU is near it.
        ram: bytes for experts, None for as many as are needed.
    """

    cores: str
    ranks: tuple[int, ...]
    ram: int | None


@dataclass(frozen=True)
class Host:
    """One machine.

    Attributes:
        nodes: its NUMA nodes; each rank is near one of them.
        banks: bytes of GPUs that compute nothing and only hold cells, which ranks read as a peer's memory.
        nvme: bytes for experts, None for as many as are needed.
        rates: RATES, or what was given in their place.
    """

    nodes: tuple[Node, ...]
    banks: tuple[int, ...]
    nvme: int | None
    rates: Mapping[str, Rate]

    def node_of(self, rank: int) -> int:
        """The node that a rank is near."""
        return next(index for index, node in enumerate(self.nodes) if rank in node.ranks)


def host(
    nodes: Sequence[Node], ranks: int, banks: Sequence[int], nvme: int | None, rates: Mapping[str, Rate] | None = None
) -> Host:
    """Returns a checked Host: every rank of 0..ranks-1 is near exactly one node. Raises PlanError."""
    near = sorted(rank for node in nodes for rank in node.ranks)
    if near != list(range(ranks)):
        raise PlanError(f"nodes: expected each of ranks 0 to {ranks - 1} near one node, found {cut(str(near))}")
    cores: set[int] = set()
    for index, node in enumerate(nodes):
        if node.ram is not None and not 0 <= node.ram < 2**62:
            raise PlanError(f"node {index}: expected 0 to 2^62 bytes of RAM, found {node.ram:,}")
        here = core_list(node.cores)
        if cores & here:
            raise PlanError(f"node {index}: core {min(cores & here)} is in two nodes")
        cores |= here
    if any(not 0 <= bank < 2**62 for bank in banks) or (nvme is not None and not 0 <= nvme < 2**62):
        raise PlanError("host: expected sizes of 0 to 2^62 bytes")
    for name, rate in {**RATES, **(rates or {})}.items():
        if name not in RATES:
            raise PlanError(f"{cut(repr(name))} is no bandwidth; there are {', '.join(RATES)}")
        if not 0 < rate.gbs < 1e6:
            raise PlanError(f"bandwidth {name}: expected GB/s above 0, found {rate.gbs}")
    return Host(tuple(nodes), tuple(banks), nvme, {**RATES, **(rates or {})})


def read(path: Path, ranks: int) -> Host:
    """Reads a host from TOML: `nvme_gib`, `banks_gib`, a [[node]] with `cores`, `ranks`, `ram_gib` each, [bandwidth].

    Raises PlanError that names the file and the key.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{path}: is no TOML: {cut(str(error), 120)}") from None
    _known(data, {"node", "nvme_gib", "banks_gib", "bandwidth"}, str(path))
    nodes = []
    if not isinstance(data.get("node"), list) or not data["node"]:
        raise PlanError(f"{path}: node: expected one [[node]] or more")
    for index, one in enumerate(data["node"]):
        where = f"{path}: node {index}"
        if not isinstance(one, dict):
            raise PlanError(f"{where}: expected a table")
        _known(one, {"cores", "ranks", "ram_gib"}, where)
        near = one.get("ranks", [])
        if not isinstance(near, list) or not all(type(rank) is int for rank in near):
            raise PlanError(f"{where}: ranks: expected a list of numbers")
        cores = one.get("cores", "")
        if not isinstance(cores, str):
            raise PlanError(f'{where}: cores: expected a string such as "0-15", found {cut(repr(cores))}')
        nodes.append(Node(cores, tuple(near), _gib(one.get("ram_gib"), f"{where}: ram_gib")))
    banks = data.get("banks_gib", [])
    if not isinstance(banks, list):
        raise PlanError(f"{path}: banks_gib: expected a list")
    rates = data.get("bandwidth", {})
    if not isinstance(rates, dict):
        raise PlanError(f"{path}: bandwidth: expected a table of GB/s")
    given = {}
    for name, value in rates.items():
        if type(value) not in (int, float):
            raise PlanError(f"{path}: bandwidth.{cut(name)}: expected GB/s, found {cut(repr(value))}")
        given[name] = Rate(float(value), path.name)
    held = [_gib(bank, f"{path}: banks_gib") or 0 for bank in banks]
    return host(nodes, ranks, held, _gib(data.get("nvme_gib"), f"{path}: nvme_gib"), given)


def from_sysfs(root: Path, ranks: int, ram: int | None = None) -> tuple[Node, ...]:
    """The NUMA nodes of this machine, from `root` (/sys): cores, and the first `ranks` NVIDIA GPUs in PCI order.

    `ram` bytes are shared among the nodes in proportion to their memory; None: as many as are needed. Raises PlanError
    where there are no nodes, or fewer GPUs than ranks.
    """
    folders = sorted(root.glob("devices/system/node/node[0-9]*"), key=lambda one: int(one.name.removeprefix("node")))
    if not folders:
        raise PlanError(f"{root}: shows no NUMA node; write the nodes into a file, see --host")
    near = []
    for device in sorted(root.glob("bus/pci/devices/*")):
        vendor, kind = (_line(device / name) for name in ("vendor", "class"))
        if vendor == "0x10de" and kind.startswith("0x03"):
            near.append(max(0, int(_line(device / "numa_node") or 0)))
    if len(near) < ranks:
        raise PlanError(
            f"{root}: shows {len(near)} NVIDIA GPUs for {ranks} ranks; write the nodes into a file, see --host"
        )
    sizes = [_memory(folder / "meminfo") for folder in folders]
    nodes = []
    for folder, size in zip(folders, sizes, strict=True):
        number = int(folder.name.removeprefix("node"))
        own = tuple(rank for rank, node in enumerate(near[:ranks]) if node == number)
        budget = None if ram is None else ram * size // max(sum(sizes), 1)
        nodes.append(Node(_line(folder / "cpulist"), own, budget))
    return tuple(nodes)


def core_list(text: str) -> set[int]:
    """The CPUs of a list as Linux writes it. Raises PlanError."""
    cores: set[int] = set()
    for part in filter(None, text.replace(" ", "").split(",")):
        found = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part)
        if found is None or int(found[2] or found[1]) < int(found[1]):
            raise PlanError(f'cores: expected a list such as "0-15,32-47", found {cut(repr(text))}')
        cores |= set(range(int(found[1]), int(found[2] or found[1]) + 1))
    return cores


def with_rates(given: Host, rates: Mapping[str, float]) -> Host:
    """The host with other bandwidths, in GB/s. Raises PlanError."""
    named = {name: Rate(gbs, "given on the command line") for name, gbs in rates.items()}
    checked = host(given.nodes, sum(len(node.ranks) for node in given.nodes), given.banks, given.nvme, named)
    return replace(given, rates={**given.rates, **{name: checked.rates[name] for name in named}})


def _line(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip() if path.exists() else ""


def _memory(path: Path) -> int:
    found = re.search(r"MemTotal:\s+(\d+) kB", path.read_text(encoding="utf-8")) if path.exists() else None
    return int(found[1]) * 1024 if found else 0


def _gib(value: Any, where: str) -> int | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value < 2**30:
        raise PlanError(f"{where}: expected GiB from 0 on, found {cut(repr(value))}")
    return int(value * 2**30)


def _known(table: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise PlanError(f"{where}: {cut(key)}: unknown key; there are {', '.join(sorted(known))}")

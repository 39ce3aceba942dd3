from pathlib import Path

import pytest

from serving.experts.placement import host
from serving.experts.placement.problem import PlanError

TWO_NODES = """
nvme_gib = 900
banks_gib = [20]
[[node]]
cores = "0-15,32-47"
ranks = [0, 1]
ram_gib = 100.5
[[node]]
cores = "16-31"
ranks = [2]
[bandwidth]
pcie = 26
"""


def read(tmp_path: Path, text: str, ranks: int = 3) -> host.Host:
    (tmp_path / "host.toml").write_text(text)
    return host.read(tmp_path / "host.toml", ranks)


def test_file(tmp_path: Path) -> None:
    found = read(tmp_path, TWO_NODES)
    assert [node.ram for node in found.nodes] == [int(100.5 * 2**30), None] and found.banks == (20 * 2**30,)
    assert [found.node_of(rank) for rank in range(3)] == [0, 0, 1] and found.nvme == 900 * 2**30
    assert found.rates["pcie"] == host.Rate(26.0, "host.toml") and found.rates["hbm"] == host.RATES["hbm"]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("nvme_gib", "nvme_gb", "nvme_gb: unknown key"),
        ("ranks = [2]", "ranks = [1]", "expected each of ranks 0 to 2 near one node, found [0, 1, 1]"),
        ("ranks = [2]", "", "found [0, 1]"),
        ("ranks = [2]", 'ranks = "2"', "node 1: ranks: expected a list of numbers"),
        ("16-31", "15-31", "node 1: core 15 is in two nodes"),
        ("16-31", "31-16", 'cores: expected a list such as "0-15,32-47"'),
        ('"16-31"', "16", "node 1: cores: expected a string"),
        ("100.5", "-1", "node 0: ram_gib: expected GiB from 0 on"),
        ("100.5", "nan", "node 0: ram_gib: expected GiB from 0 on"),
        ("pcie = 26", "pcie = 0", "bandwidth pcie: expected GB/s above 0"),
        ("pcie = 26", "pcie = nan", "bandwidth pcie: expected GB/s above 0"),
        ("pcie = 26", 'pcie = "fast"', "bandwidth.pcie: expected GB/s"),
        ("pcie = 26", "usb = 1", "'usb' is no bandwidth"),
        ("[[node]]", "[[nod]]", "nod: unknown key"),
        ("[20]", "20", "banks_gib: expected a list"),
        ("[20]", "[-20]", "banks_gib: expected GiB from 0 on"),
        (TWO_NODES, "", "node: expected one [[node]] or more"),
        (TWO_NODES, "node = [1]", "node 0: expected a table"),
        (TWO_NODES, "=", "is no TOML"),
        (TWO_NODES, "nvme_gib = " + "9" * 5000, "is no TOML"),
        (TWO_NODES, "node = " + "[" * 5000, "is no TOML"),
        ("nvme_gib", '"nvme\\n' + "x" * 999 + '"', "'nvme\\nxxx"),
        ("100.5", '"' + "x" * 999 + '"', "node 0: ram_gib: expected GiB from 0 on, found 'xxx"),
        ('"0-15,32-47"', '"' + "0," * 999 + 'x"', "cores: expected a list such as"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, before: str, after: str, words: str) -> None:
    with pytest.raises(PlanError) as error:
        read(tmp_path, TWO_NODES.replace(before, after))
    assert words in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 400


def made_up_sysfs(root: Path, gpus: list[str]) -> Path:
    for number, (cores, kilobytes) in enumerate((("0-7,16-23", 64 << 20), ("8-15", 192 << 20))):
        node = root / f"devices/system/node/node{number}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(f"{cores}\n")
        (node / "meminfo").write_text(f"Node {number} MemTotal:       {kilobytes} kB\nNode {number} MemFree: 1 kB\n")
    devices = [
        ("0x8086", "0x030000", "0"),
        *(("0x10de", "0x030200", node) for node in gpus),
        ("0x10de", "0x040300", "0"),
    ]
    for index, (vendor, kind, node_) in enumerate(devices):
        device = root / f"bus/pci/devices/0000:{index:02x}:00.0"
        device.mkdir(parents=True)
        for name, text in (("vendor", vendor), ("class", kind), ("numa_node", node_)):
            (device / name).write_text(text + "\n")
    return root


def test_nodes_of_a_machine(tmp_path: Path) -> None:
    nodes = host.from_sysfs(made_up_sysfs(tmp_path, ["0", "1", "1"]), 3, 100 * 2**30)
    assert nodes == (host.Node("0-7,16-23", (0,), 25 * 2**30), host.Node("8-15", (1, 2), 75 * 2**30))
    assert host.from_sysfs(tmp_path, 2)[1] == host.Node("8-15", (1,), None)
    with pytest.raises(PlanError, match="shows 3 NVIDIA GPUs for 4 ranks"):
        host.from_sysfs(tmp_path, 4)


def test_machine_without_nodes_and_virtual_machine(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="shows no NUMA node"):
        host.from_sysfs(tmp_path, 1)
    # A virtual machine says -1 for a device's node.
    assert host.from_sysfs(made_up_sysfs(tmp_path, ["-1"]), 1)[0].ranks == (0,)


def test_rates_given(tmp_path: Path) -> None:
    found = host.with_rates(read(tmp_path, TWO_NODES), {"ram": 200.0})
    assert found.rates["ram"].gbs == 200 and found.rates["pcie"].gbs == 26
    with pytest.raises(PlanError, match="'disk' is no bandwidth"):
        host.with_rates(found, {"disk": 1.0})

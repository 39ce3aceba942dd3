from pathlib import Path

import pytest

from serving.preflight import cards, pcie
from serving.preflight.host import Host
from serving.preflight.made_up import card, checkpoint, config_space, host, only, pci, smi, subject
from serving.preflight.result import Result, skipped


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "model")


def looked(model: Path, tmp_path: Path, lines: str, *given: str, processes: str = "") -> list[Result]:
    return cards.check(subject(model, *given), Host(run=smi(tmp_path / "bin", lines, processes)))


def four(driver: str = "580.95.05") -> str:
    return "".join(card(number, driver=driver) for number in range(4))


def test_four_right_cards(model: Path, tmp_path: Path) -> None:
    results = looked(model, tmp_path, four())
    assert [one.state for one in results] == ["ok"] * 3
    assert only(results, "driver").what == "version 580.95.05, at least 580 is needed"


def test_no_driver_skips_what_is_about_cards(model: Path) -> None:
    def missing(words: object) -> None:
        raise FileNotFoundError

    results = cards.check(subject(model), Host(run=missing))  # type: ignore[arg-type]
    assert {one.check: one.state for one in results} == dict.fromkeys(["driver", "GPUs", "GPU memory"], "skipped")
    assert results[0].what == "there is no nvidia-smi on PATH"


def test_path_that_is_closed_to_whoever_asks(model: Path) -> None:
    def closed(words: object) -> None:
        raise PermissionError(13, "Permission denied")

    results = cards.check(subject(model), Host(run=closed))  # type: ignore[arg-type]
    assert results[0] == skipped("driver", "no nvidia-smi on PATH can be run: Permission denied")


def test_driver_that_fails_is_a_finding_in_its_own_words(model: Path, tmp_path: Path) -> None:
    run = smi(tmp_path / "bin", "Failed to initialize NVML: Driver/library version mismatch\n", status=18)
    results = cards.check(subject(model), Host(run=run))
    assert only(results, "driver").what == (
        "nvidia-smi fails: status 18: Failed to initialize NVML: Driver/library version mismatch"
    )
    assert "fails: expected 7 fields" in only(looked(model, tmp_path, "0, what, is, this\n"), "driver").what
    assert only(looked(model, tmp_path, ""), "GPUs").what == "nvidia-smi lists none"


def test_old_driver(model: Path, tmp_path: Path) -> None:
    result = only(looked(model, tmp_path, four(driver="575.64.03")), "driver")
    assert (result.state, result.what) == ("finding", "version 575.64.03, at least 580 is needed")
    assert only(looked(model, tmp_path, four(driver="600.1")), "driver").state == "ok"
    assert only(looked(model, tmp_path, four(driver="[N/A]")), "driver").state == "skipped"


@pytest.mark.parametrize("capability", ["9.0", "10.0", "12.1"])
def test_card_that_the_kernels_are_not_for(capability: str, model: Path, tmp_path: Path) -> None:
    lines = four().replace("12.0, 97887", f"{capability}, 97887", 1)
    result = only(looked(model, tmp_path, lines), "GPUs")
    assert result.state == "finding" and result.what.endswith(f"Workstation Edition) has {capability}")
    assert only(looked(model, tmp_path, lines, "TP=2", "GPUS=1,2"), "GPUs").state == "ok"


def test_cards_that_are_not_there(model: Path, tmp_path: Path) -> None:
    result = only(looked(model, tmp_path, card(0) + card(1)), "GPUs")
    there = "0 (GPU-00000000-0000), 1 (GPU-00000001-0000)"
    assert result.what == f"no GPU 2, 3; there are {there}"
    assert result.why == "TP x DP = 4 GPUs serve it, which GPUS names"
    by_uuid = ("TP=2", "GPUS=GPU-00000001-0000,GPU-00000009-0000")
    assert "no GPU GPU-00000009-0000; there" in only(looked(model, tmp_path, four(), *by_uuid), "GPUs").what
    twice = ("TP=2", "GPUS=1,GPU-00000001-0000")
    assert only(looked(model, tmp_path, four(), *twice), "GPUs").what == "GPUS names 1 twice"


def test_memory_that_others_hold_is_named(model: Path, tmp_path: Path) -> None:
    lines = card(0) + card(1, used=9000)
    used = "GPU-00000001-0000, 4242, /usr/bin/python3\nGPU-00000000-0000, 1, other\n"
    result = only(looked(model, tmp_path, lines, "TP=2", processes=used), "GPU memory")
    assert result.state == "finding" and "GPU 1 " in result.what and "GPU 0 " not in result.what
    held = "has 86.8 GiB of 95.6 GiB free, and 89.9 GiB are taken at the start"
    assert result.what.endswith(f"{held}: /usr/bin/python3 (4242)")
    assert "--set GPU_MEM_UTIL=..." in result.mend
    assert only(looked(model, tmp_path, lines, "TP=2", "GPU_MEM_UTIL=0.9"), "GPU memory").state == "ok"
    unknown = card(0).replace("97887", "[N/A]")
    assert only(looked(model, tmp_path, unknown, "TP=1"), "GPU memory").state == "skipped"


def test_pcie_without_iommu_and_acs(model: Path, tmp_path: Path) -> None:
    made = host(tmp_path)
    assert [(one.check, one.state) for one in pcie.check(subject(model), made)] == [("IOMMU", "ok"), ("ACS", "ok")]
    assert only(pcie.check(subject(model, "TP=1"), made), "PCIe").what == "one GPU reads no other"


def test_iommu_is_a_hint(model: Path, tmp_path: Path) -> None:
    made = host(tmp_path)
    (tmp_path / "sys/class/iommu/dmar0").mkdir(parents=True)
    (tmp_path / "proc/cmdline").write_text("ro intel_iommu=on quiet\n")
    result = only(pcie.check(subject(model), made), "IOMMU")
    assert (result.state, result.what) == ("hint", "on: dmar0; on the kernel's command line: intel_iommu=on")
    (tmp_path / "proc/cmdline").write_text("ro intel_iommu=on iommu=pt\n")
    assert only(pcie.check(subject(model), made), "IOMMU").what == "on, passing through (intel_iommu=on iommu=pt)"


def test_acs_that_redirects_is_a_hint_with_the_command(model: Path, tmp_path: Path) -> None:
    made, bridges = host(tmp_path), tmp_path / "sys/devices/pci0000:00"
    # Validation, translation blocking and upstream forwarding, which redirect nothing.
    (bridges / "0000:00:01.0/config").write_bytes(config_space(0b010011))
    assert only(pcie.check(subject(model), made), "ACS").what == "none of 4 bridges above the cards redirects"
    (bridges / "0000:00:02.0/config").write_bytes(config_space(0b011101))
    result = only(pcie.check(subject(model), made), "ACS")
    assert (result.state, result.what) == ("hint", "redirects between the cards on 0000:00:02.0")
    assert result.mend.startswith("setpci -s 0000:00:02.0 ECAP_ACS+0x6.w=0000 ")


def test_bridges_that_only_root_may_read(model: Path, tmp_path: Path) -> None:
    made, bridges = host(tmp_path), tmp_path / "sys/devices/pci0000:00"
    (bridges / "0000:00:01.0/config").write_bytes(bytes(64))
    assert only(pcie.check(subject(model), made), "ACS").what.startswith("1 of 4 bridges show their capabilities to")


def test_cards_of_a_virtual_machine_have_no_bridge(model: Path, tmp_path: Path) -> None:
    pci(tmp_path / "sys", "pci0000:00/0000:00:06.0", "pci0000:00/0000:00:07.0")
    result = only(pcie.check(subject(model), Host(sys=tmp_path / "sys", proc=tmp_path)), "ACS")
    assert result.state == "skipped" and result.what.startswith("no bridge is seen above the cards")


def test_configuration_space_that_leads_in_a_circle(model: Path, tmp_path: Path) -> None:
    made, bridge = host(tmp_path), tmp_path / "sys/devices/pci0000:00/0000:00:01.0/config"
    circle = bytearray(4096)
    circle[0x100:0x104] = (0x10010001).to_bytes(4, "little")
    bridge.write_bytes(circle)
    assert only(pcie.check(subject(model), made), "ACS").state == "ok"
    circle[0x100:0x104] = (0xFFF10001).to_bytes(4, "little")
    bridge.write_bytes(circle)
    assert only(pcie.check(subject(model), made), "ACS").state == "ok"


def test_cards_of_others_do_not_count(model: Path, tmp_path: Path) -> None:
    pci(tmp_path / "sys", "pci0000:00/0000:00:01.0", "pci0000:00/0000:00:02.0", vendor="0x1002")
    result = only(pcie.check(subject(model), Host(sys=tmp_path / "sys")), "PCIe")
    assert result.what == f"no NVIDIA card is below {tmp_path}/sys/bus/pci/devices"

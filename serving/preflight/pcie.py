"""What stands between the cards: IOMMU and ACS. Hints, from sysfs alone; a collective that hangs is the proof."""

import os
import re
from pathlib import Path

from serving.preflight.host import Host
from serving.preflight.result import Result, hint, ok, skipped, some
from serving.preflight.subject import Subject

_NVIDIA = "0x10de"
# PCI class codes of display controllers: base class 03h.
_DISPLAY = "0x03"
_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

# PCI Express Base Specification: extended capabilities begin at 100h; ACS is 0Dh, its control register at +6, in
# which bits 2 and 3 redirect peers' requests and completions to the root.
_EXTENDED = 0x100
_WHOLE = 0x1000
_ACS = 0x0D
_CONTROL = 6
_REDIRECT = 0b1100

_WHY = "traffic between cards goes through the root complex: slower, and on some hosts it hangs"


def check(subject: Subject, host: Host) -> list[Result]:
    """Hints on what makes reads between cards slow or hang."""
    if len(subject.launch.gpus) < 2:
        return [skipped("PCIe", "one GPU reads no other")]
    cards = _cards(host.sys)
    if len(cards) < 2:
        many = "no NVIDIA card is" if not cards else "one NVIDIA card is"
        return [skipped("PCIe", f"{many} below {host.sys / 'bus/pci/devices'}")]
    return [_iommu(host), _acs(cards)]


def _cards(sys: Path) -> list[Path]:
    """The NVIDIA cards' folders, with all bridges above them in their real paths."""
    links = _listed(sys / "bus/pci/devices")
    shown = [one for one in links if _word(one / "vendor") == _NVIDIA and _word(one / "class").startswith(_DISPLAY)]
    return [Path(os.path.realpath(one)) for one in shown]


def _iommu(host: Host) -> Result:
    units = [path.name for path in _listed(host.sys / "class/iommu")]
    if not units:
        return ok("IOMMU", "off")
    words = _word(host.proc / "cmdline").split()
    set_by = [word for word in words if re.match(r"(intel_iommu|amd_iommu|iommu)=", word)]
    if "iommu=pt" in words or "iommu.passthrough=1" in words:
        return ok("IOMMU", f"on, passing through ({' '.join(set_by)})")
    what = f"on: {some(units, 4)}; on the kernel's command line: {' '.join(set_by) or 'nothing of it'}"
    mend = "add iommu=pt to the kernel's command line (GRUB_CMDLINE_LINUX), or switch it off in the firmware; reboot"
    return hint("IOMMU", what, "it translates what cards read of each other: slower, and on some hosts it hangs", mend)


def _acs(cards: list[Path]) -> Result:
    bridges = sorted({parent for card in cards for parent in card.parents if _ADDRESS.fullmatch(parent.name)})
    if not bridges:
        return skipped("ACS", "no bridge is seen above the cards, as in a virtual machine: look on its host")
    redirecting, closed = [], 0
    for bridge in bridges:
        control = _control(bridge)
        closed += control is None
        if control is not None and control & _REDIRECT:
            redirecting.append(bridge.name)
    if redirecting:
        mend = "; ".join(f"setpci -s {name} ECAP_ACS+0x6.w=0000" for name in redirecting)
        what = f"redirects between the cards on {some(redirecting, 8)}"
        return hint("ACS", what, _WHY, f"{mend} (until the next boot), or switch it off in the firmware")
    if closed:
        return skipped("ACS", f"{closed} of {len(bridges)} bridges show their capabilities to root alone")
    return ok("ACS", f"none of {len(bridges)} bridges above the cards redirects")


def _control(device: Path) -> int | None:
    """The ACS control register; 0 for a device without ACS, None where the configuration space cannot be read."""
    try:
        space = (device / "config").read_bytes()
    except OSError:
        return None
    if len(space) <= _EXTENDED:
        # The kernel shows the first 64 bytes to everybody, and 256 are all that conventional PCI has.
        return 0 if len(space) == _EXTENDED else None
    at, seen = _EXTENDED, set[int]()
    while _EXTENDED <= at <= min(len(space), _WHOLE) - 8 and at not in seen:
        seen.add(at)
        head = int.from_bytes(space[at : at + 4], "little")
        if head & 0xFFFF == _ACS:
            return int.from_bytes(space[at + _CONTROL : at + _CONTROL + 2], "little")
        at = head >> 20
    return 0


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _word(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""

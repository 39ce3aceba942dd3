"""What the cards and the CPU do while a server is measured: nvidia-smi and sysfs, read only."""

import csv
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from serving.preflight.host import Host

_FIELDS = (
    *("index", "name", "clocks_event_reasons.active", "utilization.gpu", "temperature.gpu"),
    *("enforced.power.limit", "power.default_limit"),
    *("pcie.link.width.current", "pcie.link.width.max", "pcie.link.gen.current", "pcie.link.gen.max"),
)
_COMMAND = ("nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits")
_FIRST_SECONDS, _EVERY_SECONDS = 0.5, 2.0
# An idle card has a slow link and low clocks, and no part in what is measured.
_USED_PERCENT = 20
_GOVERN = "cpupower frequency-set -g performance"

# NVML API reference, NvmlClocksEventReasons.
_POWER_CAP = 0x4
_HARDWARE = 0x8
_HEAT = 0x20 | 0x40
_POWER_BRAKE = 0x80


@dataclass(frozen=True)
class Card:
    """A card under load.

    Attributes:
        index: as nvidia-smi numbers it.
        name: of the product.
        reasons: NVML's bits for what held its clocks back, of all looks.
        used: highest share of time in which it computed, in percent; None where the card does not say.
        heat: highest temperature, in degrees Celsius; None likewise.
        limit: the power limit in force, in watts; None likewise.
        usual_limit: the card's own, in watts; None likewise.
        width: lanes of its PCIe link, and how many there could be; None likewise.
        generation: of its PCIe link under load, and the highest of card and slot; None likewise.
    """

    index: str
    name: str
    reasons: int
    used: float | None
    heat: float | None
    limit: float | None
    usual_limit: float | None
    width: tuple[int, int] | None
    generation: tuple[int, int] | None


class Watch:
    """The cards and the CPU of a host, as they are seen while it is measured; of None, nothing is seen."""

    def __init__(self, host: Host | None) -> None:
        self._host = host
        self._looks: list[list[Card]] = []

    @property
    def cards(self) -> list[Card]:
        """Each card that was used, with the worst of all looks; none where there is no nvidia-smi, or it fails."""
        by_index: dict[str, list[Card]] = {}
        for look in self._looks:
            for card in look:
                by_index.setdefault(card.index, []).append(card)
        found = [_worst(looks) for looks in by_index.values()]
        return [card for card in found if card.used is None or card.used >= _USED_PERCENT]

    def look(self) -> None:
        """Looks once."""
        if self._host and (cards := _cards(self._host)):
            self._looks.append(cards)

    def governors(self) -> set[str]:
        """How the kernel chooses the frequency of the CPU's cores; none where it does not say."""
        governors = set[str]()
        if self._host is None:
            return governors
        for path in self._host.sys.glob("devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"):
            try:
                governors.add(path.read_text(encoding="ascii", errors="replace").strip())
            except OSError:
                continue
        return governors


@contextmanager
def watched(host: Host | None) -> Iterator[Watch]:
    """Looks at the cards every two seconds for as long as the block runs; None is a host that is elsewhere."""
    watch = Watch(host)
    end = threading.Event()

    def run() -> None:
        # The first look is not at once: at its start a card still has the clocks of an idle one.
        pause = _FIRST_SECONDS
        while not end.wait(pause):
            watch.look()
            pause = _EVERY_SECONDS

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        end.set()
        thread.join(_EVERY_SECONDS)


def seen(watch: Watch) -> list[str]:
    """What the cards and the CPU show that makes a server slow, each with what to do."""
    found = []
    for card in watch.cards:
        found += [f"card {card.index}: {words}" for words in _slow(card)]
    if others := sorted(watch.governors() - {"performance"}):
        found.append(f"the CPU's governor is {', '.join(others)}, and steps wait for it: {_GOVERN}")
    return found


def _slow(card: Card) -> Iterator[str]:
    if card.reasons & _HEAT:
        heat = f" ({card.heat:g} C)" if card.heat is not None else ""
        yield f"its clocks were held back by heat{heat}: more air, or a lower power limit"
    if card.reasons & (_HARDWARE | _POWER_BRAKE):
        yield "the board braked its clocks: power supply, its cables, or heat: nvidia-smi -q -d PERFORMANCE"
    if card.reasons & _POWER_CAP and card.limit and card.usual_limit and card.limit < card.usual_limit:
        limits = f"{card.limit:g} W of {card.usual_limit:g} W"
        yield f"it ran into a power limit of {limits}: nvidia-smi -i {card.index} -pl {card.usual_limit:g}"
    if card.width and card.width[0] < card.width[1]:
        yield f"PCIe has {card.width[0]} of {card.width[1]} lanes: slot, riser, or the board's way to share lanes"
    if card.generation and card.generation[0] < card.generation[1]:
        yield f"PCIe ran at generation {card.generation[0]} of {card.generation[1]}: riser, or the firmware's setting"


def _cards(host: Host) -> list[Card]:
    try:
        done = host.run(_COMMAND)
    except OSError:
        return []
    if done.status:
        return []
    rows = csv.reader(done.output.splitlines(), skipinitialspace=True)
    return [_card(row) for row in rows if len(row) == len(_FIELDS)]


def _card(row: Sequence[str]) -> Card:
    numbers = [_number(text) for text in row[3:]]
    return Card(
        index=row[0],
        name=row[1],
        reasons=_bits(row[2]),
        used=numbers[0],
        heat=numbers[1],
        limit=numbers[2],
        usual_limit=numbers[3],
        width=_pair(numbers[4], numbers[5]),
        generation=_pair(numbers[6], numbers[7]),
    )


def _worst(looks: Sequence[Card]) -> Card:
    reasons = 0
    for look in looks:
        reasons |= look.reasons
    last = looks[-1]
    # A link that is idle for a moment is slower; what it reached is what it can.
    best = max((look.generation for look in looks if look.generation), default=None)
    heat, used = _highest(look.heat for look in looks), _highest(look.used for look in looks)
    return Card(last.index, last.name, reasons, used, heat, last.limit, last.usual_limit, last.width, best)


def _highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _bits(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return 0


def _pair(one: float | None, other: float | None) -> tuple[int, int] | None:
    return None if one is None or other is None else (int(one), int(other))

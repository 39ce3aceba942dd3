"""What the driver says of its GPUs, through nvidia-smi."""

import csv
from dataclasses import dataclass

from serving.preflight.host import Host

_FIELDS = ("index", "uuid", "name", "compute_cap", "memory.total", "memory.used", "driver_version")
_FORMAT = "--format=csv,noheader,nounits"
_MIB = 1 << 20


class NoDriverError(Exception):
    """There is no nvidia-smi that can be run; the message says so."""


class DriverError(Exception):
    """nvidia-smi is there and fails; the message has its words."""


@dataclass(frozen=True)
class Gpu:
    """One GPU. Memory is in bytes, None where the driver does not say it."""

    index: str
    uuid: str
    name: str
    capability: str
    total: int | None
    used: int | None
    driver: str

    @property
    def label(self) -> str:
        """The GPU in words."""
        return f"GPU {self.index} ({self.name})"


def gpus(host: Host) -> list[Gpu]:
    """The GPUs, in the order in which Docker numbers them. Raises NoDriverError, DriverError."""
    rows = _rows(host, f"--query-gpu={','.join(_FIELDS)}")
    for row in rows:
        if len(row) != len(_FIELDS):
            raise DriverError(f"expected {len(_FIELDS)} fields, found {','.join(row)!r}")
    return [
        Gpu(row[0], row[1], row[2], row[3], _bytes(row[4]), _bytes(row[5]), row[6].strip())
        for row in rows
    ]


def processes(host: Host, uuid: str) -> list[str]:
    """The compute processes on a GPU, each as its name and number; none where nvidia-smi does not say."""
    try:
        rows = _rows(host, "--query-compute-apps=gpu_uuid,pid,process_name")
    except (NoDriverError, DriverError):
        return []
    return [f"{row[2]} ({row[1]})" for row in rows if len(row) == 3 and row[0] == uuid]


def _rows(host: Host, query: str) -> list[list[str]]:
    try:
        done = host.run(["nvidia-smi", query, _FORMAT])
    except FileNotFoundError:
        raise NoDriverError("there is no nvidia-smi on PATH") from None
    except OSError as error:
        # A folder of PATH that is closed to whoever asks is reported for a program that is nowhere.
        raise NoDriverError(f"no nvidia-smi on PATH can be run: {error.strerror}") from None
    if done.status:
        words = " ".join((done.output + " " + done.error).split()) or "no word"
        raise DriverError(f"status {done.status}: {words}")
    return [row for row in csv.reader(done.output.splitlines(), skipinitialspace=True) if row]


def _bytes(text: str) -> int | None:
    return int(text) * _MIB if text.strip().isdecimal() else None

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench import meter
from bench.meter import Cost
from tests.engine import scratch

BUSY = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def test_counts_the_cpu_of_ended_children_and_of_theirs() -> None:
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}], check=True)"
    cost = meter.measure(lambda: subprocess.run(python(nested), check=True))
    assert 0.3 <= cost.cpu_s < 5
    assert cost.wall_s >= 0.3


def test_idle_time_costs_no_cpu() -> None:
    cost = meter.measure(lambda: time.sleep(0.2))
    assert cost.wall_s >= 0.2
    assert cost.cpu_s < 0.1


def test_counts_a_daemon_and_its_children() -> None:
    code = (
        "import subprocess, sys, time\n"
        "sys.stdin.readline()\n"
        f"subprocess.run([sys.executable, '-c', {BUSY!r}], check=True)\n"
        "print('done', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(python(code), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdin
        assert daemon.stdout

        def action() -> None:
            assert daemon.stdin
            assert daemon.stdout
            print(file=daemon.stdin, flush=True)
            daemon.stdout.readline()

        counted = meter.measure(action, [daemon.pid])
        daemon.kill()
    assert counted.cpu_s >= 0.25


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="this kernel does not account for what is written")
def test_counts_what_a_child_writes_to_a_disk() -> None:
    path = scratch.roomy() / f"moet-meter-{os.getpid()}"
    try:
        code = "import sys; open(sys.argv[1], 'wb').write(bytes(3_000_000))"
        cost = meter.measure(lambda: subprocess.run(python(code, str(path)), check=True))
    finally:
        path.unlink(missing_ok=True)
    assert 3_000_000 <= cost.written_bytes < 4_000_000


def test_costs_add_up() -> None:
    assert Cost(1, 2, 3) + Cost(10, 20, 30) == Cost(11, 22, 33)

"""The entry point: verbs, reports, exit statuses, and becoming another program."""

import ast
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from images.manifest import model
from serving.runtime import fake_image, main
from serving.runtime.fake_image import KERNEL, SITE, SWITCHES, FakeImage

HERE = Path(__file__).resolve().parent
SOURCE = Path(main.__file__).parents[2]
DRIVER = (
    "import os, sys; sys.path.insert(0, sys.argv[1]); from serving.runtime.main import main; "
    "sys.exit(main(sys.argv[3:], os.environ, sys.argv[2]))"
)


@pytest.fixture
def image(tmp_path: Path) -> FakeImage:
    return fake_image.make(tmp_path / "root")


def command(image: FakeImage, *arguments: str) -> list[str]:
    return [sys.executable, "-ISB", "-c", DRIVER, str(SOURCE), str(image.root), *arguments]


def start(image: FakeImage, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(image, *arguments),
        env={**image.environment, **more},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        ((), ["serve"]),
        (("model/name", "--tp", "4"), ["serve", "model/name", "--tp", "4"]),
        (("serve", "model/name"), ["serve", "model/name"]),
        (("serve", "attest"), ["serve", "attest"]),
        (("serve", "--help"), ["serve", "--help"]),
        (("--model", "a b", ""), ["serve", "--model", "a b", ""]),
    ],
)
def test_becomes_the_server(image: FakeImage, given: tuple[str, ...], passed: list[str]) -> None:
    done = start(image, *given)
    assert done.returncode == 0, done.stderr
    head, *arguments = done.stdout.splitlines()
    assert head.endswith("safe 1")
    assert arguments == [f"argument {each}" for each in passed]
    assert (
        "dsv41:vllm0.33.0-r1 (vllm 0.33.0, 4ba787ec9; commit cccccccccccc): attested, "
        "4 files (1 kernel, 2 overlay, 1 runtime)"
        in done.stderr
    )


def test_report_does_not_repeat_arguments(image: FakeImage) -> None:
    assert "secret" not in start(image, "model", "--api-key", "secret").stderr


def test_stays_the_same_process_and_gets_signals(image: FakeImage) -> None:
    script = "trap 'echo stopped; exit 7' TERM; echo $$; while :; do sleep 0.05; done"
    with subprocess.Popen(
        command(image, "exec", "sh", "-c", script), env=image.environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "stopped\n"
    assert process.returncode == 7


def test_next_program_does_not_ignore_signals(image: FakeImage) -> None:
    lines = start(image, "exec", "cat", "/proc/self/status").stdout.splitlines()
    ignored = next(int(line.split()[1], 16) for line in lines if line.startswith("SigIgn"))
    assert not ignored & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1))


def test_exec_passes_everything_on(image: FakeImage) -> None:
    assert start(image, "exec", "--", "echo", "--", "-n").stdout == "-- -n\n"
    assert start(image, "exec", "sh", "-c", "exit 9").returncode == 9


def test_mismatch_starts_nothing(image: FakeImage) -> None:
    image.path(KERNEL).write_text("other")
    for arguments in (("model",), ("exec", "echo", "started")):
        done = start(image, *arguments)
        assert (done.returncode, done.stdout) == (3, "")
        assert f"moet: MISMATCH {KERNEL}: expected sha256 " in done.stderr
        assert "1 mismatch in dsv41:vllm0.33.0-r1: refused: " in done.stderr


@pytest.mark.parametrize(
    ("switch", "value", "on"),
    [
        (SWITCHES[0], "false", "1 (step reasoning-effort-tiers)"),
        (SWITCHES[0], "", "1 (step reasoning-effort-tiers)"),
        (SWITCHES[0], "2", "1 (step reasoning-effort-tiers)"),
        (SWITCHES[1], "1", "64 (step moe-row-alignment)"),
    ],
)
def test_switch_set_to_what_it_does_not_take(image: FakeImage, switch: str, value: str, on: str) -> None:
    done = start(image, "model", **{switch: value})
    assert (done.returncode, done.stdout) == (2, "")
    assert f"moet: {switch}={value!r}: expected 0 (upstream's path) or {on}\n" in done.stderr
    done = start(image, "attest", "--json", **{switch: value})
    assert done.returncode == 2
    assert json.loads(done.stdout)["ok"] is False
    assert [step["live"] for step in json.loads(done.stdout)["steps"]].count(None) == 1


def test_self_test_runs_after_attestation_and_before_the_server(image: FakeImage) -> None:
    result = {"error": None, "ok": True, "results": [{"family": "gemv", "ok": True}]}
    image.write(f"{SITE}/moet_kernels/selftest.py", f"print({json.dumps(result)!r})".encode())
    done = start(image, "exec", "env", **{SWITCHES[1]: "64", model.SELFTEST: "1"})
    assert done.returncode == 0, done.stderr
    assert f"{SWITCHES[1]}=64" in done.stdout.splitlines()
    assert not any(line.startswith(model.SELFTEST) for line in done.stdout.splitlines())
    assert "warning" not in done.stderr
    result["results"] = [{"family": "gemv", "ok": False}]
    image.write(f"{SITE}/moet_kernels/selftest.py", f"print({json.dumps(result)!r})".encode())
    done = start(image, "model", **{SWITCHES[1]: "64", model.SELFTEST: "1"})
    assert (done.returncode, done.stdout) == (5, "")
    assert "attested" in done.stderr.splitlines()[0]
    assert done.stderr.endswith(f"gemv; to serve with upstream's paths instead: -e {SWITCHES[1]}=0\n")
    assert start(image, "model", **{SWITCHES[1]: "0", model.SELFTEST: "1"}).returncode == 0
    assert start(image, "model", **{SWITCHES[1]: "64", model.SELFTEST: "0"}).returncode == 0


def test_mismatch_is_not_tested(image: FakeImage) -> None:
    image.path(KERNEL).write_text("other")
    done = start(image, "model", VLLM_MOET_SELFTEST="1")
    assert done.returncode == 3 and "selftest" not in done.stderr


def test_self_test_asked_for_in_other_words(image: FakeImage) -> None:
    done = start(image, "model", VLLM_MOET_SELFTEST="yes")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("moet: VLLM_MOET_SELFTEST='yes': expected 0, or 1 to test the kernels before serving\n")


def test_missing_anchor_starts_nothing(image: FakeImage) -> None:
    del image.environment[model.ANCHOR]
    done = start(image, "model")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("moet: MOET_MANIFEST_SHA256 is not set")
    assert done.stderr.count("\n") == 1


def test_exec_of_what_is_not_there(image: FakeImage, tmp_path: Path) -> None:
    done = start(image, "exec", "no-such-program")
    assert done.returncode == 127
    assert done.stderr.endswith("moet: no-such-program: not found: expected a program of the image\n")
    plain = tmp_path / "plain"
    plain.write_text("text")
    assert start(image, "exec", str(plain)).returncode == 126
    assert start(image, "exec").returncode == 2
    assert start(image, "exec", "--").returncode == 2


def test_attest_prints_the_steps(image: FakeImage) -> None:
    done = start(image, "attest", **{SWITCHES[0]: "0"})
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["moet:", "1", "reasoning-effort-tiers", "none", SWITCHES[0], "OFF", "(set", "to", "0)"] in lines
    assert ["moet:", "2", "moe-row-alignment", "identical", SWITCHES[1], "OFF", "(by", "default)"] in lines


def test_attest_as_json(image: FakeImage) -> None:
    done = start(image, "attest", "--json", **{SWITCHES[1]: "64", "VLLM_MOET_REASONING_TIER": "0"})
    found = json.loads(done.stdout)
    assert (done.returncode, found["ok"], found["mismatches"], found["errors"]) == (0, True, [], [])
    assert [(step["number"], step["live"], step["value"]) for step in found["steps"]] == [
        (1, True, None),
        (2, True, "64"),
    ]
    assert found["files"] == {"kernel": 1, "overlay": 2, "runtime": 1}
    assert len(found["warnings"]) == 1
    assert found["warnings"][0].startswith("VLLM_MOET_REASONING_TIER is no switch of this image")


def test_failed_attest_as_json(image: FakeImage) -> None:
    image.path(KERNEL).write_text("other")
    done = start(image, "attest", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["ok"]) == (3, False)
    assert [(item["check"], item["subject"]) for item in found["mismatches"]] == [("file", KERNEL)]
    done = start(image, "attest", "--json", MOET_MANIFEST_SHA256="?")
    assert (done.returncode, json.loads(done.stdout)["ok"]) == (4, False)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("VLLM_MOET_MOE_BLOCKM", "did you mean VLLM_MOET_MOE_BLOCK_M?"),
        ("vllm_moet_moe_block_m", "did you mean VLLM_MOET_MOE_BLOCK_M?"),
        ("VLLM_MOET_Q", "it has VLLM_MOET_MOE_BLOCK_M, VLLM_MOET_REASONING_TIERS"),
    ],
)
def test_unknown_switch_warns_and_serves(image: FakeImage, name: str, hint: str) -> None:
    done = start(image, "model", **{name: "0"})
    assert done.returncode == 0
    assert f"moet: warning: {name} is no switch of this image and does nothing: {hint}\n" in done.stderr


def test_outside_anchor(image: FakeImage) -> None:
    assert start(image, "attest", "--manifest-sha256", "0" * 64).returncode == 3
    assert start(image, "attest", "--manifest-sha256", "short").returncode == 4


def test_steps_and_manifest_need_no_attestation(image: FakeImage) -> None:
    image.path(KERNEL).unlink()
    table = start(image, "steps", **{SWITCHES[0]: "off"})
    assert table.returncode == 0
    assert [line.split()[:2] for line in table.stdout.splitlines()[1:]] == [
        ["1", "reasoning-effort-tiers"],
        ["2", "moe-row-alignment"],
    ]
    assert "INVALID (set to off)" in table.stdout
    assert [step["live"] for step in json.loads(start(image, "steps", "--json").stdout)] == [True, False]
    assert start(image, "manifest").stdout.encode() == image.path(model.PATH).read_bytes()


def test_wrong_usage(image: FakeImage) -> None:
    for arguments in (("attest", "--jso"), ("steps", "now"), ("manifest", "--json")):
        assert start(image, *arguments).returncode == 2


def test_entry_point_runs_from_the_installed_files_alone(tmp_path: Path) -> None:
    tree = ast.parse((HERE / "files.bzl").read_text())
    tables = [ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)]
    mapping = {label: path for table in tables if isinstance(table, dict) for label, path in table.items()}
    for label, destination in mapping.items():
        source = SOURCE / label.removeprefix("//").replace(":", "/")
        (tmp_path / destination).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / destination).write_bytes(source.read_bytes())
    script = tmp_path / "usr/bin/moet-serve"
    assert script.read_text().splitlines()[0] == "#!/usr/bin/python3.11 -ISB"
    (tmp_path / "serving").mkdir()
    (tmp_path / "json.py").write_text("raise RuntimeError('shadowed')")
    done = subprocess.run(
        [sys.executable, "-ISB", str(script), "--help"],
        env={"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("The image's entry point: attest, then become the server.")
    assert not list(tmp_path.rglob("__pycache__"))

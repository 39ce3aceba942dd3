"""Settings that are wrong, and names and folders that are hostile: one line each, before anything is done."""

from pathlib import Path

from tests.release.toy import LINE, moet
from tests.serving.operator import FIRST, Operator

CASES: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("PORT=70000",), ("PORT='70000' (--set)", "65535")),
    (("GPU_MEM_UTIL=1.5",), ("GPU_MEM_UTIL='1.5' (--set)", "0.98")),
    (("MAX_NUM_SEQS=many",), ("MAX_NUM_SEQS='many' (--set)", "expected")),
    (("KV_RECORD=nvfp4",), ("KV_RECORD='nvfp4' (--set)", "expected nvfp4_ds_mla")),
    (("GPU_MEM_UTILS=0.9",), ("'GPU_MEM_UTILS' is no knob of toy", "did you mean GPU_MEM_UTIL?")),
    (("PORT",), ("--set PORT: expected PORT=VALUE",)),
    (("PORT=1", "PORT=2"), ("--set PORT: is set twice",)),
    (("MODEL_DIR=relative/model",), ("MODEL_DIR='relative/model' (--set)", "expected")),
    (("MODEL_DIR=/no/such",), ("preflight: model", "--no-preflight")),
    (("NAME=../../etc",), ("NAME='../../etc' (--set)", "expected")),
    (("NAME=-rm",), ("NAME='-rm' (--set)", "expected")),
    (("NAME=two\nlines",), ("NAME='two\\nlines' (--set)", "expected")),
    (("IMAGE=$(reboot)",), ("IMAGE='$(reboot)' (--set)", "expected")),
    (("IMAGE=toy:none",), ("does not have toy:none", "bazel run //images/toy:load")),
    (("BIND=0.0.0.0",), ("BIND=0.0.0.0 (--set)", "API_KEY_FILE")),
    (("EXTRA_ARGS=--host=0.0.0.0",), ("EXTRA_ARGS", "--host is set by Moet")),
    (("EXTRA_ARGS='",), ("EXTRA_ARGS", "quot")),
    (("EXTRA_DOCKER_ARGS=--publish=80:80",), ("EXTRA_DOCKER_ARGS", "is set by Moet")),
    (("EXTRA_DOCKER_ARGS=--memroy=1g",), ("EXTRA_DOCKER_ARGS: --memroy: ", "did you mean --memory?")),
]


def test_refused(operator: Operator) -> None:
    for given, said in CASES:
        status, output, errors = moet(*operator.host.serve("up", LINE, *(f"--set={pair}" for pair in given)))
        last = errors.splitlines()[-1]
        assert (status, output) == (1, ""), (given, output, errors)
        assert last.startswith("moet serve up: ") and all(part in last for part in said), (given, last)
        assert operator.containers() == {}
        assert operator.server.generations == () and operator.server.operation is None


def test_a_profile_that_is_none(operator: Operator) -> None:
    for name in ("toi", "../toy", ""):
        status, _, errors = moet(*operator.host.serve("up", name))
        assert status == 1 and f"{name!r} is no profile; " in errors and errors.count("\n") == 1, errors


def test_a_hostile_model_folder_is_served_as_it_is(operator: Operator) -> None:
    hostile = operator.host.folder / "a b'c\"d$HOME `id` %h \\n ;#&|<>*?[]{}~! é\ttab,src=x:y"
    operator.host.model.rename(hostile)
    outcome = operator.run("up", LINE, FIRST, MODEL_DIR=str(hostile))
    assert outcome.status == 0, outcome.errors
    operator.serves(1)
    (container,) = operator.host.docker.client.containers.list()
    mounts = {one["Destination"]: one["Source"] for one in container.attrs["Mounts"]}
    assert mounts["/model"] == str(hostile) and not Path("id").exists()

import pytest

from serving.launch import extra
from tools.cli.errors import UserError

FLAGS = ("--tensor-parallel-size", "--attention-config", "--max-num-seqs")


@pytest.mark.parametrize(
    "word",
    [
        "--host",
        "--host=0.0.0.0",
        "--ho=0.0.0.0",
        "--api-key",
        "--api_key=x",
        "--max-num-seqs=9",
        "--max_num_se",
        "--attention-config.backend=X",
        "--config=/x.yaml",
        "-tp=2",
        "-tp2",
        "-n",
        "-r1",
    ],
)
def test_what_moet_sets_is_refused_however_vllm_takes_it(word: str) -> None:
    with pytest.raises(UserError, match=r"^EXTRA_ARGS: .* is set by Moet"):
        extra.check_arguments("EXTRA_ARGS", ["--seed", word], FLAGS)


@pytest.mark.parametrize("word", ["--seed=1", "--host-x", "--portable", "value", "-", "--", "-q", "-5", ""])
def test_other_words_pass(word: str) -> None:
    extra.check_arguments("EXTRA_ARGS", [word], FLAGS)


@pytest.mark.parametrize(
    "word", ["-p", "-p80:80", "-itp", "-P", "-d", "--publish=80:80", "--network", "--name=x", "--env-file", "--net=x"]
)
def test_docker_options_that_moet_sets_are_refused(word: str) -> None:
    with pytest.raises(UserError, match=r"^EXTRA_DOCKER_ARGS: .*: is set by Moet"):
        extra.check_docker("EXTRA_DOCKER_ARGS", [word])


def test_key_among_docker_options_is_refused_and_not_repeated() -> None:
    with pytest.raises(UserError, match="VLLM_API_KEY: would be seen in process lists") as error:
        extra.check_docker("EXTRA_DOCKER_ARGS", ["-e", "VLLM_API_KEY=secret"])
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("word", ["--cpus=4", "-v/a:/b", "-e", "A=p", "--device=/dev/x", "--pids-limit=100"])
def test_other_docker_options_pass(word: str) -> None:
    extra.check_docker("EXTRA_DOCKER_ARGS", [word])

from pathlib import Path

import pytest

from serving.launch import key, settings
from serving.launch.key import Key
from serving.profiles import load
from tools.cli.errors import UserError


def found(*given: str, environment: dict[str, str] | None = None) -> Key | None:
    return key.find(settings.resolve(load.load("dsv41"), given, environment or {}), environment or {})


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    file = folder / "key"
    file.write_text(text)
    file.chmod(mode)
    return file


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1"])
def test_loopback_needs_no_key(address: str) -> None:
    assert found(f"BIND={address}") is None


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "::ffff:7f00:1", "fe80::1"])
def test_any_other_address_needs_one(address: str) -> None:
    with pytest.raises(UserError, match=rf"^BIND={address} \(environment\): whoever reaches this address could use"):
        found(environment={"BIND": address})
    assert found(environment={"BIND": address, "VLLM_API_KEY": "k"}) == Key(None)


def test_file_is_taken_before_the_environment(tmp_path: Path) -> None:
    file = written(tmp_path, "VLLM_API_KEY=aB3._~+/-==\n\n")
    assert found(f"API_KEY_FILE={file}", "BIND=0.0.0.0", environment={"VLLM_API_KEY": "k"}) == Key(str(file))


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("VLLM_API_KEY=k\n", 0o644, r"others may read or write it \(mode 644\): chmod 600 it"),
        ("", 0o600, "expected the one line VLLM_API_KEY=KEY"),
        ("VLLM_API_KEY=\n", 0o600, "expected the one line VLLM_API_KEY=KEY"),
        ("secret\n", 0o600, "expected the one line VLLM_API_KEY=KEY"),
        ('VLLM_API_KEY="secret"\n', 0o600, "expected the one line VLLM_API_KEY=KEY"),
        ("VLLM_API_KEY=secret\nA=1\n", 0o600, "expected the one line VLLM_API_KEY=KEY"),
    ],
)
def test_file_that_would_not_work_is_refused(text: str, mode: int, said: str, tmp_path: Path) -> None:
    file = written(tmp_path, text, mode)
    with pytest.raises(UserError, match=rf"^{file}: {said}") as error:
        found(f"API_KEY_FILE={file}")
    assert "secret" not in str(error.value)


def test_file_that_is_not_there_or_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        found(f"API_KEY_FILE={tmp_path}/none")
    with pytest.raises(UserError, match="expected a file with the line"):
        found(f"API_KEY_FILE={tmp_path}")


def test_key_that_no_client_could_send_is_refused_and_not_repeated() -> None:
    with pytest.raises(UserError, match=r"^VLLM_API_KEY \(environment\): expected letters") as error:
        found(environment={"VLLM_API_KEY": "se cret"})
    assert "se cret" not in str(error.value)

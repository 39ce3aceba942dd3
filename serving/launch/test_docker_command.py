import csv

from serving.launch import docker_command, settings
from serving.launch.key import Key
from serving.launch.plan import plan
from serving.profiles import load

IMAGE = "dsv41:vllm0.33.0-r2-dev"


def words(*given: str, key: Key | None = None) -> list[str]:
    found = settings.resolve(load.load("dsv41"), given, {"MODEL_DIR": "/m"})
    return docker_command.run(plan(found, IMAGE, key, "published").launch, "--rm")


def test_options_come_before_the_image_and_arguments_after_it() -> None:
    found = words("EXTRA_DOCKER_ARGS=--cpus 4", "EXTRA_ARGS=--seed 1")
    at = found.index(IMAGE)
    assert found[:4] == ["docker", "run", "--rm", "--name=dsv41"]
    assert found[at - 2 : at] == ["--cpus", "4"]
    assert found[at + 1 : at + 3] == ["serve", "/model"] and found[-2:] == ["--seed", "1"]


def test_api_is_on_loopback_unless_said_otherwise() -> None:
    assert "--publish=127.0.0.1:8001:8000" in words()
    assert "--publish=[::1]:8001:8000" in words("BIND=::1")
    assert "--publish=0.0.0.0:8001:8000" in words("BIND=0.0.0.0", key=Key(None))


def test_key_is_named_and_never_written() -> None:
    assert "--env=VLLM_API_KEY" in words(key=Key(None))
    assert "--env-file=/k" in words(key=Key("/k"))
    assert not [word for word in words() if "API_KEY" in word]


def test_folder_with_commas_and_quotes_is_one_field_of_the_mount() -> None:
    folder = '/a,b "c"\nd'
    (mount,) = [word for word in words(f"MODEL_DIR={folder}") if word.endswith("readonly")]
    (fields,) = csv.reader([mount.removeprefix("--mount=")], strict=True)
    assert fields == ["type=bind", f"source={folder}", "target=/model", "readonly"]


def test_gpus_are_one_field_of_the_option() -> None:
    assert '--gpus="device=0,2"' in words("TP=2", "GPUS=0,2")

"""Launches for the tests of all forms: plain ones, and ones whose every free value is hostile."""

from collections.abc import Mapping

from serving.launch import settings
from serving.launch.launch import Launch
from serving.launch.plan import plan
from serving.launch.request import Request
from serving.profiles import load
from serving.render import form

IMAGE = "dsv41:vllm0.33.0-r2-dev"
_MARKS = "a b'c\"d$HOME ${PATH} $(id) $$ `id` %h %% \\n \\ ;#&|<>*?[]{}~! é\ttab\nline,=x:y"
FOLDER = f"/models/-{_MARKS}/z"
TEXT = f"--{_MARKS}"
HOSTILE = (
    f"MODEL_DIR={FOLDER}",
    f"CACHE_DIR=/cache{FOLDER}",
    f"SERVED_MODEL_NAME={TEXT}",
    "KV_OFFLOAD_GIB=1.5",
    "KV_OFFLOAD_FS_DIR=/kv/0o17 'yes'",
    "EXTRA_ARGS=--seed=-1 '' ';' \\$A '$(B)' \"x'y\" '\n' null 1e3 --x='${C:?}'",
)
PLAIN = ("MODEL_DIR=/models/dsv41",)


def request(*given: str, environment: Mapping[str, str] | None = None) -> Request:
    """What `moet serve render dsv41 --set ...` asks for."""
    return Request(settings.resolve(load.load("dsv41"), given, environment or {}), IMAGE, "a test", ())


def render(
    name: str, *given: str, hosts: form.Hosts = form.ONE, environment: Mapping[str, str] | None = None
) -> list[str]:
    """The texts of a form's files."""
    asked = request(*given, environment=environment)
    return [file.text for file in form.render(asked, name, hosts, environment or {})]


def launch(*given: str) -> Launch:
    """The launch that a form on one host says."""
    return plan(request(*given).settings, IMAGE, None, "published").launch

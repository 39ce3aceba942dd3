"""All checks of one server, one after another."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from images.inspect.text import one_line
from serving.check import answers, effort, needle, published, speed, vision
from serving.check.client import Client, ClientError, GarbledError, LostError
from serving.check.published import Line
from serving.check.result import Check, Result
from serving.check.subject import Sizes, Subject
from serving.check.talk import Model
from serving.check.target import Target
from serving.check.texts import Texts
from serving.preflight.host import Host
from serving.probe.asking import ProbeError
from serving.probe.questions import canary
from tools.cli.output import Output

GROUPS = ("decode", "prompt", "needle", "tools", "json", "vision", "effort")
_SERVER = "server"
_MEET_SECONDS = _CANARY_SECONDS = 30


@dataclass
class Run:
    """What was found so far.

    Attributes:
        results: in order.
        total: how many checks there are; 0 before that is known.
        model: the model's name.
        line: the line that it is of; None where that is not known.
        published: what others published of the line; None where nothing is known.
    """

    results: list[Result]
    total: int = 0
    model: str = ""
    line: str | None = None
    published: Line | None = None

    def add(self, result: Result) -> Result:
        """Takes in one more result, and returns it."""
        self.results.append(result)
        return result

    @property
    def partial(self) -> bool:
        """Whether checks were not come to."""
        return not self.total or len(self.results) < self.total

    @property
    def failed(self) -> bool:
        """Whether a check failed."""
        return any(one.state == "fail" for one in self.results)


@dataclass(frozen=True)
class Wanted:
    """What is to be checked.

    Attributes:
        line: whose figures to compare with; None is found by the server's profile, or the model's name.
        sizes: how much is measured.
        groups: of GROUPS.
        patience: seconds that one answer may take, or the wait for its next part.
    """

    line: str | None
    sizes: Sizes
    groups: Sequence[str]
    patience: float


def run(target: Target, wanted: Wanted, out: Output, state: Run) -> Iterator[Result]:
    """Runs the checks of a server and yields each result, which `state` then has; `out` is told what goes on."""
    client = Client(target.api, wanted.patience)
    try:
        with out.doing(f"asking {target.api.base_url}"):
            model, version = _meet(target, min(_MEET_SECONDS, wanted.patience))
    except ClientError as error:
        state.total = 1
        yield state.add(Result(_SERVER, "fail", client.clean(str(error)), _hints(error)))
        return
    lines = published.load()
    named = next((name for name, one in lines.items() if one.model == model.name), None)
    state.model, state.line = model.name, wanted.line or target.line or named
    state.published = line = lines.get(state.line) if state.line else None
    host = Host() if target.local else None
    every = list(checks(Subject(target, client, _plain(model, line), line, host, wanted.sizes), wanted.groups))
    state.total = 1 + len(every)
    yield state.add(_server(target, model, version))
    lost = ""
    for number, check in enumerate(every, 1):
        if lost:
            result = Result(check.name, "skipped", lost)
        else:
            with out.doing(f"{number} of {len(every)}: {check.name}"):
                result, lost = _result(check, client)
        yield state.add(result)


def checks(subject: Subject, groups: Sequence[str]) -> Iterator[Check]:
    """The checks of `groups`, in order."""
    texts = Texts(subject.client, subject.model)
    yield from speed.checks(subject, texts, groups)
    if "needle" in groups:
        yield from needle.checks(subject, texts)
    yield from answers.checks(subject, groups)
    if "vision" in groups:
        yield Check(vision.NAME, partial(vision.vision, subject))
    if "effort" in groups:
        yield Check(effort.NAME, partial(effort.effort, subject))


def _result(check: Check, client: Client) -> tuple[Result, str]:
    """A check's result, and why no other need be tried: "" where they can be."""
    try:
        return check.run(), ""
    except LostError as error:
        failed = Result(check.name, "fail", str(error))
        try:
            canary(client.api, min(_CANARY_SECONDS, client.patience))
        except ProbeError as gone:
            return failed, f"the server gives no token any more: {client.clean(str(gone))}"
        return failed, ""
    except ClientError as error:
        return Result(check.name, "fail", str(error)), ""


def _meet(target: Target, seconds: float) -> tuple[Model, str]:
    """The model that is asked, and the server's version in words; each within `seconds`. Raises ClientError."""
    client = Client(target.api, seconds)
    data = client.get("/v1/models").get("data")
    cards: list[Mapping[str, Any]] = [one for one in data if isinstance(one, dict)] if isinstance(data, list) else []
    by_name = {str(card.get("id")): card for card in cards if card.get("id")}
    if not by_name:
        raise GarbledError("/v1/models names no model")
    name = target.api.model or next(iter(by_name))
    if name not in by_name:
        raise GarbledError(f"it serves {', '.join(by_name)}, not {name}: --model says which")
    longest = by_name[name].get("max_model_len")
    try:
        version = f", vLLM {client.clean(str(client.get('/version').get('version')), 40)}"
    except ClientError:
        version = ""
    return Model(name, longest if isinstance(longest, int) and longest > 0 else None, {}), version


def _server(target: Target, model: Model, version: str) -> Result:
    length = f"at most {model.longest:,} tokens" if model.longest else "a length that it does not say"
    image = f"image {target.tag or target.digest}" if target.digest else f"image not known: {target.doubt}"
    what = f"{target.words}: serves {one_line(model.name, 80)} with {length}{version}; {image}"
    if target.knobs is not None:
        what += f"; {one_line(', '.join(target.knobs), 500) or 'every knob at its default'}"
    return Result(_SERVER, "pass", what)


def _plain(model: Model, line: Line | None) -> Model:
    """The model with what switches its reasoning off, where that is known."""
    if line is None or "none" not in line.efforts:
        return model
    return Model(model.name, model.longest, {"reasoning_effort": "none"})


def _hints(error: ClientError) -> tuple[str, ...]:
    if getattr(error, "status", None) in (401, 403):
        return ("the API key: --key-file FILE with the line VLLM_API_KEY=KEY; for a server of this host, VLLM_API_KEY",)
    if isinstance(error, LostError):
        return ("docker ps shows whether it runs and at which port; its log says how far it is",)
    return ()

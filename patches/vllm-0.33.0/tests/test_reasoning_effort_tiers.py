"""Step reasoning-effort-tiers: from the request of an API to the number in the prompt."""

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.renderers.params import ChatParams
from vllm.renderers.registry import RENDERER_REGISTRY

MESSAGES = [{"role": "user", "content": "question"}]
TIERS = {"minimal": 25, "low": 50, "medium": 62, "high": 75, "xhigh": 87, "max": 100}
UPSTREAM_TIERS = {"low": 50, "high": 75, "xhigh": 75, "max": 100}

Render = Callable[[ChatParams], str]
Fresh = Callable[..., ModuleType]


class Tokenizer:
    """What the V4.1 wrapper needs of a Hugging Face tokenizer: prompts stay text here."""

    def get_added_vocab(self) -> dict[str, int]:
        return {}


def _renderer(fresh: Fresh, switch: str | None) -> Render:
    """The model's own renderer over its tokenizer, both imported under the switch."""
    encoding = "vllm.tokenizers.deepseek_v41_encoding"
    module = fresh(encoding, "vllm.tokenizers.deepseek_v41", VLLM_MOET_REASONING_TIERS=switch)
    cls = RENDERER_REGISTRY.load_renderer_cls("deepseek_v41")
    renderer: Any = cls.__new__(cls)
    renderer.model_config = SimpleNamespace(
        multimodal_config=None,
        allowed_local_media_path="",
        allowed_media_domains=None,
        enable_prompt_embeds=False,
        is_multimodal_model=False,
        hf_config=SimpleNamespace(),
    )
    renderer.tokenizer = module.get_deepseek_v41_tokenizer(Tokenizer())

    def render(params: ChatParams) -> str:
        params.chat_template_kwargs["tokenize"] = False
        _, prompt = renderer.render_messages(MESSAGES, params)
        return prompt["prompt"]

    return render


@pytest.fixture(params=[None, "1"], ids=["default", "on"])
def render(fresh: Fresh, request: pytest.FixtureRequest) -> Render:
    return _renderer(fresh, request.param)


@pytest.fixture
def render_off(fresh: Fresh) -> Render:
    return _renderer(fresh, "0")


def chat(**fields: Any) -> ChatParams:
    return ChatCompletionRequest(model="m", messages=MESSAGES, **fields).build_chat_params(None, "auto")


def responses(effort: str) -> ChatParams:
    return ResponsesRequest(model="m", input="question", reasoning={"effort": effort}).build_chat_params(None, "auto")


def anthropic(effort: str) -> ChatParams:
    request = AnthropicMessagesRequest(model="m", messages=MESSAGES, max_tokens=8, output_config={"effort": effort})
    return AnthropicServingMessages.to_chat_completion_request(request).build_chat_params(None, "auto")


def token(name: str) -> str:
    return f"<\uff5c{name}\uff5c>"


BEGIN = token("begin\u2581of\u2581sentence")
TURN = token("User") + "question" + token("Assistant")


def thinking(budget: int) -> str:
    return (
        f"{BEGIN}{token('System')}Reasoning Effort: {budget} "
        "(range 1-100, the higher the value, the more thorough the reasoning)\n\n"
        f"{TURN}<think>"
    )


@pytest.mark.parametrize(("effort", "budget"), TIERS.items())
def test_chat_request_reaches_the_prompt(render: Render, effort: str, budget: int) -> None:
    assert render(chat(reasoning_effort=effort)) == thinking(budget)


@pytest.mark.parametrize(("effort", "budget"), [(name, TIERS[name]) for name in ("minimal", "medium", "xhigh")])
def test_responses_request_reaches_the_prompt(render: Render, effort: str, budget: int) -> None:
    assert render(responses(effort)) == thinking(budget)


@pytest.mark.parametrize(("effort", "budget"), [(name, TIERS[name]) for name in ("low", "medium", "xhigh", "max")])
def test_anthropic_request_reaches_the_prompt(render: Render, effort: str, budget: int) -> None:
    assert render(anthropic(effort)) == thinking(budget)


@pytest.mark.parametrize("budget", [1, 42, 100])
def test_integers_still_pass(render: Render, budget: int) -> None:
    assert render(chat(chat_template_kwargs={"reasoning_effort": budget})) == thinking(budget)


def test_without_effort_it_is_high(render: Render) -> None:
    assert render(chat()) == thinking(75)


def test_none_turns_thinking_off(render: Render) -> None:
    assert render(chat(reasoning_effort="none")) == f"{BEGIN}{TURN}</think>"


@pytest.mark.parametrize("effort", [0, 101, -1, True, 1.5, "huge"])
def test_nonsense_is_refused_and_the_tiers_are_named(render: Render, effort: object) -> None:
    with pytest.raises(ValueError, match="minimal, low, medium, high, xhigh, max, or an integer"):
        render(chat(chat_template_kwargs={"reasoning_effort": effort}))


@pytest.mark.parametrize(("effort", "budget"), UPSTREAM_TIERS.items())
def test_switched_off_the_tiers_are_upstreams(render_off: Render, effort: str, budget: int) -> None:
    assert render_off(chat(reasoning_effort=effort)) == thinking(budget)


@pytest.mark.parametrize("effort", ["minimal", "medium"])
def test_switched_off_the_others_are_a_request_error(render_off: Render, effort: str) -> None:
    with pytest.raises(ValueError, match="reasoning_effort must be low, high, xhigh, max, or an integer"):
        render_off(chat(reasoning_effort=effort))

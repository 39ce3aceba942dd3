"""Whether the server sees: it reads a number off a picture that was made for it."""

import base64
import random
import re
from typing import Any

from serving.check import png, talk
from serving.check.client import RefusedError
from serving.check.result import Result
from serving.check.subject import Subject

NAME = "vision"
_COLOURS = {"red": (200, 16, 16), "blue": (16, 16, 200), "green": (0, 128, 0)}
# vLLM 0.33.0's words, of a model without vision and of --language-model-only (multimodal/registry.py:159,
# multimodal/processing/context.py:621).
BLIND = re.compile(r"not a multimodal model|At most 0 image", re.IGNORECASE)


def vision(subject: Subject) -> Result:
    """Asks for the number on a picture, and its colour. Raises ClientError."""
    launch = subject.target.launch
    if launch and "--language-model-only" in launch.arguments:
        return Result(NAME, "skipped", "images are switched off (LANGUAGE_ONLY)")
    chance = random.Random(NAME)
    number = "".join(chance.choice("0123456789") for _ in range(5))
    colour = chance.choice(sorted(_COLOURS))
    picture = base64.b64encode(png.digits(number, _COLOURS[colour])).decode()
    content: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}},
        {"type": "text", "text": "Which number is on the picture, and in which colour? Answer: number, colour."},
    ]
    try:
        answer = talk.text(subject.client.ask(talk.CHAT, talk.request(subject.model, content, 64)))
    except RefusedError as error:
        if error.status != 400 or not BLIND.search(str(error)):
            raise
        return Result(NAME, "skipped", f"the server takes no images: {error}")
    said = subject.client.clean(answer, 80) or "nothing"
    if number in re.findall(r"\d+", answer.replace(" ", "")) and colour in answer.lower():
        return Result(NAME, "pass", f"read {number}, {colour}, off a picture")
    return Result(NAME, "fail", f"expected {number}, {colour}, answered {said}")

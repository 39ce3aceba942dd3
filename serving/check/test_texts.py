import hashlib
import struct
import zlib
from base64 import b64encode

import jsonschema
import pytest

from serving.check import answers, png, prompts
from serving.check.client import Client, RefusedError
from serving.check.talk import CHAT, Model
from serving.check.texts import Texts
from serving.probe.fake_server import FakeServer, serving
from tests.standin.server import picture, tokens


def counting(server: FakeServer, longest: int | None = 8192) -> Texts:
    return Texts(Client(server.api, 5), Model("m", longest, {}))


def test_texts_are_the_same_everywhere() -> None:
    text = " ".join(prompts.passage("haystack", 100_000))
    assert hashlib.sha256(text.encode()).hexdigest().startswith("8ffeb2b34f4efb2d")
    assert 100_000 <= len(text) < 100_300


def test_texts_do_not_repeat_themselves() -> None:
    sentences = prompts.passage("haystack", 1_000_000)
    assert len(set(sentences)) > 0.99 * len(sentences)
    assert prompts.passage("other", 1000) != prompts.passage("haystack", 1000)


def test_a_text_has_about_the_tokens_asked_for() -> None:
    sample = " ".join(prompts.passage("sample", 8000))
    with serving() as server:
        server.answers["/tokenize"] = (200, b'{"count": %d}' % tokens.count(sample))
        text = counting(server).of("x", 20_000)
    assert tokens.count(text) == pytest.approx(20_000, rel=0.02)


def test_without_tokenize_a_request_counts() -> None:
    with serving() as server:
        server.answers[CHAT] = (200, b'{"usage": {"prompt_tokens": 4000}}')
        assert len(counting(server).of("x", 1000)) == pytest.approx(2000, abs=150)
        server.answers[CHAT] = (200, b'{"usage": {}}')
        with pytest.raises(RefusedError, match="counts tokens"):
            counting(server).of("x", 1000)


def test_room_leaves_place_for_the_answer_and_for_a_guess_that_is_off() -> None:
    with serving() as server:
        assert counting(server, 8192).room(64) == int((8192 - 64 - 256) * 0.95)
        assert counting(server, 200).room(1) == 0
        assert 20_000 < counting(server, None).room(1) < 32_768


def test_a_picture_shows_its_number_and_colour() -> None:
    data = png.digits("1234567890", (200, 16, 16), 4)
    told = picture.told("data:image/png;base64," + b64encode(data).decode())
    assert told == "The picture shows the number 1234567890 in red."


def test_a_picture_is_a_png_by_the_letter() -> None:
    data = png.digits("07", (0, 0, 200), 3)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + body)
        chunks[kind] = body
        at += 12 + size
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    assert (width, height) == (3 * 15, 3 * 11)
    assert len(zlib.decompress(chunks[b"IDAT"])) == height * (1 + 3 * width)


def test_what_is_expected_is_what_the_schemas_allow() -> None:
    for schema, value in ((answers.PARAMETERS, answers.ARGUMENTS), (answers.SCHEMA, answers.VALUE)):
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(value, schema)

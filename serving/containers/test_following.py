"""Chunks of a log as lines."""

import threading
from collections.abc import Iterator

from serving.containers.following import Following


class Chunks:
    """A stream of these chunks, which may end early."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = list(chunks)
        self.closed = False

    def __next__(self) -> bytes:
        if self.closed or not self._chunks:
            raise StopIteration
        return self._chunks.pop(0)

    def close(self) -> None:
        self.closed = True


class Waiting:
    """A stream that has nothing until it is closed."""

    def __init__(self) -> None:
        self._closed = threading.Event()

    def __next__(self) -> bytes:
        self._closed.wait(30)
        raise StopIteration

    def close(self) -> None:
        self._closed.set()


def test_lines_are_put_together() -> None:
    assert list(Following(Chunks(b"one\ntw", b"o\n", b"\n  \nthree"))) == ["one", "two", "three"]


def test_a_progress_bar_is_a_line_each_time() -> None:
    assert list(Following(Chunks(b"\r 10%", b"\r 20%\r\n"))) == [" 10%", " 20%"]


def test_letters_may_be_cut_and_broken() -> None:
    text = "é".encode()
    assert list(Following(Chunks(text[:1], text[1:] + b"\n\xff\n"))) == ["é", "\ufffd"]


def test_closed_by_another_thread() -> None:
    lines: Iterator[str] = Following(waiting := Waiting())
    threading.Timer(0.05, waiting.close).start()
    assert list(lines) == []


def test_closed_between_lines() -> None:
    lines = Following(Chunks(b"one\n", b"two\n"))
    assert next(lines) == "one"
    lines.close()
    assert list(lines) == []

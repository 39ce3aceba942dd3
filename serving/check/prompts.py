"""Prompts: tasks for decoding, and long made-up texts. The same seed gives the same text everywhere."""

import random
from collections.abc import Iterator

# As many as there are streams: two streams with the same prompt could share work.
_PROSE = (
    "a lighthouse keeper who repairs an old clock",
    "a market town in the week before the flood",
    "two sisters who inherit a printing shop",
    "a cook on a ship that crosses the ice",
    "a teacher who maps the wells of a valley",
    "a train that stops in the wrong country",
    "an orchard and the people who leave it",
    "a bell founder who loses his hearing",
)
_CODE = (
    "a red-black tree with insert, delete and range queries",
    "a tokenizer and recursive-descent parser for arithmetic expressions",
    "an LRU cache with time to live and statistics",
    "a priority queue and Dijkstra's shortest paths over it",
    "a reader and writer of tar archives",
    "a B-tree index kept in a file of pages",
    "an event loop with timers and cancellation",
    "a matrix class with LU decomposition and inversion",
)

_WHO = ("keeper", "miller", "captain", "weaver", "doctor", "gardener", "clerk", "mason", "pilot", "baker", "smith")
_HOW = ("quiet", "tall", "careful", "young", "tired", "cheerful", "stubborn", "patient", "absent-minded", "proud")
_DID = ("counted", "painted", "carried", "sold", "mended", "borrowed", "measured", "weighed", "hid", "returned")
_MANY = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "twenty")
_WHAT = ("lanterns", "barrels", "ropes", "letters", "chairs", "maps", "kettles", "windows", "boots", "nets", "coins")
_WHERE = ("harbour", "mill", "orchard", "station", "bridge", "school", "tower", "market", "quarry", "ferry", "inn")
_WHEN = ("morning", "evening", "Sunday", "winter", "harvest", "afternoon", "market day", "spring", "night")
_THEN = (
    "wrote the number in a green book",
    "said nothing about it for a year",
    "sent a boy to ask what it had cost",
    "walked home along the river before the rain",
    "forgot the matter until the letter came",
    "asked the neighbours to look at the roof",
)


def prose(number: int) -> str:
    """Task `number` for prose."""
    return (
        f"Write the first chapter of a novel about {_PROSE[number % len(_PROSE)]}. "
        "Write at least two thousand words of plain narrative, without headings, lists or comments."
    )


def code(number: int) -> str:
    """Task `number` for code."""
    return (
        f"Write a complete Python module: {_CODE[number % len(_CODE)]}. With type annotations, a docstring on every "
        "function and thorough unit tests. Answer with the code alone, at least four hundred lines."
    )


def sentences(seed: str) -> Iterator[str]:
    """Made-up sentences without end; about 25 tokens each."""
    # A string seeds by its hash, of the text alone.
    chance = random.Random(seed)
    pick = chance.choice
    while True:
        yield (
            f"On the {pick(_HOW)} {pick(_WHEN)} of year {chance.randrange(100, 1000)} the {pick(_HOW)} {pick(_WHO)} "
            f"{pick(_DID)} {pick(_MANY)} {pick(_WHAT)} near the {pick(_WHERE)} and {pick(_THEN)}."
        )


def passage(seed: str, characters: int) -> list[str]:
    """Whole sentences of at least that many characters together."""
    found, size = list[str](), 0
    for sentence in sentences(seed):
        if size >= characters:
            break
        found.append(sentence)
        size += len(sentence) + 1
    return found

import datetime
import random

import pytest

from releases.changelog import grammar
from releases.changelog.entry import SECTIONS, Bullet, Changelog, Entry
from releases.changelog.problem import ProblemsError
from releases.tag import Tag

DIGEST = "sha256:" + "1" * 64
IMAGE = "sha256:" + "2" * 64
COMMIT = "3" * 40

SMALL = f"""# Changelog

What it is.

## [Unreleased]

### dsv41

#### Added

- Step 2, next: goes
  faster.

## [dsv41:vllm0.33.0-r1] - 2026-11-29

One step.

- Digest: `{DIGEST}`
- Image ID: `{IMAGE}`
- Commit: `{COMMIT}`
- Base: vllm 0.33.0 (4ba787ec9)
- Steps: 1 tiers
- Follows: none
- Rollback: none, or without another image `VLLM_MOET_TIERS=0`

### Added

- Step 1, tiers: more of them.

### Evidence

- 94 tests pass ([receipt](docs/evidence/a.json))
"""


def problems(text: str) -> list[str]:
    with pytest.raises(ProblemsError) as caught:
        grammar.parse(text)
    return str(caught.value).split("\n")


def test_reads() -> None:
    found = grammar.parse(SMALL)
    entry = Entry(
        tag=Tag("dsv41", "vllm0.33.0", 1),
        date=datetime.date(2026, 11, 29),
        summary="One step.",
        digest=DIGEST,
        image_id=IMAGE,
        commit=COMMIT,
        base="vllm 0.33.0 4ba787ec9",
        steps=((1, "tiers"),),
        follows=None,
        rollback=None,
        rollback_switches=(("VLLM_MOET_TIERS", "0"),),
        sections={"Added": (Bullet("Step 1, tiers: more of them."),)},
        evidence=(Bullet("94 tests pass ([receipt](docs/evidence/a.json))"),),
    )
    assert found == Changelog("What it is.", {"dsv41": {"Added": (Bullet("Step 2, next: goes faster."),)}}, (entry,))
    assert (found.entries[0].line, found.entries[0].evidence[0].line) == (14, 32)


FAULTS = [
    ("# Changelog", "# Changes", 1, "expected '# Changelog' first"),
    ("What it is.", "- a list", 3, "only paragraphs stand before"),
    ("## [Unreleased]", "## Unreleased", 5, "'Unreleased': expected '## [Unreleased]' or '## [LINE:BASE-rN]"),
    ("### dsv41", "### DSV 41", 7, "expected the name of a line"),
    ("### dsv41\n\n", "", 7, "'Added': expected '### LINE' first"),
    ("#### Added", "#### Addedd", 9, "'Addedd': expected one of Added, Changed"),
    ("  faster.", "faster.", 12, "'- ' item (further lines indented by two spaces)"),
    ("  faster.", "\tfaster.", 12, "was expected"),
    ("] - 2026-11-29", "] 2026-11-29", 14, "YYYY-MM-DD"),
    ("] - 2026-11-29", "] - 2026-11-31", 14, "day"),
    ("dsv41:vllm0.33.0-r1] ", "dsv41:vllm0.33.0-r01] ", 14, "is no release's tag"),
    ("One step.\n\n", "", 14, "expected one paragraph below the heading"),
    ("One step.\n", "One step.\n\nAnd more.\n", 14, "expected one paragraph below the heading"),
    (f"- Digest: `{DIGEST}`\n", "", 14, "lacks Digest"),
    (f"`{DIGEST}`", "`sha256:12`", 18, "Digest: '`sha256:12`': expected `sha256:<64 hex digits>`"),
    (f"`{IMAGE}`", IMAGE, 19, "Image ID"),
    (f"`{COMMIT}`", "`3333333`", 20, "Commit: '`3333333`': expected `<40 hex digits>`"),
    ("- Commit: ", "- Commit: x\n- Commit: ", 21, "Commit: Commit stands twice"),
    ("vllm 0.33.0 (4ba787ec9)", "vllm 0.33.0", 21, "Base: 'vllm 0.33.0': expected NAME VERSION (COMMIT)"),
    ("Steps: 1 tiers", "Steps: tiers", 22, "Steps: 'tiers': expected none, or NUMBER NAME"),
    ("Steps: 1 tiers", "Steps: 2 next, 1 tiers", 22, "expected each number once, in rising order"),
    ("Steps: 1 tiers", "Steps: 1 tiers, 1 next", 22, "expected each number once"),
    ("Follows: none", "Follows: r0", 23, "Follows: 'r0' is no release's tag"),
    ("`VLLM_MOET_TIERS=0`", "VLLM_MOET_TIERS=0", 24, "Rollback: "),
    ("- Steps:", "- Setps:", 22, "expected '- FIELD: value' of Digest"),
    ("### Added\n\n- Step 1, tiers: more of them.", "- Step 1", 26, "expected '- FIELD: value'"),
    ("- Step 1, tiers: more of them.\n", "", 26, "Added: is empty"),
    ("- Step 1, tiers: more of them.", "It has more.", 28, "expected a bullet"),
    ("### Evidence", "### Added", 30, "Added stands twice"),
    ("### Evidence", "#### Evidence", 30, "expected a heading of level 3"),
    ("### Evidence", "## [Unreleased]", 30, "stands once, before all releases"),
]


@pytest.mark.parametrize(("old", "new", "line", "says"), FAULTS, ids=[f"{fault[1][:20]!r}" for fault in FAULTS])
def test_every_fault_has_its_line(old: str, new: str, line: int, says: str) -> None:
    assert old in SMALL
    found = problems(SMALL.replace(old, new, 1))
    assert any(one.startswith(f"CHANGELOG.md:{line}: ") and says in one for one in found), found


def test_all_faults_are_listed() -> None:
    found = problems(SMALL.replace("One step.\n\n", "").replace(DIGEST, "1").replace("### Evidence", "### Proof"))
    assert [one.split(": ")[0] for one in found] == ["CHANGELOG.md:14", "CHANGELOG.md:16", "CHANGELOG.md:28"]


def test_a_tag_is_used_once() -> None:
    entry = SMALL[SMALL.index("## [dsv41") :]
    assert problems(SMALL + "\n" + entry) == [
        "CHANGELOG.md:34: dsv41:vllm0.33.0-r1: is released already, in line 14"
    ]


def words(source: random.Random) -> str:
    some = ["a", "1.6 s", "`x - y`", "[t](docs/evidence/a.json)", "(b)", "Step 1, x:", "é", "#1", "*", "- d", "TODO: e"]
    return "w " + " ".join(source.choice(some) for _ in range(source.randint(1, 9)))


def sections(source: random.Random) -> dict[str, tuple[Bullet, ...]]:
    chosen = source.sample(SECTIONS, source.randint(0, 3))
    return {name: tuple(Bullet(words(source)) for _ in range(source.randint(1, 3))) for name in chosen}


def changelog(source: random.Random) -> Changelog:
    def hexes(count: int) -> str:
        return f"{source.getrandbits(count * 4):0{count}x}"

    def entry(number: int) -> Entry:
        line = source.choice(["dsv41", "k31_b300"])
        older = Tag(line, "vllm0.32.0", number)
        return Entry(
            tag=Tag(line, f"vllm0.33.{number}", source.randint(0, 99)),
            date=datetime.date.fromordinal(source.randint(730_000, 740_000)),
            summary=words(source),
            digest=f"sha256:{hexes(64)}",
            image_id=f"sha256:{hexes(64)}",
            commit=hexes(40),
            base=f"vllm 0.33.{number} {hexes(source.choice([7, 9, 40]))}",
            steps=tuple((step, f"step-{step}") for step in sorted(source.sample(range(1, 99), source.randint(0, 4)))),
            follows=source.choice([None, older]),
            rollback=source.choice([None, older]),
            rollback_switches=tuple((f"VLLM_MOET_{one}", "0") for one in range(source.randint(0, 2))),
            sections=sections(source),
            evidence=tuple(Bullet(words(source)) for _ in range(source.randint(0, 2))),
        )

    return Changelog(
        "\n\n".join(words(source) for _ in range(source.randint(0, 2))),
        {line: sections(source) for line in source.sample(["dsv41", "ripple", "v024"], source.randint(0, 3))},
        tuple(entry(number) for number in range(source.randint(0, 4))),
    )


@pytest.mark.parametrize("seed", range(200))
def test_what_is_written_is_read_back(seed: int) -> None:
    made = changelog(random.Random(seed))
    text = grammar.render(made)
    assert grammar.parse(text) == made
    assert grammar.render(grammar.parse(text)) == text


@pytest.mark.parametrize("seed", range(100))
def test_a_new_release_is_put_first_and_takes_its_unreleased(seed: int) -> None:
    source = random.Random(seed)
    made = changelog(source)
    entry = next(one for one in changelog(random.Random(seed + 10_000 * 7)).entries or grammar.parse(SMALL).entries)
    entry = Entry(**{**vars(entry), "tag": Tag("dsv41", "vllm9.9.9", 7)})
    taken = grammar.parse(grammar.insert(grammar.render(made), entry, takes_unreleased=True))
    assert taken.entries == (entry, *made.entries)
    assert taken.unreleased == {line: value for line, value in made.unreleased.items() if line != "dsv41"}
    assert taken.preamble == made.preamble
    kept = grammar.parse(grammar.insert(grammar.render(made), entry, takes_unreleased=False))
    assert kept == Changelog(made.preamble, made.unreleased, taken.entries)


def test_other_lines_stay_as_they_are() -> None:
    entry = Entry(**{**vars(grammar.parse(SMALL).entries[0]), "tag": Tag("ripple", "vllm0.33.0", 3)})
    text = grammar.insert(SMALL, entry, takes_unreleased=True)
    before, after = SMALL.split("## [dsv41:")
    assert text == f"{before}{grammar.render_entry(entry)}\n## [dsv41:{after}"


@pytest.mark.parametrize("seed", range(300))
def test_no_text_breaks_the_reader(seed: int) -> None:
    source = random.Random(seed)
    lines = SMALL.split("\n")
    for _ in range(source.randint(1, 8)):
        index = source.randrange(len(lines))
        lines[index : index + source.randint(0, 2)] = source.choice(
            [[""], ["## [x"], ["### "], ["- "], ["  more"], [source.choice(lines)], ["\x00\ud7ff", "> q"], ["#" * 9]]
        )
    found, faults = grammar.scan("\n".join(lines))
    if not faults:
        assert grammar.parse(grammar.render(found)) == found

"""Pages of the working tree: every link and every page that is named is there, and README.md leads to each of docs/."""

from pathlib import Path

from tests.lint import pages
from tests.lint.working_tree import ROOT, tree


def test_links_lead_somewhere() -> None:
    found = {page: list(pages.dead(ROOT, pages.links(page, (ROOT / page).read_text()))) for page in tree("*.md")}
    assert len(found) > 30
    assert {page: targets for page, targets in found.items() if targets} == {}


def test_pages_that_pages_and_sources_name_are_there() -> None:
    files = [path for path in tree("*.md", "*.py", "*.bzl", "*.toml") if not Path(path).name.startswith("test_")]
    found = {path: list(pages.dead(ROOT, pages.names((ROOT / path).read_text()))) for path in files}
    assert {path: targets for path, targets in found.items() if targets} == {}


def test_every_page_of_docs_is_reached_from_the_first() -> None:
    reached: set[str] = set()
    ahead = {"README.md"}
    while ahead:
        page = ahead.pop()
        reached.add(page)
        text = (ROOT / page).read_text()
        named = {target.partition("#")[0] for target in pages.names(text) | pages.links(page, text)}
        ahead |= {target for target in named if target.endswith(".md") and (ROOT / target).is_file()} - reached
    assert {path for path in tree("docs/*.md") if path.count("/") == 1} - reached == set()


def test_what_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("# One `two`, three\n\n```\n# no heading\n```\n")
    text = "[x](docs/a.md#one-two-three) [x](docs/a.md#no-heading) [x](b.md) `[x](c.md)` [x](https://d.example/e.md)\n"
    found = pages.links("README.md", text + "```\n[x](f.md)\n```\n")
    assert list(pages.dead(tmp_path, found)) == ["b.md", "docs/a.md#no-heading"]
    assert pages.links("docs/a.md", "[x](../README.md) [x](#one) [x](b/c.md)") == {
        "README.md",
        "docs/a.md#one",
        "docs/b/c.md",
    }
    assert list(pages.dead(tmp_path, pages.names("see docs/a.md, docs/g.md and x/docs/h.md"))) == ["docs/g.md"]

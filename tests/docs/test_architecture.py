"""The architecture page is what the script draws from the code."""

from __future__ import annotations

import pytest

from docs import architecture

AGAIN = "run: make architecture"


def test_page_and_picture_are_up_to_date():
    page = architecture.PAGE.read_text(encoding="utf-8")
    assert architecture.fill(page) == page, AGAIN
    assert architecture.PICTURE.read_text(encoding="utf-8") == architecture.picture(), AGAIN
    with pytest.raises(SystemExit, match="markers"):
        architecture.fill(page.replace("<!-- end folders -->", ""))


def test_imports_of_a_small_package(tmp_path):
    files = {
        "__init__": "",
        "low": "import numpy",
        "high": "from mixtune.low import x\ndef f():\n    import mixtune.last",
        "last": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from mixtune import low",
    }
    package = tmp_path / "mixtune"
    package.mkdir()
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    found = [(one.importer[8:], one.imported[8:], one.lazy) for one in architecture.imports(package)]
    assert found == [("high", "last", True), ("high", "low", False), ("last", "low", True)]

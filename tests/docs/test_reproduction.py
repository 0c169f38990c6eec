"""The script that puts results on the reproduction page."""

import csv

import pytest

from docs import reproduction
from mixtune_paper import EXPERIMENTS, Outcome, ResultsStore
from mixtune_paper.statements import table_of


@pytest.fixture
def page(tmp_path, monkeypatch):
    path = tmp_path / "reproduction.md"
    path.write_text("a\n<!-- paper -->\nfrom before\n<!-- end paper -->\nb\n<!-- game -->\n\n<!-- end game -->\nc\n")
    monkeypatch.setattr(reproduction, "PAGE", path)
    return path


def test_tables_are_put_between_their_marks(page, tmp_path):
    results = tmp_path / "study"
    results.mkdir()
    rows = table_of({})
    with (results / "paper.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    (results / "game.csv").write_text("play,system_cost\nplanner,43.67315\n")
    (results / "game.png").write_bytes(b"picture")
    reproduction.main(results)
    text = page.read_text()
    assert "from before" not in text
    assert "| play | system cost |" in text
    assert "| planner | 43.67 |" in text
    assert text.count("`mixtune reproduce bound`") == 3
    assert "| Lemma 4 | cost of matrix operations |" in text
    assert text.startswith("a\n")
    assert text.endswith("c\n")
    assert (tmp_path / "results" / "game.png").read_bytes() == b"picture"


def test_agreement_of_several_seeds(page, tmp_path):
    page.write_text("a\n<!-- seeds -->\n<!-- end seeds -->\nb\n")
    line = "{},the paper's settings,{},,,{},,,{},{}\n"
    folders = [tmp_path / "one", tmp_path / "two"]
    for seed, folder in enumerate(folders):
        with ResultsStore(folder) as store:
            store.claim("table2", {"seed": seed})
            store.add("table2", 0, Outcome({"LO-1": {"price": 1.0}}), seed=0, seconds=0.1, made_with="")
        head = "method,block,rp,ci_low,ci_high,paper_rp,paper_ci_low,paper_ci_high,agrees,power\n"
        rows = [line.format("LO-2", 1, 1, True, 0.9), line.format("MLO", 0.9, 0.95 - seed, seed == 0, 0.9)]
        (folder / "table2.csv").write_text(head + "".join(rows) + line.format("own", 1, "", "", ""))
    reproduction.main(*folders)
    text = page.read_text()
    assert "| table2 | 0 | 1 | 2 of 2 |  |" in text
    assert "| table2 | 1 | 1 | 1 of 2 | NO: MLO (0.900, paper -0.050) |" in text


def test_the_page_has_a_place_for_every_table_and_figure():
    text = (reproduction.PAGE).read_text()
    for name in reproduction.TABLES:
        assert f"<!-- {name} -->" in text, name
    for name in reproduction.FIGURES:
        assert f"(results/{name}.png)" in text, name
        assert name in EXPERIMENTS


def test_nothing_to_show_is_told(page, tmp_path):
    with pytest.raises(SystemExit, match="holds no results"):
        reproduction.main(tmp_path)

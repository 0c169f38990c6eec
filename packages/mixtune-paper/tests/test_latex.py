"""Tables in the paper's layout, and the page of all verdicts."""

import re

import numpy as np
import pytest

from mixtune_paper import Results
from mixtune_paper.american import TABLE1, TABLE2, TABLE_1, TABLE_2
from mixtune_paper.latex import latex_tables
from mixtune_paper.page import verdicts_page
from mixtune_paper.statements import PAPER, table_of


def lines_of(study, published, runs=8):
    rng = np.random.default_rng(0)
    prices = {name: 4.0 * row.rp * (1 + 1e-3 * rng.standard_normal(runs)) for name, row in published.items()}
    rows = {name: [{"price": float(price)} for price in values] for name, values in prices.items()}
    return study.summarise(study.settings, Results(study.name, 0, runs, rows, lambda *_: [])).as_json()


def test_rows_are_those_of_the_paper():
    tables = latex_tables("table1", lines_of(TABLE1, TABLE_1))
    assert list(tables) == ["table1", "table1_compressed"]
    full = tables["table1"]
    assert full.count(r"\\") == len(TABLE_1) + 1
    assert re.search(r"LO-9 & 0\.7\d\d & \$\[0\.7\d\d; 0\.7\d\d\]\$", full)
    assert r"\textbf{RO ($\eta=100$)} & \textbf{1.0" in full
    assert r"JSO-$\{1,\dotsc,7\}$ & 1.06" in full
    assert full.index(r"\midrule", full.index("LO-13")) < full.index("LO-1 (700 tr. samp.)")
    assert "LO-1 (50K tr. samp.)" in full
    short = tables["table1_compressed"]
    assert short.count(r"\\") == 9 + 1
    assert re.search(r"LO-2, \$\\dotsc\$, LO-7 & \$\\geq 0\.96\d\$ & \$\[\\geq 0\.\d+; \\leq 0\.\d+\]\$", short)
    assert r"LO-8, $\dotsc$, LO-13 & $\leq 0.7" in short
    assert latex_tables("table2", lines_of(TABLE2, TABLE_2))["table2"].count(r"\\") == len(TABLE_2) + 1
    assert latex_tables("table2", lines_of(TABLE2, TABLE_2, runs=1)) == {}


@pytest.mark.parametrize("text", ["table1", "table1_compressed"])
def test_tables_are_balanced(text):
    table = latex_tables("table1", lines_of(TABLE1, TABLE_1))[text]
    assert table.count("{") - table.count(r"\{") == table.count("}") - table.count(r"\}")
    assert table.count("$") % 2 == 0
    for row in table.splitlines():
        if row.endswith(r"\\"):
            assert row.count("&") == 2


def test_the_page_has_every_statement():
    rows = table_of({})
    page = verdicts_page(rows, seed=7, runs={"table1": 3}, made_with="mixtune <1>")
    assert page.count("<tr><td>") == len(PAPER)
    assert "Base seed 7; runs: table1 3. mixtune &lt;1&gt;." in page

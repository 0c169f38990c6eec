"""Pictures of when to exercise, as ``mixtune price --plot`` draws them."""

import re
import sys

import pytest

from mixtune.cli import run

pytest.importorskip("matplotlib")


@pytest.mark.parametrize(
    ("assets", "payoff", "dates", "panels"), [(1, "put", 5, 1), (2, "max-call", 8, 6), (2, "max-call", 2, 1)]
)
def test_every_region_can_be_drawn(assets, payoff, dates, panels, tmp_path, monkeypatch):
    market = ["--spot", "38", "--strike", "40", "--volatility", "0.3", "--dividend", "0.05", "--rate", "0.05"]
    option = ["--assets", str(assets), "--payoff", payoff, "--maturity", "1", "--dates", str(dates)]
    how = ["--paths", "400", "--seed", "0", "--plot", str(tmp_path / "region.svg"), "--json"]
    monkeypatch.setattr(sys, "argv", ["mixtune", "price", *market, *option, *how])
    with pytest.raises(SystemExit) as left:
        run()
    assert not left.value.code
    drawn = (tmp_path / "region.svg").read_text(encoding="utf-8")
    assert len(re.findall(r'<g id="axes_\d+">', drawn)) == panels

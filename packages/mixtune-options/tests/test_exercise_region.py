import pytest

from mixtune_options import BlackScholes, MaxCall, Put, TimeGrid, price

pytest.importorskip("matplotlib")


@pytest.mark.parametrize(
    ("assets", "payoff", "dates", "panels"), [(1, Put(40.0), 5, 1), (2, MaxCall(40.0), 8, 6), (2, MaxCall(40.0), 2, 1)]
)
def test_every_region_can_be_drawn(assets, payoff, dates, panels, tmp_path):
    from mixtune_options._figures import draw_exercise_region

    market = BlackScholes(spot=38.0, volatility=0.3, dividend=0.05, n_assets=assets)
    result = price(market, payoff, TimeGrid(maturity=1, dates=dates, rate=0.05), paths=400, width=10, seed=0)
    figure = draw_exercise_region(result.region)
    assert sum(axes.get_visible() for axes in figure.axes) == panels
    figure.savefig(tmp_path / "region.png")
    assert (tmp_path / "region.png").stat().st_size > 1000

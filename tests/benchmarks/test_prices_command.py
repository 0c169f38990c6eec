"""The price benchmark at a tiny size: cases and references, verdicts, files that are continued."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial

import pytest
from benchmarks.prices import (
    Case,
    Comparison,
    Result,
    app,
    cases,
    dates,
    exact_greek,
    geometric_put,
    largest_call,
    line,
    quantlib_price,
    read_results,
    run_case,
    summary,
    verdict,
)
from typer.testing import CliRunner

from benchmarks import __main__ as runner
from mixtune_options import BlackScholes, Heston, Put, european

DELTA, VEGA = Comparison(-0.4, 0.01, -0.41, 0.001), Comparison(30.0, 0.1, 30.2, 0.01)
GREEKS = {"delta": DELTA, "vega": VEGA}
GOOD = Result("g", "n", "s", 10.0, 9.95, 0.02, 10.02, 0.01, 0.0002, 0.0, 1.0, GREEKS)


def test_there_are_enough_cases_of_every_kind():
    found = cases()
    assert len({(case.group, case.name) for case in found}) == len(found) >= 60
    steps = [case.grid.n_dates for case in found]
    assert {1, 50} <= set(steps)
    assert min(case.grid.maturity for case in found) <= 10 / 365
    assert max(case.grid.maturity for case in found) >= 10
    assert {getattr(case.process, "hurst", None) for case in found} >= {0.05, 0.1, 0.2, 0.4}
    assert any(case.grid.rates[0] < 0 for case in found)
    assert max(case.process.n_assets for case in found) == 50


def test_quantlib_prices_what_the_library_knows():
    pytest.importorskip("QuantLib")
    grid = dates(365, 1, 0.03)
    for market in (
        BlackScholes(spot=100, volatility=0.2, dividend=0.02),
        Heston(spot=100, v0=0.04, v_mean=0.05, v_speed=1.0, v_vol=0.4, rho=-0.5, dividend=0.02),
    ):
        assert quantlib_price(Put(95), grid, market) == pytest.approx(european(market, Put(95), grid), rel=2e-4)
    one = BlackScholes(spot=100, volatility=0.4)
    assert geometric_put(100.0, grid, one) == pytest.approx(european(one, Put(100), grid), rel=2e-4)


def test_quantlib_knows_parts_of_a_day():
    """Dates that move by a quarter of a day: without interest, theta is half of variance times gamma, negative."""
    pytest.importorskip("QuantLib")
    market, payoff = BlackScholes(spot=100, volatility=0.2), Put(100)
    case = Case("g", "n", market, payoff, dates(10, 10, 0.0), partial(quantlib_price, payoff), "QuantLib")
    theta, gamma = (exact_greek(case, name)[0] for name in ("theta", "gamma"))
    assert theta == pytest.approx(-0.5 * 0.2**2 * 100**2 * gamma, rel=1e-3)


def test_the_largest_of_several_assets():
    # At r = q = 0: sigma = 0.2, T = 1, S = K = 100, five assets.
    market = BlackScholes(spot=100, volatility=0.2, n_assets=5)
    assert largest_call(100.0, dates(365, 1, 0.0), market) == pytest.approx(25.0185, abs=1e-4)


def test_verdicts():
    assert GOOD.holds
    assert verdict(GOOD) == "holds"
    assert verdict(replace(GOOD, upper=9.9)) == "not bracketed"
    assert verdict(replace(GOOD, price=9.9)) == "off by 0.48%"
    assert verdict(replace(GOOD, price=10.2, upper=10.2)) == "not bracketed, off by 1.48%"
    assert verdict(replace(GOOD, greeks={**GREEKS, "delta": replace(DELTA, value=-0.5)})) == "delta"
    assert verdict(replace(GOOD, greeks={"gamma": DELTA, "rho": replace(VEGA, value=31.0)})) == "rho"
    assert replace(DELTA, value=-0.44099).right  # three standard errors, and the error of the reference
    assert not replace(DELTA, value=-0.44102).right
    assert replace(GOOD, price=9.9, reference_error=0.05).right
    # Bounds without error may be more exact than their reference.
    certain = replace(GOOD, price=10.0, standard_error=0.0, upper=10.0, upper_error=0.0)
    assert replace(certain, exact=10.0001).bracketed
    assert replace(certain, exact=9.9999).bracketed
    assert not replace(certain, exact=10.001).bracketed
    assert not replace(certain, exact=9.999).bracketed
    said = summary([GOOD, replace(GOOD, greeks={"vega": replace(VEGA, value=31.0)})])
    assert "1 of 1 deltas, 1 of 2 vegas within 3 standard errors" in said
    assert "no Greeks" in summary([replace(GOOD, greeks={})])
    assert line(GOOD).startswith(
        "holds           g: n: exact 10.0000, price 9.9500 ± 0.0515, upper 10.0200, bias +0.020%"
    )


def test_a_run_is_kept_and_continued(tmp_path, monkeypatch):
    out = tmp_path / "prices.csv"
    # One case that needs nothing besides the library.
    arguments = ["--only", "rough Heston, put, H 0.1, strike 100, 10 days", "--out", str(out), "--paths", "2000"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code in (0, 1), done.output
    assert "1 cases:" in done.output
    (result,) = read_results(out).values()
    assert set(result.greeks) == {"delta", "gamma", "vega", "theta", "rho"}
    assert result.price == pytest.approx(result.exact, rel=0.1)
    assert abs(result.bias) < 0.003
    monkeypatch.setattr("benchmarks.prices.run_case", lambda *_, **__: pytest.fail("priced again"))
    assert CliRunner().invoke(app, arguments).exit_code == done.exit_code


def test_a_case_is_priced_with_bounds_and_greeks():
    (case,) = [case for case in cases() if "volatility 0.4, 0.2, 0.3" in case.name]
    result = run_case(case, paths=1000, upper_paths=50, inner_paths=20)
    assert result.upper > result.price - 5 * result.standard_error
    greeks = result.greeks
    assert greeks["delta"].exact == pytest.approx(0.5889, abs=1e-4)  # of Black's formula with the integrated variance
    # The integrated variance moves with the square of the factor of the curve, whose mean is 0.275.
    assert greeks["vega"].value == pytest.approx(55.5, rel=0.05)
    for greek in greeks.values():  # never exercised early: all is exact, and theirs nearly
        assert greek.error < 1e-9
        assert greek.value == pytest.approx(greek.exact, rel=2e-5)
    assert set(greeks) == {"delta", "gamma", "vega", "theta", "rho"}
    assert result.bias is None


def test_mistakes_are_one_line(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "prices", "--only", "nothing like this"])
    with pytest.raises(SystemExit) as ended:
        runner.main()
    assert ended.value.code == 2
    assert "no case contains 'nothing like this'" in capsys.readouterr().err

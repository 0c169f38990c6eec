"""``mixtune price``: an American or Bermudan option from a model, a settings file, or observed paths."""

from __future__ import annotations

import io
import json
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from mixtune._device import torch_device
from mixtune._files import write_atomically
from mixtune.cli._engine import Device
from mixtune.errors import ParameterError
from mixtune.options import (
    BlackScholes,
    Heston,
    PriceResult,
    Process,
    RoughHeston,
    TimeGrid,
    observed_folder,
    payoff_from_name,
    price,
    price_observed,
)
from mixtune.report.exercise import draw_exercise_region
from mixtune.report.figures import require_matplotlib

__all__ = ["price_command"]

MODELS = ("black-scholes", "heston", "rough-heston")
#: What may be said about observed paths.
OBSERVED = {"data", "focal", "payoff", "strike", "rate", "maturity", "dates", "seed"}
#: Kinds of the settings whose default is None.
OPTIONAL_KINDS: dict[str, type] = {
    **dict.fromkeys(("v0", "v_mean", "v_speed", "v_vol", "rho", "hurst"), float),
    **dict.fromkeys(("preset", "scheme", "focal", "data"), str),
    "substeps": int,
}
#: Settings that only a stochastic-volatility model has, and their values where the user gives none.
VARIANCE = {"v0": 0.01, "v_mean": 0.01, "v_speed": 2.0, "v_vol": 0.2, "rho": -0.3}


def price_command(
    model: Annotated[str, typer.Option(help="black-scholes, heston or rough-heston.")] = "black-scholes",
    payoff: Annotated[
        str, typer.Option(help="put, call, max-call, min-put, basket-call, basket-put or geometric-basket-put.")
    ] = "put",
    assets: Annotated[int, typer.Option(help="Number of assets.")] = 1,
    spot: Annotated[float, typer.Option(help="Price of every asset today.")] = 100.0,
    strike: Annotated[float, typer.Option(help="Strike of the option.")] = 100.0,
    rate: Annotated[float, typer.Option(help="Interest rate per year, 0.05 for 5%.")] = 0.05,
    dividend: Annotated[float, typer.Option(help="Dividend yield per year.")] = 0.0,
    volatility: Annotated[float, typer.Option(help="Volatility per year (Black-Scholes).")] = 0.2,
    correlation: Annotated[float, typer.Option(help="Correlation between assets (Black-Scholes).")] = 0.0,
    maturity: Annotated[float, typer.Option(help="Years to maturity.")] = 1.0,
    dates: Annotated[int, typer.Option(help="Number of exercise dates.")] = 10,
    v0: Annotated[float | None, typer.Option("--v0", help="Variance today (Heston).")] = None,
    v_mean: Annotated[float | None, typer.Option(help="Long-run variance (Heston).")] = None,
    v_speed: Annotated[float | None, typer.Option(help="Mean-reversion speed (Heston).")] = None,
    v_vol: Annotated[float | None, typer.Option(help="Volatility of variance (Heston).")] = None,
    rho: Annotated[float | None, typer.Option(help="Correlation of price and variance (Heston).")] = None,
    hurst: Annotated[float | None, typer.Option(help="Hurst parameter in (0, 1/2] (rough Heston).")] = None,
    paths: Annotated[int, typer.Option(help="Evaluation paths, and as many to learn from.")] = 50_000,
    method: Annotated[str, typer.Option(help="rlsm, lsm or recurrent.")] = "rlsm",
    preset: Annotated[str | None, typer.Option(help="'paper' for the paper's settings.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    scheme: Annotated[
        str | None, typer.Option(help="Simulation scheme: paper, log-euler, qe (Heston); volterra, markovian (rough).")
    ] = None,
    substeps: Annotated[int | None, typer.Option(help="Simulation steps per exercise date (Heston models).")] = None,
    antithetic: Annotated[bool, typer.Option("--antithetic", help="Evaluate on antithetic pairs of paths.")] = False,
    sobol: Annotated[bool, typer.Option("--sobol", help="Evaluate on Sobol points.")] = False,
    all_paths: Annotated[
        bool, typer.Option("--all-paths", help="Regress on all paths, not only those in the money.")
    ] = False,
    upper: Annotated[bool, typer.Option("--upper", help="Also compute a dual upper bound.")] = False,
    greeks: Annotated[bool, typer.Option("--greeks", help="Also compute delta and vega.")] = False,
    device: Device = "cpu",
    config: Annotated[
        Path | None, typer.Option(help="TOML or JSON file with these settings; options given here win.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of path files (one per market) to price on.")] = None,
    focal: Annotated[str | None, typer.Option(help="The market to price, with --data.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the exercise region as .png or .svg.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    context: typer.Context = None,  # type: ignore[assignment]
) -> None:
    """Price an American or Bermudan option by randomised least-squares Monte Carlo.

    Examples:

    mixtune price --payoff max-call --assets 2 --dividend 0.1 --maturity 3 --dates 9 --upper

    mixtune price --data markets/ --focal today --payoff put --strike 40 --maturity 1
    """
    given = {name: value for name, value in locals().items() if name not in ("context", "config", "plot", "as_json")}
    settings, explicit = _with_file(given, config, context)
    if plot is not None:
        _check_plot(plot, settings)
    console = Console(stderr=True, highlight=False)
    if settings["data"] is not None:
        result = _observed(settings, explicit)
    else:
        if settings["focal"] is not None:
            raise ParameterError("--focal names a market of --data; pass the folder too")
        with console.status("Pricing") as status:
            result = _simulated(settings, explicit, lambda stage: status.update(f"Pricing: {stage}"))
    if plot is not None:
        _plot(result, plot)
    if as_json:
        typer.echo(json.dumps(result.as_dict(), indent=2, allow_nan=False))
    else:
        _show(Console(highlight=False), settings, result)


def _with_file(given: dict[str, Any], config: Path | None, context: typer.Context) -> tuple[dict[str, Any], set[str]]:
    """Settings from the file where the command line does not give them, and the names that either gives."""
    explicit = {name for name in given if context.get_parameter_source(name).name == "COMMANDLINE"}  # type: ignore[union-attr]
    if config is None:
        return given, explicit
    try:
        text = config.read_text(encoding="utf-8")
        found = json.loads(text) if config.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ParameterError(f"cannot read {config}: {error.strerror}") from None
    except (json.JSONDecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        kind = "JSON" if config.suffix == ".json" else "TOML"
        raise ParameterError(f"{config} is not valid {kind}: {error}") from None
    if not isinstance(found, dict):
        raise ParameterError(f"{config} must hold one table of settings")
    found = {name.replace("-", "_"): value for name, value in found.items()}
    unknown = sorted(set(found) - set(given))
    if unknown:
        known = ", ".join(sorted(given))
        raise ParameterError(f"{config} has unknown settings {', '.join(unknown)}; known are {known}")
    for name, value in found.items():
        if name in explicit:
            continue
        expected = OPTIONAL_KINDS.get(name) or type(given[name])
        if expected is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
            raise ParameterError(f"{config}: {name} must be a {expected.__name__}; got {value!r}")
        given[name] = Path(str(value)) if name == "data" else value
    return given, explicit | set(found)


def _process(settings: dict[str, Any], explicit: set[str]) -> Process:
    model = settings["model"]
    if model not in MODELS:
        raise ParameterError(f"unknown model {model!r}; choose from {', '.join(MODELS)}")
    foreign = explicit & ({"scheme", "substeps"} if model == "black-scholes" else {"volatility", "correlation"})
    if foreign:
        raise ParameterError(f"{model} has no {', '.join(sorted(foreign))}; leave it out or choose another model")
    common = {"spot": settings["spot"], "dividend": settings["dividend"], "n_assets": settings["assets"]}
    stochastic = {name: settings[name] for name in (*VARIANCE, "hurst") if settings[name] is not None}
    if model == "black-scholes":
        if stochastic:
            raise ParameterError(f"black-scholes has no {', '.join(stochastic)}; use --model heston or leave them out")
        return BlackScholes(volatility=settings["volatility"], correlation=settings["correlation"], **common)
    paper = settings["preset"] == "paper"
    if model == "heston":
        if "hurst" in stochastic:
            raise ParameterError("heston has no hurst; use --model rough-heston")
        steps = {"scheme": settings["scheme"] or ("paper" if paper else "qe"), "substeps": settings["substeps"]}
        return Heston(**{**VARIANCE, **stochastic}, **common, **steps)
    stochastic = {"hurst": 0.1, **VARIANCE, **stochastic}
    steps = {
        "scheme": settings["scheme"] or ("volterra" if paper else "markovian"),
        "substeps": settings["substeps"] or 10,
    }
    return RoughHeston(**stochastic, **common, **steps)


def _simulated(settings: dict[str, Any], explicit: set[str], progress: Any) -> PriceResult:
    grid = TimeGrid(maturity=settings["maturity"], dates=settings["dates"], rate=settings["rate"])
    kept = {
        name: settings[name] for name in ("method", "preset", "paths", "antithetic", "sobol", "upper", "greeks", "seed")
    }
    kept |= {"in_the_money": not settings["all_paths"], "device": torch_device(settings["device"])}
    return price(
        _process(settings, explicit),
        payoff_from_name(settings["payoff"], settings["strike"]),
        grid,
        progress=progress,
        **kept,
    )


def _observed(settings: dict[str, Any], explicit: set[str]) -> PriceResult:
    if settings["focal"] is None:
        raise ParameterError("--data needs --focal, the name of the market to price")
    foreign = explicit - OBSERVED
    if foreign:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(foreign))
        raise ParameterError(f"{names}: for a model to simulate; leave out with --data, which prices observed paths")
    data = observed_folder(settings["data"], dates=settings["dates"] if "dates" in explicit else None)
    dates = next(iter(data.values())).shape[1] - 1
    grid = TimeGrid(maturity=settings["maturity"], dates=dates, rate=settings["rate"])
    payoff = payoff_from_name(settings["payoff"], settings["strike"])
    return price_observed(data, payoff, grid, focal=settings["focal"], seed=settings["seed"])


def _check_plot(path: Path, settings: dict[str, Any]) -> None:
    """What would stop the picture is said before the work, not after it."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise ParameterError(f"--plot writes .png or .svg; got {path}")
    if not path.parent.is_dir():
        raise ParameterError(f"--plot: there is no folder {path.parent}")
    if settings["assets"] > 2 or settings["dates"] < 2 or settings["method"] == "recurrent":
        raise ParameterError("--plot draws one or two assets, two dates or more, and features of one date (rlsm, lsm)")
    require_matplotlib()


def _plot(result: PriceResult, path: Path) -> None:
    if result.region is None:
        raise ParameterError("the exercise region can be drawn for one or two assets and at least two dates")
    buffer = io.BytesIO()
    draw_exercise_region(result.region).savefig(buffer, format=path.suffix[1:].lower(), dpi=160)
    write_atomically(path, buffer.getvalue())


def _show(console: Console, settings: dict[str, Any], result: PriceResult) -> None:
    where = settings["focal"] if settings["data"] is not None else settings["model"]
    table = Table(title=f"{settings['payoff']}, strike {settings['strike']:g}, {where}", title_justify="left")
    table.add_column("")
    table.add_column("price", justify="right")
    table.add_column("95% interval", justify="right")
    rows: list[tuple[str, Any, float]] = [("lower bound", result, result.price)]
    if result.upper is not None:
        rows.append(("upper bound", result.upper, result.upper.price))
    rows.append(("European", result.european, result.european.value))
    for name, source, value in rows:
        table.add_row(name, f"{value:.4f}", f"{source.ci_low:.4f} to {source.ci_high:.4f}")
    console.print(table)
    for name, greek in result.greeks.items():
        values = ", ".join(f"{v:.4f} ± {1.96 * e:.4f}" for v, e in zip(greek.value, greek.standard_error))
        console.print(f"{name}: {values}")
    if result.gap is not None:
        share = f" ({100 * result.gap / result.price:.2f}% of the price)" if result.price > 0 else ""
        console.print(f"gap between the bounds: {result.gap:.4f}{share}")
    if result.below_european:
        console.print("below the European price on the same paths: within noise, or the policy needs more paths")
    early = 100 * float(result.exercise_probability[:-1].sum())
    console.print(f"exercised before maturity: {early:.1f}% of paths")
    spent = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in result.seconds.items())
    console.print(f"time: {spent}")

"""``mixtune price``: an American or Bermudan option from a model, a settings file, or observed paths."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Column, Table

from mixtune import checks
from mixtune.arrays import torch_device
from mixtune.cli import outputs
from mixtune.errors import ParameterError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mixtune_options import PriceResult, Process, TimeGrid

VARIANCE = ("v0", "v_mean", "v_speed", "v_vol", "rho")
HESTON = (*VARIANCE, "scheme", "substeps")
#: Models, and the settings that only some of them have.
MODELS = {
    "black-scholes": ("volatility", "correlation"),
    "heston": (*HESTON, "correlation"),
    "rough-heston": (*HESTON, "hurst"),
}
#: Values where the user gives none: the paper's market.
DEFAULTS = {"v0": 0.01, "v_mean": 0.01, "v_speed": 2.0, "v_vol": 0.2, "rho": -0.3, "hurst": 0.1}
#: Simulation schemes by default: the library's, and the paper's.
SCHEMES = {"heston": ("auto", "paper"), "rough-heston": ("inverse-gaussian", "volterra")}
PAYOFFS = "put, call, max-call, min-put, basket-call, basket-put, geometric-basket-put, asian-call, asian-put."
MORE = "List all others: models, simulation."
ANY_TIME = "Extrapolate to exercise at any time."
ON_DEVICE = "Compute with NumPy, or with PyTorch on a CUDA device (cuda:1 is the second)."
OWN_MATURITIES = "Years to maturity of such markets: calm:0.5,crash:0.25."
SCHEME = (
    "auto, inverse-gaussian, qe, log-euler or paper (Heston); inverse-gaussian, markovian or volterra (rough Heston)."
)
#: Settings of the pricer that are passed on as they are.
SAMPLING = ("paths", "training_paths", "antithetic", "sobol", "bias_tolerance", "seed")
PRICING = ("method", "preset", "width", "greeks", *SAMPLING)
BOUNDING = ("upper", "upper_paths", "inner_paths")
#: The fewest dates from which --american extrapolates, and how many it takes if none are given.
FEWEST_DATES, LIMIT_DATES = 8, 40
#: Settings with one number for all assets, or one for each; lists in a settings file.
PER_ASSET = ("spot", "dividend", "volatility", *VARIANCE)
#: Of these, the settings that may change with time.
CURVES = ("dividend", "volatility")
#: What a settings file may hold, in words.
KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
#: Parameters of the command that say nothing about the price.
NOT_SETTINGS = ("context", "config", "plot", "as_json", "more_settings")
#: Settings that apply to observed paths.
BY_MARKET = ("market_rates", "market_maturities")
OBSERVED = {"data", "focal", "spot", "payoff", "strike", "rate", "maturity", "dates", "width", "seed", *BY_MARKET}


def _list_hidden(context: typer.Context, wanted: bool) -> None:
    """Print the settings that ``--help`` leaves out, and stop."""
    if not wanted:
        return
    table = Table("setting", "default", "", box=None, pad_edge=False)
    for parameter in context.command.params:
        if getattr(parameter, "hidden", False):
            default = "" if parameter.default in (None, "") else str(parameter.default)
            table.add_row(parameter.opts[0], default, escape(str(getattr(parameter, "help", ""))))
    Console(highlight=False).print(table)
    raise typer.Exit


def price(
    model: Annotated[str, typer.Option(help="black-scholes, heston or rough-heston.")] = "black-scholes",
    payoff: Annotated[str, typer.Option(help=PAYOFFS)] = "put",
    assets: Annotated[int, typer.Option(help="Number of assets.")] = 1,
    spot: Annotated[str, typer.Option(help="Price today; 90,100 for two assets.")] = "100",
    strike: Annotated[float, typer.Option(help="Strike of the option.")] = 100.0,
    rate: Annotated[float, typer.Option(help="Interest rate, 0.05 for 5%.")] = 0.05,
    dividend: Annotated[str, typer.Option(help="Dividend yield, or a list, or time:value.")] = "0",
    cash_dividends: Annotated[
        str, typer.Option(help="Cash paid, as time:amount, such as 0.25:1.5,0.75:1.5.", hidden=True)
    ] = "",
    volatility: Annotated[str, typer.Option(help="Likewise (Black-Scholes).")] = "0.2",
    correlation: Annotated[float, typer.Option(help="Between all assets.")] = 0.0,
    maturity: Annotated[float, typer.Option(help="Years to maturity.")] = 1.0,
    strikes: Annotated[str | None, typer.Option(help="Several, such as 90,100,110.")] = None,
    maturities: Annotated[str | None, typer.Option(help="Several, with --strikes: 0.5,1.")] = None,
    american: Annotated[bool, typer.Option("--american", help=ANY_TIME)] = False,
    dates: Annotated[int, typer.Option(help="Number of exercise dates.")] = 10,
    v0: Annotated[
        str | None, typer.Option("--v0", help="Variance today, or one for each asset (Heston).", hidden=True)
    ] = None,
    v_mean: Annotated[
        str | None, typer.Option(help="Long-run variance, or one for each asset (Heston).", hidden=True)
    ] = None,
    v_speed: Annotated[
        str | None, typer.Option(help="Mean-reversion speed, or one for each asset (Heston).", hidden=True)
    ] = None,
    v_vol: Annotated[
        str | None, typer.Option(help="Volatility of variance, or one for each asset (Heston).", hidden=True)
    ] = None,
    rho: Annotated[
        str | None, typer.Option(help="Price-variance correlation, or one for each asset (Heston).", hidden=True)
    ] = None,
    hurst: Annotated[
        float | None, typer.Option(help="Hurst parameter in (0, 1/2] (rough Heston).", hidden=True)
    ] = None,
    paths: Annotated[int, typer.Option(help="Evaluation and training paths.")] = 50_000,
    training_paths: Annotated[
        int | None, typer.Option(help="Number of training paths, if not --paths.", hidden=True)
    ] = None,
    width: Annotated[int | None, typer.Option(help="Number of random units; chosen by default.", hidden=True)] = None,
    method: Annotated[str, typer.Option(help="rlsm, lsm or recurrent.", hidden=True)] = "rlsm",
    preset: Annotated[str | None, typer.Option(help="'paper' for the paper's settings.", hidden=True)] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random draws.")] = 0,
    scheme: Annotated[str | None, typer.Option(help=SCHEME, hidden=True)] = None,
    substeps: Annotated[
        int | None, typer.Option(help="Simulation steps per date (Heston models).", hidden=True)
    ] = None,
    bias_tolerance: Annotated[
        float, typer.Option(help="Accepted error of the time steps, 0.001 for 0.1%.", hidden=True)
    ] = 0.001,
    antithetic: Annotated[
        bool, typer.Option("--antithetic", help="Evaluate on antithetic pairs of paths.", hidden=True)
    ] = False,
    sobol: Annotated[bool, typer.Option("--sobol", help="Evaluate on Sobol points.", hidden=True)] = False,
    all_paths: Annotated[
        bool, typer.Option("--all-paths", help="Also regress on paths out of the money.", hidden=True)
    ] = False,
    upper: Annotated[bool, typer.Option("--upper", help="Also a dual upper bound.")] = False,
    upper_paths: Annotated[int, typer.Option(help="Outer paths of the upper bound.", hidden=True)] = 1000,
    inner_paths: Annotated[int, typer.Option(help="Inner paths from each outer state.", hidden=True)] = 200,
    plain: Annotated[bool, typer.Option("--plain", help="Do not use control variates.", hidden=True)] = False,
    greeks: Annotated[bool, typer.Option("--greeks", help="Also delta, gamma, vega, theta, rho.")] = False,
    device: Annotated[str, typer.Option(metavar="cpu|cuda", help=ON_DEVICE, hidden=True)] = "cpu",
    config: Annotated[Path | None, typer.Option(help="TOML or JSON file of settings.")] = None,
    data: Annotated[str | None, typer.Option(metavar="FOLDER", help="Observed paths, a file per market.")] = None,
    focal: Annotated[str | None, typer.Option(help="The market to price, with --data.")] = None,
    market_rates: Annotated[
        str, typer.Option(help="Rates of markets that have their own: calm:0.02,crash:0.01.", hidden=True)
    ] = "",
    market_maturities: Annotated[str, typer.Option(help=OWN_MATURITIES, hidden=True)] = "",
    plot: Annotated[Path | None, typer.Option(help="Draw to a .png or .svg file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
    more_settings: Annotated[
        bool, typer.Option("--more-settings", help=MORE, is_eager=True, callback=_list_hidden)
    ] = False,
    context: typer.Context = None,  # type: ignore[assignment]
) -> None:
    """Price an American or Bermudan option by least-squares Monte Carlo.

    Example: mixtune price --payoff max-call --assets 2 --dividend 0.1 --upper
    """
    given = {name: value for name, value in locals().items() if name not in NOT_SETTINGS}
    settings, explicit = _with_file(given, config, context)
    if plot is not None:
        _check_plot(plot, settings)
    if settings["strikes"] is not None or settings["maturities"] is not None:
        _several(settings, explicit, plot, as_json)
    elif settings["american"]:
        _limit(settings, explicit, as_json)
    else:
        _one(settings, explicit, plot, as_json)


def _one(settings: dict[str, Any], explicit: set[str], plot: Path | None, as_json: bool) -> None:
    """One option: its table and picture, or JSON."""
    result = _simulated(settings, explicit) if settings["data"] is None else _observed(settings, explicit)
    if plot is not None:
        from mixtune_options._figures import draw_exercise_region

        if result.region is None:
            raise ParameterError("the exercise region can be drawn for one or two assets and at least two dates")
        _save_plot(partial(draw_exercise_region, result.region), plot)
    assumed = _assumptions(settings, result)
    if as_json:
        outputs.print_json(result.as_dict() | {"assumptions": assumed})
        return
    console = Console(highlight=False)
    _show(console, settings, result)
    console.print("\nassumptions:")
    for sentence in assumed:
        console.print(f"- {sentence}", markup=False)


def _assumptions(settings: dict[str, Any], result: PriceResult) -> list[str]:
    """What the price takes for granted, in sentences."""
    dates, observed = len(result.times) - 1, settings["data"] is not None
    if observed:
        market = (
            f"the future is like the {result.settings['datasets'][settings['focal']]} paths of {settings['focal']!r}"
        )
    else:
        # NumPy's arrays in words: array([100.]) is 100.
        process = re.sub(r"array\(\[(.*?)\.?\]\)", r"\1", result.settings["process"])
        market = f"prices follow {process}"
    exercise = (
        f"the option may be exercised today and at {dates} equally spaced dates, not between them (--american "
        "extrapolates to exercise at any time)"
    )
    if dates == 1:
        exercise = "the option may be exercised today and at maturity only"
    rates = "their own rates" if observed and settings["market_rates"] else f"{settings['rate']:g} per year"
    sentences = [
        market,
        exercise,
        f"cash flows are discounted with {rates}, continuously compounded; no costs, no default, no taxes",
        "the price is a lower bound: what a learned exercise rule earns on paths that did not teach it; its interval "
        "is the sampling error of these paths" + ("" if result.upper else " (--upper adds an upper bound)"),
    ]
    if result.settings.get("importance_sampling"):
        sentences.append("exercise is rare: paths are drawn towards it and counted with their likelihood ratios")
    if result.settings.get("observe_hidden") and settings["model"] != "black-scholes":
        sentences.append("who exercises sees the variance, as the price under this model assumes")
    return sentences


def _with_file(given: dict[str, Any], config: Path | None, context: typer.Context) -> tuple[dict[str, Any], set[str]]:
    """Settings from the file where the command line does not give them, and the names that either gives."""
    explicit = {name for name in given if context.get_parameter_source(name).name == "COMMANDLINE"}  # type: ignore[union-attr]
    if config is None:
        return given, explicit
    kind, parse = ("JSON", json.loads) if config.suffix == ".json" else ("TOML", tomllib.loads)
    try:
        found = parse(config.read_text(encoding="utf-8"))
    except OSError as error:
        raise ParameterError(f"cannot read {config}: {error.strerror}") from None
    except ValueError as error:  # of the parsers, and of bytes that are not UTF-8
        raise ParameterError(f"{config} is not valid {kind}: {error}") from None
    if not isinstance(found, dict):
        raise ParameterError(f"{config} must hold one table of settings")
    found = {name.replace("-", "_"): value for name, value in found.items()}
    if unknown := sorted(set(found) - set(given)):
        known = ", ".join(sorted(given))
        raise ParameterError(f"{config} has unknown settings {', '.join(unknown)}; known are {known}")
    kinds = get_type_hints(price)
    for name in sorted(set(found) - explicit):
        value = found[name]
        matrix = name == "correlation" and isinstance(value, list)  # only a file can hold one; the market checks it
        if matrix or name in (*PER_ASSET, "cash_dividends", "strikes", "maturities", *BY_MARKET):
            given[name] = value
            continue
        expected = next(kind for kind in get_args(kinds[name]) or (kinds[name],) if kind is not type(None))
        if type(value) is not expected and (expected, type(value)) != (float, int):
            raise ParameterError(f"{config}: {name} must be {KINDS[expected]}; got {value!r}")
        given[name] = value
    return given, explicit | set(found)


def _save_plot(drawing: Callable[[], Figure], path: Path) -> None:
    from mixtune.report import write_figure

    write_figure(drawing, path.parent, path.stem, (path.suffix[1:],))


def _list(name: str, value: Any) -> Any:
    """One number, or a list of them, from an option such as "90,100" or from a settings file."""
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
    try:
        numbers = [float("no" if isinstance(part, bool) else part) for part in parts]
    except (TypeError, ValueError):
        what = "numbers" if name in ("strikes", "maturities") else "a number, or one for each asset"
        raise ParameterError(f"{name} must be {what} such as 90,100; got {value!r}") from None
    return numbers[0] if len(numbers) == 1 else numbers


def _pairs(name: str, value: Any, example: str = "0.25:1.5,0.75:1.5", kind: type = float) -> list[tuple[Any, Any]]:
    """Pairs such as those of the example, from text, or from lists and tables in a settings file.

    The first parts are of this kind; the second are numbers, or lists of them.
    """
    parts = [part.rsplit(":", 1) for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    parts = parts.items() if isinstance(parts, dict) else parts
    try:
        return [(kind(key), amount if isinstance(amount, list) else float(amount)) for key, amount in parts]
    except (TypeError, ValueError):
        raise ParameterError(f"{name} must be pairs such as {example}; got {value!r}") from None


def _curve_or_list(name: str, value: Any) -> Any:
    """A number, one for each asset, or a term structure of pairs of time and value."""
    from mixtune_options import TermStructure

    by_time = ":" in value if isinstance(value, str) else isinstance(value, list) and isinstance((*value, 0)[0], list)
    if name in CURVES and by_time:
        times, values = zip(*_pairs(name, value))
        return TermStructure(times, values)
    return _list(name, value)


def _process(settings: dict[str, Any], explicit: set[str]) -> Process:
    import mixtune_options as options

    model, kinds = settings["model"], (options.BlackScholes, options.Heston, options.RoughHeston)
    if model not in MODELS:
        raise ParameterError(f"unknown model {model!r}; choose from {', '.join(MODELS)}")
    if foreign := sorted(explicit & set().union(*MODELS.values()) - set(MODELS[model])):
        raise ParameterError(f"{model} has no {', '.join(foreign)}; leave it out, or choose from {', '.join(MODELS)}")
    known: dict[str, Any] = DEFAULTS | {name: value for name, value in settings.items() if value is not None}
    if model in SCHEMES:
        known.setdefault("scheme", SCHEMES[model][settings["preset"] == "paper"])
    own = {name: known[name] for name in ("spot", "dividend", *MODELS[model]) if name in known}
    own = {name: _curve_or_list(name, value) if name in PER_ASSET else value for name, value in own.items()}
    own["cash_dividends"] = _pairs("cash_dividends", settings["cash_dividends"])
    return dict(zip(MODELS, kinds))[model](n_assets=settings["assets"], **own)


def _several(settings: dict[str, Any], explicit: set[str], plot: Path | None, as_json: bool) -> None:
    """Strikes by maturities: a table, a picture, or JSON."""
    import mixtune_options as options

    _check_simulated(settings, "--strikes")
    if settings["american"] or settings["strikes"] is None:
        raise ParameterError("--maturities needs --strikes, and both exclude --american")
    lists = {name: settings[name] for name in ("strikes", "maturities") if settings[name] is not None}
    lists = {name: np.atleast_1d(_list(name, value)).tolist() for name, value in lists.items()}
    kind, grid = partial(options.payoff_from_name, settings["payoff"]), _grid(settings)
    process, how = _process(settings, explicit), _how(settings)
    with Progress(console=Console(stderr=True, highlight=False), transient=True) as bar:
        task = bar.add_task("Pricing")
        how["progress"] = lambda done, all_: bar.update(task, completed=done, total=all_)
        found = options.price_grid(process, kind, grid, **lists, **how)
    if plot is not None:
        from mixtune_options._figures import draw_price_grid

        _save_plot(partial(draw_price_grid, found), plot)
    rows: list[dict[str, Any]] = list(found.as_rows())
    if as_json:
        outputs.print_json({"rows": rows, "settings": found.results[0][0].settings})
        return
    console, count = Console(highlight=False), len(found.maturities)
    # The price, and whatever else has a standard error: upper bounds and Greeks, where asked for.
    for name in [key for key in rows[0] if f"{key}_standard_error" in rows[0] or key == "price"]:
        error = "standard_error" if name == "price" else f"{name}_standard_error"
        columns = [Column(f"maturity {maturity:g}", justify="right") for maturity in found.maturities.tolist()]
        title = f"{settings['payoff']}, {settings['model']}: {name.replace('_', ' ')}, with half its 95% interval"
        table = Table(Column("strike", justify="right"), *columns, title=title, title_justify="left")
        for row in (rows[k : k + count] for k in range(0, len(rows), count)):
            cells = (f"{each[name]:.4f} ± {1.96 * each[error]:.4f}" for each in row)
            table.add_row(f"{row[0]['strike']:g}", *cells)
        console.print(table)


def _limit(settings: dict[str, Any], explicit: set[str], as_json: bool) -> None:
    """The price with exercise at any time, from a quarter, half and all of the dates."""
    import mixtune_options as options

    _check_simulated(settings, "--american")
    if settings["greeks"] or settings["upper"]:
        raise ParameterError("--american extrapolates prices only; leave out --greeks and --upper, or --american")
    if settings["dates"] < FEWEST_DATES:
        raise ParameterError(f"--american extrapolates from --dates {FEWEST_DATES} or more; got {settings['dates']}")
    most = settings["dates"] if "dates" in explicit else LIMIT_DATES
    when = {"maturity": settings["maturity"], "rate": settings["rate"], "dates": (most // 4, most // 2, most)}
    payoff = options.payoff_from_name(settings["payoff"], settings["strike"])
    found = options.american_limit(_process(settings, explicit), payoff, **when, **_how(settings))
    bermudan = {str(count): each.price for count, each in zip(found.dates, found.bermudan)}
    if as_json:
        names = ("price", "standard_error", "ci_low", "ci_high", "change")
        outputs.print_json({name: getattr(found, name) for name in names} | {"bermudan": bermudan})
        return
    console = Console(highlight=False)
    for count, value in bermudan.items():
        console.print(f"{count} dates: {value:.4f}")
    console.print(f"any time: {found.price:.4f} ({found.ci_low:.4f} to {found.ci_high:.4f})")
    console.print(f"change by the last step of the extrapolation: {found.change:+.4f}")


def _check_simulated(settings: dict[str, Any], option: str) -> None:
    if settings["data"] is not None or settings["focal"] is not None:
        raise ParameterError(f"{option} prices a model that is simulated; leave out --data and --focal")


def _grid(settings: dict[str, Any]) -> TimeGrid:
    import mixtune_options as options

    return options.TimeGrid(maturity=settings["maturity"], dates=settings["dates"], rate=settings["rate"])


def _how(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of the pricer."""
    how = {name: settings[name] for name in PRICING + BOUNDING}
    how |= {"in_the_money": not settings["all_paths"], "control": False if settings["plain"] else None}
    return how | {"device": torch_device(settings["device"])}


def _simulated(settings: dict[str, Any], explicit: set[str]) -> PriceResult:
    import mixtune_options as options

    if settings["focal"] is not None or any(settings[name] for name in BY_MARKET):
        raise ParameterError("--focal, --market-rates and --market-maturities name markets of --data; pass the folder")
    payoff = options.payoff_from_name(settings["payoff"], settings["strike"])
    grid, how = _grid(settings), _how(settings)
    with Console(stderr=True, highlight=False).status("Pricing") as status:
        how["progress"] = lambda stage: status.update(f"Pricing: {stage}")
        return options.price(_process(settings, explicit), payoff, grid, **how)


def _observed(settings: dict[str, Any], explicit: set[str]) -> PriceResult:
    import mixtune_options as options

    if settings["focal"] is None:
        raise ParameterError("--data needs --focal, the name of the market to price")
    if foreign := explicit - OBSERVED:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(foreign))
        raise ParameterError(f"{names}: for a model to simulate; leave out with --data, which prices observed paths")
    data = options.observed_folder(settings["data"], dates=settings["dates"] if "dates" in explicit else None)
    payoff = options.payoff_from_name(settings["payoff"], settings["strike"])
    own = {name: _by_market(f"market_{name}", settings, data) for name in ("rates", "maturities")}
    grids = {}
    for name, paths in data.items():
        rate, maturity = own["rates"].get(name, settings["rate"]), own["maturities"].get(name, settings["maturity"])
        grids[name] = options.TimeGrid(maturity=maturity, dates=paths.shape[1] - 1, rate=rate)
    grid = grids.get(settings["focal"], next(iter(grids.values())))
    spot = _list("spot", settings["spot"]) if "spot" in explicit else None
    how = {name: settings[name] for name in ("focal", "seed", "width") if settings[name] is not None}
    return options.price_observed(data, payoff, grid, spot=spot, grids=grids, **how)


def _by_market(option: str, settings: dict[str, Any], markets: Iterable[str]) -> dict[str, float]:
    """Numbers by the name of a market."""
    found = dict(_pairs(option, settings[option], "calm:0.02,crash:0.01", str))
    if unknown := sorted(set(found) - set(markets)):
        raise ParameterError(f"{option} names {unknown[0]!r}; --data has {', '.join(markets)}")
    return found


def _check_plot(path: Path, settings: dict[str, Any]) -> None:
    """Refuse a figure that cannot be drawn before the work, not after it."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise ParameterError(f"--plot writes .png or .svg; got {path}")
    if not path.parent.is_dir():
        raise ParameterError(f"--plot: there is no folder {path.parent}")
    payoff, one = settings["payoff"], settings["strikes"] is None
    if one and (settings["assets"] > 2 or settings["dates"] < 2 or settings["method"] == "recurrent"):
        raise ParameterError("--plot draws one or two assets, two dates or more, and features of one date (rlsm, lsm)")
    if one and payoff.startswith("asian"):
        raise ParameterError(f"--plot draws prices at which to exercise; {payoff} depends on past prices")
    checks.require_extra("matplotlib", "report", "drawing figures")


def _amount(value: float) -> str:
    """Four decimals, or as many digits where a price has none that far."""
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.01 else f"{value:.5g}"


def _show(console: Console, settings: dict[str, Any], result: PriceResult) -> None:
    where = settings["focal"] if settings["data"] is not None else settings["model"]
    numbers = [Column(name, justify="right") for name in ("price", "95% interval")]
    title = f"{settings['payoff']}, strike {settings['strike']:g}, {where}"
    table = Table("", *numbers, title=title, title_justify="left")
    for name, found in (("lower bound", result), ("upper bound", result.upper), ("European", result.european)):
        if found is not None:
            table.add_row(name, _amount(found.price), f"{_amount(found.ci_low)} to {_amount(found.ci_high)}")
    console.print(table)
    for name, greek in result.greeks.items():
        values = ", ".join(f"{v:.4f} ± {1.96 * e:.4f}" for v, e in zip(greek.value, greek.standard_error))
        console.print(f"{name}: {values}")
    if result.gap is not None:
        share = f" ({100 * result.gap / result.price:.2f}% of the price)" if result.price > 0 else ""
        console.print(f"gap between the bounds: {_amount(result.gap)}{share}")
    if result.below_european:
        console.print("below the European price: within noise, or the policy needs more paths")
    if result.bias is not None:
        taken = "; the exact European price corrects the bounds for it" if result.settings["european_control"] else ""
        console.print(f"bias of the time steps: {result.bias}{taken}")
    console.print(f"exercised before maturity: {result.exercise_probability[:-1].sum():.1%} of paths")
    if result.exercise_probability.sum() > 0:
        console.print(f"mean time of exercise: {result.exercise_time:.2f} of {result.times[-1]:g} years")
        low, middle, high = np.quantile(result.profit_and_loss, [0.05, 0.5, 0.95])
        console.print(f"profit of a path: {low:.2f} (5%), {middle:.2f} (median), {high:.2f} (95%)")
    console.print("time:", ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in result.seconds.items()))

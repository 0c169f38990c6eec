"""Columns that whole domains lack: optional where the focal domain does, and no harm where sources do."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from cli.command_line import as_json, run, write_rows
from extras import extra
from mixtune import TableModel, fit_table
from mixtune.data import read_training
from mixtune.errors import DataError

pd, pl = extra("pandas"), extra("polars")

ROLES = {"target": "y", "domain": "site", "focal": "s0"}
FOCAL, SOURCES = 25, 6


def problem(seed, *, lacking, column="strong", classes=False):
    """One focal domain with rows to test on, and sources with slopes that differ a little."""
    rng = np.random.default_rng(seed)
    parts = []
    for k in range(SOURCES + 1):
        rows = FOCAL + 300 if k == 0 else 60
        X = rng.standard_normal((rows, 3))
        y = X @ (np.array([3.0, 1.0, -1.0]) + 0.2 * rng.standard_normal(3)) + 0.5 * rng.standard_normal(rows)
        part = pd.DataFrame(X, columns=["strong", "b", "c"])
        part["kind"] = np.where(X[:, 0] > 0, "hi", "lo")
        part["y"], part["site"] = np.where(y > 0, "yes", "no") if classes else y, f"s{k}"
        if f"s{k}" in lacking:
            part[column] = None if column == "kind" else np.nan
        parts.append(part)
    test, parts[0] = parts[0].iloc[FOCAL:], parts[0].iloc[:FOCAL]
    return pd.concat(parts, ignore_index=True), test.reset_index(drop=True)


def error(train, test, **options):
    model = fit_table(train.drop(columns="kind"), **ROLES, **options)
    return np.sqrt(np.mean((model.predict(test.drop(columns="kind")) - test.y) ** 2))


@pytest.mark.parametrize("lacking", [("s1", "s2", "s3"), tuple(f"s{k}" for k in range(1, SOURCES + 1))])
@pytest.mark.parametrize(("linear", "seeds"), [(True, 4), (False, 1)])
def test_a_strong_column_that_sources_lack_does_no_harm(lacking, linear, seeds):
    errors = []
    for seed in range(seeds):
        train, test = problem(seed, lacking=lacking)
        alone = train[train.site == "s0"]
        errors.append([error(train, test, linear=linear), error(alone, test, linear=linear)])
    ours, alone = np.mean(errors, axis=0)
    assert ours < 1.12 * alone


@pytest.mark.parametrize("column", ["strong", "kind"])
def test_the_model_says_which_sources_lack_it(column):
    train, _ = problem(0, lacking=("s2", "s5"), column=column)
    keep = train.drop(columns="kind" if column == "strong" else "strong")
    model = fit_table(keep, **ROLES, linear=True)
    (note,) = [note for note in model.notes if note.code == "lacking-column"]
    assert note.startswith(f'column "{column}" has no values in 2 of the sources ("s2", "s5"); they are left out')
    assert set(model.estimator.domain_names_) == {"s0", "s1", "s3", "s4", "s6"}
    # What does not matter is imputed.
    keep["other"] = np.where(keep.site == "s2", np.nan, np.random.default_rng(0).standard_normal(len(keep)))
    model = fit_table(keep.drop(columns=column), **ROLES, linear=True)
    (note,) = [note for note in model.notes if note.code == "lacking-column"]
    assert note.endswith('("s2"); there it is imputed like other missing values')
    assert "s2" in model.estimator.domain_names_


def test_it_matters_for_classes_too():
    train, _ = problem(0, lacking=("s2",), column="kind", classes=True)
    train["kind"] = np.where(
        train.site == "s2", None, np.where(train.y == "yes", "u", np.where(train.b > 1.5, "u", "v"))
    )
    model = fit_table(train[["site", "kind", "b", "c", "y"]], **ROLES, linear=True)
    assert "s2" not in model.estimator.domain_names_


@pytest.mark.parametrize("column", ["strong", "kind"])
@pytest.mark.parametrize("kind", [lambda each: each, pl.from_pandas, lambda each: pa.Table.from_pandas(each)])
def test_what_the_focal_domain_lacks_is_optional(tmp_path, column, kind):
    train, test = problem(0, lacking=("s0",), column=column)
    if column == "kind":
        train, test = train.drop(columns="strong"), test.drop(columns="strong")
    model = fit_table(kind(train), **ROLES, linear=True)
    assert [note.fields["column"] for note in model.notes if note.code == "optional-column"] == [column]
    assert model.encoder.optional == (column,)
    given, without = test.assign(**{column: None}), test.drop(columns=column)
    expected = model.predict(kind(given))
    np.testing.assert_array_equal(model.predict(kind(without)), expected)
    assert {note.code for note in model.notes_at_predict} <= {"outside-range"}
    again = TableModel.load(model.save(tmp_path / "m.mixtune"))
    np.testing.assert_allclose(again.predict(kind(without)), expected, rtol=1e-12)
    with pytest.raises(DataError, match='no column "b", which the model was trained on'):
        model.predict(kind(without.drop(columns="b")))
    path = write_rows(tmp_path / "new.csv", list(without.columns), without.values.tolist())
    found = as_json("predict", tmp_path / "m.mixtune", path)["columns"]["prediction"]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_on_the_command_line(tmp_path):
    train, test = problem(0, lacking=("s0",))
    train = train.drop(columns="kind")
    rows = [["" if value != value else value for value in row] for row in train.values.tolist()]
    path = write_rows(tmp_path / "data.csv", list(train.columns), rows)
    command = ("fit", path, "--target", "y", "--domain", "site", "--focal", "s0", "--linear")
    done = run(*command, "--out", tmp_path / "m.mixtune")
    assert "new tables need not have it" in " ".join(done.out.split())
    new = write_rows(tmp_path / "new.csv", ["b", "c"], test[["b", "c"]].values.tolist())
    notes = as_json("predict", tmp_path / "m.mixtune", new)["notes"]
    assert all("outside the range" in note for note in notes)


LACKING = [
    {"s1": ["strong"]},
    {"s1": ["kind"], "s2": ["b", "kind"]},
    {"s0": ["c"]},
    {"s0": ["b"], "s3": ["c"]},
]


def in_files(folder, train, lacking):
    """One file for each domain, without the columns that it lacks, and the same in one table."""
    paths, whole = [], []
    for name, part in train.groupby("site"):
        lost = lacking.get(name, [])
        own = part.drop(columns=["site", *lost])
        paths.append(write_rows(folder / f"{name}.csv", list(own.columns), own.values.tolist()))
        whole.append(part.assign(**dict.fromkeys(lost)))
    return paths, pd.concat(whole, ignore_index=True)


@pytest.mark.parametrize("lacking", LACKING, ids=str)
def test_files_may_lack_columns(tmp_path, lacking):
    train, test = problem(0, lacking=())
    paths, whole = in_files(tmp_path, train, lacking)
    new = test.drop(columns=lacking.get("s0", []))
    expected = fit_table(whole, **ROLES, linear=True).predict(new)
    for order in (paths, paths[:1] + paths[:0:-1]):
        told = {note.fields["file"]: note for note in read_training(order, target="y").notes if "all its" in note}
        assert {name: note.split(" has no ")[1] for name, note in told.items()} == {
            f"{name}.csv": f"column {', '.join(json.dumps(c) for c in own)}; all its values there are missing"
            for name, own in sorted_lost(lacking)
        }
        out = tmp_path / f"m{len(list(tmp_path.iterdir()))}.mixtune"
        done = as_json("fit", *order, "--target", "y", "--linear", "--out", out)
        assert len([note for note in done["notes"] if "all its values there are missing" in note]) == len(lacking)
        np.testing.assert_allclose(TableModel.load(out).predict(new), expected, rtol=1e-8)


def sorted_lost(lacking):
    """Columns of each file that lacks some, in the order of the tables."""
    return [(name, sorted(lost, key=["strong", "b", "c", "kind"].index)) for name, lost in lacking.items()]


def test_columns_that_are_listed_may_be_lacking_too(tmp_path):
    train, _ = problem(0, lacking=())
    paths, _ = in_files(tmp_path, train, {"s1": ["strong"]})
    read = read_training(paths, target="y", columns=["strong", "b"])
    assert '"s1.csv" has no column "strong"; all its values there are missing' in read.notes
    with pytest.raises(DataError, match='has no column "strnog"; did you mean "strong"'):
        read_training(paths, target="y", columns=["strnog", "b"])


def test_models_of_every_domain_say_what_some_lack():
    train, _ = problem(0, lacking=("s2", "s5"))
    notes = read_training(train, target="y", domain="site", every=True).notes
    assert (
        'column "strong" has no values in 2 of the domains ("s2", "s5"); there it is imputed like other missing values'
    ) in notes

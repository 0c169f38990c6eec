"""``mixtune fit --all``, and predictions with a model of every domain."""

from __future__ import annotations

import csv
from io import StringIO

import numpy as np
import pytest

from cli.command_line import as_json, refused, run, write_rows
from mixtune import load

ALL = ("--target", "y", "--domain", "site", "--all", "--linear")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("every")
    rng = np.random.default_rng(0)
    rows = []
    for place, site in enumerate(["a", "b", "c", "007"]):
        for _ in range(12):
            x = rng.normal()
            rows.append([site, x, rng.choice(["red", "blue"]), (2 + 0.2 * place) * x + place + 0.1 * rng.normal()])
    write_rows(folder / "data.csv", ["site", "x", "colour", "y"], rows)
    write_rows(folder / "new.csv", ["site", "x", "colour"], [["a", 1.0, "red"], ["007", 1.0, "red"], ["z", 1.0, "red"]])
    write_rows(folder / "new_classes.csv", ["site", "x", "y"], [["a", 1.0, 2.0], ["z", 1.0, 3.0]])
    assert (
        run("fit", folder / "data.csv", *ALL, "--out", folder / "models.mixtune", "--report", folder / "page.html").code
        == 0
    )
    return folder


def test_fit_shows_every_domain(folder):
    done = run("fit", folder / "data.csv", *ALL, columns="120")
    assert done.code == 0
    assert done.out.startswith("Learning together clearly helps ")
    assert "Over all rows, the left-out error is " in done.out
    assert all(site in done.out for site in ("007", "borrows from", "pass --out models.mixtune"))
    document = as_json("fit", folder / "data.csv", *ALL, "--json")
    assert [each["domain"] for each in document["domains"]] == ["007", "a", "b", "c"]
    assert document["domains"][0]["rows"] == 12


def test_page_of_every_domain(folder):
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert all(f'id="domain-{k}"' in page for k in range(4))
    assert "Who borrows from whom" in page
    assert "from data.csv" in page
    assert "mixtune fit data.csv --target y --domain site --all" in page
    assert page.count("<script") == 1  # sorts tables


def test_predictions_are_those_of_each_domain(folder):
    done = run("predict", folder / "models.mixtune", folder / "new.csv", "--interval", "0.9")
    assert done.code == 0
    assert "not part of the fit get the prediction for the population: 1" in " ".join(done.err.split())
    rows = list(csv.DictReader(StringIO(done.out)))
    model = load(folder / "models.mixtune")
    expected = model.predict([[1.0, 1.0]] * 3, domain=["a", "007", "z"])
    np.testing.assert_allclose([float(row["prediction"]) for row in rows], expected)
    assert abs(expected[0] - 2.0) < 0.3
    assert abs(expected[1] - 5.6) < 0.3
    width = [float(row["upper"]) - float(row["lower"]) for row in rows]
    assert width[2] > 2 * width[0]


def test_inspect_lists_the_domains(folder):
    done = run("inspect", folder / "models.mixtune", columns="120")
    assert done.code == 0
    assert "every domain" in done.out
    assert "MultiDomainRegressor" in done.out
    assert len(as_json("inspect", folder / "models.mixtune", "--json")["domains"]) == 4


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--target", "y", "--all"), "--all needs --domain"),
        ((*ALL, "--focal", "a"), "leave --focal out"),
        ((*ALL, "--random-features", "5"), "exclude each other"),
    ],
)
def test_what_does_not_go_with_it(folder, arguments, told):
    assert told in refused("fit", folder / "data.csv", *arguments)


def test_new_rows_without_the_column(folder):
    write_rows(folder / "bare.csv", ["x", "colour"], [[1.0, "red"]])
    assert 'no column "site"' in refused("predict", folder / "models.mixtune", folder / "bare.csv")
    assert "use --interval" in refused("predict", folder / "models.mixtune", folder / "new.csv", "--std")


def test_classes_of_every_domain(folder):
    given = ("fit", folder / "data.csv", "--target", "colour", "--domain", "site", "--all", "--linear")
    done = run(*given, "--out", folder / "classes.mixtune", "--report", folder / "classes.html", columns="120")
    assert done.code == 0
    assert "classified correctly" in (folder / "classes.html").read_text(encoding="utf-8")
    assert "MultiDomainClassifier" in run("inspect", folder / "classes.mixtune", columns="120").out
    assert "right" in done.out
    assert "class scores" in done.out
    found = run("predict", folder / "classes.mixtune", folder / "new_classes.csv", "--proba")
    rows = list(csv.DictReader(StringIO(found.out)))
    assert {row["prediction"] for row in rows} <= {"red", "blue"}
    np.testing.assert_allclose([float(r["probability of red"]) + float(r["probability of blue"]) for r in rows], 1.0)


def test_compare_all(folder):
    given = ("compare", folder / "data.csv", *ALL, "--folds", "3", "--repeats", "1")
    document = as_json(*given, "--json")
    errors = {each["method"]: each["error"] for each in document["methods"]}
    assert list(errors) == ["mixtune", "own rows alone", "pooled", "pooled, with the domain"]
    assert errors["mixtune"] < errors["pooled, with the domain"] < errors["pooled"]
    assert document["focal"] is None
    done = run(*given, "--out", folder / "compared.csv", columns="120")
    assert done.code == 0
    assert "48 unseen rows of 4 domains" in done.out
    assert "one for each domain, and one for all rows" in done.out
    assert "leave --focal out" in refused(*given, "--focal", "a")


def test_streamed(folder):
    rng = np.random.default_rng(1)
    rows = [[site, x := rng.normal(), 2 * x + rng.normal()] for site in "abc" for _ in range(30)]
    write_rows(folder / "large.csv", ["site", "x", "y"], rows)
    given = ("fit", folder / "large.csv", *ALL, "--stream", "--sample-rows", "20", "--json")
    document = as_json(*given, "--out", folder / "streamed.mixtune")
    assert [each["rows"] for each in document["domains"]] == [30, 30, 30]
    assert "at most 20 rows of every domain were drawn" in " ".join(document["notes"])
    assert "models were validated on at most 20 rows of each domain" in " ".join(document["notes"])
    write_rows(folder / "some.csv", ["site", "x"], [["a", 1.0], ["d", 1.0]])
    assert run("predict", folder / "streamed.mixtune", folder / "some.csv").code == 0

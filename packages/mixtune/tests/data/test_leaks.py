"""Columns that give the target away and rows that stand twice: found for every task, and told before any gain."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

import mixtune
from cli.command_line import as_json, run, write_rows
from extras import extra
from mixtune import (
    MultiDomainClassifier,
    MultiDomainRegressor,
    RegretOptimalClassifierCV,
    RegretOptimalRegressorCV,
    fit_table,
)
from mixtune.data import read_training
from mixtune.report import every_html

pd, pl = extra("pandas"), extra("polars")

ROWS = 120
FOCAL = np.arange(ROWS) < 30
WORDS = np.array(["low", "middle", "high", "top"])


@cache
def drawn():
    rng = np.random.default_rng(0)
    a, b, noise = rng.standard_normal((3, ROWS))
    return rng, a, b, a + noise


def gaps(values):
    return [None if k % 3 == 0 else value for k, value in enumerate(np.asarray(values).tolist())]


def classes(y):
    return np.array(["no", "yes", "maybe"])[np.digitize(y, [0, 1])]


def table(task="numbers", **more):
    _, a, b, y = drawn()
    site = np.repeat(list("abcd"), ROWS // 4)
    target = y if task == "numbers" else classes(y) if task == "classes" else np.where(y > 0, "yes", "no")
    columns = {"site": site, "a": a, "b": b, **more, "y": target}
    return {name: np.asarray(values).tolist() for name, values in columns.items()}


def noise(size):
    return size * np.random.default_rng(1).standard_normal(ROWS)


COPIES = {
    "numbers": {
        "plain": lambda y: y,
        "upside down": lambda y: 5 - 3 * y,
        "of another shape": lambda y: np.exp(y),
        "with noise": lambda y: y + noise(0.01),
        "rounded": lambda y: np.round(y, 1),
        "folded": lambda y: (y - 0.3) ** 2,
        "in waves": lambda y: np.cos(3 * y),
        "in bins": lambda y: np.digitize(y, [-1, 0, 1]),
        "in named bins": lambda y: WORDS[np.digitize(y, [-1, 0, 1])],
        "above a threshold": lambda y: y > 0,
        "with gaps": gaps,
        "folded, with gaps": lambda y: gaps(y**2),
        "as text": lambda y: [f"{value:.3f} EUR" for value in y],
        "in the focal rows only": lambda y: np.where(FOCAL, y, noise(1)),
        "folded, in the focal rows only": lambda y: np.where(FOCAL, y**2, noise(1)),
        "in bins, in the focal rows only": lambda y: np.where(FOCAL, y > 0, noise(1) > 0),
    },
    "classes": {
        "plain": classes,
        "coded": lambda y: np.searchsorted(["maybe", "no", "yes"], classes(y)) * 7.0,
        "coded, with noise": lambda y: np.searchsorted(["maybe", "no", "yes"], classes(y)) + noise(0.01),
        "with gaps": lambda y: gaps(classes(y)),
        "finer": lambda y: np.char.add(classes(y), np.where(noise(1) > 0, "1", "2")),
        "score": lambda y: y,
        "in the focal rows only": lambda y: np.where(FOCAL, classes(y), np.where(noise(1) > 0, "no", "yes")),
    },
}
COPIES["two classes"] = {name: copy for name, copy in COPIES["classes"].items() if name != "coded, with noise"} | {
    "inverted": lambda y: y <= 0
}
CASES = [(task, name) for task, copies in COPIES.items() for name in copies]


def findings(notes, codes=("leak", "copied-rows", "focal-in-source", "in-two-domains")):
    return [note for note in notes if getattr(note, "code", "") in codes]


def read(columns):
    return read_training(columns, target="y", domain="site", focal="a")


@pytest.mark.parametrize(("task", "name"), CASES)
def test_copies_of_the_target_are_told(task, name):
    copy = COPIES[task][name](drawn()[3])
    notes = read(table(task, copy=copy)).notes
    assert [note.fields["column"] for note in findings(notes)] == ["copy"]
    assert notes[0].code == "leak"
    assert (" in the focal rows" in notes[0]) == ("focal" in name)
    assert 'ignore="copy"' in notes[0]
    assert "--ignore copy" in notes[0].render("terminal")


@pytest.mark.parametrize("task", COPIES)
@pytest.mark.parametrize(
    "other",
    [
        lambda y: y + noise(0.3),
        lambda y: noise(1),
        lambda y: np.where(noise(1) > 0, "u", "v"),
        lambda y: np.arange(ROWS) % 7,
        lambda y: np.where(np.arange(ROWS) == 5, 1, 0),
        lambda y: np.repeat([1, 2, 3, 4], ROWS // 4),
        lambda y: np.linspace(0, 1, ROWS),
    ],
)
def test_columns_that_do_not_are_not(task, other):
    assert findings(read(table(task, other=other(drawn()[3]))).notes) == []


def test_a_trend_is_no_leak():
    """Neighbours in time are alike; that tells nothing of the target."""
    walk = np.cumsum(np.random.default_rng(0).standard_normal(1200))
    columns = {"site": ["a", "b"] * 600, "time": np.arange(1200) * 1.5, "y": walk}
    assert findings(read({name: np.asarray(values).tolist() for name, values in columns.items()}).notes) == []


def test_few_rows_say_little():
    for rows, expected in ((30, ["copy"]), (10, ["copy"]), (6, [])):
        columns = {name: values[:rows] for name, values in table(copy=2 * drawn()[3] + 1).items()}
        columns["site"] = (["a", "b"] * rows)[:rows]
        assert [note.fields["column"] for note in findings(read(columns).notes)] == expected
    # In ten rows, the same order may be chance.
    columns = {name: values[:10] for name, values in table(copy=np.exp(drawn()[3])).items()}
    assert findings(read(columns | {"site": ["a", "b"] * 5}).notes) == []


def test_focal_rows_that_stand_in_a_source():
    plain = table()
    for count, expected in ((1, []), (12, ["b"])):
        both = {name: values + values[:count] for name, values in plain.items()}
        both["site"] = plain["site"] + ["b"] * count
        found = findings(read(both).notes)
        assert [note.fields["source"] for note in found] == expected
        assert not found or "12 of 30 focal rows" in found[0]
    # Rows of few levels are equal by chance.
    rng = np.random.default_rng(0)
    coarse = {"site": ["a", "b"] * 50, "x": rng.integers(0, 3, 100).tolist(), "y": rng.integers(0, 3, 100).tolist()}
    assert findings(read(coarse).notes, ("focal-in-source",)) == []


@pytest.mark.parametrize("kind", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_copies_of_rows_do_not_hide_identifiers(kind):
    ids = {
        "order_id": [f"A{k}" for k in range(ROWS)],
        "order id": list(np.random.default_rng(0).permutation(ROWS) + 900),
    }
    plain = table(**ids)
    twice = {name: values + values[5:15] for name, values in plain.items()}
    for columns, copies in ((plain, []), (twice, ["copied-rows"])):
        notes = read(kind(columns)).notes
        assert [note.fields["column"] for note in notes if note.code == "identifier"] == ["order_id", "order id"]
        assert [note.code for note in findings(notes)] == copies
    assert "10 rows of" in findings(read(kind(twice)).notes)[0]


def test_files_say_which_one_repeats(tmp_path):
    rows = [[k, *np.random.default_rng(k).standard_normal(2)] for k in range(40)]
    for name, extra_rows in (("north", rows[:3]), ("south", [])):
        write_rows(tmp_path / f"{name}.csv", ["id", "x", "y"], [*rows, *extra_rows])
    notes = read_training([tmp_path / "north.csv", tmp_path / "south.csv"], target="y").notes
    assert [note.code for note in findings(notes)] == ["focal-in-source", "copied-rows"]
    assert '3 rows of "north.csv" repeat others' in "".join(notes)


@pytest.mark.parametrize("task", COPIES)
def test_findings_come_before_the_gain_everywhere(tmp_path, task):
    columns = table(task, copy=COPIES[task]["with gaps"](drawn()[3]))
    path = write_rows(tmp_path / "data.csv", list(columns), list(zip(*columns.values())))
    roles = ("--target", "y", "--domain", "site", "--focal", "a", "--linear")
    done = run("fit", path, *roles, "--out", tmp_path / "m.mixtune", "--report", tmp_path / "page.html")
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    assert text.startswith('Look at this first - column "copy" almost determines "y"')
    assert "--ignore copy" in text
    assert done.out.count("almost determines") == 1
    compared = run("compare", path, *roles, "--folds", "2")
    assert " ".join(compared.out.split()).startswith('Look at this first - column "copy" almost determines "y"')
    shown = as_json("fit", path, *roles)
    assert len(shown["findings"]) == 1
    assert list(shown).index("findings") < list(shown).index("verdict")
    model = fit_table(columns, target="y", domain="site", focal="a", linear=True)
    assert model.notes[0].code == model.estimator.notes_[0].code == "leak"
    pages = [tmp_path / "page.html", model.report(tmp_path / "fresh.html")]
    pages.append(mixtune.load(model.save(tmp_path / "again.mixtune")).report(tmp_path / "loaded.html"))
    for page in pages:
        html = page.read_text()
        assert html.index("almost determines") < html.index('id="verdict"')
        assert len(re.findall("almost determines", html.split("<script")[0])) == 1
    assert model._repr_html_().index("almost determines") < model._repr_html_().index("TableModel")


def test_every_domain_says_so_on_the_terminal_and_the_page(tmp_path):
    columns = table(copy=drawn()[3])
    path = write_rows(tmp_path / "data.csv", list(columns), list(zip(*columns.values())))
    roles = ("--target", "y", "--domain", "site", "--all", "--linear")
    done = run("fit", path, *roles, "--report", tmp_path / "page.html")
    assert done.out.startswith("Look at this first")
    html = (tmp_path / "page.html").read_text()
    assert html.index("almost determines") < html.index('id="verdict"')


@pytest.mark.parametrize("frame", [np.asarray, pd.DataFrame], ids=["array", "frame"])
@pytest.mark.parametrize("task", ["numbers", "two classes"])
def test_estimators_of_arrays_say_so(frame, task):
    _, a, b, y = drawn()
    X = np.stack([a, b, y**2 if task == "numbers" else np.where(y > 0, 3.0, 1.0)], axis=1)
    target = y if task == "numbers" else np.where(y > 0, "yes", "no")
    make = RegretOptimalRegressorCV if task == "numbers" else RegretOptimalClassifierCV
    made = (lambda rows: pd.DataFrame(rows, columns=["a", "b", "copy"])) if frame is pd.DataFrame else frame
    source = (made(np.vstack([X[30:], X[:15]])), np.concatenate([target[30:], target[:15]]))
    model = make(None).fit(made(X[:30]), target[:30], sources={"other": source})
    leak, repeated = model.notes_[:2]
    assert leak.startswith('column "copy" almost' if frame is pd.DataFrame else 'column "2" almost')
    assert repeated.startswith('15 of 30 focal rows also stand in "other"')
    assert (
        make(None).fit(made(X[:30, :2]) if frame is np.asarray else pd.DataFrame(X[:30, :2]), target[:30]).notes_ == ()
    )


def every_domain(task):
    """An estimator, and the inputs, targets and labels of three domains without any finding."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((240, 3))
    y = X[:, 0] * np.repeat([1.0, 2.0, -1.0], 80) + rng.standard_normal(240)
    kind = MultiDomainRegressor if task == "numbers" else MultiDomainClassifier
    bins = {"two classes": [0.0], "classes": [-0.5, 0.5]}
    target = y if task == "numbers" else np.array(["low", "middle", "high"])[np.digitize(y, bins[task])]
    return kind(None), X, y, target, np.repeat(["x", "y", "z"], 80)


@pytest.mark.parametrize("frame", ["array", "pandas", "polars", "arrow"])
@pytest.mark.parametrize("task", ["numbers", "two classes", "classes"])
def test_models_of_every_domain_say_so(frame, task, tmp_path):
    model, X, y, target, site = every_domain(task)
    names = ["a", "b", "copy"]
    made = {
        "array": np.asarray,
        "pandas": lambda rows: pd.DataFrame(rows, columns=names),
        "polars": lambda rows: pl.DataFrame(rows, schema=names),
        "arrow": lambda rows: pa.table(dict(zip(names, rows.T))),
    }[frame]
    assert model.fit(made(X), target, domain=site).notes_ == ()
    X[:, 2] = y**2 if task == "numbers" else np.unique(target, return_inverse=True)[1]
    # Rows of "x" stand in "y", too, and some of "z" stand there twice.
    X[80:92], X[200:230] = X[:12], X[165:195]
    target[80:92], target[200:230] = target[:12], target[165:195]
    order = np.random.default_rng(0).permutation(240)
    for rows in (np.arange(240), order):
        leak, shared, repeated, *_ = model.fit(made(X[rows]), target[rows], domain=site[rows]).notes_
        column = "2" if frame == "array" else "copy"
        assert leak == f'column "{column}" almost determines "y", or is determined by it; ' + (
            "leave it out if it is not known for new rows"
        )
        assert shared.startswith('12 rows stand in more than one of the domains "x", "y", target and all; leave each')
        assert repeated.startswith('30 rows repeat others of "z"')
    loaded = mixtune.load(model.save(tmp_path / "m.mixtune"))
    assert loaded.notes_ == model.notes_
    html = every_html(loaded)
    assert html.index("almost determines") < html.index('id="verdict"')


def test_models_of_every_domain_find_a_copy_in_the_rows_of_one():
    model, X, y, target, site = every_domain("numbers")
    X[80:160, 1] = y[80:160] ** 2
    (note,) = model.fit(X, target, domain=site).notes_
    assert note.startswith('column "1" almost determines "y" in the rows of "y", or is')
    model, X, _, target, site = every_domain("numbers")
    # A value that occurs once is no function of the target.
    X[:, 1], X[7, 1] = 5.0, 6.0
    assert findings(model.fit(X, target, domain=site).notes_) == []


def test_further_rows_are_looked_at_too():
    model, X, _, target, site = every_domain("numbers")
    model.fit(X[:160], target[:160], domain=site[:160])
    (note,) = model.partial_fit(X[:20], target[:20], domain=["z"] * 20).notes_
    assert note.startswith('20 rows stand in more than one of the domains "x", "z"')


def test_the_command_line_names_what_every_domain_shares(tmp_path):
    columns = table(copy=drawn()[3])
    for values in columns.values():
        values[30:45] = values[:15]
    columns["site"][30:45] = ["b"] * 15
    path = write_rows(tmp_path / "data.csv", list(columns), list(zip(*columns.values())))
    roles = ("--target", "y", "--domain", "site", "--all", "--linear")
    told = as_json("fit", path, *roles, "--out", tmp_path / "m.mixtune")["findings"]
    assert len(told) == 2
    assert told[0] == 'column "copy" almost determines "y", or is determined by it; ' + (
        "leave it out with --ignore copy if it is not known for new rows"
    )
    assert told[1].startswith('15 rows stand in more than one of the domains "a", "b"')
    assert [str(note) for note in mixtune.load(tmp_path / "m.mixtune").notes_[:2]] == [
        told[0].replace("--ignore copy", 'ignore="copy"'),
        told[1],
    ]


def test_streams_of_every_domain_say_so(tmp_path):
    _, a, b, y = drawn()
    site = np.repeat(["p", "q"], ROWS // 2)
    # The largest domain is not the focal one: what leaks in "q" alone is found, too.
    copy = np.where(site == "q", y**2, noise(1))
    path = write_rows(tmp_path / "data.csv", ["site", "a", "b", "copy", "y"], list(zip(site, a, b, copy, y)))
    told = as_json("fit", path, "--target", "y", "--domain", "site", "--all", "--linear", "--stream")["findings"]
    assert len(told) == 1
    assert told[0].startswith('column "copy" almost determines "y" in the rows of "q"')


def test_small_domains_are_not_looked_at_one_by_one():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((400, 1)), rng.standard_normal(400)
    site = np.repeat([f"s{k}" for k in range(20)], 20)
    # Of many small domains, a step is at the level of the targets in some by chance.
    X[:20, 0] = y[:20] > np.median(y[:20])
    assert MultiDomainRegressor(None).fit(X, y, domain=site).notes_ == ()


def test_findings_come_before_other_notes():
    model, X, _, target, site = every_domain("numbers")
    X = np.vstack([X, X[:30], [[0.0, 0.0, 0.0]]])
    target, site = np.append(target, [*target[:30], 0.0]), np.append(site, [*site[:30], "single"])
    repeated, single = model.fit(X, target, domain=site).notes_
    assert repeated.startswith('30 rows repeat others of "x"')
    assert single.startswith("1 domain has one row only")

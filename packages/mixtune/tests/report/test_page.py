"""The page about a fit: whole, the same each time, safe for any name, and true to the model."""

import base64
import copy
import hashlib
import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixtune.errors import DataError, ParameterError
from mixtune.estimators import (
    RegretOptimalClassifierCV,
    RegretOptimalRegressor,
    RegretOptimalRegressorCV,
    StreamedSources,
    column_effects,
    load,
)
from mixtune.features import RandomFeatures
from mixtune.report import model_facts, page_html, read_facts, report_html, write_report
from mixtune.report.facts import MethodFact
from mixtune.report.page import input_text, r2_text
from mixtune.report.verdict import HELP_MARGIN
from mixtune.report.wording import clean, escape

VOID = {"meta", "link", "br", "hr", "img", "input"}
HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(2)'>",
    "&lt;b&gt; & co",
    "🏫 école 学校 مدرسة",
    "x" * 300,
    "turned \u202e around \x00 \ud800",
    "</title></svg></style>",
]
SECTIONS = ["effects", "what-if", "datasets", "comparison", "rows", "misses", "removal", "spreads"]
SECTIONS += ["path", "average", "settings", "words"]


class Page(HTMLParser):
    """Reads a page strictly: every tag is closed in its turn, no id stands twice."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.ids, self.attributes, self.texts, self.cells = [], [], [], [], {}, {}
        self.title = ""
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"
        assert len(set(self.ids)) == len(self.ids)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in VOID:
            self.open.append((tag, dict(attributes)))

    def handle_startendtag(self, tag, attributes):
        assert "svg" in [name for name, _ in self.open], f"<{tag}/> closes itself only inside an SVG"
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        opened, _ = self.open.pop()
        assert opened == tag, f"</{tag}> closes <{opened}>"

    def handle_data(self, data):
        if [name for name, _ in self.open] == ["html", "head", "title"]:
            self.title += data
        for _, attributes in self.open:
            if "id" in attributes:
                self.texts[attributes["id"]] = self.texts.get(attributes["id"], "") + data
        if self.open and ("figure" in self.open[-1][1].get("class", "") or self.open[-1][0] == "td"):
            label = next((a["data-label"] for _, a in reversed(self.open) if "data-label" in a), "")
            self.cells.setdefault(label, []).append(data)

    def handle_pi(self, data):
        raise AssertionError(data)

    def unknown_decl(self, data):
        raise AssertionError(data)


def compared(*ratio):
    """A comparison in which mixtune's error relative to that of own rows alone is this, with its interval."""
    return (
        MethodFact("mixtune", 6.0, 0.1),
        MethodFact("own rows alone", 7.0, 0.1, *ratio),
        MethodFact("mean", 20.0, 0.1),
    )


HELPS = compared(0.86, 0.82, 0.91)


def read_compared(model, rows, methods):
    """The page, with another comparison."""
    return Page(page_html(replace(read_facts(model, **rows), compared=methods)))


def make_rows(n_sources, n_focal=20, *, names=None, outputs=None, seed=0):
    rng = np.random.default_rng(seed)

    def draw(n, shift):
        X = rng.standard_normal((n, 3))
        y = 60 + 10 * (X @ (np.array([1.0, -0.5, 0.3]) + shift) + 0.6 * rng.standard_normal(n))
        return X, y if outputs is None else np.stack([y * (k + 1) for k in range(outputs)], axis=1)

    X, y = draw(n_focal, 0.0)
    names = names or [f"school {k + 1}" for k in range(n_sources)]
    sources = {name: draw(int(rng.integers(8, 30)), rng.uniform(-0.4, 0.4)) for name in names}
    return {"X": X, "y": y, "sources": sources}


def fit(rows, estimator=None):
    return (estimator or RegretOptimalRegressorCV()).fit(rows["X"], rows["y"], sources=rows["sources"])


def read(model, rows, **options):
    text = report_html(model, **rows, **options)
    # What would show in attributes or words if a number had gone astray.
    assert not re.search(r'="[^"]*\b(nan|inf|None)\b', text)
    assert not re.search(r">[^<]*\b(nan|inf|None)\b", text)
    return Page(text)


@pytest.fixture(scope="module")
def rows():
    return make_rows(12)


@pytest.fixture(scope="module")
def fitted(rows):
    return fit(rows)


@pytest.fixture
def model(fitted):
    return copy.copy(fitted)


def test_the_page_is_whole_and_in_order(model, rows):
    page = read(model, rows, target="score")
    assert [name for name in page.ids if name in SECTIONS] == SECTIONS
    effects = read_facts(model, **rows).columns.effects.effects
    supported = {each.column for each in effects if each.low > 0 or each.high < 0}
    # Curves only of columns that the data support an effect of.
    assert 0 < len(supported) < 3
    assert page.tags.count("svg") == 6 + len(supported) + 3
    assert page.tags.count("desc") == 6 + len(supported) + 3
    labelled = [value.split() for name, value in page.attributes if name == "aria-labelledby"]
    assert all(part in page.ids for value in labelled for part in value)
    assert page.title == "Predicting score for focal"
    assert read(model, rows, title="A & B").title == "A & B"


def test_nothing_is_fetched_or_run(model, rows):
    text = report_html(model, **rows)
    # The numbers of the model are base64, in which anything may stand.
    parts = re.split(r'<script type="application/json" id="model">[^<]*</script>', text)
    assert len(parts) == 2
    text = "".join(parts)
    for outside in ("http:", "https:", "//", "src=", "url(", "@import", "@font-face", "javascript:", "fetch(", "eval("):
        assert outside not in text
    # The one script is the one whose hash the page allows.
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}';" in text


def test_the_same_model_gives_the_same_page(rows):
    model = fit(rows)
    first, second = (report_html(each, **rows) for each in (model, fit(rows)))
    assert first == second
    assert "2026-11-15" not in first
    assert "2026-11-15" in report_html(model, **rows, date="2026-11-15")


def test_names_never_become_markup():
    rows = make_rows(0, names=HOSTILE)
    model = fit(rows, RegretOptimalRegressorCV(focal_name="<b>focal</b>"))
    text = report_html(model, **rows, target="</h1><script>", settings={"<a>": "<b>"}, notes=["<i>note</i>"])
    page = Page(text)
    plain = read(fit(make_rows(7)), make_rows(7), notes=["note"])
    assert set(page.tags) == set(plain.tags)
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert list(page.tags).count("script") == list(plain.tags).count("script") == 2
    for name in HOSTILE:
        assert clean(name)[:30] in page.texts["datasets"]
    assert "\u202e" not in text
    text.encode("utf-8")


@given(st.text())
def test_escaped_text_reads_back_as_it_was(text):
    seen = []

    class Reader(HTMLParser):
        def handle_data(self, data):
            seen.append(data)

        def handle_starttag(self, tag, attributes):
            seen.extend(value for _, value in attributes)

    reader = Reader(convert_charrefs=True)
    reader.feed(f'<p title="{escape(text)}">{escape(text)}</p>')
    reader.close()
    assert seen[0] == clean(text)
    assert "".join(seen[1:]) == clean(text)


def surely(removal, change):
    """The removal with a change that is much larger than its uncertainty."""
    return replace(removal, change=change, change_low=change - 1e-4, change_high=change + 1e-4)


def told(model, effects):
    """Let the model say that leaving out its sources has these effects."""
    model.removal_effects = lambda: tuple(effects)


def test_changes_within_their_uncertainty_are_not_called_help_or_harm(model, rows):
    effects = model.removal_effects()
    told(model, [replace(r, change=0.02, change_low=-0.01, change_high=0.05) for r in effects])
    page = read(model, rows)
    assert page.texts["verdict"].endswith("; the focal rows cannot tell which of 12 datasets helped on its own.")
    assert "for 12 the focal rows cannot tell" in report_html(model, **rows)
    assert "badge helped" not in report_html(model, **rows)
    told(model, [surely(effects[0], 0.02), *model.removal_effects()[1:]])
    # Where the rows cannot tell whether transfer helps, no dataset is said to have helped.
    page = read_compared(model, rows, compared(1.0, 0.9, 1.1))
    assert page.texts["verdict"].endswith("(95% interval 10% higher to 10% lower).")
    page = read_compared(model, rows, HELPS)
    assert page.texts["verdict"].endswith(f'; 1 of 12 datasets helped ("{effects[0].name}").')


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([0.02] * 12, "; all 12 datasets helped."),
        ([0.02] * 5 + [-0.01] + [0.0] * 6, "; 5 of 12 datasets helped."),
        ([-0.02] + [0.0] * 11, "; none of 12 datasets helped on its own."),
        ([HELP_MARGIN] * 12, "; none of 12 datasets matters on its own."),
    ],
)
def test_datasets_that_helped_are_counted(changes, words, model, rows):
    told(model, [surely(r, c) for r, c in zip(model.removal_effects(), changes)])
    page = read_compared(model, rows, HELPS)
    assert page.texts["verdict"].endswith(words)
    assert page.texts["datasets"].count("helped") == sum(c > HELP_MARGIN for c in changes)
    assert page.texts["datasets"].count("hurt") == sum(c < -HELP_MARGIN for c in changes)


def test_removals_that_were_not_computed_do_not_print_as_nothing(model, rows):
    told(model, [surely(r, 0.02) for r in model.removal_effects()[:4]])
    page = read_compared(model, rows, HELPS)
    assert page.texts["verdict"].endswith("; all 4 datasets looked at helped.")
    assert len(page.cells["error changes by"]) == 4
    assert "This was not computed for the 8 datasets of little weight" in page.texts["removal"]
    told(model, [surely(r, 0.0) for r in model.removal_effects()])
    assert (
        read_compared(model, rows, HELPS)
        .texts["verdict"]
        .endswith("; none of the 4 datasets looked at matters on its own.")
    )


def test_numbers_are_those_of_the_model(model, rows):
    page = read(model, rows)
    weights = [float(text.rstrip("%")) for text in page.cells["weight"]]
    assert weights[0] == pytest.approx(100 * model.weights_.values[0], abs=0.051)
    assert weights[1:] == sorted(weights[1:], reverse=True)
    assert sum(weights) == pytest.approx(100, abs=0.05 * len(weights))
    assert f"{math.sqrt(model.loo_error_):.2f}" in page.texts["removal"]
    assert f"{model.distances_.sampling_floor.value:.3g}" in page.texts["datasets"]
    shown = [float(text.rstrip("%").replace("\u2212", "-")) for text in page.cells["error changes by"]]
    wanted = sorted((100 * r.change for r in model.removal_effects()), key=abs, reverse=True)
    np.testing.assert_allclose(shown, wanted, atol=0.051)
    ridges = [c.effective_ridge for c in model.candidates_]
    # The marked point is the candidate with the largest share.
    path = model.ridge_path_
    assert read_facts(model, **rows, explain=False).ridge.chosen == path.ridges[path.chosen] == ridges[0]
    assert path.loo_errors[path.chosen] == model.candidates_[0].loo_error
    assert f"{ridges[0]:.3g}" in page.texts["path"] or f"{ridges[0]:,.0f}" in page.texts["path"]
    assert f"{len(ridges)} candidate fits" in page.texts["average"]


def test_measures_and_effects_are_those_of_the_model(model, rows):
    page = read(model, rows, target="score", columns=["age", "size", "noise"], date="1 May 2026")
    names = ["mixtune", "own rows alone", "pooled", "boosted trees + domain", "predict the mean"]
    assert all(name in page.texts["comparison"] for name in names)
    assert len(page.cells["MAE"]) == len(names)
    misses = np.abs(rows["y"] - model.loo_predictions_)
    assert float(page.cells["MAE"][0]) == pytest.approx(model.comparison_[0].measures.mae, abs=0.01)
    effects = column_effects(model, columns=["age", "size", "noise"]).effects
    assert [float(text.replace("\u2212", "-")) for text in page.cells["change of score"]] == pytest.approx(
        [each.effect for each in effects], abs=0.06
    )
    assert page.texts["misses"].index(f"Row {np.argmax(misses) + 1}:") > 0
    facts = read_facts(model, **rows, columns=["age", "size", "noise"])
    worst = facts.columns.misses[0]
    assert worst.row == np.argmax(misses)
    assert sum(part for *_, part in worst.parts) == pytest.approx(worst.predicted - worst.average)
    for spread in facts.columns.spreads:
        assert (spread.focal.sum(), spread.sources.sum()) == pytest.approx((1.0, 1.0))
    text = page_html(facts, date="1 May 2026", inputs=["a<b>.csv"], command="mixtune fit 'a<b>.csv'")
    assert "1 May 2026; from a&lt;b&gt;.csv" in text
    assert "<code>mixtune fit" in text


def test_a_map_that_the_page_cannot_compute_is_said(rows):
    single = RandomFeatures(n_inputs=3, width=4, seed=0, dtype="float32")
    page = read(fit(rows, RegretOptimalRegressorCV(feature_map=single)), rows)
    assert "too large" in page.texts["what-if"]
    assert "model" not in page.ids


#: Runs the script of a page without a browser: sets all boxes of the panel to the values of each row.
ALONE = """
const [page, rows] = JSON.parse(require("fs").readFileSync(0, "utf8"));
const made = [], thing = tag => {
  const one = {tag, dataset: {}, append() {}, setAttribute() {}, heard: {},
    addEventListener(name, act) { one.heard[name] = act; }};
  made.push(one);
  return one;
};
const known = {model: {textContent: page.match(/id="model">([^<]*)</)[1]}};
globalThis.document = {
  querySelectorAll: () => [], createElement: thing, getElementById: id => known[id] = known[id] || thing(id)};
eval(page.match(/<script>([^]*?)<\\/script>/)[1]);
const boxes = made.filter(one => one.type === "number");
console.log(JSON.stringify(rows.map(row => {
  row.forEach((value, i) => { boxes[i].value = String(value); boxes[i].heard.input(); });
  return JSON.parse(known.prediction.dataset.value)[0];
})));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
@pytest.mark.parametrize("maps", ["kernel", "others"])
def test_the_page_predicts_as_python_does(maps, model, rows):
    if maps == "others":  # those of streams: splines, Fourier features, a random network and trees
        rows = {**rows, "sources": StreamedSources(rows["sources"], progress=False)}
        model = fit(rows)
        assert {each.name for each in model.maps_} >= {"inputs", "learned"}
    X = np.vstack([rows["X"][:5], rows["X"].mean(axis=0), 30 * rows["X"][:2]])
    given = json.dumps([report_html(model, **rows), X.tolist()])
    done = subprocess.run(["node", "-e", ALONE], input=given, capture_output=True, text=True, check=True)
    np.testing.assert_allclose(json.loads(done.stdout), model.predict(X), rtol=1e-7)


def test_what_the_prediction_comes_from(model, rows):
    page, facts = read(model, rows), read_facts(model, **rows, explain=False)
    assert (facts.kernel, facts.maps) == (True, ())
    shares = {}
    for each in model.candidates_:
        shares[each.family] = shares.get(each.family, 0.0) + each.share
    assert len(shares) > 1
    names = {
        "shared": "the shared function of all domains",
        "own curves": "own rows alone with the kernel of all domains",
        "focal only": "own rows alone",
    }
    first = max(shares, key=shares.get)
    assert facts.carried.startswith(f"{100 * shares[first]:.0f}% of the prediction comes from {names[first]}")
    assert report_html(model, **rows).count(facts.carried) == 2  # on top, and beside the table
    assert all(names[family].removeprefix("the ") in page.texts["average"] for family in shares)
    assert ("data-label", "features") not in page.attributes


@pytest.mark.parametrize(
    ("family", "start"), [("own curves", "towards zero"), ("shared", "towards what the other datasets suggest")]
)
def test_what_the_ridge_shrinks_towards(family, start, model, rows):
    model.candidates_ = (replace(model.candidates_[0], family=family), *model.candidates_[1:])
    assert start in read(model, rows).texts["path"]


def test_feature_maps_and_their_shares(rows):
    # Streams have other maps than the kernel.
    streamed = {**rows, "sources": StreamedSources(rows["sources"], progress=False)}
    model = fit(streamed)
    page, facts = read(model, streamed), read_facts(model, **streamed, explain=False)
    assert [each.name for each in facts.maps] == [each.name for each in model.maps_]
    assert len(facts.maps) > 1
    assert not facts.kernel
    assert facts.carried in page.texts["average"]
    assert report_html(model, **streamed).count(facts.carried) == 2  # on top, and beside the table
    assert page.attributes.count(("data-label", "features")) == len(model.maps_)
    shares = [float(text.rstrip("%")) for text in page.cells["share"][: len(model.maps_)]]
    np.testing.assert_allclose(shares, [100 * each.share for each in model.maps_], atol=0.051)


def test_distances_are_left_out_on_request(rows, monkeypatch):
    model = fit(rows)
    assert read_facts(model, **rows, explain=False).floor is not None
    monkeypatch.setattr(type(model), "distances_", property(lambda _: pytest.fail("distances were computed")))
    assert read_facts(model, **rows, explain=False, distances=False).floor is None


def test_one_map_is_not_worth_a_word(rows):
    linear = fit(rows, RegretOptimalRegressorCV(None))
    facts, page = read_facts(linear, **rows), read(linear, rows)
    assert (facts.maps, facts.carried) == ((), "")
    assert "feature map" not in page.texts["average"] + page.texts["comparison"]
    assert ("data-label", "features") not in page.attributes
    del linear.maps_  # as in files of earlier versions
    assert read_facts(linear, **rows).maps == ()


def test_shares_are_those_of_the_first_output():
    rows = make_rows(3, outputs=2)
    assert "of the first of 2 outputs" in read_facts(fit(rows), **rows).carried
    one = make_rows(3)
    assert "of the prediction" in read_facts(fit(one), **one).carried

    def label(y):
        return np.searchsorted(np.quantile(one["y"], [0.3, 0.6]), y)

    named = {"X": one["X"], "y": label(one["y"]), "sources": {k: (X, label(y)) for k, (X, y) in one["sources"].items()}}
    assert "of the first of 3 class scores" in read_facts(fit(named, RegretOptimalClassifierCV()), **named).carried


def test_without_sources():
    page = read(fit(bare := make_rows(0) | {"sources": None}), bare)
    assert page.texts["verdict"].startswith("No other datasets were given")
    assert not {"datasets", "comparison", "removal"} & set(page.ids)
    assert {"rows", "average", "settings", "words"} <= set(page.ids)


def test_one_source():
    page = read(fit(rows := make_rows(1)), rows)
    assert re.search("the one other dataset (helped|did not clearly help)", page.texts["verdict"])


def test_two_hundred_sources_fold_away():
    page = read(fit(rows := make_rows(200), RegretOptimalRegressorCV(None)), rows)
    # Two long tables, the details of the choice, the bound, the largest errors, and how to read four of the sections.
    assert page.tags.count("details") == 2 + 1 + 1 + 5 + 4
    assert "185 more datasets with" in page.texts["datasets"]
    assert all(f"school {k + 1}" in page.texts["datasets"] for k in range(200))


@pytest.mark.parametrize(("outputs", "charts", "words"), [(2, 4, "each has its own"), (5, 2, "show the first")])
def test_several_outputs(outputs, charts, words):
    rows = make_rows(4, outputs=outputs)
    page = read(fit(rows), rows, target=[f"mark {k}" for k in range(outputs)])
    curves = sum(bool(re.fullmatch(r"curve\d+-t", name)) for name in page.ids)
    assert page.tags.count("svg") == 4 + charts + curves + 3
    assert words in page.texts["rows"]
    assert "mark 0" in page.texts["rows"]


@pytest.mark.parametrize("levels", [2, 3])
def test_classes(levels):
    rows = make_rows(4, 40)
    cuts = np.quantile(rows["y"], np.linspace(0, 1, levels + 1)[1:-1])

    def label(y):
        return np.array([f"<{k}>" for k in range(levels)])[np.searchsorted(cuts, y)]

    rows = {
        "X": rows["X"],
        "y": label(rows["y"]),
        "sources": {k: (X, label(y)) for k, (X, y) in rows["sources"].items()},
    }
    model = fit(rows, RegretOptimalClassifierCV())
    page = read(model, rows)
    scores = model.regressor_.loo_predictions_
    guessed = np.where(scores > 0, 1, 0) if levels == 2 else scores.argmax(axis=1)
    right = int(np.sum(model.classes_[guessed] == rows["y"]))
    assert f"{right} of 40 are correct" in page.texts["rows"]
    counts = [int(text) for k in range(levels) for text in page.cells[f"predicted <{k}>"]]
    assert sum(counts) == 40
    assert "Calibration of the probabilities" in page.texts["rows"]
    accuracy = model.comparison_[0].measures.accuracy
    assert float(page.cells["accuracy"][0].rstrip("%")) == pytest.approx(100 * accuracy, abs=0.051)
    assert all(page.cells[name] for name in ("log loss", "AUC"))
    assert "the probability of" in page.texts["effects"]


def test_few_rows_say_what_is_missing():
    few = read(fit(rows := make_rows(3, 4)), rows)
    assert "No 90% intervals" in few.texts["rows"]
    rows = make_rows(3, 1)
    one = read(fit(rows), rows)
    assert "Add focal rows before you rely on this model" in report_html(fit(rows), **rows)
    assert "∞" not in "".join(one.texts.values())
    assert "fits the focal rows" not in one.texts["datasets"]


def test_a_handful_of_rows_does_not_tell_which_datasets_helped():
    changes = re.compile('class="badge (helped|hurt)"')
    shown = []
    for rows in (make_rows(6, 8), make_rows(6, 7)):
        model = fit(rows)
        told(model, [surely(each, 0.02) for each in model.removal_effects()])
        shown.append(bool(changes.search(report_html(model, **rows))))
    assert shown == [True, False]
    few = read(fit(rows := make_rows(6, 7)), rows)
    assert "7 focal rows cannot tell which datasets helped" in "".join(few.texts.values())
    assert "mostly chance" in few.texts["removal"]


@pytest.mark.parametrize("scale", [1e-9, 1e12])
def test_any_unit(scale):
    rows = make_rows(3)
    rows = rows | {"y": rows["y"] * scale, "sources": {k: (X, y * scale) for k, (X, y) in rows["sources"].items()}}
    read(fit(rows), rows)


def test_a_constant_target():
    rows = make_rows(3)
    rows = rows | {
        "y": np.full(20, 5.0),
        "sources": {k: (X, np.full(len(X), 5.0)) for k, (X, _) in rows["sources"].items()},
    }
    read(fit(rows), rows)


def test_streamed_sources(rows):
    streamed = {**rows, "sources": StreamedSources(rows["sources"], sample_rows=25, progress=False)}
    model = fit(streamed)
    facts = read_facts(model, **streamed)
    assert {each.name: each.rows for each in facts.sources} == {
        name: len(y) for name, (_, y) in rows["sources"].items()
    }
    assert "at most 25 rows" in report_html(model, **streamed)


def test_a_model_from_a_file(model, rows, tmp_path):
    model.save(tmp_path / "a.mixtune")
    page = read(load(tmp_path / "a.mixtune"), rows)
    assert "Fit again to see them" in page.texts["removal"]
    assert re.search(
        r"the \d+ other datasets have \d+% of the weight", report_html(load(tmp_path / "a.mixtune"), **rows)
    )


def test_settings_hold_no_addresses(rows):
    class Plain:
        def transform(self, X):
            return X

    text = report_html(fit(rows, RegretOptimalRegressorCV(Plain())), **rows)
    assert "0x" not in text
    assert "Plain" in text


def test_other_rows_are_refused(model, rows):
    with pytest.raises(DataError, match="fitted to 20 focal rows"):
        report_html(model, **rows | {"X": rows["X"][:5], "y": rows["y"][:5]})
    with pytest.raises(DataError, match="only in one of the two, such as 'school 1'"):
        report_html(model, **rows | {"sources": {k: v for k, v in rows["sources"].items() if k != "school 1"}})
    with pytest.raises(DataError, match="X has 5 rows"):
        report_html(model, **rows | {"X": rows["X"][:5]})
    with pytest.raises(DataError, match="RegretOptimalRegressorCV"):
        report_html(fit(rows, RegretOptimalRegressor()), **rows)


def test_the_file_is_whole_or_not_there(model, rows, tmp_path):
    path = write_report(tmp_path / "report.html", model, **rows)
    assert path.read_text(encoding="utf-8") == report_html(model, **rows)
    with pytest.raises(DataError, match="only in one"):
        write_report(path, model, **rows | {"sources": None})
    assert path.read_text(encoding="utf-8") == report_html(model, **rows)
    with pytest.raises(DataError, match="is a folder"):
        write_report(tmp_path, model, **rows)
    with pytest.raises(DataError, match="does not exist"):
        write_report(tmp_path / "no" / "report.html", model, **rows)


def test_the_bound_is_that_of_the_theorem_at_the_models_weights():
    rng = np.random.default_rng(0)
    draw = lambda rows, shift: (X := rng.standard_normal((rows, 2)), X.sum(axis=1) + shift)  # noqa: E731
    (X, y), sources = draw(20, 0.0), {"a": draw(60, 0.1), "b": draw(50, 2.0)}
    model = RegretOptimalRegressor(weights="wasserstein").fit(X, y, sources=sources)
    found, weights = model_facts(model).bound, model.weights_
    costs = np.array([d.value for d in weights.distances]) + np.array([20, 60, 50]) ** (-1 / 3)
    assert found.power == pytest.approx(weights.values @ costs)
    assert found.alone == pytest.approx(20 ** (-1 / 3))
    assert found.confidence == pytest.approx(np.sqrt(np.log(2 * 3 / 0.05) / 40))
    assert f"at most {found.power + found.confidence:.3g}" in found.lines[0]
    assert f"is {model.bound_gain_:+.3g};" in found.lines[1]
    assert "says nothing" in replace(found, power=0.9).lines[0]
    # Without distances, or with too few columns, there is none.
    assert model_facts(RegretOptimalRegressor().fit(X, y, sources=sources)).bound is None
    narrow = {name: (U[:, :1], v) for name, (U, v) in sources.items()}
    assert model_facts(RegretOptimalRegressor(weights="wasserstein").fit(X[:, :1], y, sources=narrow)).bound is None


def test_the_first_three_lines_are_for_everybody(model, rows):
    page = read(model, rows, target="score")
    told = page.texts["brief"]
    for name in ("What was predicted", "How well", "What to do", "score for focal, from 20 rows of its own"):
        assert name in told
    for each in read_facts(model, **rows, explain=False).compared:
        assert f"{each.error:.3g}" in told
    pooled = (*compared(0.86, 0.82, 0.91)[:2], MethodFact("pooled", 5.0, 0.1, 1.2, 1.1, 1.3))
    page = read_compared(model, rows, pooled)
    assert "Use one fit to all rows pooled." in page.texts["brief"]
    assert "fit_table(..., method='pooled')" in page.texts["brief"]
    assert page.ids.index("brief") < page.ids.index("verdict")


def test_years_have_no_separators_and_nearly_all_is_not_all():
    assert input_text(1975.0) == "1975"
    assert input_text(12304.0) == "12,304"
    assert r2_text(0.998) == "0.998"
    assert r2_text(1.0) == "1"


def test_a_report_under_the_name_of_a_pdf_says_how_to_print(model, tmp_path):
    with pytest.raises(ParameterError, match=r"write .*page\.html, open it in a browser and print it"):
        model.report(tmp_path / "page.pdf")
    assert not (tmp_path / "page.pdf").exists()

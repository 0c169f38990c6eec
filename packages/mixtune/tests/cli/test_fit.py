"""``mixtune fit``: what it prints, keeps and refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cli.command_line import SITES, as_json, in_process, refused, run, sites, write_rows
from mixtune.data import read_training
from mixtune.estimators import RegretOptimalClassifierCV, load, read_info


@pytest.fixture
def data(tmp_path):
    return sites(tmp_path / "data.csv")


def test_the_whole_way_as_a_user_runs_it(tmp_path, data):
    model, page = tmp_path / "model.mixtune", tmp_path / "report.html"
    done = in_process("fit", data, *SITES, "--out", model, "--report", page)
    assert done.code == 0, done.err
    assert done.err == ""
    assert done.out.startswith(("Transfer ", "12 focal rows cannot tell "))
    for words in (
        "Which domains count",
        "berlin (focal)",
        "paris",
        "moscow",
        "boosted trees",
        "predict the mean",
        "MAE",
        "Next: mixtune predict",
    ):
        assert words in done.out
    assert max(len(line) for line in done.out.splitlines() if str(tmp_path) not in line) <= 80
    assert page.read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html")
    assert read_info(model).metadata["encoder"]["focal"] == "berlin"


def test_kept_model_is_the_one_that_was_fitted(tmp_path, data):
    facts = as_json("fit", data, *SITES, "--out", tmp_path / "model.mixtune")
    model, read = load(tmp_path / "model.mixtune"), read_training(data, target="y", domain="site", focal="berlin")
    weights = {domain["name"]: domain["weight"] for domain in facts["domains"]}
    assert weights == pytest.approx(model.weights_.as_dict())
    assert sum(weights.values()) == pytest.approx(1.0)
    assert weights["paris"] > weights["moscow"]
    assert facts["domains"][0] == {**facts["domains"][0], "name": "berlin", "focal": True, "rows": 12}
    assert facts["loo_rmse"] == pytest.approx(model.loo_error_**0.5)
    mean = np.mean((read.domains.focal_domain.y - model.loo_predictions_) ** 2)
    assert facts["loo_rmse"] == pytest.approx(mean**0.5)
    assert [row["method"] for row in facts["comparison"]] == [
        *("mixtune", "own rows alone", "pooled", "boosting", "mean")
    ]
    assert [row["error"] for row in facts["comparison"]] == [each.error for each in model.comparison_]
    assert facts["verdict"].startswith(("Transfer ", "12 focal rows cannot tell "))
    assert facts["written"] == {"model": str(tmp_path / "model.mixtune"), "report": None}


def test_one_file_a_domain_gives_the_same(tmp_path, data):
    together = as_json("fit", data, *SITES)
    lines = data.read_text().splitlines()
    files = []
    for site in ("berlin", "paris", "moscow"):
        files.append(tmp_path / f"{site}.csv")
        rows = [line.split(",", 1)[1] for line in lines if line.startswith((site, "site"))]
        files[-1].write_text("\n".join(rows) + "\n")
    # A pattern such as *.csv names the focal file again.
    apart = as_json("fit", *files, files[0], "--target", "y")
    assert apart["focal"] == "berlin"
    for one, other in zip(apart["domains"], together["domains"], strict=True):
        assert one == pytest.approx(other)
    assert apart["notes"][0] == "1 file given more than once; each is read once"


def test_json_is_json_alone_and_repeats(data):
    done = in_process("fit", data, *SITES, "--json")
    assert (done.code, done.err) == (0, "")
    facts, again = json.loads(done.out), as_json("fit", data, *SITES)
    assert facts.pop("seconds") > 0
    again.pop("seconds")
    assert facts == again


def test_without_out_it_says_that_nothing_was_kept(data):
    done = run("fit", data, *SITES)
    assert done.code == 0
    assert "The model was not saved; pass --out model.mixtune to save it." in done.out


def test_outputs_are_checked_before_the_work(tmp_path, data):
    # The file to read does not exist: what is refused here is refused before it is looked at.
    begin = ("fit", tmp_path / "nowhere.csv", *SITES)
    (tmp_path / "old.mixtune").write_text("old")
    assert "exists; give another name, or --force" in refused(*begin, "--out", tmp_path / "old.mixtune")
    assert "there is no folder" in refused(*begin, "--out", tmp_path / "no" / "model.mixtune")
    assert "is a folder" in refused(*begin, "--out", tmp_path)
    assert "must end in .html" in refused(*begin, "--report", tmp_path / "page.pdf")
    page = tmp_path / "a.html"
    assert "is also --out" in refused(*begin, "--out", page, "--report", page)
    assert "is also an input" in refused("fit", data, *SITES, "--out", data, "--force")
    assert (tmp_path / "old.mixtune").read_text() == "old"


def test_force_replaces(tmp_path, data):
    out = tmp_path / "model.mixtune"
    out.write_text("old")
    assert run("fit", data, *SITES, "--out", out, "--force").code == 0
    assert load(out).domain_names_[0] == "berlin"


def test_what_the_prediction_comes_from_is_said(tmp_path, data):
    out, page = tmp_path / "model.mixtune", tmp_path / "report.html"
    facts = as_json("fit", data, *SITES, "--out", out, "--report", page)
    shares = {}
    for each in load(out).candidates_:
        shares[each.family] = shares.get(each.family, 0.0) + each.share
    assert shares["shared"] > 0.995
    words = facts["carried_by"]
    assert words.endswith("ll of the prediction comes from the shared function of all domains.")
    assert words in page.read_text(encoding="utf-8")
    for command in (("fit", data, *SITES), ("inspect", out)):
        assert words in " ".join(run(*command).out.split())
    kept = as_json("inspect", out)
    assert (kept["carried_by"], kept["maps"], facts["maps"]) == (words, [], [])
    assert "a kernel over all domains, made from the rows" in run("inspect", out).out


def test_what_carries_the_prediction_is_said(tmp_path):
    rng = np.random.default_rng(0)
    rows = [[site, x := rng.normal(), int(x > 0)] for site in "ab" for _ in range(12)]
    file = write_rows(tmp_path / "data.csv", ["site", "x", "y"], rows)
    # Of two values, a Gaussian process is not the best model: the other maps are averaged.
    asked = (file, "--target", "y", "--domain", "site", "--focal", "a", "--target-kind", "number")
    out, page = tmp_path / "model.mixtune", tmp_path / "report.html"
    facts = as_json("fit", *asked, "--out", out, "--report", page)
    maps = load(out).maps_
    assert {each.name for each in maps} == {"inputs", "splines", "Fourier"}
    told = [(each["name"], each["share"], each["features"], each["loo_rmse"]) for each in facts["maps"]]
    assert told == [(m.name, pytest.approx(m.share), m.n_features, pytest.approx(m.loo_error**0.5)) for m in maps]
    shares = {"inputs": "the columns themselves", "splines": "splines", "Fourier": "random Fourier features"}
    words = facts["carried_by"]
    assert words.lower().startswith(f"{shares[maps[0].name]} carry ".lower())
    assert words.endswith(".")
    assert words in page.read_text(encoding="utf-8")
    for command in (("fit", *asked), ("inspect", out)):
        assert words in " ".join(run(*command).out.split())
    kept = as_json("inspect", out)
    assert (kept["carried_by"], kept["maps"]) == (words, facts["maps"])
    assert "3 maps made from the rows" in run("inspect", out).out


@pytest.mark.parametrize("one_map", [("--linear",), ("--random-features", "5")])
def test_nothing_is_said_of_one_map(tmp_path, data, one_map):
    page = tmp_path / "report.html"
    facts = as_json("fit", data, *SITES, *one_map, "--report", page)
    assert (facts["carried_by"], facts["maps"]) == (None, [])
    assert "carry" not in run("fit", data, *SITES, *one_map).out + page.read_text(encoding="utf-8")


def test_a_linear_model(tmp_path, data):
    out = tmp_path / "model.mixtune"
    assert run("fit", data, *SITES, "--linear", "--out", out).code == 0
    model, read = load(out), read_training(data, target="y", domain="site", focal="berlin")
    assert model.feature_map is None
    X = read.domains.focal_domain.X
    np.testing.assert_allclose(model.predict(X), X @ model.coef_ + model.intercept_)
    assert read_info(out).metadata["settings"] == {"random_features": None, "seed": 0, "linear": True}
    message = refused("fit", tmp_path / "nowhere.csv", *SITES, "--linear", "--random-features", "5")
    assert message == "--linear and --random-features exclude each other; leave one of them out"


def test_random_features_are_kept_with_the_model(tmp_path, data):
    out = tmp_path / "model.mixtune"
    assert run("fit", data, *SITES, "--out", out, "--random-features", "20", "--seed", "3").code == 0
    model = load(out)
    assert model.feature_map.n_features_out == 22
    assert model.coef_.shape == (22,)
    assert read_info(out).metadata["settings"] == {"random_features": 20, "seed": 3}
    read = read_training(data, target="y", domain="site", focal="berlin")
    hidden = model.feature_map.maps[1]
    np.testing.assert_allclose(hidden.input_shift, np.vstack([each.X for each in read.domains]).mean(axis=0))


def test_random_features_on_a_device_give_the_same(data):
    torch = pytest.importorskip("torch")
    asked = ["fit", data, *SITES, "--random-features", "20"]
    here, there = (as_json(*asked, "--device", device) for device in ("cpu", "torch:cpu"))
    assert there["loo_rmse"] == pytest.approx(here["loo_rmse"], rel=1e-6)
    weights = [{each["name"]: each["weight"] for each in facts["domains"]} for facts in (here, there)]
    assert weights[1] == pytest.approx(weights[0], rel=1e-5)
    if not torch.cuda.is_available():
        done = run(*asked, "--device", "cuda")
        assert done.code == 2
        assert "finds no CUDA devices" in " ".join(done.err.split())


def test_semicolons_decimal_commas_and_missing_values(tmp_path):
    rows = [
        ["a", "1,5", "x", "2,5"],
        ["a", "", "y", "1"],
        ["a", "0,5", "x", "2"],
        ["a", "2", "y", "3"],
        ["b", "3", "x", "4"],
    ]
    rows += [["b", "2,5", "y", "3,5"], ["b", "1,5", "x", "2"]]
    file = write_rows(tmp_path / "data.csv", ["Ort", "Größe [m²]", "Art", "Preis €"], rows, ";")
    common = ("fit", file, "--target", "Preis €", "--domain", "Ort", "--focal", "a")
    found = as_json(*common)
    assert '"data.csv" is read with semicolons between its columns and numbers with decimal commas' in found["notes"]
    read = (*common, "--separator", ";", "--decimal", ",")
    message = refused(*read, "--missing", "refuse")
    assert "--missing impute" in message
    assert "in Python" not in message
    facts = as_json(*read)
    assert facts["columns"] == found["columns"] == ["Größe [m²]", "Größe [m²] (missing)", "Art=y"]
    assert facts["domains"] == found["domains"]
    assert any("missing values were imputed" in note for note in facts["notes"])
    out = tmp_path / "a model.mixtune"
    done = run(*read, "--out", out)
    assert done.out.rstrip().endswith(f"Next: mixtune predict '{out}' new.csv --separator ';' --decimal ,")


def test_one_focal_row_has_no_spread(tmp_path):
    data = sites(tmp_path / "data.csv", rows=(1, 40, 40))
    facts = as_json("fit", data, *SITES)
    assert facts["comparison"] == []
    assert facts["transfer_gain"] is None
    assert "Add focal rows before you rely on this model" in facts["next"]


def test_columns_are_those_of_the_table(data):
    out = run("fit", data, *SITES).out
    assert 'Predicts "y" for "berlin" from 2 columns;' in out
    assert 'Errors on 12 unseen rows of "berlin"' in out


def test_a_domain_column_in_several_files_takes_a_stream(tmp_path, data):
    assert "goes with one file, 2 are given; add --stream" in refused("fit", data, tmp_path / "more.csv", *SITES)
    assert "is a folder; add --stream" in refused("fit", tmp_path, *SITES)


def test_classes(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        [site, x := rng.normal(), "yes" if x + 0.3 * rng.normal() > 0 else "no"] for site in "ab" for _ in range(25)
    ]
    file = write_rows(tmp_path / "data.csv", ["site", "x", "sold"], rows)
    arguments = ("fit", file, "--target", "sold", "--domain", "site", "--focal", "a")
    facts = as_json(*arguments)
    assert facts["classes"] == ["no", "yes"]
    model = RegretOptimalClassifierCV(focal_name="a")
    split = {site: np.array([row[1:] for row in rows if row[0] == site]) for site in "ab"}
    numbers = {site: (part[:, :1].astype(float), part[:, 1]) for site, part in split.items()}
    scores = model.fit(*numbers["a"], sources={"b": numbers["b"]}).regressor_.loo_predictions_
    right = int(np.sum(np.where(scores > 0, "yes", "no") == numbers["a"][1]))
    assert (facts["loo_right"], facts["loo_rows"]) == (right, 25)
    done = run(*arguments)
    assert "of the class scores" in done.out
    assert "log loss" in done.out
    assert facts["metric"] == "log loss"


def test_names_cannot_act_on_the_terminal(tmp_path):
    rows = [[site, i, 2 * i + (site != "[red]a")] for site in ("[red]a", "b\x1b[2Jc") for i in range(8)]
    file = write_rows(tmp_path / "data.csv", ["site", "x\ny", "t"], rows)
    done = run("fit", file, "--target", "t", "--domain", "site", "--focal", "[red]a", "--out", tmp_path / "m.mixtune")
    assert done.code == 0, done.err
    assert "[red]a (focal)" in done.out
    assert "\x1b" not in done.out + run("inspect", tmp_path / "m.mixtune").out
    # A message stays one line, whatever the names in it.
    assert '"x y"' in refused("fit", file, "--target", "t", "--domain", "site", "--focal", "a", "--ignore", "x\nz")


def test_names_that_look_like_settings_are_shown_as_they_are(tmp_path, data):
    assert '"focal=x"' in refused("fit", data, *SITES[:4], "--focal", "focal=x")
    assert '"decimal=a"' in refused("fit", data, *SITES, "--ignore", "decimal=a")


def test_usage_mistakes_end_with_2(data):
    for arguments in (("fit",), ("fit", data), ("fit", data, *SITES, "--seed", "-1"), ("fit", data, *SITES, "--wat")):
        done = run(*arguments)
        assert done.code == 2
        assert done.out == ""
        assert "Traceback" not in done.err


@pytest.mark.parametrize("command", ["fit", "predict", "inspect", "compare", "demo"])
def test_help_has_examples_and_exit_codes(command):
    done = run(command, "--help", columns="120")
    assert done.code == 0
    assert f"mixtune {command}" in done.out.split("Examples:")[1]
    assert "Exit code 0" in done.out


def test_problems_stand_before_the_gain(tmp_path):
    rng = np.random.default_rng(0)
    rows = []
    for site, count in (("a", 4), ("b", 40), ("c", 40)):
        rows += [[site, f"case-{site}{k}", x := rng.normal(), 2 * x + rng.normal()] for k in range(count)]
    file = write_rows(tmp_path / "data.csv", ["site", "case", "x", "y"], rows)
    asked = ("fit", file, "--target", "y", "--domain", "site", "--focal", "a")
    findings = as_json(*asked)["findings"]
    assert '"case"' in findings[0]
    assert findings[1].startswith("only 4 focal rows")
    printed = " ".join(run(*asked).out.split())
    assert printed.index("Look at this first") < printed.index("only 4 focal rows") < printed.index("Predicts")
    assert printed.index("only 4 focal rows") < printed.index("helps")

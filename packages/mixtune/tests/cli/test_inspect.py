"""``mixtune inspect``: what a model file says."""

from __future__ import annotations

from cli.command_line import SITES, as_json, refused, run, sites
from mixtune.estimators import LocalRegressor


def test_a_model_of_fit(tmp_path):
    model = tmp_path / "model.mixtune"
    fitted = as_json("fit", sites(tmp_path / "data.csv"), *SITES, "--out", model)
    done = run("inspect", model)
    assert done.code == 0, done.err
    assert fitted["verdict"] in " ".join(done.out.split())
    for words in (
        "y (a number)",
        "berlin",
        '"data.csv"',
        "92 in 3 domains",
        '2 categories: "blue", "red"',
        "Which domains",
        "Which columns drive the prediction",
        "predict the mean",
    ):
        assert words in done.out
    assert str(tmp_path) not in done.out  # where the training file lay stays private
    assert max(len(line) for line in done.out.splitlines() if not line.startswith("made with")) <= 80
    facts = as_json("inspect", model)
    for name in ("domains", "comparison", "transfer_gain", "loo_rmse", "effective_ridge", "bound", "notes"):
        assert facts[name] == fitted[name], name
    assert facts["bound"]["total"] == facts["bound"]["power"] + facts["bound"]["confidence"]
    assert "Details: the paper's bound (Theorem 1)" in done.out
    assert "Assumed: the rows of each domain are independent draws" in " ".join(done.out.split())
    assert facts["metadata"]["effects"] == fitted["effects"]
    assert {each["column"] for each in fitted["effects"]} == {"size", "colour"}
    assert facts["created_with"]["mixtune"]
    assert facts["not_loaded"] is None


def test_notes_do_not_say_where_the_files_lay(tmp_path):
    data, model = sites(tmp_path / "data.csv"), tmp_path / "model.mixtune"
    data.write_text(data.read_text() + "paris,1.0,red,\n")
    fitted = run("fit", data, *SITES, "--drop-missing-target", "--out", model, "--report", tmp_path / "r.html")
    assert fitted.code == 0, fitted.err
    (note,) = as_json("inspect", model)["notes"]
    assert note == '1 row of "data.csv" without a target is left out'
    assert str(tmp_path) not in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_a_model_saved_in_python(tmp_path):
    path = LocalRegressor().fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0]).save(tmp_path / "own.mixtune")
    done = run("inspect", path)
    assert done.code == 0, done.err
    assert "LocalRegressor" in done.out
    assert "Saved in Python" in done.out
    assert as_json("inspect", path)["domains"] == [{"name": "focal", "focal": True}]


def test_metadata_of_another_kind(tmp_path):
    model = LocalRegressor().fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    odd = {"rows": {"focal": "many"}, "notes": "none", "files": {"a": 1}, "verdict": 3, "encoder": "no"}
    done = run("inspect", model.save(tmp_path / "own.mixtune", metadata=odd))
    assert done.code == 0, done.err
    damaged = model.save(tmp_path / "damaged.mixtune", metadata={"encoder": {"version": 1, "columns": 3}})
    assert "damaged" in refused("inspect", damaged)
    assert "damaged" in refused("predict", damaged, damaged)


def test_one_that_needs_a_map_from_python(tmp_path):
    class Twice:
        n_features_out = 1

        def transform(self, X):
            return 2 * X

    model = LocalRegressor(Twice()).fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    path = model.save(tmp_path / "own.mixtune", store_feature_map=False)
    done = run("inspect", path)
    assert done.code == 0, done.err
    assert "feature_map" in done.out
    assert as_json("inspect", path)["not_loaded"]


def test_what_is_no_model(tmp_path):
    (tmp_path / "a.mixtune").write_text("hello")
    assert "a.mixtune" in refused("inspect", tmp_path / "a.mixtune")
    assert "there is no file" in refused("inspect", tmp_path / "b.mixtune")

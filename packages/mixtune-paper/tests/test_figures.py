"""Figures are drawn from summaries, with the same bytes each time."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from mixtune.report import write_figure
from mixtune_paper import run_study
from mixtune_paper._figures import FIGURES, draw
from mixtune_paper.convergence import FIGURE_1, ConvergenceSettings, NetworkData
from mixtune_paper.robustness import ROBUSTNESS, RobustnessSettings

DATA = NetworkData(n_domains=3, n_rows=8, width=10)


@pytest.fixture(scope="module")
def summaries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studies")
    one = ConvergenceSettings(data=DATA, horizon=20, descent_steps=60, descent_every=10, learning_rate=1e-4)
    two = replace(one, transfers=(1e-2, 2.0), descent_steps=0)
    exploding = replace(one, learning_rate=1.0)
    attack = RobustnessSettings(data=DATA, epsilons=(1e-3, 1e-2), shares=(0.1, 1.0), trials=2, steps=(0.1, 1.0))
    studies = {
        "figure1": replace(FIGURE_1, settings=one),
        "figure2": replace(FIGURE_1, name="figure2", settings=two),
        "robustness": replace(ROBUSTNESS, settings=attack),
        "exploding": replace(FIGURE_1, name="exploding", settings=exploding),
    }
    return {name: run_study(study, out=folder, runs=2) for name, study in studies.items()}


@pytest.mark.parametrize("name", ["figure1", "figure2", "robustness"])
def test_figures_are_saved(name, summaries, tmp_path):
    pytest.importorskip("matplotlib")
    png, svg = write_figure(partial(draw, name, summaries[name]), tmp_path, name)
    assert (png.name, svg.name) == (f"{name}.png", f"{name}.svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in svg.read_text()
    assert name in FIGURES
    if name == "figure2":  # the same summary gives the same bytes
        (tmp_path / "again").mkdir()
        again = write_figure(partial(draw, name, summaries[name]), tmp_path / "again", name)
        assert [path.read_bytes() for path in again] == [png.read_bytes(), svg.read_bytes()]


def test_figure_1_has_the_papers_panels(summaries):
    pytest.importorskip("matplotlib")
    left, middle, right = draw("figure1", summaries["figure1"]).axes
    assert [len(axes.lines) for axes in (left, middle, right)] == [6, 6, 4]
    assert left.get_xlim() == (0, 60)
    assert middle.get_xlim() == (0, 20)
    assert right.get_xlim() == (10, 20)
    energy = middle.lines[1]
    assert energy.get_label() == "RO energy"
    assert np.array_equal(energy.get_ydata(), summaries["figure1"].series[0].energy_mean)


def test_a_figure_without_descent_can_be_drawn(summaries):
    """When gradient descent exploded in every run there is no curve of it, and the title says so."""
    pytest.importorskip("matplotlib")
    figure = draw("figure1", summaries["exploding"])
    assert [len(axes.lines) for axes in figure.axes] == [4, 4, 4]
    assert "GD 0 of them" in figure.get_suptitle()


def test_global_state_is_left_alone(summaries):
    matplotlib = pytest.importorskip("matplotlib")
    before = dict(matplotlib.rcParams)
    draw("figure2", summaries["figure2"])
    assert dict(matplotlib.rcParams) == before

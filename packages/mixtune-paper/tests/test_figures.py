"""Figures are drawn by ``mixtune reproduce`` from what its runs found, with the same bytes each time."""

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from mixtune.cli import make_app
from mixtune_paper import convergence, robustness
from mixtune_paper.convergence import ConvergenceSettings, NetworkData
from mixtune_paper.robustness import RobustnessSettings

DATA = NetworkData(n_domains=3, n_rows=8, width=10)
ONE = ConvergenceSettings(data=DATA, horizon=20, descent_steps=60, descent_every=10, learning_rate=1e-4)
TWO = replace(ONE, transfers=(1e-2, 2.0), descent_steps=0)
ATTACK = RobustnessSettings(data=DATA, epsilons=(1e-3, 1e-2), shares=(0.1, 1.0), trials=2, steps=(0.1, 1.0))


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Run a small study and return its two pictures."""
    pytest.importorskip("matplotlib")

    def run(name, folder="results", learning_rate=1e-4):
        one = replace(ONE, learning_rate=learning_rate)
        monkeypatch.setattr(convergence, "FIGURE_1", replace(convergence.FIGURE_1, settings=one))
        monkeypatch.setattr(convergence, "FIGURE_2", replace(convergence.FIGURE_2, settings=TWO))
        monkeypatch.setattr(robustness, "ROBUSTNESS", replace(robustness.ROBUSTNESS, settings=ATTACK))
        arguments = [name, "--runs", "2", "--jobs", "1", "--out", str(tmp_path / folder)]
        done = CliRunner().invoke(make_app(["reproduce"]), ["reproduce", *arguments], catch_exceptions=False)
        assert done.exit_code == 0
        return tmp_path / folder / f"{name}.png", tmp_path / folder / f"{name}.svg"

    return run


@pytest.mark.parametrize("name", ["figure1", "figure2", "robustness"])
def test_figures_are_saved(name, drawn):
    png, svg = drawn(name)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in svg.read_text(encoding="utf-8")
    if name == "figure2":  # the same runs give the same bytes
        again = drawn(name, "again")
        assert [path.read_bytes() for path in again] == [png.read_bytes(), svg.read_bytes()]


def panels(svg):
    """The axes of a picture, each as its part of the file."""
    return svg.read_text(encoding="utf-8").partition('<g id="legend_')[0].split('<g id="axes_')[1:]


def test_figure_1_has_the_papers_panels(drawn):
    _, svg = drawn("figure1")
    everything, first, last = panels(svg)
    for panel, title in ((everything, "All iterations"), (first, "First 20"), (last, "Iterations 10 to 20")):
        assert f"<!-- {title}" in panel
    # Gradient descent, in orange, has left the last panel.
    assert ["stroke: #e69f00" in panel for panel in (everything, first, last)] == [True, True, False]
    for method in ("RO", "ARO", "GD"):
        for quantity in ("loss", "energy"):
            assert f"<!-- {method} {quantity} -->" in svg.read_text(encoding="utf-8")


def test_a_figure_without_descent_can_be_drawn(drawn):
    """When gradient descent exploded in every run there is no curve of it, and the title says so."""
    _, svg = drawn("figure1", learning_rate=1.0)
    text = svg.read_text(encoding="utf-8")
    assert "GD 0 of them" in text
    assert "<!-- GD loss -->" not in text
    assert "<!-- RO loss -->" in text


def test_global_state_is_left_alone(drawn):
    matplotlib = pytest.importorskip("matplotlib")
    before = dict(matplotlib.rcParams)
    drawn("figure2")
    assert dict(matplotlib.rcParams) == before

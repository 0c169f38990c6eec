"""Figures and tables as files: whole or not there, and with the same bytes each time."""

import importlib.util

import pytest

from mixtune.errors import DataError, MissingExtraError
from mixtune.report import require_matplotlib, save_figure, write_atomically, write_csv, write_figure


def drawing():
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot([0.0, 1.0], [1.0, 0.0])
    return figure


def test_figures_are_drawn_in_one_style_and_saved(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    before = dict(matplotlib.rcParams)
    png, svg = write_figure(drawing, tmp_path, "line")
    assert (png.name, svg.name) == ("line.png", "line.svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in svg.read_text()
    assert dict(matplotlib.rcParams) == before
    (tmp_path / "again").mkdir()
    (again,) = write_figure(drawing, tmp_path / "again", "line", ("svg",))
    assert again.read_bytes() == svg.read_bytes()
    (plain,) = save_figure(drawing(), tmp_path / "again", "plain", ("svg",))
    assert plain.read_bytes() != svg.read_bytes()  # with the frame around it


def test_missing_matplotlib_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for call in (require_matplotlib, lambda: write_figure(drawing, tmp_path, "line")):
        with pytest.raises(MissingExtraError, match=r"pip install 'mixtune\[report\]'"):
            call()


def test_csv_keeps_all_digits(tmp_path):
    path = write_csv(tmp_path / "a.csv", [{"method": "RO", "loss": 0.1 + 0.2}])
    assert path.read_text() == "method,loss\nRO,0.30000000000000004\n"
    with pytest.raises(DataError, match="no rows"):
        write_csv(tmp_path / "empty.csv", [])


def test_files_are_whole_or_not_there(tmp_path, monkeypatch):
    path = write_atomically(tmp_path / "a.csv", b"old")
    assert path.stat().st_mode & 0o600 == 0o600
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]

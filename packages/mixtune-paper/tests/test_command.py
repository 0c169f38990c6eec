"""``mixtune reproduce`` as a user runs it."""

import html
import importlib.util
import json
import subprocess
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from mixtune.cli import make_app
from mixtune.errors import MissingExtraError, ParameterError
from mixtune_paper import EXPERIMENTS, american, convergence, experiment
from mixtune_paper.convergence import ConvergenceSettings, NetworkData

CLI = "from mixtune.cli import main; main()"
SMALL = ConvergenceSettings(data=NetworkData(n_domains=3, n_rows=8, width=10), horizon=20, descent_steps=40)


def reproduce(*arguments):
    return CliRunner().invoke(make_app(["reproduce"]), ["reproduce", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def run(monkeypatch):
    """The command in this process, on small figures."""
    for name in ("FIGURE_1", "FIGURE_2"):
        monkeypatch.setattr(convergence, name, replace(getattr(convergence, name), settings=SMALL))
    return reproduce


def test_json_alone_on_stdout_and_files_in_the_folder(tmp_path):
    """The real thing, in a process of its own."""
    pytest.importorskip("matplotlib")
    command = [sys.executable, "-W", "error", "-c", CLI, "reproduce", "figure2"]
    command += ["--runs", "1", "--jobs", "1", "--json", "--out", str(tmp_path / "results")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [m["method"] for m in document["methods"]] == ["RO", "ARO", "RO", "ARO"]
    assert "1/1" in done.stderr
    names = {path.name for path in (tmp_path / "results").iterdir()}
    assert names == {"results.sqlite", "figure2.csv", "figure2.png", "figure2.svg", "figure2.pdf"}


def test_a_readable_table_and_notes(run, tmp_path):
    pytest.importorskip("matplotlib")
    done = run("figure1", "--runs", 3, "--jobs", 1, "--out", tmp_path)
    assert done.exit_code == 0
    for part in ("3/3 runs", "RO", "ARO", "GD", "energy", "Gradient descent is stable up to", "figure1.svg"):
        assert part in done.stdout
    lines = (tmp_path / "figure1.csv").read_text().splitlines()
    assert lines[0] == "method,transfer,iteration,runs,loss_mean,loss_std,energy_mean,energy_std"
    assert len(lines[1].split(",")[4]) > 15  # all digits
    (tmp_path / "figure1.png").unlink()
    as_json = [
        run("figure1", "--runs", 3, "--jobs", 1, "--out", folder, "--json") for folder in (tmp_path, tmp_path / "b")
    ]
    assert (tmp_path / "figure1.png").exists()
    assert as_json[0].stdout == as_json[1].stdout


@pytest.fixture
def figures_only():
    """Two experiments in all."""
    all_of_them = dict(EXPERIMENTS)
    EXPERIMENTS.clear()
    EXPERIMENTS.update({name: home for name, home in all_of_them.items() if name.startswith("figure")})
    yield
    EXPERIMENTS.clear()
    EXPERIMENTS.update(all_of_them)


@pytest.mark.usefixtures("figures_only")
def test_all_is_one_document_by_name(run, tmp_path):
    pytest.importorskip("matplotlib")
    done = run("all", "--runs", 1, "--jobs", 1, "--out", tmp_path, "--json")
    document = json.loads(done.stdout)
    assert list(document) == ["figure1", "figure2", "paper"]
    verdicts = {row["statement"]: row["verdict"] for row in document["paper"]}
    assert verdicts["Figure 1"] != "not (not run)" == verdicts["Lemma 5"]
    assert (tmp_path / "paper.csv").read_text().count("\n") == len(verdicts) + 1
    page = (tmp_path / "paper.html").read_text(encoding="utf-8")
    assert page.count("<tr>") > len(verdicts)
    assert all(html.escape(name) in page for name in verdicts)
    assert "src=" not in page
    assert "href=" not in page
    assert "figure1 1, figure2 1" in page
    shown = run("all", "--runs", 1, "--jobs", 1, "--out", tmp_path).stdout
    assert "Every statement of the paper" in shown
    assert "Lemma 4" in shown


def test_another_configuration_is_refused(run, tmp_path):
    pytest.importorskip("matplotlib")
    run("figure1", "--runs", 1, "--jobs", 1, "--out", tmp_path)
    with pytest.raises(ParameterError, match="seed is 0 there, 5 asked for") as caught:
        run("figure1", "--runs", 1, "--jobs", 1, "--out", tmp_path, "--seed", 5)
    assert "choose another folder (--out)" in caught.value.render("terminal")


@pytest.mark.parametrize(
    "arguments", [("figure1", "--runs", 0), ("figure1", "--jobs", 0), ("figure1", "--seed", -1), (), ("figure1", "--x")]
)
def test_bad_arguments(run, arguments):
    assert run(*arguments).exit_code == 2


def test_unknown_experiments_and_folders(run, tmp_path):
    with pytest.raises(
        ParameterError, match="there is no study 'figure3' to reproduce; choose from table1, table2, figure1"
    ):
        run("figure3", "--out", tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ParameterError, match="cannot make the folder"):
        run("figure1", "--out", tmp_path / "file")


def test_missing_matplotlib_is_told_before_any_work(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match="matplotlib"):
        run("figure1", "--out", tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_runs_on_a_cluster_give_the_same_numbers(run, tmp_path):
    """To the bit: on a cluster that is there already."""
    distributed = pytest.importorskip("distributed")
    pytest.importorskip("matplotlib")
    here = run("figure1", "--runs", 3, "--jobs", 1, "--out", tmp_path / "here", "--json")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
    ) as cluster:
        address = cluster.scheduler_address
        there = run(
            *("figure1", "--runs", 3, "--out", tmp_path / "there", "--json"),
            *("--engine", "dask", "--scheduler", address),
        )
    assert there.exit_code == 0
    assert there.stdout == here.stdout


def test_engines_and_devices_are_checked_before_any_work(run, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = ("--out", tmp_path / "results")
    for arguments, message in [
        (("--engine", "spark"), "choose from local, dask"),
        (("--scheduler", "tcp://127.0.0.1:1"), "--scheduler is for --engine dask"),
        (("--device", "abacus"), "there is no device 'abacus'"),
        (("--device", "cuda"), r"'cuda' is not there: PyTorch .* finds no CUDA devices here; use cpu"),
    ]:
        with pytest.raises(ParameterError, match=message):
            run("table1", *arguments, *out)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ParameterError, match="table2 has no work for a device; leave the device out"):
        run("all", "--device", "cuda", *out)
    if importlib.util.find_spec("distributed"):
        with pytest.raises(ParameterError, match="leave one of them out"):
            run("table1", "--device", "cuda", "--engine", "dask", *out)
    assert not (tmp_path / "results").exists()


def test_a_device_is_handed_on_and_its_rows_explained(tmp_path, monkeypatch):
    """PyTorch on the CPU stands in for the device."""
    pytest.importorskip("torch")
    small = {"training_paths": 20, "evaluation_paths": 100, "width": 20, "dates": 3, "more_paths": ()}
    study = experiment("table1")
    monkeypatch.setattr(american, "TABLE1", replace(study, settings=replace(study.settings, **small)))
    done = reproduce("table1", "--runs", 2, "--device", "torch:cpu", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    for part in ("2/2 runs", "RO (eta=100)", "LO-1 (ridge tuned)", "RO (tuned)", "Wasserstein weights need the CPU"):
        assert part in done.stdout
    assert "gamma" not in done.stdout

"""``mixtune fit --stream``: the same command on tables that do not fit into memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from cli.command_line import SITES, as_json, in_process, refused, run, sites, write_rows
from mixtune.estimators import RegretOptimalRegressorCV, load


def draw(rows=(15, 60, 50), seed=0):
    rng = np.random.default_rng(seed)
    table = {"x": [], "z": [], "site": [], "y": []}
    for site, count, slope in zip(("berlin", "paris", "moscow"), rows, (2.0, 2.0, -2.0)):
        X = rng.standard_normal((count, 2))
        table["x"] += X[:, 0].tolist()
        table["z"] += X[:, 1].tolist()
        table["site"] += [site] * count
        table["y"] += (slope * X[:, 0] + 0.3 * rng.standard_normal(count)).tolist()
    order = rng.permutation(sum(rows))
    return pa.table({name: np.array(column)[order] for name, column in table.items()})


@pytest.fixture
def data(tmp_path):
    parquet.write_table(draw(), tmp_path / "data.parquet", row_group_size=20)
    return tmp_path / "data.parquet"


def test_a_stream_gives_the_model_of_all_rows(tmp_path, data):
    out = tmp_path / "model.mixtune"
    facts = as_json("fit", data, *SITES, "--linear", "--stream", "--sample-rows", "100", "--out", out)
    whole = as_json("fit", data, *SITES, "--linear")
    assert {d["name"]: d["rows"] for d in facts["domains"]} == {"berlin": 15, "paris": 60, "moscow": 50}
    for one, other in zip(facts["domains"], whole["domains"], strict=True):
        assert one["name"] == other["name"]
        assert one["weight"] == pytest.approx(other["weight"], abs=1e-6)
    assert "drawn at random, 125 rows in all" in facts["notes"][0]
    model = load(out)
    assert isinstance(model, RegretOptimalRegressorCV)
    assert model.domain_names_[0] == "berlin"
    new = write_rows(tmp_path / "new.csv", ["z", "x"], [[0.0, 1.0], [0.0, -1.0]])
    assert run("predict", out, new, "--out", tmp_path / "predicted.csv").code == 0
    fewer = as_json("fit", data, *SITES, "--stream", "--sample-rows", "10", "--ignore", "z")
    # All rows count; some of them are drawn for maps and for tests.
    assert {d["name"]: d["rows"] for d in fewer["domains"]} == {"berlin": 15, "paris": 60, "moscow": 50}
    assert "drawn at random, 35 rows in all" in fewer["notes"][0]
    assert fewer["columns"] == ["x"]


def test_a_constant_column_is_noted(tmp_path):
    table = draw().append_column("year", pa.array([2020] * 125))
    parquet.write_table(table, tmp_path / "data.parquet")
    said = 'column "year" is 2020 in every row; nothing can be learned from it'
    assert said in as_json("fit", tmp_path / "data.parquet", *SITES, "--stream")["notes"]
    assert said in as_json("fit", tmp_path / "data.parquet", *SITES)["notes"]


def test_folders_and_files_a_domain(tmp_path):
    table, folder = draw(), tmp_path / "big"
    folder.mkdir()
    for number, begin in enumerate(range(0, table.num_rows, 50)):
        parquet.write_table(table.slice(begin, 50), folder / f"{number}.parquet")
    together = as_json("fit", folder, *SITES, "--stream", "--report", tmp_path / "page.html")
    assert {d["name"]: d["rows"] for d in together["domains"]} == {"berlin": 15, "paris": 60, "moscow": 50}
    assert "drawn at random" in (tmp_path / "page.html").read_text(encoding="utf-8")
    files = []
    for site in ("berlin", "paris", "moscow"):
        files.append(tmp_path / f"{site}.csv")
        part = table.filter(pa.compute.equal(table["site"], site)).drop_columns("site")
        write_rows(files[-1], part.column_names, zip(*part.to_pydict().values()))
    apart = as_json("fit", *files, "--target", "y", "--stream")
    assert apart["focal"] == "berlin"
    # The draw holds all rows, in another order.
    for one, other in zip(apart["domains"], together["domains"], strict=True):
        assert one["rows"] == other["rows"]


def test_on_a_cluster(tmp_path, data):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0"
    ) as cluster:
        address = cluster.scheduler_address
        facts = as_json("fit", data, *SITES, "--engine", "dask", "--scheduler", address, "--sample-rows", "20")
    assert {d["name"]: d["rows"] for d in facts["domains"]} == {"berlin": 15, "paris": 60, "moscow": 50}
    assert "at most 20 rows of every domain but the focal one were drawn at random" in facts["notes"][0]


def test_what_cannot_be_streamed_is_said(tmp_path, data):
    text = sites(tmp_path / "text.csv")
    message = refused("fit", text, *SITES, "--stream")
    assert 'column "colour"' in message
    assert "leave the column out with --ignore, or fit without --stream" in message
    assert "or fit without --stream or --engine dask" in refused("fit", text, *SITES, "--engine", "dask")
    assert "come from with --domain, or fit without" in refused("fit", text, "--target", "y", "--stream")
    few = refused("fit", data, *SITES, "--stream", "--memory-limit", "1KB")
    assert "take 2 kB" in few
    assert few.endswith("more than half of --memory-limit; raise it, or lower --sample-rows")
    assert run("fit", text, *SITES, "--stream", "--ignore", "colour").code == 0
    assert 'no row belongs to domain "berlim"; did you mean "berlin"' in refused(
        "fit", data, "--target", "y", "--domain", "site", "--focal", "berlim", "--stream"
    )
    assert "with --focal NAME" in refused("fit", data, "--target", "y", "--domain", "site", "--stream")
    assert 'names "q", which is not a column of any table' in refused("fit", data, *SITES, "--stream", "--ignore", "q")
    assert "--categories cannot be used with --stream" in refused("fit", data, *SITES, "--stream", "--categories", "x")
    assert "--sample-rows is for --stream" in refused("fit", data, *SITES, "--sample-rows", "10")
    assert "--scheduler is for --engine dask" in refused("fit", data, *SITES, "--scheduler", "tcp://127.0.0.1:1")
    assert "memory_limit='much' must be a size" in refused("fit", data, *SITES, "--stream", "--memory-limit", "much")
    assert "no Dask scheduler answers" in refused(
        "fit", data, *SITES, "--engine", "dask", "--scheduler", "nowhere://127.0.0.1:1"
    )


def test_as_a_user_runs_it(data):
    done = in_process("fit", data, *SITES, "--stream", "--memory-limit", "64MB")
    assert (done.code, done.err) == (0, "")
    assert "drawn at random" in done.out.replace("\n", " ").replace("   ", " ")


def test_a_stream_is_not_linear_unless_asked(data):
    """A kernel is learned from rows, so that streams have the other feature maps."""
    assert {each["name"] for each in as_json("fit", data, *SITES, "--stream")["maps"]} >= {"inputs", "splines"}
    assert as_json("fit", data, *SITES, "--stream", "--linear")["maps"] == []

"""Columns of free text and of images, with encoders that are made on the spot."""

import json
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest

from cli.command_line import as_json, run
from extras import extra
from mixtune import TableModel, fit_table
from mixtune.data import TableEncoder
from mixtune.errors import DataError, ParameterError

torch = extra("torch")
images = extra("PIL.Image")
sentence_transformers = extra("sentence_transformers")


class Tiny:
    """A sentence encoder of two numbers: how many words there are, and how many of them are "good"."""

    calls = 0

    def transform(self, texts):
        Tiny.calls += len(texts)
        return np.array([[len(text.split()), text.split().count("good")] for text in texts], dtype=np.float32)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """The folder of that encoder, in place of one that sentence-transformers saved."""
    Tiny.calls = 0
    monkeypatch.setattr("mixtune.data.real.frozen_sentence_encoder", lambda folder: Tiny())
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "weights").write_text("none")
    return tmp_path / "tiny"


def fit(table, folder):
    settings = {"target": "stars", "domain": "site", "focal": "a", "text": "review", "linear": True}
    return fit_table(table, **settings, text_model=folder)


def reviews():
    rng = np.random.default_rng(0)
    good = rng.integers(0, 4, 60)
    texts = [" ".join(["good"] * n + ["film"] * int(m)) for n, m in zip(good, rng.integers(1, 3, 60))]
    return {"site": ["a"] * 20 + ["b"] * 40, "review": texts, "stars": good + 0.1 * rng.standard_normal(60)}


def test_text_becomes_numbers_once(tiny):
    table = reviews()
    model = fit(table, tiny)
    assert model.encoder.names == ("review [0]", "review [1]")
    assert any('column "review" became 2 numbers by sentence encoder' in note for note in model.notes)
    new = model.predict({"review": ["good good film", None]})
    assert abs(new[0] - 2.0) < 0.2
    distinct = len(set(table["review"]))
    assert Tiny.calls == 1 + distinct + 1  # one to tell the width, every text once, the new one
    fit(table, tiny)
    assert Tiny.calls == 1 + distinct + 1  # all from the cache


def test_text_on_the_command_line(tiny, tmp_path):
    table = reviews()
    (tmp_path / "reviews.csv").write_text(
        "site,review,stars\n" + "".join(f"{a},{b},{c}\n" for a, b, c in zip(*table.values()))
    )
    out = tmp_path / "model.mixtune"
    names = ("--target", "stars", "--domain", "site", "--focal", "a")
    text = ("--text", "review", "--text-model", tiny)
    assert as_json("fit", tmp_path / "reviews.csv", *names, *text, "--out", out)["columns"] == [
        "review [0]",
        "review [1]",
    ]
    assert "text: 2 numbers by sentence encoder" in run("inspect", out, columns="120").out
    assert run("predict", out, tmp_path / "reviews.csv", "--out", tmp_path / "new.csv").code == 0
    loaded = TableModel.load(out)
    assert loaded.predict({"review": ["good film"]}).shape == (1,)
    done = run("fit", tmp_path / "reviews.csv", *names, "--text", "revue", "--text-model", tiny)
    assert done.code == 2
    assert "--text review" in done.err


def test_another_encoder_is_refused(tiny):
    model = fit(reviews(), tiny)
    spec = json.loads(json.dumps(model.encoder.to_dict()))
    spec["columns"][0]["identity"] = "another encoder"
    with pytest.raises(DataError, match=r"encoded by another encoder in training, and sentence encoder \w+ is here"):
        TableEncoder.from_dict(spec).encode({"review": ["good"]})


def test_descriptions_of_files_are_checked(tiny):
    model = fit(reviews(), tiny)
    spec = json.loads(json.dumps(model.encoder.to_dict()))
    assert TableEncoder.from_dict(spec) == model.encoder
    for name, value in {"width": 10**9, "content": "code", "network": None}.items():
        forged = {**spec, "columns": [{**spec["columns"][0], name: value}]}
        with pytest.raises(DataError, match="damaged"):
            TableEncoder.from_dict(forged)


def test_a_sentence_encoder_in_a_folder(tmp_path):
    """The loading itself, with a small encoder that sentence-transformers saves."""
    sentence_transformers.SentenceTransformer  # noqa: B018  skips the test where it is missing
    newer = find_spec("sentence_transformers.sentence_transformer") is not None
    modules = import_module(f"sentence_transformers.{'sentence_transformer.modules' if newer else 'models'}")
    words = tmp_path / "words"
    words.mkdir()
    bag = modules.BoW(vocab=["good", "film", "bad"])
    sentence_transformers.SentenceTransformer(modules=[bag], device="cpu").save(str(words))
    table = reviews()
    model = fit_table(table, target="stars", domain="site", focal="a", text="review", text_model=words, linear=True)
    assert len(model.encoder.names) == 3
    assert abs(model.predict({"review": ["good good film"]})[0] - 2.0) < 0.3


def test_no_folder_of_an_encoder():
    with pytest.raises((DataError, ParameterError), match="is no folder of a sentence encoder"):
        fit_table(reviews(), target="stars", domain="site", focal="a", text="review", text_model="nowhere")


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """The file of a small network."""

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Conv2d(3, 4, 8, stride=32)

        def forward(self, pixels):
            return self.first(pixels).mean(dim=(2, 3))

    torch.manual_seed(0)
    dynamic = ({0: torch.export.Dim.AUTO},)
    exported = torch.export.export(Network().eval(), (torch.zeros(2, 3, 224, 224),), dynamic_shapes=dynamic)
    path = tmp_path_factory.mktemp("network") / "net.pt2"
    torch.export.save(exported, path)
    return path


@pytest.fixture
def pictures(tmp_path, network):
    """Image files whose target is how red they are, and the file of the network."""
    rng = np.random.default_rng(0)
    red = rng.integers(0, 256, 24)
    paths = []
    for place, value in enumerate(red):
        paths.append(str(tmp_path / f"{place}.png"))
        images.fromarray(np.full((10, 12, 3), (value, 100, 100), dtype=np.uint8)).save(paths[-1])
    table = {"site": ["a"] * 12 + ["b"] * 12, "photo": paths, "red": red / 255}
    return table, network


def test_images(pictures, tmp_path):
    table, network = pictures
    options = {"target": "red", "domain": "site", "focal": "a", "images": "photo", "linear": True}
    model = fit_table(table, **options, image_model=network)
    assert len(model.encoder.names) == 4
    np.testing.assert_allclose(model.predict({"photo": table["photo"]}), table["red"], atol=0.05)
    # Files are known by what they hold: a copy under another name is not computed again.
    model.predict({"photo": table["photo"]})
    cached = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert cached
    copies = []
    for path in table["photo"]:
        copies.append(path.replace(".png", "-copy.png"))
        with open(path, "rb") as old, open(copies[-1], "wb") as new:
            new.write(old.read())
    np.testing.assert_array_equal(model.predict({"photo": copies}), model.predict({"photo": table["photo"]}))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*") if path.is_file()} == cached
    with pytest.raises(DataError, match="1 of 1 are missing"):
        model.predict({"photo": [str(tmp_path / "none.png")]})


def test_files_that_are_no_images_or_networks(pictures, tmp_path):
    table, network = pictures
    (tmp_path / "0.png").write_text("no image")
    options = {"target": "red", "domain": "site", "focal": "a", "images": "photo"}
    with pytest.raises(DataError, match="cannot be read as an image"):
        fit_table(table, **options, image_model=network)
    with pytest.raises(DataError, match="is no file of a network"):
        fit_table(table, **options, image_model=tmp_path / "other.pt2")
    with pytest.raises(DataError, match="is no file of a network"):
        fit_table(table, **options)

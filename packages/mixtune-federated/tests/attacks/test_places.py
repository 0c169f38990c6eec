"""Names, keys and files: nothing is written over or elsewhere, and nothing is taken for something else."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from federate_command import run
from mixtune.errors import DataError, MixtuneError

pytest.importorskip("cryptography")

from mixtune_federated import Card, Key, Ledger, Study, read_message

NAMES = [
    "../evil",
    "..",
    ".",
    "",
    " ",
    "a/b",
    "a\\b",
    "/etc/evil",
    "C:evil",
    "a\nb",
    "a\x00b",
    "-rf",
    ".hidden",
    "a.",
    "a" * 65,
]
NAMES += ["evil\u202etxt", "north\u200b", "\uff4eorth", "a|b", "a*"]


@pytest.mark.parametrize("name", NAMES)
def test_names_that_lead_elsewhere_are_refused(consortium, tmp_path, name):
    study, example = tmp_path / "inside" / "study.toml", consortium().study
    study.parent.mkdir()
    example.save(study)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises((MixtuneError, AssertionError)):
        run("study", "join", study, "--name", name)
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(DataError, match="cannot be a name"):
        Key.generate(name).card  # noqa: B018
    with pytest.raises(DataError, match="cannot be a name"):
        Card(name, bytes(32), bytes(32))
    with pytest.raises(DataError, match="cannot be a name"):
        replace(example, name=name)
    with pytest.raises(DataError, match="cannot be a name"):
        Study.from_dict({**example.to_dict(), "focal": name})
    key = tmp_path / "some.key"
    key.write_text(
        json.dumps({"format": "mixtune-key", "version": 1, "name": name, "signing": "00" * 32, "sealing": "11" * 32})
    )
    with pytest.raises(DataError, match="cannot be a name"):
        Key.load(key)


@pytest.mark.parametrize("name", ["school 14", "St. Mary's", "Köln-Süd", "north_2", "北"])
def test_plain_names_are_names(name):
    assert Card.from_dict(Key.generate(name).card.to_dict()).name == name


def test_names_that_differ_in_capital_letters_only(consortium):
    study = consortium().study
    with pytest.raises(DataError, match="same name"):
        study.joined(Key.generate("M1").card)


@pytest.fixture
def folder(tmp_path, consortium):
    """A study of three members at level 1 in a folder, with their tables and keys, and the first request."""
    rng = np.random.default_rng(0)
    for place in range(3):
        rows = ["a,b,y", *(",".join(map(repr, row)) for row in rng.standard_normal((40, 3)).tolist())]
        (tmp_path / f"s{place}.csv").write_text("\n".join(rows))
    study = tmp_path / "study.toml"
    run("study", "new", study, "--like", tmp_path / "s0.csv", "--target", "y", "--focal", "s0", "--level", 1)
    for place in range(3):
        run("study", "join", study, "--name", f"s{place}")
    run("ask", study, "--out", tmp_path / "q1.mxf", "--focal", tmp_path / "s0.csv")
    return tmp_path


def answer(folder, out, *options, key="s1.key"):
    given = ["--data", folder / "s1.csv", "--study", folder / "study.toml", "--key", folder / key]
    return run("answer", folder / "q1.mxf", *given, "--out", out, *options)


def test_answers_never_replace_keys_or_ledgers(folder):
    answer(folder, folder / "a1.mxf")
    (folder / "copy").write_bytes((folder / "s2.key").read_bytes())
    (folder / "link").symlink_to(folder / "s2.key")
    kept = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    places = ["s1.key", "s2.key", "s1.ledger", "copy", "link", "new.key", "new.ledger", "NEW.KEY", "study.toml"]
    for name in places:
        with pytest.raises(MixtuneError, match=r"never replaced|is also an input"):
            answer(folder, folder / name, "--force")
    for name in ("s1.key", "copy", "s1.ledger"):
        given = ["--study", folder / "study.toml", "--key", folder / "s0.key", "--focal", folder / "s0.csv", "--force"]
        with pytest.raises(MixtuneError, match="never replaced"):
            run("combine", folder / "a1.mxf", *given, "--out", folder / name)
        with pytest.raises(MixtuneError, match="never replaced"):
            run("ask", folder / "study.toml", "--key", folder / "s0.key", "--out", folder / name, "--force")
        like = ["--like", folder / "s0.csv", "--target", "y", "--focal", "s0", "--force"]
        with pytest.raises(MixtuneError, match="never replaced"):
            run("study", "new", folder / name, *like)
        with pytest.raises(DataError, match="never replaced"):
            read_message(folder / "a1.mxf").save(folder / name)
    assert {path: path.read_bytes() for path in kept} == kept
    assert answer(folder, folder / "a1.mxf", "--force")


def test_keys_are_made_once(folder):
    before = (folder / "s1.key").read_bytes()
    with pytest.raises(MixtuneError, match="not of"):
        run("study", "join", folder / "study.toml", "--name", "s9", "--key", folder / "s1.key")
    run("study", "join", folder / "study.toml", "--name", "s1")
    assert (folder / "s1.key").read_bytes() == before
    with pytest.raises(DataError, match="exists"):
        Key.generate("s1").save(folder / "s1.key")
    with pytest.raises(DataError, match="restore"):
        Ledger(folder / "s1.key")


def test_files_hold_under_the_name_they_were_signed_with(folder):
    """A relay that swaps two files, or gives one the name of another, is noticed."""
    answer(folder, folder / "a1.mxf")
    (folder / "a1.mxf").rename(folder / "a2.mxf")
    given = ["--study", folder / "study.toml", "--key", folder / "s0.key", "--focal", folder / "s0.csv"]
    with pytest.raises(MixtuneError, match=r"was signed as 'a1\.mxf'"):
        run("combine", folder / "a2.mxf", *given)
    (folder / "q1.mxf").rename(folder / "q2.mxf")
    with pytest.raises(MixtuneError, match=r"was signed as 'q1\.mxf'"):
        run(
            "answer",
            folder / "q2.mxf",
            "--data",
            folder / "s2.csv",
            "--out",
            folder / "b.mxf",
            *given[:2],
            "--key",
            folder / "s2.key",
        )


def test_audit_says_what_an_answer_reveals(folder):
    answer(folder, folder / "a1.mxf")
    given = ["--study", folder / "study.toml", "--key", folder / "s1.key"]
    said = " ".join(run("audit", folder / "a1.mxf", *given, "--data", folder / "s1.csv").split())
    for words in (
        "products of the features and the constant, the number of rows among them: 6 numbers",
        "nobody else reads any of this",
        "the sums are over 40 rows",
        "from this follow means, spreads and correlations of all columns",
        "1 person makes up at most",
        "the ledger has 1 earlier answers",
    ):
        assert words in said
    found = json.loads(run("audit", folder / "a1.mxf", *given, "--json"))
    assert list(found) == [str(folder / "a1.mxf")]
    with pytest.raises(MixtuneError, match='was not made with the key of "s2"'):
        run("audit", folder / "a1.mxf", *given[:2], "--key", folder / "s2.key")

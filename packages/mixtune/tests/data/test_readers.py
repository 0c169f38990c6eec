"""CSV as the world writes it: encodings, separators, decimal commas, compression."""

import gzip

import numpy as np
import pytest

from mixtune.data import Domains
from mixtune.errors import DataError, ParameterError


def write(folder, text, encoding="utf-8", name="a.csv"):
    path = folder / name
    data = text.encode(encoding)
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_latin_1(tmp_path, name):
    header = write(tmp_path, "größe,y\n1,2\n", "latin-1", name)
    with pytest.raises(DataError, match=r'a.csv.* is not written in utf-8 .*pass encoding="latin-1"'):
        Domains.from_files(header, target="y")
    assert Domains.from_files(header, target="y", encoding="latin-1")["a"].columns == ("größe",)
    labels = write(tmp_path, "x,y,city\n1,2,Köln\n", "latin-1", name)
    with pytest.raises(DataError, match=r'a.csv.*pass encoding="latin-1"'):
        Domains.from_files(labels, target="y", domain="city", focal="Köln")
    domains = Domains.from_files(labels, target="y", domain="city", focal="Köln", encoding="latin-1")
    assert domains.names == ("Köln",)


def test_other_encodings(tmp_path):
    path = write(tmp_path, "größe,y\n1,2\n", "utf-16")
    with pytest.raises(DataError, match='pass encoding="utf-16"'):
        Domains.from_files(path, target="y")
    assert Domains.from_files(path, target="y", encoding="utf-16")["a"].columns == ("größe",)
    path = write(tmp_path, "größe,y\n1,2\n")
    assert Domains.from_files(path, target="y", encoding="UTF8")["a"].columns == ("größe",)
    with pytest.raises(DataError, match=r'not written in ascii .*pass encoding="utf-8"'):
        Domains.from_files(path, target="y", encoding="ascii")


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("x;y\n1;2\n", r'semicolons; pass separator=";"$'),
        ("x;y\n1.5;2\n", r'semicolons; pass separator=";"$'),
        ("x;y\n1,5;2\n", r'semicolons; pass separator=";" and decimal=","$'),
        ("x;y\n1,5;2,5\n", r'semicolons; pass separator=";" and decimal=","$'),
        ("x\ty\n1\t2\n", r'tabs; pass separator="\\t"$'),
        ("x|y\n1|2\n", r'bars; pass separator="\|"$'),
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_other_separators_are_recognised(tmp_path, text, advice, name):
    path = write(tmp_path, text, name=name)
    with pytest.raises(DataError, match=rf'the columns of ".*{name}" are separated by {advice}'):
        Domains.from_files(path, target="y")


def test_the_advice_works(tmp_path):
    path = write(tmp_path, "x;y\n1,5;2\n2,5;4\n")
    domains = Domains.from_files(path, target="y", separator=";", decimal=",")
    np.testing.assert_array_equal(domains["a"].X, [[1.5], [2.5]])
    with pytest.raises(DataError, match=r'"x" .* "1,5" in data row 1\); read decimal commas with decimal=","'):
        Domains.from_files(path, target="y", separator=";")
    path = write(tmp_path, "x\ty\n1\t2\n")
    assert Domains.from_files(path, target="y", separator="\t")["a"].X.tolist() == [[1]]
    path = write(tmp_path, "x,y\n1,2\n", name="b.tsv")
    with pytest.raises(DataError, match=r'separator=","$'):
        Domains.from_files(path, target="y")
    assert Domains.from_files(path, target="y", separator=",")["b"].X.tolist() == [[1]]


def test_compressed_files(tmp_path):
    # Long enough that one block of the compressed size would not reach the fraction.
    path = write(tmp_path, "x,y\n" + "1,2\n" * 600_000 + "1.5,2\n", name="north.CSV.gz")
    domains = Domains.from_files(path, target="y")
    assert domains.names == ("north",)
    assert domains["north"].X[-1, 0] == 1.5
    (tmp_path / "broken.csv.gz").write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"broken.csv.gz\" cannot be read as CSV.GZ"):
        Domains.from_files(tmp_path / "broken.csv.gz", target="y")
    (tmp_path / "plain.csv.gz").write_text("x,y\n1,2\n")
    with pytest.raises(DataError, match=r"plain.csv.gz\" cannot be read as CSV.GZ"):
        Domains.from_files(tmp_path / "plain.csv.gz", target="y")
    with pytest.raises(DataError, match=r"must end in one of \.csv.*\.gz"):
        Domains.from_files(tmp_path / "a.csv.rar", target="y")


def test_a_long_file_in_another_encoding(tmp_path):
    path = write(tmp_path, "x,y,d\n" + "1,2,éééé\n" * 300_000 + "1.5,2,é\n", "latin-1")
    domains = Domains.from_files(path, target="y", domain="d", focal="é", encoding="latin-1")
    assert domains["é"].X.tolist() == [[1.5]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoding": "latin-0"}, 'encoding="latin-0" is unknown'),
        ({"encoding": None}, "encoding=None is unknown"),
        ({"separator": ";;"}, 'separator=";;" must be one character'),
        ({"separator": ""}, 'separator="" must be one character'),
        ({"separator": "\n"}, "must be one character"),
        ({"separator": 3}, "must be one character"),
        ({"decimal": "x"}, 'decimal="x" must be'),
        ({"separator": ",", "decimal": ","}, "two different characters"),
        ({"decimal": ","}, 'decimal="," is also the separator of the columns'),
    ],
)
def test_bad_options(tmp_path, options, message):
    path = write(tmp_path, "x,y\n1,2\n")
    with pytest.raises(ParameterError, match=message):
        Domains.from_files(path, target="y", **options)


def test_labels_are_read_as_they_are_written(tmp_path):
    file = tmp_path / "shops.csv"
    file.write_text("x,y,shop\n1,1,007\n2,2,7\n3,3,1.50\n4,4,1.5\n5,5,true\n")
    domains = Domains.from_files(file, target="y", domain="shop", focal="007")
    assert domains.names == ("007", "7", "1.50", "1.5", "true")


def test_empty_labels_are_missing(tmp_path):
    file = tmp_path / "shops.csv"
    file.write_text("x,y,shop\n1,1,a\n2,2,\n")
    with pytest.raises(DataError, match="shop"):
        Domains.from_files(file, target="y", domain="shop", focal="a")

"""Model files: what goes in comes out bit by bit, and whatever else is on the disk is refused in words."""

import hashlib
import io
import json
import os
import pickle
import stat
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open
from safetensors.numpy import save

from mixtune import files as model_file
from mixtune.errors import DataError
from mixtune.files import array_digest, read_model, write_atomically, write_model

SPEC = {"z": 1, "a": [1.5, None, True, "é\ud800"], "sha256": "0" * 64, "seed": 2**100, "nested": {"": -0.0}}
RNG = np.random.default_rng(0)
ARRAYS = {
    "coef": RNG.standard_normal((3, 4)),
    "strided": np.asfortranarray(RNG.standard_normal((4, 5)))[::2, ::-1],
    "scalar": np.array(3.0, dtype=np.float32),
    "none": np.zeros((0, 3)),
    "big_endian": np.arange(3, dtype=">i4"),
    "odd": np.array([np.nan, -0.0, np.inf]),
    "mask": np.array([True, False]),
    "sha256": np.arange(5, dtype=np.uint8),
}


@pytest.fixture
def path(tmp_path):
    return write_model(tmp_path / "a.mixtune", SPEC, ARRAYS)


def assert_refused(path, content, match=None):
    path.write_bytes(content)
    with pytest.raises(DataError, match=match):
        read_model(path)


def test_what_goes_in_comes_out(path):
    spec, arrays = read_model(path)
    assert spec == SPEC
    assert list(spec) == list(SPEC)
    assert list(arrays) == sorted(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].shape == array.shape
        assert arrays[name].dtype == array.dtype.newbyteorder("=")
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].flags.writeable
    assert np.signbit(arrays["odd"][1])
    assert [p.name for p in path.parent.iterdir()] == ["a.mixtune"]


@settings(max_examples=40)
@given(
    arrays=st.dictionaries(
        st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=5),
        hnp.arrays(st.sampled_from([np.float64, np.float32, np.int64, np.bool]), hnp.array_shapes(min_dims=0)),
        max_size=4,
    ),
    spec=st.dictionaries(
        st.text(max_size=4),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
            max_leaves=6,
        ),
    ),
)
def test_anything_plain_round_trips(tmp_path_factory, arrays, spec):
    path = write_model(tmp_path_factory.getbasetemp() / "any.mixtune", spec, arrays)
    back_spec, back = read_model(path)
    assert back_spec == spec
    assert {name: (a.dtype, a.shape, a.tobytes()) for name, a in back.items()} == {
        name: (a.dtype, a.shape, a.tobytes()) for name, a in arrays.items()
    }


def test_other_tools_read_it(path):
    with safe_open(path, framework="np") as file:
        assert file.metadata()["format"] == "mixtune-model"
        assert file.metadata()["version"] == "1"
        assert json.loads(file.metadata()["spec"]) == SPEC
        np.testing.assert_array_equal(file.get_tensor("coef"), ARRAYS["coef"])


def test_the_same_model_gives_the_same_bytes(path):
    again = write_model(path.with_name("b.mixtune"), SPEC, dict(reversed(ARRAYS.items())))
    assert again.read_bytes() == path.read_bytes()


def test_any_flipped_bit_is_noticed(path):
    content = path.read_bytes()
    for place in range(len(content)):
        for bit in {place % 8, 5}:
            altered = bytearray(content)
            altered[place] ^= 1 << bit
            assert_refused(path, altered)
    # White space for white space leaves the header what it was, but not the file.
    (length,) = struct.unpack("<Q", content[:8])
    padded = content[8 : 8 + length]
    assert padded.endswith(b" "), "choose a spec whose header needs padding"
    assert_refused(path, content[: 7 + length] + b"\t" + content[8 + length :], "checksum")
    assert_refused(path, content[:-1] + bytes([content[-1] ^ 1]), "checksum")


def test_any_missing_or_extra_bytes_are_noticed(path):
    content = path.read_bytes()
    for length in range(len(content)):
        assert_refused(path, content[:length])
    assert_refused(path, content[:-3], "cut off or altered: .*checksum.*; copy it again")
    assert_refused(path, content[:50], "cut off or altered: its header should take")
    assert_refused(path, content + b"\0", "checksum")
    assert_refused(path, content + content)


def zipped():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.txt", "a")
    return buffer.getvalue()


def npz():
    buffer = io.BytesIO()
    np.savez(buffer, a=np.ones(3))
    return buffer.getvalue()


class Bomb:
    def __reduce__(self):
        return os._exit, (3,)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "is empty"),
        (b"{", "not a mixtune model: it has only 1 bytes"),
        (pickle.dumps(Bomb()), "not a mixtune model: it looks like a pickle"),
        (pickle.dumps(Bomb(), protocol=0), "not a mixtune model"),
        (npz(), "not a mixtune model: it looks like a zip or NumPy"),
        (zipped(), "not a mixtune model: it looks like a zip"),
        (b"a,b\n1,2\n3,4\n", "not a mixtune model: its first bytes"),
        (b"\x93NUMPY\x01\x00v\x00{'descr'", "not a mixtune model: it looks like a NumPy array"),
        (save({"a": np.ones(2)}), "safetensors file that mixtune did not write"),
        (save({"a": np.ones(2)}, metadata={"format": "pt"}), "safetensors file that mixtune did not write"),
        (struct.pack("<Q", 2**63) + b"{}", "cut off or altered: its header should take"),
        (struct.pack("<Q", 10**5) + b"{" + b"[" * (10**5), "its header cannot be read"),
        (struct.pack("<Q", 10**5) + b'{"a":' + b"[" * (10**5), "its header cannot be read"),
        (struct.pack("<Q", 0) + b"{}", "its header cannot be read"),
        (struct.pack("<Q", 13) + b'{"a":1,"a":2}', "its header cannot be read"),
        (struct.pack("<Q", 10) + b'{"a":1e99\xff', "its header cannot be read"),
    ],
)
def test_foreign_files_say_what_they_are(tmp_path, content, match):
    assert_refused(tmp_path / "foreign", content, match)


def test_no_file_and_a_folder(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        read_model(tmp_path / "absent")
    with pytest.raises(DataError, match="is a folder"):
        read_model(tmp_path)
    with pytest.raises(DataError, match="is a folder; give the name of a file"):
        write_model(tmp_path, {}, {})
    with pytest.raises(DataError, match="does not exist; make it first"):
        write_model(tmp_path / "absent" / "a", {}, {})


def test_a_file_that_cannot_be_read(path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(model_file, "open", refuse, raising=False)
    with pytest.raises(DataError, match="cannot be read: Permission denied"):
        read_model(path)


def test_a_full_disk_is_named_and_leaves_the_old_file(path, monkeypatch):
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"a\.mixtune cannot be written: No space left on device; choose a folder"):
        write_model(path, {"new": 1}, ARRAYS)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["a.mixtune"]


def test_a_newer_format(path, monkeypatch):
    monkeypatch.setattr(model_file, "FORMAT_VERSION", 2)
    assert write_model(path, SPEC, ARRAYS) == path
    assert read_model(path)[0] == SPEC
    monkeypatch.undo()
    with pytest.raises(DataError, match="format version 2, this mixtune reads versions up to 1; update mixtune"):
        read_model(path)


def forged(metadata, entries=None, data=b""):
    """A file with a checksum that is right, as an enemy would make it."""
    header = {"__metadata__": {"format": "mixtune-model", "version": "1", "sha256": "0" * 64, **metadata}}
    text = json.dumps({**header, **(entries or {})}, separators=(",", ":")).encode()
    content = struct.pack("<Q", len(text)) + text + data
    # The SHA-256 of the whole file, with zeros in its own place.
    digest = hashlib.sha256(content).hexdigest()
    return content.replace(b'"sha256":"' + b"0" * 64, b'"sha256":"' + digest.encode(), 1)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (forged({"spec": "{}", "version": "-1"}), "format version"),
        (forged({"spec": "{}", "version": 1.0}), "format version"),
        (forged({"spec": {}}), "lacks the checksum or the spec"),
        (forged({"spec": "{}", "sha256": "A" * 64}), "lacks the checksum or the spec"),
        (forged({"spec": "[]"}), "not a JSON object"),
        (forged({"spec": '{"a": NaN}'}), "NaN is not a finite number"),
        (forged({"spec": '{"a": 1e999}'}), "1e999 is not a finite number"),
        (forged({"spec": '{"a": 1, "a": 2}'}), "a key stands twice"),
        (forged({"spec": '{"a": ' + "[" * 10**5}), "cut off or altered"),
        (forged({"spec": "{}"}, {"a": 1}), "altered: .*[hH]eader"),
        (
            forged({"spec": "{}"}, {"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, "8"]}}),
            "altered: .*[hH]eader",
        ),
        (forged({"spec": "{}"}, {"a": {"dtype": "F64", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)), "altered"),
        (forged({"spec": "{}"}, {"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}, bytes(2)), "BF16"),
        (forged({"spec": "{}"}, {"a": {"dtype": "U8", "shape": [10**12], "data_offsets": [0, 10**12]}}), "cut off"),
    ],
)
def test_forged_files_are_refused(tmp_path, content, match):
    assert_refused(tmp_path / "forged", content, match)


def test_a_forger_can_make_a_good_file(tmp_path):
    """So that the refusals above are not for the checksum."""
    (tmp_path / "forged").write_bytes(forged({"spec": '{"a":1}'}))
    assert read_model(tmp_path / "forged") == ({"a": 1}, {})


def test_a_huge_header_takes_no_memory(tmp_path):
    path = tmp_path / "sparse"
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", 2**28) + b"{")
        file.truncate(2**28 + 8)
    tracemalloc.start()
    with pytest.raises(DataError, match="its header should take"):
        read_model(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e6


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ({"a": {"b": [0, float("nan")]}}, r"the spec\['a'\]\['b'\]\[1\] is nan"),
        ({"a": np.float32("inf")}, "is inf"),
        ({1: 2}, "has the key 1; keys must be text"),
        ({"a": {None: 2}}, r"the spec\['a'\] has the key None"),
        ({"a": np.ones(2)}, "is a ndarray"),
        ({"a": {1, 2}}, "is a set"),
        ({"a": b"1"}, "is a bytes"),
        ([1], "the spec is a list; pass a dict"),
        ({"a": 10**5000}, "cannot be written as JSON"),
    ],
)
def test_specs_that_json_cannot_hold(tmp_path, spec, match):
    with pytest.raises(DataError, match=match):
        write_model(tmp_path / "a", spec, {})
    assert not list(tmp_path.iterdir())


def test_a_spec_inside_itself(tmp_path):
    spec = {}
    spec["a"] = spec
    with pytest.raises(DataError, match="cannot be written as JSON"):
        write_model(tmp_path / "a", spec, {})


def test_tuples_and_numpy_scalars_become_plain(tmp_path):
    path = write_model(tmp_path / "a", {"a": (1, 2), "b": np.float32(0.5), "c": np.int8(3), "d": np.True_}, {})
    spec, _ = read_model(path)
    assert spec == {"a": [1, 2], "b": 0.5, "c": 3, "d": True}
    assert spec["d"] is True


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"a": np.array([None, "x"])}, '"a" holds object'),
        ({"a": np.array(["x"])}, '"a" holds <U1'),
        ({"a": np.ones(2, complex)}, "holds complex128"),
        ({"a": np.zeros(2, "datetime64[s]")}, "holds datetime64"),
        ({"a": np.zeros(2, [("u", float)])}, "holds "),
        ({1: np.ones(2)}, "named 1"),
        ({"": np.ones(2)}, "named ''"),
        ({"__metadata__": np.ones(2)}, "named '__metadata__'"),
        ({"a\ud800": np.ones(2)}, "printable"),
    ],
)
def test_arrays_that_cannot_be_stored(tmp_path, arrays, match):
    with pytest.raises(DataError, match=match):
        write_model(tmp_path / "a", {}, arrays)
    assert not list(tmp_path.iterdir())


def test_a_file_that_does_not_read_back_never_appears(path, monkeypatch):
    before = path.read_bytes()
    pack = model_file.pack
    monkeypatch.setattr(model_file, "pack", lambda spec, arrays: pack(spec, {"coef": arrays["coef"] + 1}))
    with pytest.raises(DataError, match="did not read back"):
        write_model(path, {"new": 1}, ARRAYS)
    monkeypatch.setattr(model_file, "pack", lambda spec, arrays: pack(spec, arrays)[:-1])
    with pytest.raises(DataError, match="cut off"):
        write_model(path, {"new": 1}, ARRAYS)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["a.mixtune"]


def test_a_failed_check_leaves_the_old_file(tmp_path):
    path = write_atomically(tmp_path / "a", b"old")
    seen = []

    def check(written):
        seen.append(written.read_bytes())
        raise DataError("no")

    with pytest.raises(DataError, match="no"):
        write_atomically(path, b"new", check=check)
    assert seen == [b"new"]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_new_files_follow_the_umask_and_old_ones_keep_their_permissions(tmp_path):
    path = tmp_path / "a"
    script = "import os, sys; from pathlib import Path; from mixtune.files import write_atomically as write\n"
    script += "os.umask(0o027); write(Path(sys.argv[1]), b'new')"
    subprocess.run([sys.executable, "-c", script, path], check=True)
    assert mode_of(path) == 0o640
    for mode in (0o600, 0o644, 0o666):
        path.chmod(mode)
        write_atomically(path, b"newer")
        assert mode_of(path) == mode


def test_writing_never_touches_the_umask(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("another thread may be creating a file"))
    write_atomically(tmp_path / "a", b"1")


def test_a_private_file_is_private_while_it_is_written(tmp_path):
    path = write_atomically(tmp_path / "a", b"old")
    path.chmod(0o600)
    modes = []
    write_atomically(path, b"new", check=lambda part: modes.append(mode_of(part)))
    assert modes == [0o600]


def test_links_are_written_through(tmp_path):
    (tmp_path / "inner").mkdir()
    target = write_atomically(tmp_path / "inner" / "b", b"old")
    link = tmp_path / "a"
    link.symlink_to(Path("inner") / "b")
    assert write_atomically(link, b"new") == link
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    target.unlink()
    write_atomically(link, b"newer")  # a link to a file that is not there yet
    assert link.is_symlink()
    assert target.read_bytes() == b"newer"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "b", "inner"]


def test_what_a_killed_write_left_is_removed_by_a_later_one(tmp_path):
    script = "import os, sys; from pathlib import Path; from mixtune.files import write_atomically as write\n"
    script += "write(Path(sys.argv[1]), b'new', check=lambda part: os._exit(9))"
    path = tmp_path / "a[1].mixtune"
    assert subprocess.run([sys.executable, "-c", script, path], check=False).returncode == 9
    (left,) = tmp_path.iterdir()
    others = [tmp_path / name for name in (".a[1].mixtune.notes", ".b.mixtune.01234567.part")]
    for other in others:
        other.write_bytes(b"not ours")
        os.utime(other, (0, 0))
    write_atomically(path, b"newer")
    assert left.exists()  # it might belong to a write that is still going on
    os.utime(left, (0, 0))
    write_atomically(path, b"newest")
    assert sorted(tmp_path.iterdir()) == sorted([path, *others])


def test_digests_tell_names_types_shapes_and_bits_apart():
    zeros = np.zeros(4)
    others = [{"b": zeros}, {"a": np.zeros(4, np.int64)}, {"a": zeros.reshape(2, 2)}, {"a": -zeros}, {}]
    others += [{"a": zeros, "b": np.zeros(0)}]
    digests = {array_digest(arrays) for arrays in [{"a": zeros}, *others]}
    assert len(digests) == 1 + len(others)
    assert array_digest({"a": zeros[::-1], "b": zeros}) == array_digest({"b": zeros.astype(">f8"), "a": zeros})


def test_what_is_no_plain_file_is_not_replaced(tmp_path):
    pipe, loop = tmp_path / "pipe", tmp_path / "loop"
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    for path in (pipe, loop):
        with pytest.raises(DataError, match="is not a plain file"):
            write_atomically(path, b"content")
    assert pipe.is_fifo()
    assert loop.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loop", "pipe"]
    with pytest.raises(DataError, match="null character"):
        write_model(tmp_path / "a\0b", {}, {})

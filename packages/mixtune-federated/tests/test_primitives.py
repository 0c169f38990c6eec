"""The primitives against published test vectors, and the laws that masks and shares rest on."""

from __future__ import annotations

import itertools
import stat

import numpy as np
import pytest
from scipy import stats

from mixtune.errors import DataError

pytest.importorskip("cryptography")

from mixtune_federated import Key
from mixtune_federated import _keys as keys
from mixtune_federated import _masks as masks
from mixtune_federated._study import mask_graph


def test_x25519_agrees_with_rfc_7748_section_6_1():
    alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    shared = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert keys.public_of(alice).hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert keys.public_of(bob).hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    assert keys.agree(alice, keys.public_of(bob)).hex() == keys.agree(bob, keys.public_of(alice)).hex() == shared


def test_hkdf_agrees_with_rfc_5869_case_1():
    found = keys.derive(b"\x0b" * 22, salt=bytes(range(13)), info=bytes(range(0xF0, 0xFA)), length=42)
    assert found.hex() == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"


def test_chacha20_agrees_with_rfc_8439_appendix_a_1():
    first = "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    first += "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    second = "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
    second += "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
    assert keys.keystream(bytes(32), 128).hex() == first + second


def test_ed25519_agrees_with_rfc_8032_section_7_1():
    seed = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    key = Key("one", seed, bytes(32))
    assert key.card.signing.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    signature = "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"  # noqa: E501
    assert key.sign(b"").hex() == signature


def test_what_is_sealed_opens_for_its_recipient_only_and_unaltered():
    one, two = Key.generate("one"), Key.generate("two")
    sealed = one.card.seal(b"text", b"context")
    assert one.open(sealed, "it", b"context") == b"text"
    for key, text, context in [(two, sealed, b"context"), (one, sealed, b"other"), (one, sealed[:-1], b"context")]:
        with pytest.raises(DataError, match="cannot be opened"):
            key.open(text, "it", context)
    for place in range(0, len(sealed), 7):
        altered = bytearray(sealed)
        altered[place] ^= 1
        with pytest.raises(DataError, match=r"cannot be opened|gives no secret"):
            one.open(bytes(altered), "it", b"context")
    with pytest.raises(DataError, match="gives no secret"):
        keys.agree(bytes(32), bytes(32))


def test_key_files_are_private_and_never_replaced(tmp_path):
    key = Key.generate("north")
    path = key.save(tmp_path / "north.key")
    assert Key.load(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(DataError, match="exists"):
        Key.generate("south").save(path)
    assert key.signing.hex() not in repr(key)
    (tmp_path / "bad.key").write_text("{}")
    with pytest.raises(DataError, match="not a key"):
        Key.load(tmp_path / "bad.key")


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_sums_in_the_ring_keep_all_digits(size):
    """Totals are as near as pooled ones, also of numbers far below the range that all members share."""
    rng = np.random.default_rng(0)
    values = size * rng.standard_normal((7, 50)) * 10.0 ** rng.integers(-3, 4, (7, 50))
    total = sum(masks.encode({"a": row[:20], "b": row[20:]}, 7) for row in values)
    found = masks.decode(total, {"a": 20, "b": 30}, 7)
    error = np.max(np.abs(np.concatenate([found["a"], found["b"]]) - values.sum(axis=0)))
    assert error <= 1e-15 * np.max(np.abs(values))
    assert len(total) == masks.length({"a": 20, "b": 30})
    with pytest.raises(DataError, match="do not add up"):
        masks.decode(total, {"a": 20, "b": 30}, 6)


def test_numbers_beyond_the_ring_are_refused():
    for value in (2.0**53, -(2.0**53), 1e300):
        with pytest.raises(DataError, match="larger than the range"):
            masks.encode({"a": np.array([value])}, 7)
    for value in (np.nan, np.inf):
        with pytest.raises(DataError, match="NaN"):
            masks.encode({"a": np.array([value])}, 7)
    largest = np.array([np.nextafter(2.0**50, 0.0)])
    assert masks.decode(sum(masks.encode({"a": largest}, 7) for _ in range(7)), {"a": 1}, 7)["a"] == 7 * largest


def test_masks_cancel_and_look_uniform():
    count, members = 4000, 5
    private = [Key.generate(str(place)).sealing for place in range(members)]
    public = {place: keys.public_of(key) for place, key in enumerate(private)}
    others = [{j: key for j, key in public.items() if j != place} for place in range(members)]
    found = [masks.mask_of(i, private[i], others[i], b"transcript" * 4, count) for i in range(members)]
    assert not np.any(sum(found))
    # The masked sums of a member are uniform on the ring, whatever the sums are.
    masked = found[0] + masks.to_ring(np.zeros(count), 0, members)
    assert stats.kstest(masked / 2.0**64, "uniform").pvalue > 1e-6
    counts = np.bincount(np.frombuffer(masked.tobytes(), np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-6
    # Another transcript gives other masks, which do not cancel these.
    other = masks.mask_of(0, private[0], others[0], b"transcripT" * 4, count)
    assert np.count_nonzero(other + sum(found[1:])) == count


@pytest.mark.parametrize(("count", "threshold"), [(3, 2), (6, 5), (4, 1)])
def test_shares_give_the_secret_back(count, threshold):
    secret = Key.generate("a").sealing
    places = list(range(2, 2 + count))
    shares = masks.split_secret(secret, places, threshold)
    for chosen in itertools.combinations(places, threshold):
        assert masks.join_shares({place: shares[place] for place in chosen}) == secret


def test_fewer_shares_than_the_threshold_say_nothing():
    """With t - 1 shares, every secret is equally likely: for each there is one last share that gives it."""
    secret, other = bytes(31) + b"\x01", bytes(31) + b"\x02"
    shares = masks.split_secret(secret, [0, 1, 2], 3)
    known = {place: int.from_bytes(shares[place], "big") for place in (0, 1)}
    # The polynomial through the known shares and the other secret, at the third place.
    points = {0: int.from_bytes(other, "big"), 1: known[0], 2: known[1]}
    third = 0
    for x, y in points.items():
        weight = 1
        for z in points:
            if z != x:
                weight = weight * (3 - z) * pow(x - z, -1, masks.PRIME) % masks.PRIME
        third = (third + y * weight) % masks.PRIME
    forged = {**{place: shares[place] for place in (0, 1)}, 2: third.to_bytes(masks.SHARE_BYTES, "big")}
    assert masks.join_shares(forged) == other
    # And a share by itself is uniform: its leading bits are.
    ones = [masks.split_secret(secret, [0, 1], 2)[0][1] for _ in range(1000)]
    assert stats.kstest(np.array(ones) / 256, "uniform").pvalue > 1e-6


def test_graphs_are_symmetric_and_connected():
    graph = mask_graph(300, b"seed")
    assert {len(each) for each in graph} == {20}
    assert all(place in graph[other] for place, own in enumerate(graph) for other in own)
    seen, edge = {0}, {0}
    while edge:
        edge = {other for place in edge for other in graph[place]} - seen
        seen.update(edge)
    assert len(seen) == 300
    assert mask_graph(300, b"other") != graph

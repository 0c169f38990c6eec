"""Messages with other content than the protocol gives them, signed by whoever sends them."""

from __future__ import annotations

import numpy as np

from mixtune.files import pack, unpack
from mixtune_federated._messages import CONTENT_FORM, write_message
from mixtune_federated._tuned import play_context


def forged(group, original, *, spec=None, arrays=None, to=None, **header):
    """The coordinator's request with other content, signed by the coordinator itself."""
    told, held = original.open(group.keys["m0"])
    cards = [group.study.card(name) for name in to or original.header["recipients"]]
    header = {name: original.header[name] for name in ("kind", "study", "step", "says", "public")} | header
    content = {"spec": {**told, **(spec or {})}, "arrays": {**held, **(arrays or {})}}
    return write_message(group.keys["m0"], cards, **header, **content)


def candidates(group, request, name):
    """What is sealed to one member for its validation tasks."""
    told, arrays = request.open(group.keys["m0"])
    place = group.study.sources.index(name)
    context = play_context(group.study, name, told["parts"])
    return unpack(
        group.keys[name].open(arrays[f"box.{place}"].tobytes(), "it", context), form=CONTENT_FORM, where="it"
    )[1]


def with_candidates(group, request, name, sent):
    """The request with other candidates for one member."""
    told, _ = request.open(group.keys["m0"])
    place = group.study.sources.index(name)
    box = group.study.card(name).seal(pack({}, sent, form=CONTENT_FORM), play_context(group.study, name, told["parts"]))
    return forged(group, request, arrays={f"box.{place}": np.frombuffer(box, dtype=np.uint8)})

"""Flower as transport: what both sides do, and the apps with Flower's own messages and a grid in memory."""

from __future__ import annotations

import json
import sys
import tomllib
from functools import partial
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from federate_command import run

pytest.importorskip("cryptography")

from flower_processes import exchange_on_this_machine
from mixtune.errors import DataError
from mixtune_federated import flower, read_message
from mixtune_federated.flower import answer_request, make_client_app, make_server_app, run_exchanges


@pytest.fixture
def nodes(consortium, tmp_path):
    """A consortium as files, and the node config of every member."""
    group = consortium(members=6, seed=1)
    group.study.save(tmp_path / "study.toml")
    found = {}
    for name, table in group.data.items():
        csv.write_csv(pa.table(table), tmp_path / f"{name}.csv")
        group.keys[name].save(tmp_path / f"{name}.key")
        found[name] = {"study": str(tmp_path / "study.toml"), "key": str(tmp_path / f"{name}.key")}
        found[name]["data"] = str(tmp_path / f"{name}.csv")
    return group, found


class Reply:
    """A reply of a node, as Flower has it."""

    metadata = SimpleNamespace(src_node_id=7)

    def __init__(self, record=None):
        self.content = {"mixtune": record}

    def has_error(self):
        return self.content["mixtune"] is None


def test_exchanges_by_nodes_that_answer_refuse_or_fail(nodes, tmp_path, capsys):
    group, settings = nodes
    policy = tmp_path / "strict.toml"
    policy.write_text("features_per_row = 0.01")
    settings["m1"]["policy"] = str(policy)

    def send(request, names):
        replies = [
            Reply(answer_request(request.content, settings[name])) for name in group.study.sources if name != "m2"
        ]
        return [*replies, Reply(), Reply({"file": b"no message"})]

    out = tmp_path / "out"
    missing = run_exchanges(group.coordinator(), send, out)
    assert "node 7 sent no answer" in capsys.readouterr().out
    assert set(missing) == {"m1", "m2"}
    assert "refused: sums over 4 features" in missing["m1"]
    assert missing["m2"] == "it did not answer in time"
    combined = group.coordinator().combine(sorted(out.glob("*.mxf")))
    assert combined.names == ("m3", "m4", "m5")
    pooled = group.pooled(combined.names, sharing=combined.sharing)
    np.testing.assert_allclose(group.model(combined, guard=False).coef_, pooled.coef_, rtol=1e-7)
    assert (tmp_path / "m3.ledger").exists()


def test_nobody_answers(nodes, tmp_path):
    group, _ = nodes
    with pytest.raises(DataError, match="nobody answered request 1"):
        run_exchanges(group.coordinator(), lambda request, names: [Reply()], tmp_path / "out")


def test_a_node_that_is_not_set_up(nodes):
    group, settings = nodes
    request = group.coordinator().ask().content
    del settings["m1"]["data"]
    assert 'the node config has no "data"' in answer_request(request, settings["m1"])["refused"]
    assert answer_request(request, {})["name"] == "a node without a key"
    assert answer_request(request, settings["m0"] | {"data": "none.csv"})["name"] == "m0"


def test_an_app_is_written_for_a_study(nodes, tmp_path):
    _, settings = nodes
    given = settings["m0"]
    options = ["--study", given["study"], "--key", given["key"], "--focal", given["data"], "--out", tmp_path / "out"]
    app = tmp_path / 'an "app"'
    run("flower-app", app, *options)
    config = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert config["config"]["focal"] == given["data"]
    for component in config["components"].values():
        module, name = component.split(":")
        assert f"{name} = make_{module}_app()" in (app / f"{module}.py").read_text()
    with pytest.raises(DataError, match="needs the key"):
        run("flower-app", tmp_path / "b", *options[:2], "--key", settings["m1"]["key"], *options[4:])


class StandInMessage:
    """As much of Flower's messages as the apps use."""

    def __init__(self, content, message_type="", dst_node_id=0, reply_to=None):
        self.content, self.metadata = content, SimpleNamespace(dst_node_id=dst_node_id, src_node_id=1)

    def has_error(self):
        return False


class StandInApp:
    """As much of Flower's apps: one function, which a decorator registers."""

    def query(self):
        return partial(setattr, self, "function")

    main = query

    def __call__(self, message, context):
        return self.function(message, context)


#: What takes the place of Flower's modules.
STAND_IN = {
    "flwr.app": SimpleNamespace(ConfigRecord=dict, RecordDict=dict, Message=StandInMessage),
    "flwr.clientapp": SimpleNamespace(ClientApp=StandInApp),
    "flwr.serverapp": SimpleNamespace(ServerApp=StandInApp),
}


@pytest.mark.parametrize("library", ["flwr", "a stand-in"])
def test_apps(nodes, tmp_path, monkeypatch, capsys, library):
    """The apps, with a grid that hands messages over in memory; one node is late, and one never replies."""
    group, settings = nodes
    if library == "flwr":
        pytest.importorskip("flwr")
        from flwr.supercore.task_identity import TaskIdentity

        # What Flower's processes know of themselves.
        for name, value in {"_run_id": 1, "_node_id": 1, "_task_id": 1}.items():
            monkeypatch.setattr(TaskIdentity, name, value)
    else:
        for name, module in STAND_IN.items():
            monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(flower, "POLL", 0.01)
    client = make_client_app()
    ids = dict(enumerate(group.study.sources, start=1))

    class Grid:
        looks = 0

        def get_node_ids(self):
            self.looks += 1
            return list(ids)[: self.looks + 3]

        def push_messages(self, messages):
            self.sent = {f"message {place}": message for place, message in enumerate(messages)}
            return list(self.sent)

        def pull_messages(self, wanted):
            """One reply at a time; the fifth node has none."""
            keys = [key for key in sorted(wanted) if self.sent[key].metadata.dst_node_id != 5]
            if not keys:
                return []
            key = keys[0]
            name = ids[self.sent[key].metadata.dst_node_id]
            node = SimpleNamespace(run_id=1, node_id=1, node_config=settings[name], state=None, run_config={})
            reply = client(self.sent[key], node)
            reply.metadata.__dict__["_reply_to_message_id" if library == "flwr" else "reply_to_message_id"] = key
            return [reply]

    given = {"study": settings["m0"]["study"], "focal": settings["m0"]["data"], "key": settings["m0"]["key"]}
    out = tmp_path / "out"
    context = SimpleNamespace(run_id=1, node_id=0, node_config={}, state=None)
    context.run_config = {**given, "out": str(out), "timeout": 0.5}
    make_server_app()(Grid(), context)
    files = sorted(out.glob("*.mxf"))
    assert len(files) == 10
    assert all(read_message(path).size < 20_000 for path in files)
    assert group.coordinator().combine(files).exchanges == 2
    assert json.loads((out / "outcome.json").read_text()) == {"missing": {"m5": "it did not answer in time"}}
    said = capsys.readouterr().out
    assert "request 1: 4 of 5 nodes are connected" in said
    assert 'request 1: waiting for "m5"' in said
    assert "m5 is missing: it did not answer in time" in said


def test_real_processes(nodes, tmp_path):
    """SuperLink with TLS, and nodes that authenticate themselves; where Flower is installed, which takes a minute."""
    pytest.importorskip("flwr")
    group, settings = nodes
    members = {name: {part: given[part] for part in ("data", "key")} for name, given in settings.items()}
    focal = members.pop("m0")
    assert exchange_on_this_machine(tmp_path, focal=(focal["data"], focal["key"]), members=members, timeout=120) == {}
    combined = group.coordinator().combine(sorted((tmp_path / "messages").glob("*.mxf")), require_all=True)
    pooled = group.pooled(combined.names, sharing=combined.sharing)
    np.testing.assert_allclose(group.model(combined, guard=False).coef_, pooled.coef_, rtol=1e-7)

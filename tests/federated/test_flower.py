"""Flower as transport: what both sides do, and the apps with Flower's own messages and a grid in memory."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

pytest.importorskip("cryptography")

from mixtune.errors import DataError
from mixtune.federated import read_message
from mixtune.federated.flower import answer_request, make_client_app, make_server_app, run_exchanges


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

    def __init__(self, record=None):
        self.content = {"mixtune": record}

    def has_error(self):
        return self.content["mixtune"] is None


def test_exchanges_by_nodes_that_answer_refuse_or_fail(nodes, tmp_path):
    group, settings = nodes
    policy = tmp_path / "strict.toml"
    policy.write_text("features_per_row = 0.01")
    settings["m1"]["policy"] = str(policy)

    def send(request):
        replies = [
            Reply(answer_request(request.content, settings[name])) for name in group.study.sources if name != "m2"
        ]
        return [*replies, Reply()]

    out = tmp_path / "out"
    missing = run_exchanges(group.coordinator(), send, out)
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
        run_exchanges(group.coordinator(), lambda request: [Reply()], tmp_path / "out")


def test_apps(nodes, tmp_path, monkeypatch):
    """The real apps, with a grid that hands messages over in memory."""
    pytest.importorskip("flwr")
    from flwr.app import Context, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    group, settings = nodes
    # What Flower's processes know of themselves.
    for name, value in {"_run_id": 1, "_node_id": 1, "_task_id": 1}.items():
        monkeypatch.setattr(TaskIdentity, name, value)
    client = make_client_app()
    ids = dict(enumerate(group.study.sources, start=1))

    class Grid:
        def get_node_ids(self):
            return list(ids)

        def send_and_receive(self, messages, *, timeout):
            for message in messages:
                name = ids[message.metadata.dst_node_id]
                node = SimpleNamespace(
                    run_id=1, node_id=1, node_config=settings[name], state=RecordDict(), run_config={}
                )
                yield client(message, node)

    given = {"study": settings["m0"]["study"], "focal": settings["m0"]["data"], "key": settings["m0"]["key"]}
    context = Context(
        run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={**given, "out": str(tmp_path / "out")}
    )
    make_server_app()(Grid(), context)
    files = sorted((tmp_path / "out").glob("*.mxf"))
    assert len(files) == 12
    assert all(read_message(path).size < 20_000 for path in files)
    assert group.coordinator().combine(files).exchanges == 2

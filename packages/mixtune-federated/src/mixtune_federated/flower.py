"""Flower as transport: a ServerApp that asks and a ClientApp that answers, with sealed files as payload.

The server app keeps every message as a file; ``mixtune federate combine`` makes the model of them. Flower stores
payloads in its database: they are sealed to their recipients, as for any relay.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mixtune import checks, files
from mixtune.errors import MixtuneError
from mixtune_federated._coordinator import Coordinator
from mixtune_federated._keys import Key
from mixtune_federated._messages import Message, read_message
from mixtune_federated._site import answer_request
from mixtune_federated._study import Study
from mixtune_federated._types import File, Values

_RECORD = "mixtune"
#: Seconds between two looks at what nodes replied.
POLL = 1.0
#: What the server app leaves beside the messages: who is missing, or why it failed.
OUTCOME = "outcome.json"
_APP = {
    "server.py": "from mixtune_federated.flower import make_server_app\n\napp = make_server_app()\n",
    "client.py": "from mixtune_federated.flower import make_client_app\n\napp = make_client_app()\n",
    "pyproject.toml": """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "mixtune-study"
version = "1.0.0"
description = "Carries the messages of a federated study of mixtune"
license = "BSD-3-Clause"
dependencies = ["flwr>=1.41,<1.42"]

[tool.flwr.app]
publisher = "mixtune"

[tool.flwr.app.components]
serverapp = "server:app"
clientapp = "client:app"

[tool.flwr.app.config]
""",
}


def write_app(
    folder: File,
    *,
    study: File,
    focal: File,
    key: File,
    out: File,
    timeout: float = 600.0,
) -> Path:
    """Write a Flower app for ``flwr run``; the paths are those on the coordinator's machine, where SuperLink runs.

    Parameters
    ----------
    folder
        Where the three files of the app go.
    study, focal, key
        The study, the focal member's rows and its key.
    out
        The folder for the messages.
    timeout
        Seconds to wait for the answers to one request.
    """
    folder = Path(folder)
    paths = {"study": study, "focal": focal, "key": key, "out": out}
    settings = {name: str(Path(path).resolve()) for name, path in paths.items()}
    # A string of JSON is one of TOML.
    lines = [f"{name} = {json.dumps(value)}" for name, value in {**settings, "timeout": float(timeout)}.items()]
    for name, text in _APP.items():
        full = text + "\n".join(lines) + "\n" if name == "pyproject.toml" else text
        folder.mkdir(parents=True, exist_ok=True)
        files.write_file(folder / name, full.encode(), example="server.py")
    return folder


def make_client_app() -> Any:
    """The ClientApp of a member; its node config has ``study``, ``data``, ``key``, maybe ``policy``, ``identifier``.

    Examples
    --------
    In ``client.py`` of a Flower app::

        from mixtune_federated.flower import make_client_app

        app = make_client_app()
    """
    flower, app = _flower(), _flower().ClientApp()

    @app.query()  # type: ignore[untyped-decorator]
    def answer(message: Any, context: Any) -> Any:
        content = bytes(message.content[_RECORD]["file"])
        record = flower.ConfigRecord(answer_request(content, dict(context.node_config)))
        return flower.Message(content=flower.RecordDict({_RECORD: record}), reply_to=message)

    return app


def make_server_app() -> Any:
    """The ServerApp of the coordinator; its run config has ``study``, ``focal``, ``key``, ``out`` and ``timeout``."""
    flower, app = _flower(), _flower().ServerApp()

    @app.main()  # type: ignore[untyped-decorator]
    def main(grid: Any, context: Any) -> None:
        given = dict(context.run_config)
        out, timeout = Path(str(given["out"])), float(given.get("timeout", 600.0))
        try:
            coordinator = Coordinator(Study.load(given["study"]), given["focal"], Key.load(given["key"]))
            send = partial(_ask_nodes, flower, grid, timeout)
            missing = run_exchanges(coordinator, send, out)
        except MixtuneError as error:
            _leave(out, {"error": str(error)})
            raise
        _leave(out, {"missing": missing})
        for name, why in missing.items():
            print(f"{name} is missing: {why}", flush=True)
        print(f"all answers are in {out}; make the model with: mixtune federate combine {out}/*.mxf", flush=True)

    return app


def run_exchanges(
    coordinator: Coordinator, send: Callable[[Message, Sequence[str]], Iterable[Any]], out: Path
) -> dict[str, str]:
    """All exchanges of a study; messages are kept in the folder ``out``. Returns who is missing, and why.

    ``send`` is called with a request and the members to answer it; it gives the replies of nodes.
    """
    out.mkdir(parents=True, exist_ok=True)

    def exchange(request: Message, names: Sequence[str]) -> tuple[list[Message], dict[str, str]]:
        request.save(out / f"q{request.step}.mxf")
        answers, refused = read_replies(send(request, names))
        for answer in answers:
            answer.save(out / f"a{request.step}-{answer.sender.encode().hex()}.mxf")
        found = {answer.sender for answer in answers}
        return answers, {name: refused.get(name, "it did not answer in time") for name in names if name not in found}

    coordinator.run(exchange)
    return dict(coordinator.rejected)


def read_replies(replies: Iterable[Any]) -> tuple[list[Message], dict[str, str]]:
    """Answers, and refusals by member, from what nodes replied; what cannot be read is left out and named by node."""
    answers, refused = [], {}
    for reply in replies:
        record = None if reply.has_error() else reply.content.get(_RECORD)
        if record is not None and "refused" in record:
            refused[str(record["name"])] = str(record["refused"])
        elif record is not None and "file" in record:
            try:
                answers.append(read_message(bytes(record["file"])))
            except MixtuneError as error:
                print(f"node {reply.metadata.src_node_id} sent no answer: {error}", flush=True)
    return answers, refused


def _ask_nodes(flower: Any, grid: Any, timeout: float, request: Message, names: Sequence[str]) -> list[Any]:
    """Send a request to all nodes and look for replies until all wanted members have answered or time is up."""
    until, waiting = time.monotonic() + timeout, list(names)
    nodes = list(grid.get_node_ids())
    while len(nodes) < len(names) and time.monotonic() < until:
        print(f"request {request.step}: {len(nodes)} of {len(names)} nodes are connected", flush=True)
        time.sleep(POLL)
        nodes = list(grid.get_node_ids())
    record = flower.ConfigRecord({"file": request.content})
    content = flower.RecordDict({_RECORD: record})
    made = [flower.Message(content=content, message_type="query", dst_node_id=node) for node in nodes]
    sent, found = set(grid.push_messages(made)), []
    while sent and waiting and time.monotonic() < until:
        new = list(grid.pull_messages(sent))
        if new:
            found += new
            sent -= {reply.metadata.reply_to_message_id for reply in new}
            answers, refused = read_replies(found)
            done = {answer.sender for answer in answers} | set(refused)
            waiting = [name for name in names if name not in done]
            print(f"request {request.step}: waiting for {checks.quoted(waiting) if waiting else 'nobody'}", flush=True)
        else:
            time.sleep(POLL)
    return found


def _leave(out: Path, outcome: Values) -> None:
    """Write down how the exchanges ended."""
    out.mkdir(parents=True, exist_ok=True)
    files.write_file(out / OUTCOME, json.dumps(outcome).encode(), example=OUTCOME)


def _flower() -> Any:
    """The names of Flower's Message API in one place."""
    places = ("app", "clientapp", "serverapp")
    parts = [checks.import_extra(f"flwr.{place}", "flower", "Flower as a transport") for place in places]
    return SimpleNamespace(**vars(parts[0]), ClientApp=parts[1].ClientApp, ServerApp=parts[2].ServerApp)

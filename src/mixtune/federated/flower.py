"""Flower as transport: a ServerApp that asks and a ClientApp that answers, with sealed files as payload.

Flower needs an environment of its own, since it pins older versions of the libraries of the command line. The server
app keeps every message as a file; ``mixtune federate combine`` makes the model of them. Flower stores payloads in its
database: they are sealed to their recipients, as for any relay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mixtune._messages import quoted
from mixtune.errors import DataError, MissingExtraError, MixtuneError
from mixtune.federated._coordinator import Coordinator
from mixtune.federated._keys import Key
from mixtune.federated._messages import Message, read_message
from mixtune.federated._policy import Ledger, Policy
from mixtune.federated._site import Site
from mixtune.federated._study import Study

_RECORD = "mixtune"


def make_client_app() -> Any:
    """The ClientApp of a member; its node config has ``study``, ``data`` and ``key``, and may have ``policy``.

    Examples
    --------
    In ``client.py`` of a Flower app::

        from mixtune.federated.flower import make_client_app

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
        coordinator = Coordinator(Study.load(given["study"]), given["focal"], Key.load(given["key"]))

        def send(request: Message) -> Iterable[Any]:
            record = flower.ConfigRecord({"file": request.content})
            return grid.send_and_receive(
                [
                    flower.Message(content=flower.RecordDict({_RECORD: record}), message_type="query", dst_node_id=node)
                    for node in grid.get_node_ids()
                ],
                timeout=float(given.get("timeout", 600.0)),
            )

        missing = run_exchanges(coordinator, send, Path(given["out"]))
        for name, why in missing.items():
            print(f"{name} is missing: {why}", flush=True)

    return app


def answer_request(content: bytes, settings: dict[str, Any]) -> dict[str, Any]:
    """What a member's node replies: a file, a refusal with its reason, or nothing where the request is for others."""
    try:
        request, key = read_message(content), Key.load(settings["key"])
        if key.name not in request.header["recipients"]:
            return {}
        policy = Policy.load(settings["policy"]) if "policy" in settings else Policy()
        ledger = Ledger(Path(settings["key"]).with_suffix(".ledger"))
        site = Site(Study.load(settings["study"]), settings["data"], key, policy, ledger=ledger)
        return {"file": site.answer(request).content}
    except MixtuneError as error:
        return {"refused": str(error), "name": Path(settings["key"]).stem}


def run_exchanges(coordinator: Coordinator, send: Any, out: Path) -> dict[str, str]:
    """All exchanges of a study; messages are kept in the folder ``out``. Returns who is missing, and why."""
    out.mkdir(parents=True, exist_ok=True)
    messages: list[Message] = []
    missing: dict[str, str] = {}
    while True:
        try:
            request = coordinator.ask(messages)
        except DataError as error:
            if error.code != "nothing-left":
                raise
            return missing
        request.save(out / f"q{request.step}.mxf")
        answers, refused = _replies(send(request))
        for answer in answers:
            answer.save(out / f"a{request.step}-{answer.sender.encode().hex()}.mxf")
        wanted = [name for name in request.header["recipients"] if name != coordinator.study.focal]
        found = {answer.sender for answer in answers}
        missing |= {name: refused.get(name, "it did not answer in time") for name in wanted if name not in found}
        messages += answers
        if not answers:
            raise DataError(f"nobody answered request {request.step}: {quoted(list(missing))} are missing")


def _replies(replies: Sequence[Any]) -> tuple[list[Message], dict[str, str]]:
    """Answers, and refusals by member, from what nodes replied; nodes that failed say nothing."""
    answers, refused = [], {}
    for reply in replies:
        record = None if reply.has_error() else reply.content.get(_RECORD)
        if record is not None and "file" in record:
            answers.append(read_message(bytes(record["file"])))
        elif record is not None and "refused" in record:
            refused[str(record["name"])] = str(record["refused"])
    return answers, refused


def _flower() -> Any:
    """The names of Flower's Message API in one place."""
    from types import SimpleNamespace

    try:
        from flwr.app import ConfigRecord, RecordDict
        from flwr.app import Message as FlowerMessage
        from flwr.clientapp import ClientApp
        from flwr.serverapp import ServerApp
    except ImportError as error:
        raise MissingExtraError("flwr", "flower", "Flower as a transport") from error
    names = {"ConfigRecord": ConfigRecord, "RecordDict": RecordDict, "Message": FlowerMessage}
    return SimpleNamespace(**names, ClientApp=ClientApp, ServerApp=ServerApp)

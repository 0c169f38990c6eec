"""``mixtune federate``: a study among members who keep their rows, carried by files."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
import typer

import mixtune_federated
from mixtune.cli import inputs as reading
from mixtune.cli import outputs
from mixtune.errors import DataError, ParameterError
from mixtune_federated import (
    Combined,
    Coordinator,
    FeatureSpec,
    FixedMethod,
    Key,
    Ledger,
    Limits,
    Message,
    Policy,
    Privacy,
    Site,
    Study,
    audit,
    check_name,
    check_not_kept,
    key_path,
    read_message,
)
from mixtune_federated._site import answer_request
from mixtune_federated._types import Values
from mixtune_federated.flower import write_app

federate = typer.Typer(no_args_is_help=True, help="Learn from members who keep their rows and send sums, as files.")
study_app = typer.Typer(no_args_is_help=True, help="Plan a study, join it, check it.")
federate.add_typer(study_app, name="study")

StudyFile: TypeAlias = Annotated[Path, typer.Argument(metavar="STUDY", help="The file of the study, study.toml.")]
PolicyFile: TypeAlias = Annotated[Path | None, typer.Option("--policy", help="The member's own rules, a TOML file.")]
Focal: TypeAlias = Annotated[str, typer.Option(help="The member that the model is for.")]
FocalRows: TypeAlias = Annotated[Path, typer.Option("--focal", help="The rows of the focal member.")]
_KEY_HELP = "The member's key; by default the one next to the study."
KeyFile: TypeAlias = Annotated[Path | None, typer.Option("--key", help=_KEY_HELP)]
_CONFIRM_HELP = "Add an exchange in which members confirm who took part."
_NEW_KEY_HELP = "Where to write the new key; by default NAME.key in the folder of the study."
_CHECK_HELP = "Check these rows against the study and the default policy."
_IDENTIFIER_HELP = "The column that says whose a row is; it stays here, and people are counted by it."
_LEDGER_HELP = "Record of past releases; by default NAME.ledger in the folder of the study."
_MESSAGES_HELP = "The requests and answers so far, .mxf."


@dataclass(frozen=True)
class StudyFiles:
    """The study and the key of the member who works on it."""

    study: Annotated[Path, typer.Option("--study", help="The file of the study.")] = Path("study.toml")
    key: KeyFile = None


@dataclass(frozen=True)
class StudySettings:
    """What members agree on besides columns and target."""

    level: Annotated[int, typer.Option(metavar="1|2|3", help="1 sealed, 2 masked, 3 masked and private.")] = 2
    method: Annotated[str, typer.Option(metavar="fixed|tuned", help="Fixed or self-tuned parameters.")] = "fixed"
    weights: Annotated[str, typer.Option(metavar="predictive|equal", help="How members are weighted.")] = "predictive"
    ridge: Annotated[float, typer.Option(help="Ridge of the local models.")] = 1.0
    epsilon: Annotated[float, typer.Option(help="Level 3 only: the privacy budget.")] = 3.0
    delta: Annotated[float, typer.Option(help="Level 3 only: the probability that the guarantee fails.")] = 1e-6
    drop_outs: Annotated[int, typer.Option(help="How many members may drop out between exchanges.")] = 1
    confirm: Annotated[bool, typer.Option("--confirm", help=_CONFIRM_HELP)] = False
    random_width: reading.RandomWidth = None
    seed: reading.Seed = 0

    def new_study(self, like: Sequence[Path], **about: Any) -> Study:
        """A study of tables like these."""
        return Study.new(
            like,
            level=self.level,
            method=self.method,
            fixed=FixedMethod(weights=self.weights, ridge=self.ridge),
            features=FeatureSpec(self.random_width or 0, self.seed),
            privacy=Privacy(self.epsilon, self.delta),
            limits=Limits(drop_outs=self.drop_outs, confirm=self.confirm),
            **about,
        )


@dataclass(frozen=True)
class ResultOptions:
    """Where the model and the report are written."""

    require_all: Annotated[bool, typer.Option("--require-all", help="Stop if a member is missing.")] = False
    out: Annotated[Path | None, typer.Option(help="Save the model to this file, such as model.mixtune.")] = None
    report: Annotated[Path | None, typer.Option(help="Write a page about the model, such as report.html.")] = None
    force: reading.Force = False
    as_json: reading.AsJson = False

    def check(self, inputs: Sequence[Path] = ()) -> None:
        """Check before any work that the files can be written."""
        _check_outputs({"--out": self.out, "--report": self.report}, force=self.force, inputs=inputs)


@study_app.command("new")
@reading.with_groups
def study_new(
    study: StudyFile,
    like: Annotated[list[Path], typer.Option(help="A table with the columns; the first one gives the scales.")],
    target: reading.Target,
    focal: Focal,
    settings: StudySettings,
    name: Annotated[str, typer.Option(help="Of the study.")] = "study",
    days: Annotated[int, typer.Option(help="How long the study is open.")] = 90,
    force: reading.Force = False,
) -> None:
    """Plan a study: columns, levels, scales, feature map, method and level.

    Scales are means and standard deviations of the first table, to two digits.
    Look through the file and edit it before anybody joins; if you edit columns
    or features, delete the line with the hash of the feature map.
    """
    _check_outputs({"STUDY": study}, force=force, inputs=like)
    made = settings.new_study(like, target=target, focal=focal, name=name, days=days)
    made.save(study)
    console = outputs.output()
    console.print(f"Wrote the study to {outputs.safe(study)}: {made.n_features} features, level {made.level}.")
    console.print(outputs.safe(made.predicts), soft_wrap=True)
    console.print(f"Next, every member: mixtune federate study join {outputs.safe(study)} --name NAME")


@study_app.command("join")
def study_join(
    study: StudyFile,
    name: Annotated[str, typer.Option(help="The member's name.")],
    key: Annotated[Path | None, typer.Option(help=_NEW_KEY_HELP)] = None,
    data: Annotated[Path | None, typer.Option(help="Check these rows against the study.")] = None,
) -> None:
    """Make a key for a member and pin its public half in the study. The key file never leaves the member."""
    found = Study.load(study)
    if data is not None:
        found.read(data)
    check_name(name)
    place = key or study.parent / f"{name}.key"
    made = Key.load(place) if place.exists() else Key.generate(name)
    if made.name != name:
        raise ParameterError(f'{place} is the key of "{made.name}", not of "{name}"; pass another --key or --name')
    joined = found.joined(made.card)
    if not place.exists():
        made.save(place)
    joined.save(study)
    console = outputs.output()
    console.print(
        f'"{outputs.safe(name)}" is a member of study "{outputs.safe(found.name)}"; its key is {outputs.safe(place)}.'
    )
    console.print("Send the study file to the next member, the last one to all; never share the key file.")


@study_app.command("check")
def study_check(
    study: StudyFile,
    data: Annotated[Path | None, typer.Option(help=_CHECK_HELP)] = None,
    as_json: reading.AsJson = False,
) -> None:
    """Show what was agreed on, and the fingerprint to compare over the telephone."""
    found = Study.load(study)
    found.check()
    if data is not None:
        Policy().check_rows(found.read(data), found.n_features, found.encoder.names)
    lines = found.describe()
    if as_json:
        members = [card.name for card in found.members]
        outputs.print_json({"fingerprint": found.fingerprint, "members": members, "level": found.level, "says": lines})
        return
    outputs.show_lines(outputs.output(), f"Study {found.name}", lines)


@federate.command()
def ask(
    study: StudyFile,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="The requests and answers so far, .mxf.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write the request.")] = Path("q.mxf"),
    focal: Annotated[Path | None, typer.Option("--focal", help="The rows of the focal member.")] = None,
    key: KeyFile = None,
    policy: PolicyFile = None,
    force: reading.Force = False,
) -> None:
    """Write the next request: the first one, or the one that follows from the requests and answers so far."""
    _check_outputs({"--out": out}, force=force, inputs=[study, *(files or [])])
    found = Study.load(study)
    coordinator = Coordinator(found, focal, _key(key, study, found.focal), policy=_policy(policy))
    request = coordinator.ask(files or (), file=out.name)
    request.save(out)
    lost = [f'"{name}" is missing: {why}' for name, why in coordinator.missing(files or ()).items()]
    outputs.show_lines(outputs.output(), f"Wrote {out}", [*request.explain(), *lost])


@dataclass(frozen=True)
class MemberFiles:
    """What belongs to the member that answers."""

    study: Annotated[Path, typer.Option("--study", help="The file of the study.")] = Path("study.toml")
    key: KeyFile = None
    policy: PolicyFile = None
    ledger: Annotated[Path | None, typer.Option(help=_LEDGER_HELP)] = None
    identifier: Annotated[str | None, typer.Option(help=_IDENTIFIER_HELP)] = None

    @property
    def inputs(self) -> list[Path]:
        """Files that are never replaced."""
        return [path for path in (self.study, self.key, self.policy, self.ledger) if path is not None]

    def site(self, data: Path) -> Site:
        """The member, with its rows."""
        own = _key(self.key, self.study)
        book = Ledger(self.ledger or self.study.parent / f"{own.name}.ledger")
        policy = _policy(self.policy)
        return Site(Study.load(self.study), data, own, policy, ledger=book, identifier=self.identifier)


@federate.command()
@reading.with_groups
def answer(
    request: Annotated[Path, typer.Argument(metavar="REQUEST", help="The request, .mxf.")],
    data: Annotated[Path, typer.Option("--data", help="The member's rows, CSV or Parquet.")],
    out: Annotated[Path, typer.Option(help="Where to write the answer.")],
    own: MemberFiles,
    force: reading.Force = False,
) -> None:
    """Answer a request with sums of the member's rows, or refuse it with a reason.

    Look at the answer with "mixtune federate audit" before you send it.
    """
    _check_outputs({"--out": out}, force=force, inputs=[request, data, *own.inputs])
    made = own.site(data).answer(request, file=out.name)
    made.save(out)
    outputs.show_lines(outputs.output(), f"Wrote {out}", made.explain())


@federate.command("audit")
@reading.with_groups
def audit_answers(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Answers of this member, .mxf.")],
    own: MemberFiles,
    data: Annotated[Path | None, typer.Option("--data", help="The rows, to see how few people sums are about.")] = None,
    as_json: reading.AsJson = False,
) -> None:
    """Show what answers reveal, to whom, and about how few people, before they are sent."""
    site, lines = None if data is None else own.site(data), dict[str, list[str]]()
    for path in files:
        lines[str(path)] = audit(read_message(path), _key(own.key, own.study), site if path == files[-1] else None)
    if as_json:
        outputs.print_json(lines)
        return
    for name, said in lines.items():
        outputs.show_lines(outputs.output(), name, said)


@federate.command("inspect")
def inspect_message(
    message: Annotated[Path, typer.Argument(metavar="FILE", help="A request or an answer, .mxf.")],
    study: Annotated[Path | None, typer.Option("--study", help="Check the signature by this study.")] = None,
    as_json: reading.AsJson = False,
) -> None:
    """Describe what a file contains, who can read it and how large it is.

    With --study, a file that its sender did not sign is refused.
    """
    found, checked = read_message(message), "the signature was not checked; pass --study to check it"
    if study is not None:
        found.check(Study.load(study).card(found.sender))
        checked = f'the signature is that of "{found.sender}", as the study pins it'
    lines = [*found.explain(), checked]
    if as_json:
        outputs.print_json({**found.header, "bytes": found.size, "explained": lines})
        return
    outputs.show_lines(outputs.output(), str(message), lines)


@federate.command()
@reading.with_groups
def combine(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help=_MESSAGES_HELP)],
    focal: FocalRows,
    own: StudyFiles,
    result: ResultOptions,
) -> None:
    """Fit the focal member's model from the answers."""
    result.check([*files, focal])
    found = Study.load(own.study)
    coordinator = Coordinator(found, focal, _key(own.key, own.study, found.focal))
    combined = coordinator.combine(files, require_all=result.require_all)
    _show(_finish(combined, focal, result), result)


@federate.command("flower-app")
@reading.with_groups
def flower_app(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write the files of the app.")],
    focal: FocalRows,
    own: StudyFiles,
    out: Annotated[Path, typer.Option(help="The folder for requests and answers.")] = Path("messages"),
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the answers to one request.")] = 600.0,
    force: reading.Force = False,
) -> None:
    """Write a Flower app for "flwr run" that carries the messages of a study; paths are those of this machine."""
    if (folder / "pyproject.toml").exists() and not force:
        raise ParameterError(f"{folder} holds a project; choose another folder, or --force to replace it")
    found = Study.load(own.study)
    place = own.key or key_path(own.study.parent, found.focal)
    Coordinator(found, focal, _key(place, own.study))
    write_app(folder, study=own.study, focal=focal, key=place, out=out, timeout=timeout)
    console = outputs.output()
    console.print(f"Wrote the app to {outputs.safe(folder)}. Run it with: flwr run {outputs.safe(folder)} SUPERLINK")


@federate.command()
@reading.with_groups
def simulate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="One CSV file for each member, named after it.")],
    focal: Focal,
    target: reading.Target,
    settings: StudySettings,
    result: ResultOptions,
    processes: Annotated[int, typer.Option(help="Maximum number of processes, which the members share.", min=1)] = 8,
    policy: PolicyFile = None,
) -> None:
    """Run a whole study on this machine, with processes for its members, and compare it with the pooled computation.

    Examples:

    mixtune federate simulate schools/ --focal school-1 --target normexam --level 2 --json
    """
    result.check()
    tables = _tables(folder, focal)
    begin = time.perf_counter()
    like = [tables[focal], *(path for name, path in tables.items() if name != focal)]
    study = settings.new_study(like, target=target, focal=focal, name=folder.resolve().name)
    keys = {name: Key.generate(name) for name in tables}
    study = study.joined(*(key.card for key in keys.values()))
    coordinator = Coordinator(study, tables[focal], keys[focal], policy=_policy(policy))
    with outputs.progress_bar(6) as step, tempfile.TemporaryDirectory() as place:
        where, rules = study.save(Path(place) / "study.toml"), {} if policy is None else {"policy": policy}
        nodes = {name: {"study": where, "data": tables[name], **rules} for name in study.sources}
        for name, node in nodes.items():
            node["key"] = keys[name].save(where.with_name(f"{name}.key"))
        # A server that has imported everything forks the members: each of them would take seconds to import it again.
        context: Any = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
        if hasattr(context, "set_forkserver_preload"):
            context.set_forkserver_preload(["mixtune_federated", "pandas"])
        with ProcessPoolExecutor(min(processes, len(nodes)), mp_context=context) as pool:

            def exchange(request: Message, names: Sequence[str]) -> tuple[list[Message], dict[str, str]]:
                step(f"Exchange {request.step}")
                replies = pool.map(partial(answer_request, request.content), [nodes[name] for name in names])
                told = dict(zip(names, replies))
                refused = {name: reply["refused"] for name, reply in told.items() if "refused" in reply}
                return [read_message(reply["file"]) for reply in told.values() if "file" in reply], refused

            messages = coordinator.run(exchange)
        combined = coordinator.combine(messages, require_all=result.require_all)
        step("Comparing with the pooled computation")
        seconds = time.perf_counter() - begin
        document = _finish(combined, tables[focal], result)
        document |= {"difference": _difference(combined, tables), "seconds": seconds}
    _show(document, result)


def _finish(combined: Combined, focal: Path, result: ResultOptions) -> Values:
    """The model, its files, and what there is to say."""
    study = combined.study
    rows = study.read(focal)
    model = mixtune_federated.FederatedRegressor.from_study(study).fit(rows.X, rows.y, sources=combined)
    counts = {study.focal: len(rows.y)}
    if study.level == 1:
        counts |= {name: moments.count for name, moments in combined.moments.items()}
    encoder = replace(study.encoder, focal=study.focal).to_dict()
    written = outputs.write_model(
        model,
        counts,
        {"model": result.out, "report": result.report},
        title=f"{study.encoder.target.name} of {study.focal}",
        settings={"level": study.level, "method": study.method, "study": study.name},
        metadata={"made_by": "mixtune federate", "encoder": encoder, "notes": model.notes_},
    )
    about = {"study": study.name, "fingerprint": study.fingerprint, "level": study.level, "method": study.method}
    about |= {"focal": study.focal, "members": list(combined.names), "guarded": model.guarded_, "made": model.made_}
    about |= {name: getattr(combined, name) for name in ("missing", "late", "exchanges", "bytes_per_member")}
    about |= {"epsilon": study.privacy.epsilon, "delta": study.privacy.delta} if study.level == 3 else {}
    return {"verdict": written.pop("verdict"), **about, **written}


def _difference(combined: Combined, tables: dict[str, Path]) -> float:
    """The largest difference of coefficients from the pooled computation, relative to the largest of them."""
    study = combined.study
    rows = {name: study.read(tables[name]) for name in (study.focal, *combined.names)}
    focal = rows.pop(study.focal)
    ours = mixtune_federated.FederatedRegressor.from_study(study, guard=False).fit(focal.X, focal.y, sources=combined)
    pooled = mixtune_federated.pooled_twin(combined, focal, rows)
    mine, theirs = (np.append(each.coef_, each.intercept_) for each in (ours, pooled))
    return float(np.max(np.abs(mine - theirs)) / np.max(np.abs(theirs)))


def _show(document: Values, result: ResultOptions) -> None:
    if result.as_json:
        outputs.print_json(document)
        return
    console = outputs.output()
    outputs.show_lines(console, "How the model was made", document["made"])
    weights = sorted(((each.get("weight") or 0.0, each["name"]) for each in document["domains"]), reverse=True)
    shown = [f"{name}: {weight:.1%}" for weight, name in weights[: outputs.MOST_DOMAINS]]
    outputs.show_lines(console, "Weights", shown)
    lines = [document["verdict"]]
    lines += [f"root mean squared error on the focal rows, left out in turn: {document['loo_rmse']:.4g}"]
    lines += [note for note in document["notes"] if note not in document["made"]]
    if "difference" in document:
        lines.append(f"difference from the pooled computation: {document['difference']:.2g}")
        lines.append(f"{document['seconds']:.1f} seconds")
    outputs.show_lines(console, "Result", lines)
    outputs.show_written(console, document["written"])


def _tables(folder: Path, focal: str) -> dict[str, Path]:
    """The members' tables by name."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; put one CSV file for each member into it")
    found = {path.stem: path for path in sorted(folder.iterdir()) if path.suffix.lower() in (".csv", ".parquet")}
    if focal not in found:
        raise DataError(f'{folder} has no table of the focal member "{focal}"; it has {", ".join(list(found)[:8])}')
    return found


def _check_outputs(paths: dict[str, Path | None], *, force: bool, inputs: Sequence[Path]) -> None:
    """Refuse places where nothing can be written, or where a key or a ledger is."""
    outputs.check_outputs(paths, force=force, inputs=inputs)
    for path in paths.values():
        if path is not None:
            check_not_kept(path)


def _policy(path: Path | None) -> Policy:
    return Policy() if path is None else Policy.load(path)


def _key(path: Path | None, study: Path, name: str = "") -> Key:
    return Key.load(path or key_path(study.parent, name))

"""The coordinator: it asks, and combines the answers. It is the focal member, whose rows stay with it as well.

Nothing is kept between the exchanges but the messages themselves: given the study, the key and the files, the next
request or the result follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, islice
from typing import Any, TypeAlias

import numpy as np

from mixtune import checks, files
from mixtune.choice import RemoteTasks, SummedSources, SummedTask
from mixtune.errors import DataError, MixtuneError
from mixtune.moments import LocalModel, Moments, Origin, Rows
from mixtune.weights import PredictiveWeights
from mixtune_federated import _masks as masks
from mixtune_federated import _sums as sums
from mixtune_federated import _tuned as tuned
from mixtune_federated._keys import KEY_BYTES, SIGNATURE_BYTES, Key, public_of
from mixtune_federated._messages import (
    CONTENT_FORM,
    STEPS,
    Message,
    hashed,
    read_message,
)
from mixtune_federated._policy import Policy, RefusedError
from mixtune_federated._privacy import private_length, private_moments
from mixtune_federated._study import Study
from mixtune_federated._types import Arrays, Content, File, Floats, Values

#: What is sent of candidates for a validation task.
_SENT = ("heads", "quadratics")
#: Sets of shares that are tried where some are wrong.
MOST_TRIED = 1000
#: Numbers that order sources.
RANKS = 7
#: The name of all members together.
MEMBERS = "all members"
#: What carries a request to members and brings back answers, and why some are missing.
Exchange: TypeAlias = Callable[[Message, Sequence[str]], tuple[list[Message], dict[str, str]]]
#: Answers by member: values and arrays.
_Answers: TypeAlias = dict[str, Content]
#: A request before it is sealed: recipients, a description, values and arrays.
_Question: TypeAlias = tuple[Sequence[str], list[str], Values, Values]
#: Why a member takes no part in validation.
IDLE = "its policy allows no sums over so few of its rows"
#: The sharing of predictive weights is doubled at most so often.
DOUBLINGS = 60


@dataclass(frozen=True, eq=False)
class Combined:
    """What the members' answers amount to; ``FederatedRegressor`` makes a model of it and the focal rows.

    Attributes
    ----------
    study : Study
    names : tuple of str
        The sources that take part.
    moments : dict of str to Moments
        Of each source at level 1; of all members together, with noise, at level 3; else empty.
    weights, scores : dict of str to float
        By member, the focal one first; at level 1 they are found by the model.
    sharing : float or None
        Of predictive weights at level 2.
    plan, tasks
        Of the self-tuned choice at level 1: what was drawn, and the validation tasks that members did.
    origin : Origin
        The point that ``moments`` are about: one near all rows at level 1, else the zero of the study.
    summed, terms
        Of the self-tuned choice at level 2: the sum of the members' moments, and sums over their models.
    total : Moments or None
        At level 2: the weighted mean of the sources' moments.
    head : array or None
        At level 2: the weighted mean of the sources' local models.
    missing : dict of str to str
        Sources that take no part, and why.
    late : dict of str to str
        Sources whose sums count, but that take no part in the validation of the self-tuned choice, and why.
    exchanges : int
        Requests and answers that were needed.
    bytes_per_member : int
        The most that one member received and sent.
    """

    study: Study
    names: tuple[str, ...]
    exchanges: int
    origin: Origin
    missing: Mapping[str, str] = field(default_factory=dict)
    late: Mapping[str, str] = field(default_factory=dict)
    moments: Mapping[str, Moments] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    sharing: float | None = None
    plan: Any = None
    tasks: Sequence[SummedTask] = ()
    summed: SummedSources | None = None
    terms: Any = None
    total: Moments | None = None
    head: Floats | None = None
    bytes_per_member: int = 0

    @property
    def made(self) -> tuple[str, ...]:
        """How the sums were made, in sentences for the report."""
        study = self.study
        kinds = {1: "sealed moments of each member", 2: "masked sums over all members", 3: "masked sums with noise"}
        told = [
            f"federated study {study.name!r}, fingerprint {study.fingerprint[:16]}: level {study.level}, from "
            f"{kinds[study.level]} ({len(self.names)} members beside {study.focal!r}); rows never left the members",
            f"{self.exchanges} exchange{'s' * (self.exchanges > 1)} of files, at most {self.bytes_per_member:,} bytes "
            "for a member",
        ]
        if study.level == 3:
            bounds = f"rows clipped to length {study.row_norm:.3g}, targets to {study.privacy.target_bound:g} scales"
            privacy = f"epsilon {study.privacy.epsilon:g}, delta {study.privacy.delta:g}"
            told.append(f"differentially private for each row of the members: {privacy} ({bounds})")
        told += [f"{name!r} takes no part: {why}" for name, why in self.missing.items()]
        later = "takes no part in the validation of the self-tuned choice"
        told += [f"the sums of {name!r} count, but it {later}: {why}" for name, why in self.late.items()]
        return tuple(told)


class Coordinator:
    """The member that asks.

    Parameters
    ----------
    study : Study
    rows : table, path or Rows, or None
        The focal rows, which not all steps need; sums over them are sent to the members where weights depend on scores.
    key : Key
        The focal member's.
    policy : Policy, optional
        The focal member's rules for its own sums.

    Examples
    --------
    See the page on federated studies.
    """

    def __init__(
        self,
        study: Study,
        rows: Any,
        key: Key,
        *,
        policy: Policy | None = None,
    ) -> None:
        study.check()
        self.study, self.policy = study, policy or Policy()
        if key.name != study.focal or study.card(study.focal) != key.card:
            raise DataError(f'the coordinator needs the key of "{study.focal}", as the study pins it', code="wrong-key")
        self.key = key
        self.inputs: Rows | None = None if rows is None else study.read(rows)
        #: Answers that were left out, and why.
        self.rejected: dict[str, str] = {}
        self._sent: list[Message] = []
        self._cache: dict[Any, Any] = {}

    def run(self, exchange: Exchange) -> list[Message]:
        """Ask until nothing is left to ask; returns the answers. Members that are missing are kept in ``rejected``.

        Parameters
        ----------
        exchange
            Called with a request and the names of the members that are to answer it; gives the answers, and why other
            members are missing.
        """
        messages: list[Message] = []
        while True:
            try:
                request = self.ask(messages)
            except DataError as error:
                if error.code != "nothing-left":
                    raise
                return messages
            names = [name for name in request.header["recipients"] if name != self.study.focal]
            answers, lost = exchange(request, names)
            self.rejected |= lost
            messages += answers
            if not answers:
                first = next(iter(lost.values()), "nobody was asked")
                raise DataError(
                    f"nobody answered request {request.step}: {checks.quoted(list(lost))} are missing ({first})"
                )

    # --- asking -------------------------------------------------------------------------------------------------

    def ask(self, messages: Iterable[Message | File | bytes] = (), *, file: str = "") -> Message:
        """The next request, after the messages so far; the first one without any. It holds under its file name."""
        known, study = self._log(messages), self.study
        asked = self._next(known)
        to, says, spec, arrays = getattr(self, f"_ask_{asked}")(known)
        header: Values = {"kind": "request", "step": STEPS[asked], "public": {"ask": asked}, "file": file}
        # The coordinator reads its own requests again when it combines.
        made = study.write(self.key, (*to, study.focal), says, spec, arrays=arrays, **header)
        self._sent.append(made)
        return made

    def _next(self, known: _Log) -> str:
        """The next request of the study; shares of masks only where the sum still has masks, and nothing after them."""
        requests = self.study.requests
        if not known.requests:
            return requests[0]
        last = known.last.public["ask"]
        left = [] if last == "shares" else list(requests[requests.index(last) + 1 :])
        if last == "sums" and not (self.study.limits.confirm or self._dropped(known)):
            left.remove("shares")
        if not left:
            raise _nothing_left("there is nothing left to ask")
        return left[0]

    def _ask_moments(self, known: _Log) -> _Question:
        return self.study.sources, ["a request for sums, sealed to the coordinator"], {}, {}

    def _ask_keys(self, known: _Log) -> _Question:
        study, says, arrays = self.study, ["a request for keys"], Values()
        if study.scored:
            inputs = self._inputs()
            self.policy.check_rows(inputs, study.n_features, study.encoder.names)
            says.append(f'sums over the {len(inputs.y)} rows of "{study.focal}", for members to score their models on')
            arrays = sums.moment_arrays(self._focal.moments)
        rows = {"rows": len(self._inputs().y)} if study.tuned_by_sums else {}
        return study.sources, says, rows, arrays

    def _ask_sums(self, known: _Log) -> _Question:
        study, told = self.study, self._usable_keys(known)
        least = self.policy.least_sources
        if len(told) < least:
            lacking = f"{len(told)} members answered, a masked sum needs {least}"
            raise DataError(f"{lacking}; wait for {_listed(self._missing(told))}", code="few-answers")
        roster = [name for name in study.sources if name in told]
        weights, sharing = self._weigh(roster, {name: told[name][0] for name in roster})
        spec: Values = {"first": known.last.digest, "roster": roster}
        spec |= {"weights": [weights[name] for name in roster], "focal_weight": weights[study.focal]}
        spec["spares"] = [told[name][0]["spares"] for name in roster]
        public, signed = (np.stack([told[name][1][part] for name in roster]) for part in ("public", "signature"))
        says = [f"a request for a masked sum over {len(roster)} members, their weights and their keys"]
        return roster, says, {**spec, "sharing": sharing}, {"mask_keys": public, "mask_signatures": signed}

    def _usable_keys(self, known: _Log) -> _Answers:
        """First answers at levels 2 and 3 that can be used; the others are left out and named."""
        study, request = self.study, known.requests[0]

        def read(name: str, spec: Values, arrays: Arrays) -> Content:
            boxes = len(study.neighbours(name)), masks.BOX_BYTES
            shapes: masks.Shapes = {"public": (masks.KEYS_BYTES,), "signature": (SIGNATURE_BYTES,), "boxes": boxes}
            shapes |= {"own_boxes": boxes, "own_digest": (KEY_BYTES,)} if study.limits.confirm else {}
            if not masks.has_bytes(arrays, shapes):
                raise DataError("it sent no keys for masks")
            public, signature = (arrays[part].tobytes() for part in ("public", "signature"))
            text = masks.key_text(study, request.digest, name, public, spec.get("spares") is True)
            if not study.card(name).verifies(text, signature):
                raise DataError("it did not sign its key for masks")
            if study.scored and not _is_score(spec.get("score")):
                raise DataError("it sent no score that a model can have")
            return spec, arrays

        return self._read(known, request, read)

    def _ask_shares(self, known: _Log) -> _Question:
        spec, arrays = known.last.open(self.key)
        dropped = self._dropped(known)
        alive = [name for name in spec["roster"] if name not in dropped]
        first = self._read(known, known.requests[0])
        opened = masks.opened_secrets(self.study, spec["roster"], dropped)
        held = {**arrays, "boxes": np.stack([first[name][1][kind] for name, kind in opened.items()])}
        told = {"second": spec, "second_digest": known.last.digest, "dropped": dropped}
        gone = f"{', '.join(dropped)}, who dropped out" if dropped else "those who took part"
        return alive, [f"a request for shares of the masks of {gone}"], told, held

    def _ask_ranks(self, known: _Log) -> _Question:
        remote = self._remote(known)
        rows = round(remote.focal.total)
        says = [f"a request for how the rows are to be ordered, about a common mean, for tasks of {rows} rows"]
        return self._names_of(known), says, {"rows": rows}, sums.origin_arrays(remote.mean)

    def _ask_parts(self, known: _Log) -> _Question:
        plan = self._plan(known)
        places = self._places(known, plan)
        says = [f"a request for sums over {plan.rows} rows, drawn at random, of {len(places)} members"]
        return list(places), says, *self._task_content(known, plan, places)

    def _ask_plays(self, known: _Log) -> _Question:
        plan, remote, study, boxes = self._plan(known), self._remote(known), self.study, Values()
        places = self._places(known, plan)
        parts = self._read_parts(known, places)
        spec, arrays = self._task_content(known, plan, {name: places[name] for name in parts})
        for name, moments in parts.items():
            source = self._names_of(known).index(name)
            found = [remote.candidates(source, part) for part in moments]
            sent = {f"{what}.{t}": pair[side] for t, pair in enumerate(found) for side, what in enumerate(_SENT)}
            context = tuned.play_context(study, name, known.last.digest)
            box = study.card(name).seal(files.pack({}, sent, form=CONTENT_FORM), context)
            boxes[f"box.{study.sources.index(name)}"] = np.frombuffer(box, dtype=np.uint8)
        says = ["candidates for each member's validation tasks, sealed to that member"]
        return list(parts), says, {**spec, "parts": known.last.digest}, {**arrays, **boxes}

    def _task_content(self, known: _Log, plan: Any, places: Mapping[str, Sequence[Any]]) -> Content:
        """What members are told about validation tasks: sizes, the common mean, and the rows of each member's tasks."""
        if not places:
            raise _nothing_left("no member takes a validation task")
        remote = self._remote(known)
        drawn = files.joined_arrays(
            {self.study.sources.index(name): dict(enumerate(each)) for name, each in places.items()}
        )
        return {"rows": plan.rows, "size": remote.size, "spare": plan.spare}, {
            **sums.origin_arrays(remote.mean),
            **drawn,
        }

    def _ask_terms(self, known: _Log) -> _Question:
        says = ["the sum over all members, and a request for masked sums that tell how their models differ"]
        return self._ask_further(known, says, {})

    def _ask_trials(self, known: _Log) -> _Question:
        if (blocks := self._further_sum(known, "terms")) is None:
            raise _nothing_left("a member did not answer, so the last step is left out")
        if sum(known.request("sums").open(self.key)[0]["spares"]) < self.policy.least_sources:
            raise _nothing_left("too few members have rows for a validation task")
        says = ["sums over all members' models, and a request for masked sums of residuals in validation tasks"]
        return self._ask_further(known, says, files.joined_arrays({"terms": blocks}))

    def _ask_further(self, known: _Log, says: list[str], more: Values) -> _Question:
        """A further question of the self-tuned choice at level 2, to all that sent masked sums.

        Who is missing here cannot be recovered: its key would open the masks of its earlier sums as well.
        """
        second = known.request("sums")
        spec, arrays = second.open(self.key)
        told, summed = tuned.summed_content(self._summed(known))
        told |= {"second": spec, "second_digest": second.digest, "rows": len(self._inputs().y)}
        keys = {name: arrays[name] for name in ("mask_keys", "mask_signatures")}
        return spec["roster"], says, told, {**keys, **summed, **more}

    def _summed(self, known: _Log) -> SummedSources:
        """The sum of the members' moments, from the masked sums."""
        found = self._combine_masked(known)
        assert found.total is not None
        mean, count = found.total, len(found.names)
        gram, cross = mean.gram * count, np.asarray(mean.cross) * count
        total = Moments(round(float(gram[-1, -1])), gram, cross, float(mean.square) * count)
        return SummedSources.of(self.study.prepared(self._inputs()), total)

    def _further_sum(self, known: _Log, asked: str) -> dict[str, Floats] | None:
        """The blocks of a further masked sum, if all members of the first one answered."""
        request = known.request(asked)
        if request is None:
            return None
        spec, arrays = request.open(self.key)
        told = masks.Announcement.read(self.study, spec["second"], arrays)
        answers, transcript = self._read(known, request), masks.later_transcript(told, asked, spec, arrays).hex()
        if set(answers) != set(told.roster):
            return None
        sizes = tuned.further_sizes(asked, self.study.n_features + 1)
        return masks.decode(_sum_masked(answers, masks.length(sizes), transcript), sizes, len(answers))

    def _moments_of(self, known: _Log) -> tuple[dict[str, Moments], Origin]:
        """The members' moments about a common point, in the order of the study, and the point.

        Those that cannot be used are left out and named.
        """
        key = tuple(answer.digest for answer in known.answers if answer.step == 1)
        if key in self._cache:
            return self._cache[key]

        def read(name: str, _: Values, arrays: Arrays) -> tuple[Moments, Origin]:
            return sums.sums_from(arrays, self.study.n_features, f'the sums of "{name}"')

        found = self._read(known, known.requests[0], read)
        if not found:
            raise DataError(f"no member gave usable sums: {_listed(self._missing(()))}", code="few-answers")
        self._cache = {key: sums.about_common({name: found[name] for name in self.study.sources if name in found})}
        return self._cache[key]

    def _names_of(self, known: _Log) -> list[str]:
        return list(self._moments_of(known)[0])

    def _remote(self, known: _Log) -> RemoteTasks:
        about = self._moments_of(known)
        if "remote" not in self._cache:
            self._cache["remote"] = tuned.remote_tasks(self.study, self.study.prepared(self._inputs()), *about)
        return self._cache["remote"]

    def _plan(self, known: _Log) -> Any:
        """What is drawn, from the ranks of the members that take a validation task."""
        moments, ranks = self._moments_of(known)[0], dict[int, Any]()
        for name, (spec, _) in self._read(known, known.request("ranks")).items():
            if spec.get("plays") is True and name in moments:
                if _is_rank(rank := spec.get("rank"), moments[name].count):
                    ranks[list(moments).index(name)] = rank
                else:
                    self.rejected[name] = "what orders its rows is not what was asked for"
        return self._remote(known).plan(ranks)

    def _places(self, known: _Log, plan: Any) -> dict[str, list[Any]]:
        """The rows of each member's tasks: as many as are learned from and tested on."""
        names, found = self._names_of(known), dict[str, list[Any]]()
        for source, places in plan.tasks:
            found.setdefault(names[source], []).append(places[: plan.rows + RemoteTasks.test_rows])
        return found

    def _read_parts(self, known: _Log, places: Mapping[str, Sequence[Any]]) -> dict[str, list[Moments]]:
        def read(name: str, _: Values, arrays: Arrays) -> list[Moments]:
            what, parts = f'the sums over parts of the rows of "{name}"', range(len(places[name]))
            return [sums.moments_from(files.arrays_below(arrays, part), self.study.n_features, what) for part in parts]

        return self._read(known, known.request("parts"), read)

    def _tasks(self, known: _Log, plan: Any) -> list[SummedTask]:
        """The validation tasks that came back, in the order of the plan."""
        remote, names = self._remote(known), self._names_of(known)

        def read(name: str, spec: Values, arrays: Arrays) -> list[SummedTask]:
            return tuned.read_tasks(spec, arrays, names.index(name), len(remote.labels), f'"{name}"')

        found = self._read(known, known.request("plays"), read)
        return [found[names[source]].pop(0) for source, _ in plan.tasks if found.get(names[source])]

    # --- combining ----------------------------------------------------------------------------------------------

    def combine(self, messages: Iterable[Message | File | bytes], *, require_all: bool = False) -> Combined:
        """The sums behind the answers.

        Parameters
        ----------
        messages
            Answers, as messages, bytes or paths, and the requests that this object did not make itself.
        require_all : bool
            Refuse to go on without a member; by default those that are missing are named.
        """
        known = self._log(messages)
        if not known.requests:
            raise DataError("there are no answers to combine; pass those of the members")
        asked = known.last.public["ask"]
        if self.study.level == 1:
            found = self._combine_moments(known)
        elif asked in ("sums", "shares", "terms", "trials"):
            found = self._combine_masked(known)
            if self.study.tuned_by_sums:
                found = self._with_terms(known, found)
        else:
            raise DataError("the answers so far are the first of two exchanges; ask for the sums next")
        if require_all and found.missing:
            name, why = next(iter(found.missing.items()))
            raise DataError(f'"{name}" is missing ({why}), and all members are required', code="missing-member")
        return found

    def _combine_moments(self, known: _Log) -> Combined:
        moments, origin = self._moments_of(known)
        parts: Values = {"moments": moments}
        if self.study.method == "tuned":
            plan = self._plan(known)
            parts |= {"plan": plan, "tasks": self._tasks(known, plan)}
        return self._combined(known, tuple(moments), origin, **parts)

    def _combine_masked(self, known: _Log) -> Combined:
        study = self.study
        second = known.request("sums")
        spec, arrays = second.open(self.key)
        told = masks.Announcement.read(study, spec, arrays)
        answers = self._read(known, second)
        sizes = sums.sizes(study.n_features)
        count = private_length(study.n_features) if study.level == 3 else masks.length(sizes)
        alive = [name for name in told.roster if name in answers]
        total = _sum_masked(answers, count, told.transcript.hex())
        dropped = [name for name in told.roster if name not in answers]
        if dropped or study.limits.confirm:
            total = total + self._leftover_masks(known, told, dropped, alive, count)
        if study.level == 3:
            moments = private_moments(study, total, len(told.roster), len(alive))
            return self._combined(known, tuple(alive), moments={MEMBERS: moments})
        blocks = masks.decode(total, sizes, len(alive))
        shared = sum(told.weights[name] for name in alive)
        remedy = "masks do not tell whose are wrong: start again, with fewer members or at level 1"
        gram, cross, square, head = (block / shared for block in blocks.values())
        mean = sums.checked_sums(gram, cross, square, "the sums over all members", remedy)
        kept = {name: told.weights[name] for name in alive}
        everyone = told.focal_weight + shared
        weights = {study.focal: told.focal_weight / everyone, **{name: w / everyone for name, w in kept.items()}}
        first = self._read(known, known.requests[0])
        scores = {name: float(first[name][0]["score"]) for name in alive if "score" in first.get(name, ({}, {}))[0]}
        made: Values = {"sharing": spec.get("sharing")}
        made |= {"total": mean.divided(1 / study.target_scale), "head": head * study.target_scale}
        return self._combined(known, tuple(alive), weights=weights, scores=scores, **made)

    def _with_terms(self, known: _Log, found: Combined) -> Combined:
        """The same with what further masked sums said of the members' models."""
        terms, trials = self._further_sum(known, "terms"), self._further_sum(known, "trials")
        summed = self._summed(known)
        if terms is None:
            return replace(found, summed=summed)
        made = tuned.read_terms(terms, self.study.n_features + 1, len(found.names))
        return replace(found, summed=summed, terms=made, tasks=[] if trials is None else tuned.read_trials(trials))

    def _leftover_masks(
        self, known: _Log, told: masks.Announcement, dropped: list[str], alive: list[str], count: int
    ) -> Any:
        """What masks left in the sum, negated: of members that dropped out, and of the others those of their own."""
        study = self.study
        third = known.request("shares")
        if third is None or third.open(self.key)[0]["dropped"] != dropped:
            gone = f"{checks.quoted(dropped)} took part in the first exchange and did not answer the second"
            why = gone if dropped else "members have not confirmed who took part"
            raise DataError(f"{why}; ask again, for shares of masks", code="dropped", members=tuple(dropped))
        opened = masks.opened_secrets(study, told.roster, dropped)
        shapes: masks.Shapes = {"shares": (len(opened), masks.SHARE_BYTES)}
        answers = {name: each for name, (_, each) in self._read(known, third).items() if masks.has_bytes(each, shapes)}
        total: Any = np.zeros(count, dtype=np.uint64)
        first = self._read(known, known.requests[0])
        for row, (name, kind) in enumerate(opened.items()):
            shares = {each: arrays["shares"][row].tobytes() for each, arrays in answers.items()}
            if kind == "own_boxes":
                seed = self._recovered(name, shares, hashed, first[name][1]["own_digest"].tobytes())
                total = total - masks.own_mask(seed, told.transcript, count)
                continue
            private = self._recovered(name, shares, public_of, told.public[name][:KEY_BYTES])
            neighbours = [study.sources[place] for place in study.neighbours(name)]
            others = {study.sources.index(each): told.public[each][:KEY_BYTES] for each in neighbours if each in alive}
            total = total + masks.mask_of(study.sources.index(name), private, others, told.transcript, count)
        return total

    def _recovered(self, name: str, given: Mapping[str, bytes], shown: Callable[[bytes], bytes], known: bytes) -> bytes:
        """A member's secret from shares that others hold, a few of them wrong; ``shown(secret)`` must be ``known``."""
        places = {self.study.sources.index(each): share for each, share in given.items()}
        shares = {place: places[place] for place in self.study.neighbours(name) if place in places}
        threshold = self.study.threshold
        if len(shares) < threshold:
            lacking = f'{len(shares)} members gave shares of the masks of "{name}", {threshold} are needed'
            raise DataError(f"{lacking}; wait for more, or start again without it", code="few-answers")
        for chosen in islice(combinations(shares, threshold), MOST_TRIED):
            secret = masks.join_shares({holder: shares[holder] for holder in chosen})
            if secret is not None and shown(secret) == known:
                return secret
        raise DataError(f'the shares of the masks of "{name}" do not match; members sent wrong ones', code="bad-shares")

    # --- what both need -----------------------------------------------------------------------------------------

    def _inputs(self) -> Rows:
        if self.inputs is None:
            raise DataError(f'the rows of the focal member "{self.study.focal}" are needed here; pass them')
        return self.inputs

    @cached_property
    def _focal(self) -> sums.LocalSums:
        return sums.LocalSums.of(self.study.prepared(self._inputs()), self.study.fixed.ridge)

    def _weigh(self, roster: Sequence[str], told: Values) -> tuple[dict[str, float], float | None]:
        """Weights of the focal member and the roster by the rule of the study, and what sharing they are from.

        The sharing starts at the leave-one-out error of the focal model, and doubles until the weights hide each
        member: few members resemble the focal one, and a sum over them tells too much.
        """
        names = [self.study.focal, *roster]
        if not self.study.scored:
            return dict.fromkeys(names, 1.0 / len(names)), None
        scores = np.array([self._focal.score(self._focal.moments), *(float(told[name]["score"]) for name in roster)])
        scores = np.where(np.isfinite(scores), scores, np.inf)
        # So many that the sum still hides each of them when some drop out.
        wanted = min(self.policy.least_sources + self.study.limits.drop_outs, len(roster))
        policy, sharing = replace(self.policy, least_sources=wanted), self._sharing() or 1.0
        for _ in range(DOUBLINGS):
            weights = dict(zip(names, PredictiveWeights(sharing).of_errors(scores, focal=0).tolist()))
            with suppress(RefusedError):
                policy.check_weights({name: weights[name] for name in roster})
                return weights, sharing
            sharing *= 2
        raise DataError("no weights hide the members from each other; set weights to equal in the study")

    def _sharing(self) -> float:
        """The leave-one-out error of the focal model, as the estimator at fixed parameters takes it."""
        rows = self.study.prepared(self._inputs())
        error = LocalModel.of(rows, self.study.fixed.ridge).left_out_error(rows)
        return error if np.isfinite(error) else float(np.var(rows.y))

    def _log(self, messages: Iterable[Message | File | bytes]) -> _Log:
        """Messages of this study, checked, by kind and step; those that were sent from here are known already."""
        found = {message.digest: message for message in self._sent}
        study, most = self.study, self.study.limits.message_bytes
        for source in messages:
            message = source if isinstance(source, Message) else read_message(source, most_bytes=most)
            found[self._checked(message).digest] = message
        requests = sorted((each for each in found.values() if each.kind == "request"), key=lambda each: each.step)
        steps = [request.step for request in requests]
        if lost := {each.step for each in found.values()} - {*steps}:
            what = f"the request that the answers of step {min(lost)} belong to"
            raise DataError(f"{what} is not among the files; pass it, too", code="no-request")
        if len(set(steps)) < len(steps) or any(request.sender != study.focal for request in requests):
            raise DataError("there are two different requests of one step; pass those of one run", code="two-requests")
        return _Log(tuple(requests), tuple(each for each in found.values() if each.kind == "answer"))

    def _checked(self, message: Message) -> Message:
        """A message, if it is one of this study and its sender signed it."""
        if message.header["study"] != self.study.fingerprint:
            raise DataError(f'the {message.kind} of "{message.sender}" belongs to another study', code="other-study")
        message.check(self.study.card(message.sender))
        return message

    def _read(
        self, known: _Log, request: Message | None, use: Callable[..., Any] = lambda name, *content: content
    ) -> Any:
        """What the answers to a request say, by member; those that cannot be used are left out and named.

        ``use`` is called with the member's name and the values and arrays of its answer, which it returns by default.
        """
        found, answers = Values(), known.answers_to(request)
        for name, count in Counter(answer.sender for answer in answers).items():
            if count > 1:
                raise DataError(f'there are two answers of "{name}" to one request; pass one of them')
        for answer in answers:
            try:
                spec, arrays = answer.open(self.key)
                found[answer.sender] = use(answer.sender, spec, arrays)
            except MixtuneError as error:
                self.rejected[answer.sender] = str(error)
        return found

    def _dropped(self, known: _Log) -> list[str]:
        spec, _ = known.last.open(self.key)
        answered = self._read(known, known.last)
        return [name for name in spec["roster"] if name not in answered]

    def missing(self, messages: Iterable[Message | File | bytes]) -> dict[str, str]:
        """Members that gave no usable answer to the last request that others answered, and why."""
        known = self._log(messages)
        answered = {answer.header["reply_to"] for answer in known.answers}
        asked = [request for request in known.requests if request.digest in answered]
        if not asked:
            return {}
        told = self._missing(self._read(known, asked[-1])) | self.rejected
        return {name: why for name, why in told.items() if name in asked[-1].header["recipients"]}

    def _missing(self, names: Collection[str]) -> dict[str, str]:
        told = {name: self.rejected.get(name, "it did not answer") for name in self.study.sources}
        return {name: why for name, why in told.items() if name not in names}

    def _late(self, known: _Log, names: Collection[str]) -> dict[str, str]:
        found = dict[str, str]()
        for request in known.requests:
            answers = self._read(known, request)
            idle = dict.fromkeys((name for name in answers if answers[name][0].get("plays") is False), IDLE)
            told = self._missing(answers) | idle
            found |= {name: why for name, why in told.items() if name in {*names} & {*request.header["recipients"]}}
        return found

    def _combined(self, known: _Log, names: tuple[str, ...], origin: Origin | None = None, **parts: Any) -> Combined:
        study, traffic = self.study, Counter[str]()
        for message in (*known.requests, *known.answers):
            names_here = [message.sender] if message.kind == "answer" else message.header["recipients"]
            traffic.update(dict.fromkeys(names_here, message.size))
        origin = Origin.zero(study.n_features) if origin is None else origin
        late = {} if study.method == "fixed" else self._late(known, names)
        most = max(traffic[name] for name in study.sources)
        step, missing = known.last.step, self._missing(names)
        return Combined(study, names, step, origin, missing, late, bytes_per_member=most, **parts)


def _listed(missing: Mapping[str, str]) -> str:
    """Members that are missing, each with the reason."""
    return ", ".join(f'"{name}" ({why})' for name, why in missing.items())


def _nothing_left(why: str) -> DataError:
    return DataError(f"{why}; combine the answers", code="nothing-left")


def _sum_masked(answers: _Answers, count: int, transcript: str) -> masks.Ring:
    """The sum of masked vectors of ``count`` elements, all of which were made for the same transcript."""
    total = np.zeros(count, dtype=np.uint64)
    for name, (words, sent) in answers.items():
        vector = sent.get("masked")
        if vector is None or vector.shape != (count,) or vector.dtype != np.uint64:
            raise DataError(f'the masked sums of "{name}" are of the wrong shape; start again without it')
        if words.get("transcript") != transcript:
            raise DataError(f'"{name}" was told something else than the others; start again', code="masks-left")
        total += vector
    return total


def _is_score(score: Any) -> bool:
    """Whether this is a mean square; a negative one would draw all weight to a member."""
    return type(score) in (int, float) and score >= 0


def _is_rank(rank: Any, count: int) -> bool:
    """Whether this is what orders sources, of so many rows."""
    numbers = isinstance(rank, list) and len(rank) == RANKS and all(type(each) in (int, float) for each in rank)
    return numbers and bool(np.all(np.isfinite(rank))) and rank[0] == count


@dataclass(frozen=True, eq=False)
class _Log:
    """Requests by step, and answers."""

    requests: tuple[Message, ...]
    answers: tuple[Message, ...]

    @property
    def last(self) -> Message:
        return self.requests[-1]

    def request(self, asked: str) -> Any:
        """The request of this kind, or None."""
        return next((request for request in self.requests if request.public["ask"] == asked), None)

    def answers_to(self, request: Message | None) -> list[Message]:
        """The answers of members that were asked."""
        if request is None:
            return []
        told = [answer for answer in self.answers if answer.header["reply_to"] == request.digest]
        return [answer for answer in told if answer.sender in request.header["recipients"]]

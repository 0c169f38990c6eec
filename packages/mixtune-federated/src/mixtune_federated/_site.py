"""A member: it checks a request, computes sums of its rows, and answers with a file. Its rows never leave.

Every answer is the same again for the same request, up to the encryption around it: masks are derived from the
member's key and the request, so that asking twice tells nothing more. An answer with noise is kept in the ledger. From
the first check to the entry in the ledger, no other process answers for the same ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from mixtune import checks, files
from mixtune.choice import RemoteTasks, SummedSources
from mixtune.errors import DataError, MixtuneError
from mixtune.moments import Origin, Rows
from mixtune_federated import _masks as masks
from mixtune_federated import _tuned as tuned
from mixtune_federated._keys import KEY_BYTES, Key, public_of
from mixtune_federated._ledger import Ledger, People
from mixtune_federated._messages import (
    CONTENT_FORM,
    STEPS,
    Message,
    canonical,
    hashed,
    read_message,
)
from mixtune_federated._policy import Policy, RefusedError
from mixtune_federated._privacy import private_ring
from mixtune_federated._reading import reading
from mixtune_federated._study import Study
from mixtune_federated._sums import LocalSums, moment_arrays, moments_from
from mixtune_federated._types import Arrays, Content, File, Floats, Integers, Values

#: What rounding leaves of leverages.
ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Answer:
    """What an answer says: in words, and as sealed values and arrays; and what the ledger keeps of it."""

    says: Sequence[str]
    spec: Values
    arrays: Values
    epsilon: float = 0.0
    bound: Values = field(default_factory=dict)


class Site:
    """One member and its rows.

    Parameters
    ----------
    study : Study
    rows : table, path or Rows
        As :meth:`Study.read` takes them.
    key : Key
        The member's own; its name says which member this is.
    policy : Policy, optional
    ledger : Ledger, optional
        By default one in memory, which forgets when the program ends.
    identifier : str, optional
        The column that says whose a row is, or these names for all rows. It stays here: people are counted by it,
        and the ledger holds tokens of them. Without it, each row counts as a person in cells, and in the ledger the
        table counts as one, whatever its rows.

    Examples
    --------
    See the page on federated studies.
    """

    def __init__(
        self,
        study: Study,
        rows: Any,
        key: Key,
        policy: Policy | None = None,
        *,
        ledger: Ledger | None = None,
        identifier: str | Sequence[Any] | None = None,
    ) -> None:
        self.study, self.key = study, key
        self.policy, self.ledger = policy or Policy(), ledger or Ledger()
        if study.card(key.name) != key.card:
            problem = f'the key of "{key.name}" is not the one that study "{study.name}" pins'
            raise DataError(f"{problem}; use the key that joined", code="wrong-key")
        self.inputs = study.read(rows)
        names = None if identifier is None else study.identifiers(rows, identifier, len(self.inputs.y))
        self.people = People.of(self.inputs, names, key.secret(b"people", b""))
        self.rows: Rows = study.prepared(self.inputs)
        self._passed: Policy | None = None
        self._summed: tuple[Rows, LocalSums] | None = None

    @property
    def place(self) -> int:
        """The member's place among the sources."""
        return self.study.sources.index(self.key.name)

    def answer(self, request: Message | File | bytes, *, file: str = "") -> Message:
        """Answer a request, or refuse it with the reason. Nothing is told before everything is checked.

        The answer holds only as a file of the name ``file``, if there is one.
        """
        study = self.study
        if not isinstance(request, Message):
            request = read_message(request, most_bytes=study.limits.message_bytes)
        spec, arrays = self._open_request(request)
        with self.ledger.locked():
            if kept := self.ledger.kept_answer(self.people, request.digest):
                return read_message(kept, most_bytes=study.limits.message_bytes)
            self._check_release(request, spec["ask"], _run_of(request, spec))
            self.check_policy()
            with reading("the request is damaged or incomplete", "ask for it again"):
                content: Answer = getattr(self, f"_{spec['ask']}")(spec, arrays)
            return self._recorded(request, spec, content, file)

    def check_policy(self) -> None:
        """Refuse sums over these rows, if the policy does; with noise, single rows are hidden however few there are."""
        if self.study.level < 3 and self._passed != self.policy:
            people = None if self.people.whole else self.people.places
            self.policy.check_rows(self.inputs, self.study.n_features, self.study.encoder.names, people)
            # Random features of few different rows can tell all of these apart, as a product of all columns would.
            if self.study.features.width and len(np.unique(self.inputs.X, axis=0)) <= self.study.n_features + 1:
                columns = [self.rows.X, self.rows.y, np.ones(len(self.rows.y))]
                self.policy.check_combinations(np.column_stack(columns), self.people.places)
            self._passed = self.policy

    def _recorded(self, request: Message, spec: Values, content: Answer, file: str) -> Message:
        """The answer as a message, when it stands in the ledger."""
        study = self.study
        header: Values = {"kind": "answer", "step": request.step, "reply_to": request.digest, "file": file}
        header["public"] = {"answers": spec["ask"]}
        answer = study.write(self.key, [study.focal], content.says, content.spec, arrays=content.arrays, **header)
        if answer.size > study.limits.message_bytes:
            raise DataError("the answer is larger than the study allows; raise message_bytes, or use fewer features")
        entry: Values = {"study": study.fingerprint, "columns": study.columns_hash, "step": request.step}
        entry |= {"request": request.digest, "run": _run_of(request, spec), "epsilon": content.epsilon}
        kept = answer.content if content.epsilon else b""
        self.ledger.record(self.people, answer=kept, **entry, **content.bound)
        return answer

    def _open_request(self, request: Message) -> Content:
        """What the request asks, if it comes from the coordinator and belongs to the study."""
        study = self.study
        study.check()
        if request.kind != "request":
            raise DataError("this message is an answer, not a request; pass the file that the coordinator sent")
        if request.header["study"] != study.fingerprint:
            told = f"an answer for a study with the fingerprint {request.header['study'][:16]}"
            raise RefusedError(told, f"the study that was agreed on has {study.fingerprint[:16]}")
        if request.sender != study.focal or self.key.name == study.focal:
            why = f'in this study "{study.focal}" asks and all others answer'
            raise RefusedError(f'an answer of "{self.key.name}" to "{request.sender}"', why)
        request.check(study.card(study.focal))
        spec, arrays = request.open(self.key)
        asked = str(request.public.get("ask"))
        if asked not in study.requests:
            why = f"the study agreed on {', '.join(study.requests)} at level {study.level}"
            raise RefusedError(repr(asked), why)
        # Under another number, what was answered before could be asked again.
        if request.step != STEPS[asked]:
            raise RefusedError(f"{asked!r} in step {request.step}", f"it belongs in step {STEPS[asked]}")
        return {**spec, "ask": asked, "digest": request.digest}, arrays

    def _check_release(self, request: Message, asked: str, run: str) -> None:
        """Refuse an answer that could be compared with an earlier one about the same people.

        The policy may allow another run, over the same columns and over people who are the same, or of whom so many
        differ that no combination of all releases is about few; but never a second answer in one run.
        """
        policy, study = self.policy, self.study
        for entry in self.ledger.shared(self.people):
            changed, again = entry["data"] != self.people.data, entry["step"] == request.step
            if again and not changed and entry["request"] == request.digest:
                continue
            why = f"on {entry['time']} another request was answered; the difference of two sums tells who was left out"
            second = RefusedError(f"a second release of the same rows ({asked})", why, code="second-release")
            if again and entry["run"] == run:
                raise second
            if policy.one_release and (again or changed or entry["study"] != study.fingerprint):
                raise second
            if study.level < 3 and policy.least_cell > 1:
                comparable = (entry["columns"], entry["key"]) == (study.columns_hash, self.people.key)
                if not comparable or self.ledger.fewest(self.people) < policy.least_cell:
                    raise second

    def _bound(self, name: str, what: str, *parts: bytes) -> Values:
        """What one answer fixes for all later ones about these people, also in other runs and studies."""
        told = hashed(*parts).hex()
        if any(entry.get(name, told) != told for entry in self.ledger.shared(self.people)):
            why = "one serves all steps and runs: what two of them differ by could be a single row"
            raise RefusedError(f"sums with another {what} than before", why, code=f"second-{name}")
        return {name: told}

    def _centred(self, arrays: Arrays) -> tuple[Rows, Values]:
        """The rows about the common mean of a request, which must be the same in all of them."""
        rows = tuned.centred(self.rows, arrays)
        mean = (np.asarray(arrays[name], dtype="<f8").tobytes() for name in ("shift", "level"))
        return rows, self._bound("origin", "common mean", *mean)

    def _local(self) -> LocalSums:
        """The sums of the rows, computed once."""
        if self._summed is None or self._summed[0] is not self.rows:
            self._summed = self.rows, LocalSums.of(self.rows, self.study.fixed.ridge)
        return self._summed[1]

    # --- level 1 ------------------------------------------------------------------------------------------------

    def _moments(self, spec: Values, arrays: Arrays) -> Answer:
        """The moments, sealed to the coordinator."""
        p = self.study.n_features
        says = [f"sums of squares and products of {p} features, the constant and the target, about their means"]
        says += ["these means, and the number of rows"]
        return Answer(says, {}, self._local().content)

    def _ranks(self, spec: Values, arrays: Arrays) -> Answer:
        """What orders the sources, and whether this one takes the focal role in validation."""
        rows, bound = self._centred(arrays)
        count = checks.check_whole("rows", spec["rows"], least=1)
        takes = self.study.n_features <= self.policy.features_per_row * count
        says = ["the number of rows, and six sums over them that order the members"]
        says += [] if takes else [f"this member takes no validation task: {count} rows are too few for its policy"]
        return Answer(says, {"plays": takes, "rank": list(RemoteTasks.rank(rows))}, {}, bound=bound)

    def _parts(self, spec: Values, arrays: Arrays) -> Answer:
        """Moments of the rows that were drawn for validation."""
        rows, tasks, count, bound = self._drawn_tasks(spec, arrays)
        zero = Origin.zero(rows.shape[1])
        parts = [moment_arrays(zero.moments(rows.part(order[:count]))) for order in tasks]
        says = [f"sums over {count} of the rows, drawn at random, for each of {len(tasks)} validation tasks"]
        return Answer(says, {"tasks": len(tasks)}, files.joined_arrays(dict(enumerate(parts))), bound=bound)

    def _plays(self, spec: Values, arrays: Arrays) -> Answer:
        """Mean products of the candidates' residuals."""
        rows, tasks, count, bound = self._drawn_tasks(spec, arrays)
        box = np.asarray(arrays[f"box.{self.place}"]).tobytes()
        context = tuned.play_context(self.study, self.key.name, str(spec["parts"]))
        inner = self.key.open(box, "the candidates", context)
        _, sent = files.unpack(inner, form=CONTENT_FORM, where="the candidates")
        played = []
        for place, order in enumerate(tasks):
            heads, quadratics = (sent[f"{name}.{place}"] for name in ("heads", "quadratics"))
            check_leverages(self.policy, rows.X[order[:count]], quadratics)
            played.append(RemoteTasks.play(rows, order, count, bool(spec["spare"]), heads, quadratics))
        said = f"mean products of the residuals of {len(heads)} candidates on rows kept for testing"
        return Answer([f"{said}, and on left-out rows"], *tuned.task_content(played), bound=bound)

    def _drawn_tasks(self, spec: Values, arrays: Arrays) -> tuple[Rows, list[Integers], int, Values]:
        """The rows in the units of the validation tasks, the order of rows in each task of this member, how many rows
        of each are for training, and what this fixes for later requests; raises if the policy forbids a task.
        """
        (rows, bound), tasks = self._centred(arrays), []
        count, size = checks.check_whole("rows", spec["rows"], least=1), checks.check_positive("size", spec["size"])
        for _, drawn in sorted(files.arrays_below(arrays, self.place).items()):
            places = np.asarray(drawn, dtype=np.int64)
            inside = np.unique(places[(places >= 0) & (places < len(rows.y))])
            if len(inside) < len(places) or len(places) < min(count, len(rows.y)):
                asked = "sums over rows that do not exist, or are not all different"
                raise RefusedError(asked, "no task needs them", code="bad-rows")
            tasks.append(RemoteTasks.order(rows, places))
        orders = [order.astype("<i8").tobytes() for order in tasks]
        bound |= self._bound(
            "draw", "draw of rows", self.people.data.encode(), canonical([count, float(size)]), *orders
        )
        check_parts(self.policy, tasks, count, self.people, self.inputs, self.study.n_features)
        return Rows(rows.X, rows.y / size), tasks, count, bound

    # --- levels 2 and 3 -----------------------------------------------------------------------------------------

    def _private(self, first: str) -> bytes:
        """The private key of the masks of one study run."""
        return self.key.secret(b"mask key", bytes.fromhex(first))

    def _later(self, first: str) -> bytes:
        """The private key of the masks of its later sums, of which nobody has shares."""
        return self.key.secret(b"later mask key", bytes.fromhex(first))

    def _public(self, first: str) -> bytes:
        return public_of(self._private(first)) + public_of(self._later(first))

    def _seed(self, first: str) -> bytes:
        """The seed of the mask that this member shares with nobody."""
        return self.key.secret(b"own mask", bytes.fromhex(first))

    def _keys(self, spec: Values, arrays: Arrays) -> Answer:
        """A key for the masks, shares of it for the neighbours, and the score."""
        study, first = self.study, spec["digest"]
        private, seed = self._private(first), self._seed(first)
        public = self._public(first)
        neighbours = study.neighbours(self.key.name)
        told, bound = dict[str, Any](), dict[str, Any]()
        says = [f"two public keys, and shares of the first private half, sealed to {len(neighbours)} other members"]
        if study.level == 2:
            # Sums out of range are refused before others count on them.
            masks.encode(self._local().blocks(study.target_scale), len(study.sources))
        if study.scored:
            focal = moments_from(arrays, study.n_features, "the focal member's sums")
            bound = self._bound("probe", "question for a score", files.array_digest(arrays).encode())
            self.policy.check_probe(focal, self._local().moments)
            told["score"] = self._local().score(focal)
            says += ["one number that says how well the local model predicts the focal member's rows"]
        told["spares"] = False
        if study.tuned_by_sums:
            count = checks.check_whole("rows", spec["rows"], least=1)
            bound |= self._bound_task(count)
            told["spares"] = SummedSources.spares(len(self.rows.y), count)
            says += [f"whether it has rows for a validation task of {count} rows"]
        signed = self.key.sign(masks.key_text(study, first, self.key.name, public, told["spares"]))
        made = {"public": public, "signature": signed}
        made |= {"own_digest": hashed(seed)} if study.limits.confirm else {}
        sent = {name: np.frombuffer(value, dtype=np.uint8) for name, value in made.items()}
        sent["boxes"] = self._seal_shares("boxes", private, first, neighbours)
        if study.limits.confirm:
            sent["own_boxes"] = self._seal_shares("own_boxes", seed, first, neighbours)
        return Answer(says, told, sent, bound=bound)

    def _seal_shares(self, kind: str, secret: bytes, first: str, neighbours: Sequence[int]) -> Any:
        """Shares of a secret, each sealed to one neighbour."""
        study, shares = self.study, masks.split_secret(secret, neighbours, self.study.threshold)
        boxes = np.zeros((len(neighbours), masks.BOX_BYTES), dtype=np.uint8)
        for row, place in enumerate(neighbours):
            name = study.sources[place]
            box = study.card(name).seal(shares[place], masks.share_context(study, first, kind, self.key.name, name))
            boxes[row] = np.frombuffer(box, dtype=np.uint8)
        return boxes

    def _read_announcement(
        self, spec: Values, arrays: Arrays, before: Any, why: str
    ) -> tuple[masks.Announcement, dict[int, bytes]]:
        """What all members of a sum were told, and the neighbours' keys.

        Refused where keys were swapped, where the policy forbids the weights, where they are unequal although the study
        agreed on equal ones, and, for the reason ``why``, where these rows did not answer the request ``before``.
        """
        told = masks.Announcement.read(self.study, spec, arrays)
        neighbours = told.check(self.key.name, self._public(told.first))
        self.policy.check_weights(told.weights)
        if not self.study.scored and {*told.weights.values()} != {told.focal_weight}:
            raise RefusedError("a sum with unequal weights", "the study agreed on equal ones")
        if self.ledger.kept_answer(self.people, str(before)) is None:
            raise RefusedError("masked sums or shares that follow from another request", why)
        return told, neighbours

    def _sums(self, spec: Values, arrays: Arrays) -> Answer:
        """The weighted sums under masks."""
        why = "these rows did not answer that request before; do so first"
        told, neighbours = self._read_announcement(spec, arrays, spec.get("first"), why)
        roster, epsilon, bound = len(told.roster), 0.0, Values()
        says = [f"the total over {roster} members is their weighted sum"]
        if self.study.level == 3:
            epsilon = self._spend_epsilon()
            vector = private_ring(self.study, self.rows, roster, self.people.places)
            says += ["a part of the noise is in them"]
        else:
            # Of two sums that differ by a member, the difference is that member's, whatever its own policy says.
            bound = self._bound("sum", "list of members or weights", canonical(told.weights))
            weight = told.weights[self.key.name]
            blocks = self._local().blocks(self.study.target_scale)
            vector = masks.encode({name: weight * block for name, block in blocks.items()}, roster)
        if self.study.limits.confirm:
            vector = vector + masks.own_mask(self._seed(told.first), told.transcript, len(vector))
            says += ["the other members take off a last mask when they have confirmed who took part"]
        keys = {place: public[:KEY_BYTES] for place, public in neighbours.items()}
        masked = self._masked(self._private(told.first), keys, told.transcript, vector, says)
        return replace(masked, epsilon=epsilon, bound=bound)

    def _masked(
        self,
        private: bytes,
        keys: Mapping[int, bytes],
        transcript: bytes,
        vector: masks.Ring,
        says: Sequence[str],
    ) -> Answer:
        """A vector under the masks with all neighbours."""
        masked = vector + masks.mask_of(self.place, private, keys, transcript, len(vector))
        hidden = f"{len(vector):,} numbers that are random without the masks of {len(keys)} other members"
        return Answer([hidden, *says], {"transcript": transcript.hex()}, {"masked": masked})

    def _spend_epsilon(self) -> float:
        """The epsilon of this release, if the member's budget has it."""
        epsilon = self.study.privacy.epsilon
        left = self.policy.largest_epsilon - self.ledger.spent(self.people)
        if epsilon > left:
            raise RefusedError(f"a release with epsilon {epsilon:g}", f"{left:g} is left of the budget", code="budget")
        return epsilon

    def _terms(self, spec: Values, arrays: Arrays) -> Answer:
        """Coefficients under several priors, and how likely these make the targets: terms of a sum."""
        summed = tuned.read_summed(self.study, spec, arrays)
        blocks = tuned.term_blocks(summed.terms(self.rows))
        return self._further(spec, arrays, blocks, "the total tells how much the members' models differ")

    def _trials(self, spec: Values, arrays: Arrays) -> Answer:
        """Products of the candidates' residuals in a validation task of this member: terms of a sum."""
        study, summed = self.study, tuned.read_summed(self.study, spec, arrays)
        terms = tuned.read_terms(
            files.arrays_below(arrays, "terms"), study.n_features + 1, len(spec["second"]["roster"])
        )
        count = checks.check_whole("rows", spec["rows"], least=1)
        self._bound_task(count)
        task = summed.play(self.rows, terms, count, study.features.seed)
        says = "the total tells how well candidates predict rows of members that were not used for them"
        return self._further(spec, arrays, tuned.trial_blocks(task), says)

    def _bound_task(self, count: int) -> Values:
        """The number of rows of a validation task; with another one, fewer members would have rows for it."""
        return self._bound("task", "number of rows of a task", canonical(count))

    def _further(self, spec: Values, arrays: Arrays, blocks: Values, says: str) -> Answer:
        """Further blocks of the members of an earlier sum, under masks of their own."""
        why = "these rows took no part in the sum before it"
        told, neighbours = self._read_announcement(spec["second"], arrays, spec["second_digest"], why)
        playing = sum(told.spares[self.study.sources[place]] for place in (self.place, *neighbours))
        if spec["ask"] == "trials" and playing < self.policy.least_sources:
            why = f"{self.policy.least_sources} are the least that hide each other"
            raise RefusedError(f"a sum over validation tasks of {playing} members", why, code="few-sources")
        vector = masks.encode(blocks, len(told.roster))
        keys = {place: public[KEY_BYTES:] for place, public in neighbours.items()}
        transcript = masks.later_transcript(told, spec["ask"], spec, arrays)
        return self._masked(self._later(told.first), keys, transcript, vector, [says])

    def _shares(self, spec: Values, arrays: Arrays) -> Answer:
        """Shares of the keys of members that dropped out."""
        study, dropped = self.study, list(map(str, spec["dropped"]))
        why = "these rows took no part in that sum"
        told, _ = self._read_announcement(spec["second"], arrays, spec["second_digest"], why)
        if not set(dropped) <= set(told.roster) or self.key.name in dropped:
            raise RefusedError(f"shares of {dropped}", "these members took no part in the sum")
        if len(dropped) > study.limits.drop_outs:
            why = f"the study allows {study.limits.drop_outs} members to drop out"
            raise RefusedError(f"shares of the keys of {len(dropped)} members", why, code="few-sources")
        self.policy.check_weights({name: w for name, w in told.weights.items() if name not in dropped})
        whose = ", ".join(dropped) or "those who took part"
        says = [f"shares that take the masks of {whose} from the sum; {study.threshold} are needed"]
        opened = masks.opened_secrets(study, told.roster, dropped)
        found = np.zeros((len(opened), masks.SHARE_BYTES), dtype=np.uint8)
        for row, (name, kind) in enumerate(opened.items()):
            holders = study.neighbours(name)
            if self.place in holders:
                box = arrays["boxes"][row, holders.index(self.place)].tobytes()
                context = masks.share_context(study, told.first, kind, name, self.key.name)
                found[row] = np.frombuffer(self.key.open(box, f'the share of "{name}"', context), dtype=np.uint8)
        return Answer(says, {"dropped": dropped}, {"shares": found})


def answer_request(content: bytes, settings: Values) -> Values:
    """What a member's node replies: a file, a refusal with its reason, or nothing where the request is for others.

    ``settings`` are paths of ``study``, ``data``, ``key`` and maybe ``policy``, and maybe ``identifier``, a column. The
    ledger is beside the key.
    """
    name = Path(str(settings.get("key", "a node without a key"))).stem
    try:
        if lacking := [each for each in ("study", "data", "key") if each not in settings]:
            raise DataError(f"the node config has no {checks.quoted(lacking)}; start the node with --node-config")
        request, key = read_message(content), Key.load(settings["key"])
        name = key.name
        if name not in request.header["recipients"]:
            return {}
        policy = Policy.load(settings["policy"]) if "policy" in settings else Policy()
        ledger = Ledger(Path(settings["key"]).with_suffix(".ledger"))
        study, identifier = Study.load(settings["study"]), settings.get("identifier")
        site = Site(study, settings["data"], key, policy, ledger=ledger, identifier=identifier)
        return {"file": site.answer(request).content}
    except MixtuneError as error:
        return {"refused": str(error), "name": name}


def _run_of(request: Message, spec: Values) -> str:
    """The digest of the first request of the run that a request for masked sums belongs to; else its own."""
    told = spec if spec["ask"] == "sums" else spec.get("second")
    return str(told.get("first")) if isinstance(told, Mapping) else request.digest


def check_parts(
    policy: Policy, tasks: Sequence[Integers], count: int, people: People, rows: Rows, n_features: int
) -> None:
    """Refuse sums over sets of rows that, or whose differences, are about few people or tell about single ones."""
    least = max(n_features / policy.features_per_row, policy.least_cell)
    everything = set(range(len(rows.y)))
    sets = [everything]
    for order in tasks:
        drawn = [set(part.tolist()) for part in (order[:count], order[count : count + RemoteTasks.test_rows])]
        sets += [part for part in (*drawn, drawn[0] | drawn[1]) if part]
    apart = [people.count(np.array(sorted(one ^ other), dtype=np.int64)) for one, other in combinations(sets, 2)]
    apart += [people.count(np.array(sorted(one), dtype=np.int64)) for one in sets]
    small = [size for size in apart if 0 < size < least]
    if small:
        why = f"some of them, or what two of them differ by, are {min(small)} rows; {np.ceil(least):.0f} are the least"
        raise RefusedError("sums over parts of the rows", why, code="few-rows", rows=min(small))
    # Sums over several sets are sums of columns that vanish outside of them.
    columns = np.column_stack([rows.X, rows.y, np.ones(len(rows.y))])
    member = np.array([[row in one for one in sets] for row in range(len(rows.y))], dtype=np.float64)
    policy.check_combinations((member[:, :, None] * columns[:, None]).reshape(len(columns), -1), people.places)


def check_leverages(policy: Policy, X: Floats, quadratics: Floats) -> None:
    """Refuse leverages of rows (n, d), as quadratic functions (C, q), that no ridge regression of these rows has.

    Those of one are ``v'Mv`` with ``0 <= M <= (V'V)^-1``. With others, or with ones that differ for a few rows only,
    a request could single out rows.
    """
    width = X.shape[1]
    V, matrices = np.column_stack([X, np.ones(len(X))]), np.zeros((len(quadratics), width + 1, width + 1))
    matrices[:, width, width] = quadratics[:, 0] / 2
    matrices[:, :width, width] = quadratics[:, 1 : width + 1] / 2
    matrices[:, range(width), range(width)] = quadratics[:, width + 1 : 2 * width + 1] / 2
    matrices[:, *np.triu_indices(width, 1)] = quadratics[:, 2 * width + 1 :] / 2
    matrices = matrices + matrices.transpose(0, 2, 1)
    triangle = np.linalg.qr(V)[1]
    values = np.linalg.eigvalsh(triangle @ matrices @ triangle.T) if np.all(np.isfinite(matrices)) else np.array([-1.0])
    if np.min(values) < -ROUNDING or np.max(values) > 1 + ROUNDING:
        raise RefusedError("residuals under leverages that are none", "they would single out rows", code="bad-rows")
    leverages = np.vstack([np.zeros(len(X)), RemoteTasks.leverages(X, quadratics)])
    for place, one in enumerate(leverages[:-1]):
        apart = (leverages[place + 1 :] - one) ** 2
        whole = apart.sum(axis=1)
        few = np.sort(apart, axis=1)[:, : -max(policy.least_cell - 1, 1)].sum(axis=1)
        if policy.least_cell > 1 and np.any((whole > ROUNDING**2) & (few < ROUNDING * whole)):
            why = "two candidates differ for fewer people than the least"
            raise RefusedError("residuals under leverages that are none", why, code="bad-rows")

"""A member: it checks a request, computes sums of its rows, and answers with a file. Its rows never leave.

Every answer is the same again for the same request, up to the encryption around it: masks are derived from the
member's key and the request, so that asking twice tells nothing more. An answer with noise is kept in the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mixtune import checks, files
from mixtune.choice import RemoteTasks
from mixtune.data import CsvFormat
from mixtune.errors import DataError
from mixtune.moments import Origin, Rows
from mixtune_federated import _masks as masks
from mixtune_federated import _tuned as tuned
from mixtune_federated._keys import Key, public_of
from mixtune_federated._messages import (
    CONTENT_FORM,
    STEPS,
    Message,
    hashed,
    read_message,
)
from mixtune_federated._policy import Ledger, Policy, RefusedError, data_hash
from mixtune_federated._privacy import private_ring
from mixtune_federated._study import Study
from mixtune_federated._sums import LocalSums, encode, moment_arrays, moments_from
from mixtune_federated._types import Arrays, Floats, Integers


@dataclass(frozen=True, eq=False)
class Answer:
    """What an answer says: in words, and as sealed values and arrays."""

    says: Sequence[str]
    spec: Mapping[str, Any]
    arrays: Mapping[str, Any]
    epsilon: float = 0.0


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
    csv : CsvFormat
        How a CSV file is written; detected by default.

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
        csv: CsvFormat | None = None,
    ) -> None:
        self.study, self.key = study, key
        self.policy, self.ledger = policy or Policy(), ledger or Ledger()
        if study.card(key.name) != key.card:
            problem = f'the key of "{key.name}" is not the one that study "{study.name}" pins'
            raise DataError(f"{problem}; use the key that joined", code="wrong-key")
        self.inputs = study.read(rows, csv=csv)
        self.data = data_hash(self.inputs)
        self.rows: Rows = study.prepared(self.inputs)
        self._passed: Policy | None = None
        self._summed: tuple[Rows, LocalSums] | None = None

    @property
    def place(self) -> int:
        """The member's place among the sources."""
        return self.study.sources.index(self.key.name)

    def answer(self, request: Message | str | Path | bytes) -> Message:
        """Answer a request, or refuse it with the reason. Nothing is told before everything is checked."""
        study = self.study
        if not isinstance(request, Message):
            request = read_message(request, most_bytes=study.limits.message_bytes)
        spec, arrays = self._open_request(request)
        asked = spec["ask"]
        run = _run_of(request, spec)
        self._check_release(request, asked, run)
        if kept := self.ledger.kept_answer(data=self.data, request=request.digest):
            return read_message(kept, most_bytes=study.limits.message_bytes)
        if study.level < 3 and self._passed != self.policy:  # noise hides single rows, however few there are
            self.policy.check_rows(self.inputs, study.n_features, study.encoder.names)
            self._passed = self.policy
        step: Callable[[Message, dict[str, Any], Arrays], Answer] = getattr(self, f"_{asked}")
        found = step(request, spec, arrays)
        header: dict[str, Any] = {"kind": "answer", "step": request.step, "reply_to": request.digest}
        header["public"] = {"answers": asked}
        answer = study.write(self.key, [study.focal], found.says, found.spec, arrays=found.arrays, **header)
        if answer.size > study.limits.message_bytes:
            raise DataError("the answer is larger than the study allows; raise message_bytes, or use fewer features")
        told: dict[str, Any] = {"study": study.fingerprint, "step": request.step, "epsilon": found.epsilon}
        told["answer"] = answer.content if found.epsilon else b""
        self.ledger.record(data=self.data, request=request.digest, run=run, **told)
        return answer

    def _open_request(self, request: Message) -> tuple[dict[str, Any], Arrays]:
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
        allowed = study.requests
        if spec.get("ask") not in allowed or spec.get("map_hash") != study.map_hash:
            why = f"the study agreed on {', '.join(allowed)} at level {study.level} with map {study.map_hash[:16]}"
            raise RefusedError(f"{str(spec.get('ask'))!r} with the feature map {str(spec.get('map_hash'))[:16]}", why)
        # Under another number, what was answered before could be asked again.
        if request.step != STEPS[spec["ask"]]:
            raise RefusedError(f"{spec['ask']!r} in step {request.step}", f"it belongs in step {STEPS[spec['ask']]}")
        return spec, arrays

    def _check_release(self, request: Message, asked: str, run: str) -> None:
        """Refuse a second answer about the same rows; the policy may allow another run, but no second one in a run."""
        within = None if self.policy.one_release else run
        other = self.ledger.other_request(data=self.data, step=request.step, request=request.digest, run=within)
        if other is not None:
            why = f"on {other['time']} another request was answered; the difference of two sums tells who was left out"
            raise RefusedError(f"a second release of the same rows ({asked})", why, code="second-release")

    def _local(self) -> LocalSums:
        """The sums of the rows, computed once."""
        if self._summed is None or self._summed[0] is not self.rows:
            self._summed = self.rows, LocalSums.of(self.rows, self.study.fixed.ridge)
        return self._summed[1]

    # --- level 1 ------------------------------------------------------------------------------------------------

    def _moments(self, request: Message, spec: dict[str, Any], arrays: Arrays) -> Answer:
        """The moments, sealed to the coordinator."""
        p = self.study.n_features
        says = [f"sums of squares and products of {p} features, the constant and the target, about their means"]
        says += ["these means, and the number of rows"]
        return Answer(says, {}, self._local().content)

    def _ranks(self, request: Message, spec: dict[str, Any], arrays: Arrays) -> Answer:
        """What orders the sources, and whether this one takes the focal role in validation."""
        rows = tuned.centred(self.rows, arrays)
        count = int(spec["rows"])
        takes = self.study.n_features <= self.policy.features_per_row * count
        says = ["the number of rows, and six sums over them that order the members"]
        says += [] if takes else [f"this member takes no validation task: {count} rows are too few for its policy"]
        return Answer(says, {"plays": takes, "rank": list(RemoteTasks.rank(rows))}, {})

    def _parts(self, request: Message, spec: dict[str, Any], arrays: Arrays) -> Answer:
        """Moments of the rows that were drawn for validation."""
        rows, tasks, count = self._drawn_tasks(spec, arrays)
        zero = Origin.zero(rows.shape[1])
        parts = [moment_arrays(zero.moments(rows.part(order[:count]))) for order in tasks]
        says = [f"sums over {count} of the rows, drawn at random, for each of {len(tasks)} validation tasks"]
        return Answer(says, {"tasks": len(tasks)}, files.joined_arrays(dict(enumerate(parts))))

    def _plays(self, request: Message, spec: dict[str, Any], arrays: Arrays) -> Answer:
        """Mean products of the candidates' residuals."""
        rows, tasks, count = self._drawn_tasks(spec, arrays)
        box = np.asarray(arrays[f"box.{self.place}"]).tobytes()
        context = tuned.play_context(self.study, self.key.name, str(spec["parts"]))
        inner = self.key.open(box, "the candidates", context)
        _, sent = files.unpack(inner, form=CONTENT_FORM, where="the candidates")
        found = []
        for place, order in enumerate(tasks):
            heads, quadratics = (sent[f"{name}.{place}"] for name in ("heads", "quadratics"))
            check_leverages(RemoteTasks.leverages(rows.X[order[:count]], quadratics), self.study.n_features + 1)
            found.append(RemoteTasks.play(rows, order, count, bool(spec["spare"]), heads, quadratics))
        said = f"mean products of the residuals of {len(heads)} candidates on rows kept for testing"
        return Answer([f"{said}, and on left-out rows"], *tuned.task_content(found))

    def _drawn_tasks(self, spec: dict[str, Any], arrays: Arrays) -> tuple[Rows, list[Integers], int]:
        """The rows in the units of the validation tasks, the order of rows in each task of this member, and how many
        rows of each are for training; raises if the policy of the member forbids a task.
        """
        rows, count, tasks = tuned.centred(self.rows, arrays), int(spec["rows"]), []
        for _, drawn in sorted(files.arrays_below(arrays, self.place).items()):
            places = np.asarray(drawn, dtype=np.int64)
            inside = np.unique(places[(places >= 0) & (places < len(rows.y))])
            if len(inside) < len(places) or len(places) < min(count, len(rows.y)):
                asked = "sums over rows that do not exist, or are not all different"
                raise RefusedError(asked, "no task needs them", code="bad-rows")
            tasks.append(RemoteTasks.order(rows, places))
        check_parts(self.policy, tasks, count, len(rows.y), self.study.n_features)
        return Rows(rows.X, rows.y / float(spec["size"])), tasks, count

    # --- levels 2 and 3 -----------------------------------------------------------------------------------------

    def _private(self, first: str) -> bytes:
        """The private key of the masks of one study run."""
        return self.key.secret(b"mask key", bytes.fromhex(first))

    def _seed(self, first: str) -> bytes:
        """The seed of the mask that this member shares with nobody."""
        return self.key.secret(b"own mask", bytes.fromhex(first))

    def _keys(self, request: Message, spec: dict[str, Any], arrays: Arrays) -> Answer:
        """A key for the masks, shares of it for the neighbours, the score, and the size of the sums."""
        study, first = self.study, request.digest
        private, seed = self._private(first), self._seed(first)
        public = public_of(private)
        neighbours = study.neighbours(self.key.name)
        told: dict[str, Any] = {}
        says = [f"a public key, and shares of its private half, sealed to {len(neighbours)} other members"]
        if study.level == 2:
            local = self._local()
            told["magnitudes"] = local.magnitudes
            says += ["powers of two above the largest entries of the sums"]
            if study.scored:
                told["score"] = local.score(moments_from(arrays, study.n_features, "the focal member's sums"))
                says += ["one number that says how well the local model predicts the focal member's rows"]
        made = {"public": public, "signature": self.key.sign(masks.key_text(study, first, self.key.name, public))}
        made |= {"own_digest": hashed(seed)} if study.limits.confirm else {}
        sent = {name: np.frombuffer(value, dtype=np.uint8) for name, value in made.items()}
        sent["boxes"] = self._seal_shares(private, first, neighbours)
        if study.limits.confirm:
            sent["own_boxes"] = self._seal_shares(seed, first, neighbours)
        return Answer(says, told, sent)

    def _seal_shares(self, secret: bytes, first: str, neighbours: Sequence[int]) -> Any:
        """Shares of a secret, each sealed to one neighbour."""
        study, shares = self.study, masks.split_secret(secret, neighbours, self.study.threshold)
        boxes = np.zeros((len(neighbours), masks.BOX_BYTES), dtype=np.uint8)
        for row, place in enumerate(neighbours):
            name = study.sources[place]
            box = study.card(name).seal(shares[place], masks.share_context(study, first, self.key.name, name))
            boxes[row] = np.frombuffer(box, dtype=np.uint8)
        return boxes

    def _read_announcement(
        self, spec: Mapping[str, Any], arrays: Arrays, before: Any, why: str
    ) -> tuple[masks.Announcement, dict[int, bytes]]:
        """What all members of a sum were told, and the neighbours' keys.

        Refused where keys were swapped, where the policy forbids the weights, where they are unequal although the study
        agreed on equal ones, and, for the reason ``why``, where these rows did not answer the request ``before``.
        """
        told = masks.Announcement.read(self.study, spec, arrays)
        neighbours = told.check(self.key.name, self._private(told.first))
        self.policy.check_weights(told.weights)
        if not self.study.scored and {*told.weights.values()} != {told.focal_weight}:
            raise RefusedError("a sum with unequal weights", "the study agreed on equal ones")
        if not self.ledger.answered(data=self.data, request=str(before)):
            raise RefusedError("masked sums or shares that follow from another request", why)
        return told, neighbours

    def _sums(self, request: Message, spec: dict[str, Any], arrays: Arrays) -> Answer:
        """The weighted sums under masks."""
        why = "these rows did not answer that request before; do so first"
        told, neighbours = self._read_announcement(spec, arrays, spec.get("first"), why)
        roster, epsilon = len(told.roster), 0.0
        says = [f"the total over {roster} members is their weighted sum"]
        if self.study.level == 3:
            epsilon = self._spend_epsilon()
            vector = np.append(private_ring(self.study, self.rows, roster), np.ones(1, dtype=np.uint64))
            says += ["a part of the noise is in them"]
        else:
            weight = told.weights[self.key.name]
            weighted = {name: weight * block for name, block in self._local().blocks.items()}
            vector = encode(weighted, told.exponents, roster)
        if self.study.limits.confirm:
            vector = vector + masks.own_mask(self._seed(told.first), told.transcript, len(vector))
            says += ["the other members take off a last mask when they have confirmed who took part"]
        return self._masked(told, neighbours, told.transcript, vector, says, epsilon)

    def _masked(
        self,
        told: masks.Announcement,
        neighbours: Mapping[int, bytes],
        transcript: bytes,
        vector: masks.Ring,
        says: Sequence[str],
        epsilon: float = 0.0,
    ) -> Answer:
        """A vector under the masks with all neighbours."""
        masked = vector + masks.mask_of(self.place, self._private(told.first), neighbours, transcript, len(vector))
        hidden = f"{len(vector):,} numbers that are random without the masks of {len(neighbours)} other members"
        return Answer([hidden, *says], {"transcript": transcript.hex()}, {"masked": masked}, epsilon)

    def _spend_epsilon(self) -> float:
        """The epsilon of this release, if the member's budget has it."""
        epsilon = self.study.privacy.epsilon
        left = self.policy.largest_epsilon - self.ledger.spent(self.data)
        if epsilon > left:
            raise RefusedError(f"a release with epsilon {epsilon:g}", f"{left:g} is left of the budget", code="budget")
        return epsilon

    def _terms(self, request: Message, spec: dict[str, Any], arrays: Arrays) -> Answer:
        """Coefficients under several priors, and how likely these make the targets: terms of a sum."""
        summed = tuned.read_summed(self.study, spec, arrays)
        blocks = tuned.term_blocks(summed.terms(self.rows))
        return self._further(spec, arrays, blocks, "the total tells how much the members' models differ")

    def _trials(self, request: Message, spec: dict[str, Any], arrays: Arrays) -> Answer:
        """Products of the candidates' residuals in a validation task of this member: terms of a sum."""
        study, summed = self.study, tuned.read_summed(self.study, spec, arrays)
        blocks = {name: np.asarray(arrays[f"terms.{name}"], dtype=np.float64) for name in tuned.BITS["terms"]}
        terms = tuned.read_terms(blocks, study.n_features + 1, len(spec["second"]["roster"]))
        count = checks.check_whole("rows", spec["rows"], least=1)
        task = summed.play(self.rows, terms, count, study.features.seed)
        says = "the total tells how well candidates predict rows of members that were not used for them"
        return self._further(spec, arrays, tuned.trial_blocks(task), says)

    def _further(self, spec: dict[str, Any], arrays: Arrays, blocks: Mapping[str, Any], says: str) -> Answer:
        """Further blocks of the members of an earlier sum, under masks of their own."""
        why = "these rows took no part in the sum before it"
        told, neighbours = self._read_announcement(spec["second"], arrays, spec["second_digest"], why)
        members = len(told.roster)
        vector = encode(blocks, tuned.exponents(spec["ask"], members), members, fine=True)
        return self._masked(told, neighbours, masks.later_transcript(told, spec, arrays), vector, [says])

    def _shares(self, request: Message, spec: dict[str, Any], arrays: Arrays) -> Answer:
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
        # Of a member either the key or its own mask, never both: with both, its sums could be read.
        found = {"shares": self._open_shares(told.first, dropped, arrays["boxes"])}
        if study.limits.confirm:
            alive = [name for name in told.roster if name not in dropped]
            found["own_shares"] = self._open_shares(told.first, alive, arrays["own_boxes"])
        whose = ", ".join(dropped) or "those who took part"
        says = [f"shares that take the masks of {whose} from the sum; {study.threshold} are needed"]
        return Answer(says, {"dropped": dropped}, found)

    def _open_shares(self, first: str, names: Sequence[str], boxes: Any) -> Any:
        """The shares of these members' secrets that this one holds; zeros where it holds none."""
        study, found = self.study, np.zeros((len(names), masks.SHARE_BYTES), dtype=np.uint8)
        for row, name in enumerate(names):
            holders = study.neighbours(name)
            if self.place in holders:
                box = boxes[row, holders.index(self.place)].tobytes()
                context = masks.share_context(study, first, name, self.key.name)
                found[row] = np.frombuffer(self.key.open(box, f'the share of "{name}"', context), dtype=np.uint8)
        return found


def _run_of(request: Message, spec: Mapping[str, Any]) -> str:
    """The digest of the first request of the run that a request for masked sums belongs to; else its own."""
    told = spec if spec["ask"] == "sums" else spec.get("second")
    return str(told.get("first")) if isinstance(told, Mapping) else request.digest


def check_parts(policy: Policy, tasks: Sequence[Integers], count: int, rows: int, n_features: int) -> None:
    """Refuse sums over sets of rows so few, or so nearly the same, that their differences tell about single rows."""
    least = n_features / policy.features_per_row
    pairs = [(order[:count], order[count : count + RemoteTasks.test_rows]) for order in tasks]
    drawn = [[set(map(int, part)) for part in pair] for pair in pairs]
    sets = [part for pair in drawn for part in pair if part] + [pair[0] | pair[1] for pair in drawn]
    everything = set(range(rows))
    apart = [len(one) for one in sets] + [len(everything - one) for one in sets]
    apart += [len(one ^ other) for place, one in enumerate(sets) for other in sets[:place]]
    small = [size for size in apart if 0 < size < least]
    if small:
        why = f"some of them, or what two of them differ by, are {min(small)} rows; {np.ceil(least):.0f} are the least"
        raise RefusedError("sums over parts of the rows", why, code="few-rows", rows=min(small))


def check_leverages(values: Floats, width: int) -> None:
    """Refuse leverages (C, n) that are none: with others, a request could single out rows."""
    if np.min(values) < -1e-9 or np.max(values) > 1 + 1e-9 or np.max(values.sum(axis=1)) > width + 1e-6:
        raise RefusedError("residuals under leverages that are none", "they would single out rows", code="bad-rows")

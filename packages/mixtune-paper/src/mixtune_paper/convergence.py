"""Figures 1 and 2: how loss and energy fall along the iterations of RO, ARO and gradient descent (GD).

Five datasets, each labelled by a small random network of its own, behind 500 random ReLU features and a constant. With
as many features as rows the loss can reach zero, and the question is how fast. RO is the regret-optimal algorithm with
predictive weights, started at and held to the local heads; ARO has weights 1/N and all heads at their mean; GD
descends RO's loss from RO's start. RO and ARO are solved in closed form, and GD is a power of a diagonal matrix, so a
run costs a few factorisations instead of a thousand inversions of 2505 x 2505 matrices.

Each method's loss and energy are those of its own problem. The learning rate 7e-5 of the paper lies just inside the
stability limit 1/(|w|^2 a_max), which differs from run to run: where a run's limit is lower, GD explodes. Such runs are
counted, shown in the notes and left out of the means of GD.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from mixtune.features import Concatenate, RandomFeatures
from mixtune.moments import Moments
from mixtune.regret import RegretProblem, descend, solve
from mixtune.weights import PredictiveWeights
from mixtune_paper._arrays import Floats, Integers
from mixtune_paper._judge import Verdict, all_of, judge_sign, judge_value
from mixtune_paper._store import Outcome
from mixtune_paper._study import Check, Experiment, Results, Table

__all__ = ["FIGURE_1", "FIGURE_2", "LAYERS", "ConvergenceSettings", "ConvergenceSummary", "LayeredData", "NetworkData"]
__all__ += ["ProblemSettings", "Series"]

#: The learning rate at which the paper saw descent explode.
NEXT_RATE = 8e-5
#: "Nearly equal" is within this part; "the very last steps" are those after this part of all steps.
NEARLY, LATE = 0.05, 0.95


@dataclass(frozen=True, kw_only=True)
class NetworkData:
    """How to draw the datasets of one run, each labelled by a small random ReLU network of its own.

    Inputs are N(0, I), the networks have one hidden layer of ``target_units``, Xavier-uniform weights and biases
    uniform on (-target_bias, target_bias). Features are ``width`` random ReLU features with weights and biases N(0, 1),
    and a constant.

    Examples
    --------
    >>> rows = NetworkData(width=20).draw(seed=0)
    >>> len(rows), rows[0][0].shape, rows[0][1].shape
    (5, (100, 21), (100,))
    """

    n_domains: int = 5
    n_rows: int = 100
    n_inputs: int = 5
    target_units: int = 10
    target_bias: float = 0.1
    width: int = 500

    def draw(self, seed: int) -> list[tuple[Floats, Floats]]:
        """Features (n, width + 1) and targets (n,) of each dataset."""
        phi, outputs = self.feature_map(seed), getattr(self, "n_outputs", 1)
        rows = []
        for index in range(self.n_domains):
            rng = np.random.default_rng([seed, 1 + index])
            inner, outer = _xavier(rng, self.n_inputs, self.target_units), _xavier(rng, self.target_units, outputs)
            biases = [rng.uniform(-self.target_bias, self.target_bias, size) for size in (self.target_units, outputs)]
            X = rng.standard_normal((self.n_rows, self.n_inputs))
            targets = np.maximum(X @ inner + biases[0], 0.0) @ outer + biases[1]
            rows.append((phi.transform(X), targets[:, 0] if outputs == 1 else targets))
        return rows

    def feature_map(self, seed: int) -> RandomFeatures | Concatenate:
        """phi, the same for all datasets of a run."""
        return RandomFeatures(n_inputs=self.n_inputs, width=self.width, activation="relu", seed=seed)


@dataclass(frozen=True, kw_only=True)
class LayeredData(NetworkData):
    """The same with several outputs, and features of two frozen layers side by side: the paper's remark on (3).

    Each dataset's network has ``n_outputs`` outputs. The features are ``width`` random ReLU features and ``width``
    random tanh features of the same inputs, and a constant for each.

    Examples
    --------
    >>> rows = LayeredData(width=20).draw(seed=0)
    >>> rows[0][0].shape, rows[0][1].shape
    ((100, 42), (100, 3))
    """

    n_outputs: int = 3
    width: int = 250

    def feature_map(self, seed: int) -> Concatenate:
        sizes: dict[str, Any] = {"n_inputs": self.n_inputs, "width": self.width}
        layers = [RandomFeatures(**sizes, activation=name, seed=seed + k) for k, name in enumerate(("relu", "tanh"))]
        return Concatenate(layers)


def _xavier(rng: np.random.Generator, fan_in: int, fan_out: int) -> Floats:
    bound = np.sqrt(6 / (fan_in + fan_out))
    return rng.uniform(-bound, bound, (fan_in, fan_out))


@dataclass(frozen=True, kw_only=True)
class ProblemSettings:
    """Datasets with so few features that no head interpolates, and the penalties of the problem on them."""

    data: NetworkData = field(default_factory=lambda: NetworkData(width=100))
    ridge: float = 1.0
    transfer: float = 1.0
    stability: float = 1.0
    horizon: int = 10

    @property
    def costs(self) -> dict[str, Any]:
        """Penalties and horizon, as a :class:`RegretProblem` takes them."""
        return {"transfer": self.transfer, "stability": self.stability, "horizon": self.horizon}

    def draw(self, seed: int) -> tuple[list[Moments], Floats]:
        """Moments and local heads of the datasets of one run."""
        return moments_and_heads(self.data.draw(seed), self.ridge)


def moments_and_heads(rows: Sequence[tuple[Floats, Floats]], ridge: float) -> tuple[list[Moments], Floats]:
    """Moments (N) and local heads (N, p) of datasets."""
    moments = [Moments.from_rows(U, y) for U, y in rows]
    return moments, np.stack([m.head(ridge) for m in moments])


@dataclass(frozen=True, kw_only=True)
class ConvergenceSettings:
    """The paper's convergence study; ``descent_steps=0`` leaves gradient descent out."""

    transfers: tuple[float, ...] = (0.0,)
    stability: float = 1.0
    horizon: int = 1000
    ridge: float = 0.0
    sharing: float = 10.0
    data: NetworkData = field(default_factory=NetworkData)
    descent_steps: int = 100_000
    descent_every: int = 100
    learning_rate: float = 7e-5

    def label(self, method: str, transfer: float) -> str:
        """The method's name, with lambda where there are several."""
        return method if len(self.transfers) == 1 else f"{method} lambda={transfer:g}"

    def iterations(self, method: str) -> Integers:
        """Where the curves are known: everywhere up to the horizon, then every ``descent_every`` steps."""
        dense = np.arange(self.horizon + 1)
        if method != "GD":
            return dense
        dense = dense[: self.descent_steps + 1]
        return np.concatenate([dense, np.arange(self.horizon, self.descent_steps + 1, self.descent_every)[1:]])


@dataclass(frozen=True, eq=False)
class Series:
    """Mean and standard deviation over runs of one method's loss and energy, per iteration; empty without runs."""

    method: str
    transfer: float
    iterations: Integers
    loss_mean: Floats
    loss_std: Floats
    energy_mean: Floats
    energy_std: Floats
    runs: int


def _problems(settings: ConvergenceSettings, seed: int) -> Iterator[tuple[float, RegretProblem, RegretProblem]]:
    """For each transfer, RO's and ARO's problem on the datasets of one run."""
    moments, heads = moments_and_heads(settings.data.draw(seed), settings.ridge)
    mean_heads = np.broadcast_to(heads.mean(axis=0), heads.shape)
    weights = PredictiveWeights(sharing=settings.sharing).weigh(moments=moments, heads=heads)
    equal = np.full(len(moments), 1 / len(moments))
    for transfer in settings.transfers:
        costs = {"transfer": transfer, "stability": settings.stability}
        problem = partial(RegretProblem, moments=moments, horizon=settings.horizon, **costs)
        yield transfer, problem(weights=weights, heads=heads), problem(weights=equal, heads=mean_heads)


def _run(settings: ConvergenceSettings, seed: int) -> Outcome:
    rows: dict[str, dict[str, float]] = {}
    curves: dict[str, dict[str, Floats]] = {}

    def keep(name: str, transfer: float, solution: Any, **more: float) -> None:
        method, t = settings.label(name, transfer), settings.iterations(name)
        loss = solution.loss_at(t)
        # A diverging loss overflows to infinity, and its energy with it.
        energy = np.where(np.isfinite(loss), solution.energy_at(t), np.inf)
        ends = {"start_loss": loss[0], "final_loss": loss[-1], "final_energy": energy[-1]}
        rows[method] = {name: float(value) for name, value in (ends | more).items()}
        curves[method] = {"loss": loss, "energy": energy}

    for transfer, regret_optimal, accelerated in _problems(settings, seed):
        keep("RO", transfer, solve(regret_optimal))
        keep("ARO", transfer, solve(accelerated))
        if steps := settings.descent_steps:
            rate = settings.learning_rate
            descent = descend(regret_optimal, learning_rate=rate, steps=steps, allow_divergence=True)
            path: Any = descent.path
            keep("GD", transfer, descent, stability_limit=path.stability_limit)
    return Outcome(rows, curves)


#: Of the study of layers, the row with the error against one output at a time.
OUTPUTS = "one output at a time"


def _run_layers(settings: ConvergenceSettings, seed: int) -> Outcome:
    """A run with several outputs, beside the same problems solved by Algorithm 2's twin for one output at a time."""
    outcome = _run(settings, seed)
    errors = []
    for _, problem, _ in _problems(settings, seed):
        whole = solve(problem)
        alone = []
        for k in range(problem.heads.shape[-1]):
            moments = [Moments(m.count, m.gram, m.cross[:, k], m.square[k]) for m in problem.moments]
            alone.append(solve(problem.replaced(moments=moments, heads=problem.heads[..., k])))
        heads = np.stack([each.heads for each in alone], axis=-1)
        errors.append(float(np.max(np.abs(whole.heads - heads)) / np.max(np.abs(heads))))
        errors.append(abs(whole.loss - sum(each.loss for each in alone)) / whole.loss_at(0))
    return Outcome({**outcome.rows, OUTPUTS: {"error": max(errors)}}, outcome.curves)


@dataclass(frozen=True, eq=False)
class ConvergenceSummary:
    """Curves over runs, and how close the learning rate came to the stability limits."""

    experiment: str
    seed: int
    runs: int
    settings: ConvergenceSettings
    series: tuple[Series, ...]
    stability_limits: Floats
    by_run: Mapping[str, Floats]
    outputs_error: float | None = None

    @property
    def diverged(self) -> int:
        """Runs whose stability limit is below the learning rate."""
        return int(np.sum(self.settings.learning_rate > self.stability_limits))

    def as_json(self) -> dict[str, Any]:
        document = {"experiment": self.experiment, "seed": self.seed, "runs": self.runs, "methods": self.headline()}
        limits = {"stability_limits": self.stability_limits.tolist(), "diverged_runs": self.diverged}
        descent = {"descent": {"learning_rate": self.settings.learning_rate, **limits}}
        return document | (descent if len(self.stability_limits) else {})

    def headline(self) -> Table:
        rows: list[dict[str, Any]] = []
        for s in self.series:
            ends = {"loss": s.loss_mean, "loss_std": s.loss_std, "energy": s.energy_mean, "energy_std": s.energy_std}
            rows.append({"method": s.method, "transfer": s.transfer, "runs": s.runs, "steps": int(s.iterations[-1])})
            rows[-1] |= {"start_loss": _end(s.loss_mean, 0)} | {name: _end(curve, -1) for name, curve in ends.items()}
        return rows

    def notes(self) -> list[str]:
        limits, rate = self.stability_limits, self.settings.learning_rate
        if not len(limits):
            return []
        left_out = f"{self.diverged} of {self.runs} runs" + (" (left out of the means of GD)" if self.diverged else "")
        return [
            f"Gradient descent is stable up to a learning rate of {limits.min():.3g} to {limits.max():.3g}, depending "
            f"on the run (median {np.median(limits):.3g}). It explodes at {rate:g} in {left_out}, at {NEXT_RATE:g} in "
            f"{int(np.sum(limits < NEXT_RATE))}."
        ]

    def tables(self) -> dict[str, Table]:
        columns = ("loss_mean", "loss_std", "energy_mean", "energy_std")
        rows: list[dict[str, Any]] = []
        for s in self.series:
            for t, *values in zip(s.iterations, *(getattr(s, name) for name in columns)):
                numbers = dict(zip(columns, map(float, values)))
                rows.append({"method": s.method, "transfer": s.transfer, "iteration": int(t), "runs": s.runs} | numbers)
        return {self.experiment: rows}

    def checks(self) -> dict[str, Check]:
        if self.outputs_error is not None:
            told = f"loss and heads differ by at most {self.outputs_error:.1g} from those of one output at a time"
            return {"Equation (3), layers": Check(self.outputs_error < 1e-8, told)}
        if len(self.stability_limits):
            return {"Figure 1": self._against_descent()}
        return {"Figure 2": self._late_starts()}

    def _against_descent(self) -> Check:
        """The text: descent is slower in a hundred times the steps, its regret is nearly 0, and 8e-5 is unstable."""
        limits, rate = self.stability_limits, self.settings.learning_rate
        stable = limits >= rate
        if not np.any(stable):
            return Check(False, "gradient descent diverged in all runs", power=1.0)
        found = {name: self.by_run[name][stable] for name in ("GD loss", "RO loss", "GD energy")}
        middle, margin = (NEXT_RATE + rate) / 2, (NEXT_RATE - rate) / 2
        verdicts = [
            judge_value(limits, middle, margin=margin),
            judge_sign(np.log(found["GD loss"] / found["RO loss"]), effect=np.log(2)),
            judge_value(found["GD energy"] / found["GD loss"] - 1, 0.0, margin=NEARLY),
        ]
        limit, _, above = verdicts
        told = (
            f"mean stability limit {limit.mean:.3g} +- {limit.half:.2g} (between {rate:g} and {NEXT_RATE:g}: "
            f"{limit.word}); final loss {found['GD loss'].mean():.3g} of GD and {found['RO loss'].mean():.3g} of RO; "
            f"energy of GD {above.mean:.1%} above its loss; {NEXT_RATE:g} is unstable in "
            f"{int(np.sum(limits < NEXT_RATE))} of {self.runs} runs, {rate:g} in {self.diverged}"
        )
        literal = bool(np.all(stable) and np.all(limits < NEXT_RATE))
        return _together(verdicts, told, as_printed=literal)

    def _late_starts(self) -> Check:
        """The text: with a larger lambda the algorithm starts later, only in the very last steps, and gains less."""
        few, many = (f"lambda={end(self.settings.transfers):g}" for end in (min, max))
        left = {name: self.by_run[f"start {name}"] for name in (few, many)}
        loss = {name: self.by_run[f"loss {name}"] for name in (few, many)}
        verdicts = [
            judge_sign(left[many] - LATE, effect=(1 - LATE) / 2),
            judge_sign(left[many] - left[few], effect=0.1),
            judge_sign(np.log(loss[many] / loss[few]), effect=np.log(2)),
        ]
        told = (
            f"a tenth of the way is done after {left[few].mean():.1%} of the steps at {few}, after "
            f"{left[many].mean():.1%} at {many}; final loss {loss[few].mean():.3g} and {loss[many].mean():.3g}"
        )
        return _together(verdicts, told)


def _together(verdicts: Sequence[Verdict], told: str, *, as_printed: bool = True) -> Check:
    """One check for several sentences."""
    holds, power = all_of(verdict.holds for verdict in verdicts), min(verdict.power for verdict in verdicts)
    return Check(holds, told, as_printed=as_printed, power=power)


def _by_run(settings: ConvergenceSettings, results: Results) -> dict[str, Floats]:
    """What the claims of the text are judged by, one number per run."""
    found: dict[str, Floats] = {}
    for transfer in settings.transfers:
        method = settings.label("RO", transfer)
        loss = results.curves(method, "loss")
        # The first step after which a tenth of the way to the final loss is done, as a part of the horizon.
        done = loss <= 0.9 * loss[:, :1] + 0.1 * loss[:, -1:]
        found[f"start lambda={transfer:g}"] = np.argmax(done, axis=1) / settings.horizon
        found[f"loss lambda={transfer:g}"] = found["RO loss"] = loss[:, -1]
    if "GD" in results.methods:
        found |= {f"GD {name}": results.values("GD", f"final_{name}") for name in ("loss", "energy")}
    return found


def _summarise(settings: ConvergenceSettings, results: Results) -> ConvergenceSummary:
    series, limits = [], np.zeros(0)
    for transfer in settings.transfers:
        for name in ("RO", "ARO", "GD"):
            method = settings.label(name, transfer)
            if method not in results.methods:
                continue
            curves = [results.curves(method, quantity) for quantity in ("loss", "energy")]
            if name == "GD":
                limits = results.values(method, "stability_limit")
                curves = [each[settings.learning_rate <= limits] for each in curves]
            loss, energy = map(_mean_and_std, curves)
            series.append(Series(name, transfer, settings.iterations(name), *loss, *energy, runs=len(curves[0])))
    apart = float(results.values(OUTPUTS, "error").max()) if OUTPUTS in results.methods else None
    common = (results.experiment, results.seed, results.runs, settings)
    return ConvergenceSummary(*common, tuple(series), limits, _by_run(settings, results), apart)


def _mean_and_std(curves: Floats) -> tuple[Floats, Floats]:
    """Over runs; the sample standard deviation, 0 for a single run; empty where no run is left."""
    if not len(curves):
        return np.zeros(0), np.zeros(0)
    return curves.mean(axis=0), curves.std(axis=0, ddof=min(1, len(curves) - 1))


def _end(curve: Floats, index: int) -> float | None:
    return float(curve[index]) if len(curve) else None


FIGURE_1 = Experiment("figure1", ConvergenceSettings(), _run, _summarise, runs=10)
LAYERS_SETTINGS = ConvergenceSettings(transfers=(1e-4, 2.0), descent_steps=0, data=LayeredData())
FIGURE_2 = replace(FIGURE_1, name="figure2", settings=ConvergenceSettings(transfers=(1e-4, 2.0), descent_steps=0))
LAYERS = replace(FIGURE_1, name="layers", settings=LAYERS_SETTINGS, run=_run_layers)

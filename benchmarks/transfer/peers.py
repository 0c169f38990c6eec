"""Alternatives from other packages, where they are installed: thin adapters with the settings their users would choose.

None of them is a dependency. Each adapter imports its package when it is fitted, and suppresses what it prints.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold

from benchmarks.transfer.methods import ALPHAS, Method, Model, Probability, stack
from benchmarks.transfer.problems import Case
from mixtune.arrays import Floats

#: Of the boosted trees, fixed: what users of tables with some thousand rows often start from.
ROUNDS, RATE, LEAVES, LEAF_ROWS = 300, 0.05, 15, 20


@dataclass(frozen=True)
class Function:
    """A model that is a function of the inputs."""

    function: Callable[[Floats], Any]

    def predict(self, X: Floats, /) -> Any:
        """Apply it."""
        with _silence():
            return self.function(X)


def quiet(fit: Callable[[Case], Callable[[Floats], Any]]) -> Callable[[Case], Model]:
    """Suppress what packages print and warn about; their predictions are judged all the same."""

    @wraps(fit)
    def fitted(case: Case) -> Model:
        with _silence():
            return Function(fit(case))

    return fitted


@contextmanager
def _silence() -> Iterator[None]:
    # With --json, standard output must hold nothing but the JSON document.
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def with_ones(X: Floats) -> Floats:
    """Put a column of ones in front."""
    return np.column_stack([np.ones(len(X)), X])


def _labelled(case: Case) -> tuple[Floats, Floats, Callable[[Floats], Floats]]:
    """All rows with their domain as a number in one more column, the last; and what adds that of the focal domain."""
    X, y, names = stack(case)
    numbers = {name: float(place) for place, name in enumerate(dict.fromkeys(names.tolist()))}
    labelled = np.column_stack([X, [numbers[name] for name in names.tolist()]])
    return labelled, y, lambda new: np.column_stack([new, np.full(len(new), numbers[case.focal])])


@quiet
def _statsmodels(case: Case) -> Callable[[Floats], Any]:
    """Fixed effects of all columns; intercept and slope of the first column random by domain."""
    from statsmodels.regression.mixed_linear_model import MixedLM

    # The package turns its warnings on when it is first imported.
    warnings.simplefilter("ignore")
    X, y, names = stack(case)
    fitted = MixedLM(y, with_ones(X), groups=names, exog_re=with_ones(X[:, :1])).fit(reml=True)
    effects = np.asarray(fitted.random_effects[case.focal])
    return lambda new: with_ones(new) @ fitted.fe_params + with_ones(new[:, :1]) @ effects


@quiet
def _gpboost(case: Case) -> Callable[[Floats], Any]:
    """Fixed effects of all columns; intercept and all slopes random by domain, independent of each other."""
    import gpboost

    X, y, names = stack(case)
    columns = X.shape[1]
    try:
        model = gpboost.GPModel(
            group_data=names, group_rand_coef_data=X, ind_effect_group_rand_coef=[1] * columns, likelihood="gaussian"
        )
        model.fit(y=y, X=with_ones(X))
    except gpboost.basic.GPBoostError as error:
        raise RuntimeError(str(error)) from error

    def predict(new: Floats) -> Any:
        groups = np.repeat(case.focal, len(new))
        given = {"group_data_pred": groups, "group_rand_coef_data_pred": new, "X_pred": with_ones(new)}
        return model.predict(**given)["mu"]

    return predict


@quiet
def _gpboost_trees(case: Case) -> Callable[[Floats], Any]:
    """Boosted trees of the columns and a random intercept for each domain, of the same size as the other boosters."""
    import gpboost

    X, y, names = stack(case)
    # The package starts from zero, and its steps are of the size that unit variance needs.
    level, spread = float(y.mean()), float(y.std()) or 1.0
    model = gpboost.GPModel(group_data=names, likelihood="gaussian")
    sizes = {"learning_rate": RATE, "num_leaves": LEAVES, "min_data_in_leaf": LEAF_ROWS}
    options = {**sizes, "objective": "regression_l2", "verbose": -1, "num_threads": 1, "seed": 0}
    try:
        trees = gpboost.train(options, gpboost.Dataset(X, (y - level) / spread), gp_model=model, num_boost_round=ROUNDS)
    except gpboost.basic.GPBoostError as error:
        raise RuntimeError(str(error)) from error

    def predict(new: Floats) -> Any:
        groups = np.repeat(case.focal, len(new))
        return level + spread * trees.predict(new, group_data_pred=groups, pred_latent=False)["response_mean"]

    return predict


@quiet
def _sklego(case: Case) -> Callable[[Floats], Any]:
    """One ridge for all rows and one for each domain; the prediction is the mean of the two."""
    from sklego.meta import HierarchicalRegressor

    # The package takes arrays with groups by position.
    X, y, with_focal = _labelled(case)
    model = HierarchicalRegressor(RidgeCV(alphas=ALPHAS), groups=[X.shape[1] - 1], shrinkage="equal", check_X=False)
    model.fit(X, y)
    return lambda new: model.predict(with_focal(new))


@quiet
def _skada(case: Case) -> Callable[[Floats], Any]:
    """Rows of the sources weighted by how likely their inputs are in the focal domain (KLIEP), and the focal rows."""
    # The package switches metadata routing on for the whole process when it is imported; the context undoes that.
    with config_context():
        from skada import KLIEPReweightAdapter

        X, y, names = stack(case)
        source = names != case.focal
        labels = np.where(source, 1, -2)
        adapter = KLIEPReweightAdapter(gamma="auto", random_state=0)
        # Copies, because the package has been seen to write into what it is given.
        adapter.fit(X.copy(), sample_domain=labels)
        weights = np.asarray(adapter.compute_weights(X.copy(), sample_domain=labels), dtype=np.float64)
    weights[source] /= max(weights[source].mean(), np.finfo(float).tiny)
    weights[~source] = 1.0
    return RidgeCV(alphas=ALPHAS).fit(X, y, sample_weight=weights).predict


@quiet
def _adapt_regular(case: Case) -> Callable[[Floats], Any]:
    """A ridge of the pooled sources, pulled to the focal rows; the penalty is chosen by cross-validation on them."""
    from adapt.parameter_based import RegularTransferLR

    X, y, names = stack(case)
    source = names != case.focal
    pretrained = RidgeCV(alphas=ALPHAS).fit(X[source], y[source])

    def fit(own_X: Floats, own_y: Floats, penalty: float) -> Any:
        # The package documents the penalty as lambda, but uses lambda squared.
        return RegularTransferLR(pretrained, lambda_=penalty**0.5, verbose=0).fit(own_X, own_y)

    def error(penalty: float) -> float:
        left_out = [
            np.asarray(fit(case.train.X[kept], case.train.y[kept], penalty).predict(case.train.X[left])).ravel()
            - case.train.y[left]
            for kept, left in KFold(5, shuffle=True, random_state=0).split(case.train.X)
        ]
        return float(np.mean(np.concatenate(left_out) ** 2))

    model = fit(case.train.X, case.train.y, min(ALPHAS, key=error))
    return lambda new: np.asarray(model.predict(new)).ravel()


@quiet
def _adapt_balanced(case: Case) -> Callable[[Floats], Any]:
    """One ridge on all rows, the focal ones together as heavy as all sources together."""
    from adapt.instance_based import BalancedWeighting

    X, y, names = stack(case)
    source = names != case.focal
    # The package takes the focal rows in the constructor.
    model = BalancedWeighting(RidgeCV(alphas=ALPHAS), Xt=case.train.X, yt=case.train.y, verbose=0)
    model.fit(X[source], y[source])
    return lambda new: np.asarray(model.predict(new)).ravel()


@quiet
def _adapt_augmented(case: Case) -> Callable[[Floats], Any]:
    """One ridge on all rows, with every column once for all domains and once more for each."""
    from adapt.feature_based import FA

    X, y, names = stack(case)
    source = names != case.focal
    model = FA(RidgeCV(alphas=ALPHAS), Xt=case.train.X, yt=case.train.y, verbose=0)
    model.fit(X[source], y[source], domains=np.unique(names[source], return_inverse=True)[1])
    return lambda new: np.asarray(model.predict(new, domain="tgt")).ravel()


def _predict(model: Any, case: Case) -> Callable[[Floats], Any]:
    return Probability(model).predict if case.classes else model.predict


@quiet
def _lightgbm(case: Case) -> Callable[[Floats], Any]:
    """Boosted trees on all rows, the domain as a category; 300 rounds, rate 0.05, 15 leaves of 20 rows or more."""
    import lightgbm

    X, y, with_focal = _labelled(case)
    booster = lightgbm.LGBMClassifier if case.classes else lightgbm.LGBMRegressor
    sizes = {"n_estimators": ROUNDS, "learning_rate": RATE, "num_leaves": LEAVES, "min_child_samples": LEAF_ROWS}
    model = booster(**sizes, n_jobs=1, random_state=0, verbosity=-1).fit(X, y, categorical_feature=[X.shape[1] - 1])
    predict = _predict(model, case)
    return lambda new: predict(with_focal(new))


@quiet
def _catboost(case: Case) -> Callable[[Floats], Any]:
    """Boosted trees on all rows, the domain as a category; 300 rounds, rate 0.05, depth 6 (the package's default)."""
    import catboost
    import pandas as pd

    X, y, with_focal = _labelled(case)
    column = X.shape[1] - 1

    def frame(rows: Floats) -> Any:
        # The package takes no category from an array of floats.
        return pd.DataFrame(rows).astype({column: int})

    booster = catboost.CatBoostClassifier if case.classes else catboost.CatBoostRegressor
    model = booster(
        iterations=ROUNDS,
        learning_rate=RATE,
        depth=6,
        cat_features=[column],
        thread_count=1,
        random_seed=0,
        verbose=False,
        allow_writing_files=False,
    ).fit(frame(X), y)
    predict = _predict(model, case)
    return lambda new: predict(frame(with_focal(new)))


@quiet
def _histgradient(case: Case) -> Callable[[Floats], Any]:
    """Boosted trees on all rows, the domain as a category; 300 rounds, rate 0.05, 15 leaves of 20 rows or more."""
    X, y, with_focal = _labelled(case)
    booster = HistGradientBoostingClassifier if case.classes else HistGradientBoostingRegressor
    model = booster(
        max_iter=ROUNDS,
        learning_rate=RATE,
        max_leaf_nodes=LEAVES,
        min_samples_leaf=LEAF_ROWS,
        categorical_features=[X.shape[1] - 1],
        early_stopping=False,
        random_state=0,
    ).fit(X, y)
    predict = _predict(model, case)
    return lambda new: predict(with_focal(new))


#: Trees on hundreds of columns of text features would take minutes a case and are not what their users would do.
BOOSTERS: dict[str, Any] = {"most_columns": 50, "takes_classes": True}
PEERS = (
    Method("statsmodels", "statsmodels mixed model, 1 slope", _statsmodels, "statsmodels", most_columns=50),
    Method("gpboost", "GPBoost mixed model, all slopes", _gpboost, "gpboost", most_columns=50),
    Method("gpboost-trees", "GPBoost trees, random level", _gpboost_trees, "gpboost", most_columns=50),
    Method("sklego", "scikit-lego hierarchical", _sklego, "sklego"),
    Method("skada", "skada KLIEP + focal rows", _skada, "skada"),
    Method("adapt-regular", "ADAPT RegularTransferLR, CV", _adapt_regular, "adapt"),
    Method("adapt-balanced", "ADAPT BalancedWeighting", _adapt_balanced, "adapt"),
    Method("adapt-augmented", "ADAPT feature augmentation (FA)", _adapt_augmented, "adapt", most_columns=50),
    Method("lightgbm", "LightGBM, domain as category", _lightgbm, "lightgbm", **BOOSTERS),
    Method("catboost", "CatBoost, domain as category", _catboost, "catboost", **BOOSTERS),
    Method("histgradient", "HistGradientBoosting, the same", _histgradient, **BOOSTERS),
)

"""Claims: one fit for all domains is as accurate as other packages, covers what it says, and costs a few focal fits.

Exam scores of 65 schools, house prices of 24 neighbourhoods, and life expectancy in the countries of 22 regions, in
5-fold cross-validation over all rows. Errors are relative to the better of one ridge per domain and one ridge on all
rows with an indicator of each domain. Peers are measured where they are installed: GPBoost (mixed model with random
slopes; and its trees), statsmodels' MixedLM, scikit-lego's hierarchical regressor, LightGBM and CatBoost with the
domain as a category. Times are CPU seconds.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.timing import Claim, Figure, in_own_process, own_peak

RIDGES = np.logspace(-3, 4, 15)
#: Rows from which a domain should not do worse than its own ridge, and by what part it may.
MANY_ROWS, WORSE = 100, 1.05
Method = Callable[[Any, Any, Any, Any, Any], Any]


def problem(name: str) -> tuple[Any, Any, Any]:
    """Inputs, targets, and the domain of each row, of a table of the comparison of transfer methods."""
    from benchmarks.transfer.tables import load_table
    from mixtune.data import real

    own = {"exam": real.load_exam, "ames": real.load_ames}
    domains = list(own[name]() if name in own else load_table(name))
    X, y = (np.concatenate([getattr(each, part) for each in domains]) for part in ("X", "y"))
    return X.astype(float), y, np.repeat([each.name for each in domains], [each.n_rows for each in domains])


def ridge() -> Any:
    """Ridge regression on standardised columns, its strength chosen by leave-one-out."""
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), RidgeCV(RIDGES))


def per_domain(X: Any, y: Any, own: Any, new: Any, theirs: Any) -> Any:
    found = np.full(len(new), y.mean())
    for name in np.unique(theirs):
        if np.sum(own == name) > 2:
            found[theirs == name] = ridge().fit(X[own == name], y[own == name]).predict(new[theirs == name])
    return found


def one_hot(X: Any, y: Any, own: Any, new: Any, theirs: Any) -> Any:
    from sklearn.linear_model import RidgeCV
    from sklearn.preprocessing import StandardScaler

    scaler, names = StandardScaler().fit(X), np.unique(own)
    both = (np.hstack([scaler.transform(U), own_part[:, None] == names]) for U, own_part in ((X, own), (new, theirs)))
    train, test = both
    return RidgeCV(RIDGES).fit(train, y).predict(test)


def gpboost_mixed(X: Any, y: Any, own: Any, new: Any, theirs: Any) -> Any:
    import gpboost
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(X)
    U, V = scaler.transform(X), scaler.transform(new)
    slopes = {"group_rand_coef_data": U, "ind_effect_group_rand_coef": [1] * U.shape[1]}
    model = gpboost.GPModel(group_data=own[:, None], likelihood="gaussian", **slopes)
    model.fit(y=y, X=np.column_stack([np.ones(len(U)), U]))
    new_rows = {"X_pred": np.column_stack([np.ones(len(V)), V]), "group_rand_coef_data_pred": V}
    return model.predict(group_data_pred=theirs[:, None], **new_rows)["mu"]


def gpboost_trees(X: Any, y: Any, own: Any, new: Any, theirs: Any) -> Any:
    import gpboost

    model = gpboost.GPModel(group_data=own[:, None], likelihood="gaussian")
    options = {"learning_rate": 0.05, "max_depth": 3, "verbose": -1}
    # The package starts from zero, and its steps are of the size that unit variance needs.
    level, spread = y.mean(), y.std()
    trees = gpboost.train(options, gpboost.Dataset(X, (y - level) / spread), gp_model=model, num_boost_round=150)
    found = trees.predict(data=new, group_data_pred=theirs[:, None], pred_latent=False)["response_mean"]
    return level + spread * found


def mixed_lm(X: Any, y: Any, own: Any, new: Any, theirs: Any) -> Any:
    """A random level for each domain; with random slopes too it does not converge on these data."""
    import statsmodels.api as sm
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(X)
    fitted = sm.MixedLM(y, sm.add_constant(scaler.transform(X)), groups=own).fit()
    level = {name: float(np.ravel(part)[0]) for name, part in fitted.random_effects.items()}
    return fitted.predict(sm.add_constant(scaler.transform(new))) + [level.get(name, 0.0) for name in theirs]


def lightgbm_trees(X: Any, y: Any, own: Any, new: Any, theirs: Any) -> Any:
    import lightgbm

    names = np.unique(own)
    model = lightgbm.LGBMRegressor(n_estimators=200, learning_rate=0.05, num_leaves=15, verbose=-1)
    model.fit(np.column_stack([X, np.searchsorted(names, own)]), y, categorical_feature=[X.shape[1]])
    return model.predict(np.column_stack([new, np.searchsorted(names, theirs)]))


def catboost_trees(X: Any, y: Any, own: Any, new: Any, theirs: Any) -> Any:
    import catboost
    import pandas as pd

    model = catboost.CatBoostRegressor(iterations=400, verbose=0, allow_writing_files=False)
    model.fit(pd.DataFrame(X).assign(domain=own), y, cat_features=["domain"])
    return model.predict(pd.DataFrame(new).assign(domain=theirs))


def hierarchical(X: Any, y: Any, own: Any, new: Any, theirs: Any) -> Any:
    """The mean of a ridge on all rows and one of each domain."""
    import pandas as pd
    from sklego.meta import HierarchicalRegressor

    train, test = (pd.DataFrame(U).add_prefix("x").assign(domain=names) for U, names in ((X, own), (new, theirs)))
    return HierarchicalRegressor(ridge(), groups=["domain"], shrinkage="equal").fit(train, y).predict(test)


PEERS: dict[str, tuple[str, Method]] = {
    "GPBoost, mixed model": ("gpboost", gpboost_mixed),
    "GPBoost, trees": ("gpboost", gpboost_trees),
    "MixedLM": ("statsmodels", mixed_lm),
    "scikit-lego": ("sklego", hierarchical),
    "LightGBM": ("lightgbm", lightgbm_trees),
    "CatBoost": ("catboost", catboost_trees),
}


def measure(*, full: bool = False) -> Iterator[Claim | Figure]:
    """Errors and coverage on real data, then costs; ``full`` adds 1,000 domains."""
    for name in ("exam", "ames", "gapminder"):
        yield from accuracy(name)
    for name in ("exam", "ames"):
        yield agreement(name)
    yield from coverage("rice")
    for apart in (0.1, 0.3, 1.0):
        yield coefficient_coverage(apart)
    yield from cost()
    if full:
        yield from thousand()


def accuracy(name: str) -> Iterator[Claim | Figure]:
    """Errors of all methods by cross-validation, coverage of intervals, and domains with many rows."""
    from sklearn.model_selection import KFold

    from mixtune import MultiDomainRegressor

    X, y, domain = problem(name)
    methods: dict[str, Method] = {"one ridge per domain": per_domain, "pooled ridge, one-hot": one_hot}
    methods |= {peer: way for peer, (package, way) in PEERS.items() if find_spec(package)}
    found, covered = {each: np.empty(len(y)) for each in ("mixtune", *methods)}, np.empty(len(y), dtype=bool)
    for train, test in KFold(5, shuffle=True, random_state=0).split(X):
        model = MultiDomainRegressor().fit(X[train], y[train], domain=domain[train])
        found["mixtune"][test] = model.predict(X[test], domain=domain[test])
        low, high = model.predict_interval(X[test], domain=domain[test])
        covered[test] = (low <= y[test]) & (y[test] <= high)
        for each, way in methods.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[each][test] = way(X[train], y[train], domain[train], X[test], domain[test])
    errors = {each: float(np.sqrt(np.mean((y - part) ** 2))) for each, part in found.items()}
    base = min(errors[each] for each in ("one ridge per domain", "pooled ridge, one-hot"))
    yield Figure("size", f"{name}: errors relative to the better ridge", {k: v / base for k, v in errors.items()})
    for each in errors:
        if each != "mixtune":
            yield Claim(f"{name}: error / {each}", errors["mixtune"], errors[each], 1.0, unit="")
    worst = max(
        float(
            np.sqrt(np.mean((y - found["mixtune"])[own] ** 2) / np.mean((y - found["one ridge per domain"])[own] ** 2))
        )
        for own in (domain == each for each in np.unique(domain))
        if own.sum() >= MANY_ROWS
    )
    yield Claim(f"{name}: worst domain of {MANY_ROWS} rows or more / its own ridge", worst, 1.0, WORSE, unit="")
    yield coverage_claim(f"{name}: 90% intervals", float(np.mean(covered)))
    yield coverage_claim(f"{name}: 90% intervals of unseen domains", unseen_coverage(X, y, domain))


def agreement(name: str, limit: float = 0.1) -> Claim:
    """How far a domain's linear model is from that with this domain focal: the median over twelve domains."""
    from mixtune import MultiDomainRegressor, RegretOptimalRegressorCV

    X, y, domain = problem(name)
    every, names = MultiDomainRegressor(None).fit(X, y, domain=domain), np.unique(domain)
    found = []
    for focal in names[:: max(len(names) // 12, 1)][:12]:
        own = domain == focal
        sources = {each: (X[domain == each], y[domain == each]) for each in names if each != focal}
        one = RegretOptimalRegressorCV(None).fit(X[own], y[own], sources=sources)
        apart = one.predict(X[own]) - every.predict(X[own], domain=domain[own])
        found.append(float(np.sqrt(np.mean(apart**2) / one.loo_error_)))
    what = f"{name}: distance from the model with a domain focal / its error, median (largest {max(found):.2f})"
    return Claim(what, float(np.median(found)), 1.0, limit, unit="")


def coverage(name: str) -> Iterator[Claim]:
    """Coverage of intervals in cross-validation, and of domains that are left out."""
    from sklearn.model_selection import KFold

    from mixtune import MultiDomainRegressor

    X, y, domain = problem(name)
    covered = np.empty(len(y), dtype=bool)
    for train, test in KFold(5, shuffle=True, random_state=0).split(X):
        model = MultiDomainRegressor().fit(X[train], y[train], domain=domain[train])
        low, high = model.predict_interval(X[test], domain=domain[test])
        covered[test] = (low <= y[test]) & (y[test] <= high)
    yield coverage_claim(f"{name}: 90% intervals", float(np.mean(covered)))
    yield coverage_claim(f"{name}: 90% intervals of unseen domains", unseen_coverage(X, y, domain))


def coverage_claim(what: str, share: float, wanted: float = 0.9) -> Claim:
    """Coverage must be within three points of what is wanted."""
    distance = f"distance of {share:.1%} from {wanted:.0%} / 3 points"
    return Claim(f"{what}: {distance}", abs(share - wanted), 0.03, 1.0, unit="")


def coefficient_coverage(apart: float, runs: int = 40) -> Claim:
    """Coverage of intervals of coefficients, for 20 domains of 25 rows whose coefficients differ by ``apart``."""
    from mixtune import MultiDomainRegressor

    covered = []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        domain, X = np.repeat(np.arange(20), 25), rng.standard_normal((500, 3))
        slopes = np.array([1.0, 1.5, 2.0]) + apart * rng.standard_normal((20, 3))
        y = np.sum(X * slopes[domain], axis=1) + rng.standard_normal(500)
        found = MultiDomainRegressor(None).fit(X, y, domain=domain).coefficients()
        # Domains are sorted by name.
        truth = slopes[[int(name) for name in found["domain"][::3]]].ravel()
        covered.append((found["low"] <= truth) & (truth <= found["high"]))
    what = f"made-up domains, coefficients {apart:g} apart: 95% intervals of coefficients"
    return coverage_claim(what, float(np.mean(covered)), 0.95)


def unseen_coverage(X: Any, y: Any, domain: Any) -> float:
    """Coverage on rows of domains that are left out, ten folds of domains, with a linear model."""
    from sklearn.model_selection import GroupKFold

    from mixtune import MultiDomainRegressor

    covered = np.empty(len(y), dtype=bool)
    for train, test in GroupKFold(min(10, len(np.unique(domain)))).split(X, y, domain):
        model = MultiDomainRegressor(None).fit(X[train], y[train], domain=domain[train])
        low, high = model.predict_interval(X[test], domain=domain[test])
        covered[test] = (low <= y[test]) & (y[test] <= high)
    return float(np.mean(covered))


def cost() -> Iterator[Claim]:
    """All schools against one focal fit, for the school with the median number of rows; and a million predictions."""
    from mixtune import MultiDomainRegressor, RegretOptimalRegressorCV

    X, y, domain = problem("exam")
    names, counts = np.unique(domain, return_counts=True)
    focal = names[np.argsort(counts)[len(counts) // 2]]
    sources = {each: (X[domain == each], y[domain == each]) for each in names if each != focal}
    one = seconds(lambda: RegretOptimalRegressorCV().fit(X[domain == focal], y[domain == focal], sources=sources))
    every = seconds(lambda: MultiDomainRegressor().fit(X, y, domain=domain))
    yield Claim("65 schools / one focal fit", every, one, 5.0)
    yield Claim("65 schools / 4 s", every, 4.0, 1.0)
    places = np.random.default_rng(0).integers(0, len(X), 10**6)
    for name, feature_map, rows, limit in (("the linear model", None, 10**6, 2.0), ("kernels", "auto", 10**5, 4.0)):
        model = MultiDomainRegressor(feature_map).fit(X, y, domain=domain)
        many, labels = X[places[:rows]], domain[places[:rows]]
        taken = seconds(partial(model.predict, many, domain=labels))
        yield Claim(f"{rows:.0e} predictions of {name} / {limit:g} s", taken, limit, 1.0)


def thousand() -> Iterator[Claim]:
    """1,000 domains of 50 rows and 20 columns, in processes of their own, whose memory nothing else has used."""
    for feature_map, name in (("none", "linear"), ("auto", "the default")):
        taken, peak = in_own_process("benchmarks.multi_domain", feature_map)
        what = f"1,000 domains, 50 rows, p = 20, {name}"
        yield Claim(f"{what} / 30 s", taken, 30.0, 1.0)
        yield Claim(f"{what}: memory of the process / 2 GB", peak / 2**20, 2048.0, 1.0, unit="MB")


def fit_thousand(feature_map: str | None) -> float:
    """CPU seconds of one fit of 1,000 domains."""
    from mixtune import MultiDomainRegressor

    rng = np.random.default_rng(0)
    X, domain = rng.standard_normal((50_000, 20)), np.repeat(np.arange(1000), 50)
    slopes = 1.0 + 0.3 * rng.standard_normal((1000, 20))
    y = np.sum(X * slopes[domain], axis=1) + rng.standard_normal(50_000)
    begin = time.process_time()
    MultiDomainRegressor(feature_map).fit(X, y, domain=domain)
    return time.process_time() - begin


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of the better of two runs."""
    found = []
    for _ in range(2):
        begin = time.process_time()
        work()
        found.append(time.process_time() - begin)
    return min(found)


if __name__ == "__main__":
    print(json.dumps([fit_thousand(None if sys.argv[1] == "none" else sys.argv[1]), own_peak()]))

"""The verdict: it follows from the table of methods, says no more than the intervals, and can be carried out."""

import numpy as np
import pytest

from mixtune.estimators import RegretOptimalClassifierCV, RegretOptimalRegressorCV, compare_nested, rivals
from mixtune.report import give_verdict, model_facts, read_facts
from mixtune.report.facts import DomainFact, MethodFact
from mixtune.report.verdict import judged


def methods(alone=(0.8, 0.7, 0.9), pooled=(0.7, 0.6, 0.8), error=1.0, mean=3.0):
    """A table: mixtune's error, and its ratio to those of the others with intervals."""
    rows = [MethodFact("mixtune", error, 0.1)]
    for name, ratio in (("own rows alone", alone), ("pooled", pooled)):
        rows.append(MethodFact(name, error / ratio[0], 0.1, *ratio))
    return (*rows, MethodFact("mean", mean, 0.1))


@pytest.mark.parametrize(
    ("alone", "words"),
    [
        ((0.86, 0.82, 0.91), "Transfer clearly helps: the RMSE is 14% lower than with own rows alone (95% interval 9"),
        ((1.05, 1.02, 1.09), "Transfer clearly hurts: the RMSE is 5% higher than with own rows alone (95% interval 2"),
        ((0.98, 0.93, 1.03), "20 focal rows cannot tell whether transfer helps: the RMSE is 2% lower than"),
        ((1.03, 0.99, 1.07), "Transfer probably hurts: the RMSE is 3% higher than with own rows alone (95% interval 7"),
        ((0.97, 0.93, 1.01), "Transfer probably helps: the RMSE is 3% lower than with own rows alone (95% interval 1%"),
        ((1.0, 0.98, 1.02), "20 focal rows cannot tell whether transfer helps: the RMSE is the same as with own rows"),
        ((1.0, 1.0, 1.0), "Transfer makes no difference: mixtune and own rows alone make the same errors."),
        ((20.0, 15.0, 30.0), "Transfer clearly hurts: the RMSE is more than ten times as high as with own rows alone."),
    ],
)
def test_it_says_no_more_than_the_interval(alone, words):
    assert judged(methods(alone), 20).sentence.startswith(words)


@pytest.mark.parametrize(
    ("alone", "words"),
    [
        ((0.86, 0.82, 0.91), "Use this model for new rows."),
        ((0.97, 0.93, 1.01), "Use this model for new rows. If the difference stays the same, about 36 focal rows"),
        ((1.05, 1.02, 1.09), "Use a fit to the focal rows alone."),
        ((0.98, 0.93, 1.03), "Use either this model or a fit to the focal rows alone. If"),
        ((1.0, 0.98, 1.02), "Use either this model or a fit to the focal rows alone."),
    ],
)
def test_what_to_do_next(alone, words):
    assert judged(methods(alone), 20).advice.startswith(words)


def test_the_best_method_is_recommended_by_name_and_by_setting():
    assert judged(methods(), 20).settings == {}
    found = judged(methods(pooled=(1.1, 1.02, 1.2)), 20)
    assert "One fit to all rows pooled is clearly better than mixtune: its RMSE is 9.1% lower" in found.sentence
    assert found.advice == "Use one fit to all rows pooled."
    assert (found.method, found.settings) == ("pooled", {"method": "pooled"})
    found = judged(methods((1.2, 1.1, 1.3), (1.1, 1.02, 1.2)), 20)
    assert (found.method, found.settings) == ("own rows alone", {"method": "own-rows-alone"})
    # What the rows cannot tell is no reason for another method.
    assert judged(methods(pooled=(1.01, 0.9, 1.13)), 20).method == "mixtune"


def test_a_method_no_better_than_the_mean_is_not_recommended():
    told = "on unseen rows, this model is no better than predicting the mean (RMSE 1.1 against 1)."
    advice = judged(methods(error=1.1, mean=1.0), 20).advice
    assert advice == f"Look for other columns. These hardly predict the target: {told}"
    assert "hardly better than predicting the mean" in judged(methods(error=0.99, mean=1.0), 20).advice
    assert judged(methods(error=1.1, mean=1.0), 5).advice.startswith("Add focal rows before you rely on this model:")
    worse = judged(methods((1.05, 1.02, 1.09), error=1.1, mean=1.0), 20)
    assert "a fit to the focal rows alone is no better than predicting the mean" in worse.advice
    assert (worse.method, worse.settings) == ("", {})
    assert "(log loss 1.1 against 1)" in judged(methods(error=1.1, mean=1.0), 20, metric="log loss").advice


def test_of_failures_it_says_nothing():
    rows = (MethodFact("mixtune", None, None), *methods()[1:])
    rows = tuple(MethodFact(each.method, each.error, each.standard_error) for each in rows)
    found = judged(rows, 20)
    assert found.sentence.startswith("Whether transfer helps cannot be judged")
    assert (found.method, found.advice) == ("", "")


def make_rows(classes=False, seed=0):
    rng = np.random.default_rng(seed)

    def draw(n, slope):
        X = rng.standard_normal((n, 2))
        y = X @ slope + rng.standard_normal(n)
        return X, np.where(y > 0, "yes", "no") if classes else y

    slope = np.array([1.0, -1.0])
    X, y = draw(20, slope)
    sources = {f"s{k}": draw(60, slope + 0.2 * rng.standard_normal(2)) for k in range(3)}
    return {"X": X, "y": y, "sources": sources}


@pytest.mark.parametrize("classes", [False, True])
def test_a_fit_shows_the_first_draw_of_the_comparison(classes, tmp_path):
    rows = make_rows(classes)
    model = RegretOptimalClassifierCV() if classes else RegretOptimalRegressorCV()
    model.fit(**rows)
    metric = "log loss" if classes else "RMSE"
    facts = read_facts(model, **rows, explain=False, distances=False)
    assert facts.metric == metric
    assert [each.method for each in facts.compared] == ["mixtune", "own rows alone", "pooled", "boosting", "mean"]
    from mixtune.data import Domain, Domains

    def coded(part):
        return np.searchsorted(["no", "yes"], part) if classes else part

    parts = {"focal": (rows["X"], rows["y"]), **rows["sources"]}
    domains = Domains(tuple(Domain(name, X, coded(y)) for name, (X, y) in parts.items()), focal="focal")
    kind = type(model)
    found = compare_nested(domains, rivals(kind(), classes=classes), classes=classes, repeats=1)
    for fact, each in zip(facts.compared, found):
        assert fact.error == pytest.approx(each.error)
        assert fact.reduction == (None if each.reduction is None else pytest.approx(each.reduction))
    gain = model.transfer_gain_
    assert (gain.reduction, gain.low, gain.high) == facts.gain
    path = model.save(tmp_path / "model.mixtune")
    from mixtune.estimators import load

    assert model_facts(load(path)).compared == facts.compared
    assert give_verdict(facts).sentence.startswith(judged(facts.compared, 20, metric=metric).sentence[:30])


def test_one_source_that_clearly_hurts_is_to_be_left_out():
    from dataclasses import replace

    rows = make_rows()
    facts = read_facts(RegretOptimalRegressorCV().fit(**rows), **rows, explain=False, distances=False)
    facts = replace(facts, compared=methods())
    calm = [replace(each, change=0.0, change_low=-0.01, change_high=0.01) for each in facts.sources]
    hurt = replace(calm[0], change=-0.1, change_low=-0.12, change_high=-0.08)
    found = give_verdict(replace(facts, sources=(hurt, *calm[1:])))
    assert found.advice.endswith(f'Leave "{hurt.name}" out: without it the error is clearly lower.')
    assert found.settings == {"exclude": [hurt.name]}
    # Too small a change, or one that may be chance, is no reason.
    for low, high in ((-0.12, 0.01), (-0.2, -0.001)):
        chance = replace(hurt, change=(low + high) / 2, change_low=low, change_high=high)
        assert give_verdict(replace(facts, sources=(chance, *calm[1:]))).settings == {}
    small = replace(hurt, change=-0.005, change_low=-0.006, change_high=-0.004)
    assert give_verdict(replace(facts, sources=(small, *calm[1:]))).settings == {}
    # Without the only source it is a fit to the focal rows alone.
    assert give_verdict(replace(facts, sources=(hurt,))).settings == {}


def test_noise_is_not_recommended():
    rng = np.random.default_rng(0)
    draws = [(rng.standard_normal((n, 4)), rng.standard_normal(n)) for n in (25, 60, 60)]
    (X, y), *others = draws
    rows = {"X": X, "y": y, "sources": {f"other {k}": each for k, each in enumerate(others)}}
    facts = read_facts(RegretOptimalRegressorCV().fit(**rows), **rows, explain=False)
    assert give_verdict(facts).advice.startswith("Look for other columns. These hardly predict the target")


def test_with_one_focal_row_errors_are_said_to_be_unknown():
    rows = make_rows()
    rows |= {"X": rows["X"][:1], "y": rows["y"][:1]}
    facts = read_facts(RegretOptimalRegressorCV().fit(**rows), **rows, explain=False)
    known = "Add focal rows before you rely on this model: with 1 focal row its errors and intervals are unknown."
    assert give_verdict(facts).advice == known


def test_a_source_without_a_known_effect_is_not_blamed():
    assert DomainFact("a").change is None

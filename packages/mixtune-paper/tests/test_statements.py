"""Every numbered statement of the paper has a place, a check that can fail, and a line in the final table."""

import importlib
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from mixtune import RegretProblem, WassersteinWeights
from mixtune_paper import EXPERIMENTS, Check, run_study
from mixtune_paper import statements as module
from mixtune_paper.statements import CHECKS, COMMENT, PAPER, PROOF, STATEMENTS, Case, StatementSettings, table_of

#: As many as LaTeX numbers in the paper's source; parts of a statement are rows of their own.
NUMBERED = {
    "Theorem": 8,
    "Lemma": 9,
    "Proposition": 5,
    "Corollary": 3,
    "Remark": 6,
    "Algorithm": 3,
    "Assumption": 1,
    "Experiment": 2,
    "Table": 2,
    "Figure": 2,
}
#: Where the printed text fails and a correction holds.
SLIPS = {"Algorithm 1", "Theorem 8", "Corollary 1", "Remark 6"}


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    return run_study(STATEMENTS, out=tmp_path_factory.mktemp("statements"), runs=2)


def test_every_numbered_statement_is_listed_once():
    names = [statement.name for statement in PAPER]
    assert len(set(names)) == len(names)
    numbers = {" ".join(name.rstrip(",").split()[:2]).rstrip(",") for name in names}
    kinds = Counter(name.split()[0] for name in numbers)
    assert {kind: kinds[kind] for kind in NUMBERED} == NUMBERED
    assert all({f"{kind} {k + 1}" for k in range(count)} <= numbers for kind, count in NUMBERED.items())


@pytest.mark.parametrize("statement", PAPER, ids=lambda s: s.name)
def test_statements_live_somewhere_and_name_their_check(statement):
    if statement.home:
        owner, name = statement.home.rsplit(".", 1)
        assert hasattr(importlib.import_module(owner), name)
    assert statement.by in (PROOF, COMMENT, *EXPERIMENTS)
    assert statement.about
    assert statement.how
    assert (statement.by == "statements") == (statement.name in CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_statement_holds(summary, name):
    check = summary.checks()[name]
    assert check.holds, check.result
    assert check.as_printed == (name not in SLIPS), check.result


def broken(monkeypatch, name, replacement, where=module):
    """What the study says after a part of the package was replaced."""
    monkeypatch.setattr(where, name, replacement)
    case = StatementSettings(moves=(1e-3,))
    found = {key: check(Case.draw(case, 3)) for key, check in CHECKS.items()}
    limit = {key: max((v / (1e-8 if k.startswith("error") else 1)) for k, v in found[key].items()) for key in found}
    return {key for key, value in limit.items() if value > 1}


def test_checks_can_fail(monkeypatch):
    value_functions, solve = RegretProblem.value_functions, module.solve

    def without_reference(problem):
        """Theta* forgotten in the recursion of S and r."""
        return value_functions(problem.replaced(reference=np.zeros_like(problem.heads)))

    lost = broken(monkeypatch, "value_functions", without_reference, RegretProblem)
    assert {"Theorem 5", "Remark 3"} <= lost
    monkeypatch.setattr(RegretProblem, "value_functions", value_functions)

    def longer(problem, **options):
        """Twice the stability penalty."""
        return solve(problem.replaced(stability=2 * problem.stability), **options)

    lost = broken(monkeypatch, "solve", longer)
    assert {"Algorithm 2", "Theorem 2", "Theorem 5", "Remark 3"} <= lost

    def off(problem, *, method="closed-form"):
        """Another penalty in Algorithm 3 alone."""
        changed = problem.replaced(transfer=2 * problem.transfer) if method == "accelerated" else problem
        return solve(changed, method=method)

    monkeypatch.setattr(module, "solve", off)
    for name, key in (("Algorithm 3", "error_of_steps"), ("Theorem 8", "error_of_mixture")):
        assert CHECKS[name](Case.draw(StatementSettings(), 3))[key] > 1e-8
    monkeypatch.setattr(module, "solve", solve)
    lost = broken(monkeypatch, "WassersteinWeights", lambda gamma, *rest, **more: WassersteinWeights(2 * gamma, **more))
    assert "Algorithm 1" in lost


def test_corollary_1_fails_for_one_large_dataset():
    """|S(T)|/N is 4.2 for N = 5 and 39 for N = 40, with the same largest features and targets."""
    growth = CHECKS["Corollary 1"](Case.draw(StatementSettings(), 1))["growth_of_s_over_n_as_printed"]
    assert growth == pytest.approx(39.025 / 4.2)


def test_estimates_are_not_vacuous():
    """What is measured is no vanishing part of its bound, although that of the controls doubles with every step."""
    case = Case.draw(StatementSettings(), 1)
    for name in ("Lemma 5", "Lemma 6", "Lemma 7", "Proposition 1", "Proposition 2", "Corollary 2", "Lemma 9"):
        assert 1e-5 < max(CHECKS[name](case).values()) <= 1, name


def test_verdicts():
    checks = {
        "Lemma 1": Check(True, "fine"),
        "Lemma 2": Check(False, "broken"),
        "Theorem 8": Check(True, "mixture", as_printed=False),
        "Table 2": Check(True, "20 of 20 rows agree", power=0.91),
        "Table 1 (b)": Check(None, "7 rows not judged", power=0.3),
        "Experiment 2": Check(None, "between", power=0.9),
    }
    rows = {row["statement"]: row for row in table_of(checks)}
    assert len(rows) == len(PAPER)
    assert rows["Lemma 1"]["verdict"] == "checked"
    assert rows["Lemma 2"]["verdict"] == "not (see result)"
    assert rows["Lemma 2"]["result"] == "broken"
    assert rows["Theorem 8"]["verdict"].startswith("not as printed: the mixtures are equal")
    assert rows["Table 2"]["verdict"] == "reproduced"
    assert rows["Table 2"]["power"] == "0.91"
    assert rows["Table 1 (b)"]["verdict"] == "not judged (too few runs)"
    assert rows["Experiment 2"]["verdict"] == "open (neither confirmed nor contradicted)"
    assert rows["Lemma 4"]["verdict"] == "used in a proof only"
    assert rows["Remark 2"]["verdict"].startswith("not (nothing to check")
    assert rows["Theorem 1"]["verdict"] == "not (not run)"
    assert rows["Theorem 1"]["command"] == "mixtune reproduce bound"


def test_a_failing_number_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHECKS", {"Lemma 2": lambda case: {"sum": 1.5}, "Lemma 3": lambda case: {"sum": 0.5}})
    found = run_study(replace(STATEMENTS, name="broken"), out=tmp_path, runs=2)
    assert found.checks() == {
        "Lemma 2": Check(False, "sum 1.5 of its bound"),
        "Lemma 3": Check(True, "sum 0.5 of its bound"),
    }
    assert [row["holds"] for row in found.headline()] == ["NO", "yes"]

"""What transfer did to the error, and what to do: sentences that follow from one table, and are no firmer than it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mixtune._messages import counted, quoted
from mixtune.choice import MIXTUNE, OWN_ROWS, POOLED
from mixtune.report.facts import RMSE, DomainFact, Facts, MethodFact
from mixtune.report.wording import METHOD_NAMES, number, percent

#: Leaving a dataset out that changes the left-out error by at most this part makes no difference.
HELP_MARGIN = 0.001
#: Advice to leave a dataset out needs an error that is lower without it by this part, beyond chance.
MATERIAL = 0.01
#: A change whose sign is correct with this probability is probable.
PROBABLY = 0.8
#: With fewer focal rows, how their error changes without a dataset is mostly chance.
ENOUGH_ROWS = 8
#: Up to this many datasets that helped or hurt are named.
NAMED = 3
#: The number of rows that would make a difference clear is stated up to this multiple of the present rows.
MOST_TIMES = 20
#: Errors higher by this part or more are "more than ten times" as high.
MANY_TIMES = 9
#: An error that is not lower by more than this part than that of predicting the mean is hardly better.
HARDLY = 0.02
#: The methods whose errors the evidence names; the table has all.
METHODS = (MIXTUNE, OWN_ROWS, POOLED)
#: Methods as sentences name them.
NAMES = {OWN_ROWS: "a fit to the focal rows alone", POOLED: "one fit to all rows pooled"}


@dataclass(frozen=True)
class Verdict:
    """The sentence, its tone ("good", "bad" or "even"), paragraphs on the evidence for it, and what to do next.

    ``method`` is the method that is recommended, or "" for none, and ``without`` are sources to leave out.
    """

    sentence: str
    tone: str
    evidence: tuple[str, ...]
    advice: str
    method: str = MIXTUNE
    without: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings, by name, that carry the advice out; none where this model is the one to use."""
        if self.method in NAMES:
            return {"method": self.method.replace(" ", "-")}
        return {"exclude": list(self.without)} if self.without else {}


def give_verdict(facts: Facts) -> Verdict:
    """Judge a fit by its comparison with the other methods, and say which datasets helped."""
    if not facts.sources:
        sentence = "No other datasets were given, so nothing was transferred: this is a fit to the focal rows alone"
        if facts.method == POOLED:
            sentence = "All rows were pooled as if they were of one domain, as asked for"
        elif facts.method == OWN_ROWS:
            sentence = "This is a fit to the focal rows alone, as asked for; nothing was transferred"
        evidence = f"Its left-out error{' over all rows' * (facts.method == POOLED)} is {number(facts.error)}."
        advice = "Add datasets that may resemble the focal rows." if facts.method == MIXTUNE else ""
        return Verdict(f"{sentence}.", "even", (evidence,), advice)
    if not facts.compared and not facts.candidates and facts.error is not None:
        sentence = f"A {facts.estimator} is compared with nothing; its left-out error is {number(facts.error)}"
        advice = "Fit RegretOptimalRegressorCV or RegretOptimalClassifierCV to compare methods."
        return Verdict(f"{sentence}.", "even", (), advice, "")
    if facts.gain is None:
        sentence = "Whether transfer helps cannot be judged: leave-one-out says nothing about these focal rows"
        advice = "Add focal rows with known targets."
        if facts.focal.rows == 1:
            advice = "Add focal rows before you rely on this model: with 1 focal row its errors and intervals are "
            advice += "unknown."
        return Verdict(f"{sentence}.", "even", (), advice, "")
    helped, meaning = _which_helped(facts)
    # Where the rows cannot tell whether transfer helps, a dataset that helped would contradict it.
    named = can_tell(facts) and any(effect_of(each) == "helped" for each in facts.sources)
    ending = "" if named and not graded(*facts.gain) else f"; {helped}"
    found = judged(facts.compared, facts.focal.rows, metric=facts.metric, ending=ending)
    advice = found.advice
    without: tuple[str, ...] = ()
    if found.method == MIXTUNE and (hurt := harmful(facts)):
        advice += f" Leave {quoted(hurt)} out: without {'it' if len(hurt) == 1 else 'them'} the error is clearly lower."
        without = tuple(hurt)
    return replace(found, evidence=(*found.evidence, meaning), advice=advice, without=without)


def judged(
    compared: Sequence[MethodFact], rows: int, *, metric: str = RMSE, every: bool = False, ending: str = ""
) -> Verdict:
    """Whether transfer helps, which method is best, and what to do: the one rule for fits and comparisons.

    A change is clear if its 95% interval excludes zero, and probable if its sign has a probability of four fifths.
    Another method than mixtune is recommended where its error is clearly or probably lower.

    Parameters
    ----------
    compared
        The methods; the first is mixtune.
    rows
        How many rows the errors are of.
    metric
        Of the errors.
    every
        Whether these are rows of every domain, and not of the focal one.
    ending
        Of the sentence on transfer.

    Examples
    --------
    >>> methods = MethodFact("mixtune", 1.0, 0.1), MethodFact("own rows alone", 1.25, 0.1, 0.8, 0.7, 0.9)
    >>> found = judged(methods, 30)
    >>> found.sentence, found.advice
    ('Transfer clearly helps: the RMSE is 20% lower than with own rows alone (95% interval 10 to 30%).', \
'Use this model for new rows.')
    """
    by_name = {each.method: each for each in compared}
    alone = by_name.get(OWN_ROWS)
    known = None if alone is None else alone.reduction
    if known is None:
        failed = "one of them failed, or makes no error at all"
        told = f"Whether transfer helps cannot be judged: mixtune and {OWN_ROWS} cannot be compared, {failed}."
        return Verdict(told, "even", (_errors(compared, metric),), "", "")
    best, grade = best_method(compared), graded(*known)
    tone = "even" if grade != "clearly" else "good" if known[1] > 0 else "bad"
    if tone == "good" and best not in (MIXTUNE, OWN_ROWS):
        tone = "even"
    first, better = _sentences(compared, rows, metric=metric, every=every)
    evidence = (_errors(compared, metric),)
    sentence = f"{first}{ending}. {better}".rstrip()
    # Where columns hardly predict anything, no method is recommended.
    if warning := _against_mean(compared, best, rows, metric):
        return Verdict(sentence, tone, evidence, warning, "")
    return Verdict(sentence, tone, evidence, _advice(compared, rows, best), best)


def _sentences(compared: Sequence[MethodFact], rows: int, *, metric: str, every: bool = False) -> tuple[str, str]:
    """Whether transfer helps, without the full stop, and which other method is better; the second may be empty."""
    by_name = {each.method: each for each in compared}
    known = by_name[OWN_ROWS].reduction
    assert known is not None
    (reduction, low, high), grade = known, graded(*known)
    if low == high == 0:
        first = f"Transfer makes no difference: mixtune and {OWN_ROWS} make the same errors"
    else:
        opening = f"Transfer {grade} {'helps' if reduction > 0 else 'hurts'}"
        if not grade:
            opening = f"{counted((rows, 'row' if every else 'focal row'))} cannot tell whether transfer helps"
        first = f"{opening}: the {metric} is {_change(known)}"
    best = best_method(compared)
    other = by_name[best].reduction
    if best in (MIXTUNE, OWN_ROWS) or other is None:
        return first, ""
    name = NAMES.get(best, METHOD_NAMES.get(best, best))
    better = f"{name[:1].upper()}{name[1:]} is {graded(*other)} better than mixtune"
    return first, f"{better}: its {metric} is {_change(_reversed(other), '')}."


def best_method(compared: Sequence[MethodFact]) -> str:
    """The method to use: mixtune, unless the error of another one is clearly or probably lower.

    Examples
    --------
    >>> methods = MethodFact("mixtune", 1.0, 0.1), MethodFact("pooled", 0.9, 0.1, 1.11, 1.02, 1.2)
    >>> best_method(methods)
    'pooled'
    """
    from mixtune.estimators import MEAN

    better = {
        each.method: each.error
        for each in compared
        if each.method != MEAN and each.error is not None and each.reduction is not None
        if each.reduction[0] < 0 and graded(*each.reduction)
    }
    return min(better, key=better.__getitem__, default=MIXTUNE)


def likely_better(reduction: float, low: float, high: float) -> float:
    """The probability that an error is lower, from its reduction and the 95% interval of that, as of a normal variable.

    Examples
    --------
    >>> round(likely_better(0.02, -0.0192, 0.0592), 3), likely_better(0.0, -0.1, 0.1)
    (0.841, 0.5)
    """
    spread = (high - low) / (2 * 1.96)
    return 0.5 * (1 + math.erf(reduction / spread / math.sqrt(2))) if 0 < spread < math.inf else 0.5


def graded(reduction: float, low: float, high: float) -> str:
    """How sure the sign of a reduction is: "clearly", "probably", or "" where it cannot be told.

    Examples
    --------
    >>> graded(0.2, 0.1, 0.3), graded(-0.1, -0.22, 0.02), graded(0.01, -0.2, 0.2)
    ('clearly', 'probably', '')
    """
    if low > 0 or high < 0:
        return "clearly"
    sure = likely_better(reduction, low, high)
    return "probably" if max(sure, 1 - sure) >= PROBABLY else ""


def _change(known: tuple[float, float, float], than: str = f" than with {OWN_ROWS}") -> str:
    """By how much an error is lower or higher, with the interval."""
    reduction, low, high = known
    if graded(*known) == "clearly":
        least, most = sorted((abs(low), abs(high)))
        interval = f"{percent(least).removesuffix('%')} to {percent(most)}"
    else:
        interval = f"{_side(low)} to {_side(high)}"
    if abs(reduction) < 5e-4:
        return f"the same as{than.removeprefix(' than')} (95% interval {interval})"
    if reduction < -MANY_TIMES:
        return f"more than ten times as high as{than.removeprefix(' than')}"
    return f"{_side(reduction)}{than} (95% interval {interval})"


def _reversed(known: tuple[float, float, float]) -> tuple[float, float, float]:
    """By what part the other error is lower, from by what part this one is."""
    reduction, low, high = (1 - 1 / max(1 - each, 1e-9) for each in known)
    return reduction, high, low


def _errors(compared: Sequence[MethodFact], metric: str) -> str:
    """What the errors of the methods are."""
    shown = {each.method: each.error for each in compared if each.error is not None and each.method in METHODS}
    texts = [f"{number(error)} with {METHOD_NAMES.get(name, name)}" for name, error in shown.items()]
    return f"On rows that the fits have not seen, the {metric} is {', '.join(texts)}." if texts else ""


def _advice(compared: Sequence[MethodFact], rows: int, best: str) -> str:
    """What to do next."""
    known = next(each.reduction for each in compared if each.method == (OWN_ROWS if best == MIXTUNE else best))
    assert known is not None
    grade = graded(*known)
    if best in NAMES:
        first = f"Use {NAMES[best]}."
    elif best != MIXTUNE:
        first = f"Use {METHOD_NAMES.get(best, best)}, which mixtune compares but does not save; see the documentation."
    elif grade:
        first = "Use this model for new rows."
    else:
        first = "Use either this model or a fit to the focal rows alone."
    # Intervals shrink with the root of the number of rows.
    reduction, low, high = known
    part = (reduction - low if reduction > 0 else high - reduction) / abs(reduction) if reduction else math.inf
    if grade == "clearly" or not rows or not 1 < part**2 < MOST_TIMES:
        return first
    needed = rows * part**2
    step = 10 ** max(math.floor(math.log10(needed)) - 1, 0)
    return f"{first} If the difference stays the same, about {math.ceil(needed / step) * step:,} focal rows would " + (
        "make it clear."
    )


def _against_mean(compared: Sequence[MethodFact], method: str, rows: int, metric: str) -> str:
    """A warning if a method is hardly better than predicting the mean on unseen rows; "" if it is, or unknown."""
    from mixtune.estimators import MEAN

    errors = {each.method: each.error for each in compared}
    error, constant = errors.get(method), errors.get(MEAN)
    if error is None or constant is None:
        return ""
    # The mean of the other n - 1 rows misses by n / (n - 1) times as much as the mean of all: no column has to predict
    # anything to do better by that part, a mean that is known from more rows does.
    part = 1 - 1 / rows if rows > 1 and metric == RMSE else 1.0
    if error < (1 - HARDLY) * part * constant:
        return ""
    how = "hardly" if error < constant else "no"
    told = f"{NAMES.get(method, 'this model' if method == MIXTUNE else method)} is {how} better than predicting the "
    told += f"mean ({metric} {number(error)} against {number(constant)})"
    if rows < ENOUGH_ROWS:
        return f"Add focal rows before you rely on this model: on the few unseen rows, {told}."
    return f"Look for other columns. These hardly predict the target: on unseen rows, {told}."


def harmful(facts: Facts) -> list[str]:
    """The sources without which the error is clearly and materially lower, the worst first.

    With many sources some change the error by chance alone, so that the more there are, the more it takes.
    """
    # Without the only source the model is a fit to the focal rows alone.
    if not can_tell(facts) or len(facts.sources) < 2:
        return []
    from scipy.stats import norm

    looked = len(with_known_effect(facts))
    found = []
    for each in facts.sources:
        low, high = each.change_low, each.change_high
        if each.change is None or low is None or high is None or each.change > -MATERIAL:
            continue
        error = (high - low) / (2 * 1.96)
        if each.change + float(norm.isf(0.025 / max(looked, 1))) * error < 0:
            found.append((each.change, each.name))
    return [name for _, name in sorted(found)][:NAMED]


def effect_of(domain: DomainFact) -> str:
    """Whether a source "helped", "hurt" or made "no difference", or focal rows "cannot tell"; "" where none is known.

    A source helped or hurt only where the 95% interval of what leaving it out changes excludes zero.

    Examples
    --------
    >>> effect_of(DomainFact("a", change=0.02, change_low=0.01, change_high=0.03)), effect_of(DomainFact("b"))
    ('helped', '')
    >>> effect_of(DomainFact("c", change=0.02, change_low=-0.01, change_high=0.05))
    'cannot tell'
    """
    if domain.change is None:
        return ""
    if abs(domain.change) <= HELP_MARGIN:
        return "no difference"
    low, high = domain.change_low, domain.change_high
    if low is not None and high is not None and low <= 0 <= high:
        return "cannot tell"
    return "helped" if domain.change > 0 else "hurt"


def can_tell(facts: Facts) -> bool:
    """Whether there are enough focal rows to say which datasets helped."""
    return facts.focal.rows >= ENOUGH_ROWS


def with_known_effect(facts: Facts) -> list[DomainFact]:
    """The sources of which it is known what leaving them out would do: of very many only those that weigh most."""
    return [d for d in facts.sources if d.change is not None or not facts.removable]


def _which_helped(facts: Facts) -> tuple[str, str]:
    """How many datasets helped, for the verdict, and a paragraph on what that counts."""
    if not can_tell(facts):
        rows = counted((facts.focal.rows, "focal row"))
        unknown = f"With fewer than {ENOUGH_ROWS} focal rows, which datasets helped is not judged: it would be chance."
        return f"{rows} cannot tell which datasets helped", unknown
    if not facts.removable:
        have = "other dataset has" if len(facts.sources) == 1 else f"{len(facts.sources):,} other datasets have"
        weight = f"the {have} {percent(facts.transferred)} of the weight"
        return weight, "What leaving out a dataset would do is not known for this model."
    effects, known = [effect_of(d) for d in facts.sources], len(with_known_effect(facts))
    found, hurt, count = effects.count("helped"), effects.count("hurt"), len(facts.sources)
    unsure = effects.count("cannot tell")
    others = {"{:,} hurt": hurt, "{:,} made no difference either way": known - hurt - found - unsure}
    others["for {:,} the focal rows cannot tell"] = unsure
    others["for {:,} of little weight this was not computed"] = count - known
    rest = ", ".join(text.format(n) for text, n in others.items() if n)
    meaning = f"A dataset helped if the error on the focal rows rises by more than {percent(HELP_MARGIN)}, and by "
    meaning += "more than chance (95% interval), when it alone is left out"
    meaning += f"; {rest}." if rest else "."
    if not found and count > 1:
        meaning += f" Together they provide {percent(facts.transferred)} of the prediction: datasets that are "
        meaning += "alike replace one another."
    which = f"{known:,} datasets" if known == count else f"the {known:,} datasets looked at"
    if count == 1:
        return f"the one other dataset {'helped' if found else 'did not clearly help'}", meaning
    if found == 0:
        if effects.count("cannot tell"):
            return f"the focal rows cannot tell which of {which} helped on its own", meaning
        return f"none of {which} {'helped' if hurt else 'matters'} on its own", meaning
    if found == known:
        return "both datasets helped" if which == "2 datasets" else f"all {which.removeprefix('the ')} helped", meaning
    names = [each.name for each, effect in zip(facts.sources, effects) if effect == "helped"]
    named = f" ({quoted(names)})" if 0 < len(names) <= NAMED else ""
    return f"{found:,} of {which} helped{named}", meaning


def _side(part: float) -> str:
    """A change in words that need no sign."""
    return f"{percent(abs(part))} {'lower' if part >= 0 else 'higher'}"

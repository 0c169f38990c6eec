"""What transfer did to the error, in sentences that are no firmer than the interval allows."""

import math
from dataclasses import dataclass

from mixtune._messages import counted, quoted
from mixtune.choice import MIXTUNE, OWN_ROWS, POOLED
from mixtune.report.facts import DomainFact, Facts
from mixtune.report.wording import number, percent

#: Leaving a dataset out that changes the left-out error by at most this part makes no difference.
HELP_MARGIN = 0.001
#: Where verdict and left-out rows differ by this part or more, the difference is explained.
CAUTION = 0.02
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


@dataclass(frozen=True)
class Verdict:
    """The sentence, its tone ("good", "bad" or "even"), paragraphs on the evidence for it, and what to do next."""

    sentence: str
    tone: str
    evidence: tuple[str, ...]
    advice: str


def give_verdict(facts: Facts) -> Verdict:
    """Judge the transfer: it clearly or probably helps or hurts, or the focal rows cannot tell.

    A change is clear if its 95% interval excludes zero, and probable if its sign has a probability of four fifths.
    """
    if not facts.sources:
        sentence = "No other datasets were given, so nothing was transferred: this is a fit to the focal rows alone"
        evidence = f"Its left-out error is {number(facts.error)}."
        return Verdict(f"{sentence}.", "even", (evidence,), "Add datasets that may resemble the focal rows.")
    known = None if facts.gain is None else facts.gain.interval
    if known is None:
        sentence = "Whether transfer helps cannot be judged: leave-one-out says nothing about these focal rows"
        return Verdict(f"{sentence}.", "even", (), "Add focal rows with known targets.")
    (reduction, low, high), grade = known, graded(*known)
    opening = f"Transfer {grade} {'helps' if reduction > 0 else 'hurts'}"
    tone, how, interval = "even", _side(reduction), f"{_side(low)} to {_side(high)}"
    if grade == "clearly":
        tone, (least, most) = "good" if low > 0 else "bad", sorted((abs(low), abs(high)))
        interval = f"{percent(least).removesuffix('%')} to {percent(most)}"
    elif abs(reduction) < 5e-4:
        how = "the same"
    if not grade:
        opening = f"{counted((facts.focal.rows, 'focal row'))} cannot tell whether transfer helps"
    helped, meaning = _which_helped(facts)
    evidence = f"{_evidence(facts)} {_against_pooling(facts)}".strip()
    # Where the rows cannot tell whether transfer helps, a dataset that helped would contradict it.
    named = can_tell(facts) and any(effect_of(each) == "helped" for each in facts.sources)
    which = "" if named and not grade else f"; {helped}"
    sentence = f"{opening}: the error is {how} (95% interval {interval}){which}."
    return Verdict(sentence, tone, (evidence, meaning), _advice(facts, *known))


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


def compared_sentence(reduction: float, low: float, high: float, rows: int, *, every: bool = False) -> str:
    """Whether mixtune is better than own rows alone, on rows that no fit has seen; of ``every`` domain, or one.

    Examples
    --------
    >>> compared_sentence(0.21, 0.04, 0.36, 25)
    'mixtune is clearly better than own rows alone: its error on unseen rows is 21% lower (95% interval 4% to 36%).'
    """
    grade, better = graded(reduction, low, high), "better" if reduction > 0 else "worse"
    opening = f"mixtune is {grade} {better} than {OWN_ROWS}"
    interval = f"{_side(low)} to {_side(high)}"
    if grade == "clearly":
        ends = sorted((abs(low), abs(high)))
        interval = f"{percent(ends[0])} to {percent(ends[1])}"
    elif not grade:
        shown = counted((rows, "row" if every else "focal row"))
        opening = f"{shown} cannot tell whether mixtune is better than {OWN_ROWS}"
    return f"{opening}: its error on unseen rows is {_side(reduction)} (95% interval {interval})."


def why_different(facts: Facts, reduction: float, low: float, high: float, *, curved: bool, classes: bool) -> str:
    """What ``fit`` says where it and a comparison on unseen rows disagree, and why they may; "" where they agree."""
    known = None if facts.gain is None else facts.gain.interval
    if known is None:
        return ""
    grades = [(graded(*each), each[0] > 0) for each in (known, (reduction, low, high))]
    if grades[0] == grades[1] or not (grades[0][0] or grades[1][0]):
        return ""
    reasons = ["fit learns from all focal rows, here each fit lacks those of one fold"]
    if facts.validation_sources:
        tests = counted((facts.validation_sources, "source"))
        reasons.append(f"it also counts how the method did on {tests} in the focal role, here only focal rows count")
    if curved:
        reasons.append(f'there "{OWN_ROWS}" may be non-linear, here it is linear in the columns')
    if classes:
        reasons.append("there the error is that of class scores, here the share of wrong classes")
    return f"mixtune fit says: {give_verdict(facts).sentence} They may differ because {'; '.join(reasons)}."


def _advice(facts: Facts, reduction: float, low: float, high: float) -> str:
    """What to do next."""
    if facts.error is None or facts.focal.rows == 1:
        unknown = f"with {counted((facts.focal.rows, 'focal row'))} " if facts.focal.rows else ""
        return f"Add focal rows before you rely on this model: {unknown}its errors and intervals are unknown."
    grade, pooled = graded(reduction, low, high), _change_from_pooling(facts)
    pool = pooled is not None and pooled[0] < 0 and graded(*pooled) == "clearly"
    alone = bool(grade) and reduction <= 0
    if warning := _against_mean(facts, POOLED if pool else OWN_ROWS if alone else MIXTUNE):
        return warning
    if pool:
        return "Use one fit to all rows pooled."
    if grade:
        first = "Use this model for new rows" if reduction > 0 else "Use a fit to the focal rows alone"
    elif facts.gain is not None and facts.gain.from_rows is None:
        first = "Use this model for new rows, and add focal rows to judge it"
    else:
        first = "Use either this model or a fit to the focal rows alone"
    hurt = [each.name for each in facts.sources if effect_of(each) == "hurt"] if can_tell(facts) else []
    # Without the only source the model is a fit to the focal rows alone.
    if 0 < len(hurt) <= min(NAMED, len(facts.sources) - 1):
        first += f". Try mixtune without {quoted(hurt)}, which hurt"
    # Intervals shrink with the root of the number of rows.
    part = (reduction - low if reduction > 0 else high - reduction) / abs(reduction) if reduction else math.inf
    if grade == "clearly" or not facts.focal.rows or not 1 < part**2 < MOST_TIMES:
        return f"{first}."
    needed = facts.focal.rows * part**2
    step = 10 ** max(math.floor(math.log10(needed)) - 1, 0)
    rows = f"about {math.ceil(needed / step) * step:,} focal rows"
    return f"{first}. If the difference stays the same, {rows} would make it clear."


def _against_mean(facts: Facts, method: str) -> str:
    """A warning if a method is hardly better than predicting the mean on the left-out rows; "" if it is, or unknown."""
    from mixtune.estimators import MEAN

    measures = {each.method: each.measures for each in facts.compared}
    mine, mean = measures.get(method), measures.get(MEAN)
    if mine is None or mean is None:
        return ""
    name, error, constant = "RMSE", mine.rmse, mean.rmse
    if mean.log_loss is not None:
        name, error, constant = "log loss", mine.log_loss, mean.log_loss
    if error is None or constant is None:
        return ""
    # The mean of the other n - 1 rows misses by n / (n - 1) times as much as the mean of all: no column has to predict
    # anything to do better by that part, a mean that is known from more rows does.
    part = 1 - 1 / facts.focal.rows if facts.focal.rows > 1 and name == "RMSE" else 1.0
    if error < (1 - HARDLY) * part * constant:
        return ""
    names = {OWN_ROWS: "a fit to the focal rows alone", POOLED: "one fit to all rows pooled"}
    how = "hardly" if error < constant else "no"
    told = f"{names.get(method, 'this model')} is {how} better than predicting the mean "
    told += f"({name} {number(error)} against {number(constant)})"
    if not can_tell(facts):
        return f"Add focal rows before you rely on this model: on the few left-out rows, {told}."
    return f"Look for other columns. These hardly predict the target: on the left-out rows, {told}."


def _change_from_pooling(facts: Facts) -> tuple[float, float, float] | None:
    """How much lower the error is than that of one fit to all rows pooled, with the 95% interval, where it is known."""
    return next((each.reduction for each in facts.compared if each.method == POOLED), None)


def _against_pooling(facts: Facts) -> str:
    """Whether the model is better than one fit to all rows pooled."""
    if (change := _change_from_pooling(facts)) is None:
        return ""
    reduction, grade = change[0], graded(*change)
    if not grade:
        rows = counted((facts.focal.rows, "focal row"))
        return f"Whether it is better than one fit to all rows pooled, {rows} cannot tell."
    if reduction < -MANY_TIMES:
        return f"Its error is {grade} more than ten times that of one fit to all rows pooled."
    which = "lower" if reduction > 0 else "higher"
    return f"Its error is {grade} {which} than that of one fit to all rows pooled, by {percent(abs(reduction))}."


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


def _evidence(facts: Facts) -> str:
    """What the change of the error was measured on."""
    rows, validation = (None, None) if facts.gain is None else (facts.gain.from_rows, facts.gain.from_validation)
    text = "There are too few focal rows to compare with a fit to them alone"
    if rows is not None:
        text = f"On the {counted((facts.focal.rows, 'focal row'))}, each predicted by a fit without it, the root mean "
        text += f"squared error is {_versus(rows)} that of a fit to the focal rows alone"
    if validation is None:
        reduction = None if facts.gain is None else facts.gain.reduction
        if rows is not None and reduction is not None and abs(rows - reduction) >= CAUTION:
            text += ". The verdict is more cautious, since these rows are few"
        return f"{text}."
    text += f"; in cross-domain validation on {counted((facts.validation_sources, 'other dataset'))} "
    if rows is None:
        return f"{text}the error was {_versus(validation)} that of such a fit on average."
    versus = _versus(validation)
    told = "it was the same on average" if versus == "the same as" else f"it was {versus} it on average"
    return f"{text}{told}. The verdict combines both."


def _versus(reduction: float) -> str:
    """How an error compares.

    Examples
    --------
    >>> _versus(0.2), _versus(-0.031), _versus(0.0), _versus(-1e9)
    ('20% below', '3.1% above', 'the same as', 'more than ten times')
    """
    if reduction < -MANY_TIMES:
        return "more than ten times"
    if abs(reduction) < 5e-4:
        return "the same as"
    return f"{percent(abs(reduction))} {'below' if reduction > 0 else 'above'}"


def _side(part: float) -> str:
    """A change in words that need no sign."""
    return f"{percent(abs(part))} {'lower' if part >= 0 else 'higher'}"

"""The page's first sentence: what transfer did to the error, said no more firmly than the interval allows."""

from __future__ import annotations

from dataclasses import dataclass

from mixtune.report.page._facts import DomainFact, Facts
from mixtune.report.page._words import count, number, percent

__all__ = ["HELP_MARGIN", "Verdict", "can_tell", "effect_of", "give_verdict", "judged"]

#: A dataset helped if leaving it out raises the left-out error by more than this part, and hurt if it lowers it so.
HELP_MARGIN = 0.001
#: With fewer focal rows, how their error changes without a dataset is mostly chance.
TELLING_ROWS = 8


@dataclass(frozen=True)
class Verdict:
    """The sentence, its tone ("good", "bad" or "even"), and what its words mean, in paragraphs."""

    sentence: str
    tone: str
    meaning: tuple[str, ...]


def give_verdict(facts: Facts) -> Verdict:
    """Judge the transfer: better, worse, no measurable change, or not to be judged.

    The change counts as measured only if its 95% interval leaves out zero.
    """
    if not facts.sources:
        return Verdict(
            "No other datasets were given, so nothing was transferred: this is a fit to the focal rows alone",
            "even",
            (f"Its left-out error is {number(facts.error)}.",),
        )
    gain, datasets = facts.gain, _datasets(facts)
    if gain is None:
        sentence = "Whether transfer helps cannot be judged: leave-one-out says nothing about these focal rows"
        return Verdict(sentence, "even", ("More focal rows with known targets are needed.",))
    if gain.low > 0:
        sentence = f"Transfer cut the error by {percent(gain.reduction)} (95% interval {_span(gain.low, gain.high)})"
        tone = "good"
    elif gain.high < 0:
        sentence = (
            f"Transfer made the error {percent(-gain.reduction)} worse (95% interval {_span(-gain.high, -gain.low)})"
        )
        tone = "bad"
    else:
        change = f"{percent(abs(gain.reduction))} {'lower' if gain.reduction >= 0 else 'higher'}"
        change = "the same" if abs(gain.reduction) < 5e-4 else change
        between = f"{_side(gain.low)} to {_side(gain.high)}"
        sentence = f"No clear difference: with transfer the error is {change} (95% interval {between})"
        tone = "even"
    return Verdict(f"{sentence}; {datasets}", tone, (_evidence(facts), _who_helped(facts)))


def effect_of(domain: DomainFact) -> str:
    """Whether a source "helped", "hurt" or made "no difference"; "" where that is not known.

    Examples
    --------
    >>> effect_of(DomainFact("a", 0.5, 10, change=0.02)), effect_of(DomainFact("b", 0.0, 10, change=0.0))
    ('helped', 'no difference')
    """
    if domain.change is None:
        return ""
    if abs(domain.change) <= HELP_MARGIN:
        return "no difference"
    return "helped" if domain.change > 0 else "hurt"


def can_tell(facts: Facts) -> bool:
    """Whether there are enough focal rows to say which datasets helped."""
    return facts.focal.rows >= TELLING_ROWS


def helped(facts: Facts) -> list[DomainFact]:
    """The sources that helped; without removals, those that weigh more than an equal share of the sources' weight."""
    if facts.removable:
        return [d for d in facts.sources if effect_of(d) == "helped"]
    total = sum(d.weight for d in facts.sources)
    return [d for d in facts.sources if d.weight > total / len(facts.sources) * (1 - 1e-9) and d.weight > 0]


def _datasets(facts: Facts) -> str:
    if not can_tell(facts):
        return f"{count(facts.focal.rows, 'focal row')} cannot tell which datasets helped"
    found, all_ = len(helped(facts)), len(judged(facts))
    if len(facts.sources) == 1:
        return "the one other dataset helped" if found else "the one other dataset did not help"
    which = f"{all_:,} datasets" if all_ == len(facts.sources) else f"the {all_:,} datasets looked at"
    if found == 0:
        hurt = any(effect_of(d) == "hurt" for d in facts.sources)
        return f"none of {which} {'helped' if hurt or not facts.removable else 'matters'} on its own"
    if found == all_:
        return "both datasets helped" if which == "2 datasets" else f"all {which.removeprefix('the ')} helped"
    return f"{found:,} of {which} helped"


def judged(facts: Facts) -> tuple[DomainFact, ...]:
    """The sources of which it is known what leaving them out would do: of very many only those that weigh most."""
    return tuple(d for d in facts.sources if d.change is not None) if facts.removable else facts.sources


def _who_helped(facts: Facts) -> str:
    """What the second number of the verdict counts."""
    if not can_tell(facts):
        return f"With fewer than {TELLING_ROWS} focal rows, which datasets helped is not judged: it would be chance."
    if not facts.removable:
        return (
            "A dataset counts as having helped if it weighs more than an equal share of the weight of all sources "
            "(what leaving it out would do is not known for this model)."
        )
    hurt = sum(effect_of(d) == "hurt" for d in facts.sources)
    known = len(judged(facts))
    rest, open_ = known - hurt - len(helped(facts)), len(facts.sources) - known
    parts = [
        f"{hurt:,} hurt" if hurt else "",
        f"{rest:,} made no difference either way" if rest else "",
        f"for {open_:,} of little weight this was not worked out" if open_ else "",
    ]
    others = " and ".join(part for part in parts if part)
    return (
        f"A dataset helped if the error on the focal rows rises by more than {percent(HELP_MARGIN)} when it alone is "
        + "left out"
        + (f"; {others}." if others else ".")
        + _together(facts)
    )


def _evidence(facts: Facts) -> str:
    """What the first number of the verdict was made from."""
    gain = facts.gain
    rows, plays = (None, None) if gain is None else (gain.from_rows, gain.from_plays)
    said = []
    if rows is not None:
        said.append(
            f"On the {count(facts.focal.rows, 'focal row')}, each predicted by a fit without it, the root mean squared "
            f"error is {_versus(rows)} that of a fit to the focal rows alone"
        )
    else:
        said.append("There are too few focal rows to compare with a fit to them alone")
    if plays is not None:
        said.append(
            f"in rehearsals with {count(facts.plays, 'other dataset')} in the focal part "
            f"{'it was' if rows is not None else 'the error was'} {_versus(plays)} "
            f"{'it' if rows is not None else 'that of such a fit'} on average"
        )
    weighed = " The verdict weighs both." if len(said) == 2 and rows is not None else ""
    return f"{'; '.join(said)}.{weighed}"


def _versus(reduction: float) -> str:
    """How an error compares.

    Examples
    --------
    >>> _versus(0.2), _versus(-0.031), _versus(0.0), _versus(-1e9)
    ('20% below', '3.1% above', 'the same as', 'more than ten times')
    """
    if reduction < -9:
        return "more than ten times"
    if abs(reduction) < 5e-4:
        return "the same as"
    return f"{percent(abs(reduction))} {'below' if reduction > 0 else 'above'}"


def _together(facts: Facts) -> str:
    """Many datasets can carry a prediction although none of them is missed."""
    if helped(facts) or len(facts.sources) < 2:
        return ""
    share = percent(sum(d.weight for d in facts.sources))
    return f" Together they provide {share} of the prediction: datasets that are alike stand in for one another."


def _span(low: float, high: float) -> str:
    return f"{percent(low).removesuffix('%')} to {percent(high)}"


def _side(part: float) -> str:
    """One end of an interval that holds zero, in words that need no sign."""
    return f"{percent(abs(part))} {'lower' if part >= 0 else 'higher'}"


def rows_sentence(facts: Facts) -> str:
    """How much data there was.

    Examples
    --------
    >>> from mixtune.report.page._words import count
    >>> count(20, "focal row")
    '20 focal rows'
    """
    rows = sum(d.rows for d in facts.sources)
    others = f", {count(rows, 'row')} in {count(len(facts.sources), 'other dataset')}" if facts.sources else ""
    return f"{count(facts.focal.rows, 'focal row')}{others}"

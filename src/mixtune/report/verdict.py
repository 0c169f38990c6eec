"""What transfer did to the error, in sentences that are no firmer than the interval allows."""

from dataclasses import dataclass

from mixtune._messages import counted
from mixtune.report.facts import DomainFact, Facts
from mixtune.report.wording import number, percent

#: A dataset helped if leaving it out raises the left-out error by more than this part, and hurt if it lowers it so.
HELP_MARGIN = 0.001
#: With fewer focal rows, how their error changes without a dataset is mostly chance.
ENOUGH_ROWS = 8


@dataclass(frozen=True)
class Verdict:
    """The sentence, its tone ("good", "bad" or "even"), and paragraphs on the evidence for it."""

    sentence: str
    tone: str
    evidence: tuple[str, ...]


def give_verdict(facts: Facts) -> Verdict:
    """Judge the transfer: better, worse, no measurable change, or not to be judged.

    The change counts as measured only if its 95% interval excludes zero.
    """
    if not facts.sources:
        sentence = "No other datasets were given, so nothing was transferred: this is a fit to the focal rows alone"
        return Verdict(f"{sentence}.", "even", (f"Its left-out error is {number(facts.error)}.",))
    gain = facts.gain
    if gain is None or gain.reduction is None or gain.low is None or gain.high is None:
        sentence = "Whether transfer helps cannot be judged: leave-one-out says nothing about these focal rows"
        return Verdict(f"{sentence}.", "even", ("More focal rows with known targets are needed.",))
    if gain.low > 0:
        tone, change = "good", f"Transfer cut the error by {percent(gain.reduction)}"
        interval = f"{percent(gain.low).removesuffix('%')} to {percent(gain.high)}"
    elif gain.high < 0:
        tone, change = "bad", f"Transfer made the error {percent(-gain.reduction)} worse"
        interval = f"{percent(-gain.high).removesuffix('%')} to {percent(-gain.low)}"
    else:
        how = "the same" if abs(gain.reduction) < 5e-4 else _side(gain.reduction)
        tone, change = "even", f"No clear difference: with transfer the error is {how}"
        interval = f"{_side(gain.low)} to {_side(gain.high)}"
    helped, meaning = _which_helped(facts)
    return Verdict(f"{change} (95% interval {interval}); {helped}.", tone, (_evidence(facts), meaning))


def effect_of(domain: DomainFact) -> str:
    """Whether a source "helped", "hurt" or made "no difference"; "" where that is not known.

    Examples
    --------
    >>> effect_of(DomainFact("a", change=0.02)), effect_of(DomainFact("b", change=0.0)), effect_of(DomainFact("c"))
    ('helped', 'no difference', '')
    """
    if domain.change is None:
        return ""
    if abs(domain.change) <= HELP_MARGIN:
        return "no difference"
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
    effects, known = [effect_of(d) for d in facts.sources], len(with_known_effect(facts))
    found, hurt, count = effects.count("helped"), effects.count("hurt"), len(facts.sources)
    if facts.removable:
        others = {"{:,} hurt": hurt, "{:,} made no difference either way": known - hurt - found}
        others["for {:,} of little weight this was not computed"] = count - known
        rest = " and ".join(text.format(n) for text, n in others.items() if n)
        meaning = f"A dataset helped if the error on the focal rows rises by more than {percent(HELP_MARGIN)} when it "
        meaning += f"alone is left out; {rest}." if rest else "alone is left out."
        if not found and count > 1:
            meaning += f" Together they provide {percent(facts.transferred)} of the prediction: datasets that are "
            meaning += "alike replace one another."
    else:
        equal = facts.transferred / count * (1 - 1e-9)
        found = sum(bool(d.weight and d.weight > equal) for d in facts.sources)
        meaning = "A dataset counts as having helped if it weighs more than an equal share of the weight of all "
        meaning += "sources (what leaving it out would do is not known for this model)."
    which = f"{known:,} datasets" if known == count else f"the {known:,} datasets looked at"
    if count == 1:
        return f"the one other dataset {'helped' if found else 'did not help'}", meaning
    if found == 0:
        return f"none of {which} {'helped' if hurt or not facts.removable else 'matters'} on its own", meaning
    if found == known:
        return "both datasets helped" if which == "2 datasets" else f"all {which.removeprefix('the ')} helped", meaning
    return f"{found:,} of {which} helped", meaning


def _evidence(facts: Facts) -> str:
    """What the change of the error was measured on."""
    rows, validation = (None, None) if facts.gain is None else (facts.gain.from_rows, facts.gain.from_validation)
    text = "There are too few focal rows to compare with a fit to them alone"
    if rows is not None:
        text = f"On the {counted((facts.focal.rows, 'focal row'))}, each predicted by a fit without it, the root mean "
        text += f"squared error is {_versus(rows)} that of a fit to the focal rows alone"
    if validation is None:
        return f"{text}."
    text += f"; in cross-domain validation on {counted((facts.validation_sources, 'other dataset'))} "
    if rows is None:
        return f"{text}the error was {_versus(validation)} that of such a fit on average."
    return f"{text}it was {_versus(validation)} it on average. The verdict combines both."


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


def _side(part: float) -> str:
    """A change in words that need no sign."""
    return f"{percent(abs(part))} {'lower' if part >= 0 else 'higher'}"

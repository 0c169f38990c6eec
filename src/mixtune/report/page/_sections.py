"""The page's sections on datasets: which count and why, how the fits compare, and what leaving one out would do."""

from __future__ import annotations

import math

from mixtune.report.page._charts import error_chart, ratio_chart, ridge_chart, trajectory_chart
from mixtune.report.page._facts import DomainFact, Facts
from mixtune.report.page._tables import SHOWN, bar, cell, diverging_bar, folded, name_cell
from mixtune.report.page._verdict import HELP_MARGIN, can_tell, effect_of, judged
from mixtune.report.page._words import column, count, escape, number, percent, percent_column

__all__ = ["comparison_section", "domain_section", "path_section", "removal_section", "section"]


def section(name: str, heading: str, *parts: str) -> str:
    """A section with a heading; empty parts vanish."""
    return f'<section id="{name}"><h2>{escape(heading)}</h2>{"".join(parts)}</section>'


def prose(text: str) -> str:
    """A paragraph of escaped text."""
    return f"<p>{escape(text)}</p>"


def domain_section(facts: Facts) -> str:
    """Weights with what speaks for them: rows, distances, and how well each dataset's own head fits the focal rows."""
    if not facts.sources:
        return ""
    known = any(d.distance is not None for d in facts.sources)
    most = max(d.weight for d in (facts.focal, *facts.sources)) or 1.0  # the longest bar
    reach = max([d.distance or 0.0 for d in facts.sources] + [facts.floor or 0.0]) or 1.0
    heads = [("dataset", ""), ("weight", "num"), ("rows", "num"), ("error of its own head", "num")]
    heads += [("distance", "num")] if known else []
    all_ = (facts.focal, *facts.sources)
    texts = zip(
        percent_column([d.weight for d in all_]),
        column([d.head_error for d in all_]),
        column([None, *(d.distance for d in facts.sources)]),
    )
    rows = [
        _domain_row(domain, facts, most, reach, known, shown, mark="focal" if place == 0 else _mark(domain, facts))
        for place, (domain, shown) in enumerate(zip(all_, texts))
    ]
    rest = facts.sources[SHOWN:]
    summary = (
        f"{count(len(rest), 'more dataset')} with {percent(math.fsum(d.weight for d in rest))} of the weight together"
    )
    return section(
        "datasets",
        "Which datasets count, and why",
        prose(_weights_sentence(facts)),
        folded(heads, rows, caption="Datasets and their weights", summary=summary, always=1),
        prose(_distance_sentence(facts)),
    )


def _domain_row(
    domain: DomainFact, facts: Facts, most: float, reach: float, known: bool, texts: tuple[str, str, str], *, mark: str
) -> str:
    own = mark == "focal"
    weight, error, distance = texts
    cells = [
        name_cell(domain.name, below="" if own else _why(domain, facts), mark=mark),
        cell(bar(domain.weight / most, weight, style="own" if own else ""), "weight"),
        cell(f"{domain.rows:,}", "rows"),
        cell(error, "error of its own head"),
    ]
    if known:
        tick = None if facts.floor is None else facts.floor / reach
        shown = distance if own else bar((domain.distance or 0.0) / reach, distance, style="far", tick=tick)
        cells.append(cell(shown, "distance"))
    return "".join(cells)


def _mark(domain: DomainFact, facts: Facts) -> str:
    """Whether the dataset helped or hurt; what makes no difference, or cannot be told, gets no mark."""
    return effect_of(domain).replace("no difference", "") if can_tell(facts) else ""


def _why(domain: DomainFact, facts: Facts) -> str:
    """What speaks for the dataset or against it, in a few words."""
    said = []
    alone = next((c.error for c in facts.compared if c.method == "focal only"), facts.error)
    # With a single focal row there is no fit to it alone to measure against.
    if domain.head_error is not None and 0 < alone < math.inf:
        ratio = domain.head_error / alone
        said.append(
            "its head misses the focal rows"
            if ratio > 1.5
            else f"its head fits the focal rows {'fairly' if ratio > 1.1 else 'well'}"
        )
    if domain.distance is not None and facts.threshold is not None and domain.distance > facts.threshold:
        said.append("beyond the threshold")
    elif domain.distance is not None and facts.floor is not None:
        said.append("rows differ" if domain.distance > facts.floor else "rows no farther than chance")
    return ", ".join(said)


def _weights_sentence(facts: Facts) -> str:
    sources = math.fsum(d.weight for d in facts.sources)
    return (
        f"The weight is the share of the prediction that a dataset provides: {percent(facts.focal.weight)} comes from "
        f"the {count(facts.focal.rows, 'focal row')}, {percent(sources)} from other datasets. The error of its own "
        "head is that of a model fitted to that dataset alone and asked about the focal rows; the focal dataset's own "
        "is asked about rows that it was fitted without."
    )


def _distance_sentence(facts: Facts) -> str:
    if all(d.distance is None for d in facts.sources):
        return "Distances between datasets were not computed for this fit."
    floor = (
        "The sampling floor is not known: it takes two focal rows."
        if facts.floor is None
        else f"The mark on each bar is the sampling floor, {number(facts.floor)}: two random halves of the focal rows "
        "are that far apart, so smaller distances say nothing."
    )
    threshold = (
        "No dataset is left out for its distance alone; some of the averaged fits use only the near ones."
        if facts.threshold is None or math.isinf(facts.threshold)
        else f"Datasets farther than the threshold, {number(facts.threshold)}, are left out."
    )
    return (
        "Distance is the Wasserstein distance of a dataset's rows to the focal rows, as a part of the largest distance "
        f"between any two rows. {floor} {threshold}"
    )


def comparison_section(facts: Facts) -> str:
    """Ours against the simpler fits."""
    compared = [c for c in facts.compared if math.isfinite(c.error)]
    if not facts.sources or len(compared) < 2 or compared[0].method != "ours":
        return ""
    text = (
        "Every fit predicts each focal row without having seen it. Focal only: ridge regression on the focal rows. "
        "All pooled: one fit to all rows as if they were one dataset. Mean of heads: the average of one fit a dataset."
    )
    charts = f'<div class="charts">{error_chart(compared)}{ratio_chart(compared)}</div>'
    return section("comparison", "Against simpler fits", prose(text), charts)


def path_section(facts: Facts) -> str:
    """The effective ridge, and the way from the start to the fit."""
    charts = (
        ridge_chart(facts.ridge, facts.candidates[0].family if facts.candidates else "") if facts.ridge else ""
    ) + (trajectory_chart(facts.trajectory) if facts.trajectory else "")
    if not charts:
        return ""
    family = f', "{facts.candidates[0].family}"' if facts.candidates else ""
    text = (
        f"Several fits are averaged (below); these charts show the one with the largest share{family}. "
        f"The average has an effective ridge of {number(facts.effective_ridge)}."
        if len(facts.candidates) > 1
        else f"The effective ridge is {number(facts.effective_ridge)}."
    )
    return section("path", "How the fit was chosen", prose(text), f'<div class="charts">{charts}</div>')


def removal_section(facts: Facts) -> str:
    """What leaving one dataset out would do."""
    if not facts.sources:
        return ""
    name, heading = "removal", "If a dataset were removed"
    if not facts.removable:
        return section(
            name,
            heading,
            prose(
                "Not known for a model that was loaded from a file: it takes the state of the fit. Fit again to see it."
            ),
        )
    known = [(d, d.change) for d in judged(facts) if d.change is not None]
    order = sorted(known, key=lambda pair: (-abs(pair[1]), pair[0].name))
    # Changes of no account must not look large only because there are no others.
    most = max([10 * HELP_MARGIN, *(abs(change) for _, change in order)])
    texts = zip(
        percent_column([change for _, change in order], signed=True),
        column([d.error_without for d, _ in order]),
        column([d.shift for d, _ in order]),
    )
    rows = [_removal_row(domain, change / most, shown) for (domain, change), shown in zip(order, texts)]
    heads = [("without", ""), ("error changes by", "num"), ("error then", "num"), ("predictions move by", "num")]
    rest = order[SHOWN:]
    least = percent(abs(rest[0][1])) if rest else ""
    summary = f"{count(len(rest), 'more dataset')}, each changing the error by at most {least}"
    text = (
        f"Each dataset is left out alone, and the rest is solved again. With all of them the left-out error is "
        f"{number(facts.error)}. "
    )
    text += (
        "A rise means that the dataset helped, a fall that it hurt; "
        f"up to {percent(HELP_MARGIN)} either way counts as no difference."
        if can_tell(facts)
        else f"On {count(facts.focal.rows, 'focal row')} such changes are mostly chance."
    )
    if left := len(facts.sources) - len(order):
        text += f" For the {count(left, 'dataset')} of little weight this was not worked out."
    caption = "What removing each dataset would change"
    return section(name, heading, prose(text), folded(heads, rows, caption=caption, summary=summary))


def _removal_row(domain: DomainFact, part: float, texts: tuple[str, str, str]) -> str:
    change, error, shift = texts
    return "".join(
        [
            name_cell(domain.name),
            cell(
                diverging_bar(part, change, faint=effect_of(domain) == "no difference"),
                "error changes by",
            ),
            cell(error, "error then"),
            cell(shift, "predictions move by"),
        ]
    )

"""What an answer reveals, in plain words, for the member that is about to send it."""

from __future__ import annotations

from collections import Counter

import numpy as np

from mixtune_federated._cells import LARGEST_OF_FEW, LARGEST_OF_ONE, concentration
from mixtune_federated._keys import Key
from mixtune_federated._messages import Message
from mixtune_federated._site import Site

#: What the arrays of an answer are; what is not here is described by its name.
ARRAYS = {
    "gram": "sums of squares and products of the features and the constant, the number of rows among them",
    "cross": "sums of products of the features with the target",
    "square": "the sum of squares of the target",
    "shift": "means of the features",
    "level": "the mean of the target",
    "squares": "mean products of the candidates' residuals",
    "clipped": "mean products of residuals, outliers clipped",
    "left": "mean products of residuals, each row left out",
    "finite": "which candidates can do without each row",
    "own_digest": "a hash of the own mask",
    "masked": "sums under masks: random numbers to whoever lacks one of the masks, a total to the coordinator",
    "public": "two public keys for masks",
    "signature": "its signature",
    "boxes": "shares of a key, each sealed to another member",
    "own_boxes": "shares of a mask, each sealed to another member",
    "shares": "shares of the keys of members that are gone, and of the own masks of those that took part",
}


#: What follows from an answer, by the question.
MEANINGS = {
    "moments": "from this follow means, spreads and correlations of all columns and the target, and a regression",
    "ranks": "from this follow the spread of the rows and of the target",
    "parts": "from this follows the same for the drawn rows",
    "plays": "from this follows how well candidates predict these rows; forged candidates could tell about single rows",
    "keys": "with a score, from this follows how well the own model fits the focal rows",
    "sums": "from this follows the total over all members, and nothing about this one while enough of them are honest",
    "shares": "from this follow masks of members that are gone, or that took part, never both of one member",
    "terms": "from this follows a total over all members' models",
    "trials": "from this follows a total over all members' validation tasks",
}


def audit(message: Message, key: Key, site: Site | None = None) -> list[str]:
    """What an answer says that this key made, who reads it, and with the rows, how few people that is about."""
    values, arrays = message.reopened(key)
    readers, sizes = ", ".join(message.header["recipients"]), Counter[str]()
    told = {name: value for name, value in values.items() if name != "transcript"}
    lines = [f"{readers} reads {name} = {value}" for name, value in told.items()]
    for name, array in arrays.items():
        known = [part for part in name.split(".") if part in ARRAYS]
        sizes[ARRAYS[known[0]] if known else name.split(".")[0]] += np.size(array)
    lines += [f"{readers} reads {what}: {size:,} number{'s' * (size > 1)}" for what, size in sizes.items()]
    lines += [
        MEANINGS[message.public["answers"]],
        "nobody else reads any of this; a relay sees the header and the size",
    ]
    return [*lines, *([] if site is None else about_people(site))]


def about_people(site: Site) -> list[str]:
    """How few people sums over the rows of a member are about."""
    people, policy, inputs = site.people, site.policy, site.inputs
    counted = "rows" if people.whole else "people, by the identifier"
    lines = [f"the sums are over {len(people.marks)} {counted}"]
    columns = np.column_stack([inputs.X, inputs.y, np.ones(len(inputs.y))])
    for most, limit in ((1, LARGEST_OF_ONE), (max(policy.least_cell - 1, 1), LARGEST_OF_FEW)):
        # People who have less than half of it are not looked for.
        share = max(concentration(columns, people.places, most)[0], 0.5)
        who = "1 person makes" if most == 1 else f"{most} people make"
        lines.append(f"{who} up at most {share:.0%} of any combination of columns; more than {limit:.0%} is refused")
    if site.study.features.width:
        features = np.column_stack([site.rows.X, np.ones(len(inputs.y))])
        basis = np.linalg.svd(features, full_matrices=False)[0]
        alone = int(np.sum(np.sum(basis**2, axis=1) > LARGEST_OF_ONE))
        lines.append(f"random features nearly single out {alone} rows, whose targets a reader of the sums can compute")
    with site.ledger.locked():
        before = site.ledger.shared(people)
    lines.append(f"the ledger has {len(before)} earlier answers that are, or may be, about some of them")
    if site.study.level == 3:
        left = policy.largest_epsilon - site.ledger.spent(people)
        lines.append(f"each of them has at least {left:g} of an epsilon of {policy.largest_epsilon:g} left")
    return lines

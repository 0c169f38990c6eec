"""Tables 1 and 2 as LaTeX in the paper's layout: method, RP and its 95% interval, for ``\\input`` in a document."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mixtune_paper.american import DISSIMILAR, SHORT_ROWS, SIMILAR, TABLE_1, TABLE_2

Line = Mapping[str, Any]
#: Rows that the paper sets apart below a line: methods with more paths than there are.
ORACLES = ("LO-1 (700 paths)", "LO-1 (50000 paths)")
#: Rows in bold.
BOLD = ("RO (eta=100)",)


def latex_tables(experiment: str, lines: Sequence[Line]) -> dict[str, str]:
    """By file name, the tables of an experiment: "table1" has the paper's Table 2 and Table 1 (a), "table2" its (b)."""
    by_method = {line["method"]: line for line in lines}
    if any(line["ci_low"] is None for line in by_method.values()):
        return {}  # a single run has no intervals
    if experiment == "table2":
        return {"table2": _tabular([_row(by_method[name]) for name in TABLE_2 if name in by_method])}
    rows = [_row(by_method[name]) for name in TABLE_1 if name in by_method and name not in ORACLES]
    oracles = [_row(by_method[name]) for name in ORACLES if name in by_method]
    short = []
    for name in SHORT_ROWS:
        if name in by_method and name not in ORACLES:
            short.append(_row(by_method[name]))
        if name == "LO-1":
            short += [_range(by_method, methods, sign) for methods, sign in ((SIMILAR, ">="), (DISSIMILAR, "<="))]
    return {"table1": _tabular(rows, oracles), "table1_compressed": _tabular(short, oracles)}


def _row(line: Line) -> str:
    cells = [_name(line["method"]), f"{line['rp']:.3f}", f"$[{line['ci_low']:.3f}; {line['ci_high']:.3f}]$"]
    if line["method"] in BOLD:
        cells = [rf"\textbf{{{cell}}}" for cell in cells]
        cells[2] = rf"$\mathbf{{[{line['ci_low']:.3f}; {line['ci_high']:.3f}]}}$"
    return " & ".join(cells) + r" \\"


def _range(by_method: Mapping[str, Line], methods: Sequence[str], sign: str) -> str:
    """Several rows as one: the least or largest RP, and the ends of all intervals."""
    lines = [by_method[name] for name in methods if name in by_method]
    worst = (min if sign == ">=" else max)(line["rp"] for line in lines)
    low, high = min(line["ci_low"] for line in lines), max(line["ci_high"] for line in lines)
    relation = r"\geq" if sign == ">=" else r"\leq"
    name = rf"{methods[0]}, $\dotsc$, {methods[-1]}"
    return rf"{name} & ${relation} {worst:.3f}$ & $[\geq {low:.3f}; \leq {high:.3f}]$ \\"


def _name(method: str) -> str:
    r"""As the paper writes it: RO ($\eta=100$), JSO-$\{1,\dotsc,7\}$, LO-1 (50K tr. samp.)."""
    if method == "JSO-{1..7}":
        return r"JSO-$\{1,\dotsc,7\}$"
    if found := re.fullmatch(r"LO-1 \((\d+) paths\)", method):
        paths = int(found[1])
        return f"LO-1 ({f'{paths // 1000}K' if paths % 1000 == 0 else paths} tr. samp.)"
    return re.sub(r"\(eta=(\d+)\)", r"($\\eta=\1$)", method)


def _tabular(*blocks: Sequence[str]) -> str:
    inner = "\n\\midrule\n".join("\n".join(block) for block in blocks if block)
    return (
        "% booktabs is needed.\n\\begin{tabular}{@{}ccc@{}}\n\\toprule\n"
        f"method & $RP$ & $95\\%$-CI \\\\\n\\midrule\n{inner}\n\\bottomrule\n\\end{{tabular}}\n"
    )

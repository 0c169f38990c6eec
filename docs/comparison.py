"""Put results of `python -m benchmarks transfer --out cases.csv` on the page: python -m docs.comparison [cases.csv ...]

Replaces the text between `<!-- NAME -->` and `<!-- end NAME -->`. Given files are first kept, without what the page
does not need, in docs/results/transfer.csv, and cases of the problems of `--problem known` in docs/results/known.csv:
there they replace what the same methods gave before, and the rest stays. So methods that need environments of their own
can be run one after the other.
"""

from __future__ import annotations

import csv
import math
import re
import statistics
import sys
from pathlib import Path

from benchmarks.transfer import (
    CLASSES,
    OURS,
    TABLES,
    YARDSTICK,
    Result,
    Summary,
    geometric_mean,
    known_methods,
    summarise,
)

PAGE = Path(__file__).with_name("comparison.md")
RESULTS = Path(__file__).parent / "results" / "transfer.csv"
KNOWN = RESULTS.with_name("known.csv")
COLUMNS = ("problem", "variant", "focal", "seed", "method", "rmse", "seconds", "n_test", "covered")
KNOWN_COLUMNS = (*COLUMNS, "n_train")
PROBLEMS, VARIANTS = ("exam", "ames", "vader"), ("clean", "flip")
TITLES = {method.name: method.title for method in known_methods()}
#: mixtune again, with other settings: in the tables, but none of the other methods.
LINEAR = "linear"


def keep(given: Path) -> None:
    """Keep single cases, rounded, in place of those of the same problem, variant and method."""
    rows = _rows(given)
    for row in rows:
        row["rmse"] = f"{float(row['rmse']):.6g}" if row["rmse"] else ""
        row["seconds"] = f"{float(row['seconds']):.3g}"
        if row["problem"] not in TABLES:  # the problem says how many focal rows there are
            row.pop("n_train", None)
    _replace(RESULTS, [row for row in rows if row["problem"] not in TABLES], COLUMNS)
    _replace(KNOWN, [row for row in rows if row["problem"] in TABLES and row["problem"] not in CLASSES], KNOWN_COLUMNS)


def _replace(path: Path, rows: list[dict[str, str]], columns: tuple[str, ...]) -> None:
    if not rows:
        return
    before = _rows(path) if path.exists() else []
    again = {(row["problem"], row["variant"], row["method"]) for row in rows}
    found = [row for row in before if (row["problem"], row["variant"], row["method"]) not in again] + rows
    cases = {case: place for place, case in enumerate(dict.fromkeys(map(_case, [*before, *rows])))}
    found.sort(key=lambda row: (cases[_case(row)], list(TITLES).index(row["method"])))
    with path.open("w", newline="") as target:
        writer = csv.DictWriter(target, columns, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(found)


def read(path: Path | None = None) -> list[Result]:
    """The kept cases, as the benchmark gave them; those of the three problems without a path."""
    rows = _rows(path or RESULTS)
    base = {_case(row): float(row["rmse"]) for row in rows if row["method"] == YARDSTICK}
    return [
        Result(
            row["problem"],
            row["variant"],
            row["focal"],
            int(row["seed"]),
            row["method"],
            TITLES[row["method"]],
            float(row["rmse"]) if row["rmse"] else None,
            base[_case(row)],
            float(row["seconds"]),
            int(row["n_test"]),
            int(row["covered"]) if row["covered"] else None,
            None if row["rmse"] else "failed",
            int(row["n_train"]) if row.get("n_train") else None,
        )
        for row in rows
    ]


def behind(results: list[Result], problem: str, variant: str, method: str) -> str:
    """How much larger the relative error is than ours, with its standard error over the cases."""
    rows = [result for result in results if (result.problem, result.variant) == (problem, variant)]
    ours = {(row.focal, row.seed): row.rmse for row in rows if row.method == OURS}
    theirs = {(row.focal, row.seed): row.rmse for row in rows if row.method == method}
    if method == OURS or None in theirs.values():
        return ""
    apart = [theirs[case] - ours[case] for case in ours]
    unit = statistics.fmean(row.yardstick for row in rows if row.method == OURS)
    error = statistics.stdev(apart) / math.sqrt(len(apart))
    return f"<br><small>{statistics.fmean(apart) / unit:+.3f} ± {error / unit:.3f}</small>"


def problem_table(results: list[Result], problem: str) -> str:
    """One line a method: relative errors, distances to ours, the worst case, the time."""
    found = {(s.method, s.variant): s for s in summarise(results) if s.problem == problem}
    lines = ["| method | clean | flip | worst case | s per fit |", "|---|---|---|---|---|"]
    for method in dict.fromkeys(name for name, _ in found):
        both = [found[method, variant] for variant in VARIANTS]
        errors = [
            _bold(s, [other for other in found.values() if other.variant == s.variant])
            + behind(results, problem, s.variant, method)
            for s in both
        ]
        worst = "failed" if any(s.worst_ratio is None for s in both) else f"{max(s.worst_ratio for s in both):.2f}"
        time = f"{statistics.fmean(s.seconds for s in both):.2f}"
        lines.append("| " + " | ".join((both[0].title, *errors, worst, time)) + " |")
    return "\n".join(lines)


def standing(results: list[Result]) -> str:
    """Where ours stands: the best other method of every problem and variant."""
    lines = ["| | mixtune | best of the others | which |", "|---|---|---|---|"]
    for problem in PROBLEMS:
        for variant in VARIANTS:
            rows = [s for s in summarise(results) if (s.problem, s.variant) == (problem, variant)]
            ours = next(s for s in rows if s.method == OURS)
            others = [s for s in rows if s.method not in (OURS, LINEAR) and not s.failures]
            best = min(others, key=lambda s: s.relative_rmse)
            first, second = _bold(ours, [ours, best]), _bold(best, [ours, best])
            lines.append(f"| {problem}, {variant} | {first} | {second} | {best.title} |")
    return "\n".join(lines)


def coverage(results: list[Result]) -> str:
    """What share of the test rows our 90% intervals cover."""
    ours = {(s.problem, s.variant): s.coverage for s in summarise(results) if s.method == OURS}
    lines = ["| | clean | flip |", "|---|---|---|"]
    for problem in PROBLEMS:
        lines.append("| " + " | ".join((problem, *(f"{ours[problem, v]:.1%}" for v in VARIANTS))) + " |")
    return "\n".join(lines)


def known_table(known: list[Result]) -> str:
    """One line a method: geometric means over many problems, for every variant and number of focal rows."""
    columns = sorted({(result.variant, result.n_train or 0) for result in known})
    titles = (f"{variant}, {count} rows" for variant, count in columns)
    lines = ["| " + " | ".join(("method", *titles, "worst case")) + " |", "|---" * (len(columns) + 2) + "|"]
    own = {name: [result for result in known if result.method == name] for name in TITLES}
    own = {name: rows for name, rows in own.items() if rows}

    def mean(rows: list[Result], column: tuple[str, int]) -> str:
        found = geometric_mean([row for row in rows if (row.variant, row.n_train) == column])
        return "failed" if found is None else f"{found:.3f}"

    least = {column: min(mean(rows, column) for rows in own.values()) for column in columns}
    for name, rows in own.items():
        means = {column: mean(rows, column) for column in columns}
        cells = [f"**{text}**" if text == least[column] else text for column, text in means.items()]
        ratios = [row.ratio for row in rows]
        worst = "failed" if None in ratios else f"{max(ratios):.2f}"
        lines.append("| " + " | ".join((TITLES[name], *cells, worst)) + " |")
    return "\n".join(lines)


def fill(text: str, results: list[Result], known: list[Result]) -> str:
    """Write what belongs between the markers of the page."""
    parts = {problem: problem_table(results, problem) for problem in PROBLEMS}
    parts |= {"standing": standing(results), "coverage": coverage(results), "known": known_table(known)}
    for name, part in parts.items():
        block = f"<!-- {name} -->\n\n{part}\n\n<!-- end {name} -->"
        text, count = re.subn(f"<!-- {name} -->.*?<!-- end {name} -->", lambda _, b=block: b, text, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"{PAGE.name} must have the markers of {name} once; it has them {count} times")
    return text


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _case(row: dict[str, str]) -> tuple[str, ...]:
    return tuple(row.get(key, "") for key in ("problem", "variant", "focal", "seed", "n_train"))


def _bold(summary: Summary, rivals: list[Summary]) -> str:
    """The relative error with three decimals, bold where none of the rivals has a smaller one."""
    if summary.relative_rmse is None:
        return "failed"
    text = f"{summary.relative_rmse:.3f}"
    least = min(f"{rival.relative_rmse:.3f}" for rival in rivals if rival.relative_rmse is not None)
    return f"**{text}**" if text <= least else text


def main(arguments: list[str]) -> None:
    """Keep the cases that are given, and write the page."""
    for path in arguments:
        keep(Path(path))
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), read(), read(KNOWN)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

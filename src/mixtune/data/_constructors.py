"""The ways into :class:`mixtune.data.Domains`: from arrays, labelled rows, tables and files.

Each reads and checks what it is given, cuts it into one domain a label or a file, and names the focal one.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from mixtune.data._domain import Domain, check_pair
from mixtune.data._grouping import label_codes, split_by_label
from mixtune.data._members import members_of_files, members_of_table
from mixtune.data._readers import CsvFormat, as_paths, read_table
from mixtune.data._sample_domain import rows_by_label
from mixtune.data._tables import as_table
from mixtune.errors import DataError, ParameterError

__all__ = ["Constructors"]


class Constructors:
    """Named datasets with one focal, from whatever they come in."""

    if TYPE_CHECKING:

        def __init__(self, members: tuple[Domain, ...], *, focal: str) -> None: ...

    @classmethod
    def from_dict(cls, data: Mapping[str, tuple[Any, Any]], *, focal: str) -> Self:
        """Build from ``{name: (X, y)}``.

        Examples
        --------
        >>> from mixtune.data import Domains
        >>> Domains.from_dict({"a": ([[0.0], [1.0]], [0, 1]), "b": ([[2.0]], [2])}, focal="a").names
        ('a', 'b')
        """
        for name, pair in data.items():
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise DataError(f'domain "{name}" must come as a pair (X, y)')
        return cls(tuple(Domain(str(name), X, y) for name, (X, y) in data.items()), focal=focal)

    @classmethod
    def from_arrays(cls, X: Any, y: Any, *, labels: Any, focal: Hashable) -> Self:
        """Build from one array of all rows and a label per row, in the order in which labels first appear.

        Parameters
        ----------
        X, y
            All rows, as for :class:`Domain`.
        labels
            One label per row, of any hashable kind; written as text, they are the names. None may be missing.
            Space around texts does not count: "x" and "x " are one domain.
        focal
            Label of the focal domain.

        Examples
        --------
        >>> from mixtune.data import Domains
        >>> domains = Domains.from_arrays([[1.0], [2.0], [3.0]], [1, 2, 3], labels=[7, 5, 7], focal=7)
        >>> domains.names, domains["7"].y
        (('7', '5'), array([1., 3.]))
        """
        X, y, columns = check_pair(X, y, "", columns=None, copy=False)
        codes, names, focal = label_codes(labels, focal, "labels", n_rows=X.shape[0])
        return cls(split_by_label(X, y, columns, codes, names), focal=focal)

    @classmethod
    def from_sample_domain(cls, X: Any, y: Any, sample_domain: Any, *, focal: int | None = None) -> Self:
        """Build from one array of all rows by skada's convention: positive labels are sources, negative ones targets.

        Parameters
        ----------
        X, y
            All rows, as for :class:`Domain`.
        sample_domain
            One whole number per row. Rows of the target whose ``y`` is NaN (skada masks them) are left out: only
            labelled rows can be learnt from.
        focal
            The negative label of the focal domain, where there are several targets; rows of the others are left out.

        Examples
        --------
        >>> from mixtune.data import Domains
        >>> domains = Domains.from_sample_domain([[1.0], [2.0], [3.0]], [1.0, 2.0, float("nan")], [1, -2, -2])
        >>> domains.names, domains.focal, domains["-2"].y
        (('1', '-2'), '-2', array([2.]))
        """
        X, y, columns = check_pair(X, y, "", columns=None, copy=False)
        rows = rows_by_label(y, sample_domain, focal)
        own = {**rows.sources, rows.focal: rows.focal_rows}
        return cls(tuple(Domain(name, X[kept], y[kept], columns) for name, kept in own.items()), focal=rows.focal)

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        target: str | Sequence[str],
        domain: str,
        focal: Hashable,
        columns: str | Sequence[str] | None = None,
    ) -> Self:
        """Build from a table with a column that names the domains.

        Parameters
        ----------
        table
            A pandas or polars frame, a pyarrow table or a dict of columns.
        target
            The column to predict, or several.
        domain
            The column of domain labels; space around texts does not count.
        focal
            Label of the focal domain.
        columns
            The input columns; all the others by default.

        Examples
        --------
        >>> from mixtune.data import Domains
        >>> table = {"school": ["n", "s", "n"], "size": [1, 2, 3], "score": [0.1, 0.2, 0.3]}
        >>> Domains.from_table(table, target="score", domain="school", focal="n")["n"].X
        array([[1.],
               [3.]])
        """
        members, name = members_of_table(
            as_table(table, "the table"),
            target=target,
            domain=domain,
            focal=focal,
            columns=columns,
            where="the table",
        )
        return cls(members, focal=name)

    @classmethod
    def from_files(
        cls,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        target: str | Sequence[str],
        focal: str | None = None,
        domain: str | None = None,
        columns: str | Sequence[str] | None = None,
        encoding: str = "utf-8",
        separator: str | None = None,
        decimal: str = ".",
    ) -> Self:
        """Build from CSV or Parquet files: one file with a domain column, or one file a domain.

        Parameters
        ----------
        paths
            The file, or the files; without ``domain`` each is one domain, named after its file. CSV may be
            compressed (.csv.gz).
        target
            The column to predict, or several.
        focal
            Name of the focal domain; the first file by default. With ``domain`` it must be given.
        domain
            The column of domain labels, if all domains are in one file; space around texts does not count.
        columns
            The input columns; all the others by default, which must then be the same in every file.
        encoding, separator, decimal
            How CSV files are written: the text encoding, such as "latin-1"; the character between columns, by
            default a comma, and a tab for .tsv; and "." or "," before the decimals. Parquet needs none of them.

        Examples
        --------
        >>> from mixtune.data import Domains
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     files = [Path(folder, "north.csv"), Path(folder, "south.csv")]
        ...     _ = files[0].write_text("size,price\\n1,10\\n2,20\\n")
        ...     _ = files[1].write_text("price,size\\n30,3\\n")
        ...     Domains.from_files(files, target="price")["south"].X
        array([[3.]])
        """
        files = as_paths(paths)
        form = CsvFormat(encoding, separator, decimal)
        if domain is None:
            members = members_of_files(files, target=target, columns=columns, form=form)
            return cls(members, focal=members[0].name if focal is None else focal)
        if len(files) > 1:
            raise ParameterError(
                f'domain="{domain}" goes with one file, {len(files)} are given; drop domain or join the files'
            )
        if focal is None:
            raise ParameterError("focal is not given; name the focal domain, or use one file a domain")
        members, name = members_of_table(
            read_table(files[0], form, text=[domain]),
            target=target,
            domain=domain,
            focal=focal,
            columns=columns,
            where=f'"{files[0]}"',
        )
        return cls(members, focal=name)

"""What a distance computation hands back: a number, the bounds it is known within, and what the number is."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Diameter", "TransportDistance"]


@dataclass(frozen=True)
class TransportDistance:
    """A distance between two samples, with what is known about its error.

    Attributes
    ----------
    value
        The distance. For ``"bracket"`` the midpoint of the bounds.
    lower, upper
        Bounds on the quantity that `method` names. Rigorous up to rounding when `certified`; otherwise a 95 %
        Monte Carlo interval.
    method
        ``"exact"``, ``"line"`` and ``"bracket"`` are the Wasserstein-1 distance, by network simplex, by the closed
        form on the line, and between two bounds. ``"screened"`` is a lower bound on it that settled the question: it
        exceeds the limit asked about, and `upper` is infinite. ``"sliced"`` is the sliced Wasserstein-1 distance,
        another quantity.
    certified
        Whether `lower` and `upper` are proven bounds.
    rows
        The numbers of rows of the two samples.

    Examples
    --------
    >>> found = TransportDistance(value=1.5, lower=1.0, upper=2.0, method="bracket", certified=True, rows=(10, 20))
    >>> found.gap, float(found)
    (1.0, 1.5)
    """

    value: float
    lower: float
    upper: float
    method: str
    certified: bool
    rows: tuple[int, int]

    @property
    def gap(self) -> float:
        """The width of the interval, ``upper - lower``."""
        return self.upper - self.lower

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True)
class Diameter:
    """The Euclidean diameter of a set of points, or an upper bound on it.

    Attributes
    ----------
    value
        The largest distance between two points, or a number that is at least as large.
    exact
        Whether `value` is the diameter itself (up to rounding).
    """

    value: float
    exact: bool

    def __float__(self) -> float:
        return self.value

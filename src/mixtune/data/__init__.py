"""Data in: named domains, one of them focal, from arrays, tables and files; and synthetic ones to try."""

from mixtune.data._domain import Domain
from mixtune.data._domains import Domains
from mixtune.data.synthetic import SyntheticProblem, make_domains

__all__ = ["Domain", "Domains", "SyntheticProblem", "make_domains"]

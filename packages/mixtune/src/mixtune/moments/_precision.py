"""Moments from narrow products: float32, TF32, or float64's accuracy out of float32 units.

Most of the work on moments is the product U'U. Server chips multiply float64 as fast as float32, or have tensor cores
for it; most other chips are 30 to 60 times slower in float64 than in float32. There the product is formed in float32
by runs of rows and added up in float64, so that its error does not grow with the rows:

``"float32"``
    Rows and products are rounded to float32.
``"tf32"``
    The same on the TF32 units of a CUDA device, which round rows to 11 bits. Only where asked for by name.
``"split"``
    Each row is cut into slices of 8 bits, all of them whole numbers of at most 128. A product of two slices over 1024
    rows is a whole number of at most 2^24, which float32 (and TF32) holds without error, in any order of summation.
    Twelve such products give 47 bits of the result: nothing is rounded before the sums in float64.

The error of an entry of U'U, as a share of ``|u_i| |u_j|`` (measured; docs/numerics.md): 2e-7 in float32, 2e-5 in TF32,
2e-14 with slices, or 1e-12 where columns have heavy tails: slices count from the largest entry of each 1024 rows. The
coefficients feel that error times the condition number of the regularised problem.
"""

import array_api_compat

from mixtune.arrays import EPSILON, Array, as_float64, column_gram, has_tf32, namespace, slices, tf32_products
from mixtune.errors import ParameterError

PRECISIONS = ("float64", "float32", "tf32", "split")

#: Rows multiplied in float32 before their products are added in float64; 128^2 times as many is 2^24.
RUN = 1024
FIRST, NEXT, SLICES = 2.0**7, 2.0**8, 6
#: What rounding leaves of a direction that is not there, as a share of the strongest.
NOISE = {"float64": 0.0, "float32": 2.0**-24, "tf32": 2.0**-12, "split": 0.0}


def rounding(gram: Array, precision: str) -> float:
    """The largest diagonal whose rounding in float64 would be as strong as that of products in the given precision."""
    xp = namespace(gram)
    return float(xp.max(xp.linalg.diagonal(gram))) * NOISE[precision] / (EPSILON * int(gram.shape[0]))


def narrow_gram(rows: Array, *, precision: str) -> Array:
    """``X'X`` in float64, from products in the given precision.

    Examples
    --------
    >>> import numpy as np
    >>> narrow_gram(np.array([[1.0, 2.0], [0.5, 1e-9]]), precision="split")
    array([[1.25, 2.  ],
           [2.  , 4.  ]])
    """
    if precision == "float64":
        return column_gram(as_float64(rows, what="rows"))
    if precision == "tf32" and not has_tf32(rows):
        remedy = """use "float32", or "split" for float64's accuracy"""
        raise ParameterError(f'precision="tf32" needs PyTorch tensors on a CUDA device; {remedy}')
    xp = namespace(rows)
    multiply = _split_product if precision == "split" else _rounded_product
    gram = xp.zeros((rows.shape[1],) * 2, dtype=xp.float64, device=array_api_compat.device(rows))
    # More than 1024 rows at a time where the sum of their products would cost as much as they do.
    step = RUN if precision == "split" else max(RUN, int(rows.shape[1]))
    with tf32_products(rows, precision != "float32"):  # to slices they make no difference but speed
        for part in slices(int(rows.shape[0]), step):
            gram += multiply(rows[part])
    return gram


def _rounded_product(rows: Array) -> Array:
    xp = namespace(rows)
    narrow = xp.astype(rows, xp.float32, copy=False)
    return narrow.T @ narrow


def _split_product(rows: Array) -> Array:
    """The product of at most 1024 rows without rounding, but for what lies below the last slice."""
    xp = namespace(rows)
    rows = as_float64(rows, what="rows")
    largest = xp.max(xp.abs(rows), axis=0)
    scale = xp.where(largest > 0, largest, xp.ones_like(largest))
    slices = _slices(rows / scale)
    same = xp.zeros((rows.shape[1],) * 2, dtype=xp.float64, device=array_api_compat.device(rows))
    mixed = xp.zeros_like(same)
    for i, left in enumerate(slices):
        for j, right in enumerate(slices[i : SLICES - i], start=i):  # later pairs lie below the last slice
            product = xp.astype(left.T @ right, xp.float64)
            product *= FIRST**-2 * NEXT ** -(i + j)
            if i == j:
                same += product
            else:
                mixed += product
    return (same + (mixed + mixed.T)) * (scale[:, None] * scale)


def _slices(rows: Array) -> list[Array]:
    """Whole numbers q with ``rows = q_0 / 2^7 + q_1 / 2^15 + ...``, none beyond 128, for rows in [-1, 1]."""
    xp = namespace(rows)
    found, rest = [], rows * FIRST
    for _ in range(SLICES):
        whole = xp.round(rest)
        found.append(xp.astype(whole, xp.float32))
        rest = (rest - whole) * NEXT
    return found

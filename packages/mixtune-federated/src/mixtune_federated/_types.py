"""Types of arrays in annotations."""

from typing import Any, TypeAlias

import numpy as np

Arrays: TypeAlias = dict[str, np.ndarray[Any, Any]]
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Integers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

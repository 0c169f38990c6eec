"""Types of arrays, and of the content of messages, in annotations."""

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Arrays: TypeAlias = dict[str, np.ndarray[Any, Any]]
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Integers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
#: Values by name, as JSON has them; and with arrays, what is sealed in a message.
Values: TypeAlias = dict[str, Any]
Content: TypeAlias = tuple[Values, Arrays]
File: TypeAlias = str | Path

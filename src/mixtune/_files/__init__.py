"""Files that are whole or not there, and the one file a fitted model is saved in.

A model file is a safetensors file: a JSON header, then the arrays as plain bytes. The header also carries a JSON
description of the model (the spec), the version of the format, and a SHA-256 over the whole file. So any tool that
reads safetensors can look inside, no byte can change unnoticed, and reading never runs anything that the file says.
"""

from mixtune._files._atomic import check_place, write_atomically
from mixtune._files._model import DTYPES, FORMAT_VERSION, array_digest, read_model, write_model

__all__ = ["DTYPES", "FORMAT_VERSION", "array_digest", "check_place", "read_model", "write_atomically", "write_model"]

"""A script that computes on a local Dask cluster without a guard: one clear error."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("distributed")

SCRIPT = """
import dask.dataframe as dd
import pandas as pd
from mixtune import StreamedSources

frame = pd.DataFrame({"x": range(40), "y": range(40), "site": ["a", "b"] * 20})
stream = StreamedSources(dd.from_pandas(frame, npartitions=2), target="y", domain="site")
print(len(stream.samples()))
"""


def test_a_script_without_a_guard_says_what_to_do(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=120)
    assert done.returncode
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("mixtune.errors.ParameterError: ")
    assert 'put what the script does under if __name__ == "__main__":' in last

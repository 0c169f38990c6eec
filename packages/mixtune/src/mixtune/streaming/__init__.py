"""Data larger than memory: blocks from files, mapped arrays and Dask collections into moments and uniform samples.

The same blocks are folded by the same functions on this machine (``stream_moments``, ``stream_samples``) and on a Dask
cluster (``gather_moments``, ``gather_samples``); Dask is imported when a cluster is asked for.
"""

from mixtune.streaming._dask import Cluster, run_tasks
from mixtune.streaming._moments import DEFAULT_LIMIT, StreamFeatures, gather_moments, stream_moments
from mixtune.streaming._stream import dask_module, open_stream
from mixtune.streaming._streamed_sources import StreamedSources, gather_samples, stream_samples

__all__ = ["DEFAULT_LIMIT", "Cluster", "StreamFeatures", "StreamedSources", "dask_module", "gather_moments"]
__all__ += ["gather_samples", "open_stream", "run_tasks", "stream_moments", "stream_samples"]

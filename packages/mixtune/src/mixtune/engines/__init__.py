"""Deprecated: the Dask engine is part of :mod:`mixtune.streaming`."""

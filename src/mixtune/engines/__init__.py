"""The same moments, gathered elsewhere: on a Dask cluster.

Each engine is a module of its own and is imported by name, so that nobody needs the libraries of the others.
"""

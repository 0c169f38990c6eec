"""The same work on several things, in threads: many matrices of some hundred columns keep cores busier one on each.

Linear algebra on two threads spends much of its time on these meeting each other when matrices are of this size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

__all__ = ["in_threads"]

T = TypeVar("T")
R = TypeVar("R")

#: Narrower matrices take less time than threads need to take turns at Python; one thread of linear algebra is best.
LEAST_WIDTH = 400

_lock = Lock()


def in_threads(function: Callable[[T], R], things: Sequence[T], *, width: int) -> list[R]:
    """``[function(thing) for thing in things]``, in as many threads as linear algebra may have, each with one of them.

    Examples
    --------
    >>> in_threads(lambda k: k**2, [1, 2, 3], width=500)
    [1, 4, 9]
    """
    threads = _allowed() if len(things) > 1 else 1
    if threads == 1:
        return [function(thing) for thing in things]
    with _one_thread_each():
        if width < LEAST_WIDTH:
            return [function(thing) for thing in things]
        with ThreadPoolExecutor(min(threads, len(things))) as pool:
            return list(pool.map(function, things))


@cache
def _blas() -> Any:
    """The libraries of linear algebra; finding them takes milliseconds, asking them nothing."""
    return ThreadpoolController().select(user_api="blas")


def _allowed() -> int:
    """How many threads linear algebra may have: what the environment, or whoever calls this, has set."""
    return max((library["num_threads"] for library in _blas().info()), default=1)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """One thread of linear algebra, unless another thread of Python has seen to that and will set it back.

    Whoever sets the number must be the one to set it back; a second user may have it rise while at work.
    """
    if not _lock.acquire(blocking=False):
        yield
        return
    try:
        with _blas().limit(limits=1):
            yield
    finally:
        _lock.release()

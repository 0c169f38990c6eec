"""Work in threads is the same work, and linear algebra has its threads back afterwards."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Thread, get_ident
from time import sleep

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from choice.tasks import make_task
from mixtune import arrays
from mixtune.arrays import in_threads
from mixtune.choice import choose


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.fixture
def two_threads():
    with threadpool_limits(limits=2, user_api="blas"):
        yield


def test_results_come_in_order_with_one_thread_of_linear_algebra_each(two_threads):
    def work(k):
        return k, max(blas_threads())

    assert in_threads(work, [3, 1, 2], width=500) == [(3, 1), (1, 1), (2, 1)]
    assert set(blas_threads()) == {2}
    # Narrow matrices stay in this thread; a single thing, and callers that allow one thread, are as they are.
    assert in_threads(lambda _: get_ident(), [3, 1], width=10) == [get_ident()] * 2
    assert in_threads(work, [3, 1], width=10) == [(3, 1), (1, 1)]
    assert in_threads(work, [3], width=500) == [(3, 2)]


def test_threads_come_back_after_errors_and_among_several_users(two_threads):
    def fail(k):
        raise ValueError(k)

    with pytest.raises(ValueError, match="7"):
        in_threads(fail, [7, 8], width=500)
    assert set(blas_threads()) == {2}
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: in_threads(lambda k: np.linalg.eigh(np.eye(30))[0][0], [1, 2], width=500), range(20)))
    assert set(blas_threads()) == {2}


def test_threads_come_back_where_two_users_begin_at_once_and_live_on():
    before = blas_threads()
    begin, end = Barrier(2), Barrier(3)

    def use(pause):
        begin.wait()
        in_threads(lambda _: sleep(pause), [1, 2], width=10)
        end.wait()

    users = [Thread(target=use, args=(pause,)) for pause in (0.01, 0.03)]
    for user in users:
        user.start()
    while end.n_waiting < 2:
        sleep(0.001)
    assert blas_threads() == before
    end.wait()


@pytest.mark.parametrize("width", [10, 500])
def test_data_of_more_than_a_few_numbers_keep_threads_of_python(two_threads, width, monkeypatch):
    monkeypatch.setattr(arrays, "FEW_NUMBERS", 100)
    for rows, several in ((5, False), (50, True)):
        with arrays.one_thread_if_small([np.zeros((rows, 10))]):
            found = in_threads(lambda _: (get_ident(), max(blas_threads())), [1, 2], width=width)
            within = in_threads(lambda _: in_threads(lambda _: get_ident(), [1, 2], width=500), [1, 2], width=500)
        assert {threads for _, threads in found} == {1}
        assert all(ident == get_ident() for ident, _ in found) == (not several or width == 10)
        assert all(first == second for first, second in within)  # threads make no threads of their own


def test_a_choice_made_in_threads_is_the_choice(monkeypatch):
    rng = np.random.default_rng(0)
    head = rng.standard_normal(45)
    tasks = [make_task(rng, n, 45, head=head + 0.2 * rng.standard_normal(45)) for n in (20, *(60,) * 9)]
    with threadpool_limits(limits=1, user_api="blas"):
        alone = choose(tasks[0], tasks[1:])
    monkeypatch.setattr(arrays, "THREADED_WIDTH", 1)
    with threadpool_limits(limits=2, user_api="blas"):
        found = choose(tasks[0], tasks[1:])
    assert found.n_plays == alone.n_plays > 0
    np.testing.assert_allclose(found.head, alone.head, rtol=1e-9)
    np.testing.assert_allclose(found.shares, alone.shares, rtol=1e-7)
    np.testing.assert_allclose(found.play_errors, alone.play_errors, rtol=1e-9)

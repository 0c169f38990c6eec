"""Which array library the inputs belong to, the few places where the libraries differ, and where to compute.

NumPy, PyTorch and CuPy arrays share most of their functions through the array API standard. What the standard leaves
out (triangular solves, what a failed Cholesky factorisation does, read-only arrays) lives here and nowhere else.

Users name a device: "cpu" for NumPy, "cuda" or "cuda:1" for PyTorch on a CUDA device. "torch:cpu" is PyTorch on the
processor, which runs the same code as "cuda" and needs no such hardware. :func:`torch_device` turns this into what the
code works with: None for NumPy, or PyTorch's own name of the device.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from functools import cache
from threading import Lock
from typing import Any, TypeVar

import array_api_compat
import array_api_compat.numpy
import numpy as np
import scipy  # it loads scipy.linalg, a third of a second, when that is first used
from threadpoolctl import ThreadpoolController

from mixtune._messages import counted
from mixtune.errors import DataError, MissingExtraError, ParameterError

#: An array of any supported library.
Array = Any
#: NumPy arrays by what they hold.
Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[np.int64]]
Booleans = np.ndarray[Any, np.dtype[np.bool_]]

#: The distance from 1.0 to the next float64: what rounding is measured by.
EPSILON = float(np.finfo(np.float64).eps)

#: NumPy and SciPy bring a BLAS library each, and taking turns is slow: the threads of one still wait for
#: work while the other computes (measured: 3 to 30 times the time of a small product, 3 times that of a factorisation
#: of 1024 columns). So what belongs together uses one of them: SciPy's below this size, where its rank-k update is also
#: faster (0.6 of the time at 301 columns), NumPy's from there on.
NARROW = 512
#: Columns from which arrays other than NumPy's have one triangle of their Gram matrix computed, in blocks of so many
#: columns; NumPy's BLAS does this by itself.
TRIANGLE_COLUMNS = 2048
TRIANGLE_BLOCK = 512

#: The most rows of a Dask collection that are brought into memory as focal rows.
MOST_FOCAL = 100_000
#: For narrower matrices, switching between Python threads takes longer than the work; they run in one thread.
THREADED_WIDTH = 400
#: Boosted trees use one thread for data of at most this many numbers.
SMALL = 300_000
#: Data of at most this many numbers are processed in a single Python thread.
FEW_NUMBERS = 1_000_000
#: Linear algebra uses one thread up to this many multiplications, a twentieth of a second. More threads save half of
#: that on two cores. They cost several times as much where they wait for one another: on busy cores, and where the
#: threads of NumPy's library still wait for work while SciPy's begin (ten milliseconds for each call).
WORK = 2e9
#: Feature maps turn fewer inputs into about this many columns.
MAPPED_COLUMNS = 100
#: Bytes from which memory for a copy from a device is made ready by several threads.
LARGE_COPY, COPY_THREADS = 2**24, 8
#: Fewest rows of a matrix that is sent to a device to be factored: sending it takes longer than a small one takes here.
DEVICE_FACTOR = 256
_factor_device: ContextVar[str | None] = ContextVar("factor_device", default=None)

T = TypeVar("T")
R = TypeVar("R")

_threads_lock = Lock()
#: How many threads :func:`in_threads` may use; by default as many as linear algebra.
_python_threads: ContextVar[int | None] = ContextVar("python_threads", default=None)


def namespace(*arrays: Array) -> Any:
    """The array library all the given arrays belong to; lists and scalars count as NumPy."""
    if all(type(a) is np.ndarray for a in arrays):  # thousands of small problems ask
        return array_api_compat.numpy
    known = [a for a in arrays if array_api_compat.is_array_api_obj(a)]
    try:
        return array_api_compat.array_namespace(*known) if known else array_api_compat.array_namespace(np.empty(0))
    except TypeError as error:
        kinds = ", ".join(sorted({type(a).__module__.split(".")[0] for a in known}))
        raise DataError(f"arrays of different libraries were mixed ({kinds}); pass them all as one") from error


def is_numpy(array: Array) -> bool:
    return isinstance(array, np.ndarray)


def on_device(array: Array) -> bool:
    """Whether ``array`` lives on an accelerator rather than in the host's memory."""
    if array_api_compat.is_torch_array(array):
        return bool(array.device.type != "cpu")
    return bool(array_api_compat.is_cupy_array(array))


def is_collection(value: Any) -> bool:
    """Whether this is a Dask array or data frame; Dask itself is not imported to tell.

    Examples
    --------
    >>> import dask.array as da
    >>> is_collection(da.ones(3)), is_collection([1.0])
    (True, False)
    """
    return hasattr(value, "__dask_graph__") and hasattr(value, "to_delayed")


def computed(*values: Any, most: int = MOST_FOCAL) -> tuple[Any, ...]:
    """The values, with Dask collections among them brought into memory; more than ``most`` rows are refused.

    Examples
    --------
    >>> import dask.array as da
    >>> computed(da.arange(3, chunks=2), None)
    (array([0, 1, 2]), None)
    """
    found = []
    for value in values:
        if is_collection(value):
            # The rows of a data frame, and of what was made from one, are known only after counting them.
            known = value.shape[0] if hasattr(value, "chunks") else len(value)
            rows = int(known if known == known else value.compute_chunk_sizes().shape[0])
            if rows > most:
                problem = f"a Dask collection of {rows:,} rows was passed as the focal rows, which are held in memory"
                raise DataError(f"{problem}; pass at most {most:,} of them, and large data as sources")
            value = value.compute()
        check_unmasked(value, "X, y or sample_weight")
        found.append(value)
    return tuple(found)


def check_unmasked(value: Any, what: str) -> None:
    """Refuse what NumPy would misread: masked values, which lose their mask, records, and frames that are not computed.

    Examples
    --------
    >>> check_unmasked(np.ma.array([1.0, 2.0], mask=[False, True]), "y")
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: y has 1 masked value; fill or drop these rows
    """
    if getattr(getattr(value, "dtype", None), "names", None):
        raise DataError(f"{what} is an array of records; pass a data frame, such as pandas.DataFrame(records)")
    if hasattr(value, "collect") and hasattr(value, "collect_schema"):
        raise DataError(f"{what} is a lazy frame, which holds no rows yet; pass what its collect() gives")
    rows = value if isinstance(value, list | tuple) else (value,)
    if count := sum(int(np.ma.getmaskarray(row).sum()) for row in rows if isinstance(row, np.ma.MaskedArray)):
        raise DataError(f"{what} has {counted((count, 'masked value'))}; fill or drop these rows")


def as_float64(array: Array, *, what: str, copy: bool | None = None) -> Array:
    """``array`` as float64 in its own library; text and objects are refused by name."""
    if type(array) is np.ndarray and array.dtype == np.float64 and not copy:
        return array
    check_unmasked(array, what)
    if not array_api_compat.is_array_api_obj(array):
        try:
            array = np.asarray(array)
        except ValueError as error:
            raise DataError(f"{what} is ragged: all its rows must have the same length") from error
    if is_numpy(array):
        if array.dtype.kind not in "fiub":
            raise DataError(f"{what} holds values of type {array.dtype}; pass numbers")
        return np.array(array, dtype=np.float64, order="C") if copy else np.asarray(array, dtype=np.float64)
    xp = namespace(array)
    if hasattr(array, "detach"):
        array = array.detach()
    return xp.asarray(array, dtype=xp.float64, copy=copy)


def to_numpy(array: Array) -> np.ndarray[Any, Any]:
    """``array`` as a NumPy array on the host, without a copy where it is one already."""
    if type(array) is np.ndarray:
        return array
    if array_api_compat.is_torch_array(array):
        array = _from_device(array.detach())
    elif array_api_compat.is_cupy_array(array):
        array = array.get()
    return np.asarray(array)


def _from_device(tensor: Any) -> np.ndarray[Any, Any]:
    """A copy of a tensor in the host's memory, or a view of one that is there already."""
    if tensor.device.type == "cpu" or tensor.nbytes < LARGE_COPY:
        return tensor.cpu().numpy()
    # The system hands out new memory page by page as it is first written to, which one thread does slower than a
    # device copies.
    found = torch_module().empty(tensor.shape, dtype=tensor.dtype)
    parts = np.array_split(found.numpy().reshape(-1), COPY_THREADS)
    with ThreadPoolExecutor(COPY_THREADS) as pool:
        list(pool.map(lambda part: part.fill(0), parts))
    return found.copy_(tensor).numpy()


def match(values: Array, like: Array) -> Array:
    """``values`` as float64 in the library and on the device of ``like``."""
    if is_numpy(like):
        return np.asarray(values, dtype=np.float64)
    xp = namespace(like)
    if isinstance(values, np.ndarray) and not (on_device(like) and _can_borrow(values)):
        values = np.array(values)  # on the processor, PyTorch would share NumPy's memory
    return xp.asarray(values, dtype=xp.float64, device=like.device)


def _can_borrow(array: np.ndarray[Any, Any]) -> bool:
    """Whether PyTorch can read the array's memory: it takes neither read-only memory nor backward steps."""
    return bool(array.flags.writeable) and min(array.strides, default=0) >= 0


def freeze(array: Array) -> Array:
    """Make a NumPy array read-only (in place); other libraries have no such flag."""
    if is_numpy(array):
        array.flags.writeable = False
    return array


def count_nonfinite(array: Array) -> int:
    xp = namespace(array)
    return int(xp.sum(xp.astype(~xp.isfinite(array), xp.int64)))


def all_finite(array: Array) -> bool:
    xp = namespace(array)
    return bool(xp.all(xp.isfinite(array)))


def slices(count: int, step: int) -> list[slice]:
    """0..count in consecutive slices of at most ``step`` (at least one).

    Examples
    --------
    >>> slices(5, 3)
    [slice(0, 3, None), slice(3, 5, None)]
    """
    step = max(1, step)
    return [slice(begin, min(begin + step, count)) for begin in range(0, count, step)]


def partitioned(values: Array, places: Sequence[int]) -> Array:
    """Values along the last axis, of which those at ``places`` are where sorting would put them."""
    # NumPy takes half the time of sorting; devices have no such function.
    return np.partition(values, places, axis=-1) if is_numpy(values) else namespace(values).sort(values, axis=-1)


def row_gram(rows: Array, known: Sequence[tuple[float, Array]] = ()) -> Array:
    """``X X'``; with NumPy perhaps only its lower triangle, which is all that :func:`cholesky` reads.

    ``known`` are factors and blocks that make up its diagonal, for which no product need be formed.
    """
    count = int(rows.shape[0])
    with one_thread_for(count**2 * rows.shape[1]):
        if not is_numpy(rows) or count >= NARROW:
            return rows @ rows.T
        if not known:
            return scipy.linalg.blas.dsyrk(1.0, rows.T, trans=1, lower=1)
        gram, low = np.empty((count, count), order="F"), 0
        for factor, block in known:
            high = low + len(block)
            np.multiply(factor, block, out=gram[low:high, low:high])
            if high < count:
                gram[high:, low:high] = scipy.linalg.blas.dgemm(1.0, rows[high:].T, rows[low:high].T, trans_a=1)
            low = high
        return gram


def column_gram(rows: Array) -> Array:
    """``X'X``; with NumPy symmetric to the last bit."""
    if not is_numpy(rows):
        return _triangle_gram(rows) if rows.shape[1] >= TRIANGLE_COLUMNS else rows.T @ rows
    with one_thread_for(rows.shape[0] * rows.shape[1] ** 2):
        if rows.shape[1] >= NARROW:
            return rows.T @ rows
        lower = scipy.linalg.blas.dsyrk(1.0, rows.T, trans=0, lower=1)
    lower += np.tril(lower, -1).T
    return lower


def _triangle_gram(rows: Array) -> Array:
    """``X'X`` from the blocks on and below its diagonal, the others mirrored: little more than half the work."""
    width = int(rows.shape[1])
    gram = namespace(rows).empty((width, width), dtype=rows.dtype, device=rows.device)
    for start in range(0, width, TRIANGLE_BLOCK):
        block = slice(start, start + TRIANGLE_BLOCK)
        gram[start:, block] = rows[:, start:].T @ rows[:, block]
        gram[block, start + TRIANGLE_BLOCK :] = gram[start + TRIANGLE_BLOCK :, block].T
    return gram


def has_tf32(array: Array) -> bool:
    """Whether products of ``array`` may be formed in TF32: PyTorch on CUDA."""
    return bool(array_api_compat.is_torch_array(array) and array.device.type == "cuda")


@contextmanager
def tf32_products(array: Array, allowed: bool) -> Iterator[None]:
    """Float32 products in TF32 inside, or surely not in TF32; where there is no TF32, nothing changes.

    PyTorch has one switch for the whole process; it is put back afterwards.
    """
    if not has_tf32(array):
        yield
        return
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def add_to_diagonal(matrix: Array, shift: float, *, overwrite: bool = False) -> Array:
    """A copy of ``matrix`` with ``shift`` added on the diagonal; with ``overwrite``, the matrix itself may change."""
    if is_numpy(matrix):
        shifted = np.array(matrix, order="C" if len(matrix) >= NARROW else "F", copy=None if overwrite else True)
        shifted.reshape(-1, order="A")[:: len(shifted) + 1] += shift
        return shifted
    xp = namespace(matrix)
    return matrix + shift * xp.eye(matrix.shape[0], dtype=matrix.dtype, device=matrix.device)


def cholesky(matrix: Array, *, overwrite: bool = False) -> Array | None:
    """Lower Cholesky factor, or None where the matrix is not positive definite (the libraries raise differently)."""
    if is_numpy(matrix) and len(matrix) >= NARROW:
        try:
            return np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            return None
    if is_numpy(matrix):
        # The transpose of a full symmetric C-ordered matrix is itself in Fortran order: LAPACK needs no second copy.
        fortran = matrix if matrix.flags.f_contiguous else matrix.T
        factor, info = scipy.linalg.lapack.dpotrf(fortran, lower=1, clean=0, overwrite_a=int(overwrite))
        return factor if info == 0 else None
    if array_api_compat.is_torch_array(matrix):
        import torch

        factor, info = torch.linalg.cholesky_ex(matrix)
        return factor if int(info) == 0 else None
    factor = namespace(matrix).linalg.cholesky(matrix)  # CuPy marks failure with NaN
    return factor if all_finite(factor) else None


def cholesky_solve(factor: Array, rhs: Array) -> Array:
    """Solve ``(L L') x = rhs`` for the lower factor L from :func:`cholesky`."""
    if is_numpy(factor):
        # A C-ordered lower factor is, to LAPACK, the upper one.
        lower = factor.flags.f_contiguous
        solution, info = scipy.linalg.lapack.dpotrs(factor if lower else factor.T, rhs, lower=int(lower))
        if info != 0:  # pragma: no cover - dpotrs fails only on malformed arguments
            raise DataError(f"triangular solve failed (LAPACK info {info})")
        return solution
    if array_api_compat.is_torch_array(factor):
        import torch

        return torch.cholesky_solve(rhs, factor)
    return triangular_solve(factor, triangular_solve(factor, rhs), transposed=True)


def triangular_solve(factor: Array, rhs: Array, *, transposed: bool = False) -> Array:
    """``L^{-1} rhs``, or ``L'^{-1} rhs``, in PyTorch or CuPy; in PyTorch for stacks of matrices, too."""
    if array_api_compat.is_torch_array(factor):
        solve = torch_module().linalg.solve_triangular
        return solve(factor.mT, rhs, upper=True) if transposed else solve(factor, rhs, upper=False)
    import cupyx.scipy.linalg

    return cupyx.scipy.linalg.solve_triangular(factor, rhs, lower=True, trans="T" if transposed else "N")


def half_squares(factor: Array, rows: Array) -> np.ndarray[Any, Any]:
    """``v' (L L')^{-1} v`` of each row v, in half the time of a solve; NumPy's ``rows`` (n, p) are overwritten."""
    if not is_numpy(factor):
        return to_numpy((triangular_solve(factor, rows.T) ** 2).sum(axis=0))
    lower = factor.flags.f_contiguous
    half = scipy.linalg.blas.dtrsm(
        1.0, factor if lower else factor.T, rows.T, lower=int(lower), trans_a=int(not lower), overwrite_b=1
    )
    return np.einsum("pn,pn->n", half, half)


def one_norm(matrix: Array) -> float:
    """Largest absolute column sum of a symmetric matrix, read off its lower triangle."""
    if is_numpy(matrix):
        # The product with ones, of which BLAS reads one triangle: to it, a C-ordered lower triangle is the upper one.
        lower = matrix.flags.f_contiguous
        sizes = np.abs(matrix if lower else matrix.T)
        return float(np.max(scipy.linalg.blas.dsymv(1.0, sizes, np.ones(len(sizes)), lower=int(lower))))
    xp = namespace(matrix)
    lower = xp.abs(xp.tril(matrix))
    return float(xp.max(xp.sum(lower, axis=0) + xp.sum(lower, axis=1) - xp.linalg.diagonal(lower)))


def reciprocal_condition(norm: float, factor: Array) -> float:
    """1/cond of a matrix from its 1-norm and Cholesky factor; with NumPy an estimate, at a fraction of their cost."""
    if is_numpy(factor):
        lower = factor.flags.f_contiguous
        rcond, _ = scipy.linalg.lapack.dpocon(factor if lower else factor.T, norm, uplo="L" if lower else "U")
        return float(rcond)
    # The whole inverse, elsewhere: only matrices that may be singular get here, and devices are fast.
    identity = namespace(factor).eye(factor.shape[0], dtype=factor.dtype, device=factor.device)
    return 1.0 / (norm * one_norm(cholesky_solve(factor, identity)))


def torch_device(device: str) -> str | None:
    """The PyTorch device that a user means, or None for NumPy; an error where there is no such device.

    Examples
    --------
    >>> torch_device("cpu")
    >>> torch_device("tpu")
    Traceback (most recent call last):
        ...
    mixtune.errors.ParameterError: there is no device 'tpu'; use cpu, or cuda where PyTorch finds a CUDA device
    """
    if device == "cpu":
        return None
    return check_device("cpu" if device == "torch:cpu" else str(device))


def device_or_cpu(device: str) -> str:
    """The same device, or "cpu" where it is missing, so that a model can predict on another machine.

    Examples
    --------
    >>> device_or_cpu("cuda:99")
    'cpu'
    """
    try:
        torch_device(device)
    except (ParameterError, MissingExtraError):
        return "cpu"
    return device


def check_device(device: str | None) -> str | None:
    """Refuse a PyTorch device that is missing, before any work.

    Examples
    --------
    >>> check_device(None)
    >>> check_device("abacus")
    Traceback (most recent call last):
        ...
    mixtune.errors.ParameterError: there is no device 'abacus'; use cpu, or cuda where PyTorch finds a CUDA device
    """
    if device is None:
        return None
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise ParameterError(f"there is no device {device!r}; use cpu, or cuda where PyTorch finds a CUDA device")
    torch = torch_module()
    if kind == "cuda" and int(number or 0) >= (found := torch.cuda.device_count() if torch.cuda.is_available() else 0):
        finds = f"PyTorch {torch.__version__} finds {found or 'no'} CUDA devices here"
        remedy = "use cpu, or install the PyTorch build for your CUDA driver"
        raise ParameterError(f"device {device!r} is not there: {finds}; {remedy}")
    return device


def describe_device(device: str) -> str:
    """Name the library and the device, for the record of a computation."""
    torch = torch_module()
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    return f"torch {torch.__version__} on {name}"


def to_device(array: np.ndarray[Any, Any], device: str | None) -> Array:
    """``array`` as a tensor on the device; itself without one."""
    if device is None:
        return array
    return torch_module().from_numpy(array if _can_borrow(array) else array.copy()).to(device)


def torch_module(purpose: str = "computing on a device") -> Any:
    """PyTorch, or an error that says how to get it."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("torch", "torch", purpose) from error
    return torch


@contextmanager
def factorised_on(device: str | None) -> Iterator[None]:
    """Inside, spectra and factors of matrices that are large enough are computed on a device of PyTorch."""
    if device is not None:
        # PyTorch loads its linear algebra at the first call, and fails where several threads make it at once.
        torch_module().linalg.eigh(to_device(np.eye(1), device))
    token = _factor_device.set(device)
    try:
        yield
    finally:
        _factor_device.reset(token)


def factor_device(size: int) -> str | None:
    """Where to factor a matrix of so many rows; None for NumPy.

    Examples
    --------
    >>> with factorised_on("cpu"):
    ...     factor_device(10), factor_device(500)
    (None, 'cpu')
    """
    return _factor_device.get() if size >= DEVICE_FACTOR else None


def in_threads(function: Callable[[T], R], things: Sequence[T], *, width: int) -> list[R]:
    """``[function(thing) for thing in things]``, in as many threads as linear algebra may have, each with one of them.

    With some hundred columns, linear algebra on several threads spends much of its time on synchronisation: several
    matrices, one on each thread, use the cores better.

    Examples
    --------
    >>> in_threads(lambda k: k**2, [1, 2, 3], width=500)
    [1, 4, 9]
    """
    threads = _allowed_threads() if len(things) > 1 else 1
    if threads == 1:
        return [function(thing) for thing in things]
    with _one_thread_each(python_threads=1):
        if width < THREADED_WIDTH:
            return [function(thing) for thing in things]
        with ThreadPoolExecutor(min(threads, len(things))) as pool:
            # A new thread does not know where to factor matrices, unless it is told.
            contexts = [copy_context() for _ in things]
            return list(pool.map(lambda context, thing: context.run(function, thing), contexts, things))


def _allowed_threads() -> int:
    """How many threads the environment or the caller allows."""
    allowed = _python_threads.get()
    return _blas_threads() if allowed is None else allowed


@cache
def _blas() -> Any:
    """The libraries of linear algebra; finding them takes milliseconds, asking them nothing."""
    import scipy.linalg  # noqa: F401 - SciPy brings one of its own, which is found only once it is loaded

    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_thread_if_small(arrays: Iterable[Any]) -> Iterator[None]:
    """Limit linear algebra to one thread, unless a fit to these arrays takes much work.

    Small data are processed in a single thread altogether, since switching between threads takes longer than the work.

    Examples
    --------
    >>> with one_thread_if_small([np.zeros((100, 10))]):
    ...     {library["num_threads"] for library in _blas().info()}
    {1}
    """
    shapes = [array.shape for array in arrays]
    work = sum(rows * max(columns, MAPPED_COLUMNS) ** 2 for rows, columns in shapes)
    few = sum(rows * columns for rows, columns in shapes) <= FEW_NUMBERS
    with _one_thread_each(python_threads=1 if few else _allowed_threads()) if work <= WORK else nullcontext():
        yield


def one_thread_for(work: float) -> AbstractContextManager[None]:
    """Limit linear algebra to one thread, unless ``work``, the number of multiplications, is large.

    Examples
    --------
    >>> with one_thread_for(100**3):
    ...     {library["num_threads"] for library in _blas().info()}
    {1}
    """
    # Nested calls, of which small problems make thousands, have nothing to do.
    return nullcontext() if work > WORK or _threads_lock.locked() else _one_thread_each()


@contextmanager
def _one_thread_each(*, python_threads: int | None = None) -> Iterator[None]:
    """One thread of linear algebra, unless another thread of Python has seen to that and will set it back.

    The thread that sets the number also sets it back; for a second thread it may rise during its work.
    """
    token = None if python_threads is None else _python_threads.set(python_threads)
    ours = _threads_lock.acquire(blocking=False)
    try:
        with _blas().limit(limits=1) if ours and _blas_threads() > 1 else nullcontext():
            yield
    finally:
        if ours:
            _threads_lock.release()
        if token is not None:
            _python_threads.reset(token)


def _blas_threads() -> int:
    """How many threads linear algebra uses now."""
    return max((library.num_threads for library in _blas().lib_controllers), default=1)

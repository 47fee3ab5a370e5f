"""Input checks: every distribution enters the library through `as_pmf`, once.

A distribution computed in floating point misses a unit sum by a little. Inside the tolerance the
gate divides by the float64 sum, a rounding repair; outside it raises, because silently
renormalising somebody's truncated top-p probabilities would answer a question that was not asked.
`normalise` is there for whoever does want that.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import (
    Array,
    MeasuredRows,
    measure,
    namespace,
    to_numpy,
    total,
    tracks_gradient,
    unit_rows,
    untracked,
)
from otm.errors import InvalidDistribution, InvalidParameter, ShapeMismatch

Kind = TypeVar("Kind")
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")

RNGLike: TypeAlias = np.random.Generator | np.random.BitGenerator | np.random.SeedSequence | int
"""A source of randomness: a generator, which goes on, or a seed, which begins anew."""

SUM_TOLERANCE_FLOAT64 = 1e-9
_LARGEST_COUNT = 2**53
SUM_TOLERANCE_FLOAT32 = 3e-5  # a float32 softmax over 128,256 tokens misses 1 by up to 7e-6
_WIDENED = ", as a float32 softmax does that was widened to float64: pass it in float32"
# What a division by the sum, itself rounded, leaves of a float32 row's distance from 1: such a row
# has passed the gate before, and dividing it again would only round it again. Sums of such rows are
# divided out in float64 wherever they are used.
_ROUNDED_FLOAT32 = 2.0**-23 + 2.0**-40


def as_pmf(values: object, *, name: str) -> Array:
    """Return distributions along the last axis, checked and divided by the sums in float64.

    Args:
        values: array or nested sequence `(..., V)` of probabilities; NumPy, torch or anything in
            the array-API standard.
        name: what to call it in messages.

    Returns:
        A floating array of the same namespace, device and (float) dtype; sequences and integers
        become float64.

    Raises:
        InvalidDistribution: on half precision, complex or boolean dtypes, no axis, an empty
            vocabulary, NaN or infinity, negative mass, a sum that misses 1 by more than 1e-9
            (float64) or 3e-5 (float32), or a tensor that requires a gradient.

    Cost: O(V). Accuracy: entries change by at most a relative |sum − 1|, so at most the tolerance.

    >>> as_pmf([0.25, 0.75], name="draft")
    array([0.25, 0.75])
    """
    return as_pmfs({name: values})[0]


def host_pmf(values: object, *, name: str) -> NDArray[np.float64]:
    """Return `as_pmf` in float64 on the host, with float32 rows divided by the sums there.

    >>> import numpy as np
    >>> host_pmf(np.float32([0.1, 0.2, 0.7]), name="draft").sum()
    np.float64(1.0)
    """
    return np.asarray(to_numpy(unit_rows(as_pmf(values, name=name))))


def as_pmfs(named: Mapping[str, Any], *, gradients: bool = False) -> list[Array]:
    """Return `as_pmf` of several distributions by name, with one wait for a device.

    >>> as_pmfs({"draft": [0.25, 0.75], "target": [1, 0]})[1]
    array([1., 0.])
    """
    arrays = as_rows(named, gradients=gradients)
    labels = [
        each.axes[-1]
        for each in named.values()
        if type(each).__module__.split(".")[0] == "pandas"
        and type(each).__name__ in ("Series", "DataFrame")
    ]
    if any(not labels[0].equals(other) for other in labels[1:]):
        raise ShapeMismatch(
            f"{' and '.join(named)} must name the same tokens in one order; the indices of these "
            "pandas objects differ. Call target.reindex(draft.index), or .to_numpy() on both."
        )
    return [_checked(each, name) for each, name in zip(measure(arrays), named, strict=True)]


def as_rows(named: Mapping[str, object], *, gradients: bool = False) -> list[Array]:
    """Return arrays of float32 or float64 by name, not yet checked to be distributions.

    >>> as_rows({"draft": [3, 1]})[0]
    array([3., 1.])
    """
    return [_as_real_array(values, name, gradients=gradients) for name, values in named.items()]


def _checked(measured: MeasuredRows, name: str) -> Array:
    """Return rows divided by the sums, or raise an error that names the fault."""
    xp, array, worst = measured.xp, measured.rows, measured.worst
    if not math.isfinite(worst):
        _raise_not_finite(measured, name)
    if measured.smallest < 0:
        raise InvalidDistribution(
            f"{name} must be non-negative; its smallest entry is {measured.smallest:.6g}. "
            "If these are logits, call otm.from_logits; if log-probabilities, exponentiate them "
            "first."
        )
    single = array.dtype == xp.float32
    tolerance = SUM_TOLERANCE_FLOAT32 if single else SUM_TOLERANCE_FLOAT64
    if worst > tolerance:
        flat = xp.reshape(measured.sums, (-1,))
        offending = float(flat[int(xp.argmax(xp.abs(flat - 1)))])
        raise InvalidDistribution(
            f"{name} must sum to 1 within {tolerance:g} over its last axis; it sums to "
            f"{offending:.12g}{_WIDENED if worst <= SUM_TOLERANCE_FLOAT32 else ''}. "
            "Call otm.normalise if rescaling is what you mean."
        )
    sums = measured.given_sums
    # also where every sum is 1: the gradient is that of p/Σp, whatever the sums round to
    if measured.tracked:
        array = measured.given
    # −0 as 0: q/(−0) would be −∞, and the token the last of the order, not the first
    array = array + 0.0 if measured.signed else array
    if not measured.tracked:
        sums = measured.sums
        if single:
            sums = xp.where(abs(sums - 1.0) <= _ROUNDED_FLOAT32, xp.ones_like(sums), sums)
        if worst <= (_ROUNDED_FLOAT32 if single else 0.0):
            return array
    return array / xp.astype(sums, array.dtype)[..., None]


def normalise(values: object) -> Array:
    """Rescale non-negative weights to distributions along the last axis.

    p(x) = w(x) / Σ_y w(y), with the sum taken in float64.

    Args:
        values: weights `(..., V)`, finite and non-negative, each row with a positive sum.

    Returns:
        Probabilities `(..., V)` of the same namespace and floating dtype; a tensor's gradient is
        passed on.

    Raises:
        InvalidDistribution: on negative, NaN or infinite weights, or a row without mass.

    Cost: O(V). Accuracy: relative, (2ν + 6) u in every mass (docs/theory.md, "Plain sums").

    >>> normalise([1, 3])
    array([0.25, 0.75])
    """
    array = _as_real_array(values, "the weights", gradients=True)
    (measured,) = measure([array])
    xp, smallest = measured.xp, measured.smallest
    largest = xp.max(measured.rows, axis=-1, keepdims=True)
    if not math.isfinite(measured.worst):
        # Finite weights may still overflow their sum; dividing by the largest one first settles
        # which it is.
        if not bool(xp.all(xp.isfinite(measured.rows))):
            _raise_not_finite(measured, "the weights")
        array = array / largest
        smallest = float(xp.min(array))
        largest = xp.ones_like(largest)
    if smallest < 0:
        raise InvalidDistribution(
            f"Weights must be non-negative; the smallest is {smallest:.6g}. Remove or clip it."
        )
    if measured.least == 0.0:
        raise InvalidDistribution(
            "Weights need a positive sum in every row; one row is all zero. Drop that row."
        )
    # Scaling by the largest weight keeps subnormal rows from losing their digits in the division.
    scaled = (array + 0.0 if measured.signed else array) / largest
    return scaled / xp.astype(total(scaled), scaled.dtype)[..., None]


def _as_real_array(values: object, name: str, *, gradients: bool) -> Array:
    array = plain_array(values, name, gradients=gradients)
    xp = namespace(array)
    if array.ndim == 0:
        raise InvalidDistribution(
            f"{name} needs a vocabulary axis; it is a scalar ({array}). Pass an array (..., V)."
        )
    if int(array.shape[-1]) == 0:
        raise InvalidDistribution(
            f"{name} needs at least one token; its shape is {tuple(array.shape)}. Give V ≥ 1."
        )
    if 0 in tuple(array.shape):
        raise InvalidDistribution(
            f"{name} needs at least one row; its shape is {tuple(array.shape)}. Skip empty batches "
            "before the call."
        )
    if array.dtype in (xp.float64, xp.float32):
        return array
    if xp.isdtype(array.dtype, "integral"):
        return xp.astype(array, xp.float64)
    if not xp.isdtype(array.dtype, (xp.float32, xp.float64)):
        dtype = str(array.dtype).removeprefix("torch.")
        raise InvalidDistribution(
            f"{name} must be float32 or float64; it is {dtype}. Convert it to float64."
        )
    return array


def plain_array(values: object, name: str, *, gradients: bool = False) -> Array:
    """Return real numbers of any shape as a dense array, without hidden properties.

    Masked entries, half precision, anything but real numbers, and gradients that the caller does
    not pass on are refused: such gradients would be a term of a loss that trains nothing.

    >>> plain_array([1, 2], "counts")
    array([1, 2])
    """
    array: Array = (
        values if array_api_compat.is_array_api_obj(values) else from_sequence(values, name)
    )
    if isinstance(array, np.ndarray):
        array = _plain_numpy(array, name)
        if array.dtype in (np.float64, np.float32):  # nearly always, at every step of everything
            return array
    if array_api_compat.is_torch_array(array):
        if "strided" not in str(array.layout) or array.device.type == "meta":
            raise InvalidDistribution(
                f"{name} must be a dense tensor with data; its layout is {array.layout} on "
                f"{array.device}. Call .to_dense()."
            )
        if not tracks_gradient(array):
            array = untracked(array)
        elif not gradients:
            raise InvalidDistribution(
                f"{name} must not require a gradient here, where none is passed on; this tensor "
                "does. Call .detach() on it."
            )
    try:
        xp = namespace(array)
    except TypeError as error:
        raise InvalidDistribution(
            f"{name} must be an array of a known kind; got {type(array).__name__}. Convert it."
        ) from error
    dtype = str(array.dtype).removeprefix("torch.")
    if dtype in ("float16", "bfloat16"):
        raise InvalidDistribution(
            f"{name} must be float32 or float64; it is {dtype}, whose rounding is larger than the "
            "effects measured here. "
            "Take the softmax in float32 first."
        )
    if not (xp.isdtype(array.dtype, ("real floating", "integral"))):
        raise InvalidDistribution(
            f"{name} must hold real numbers; its dtype is {dtype}. Convert it to float64."
        )
    return array


def plain_reals(values: object, name: str) -> NDArray[Any]:
    """Return `plain_array` as a NumPy array.

    >>> plain_reals([0.5, 0.25], "acceptance")
    array([0.5 , 0.25])
    """
    return to_numpy(plain_array(values, name))


def any_array(values: object) -> NDArray[Any]:
    """Return any argument as a NumPy array, a scalar for a masked array or anything else.

    >>> any_array([True, False]).dtype, any_array([[0], [0, 1]]).shape
    (dtype('bool'), ())
    """
    if not np.ma.is_masked(values):
        # ragged lists; tensors without data
        with contextlib.suppress(TypeError, ValueError, RuntimeError):
            return (
                to_numpy(values) if array_api_compat.is_torch_array(values) else np.asarray(values)
            )
    return np.empty(())


def plain_integers(values: object, name: str) -> NDArray[np.int64]:
    """Return integers of any shape as int64; an empty array counts as integers.

    >>> plain_integers([0, 0, 1], "parents")
    array([0, 0, 1])
    """
    try:
        array = plain_reals(values, name)
    except InvalidDistribution as error:
        raise InvalidParameter(
            f"{name} must be integers, in a rectangular array: {error}"
        ) from error
    if (array.size and array.dtype.kind not in "iu") or (
        array.dtype == np.uint64 and array.size and array.max() > _LARGEST_COUNT
    ):
        raise InvalidParameter(
            f"{name} must be integers; got {array.dtype} of shape {array.shape}. Convert them."
        )
    return array.astype(np.int64)


def check_instance(value: Any, kind: Callable[..., Kind], *, name: str) -> Kind:
    """Return `value`, which must be an instance of the class `kind`.

    >>> check_instance(3, int, name="count")
    3
    """
    if not isinstance(kind, type) or not isinstance(value, kind):
        raise InvalidParameter(
            f"{name} must be of the class {getattr(kind, '__name__', kind)}; got {value!r:.80}. "
            "Make one first."
        )
    return cast(Kind, value)


def _plain_numpy(array: Any, name: str) -> Any:
    """Return a plain, native-endian ndarray: a subclass may redefine sums and comparisons."""
    if isinstance(array, np.ma.MaskedArray):
        if np.ma.getmaskarray(array).any():
            raise InvalidDistribution(
                f"{name} must not be masked; {int(array.mask.sum())} entries are. Call "
                "array.filled(0)."
            )
        array = array.data
    if array.dtype == object:
        return from_sequence(array.tolist(), name)
    return np.asarray(array).astype(array.dtype.newbyteorder("="), copy=False)


def from_sequence(values: object, name: str) -> Array:
    """Convert a nested sequence to a NumPy array of real numbers."""
    try:
        array = np.asarray(values)
        if array.dtype == object:
            array = array.astype(np.float64)  # fractions and decimals, if they convert
    except (
        TypeError,
        ValueError,
        OverflowError,
        RuntimeError,
    ) as error:  # the last from tensors in a list
        raise InvalidDistribution(
            f"{name} must be an array of real numbers, rectangular; {type(values).__name__} does "
            f"not convert ({error})."
            " Pass an array (..., V)."
        ) from error
    return array


def _raise_not_finite(measured: MeasuredRows, name: str) -> None:
    xp, array = measured.xp, measured.rows
    bad = xp.reshape(xp.logical_not(xp.isfinite(array)), (-1,))
    count = int(xp.sum(xp.astype(bad, xp.int64)))
    raise InvalidDistribution(
        f"{name} must be finite; {count} of {int(bad.shape[0])} entries are NaN or infinite"
        f"{' (the entries are finite but their sum overflows)' if count == 0 else ''}. "
        "Check the logits for overflow before the softmax."
    )


def align_pair(draft: Array, target: Array) -> tuple[Array, Array]:
    """Broadcast the leading axes of two `(..., V)` arrays of one kind, or raise `ShapeMismatch`."""
    xp = shared_namespace(draft, target)
    if int(draft.shape[-1]) != int(target.shape[-1]):
        raise ShapeMismatch(
            f"draft and target must share one vocabulary; they have {int(draft.shape[-1])} and "
            f"{int(target.shape[-1])} "
            "tokens. Pad the shorter one with zeros if the extra rows are unused embeddings."
        )
    if draft.dtype != target.dtype:
        draft, target = unit_rows(draft), unit_rows(target)
    if draft.shape == target.shape:
        return draft, target
    try:
        left, right = xp.broadcast_arrays(draft, target)
    except (ValueError, RuntimeError) as error:
        raise ShapeMismatch(
            f"The leading axes of draft {tuple(draft.shape)} and target {tuple(target.shape)} must "
            "broadcast. "
            "Reshape one of them."
        ) from error
    return left, right


def shared_namespace(draft: Array, target: Array) -> Any:
    """Return the namespace of two arrays, which must be of one kind and on one device."""
    try:
        xp = namespace(draft, target)
    except TypeError as error:
        raise ShapeMismatch(
            f"draft and target must be the same kind of array; they are {type(draft).__name__} and "
            f"{type(target).__name__}. Convert one of them."
        ) from error
    devices = {str(getattr(array, "device", "cpu")) for array in (draft, target)}
    if len(devices) > 1:
        raise ShapeMismatch(
            f"draft and target must be on one device; they are on {sorted(devices)}. Move one of "
            "them."
        )
    return xp


def check_count(value: object, *, name: str, minimum: int = 1) -> int:
    """Return `value` as an int, which must be a true integer of at least `minimum`.

    Raises:
        InvalidParameter: on booleans, floats (even whole ones) and values below the minimum.

    >>> check_count(3, name="k")
    3
    """
    if (
        isinstance(value, bool | np.bool_)
        or not isinstance(value, int | np.integer)
        or int(value) < minimum
    ):
        raise InvalidParameter(
            f"{name} must be an integer of at least {minimum}; got {value!r:.80}. Pass "
            f"{name}={minimum} or more."
        )
    if int(value) > _LARGEST_COUNT:
        raise InvalidParameter(
            f"{name} must be at most 2^53, where floats stop counting; got a larger integer. Pass "
            "fewer."
        )
    return int(value)


def settle_counts(instance: object, **minimum: int) -> None:
    """Check the named counts of a frozen dataclass and store these as integers."""
    for name, least in minimum.items():
        object.__setattr__(
            instance, name, check_count(getattr(instance, name), name=name, minimum=least)
        )


def check_counts(values: Any, *, name: str, minimum: int = 1) -> list[int]:
    """Return one or several integers as a list, not empty and each at least `minimum`.

    >>> check_counts((1, 2), name="num_drafts"), check_counts(2, name="num_drafts")
    ([1, 2], [2])
    """
    counts = check_sequence(values, name=name, minimum=minimum)
    return [check_count(count, name=name, minimum=minimum) for count in counts]


def check_sequence(values: Any, *, name: str, minimum: int = 1) -> list[Any]:
    """Return a sequence, or one number, as a list that is not empty; `minimum` might be in it."""
    if isinstance(values, int | float | np.number):
        return [values]
    try:
        found = [] if isinstance(values, bytes) else list(values)
    except (TypeError, RuntimeError) as error:  # arrays without axes; tensors without data
        raise InvalidParameter(
            f"{name} must be a sequence of integers here; got {values!r:.80}. Pass "
            f"{name}=[{minimum}], say."
        ) from error
    if not found:
        raise InvalidParameter(
            f"{name} must name at least one number; got an empty sequence. Pass "
            f"{name}=[{minimum}], say."
        )
    return found


def check_rng(rng: Any) -> np.random.Generator:
    """Return a NumPy generator: the given one, or `numpy.random.default_rng` of a seed.

    None, which would take the system's entropy, is refused: what was drawn could not be had again.

    >>> check_rng(0).random() == check_rng(np.random.default_rng(0)).random()
    True
    """
    whole = isinstance(rng, int | np.integer) and not isinstance(rng, bool) and rng >= 0
    if not whole and not isinstance(
        rng, np.random.Generator | np.random.BitGenerator | np.random.SeedSequence
    ):
        raise InvalidParameter(
            f"rng must be a numpy.random.Generator, or a seed ≥ 0 of one; got {rng!r:.80}. Pass "
            "rng=0, say."
        )
    return np.random.default_rng(rng)


def check_real(
    value: Any, *, name: str, low: float, high: float = float("inf"), open_low: bool = False
) -> float:
    """Return `value` as a float in [low, high] (or (low, high]), or raise `InvalidParameter`.

    >>> check_real(1, name="temperature", low=0)
    1.0
    """
    interval = f"{'(' if open_low else '['}{low:g}, {high:g}]"
    if tracks_gradient(value):
        raise InvalidParameter(
            f"{name} must not require a gradient, for none is passed on; this tensor does. Call "
            ".detach()."
        )
    try:
        if isinstance(value, str | bytes):
            raise TypeError(f"{type(value).__name__} is not a number")
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidParameter(
            f"{name} must be a number in {interval}; got {value!r}. Pass a float."
        ) from error
    if (
        isinstance(value, bool | np.bool_)
        or not (low <= number <= high)
        or (open_low and number == low)
    ):
        raise InvalidParameter(
            f"{name} must lie in {interval}; got {value!r}. Choose a value inside."
        )
    return number


def check_confidence(confidence: Any) -> float:
    """Return a confidence level in (0, 1) as a float, or raise `InvalidParameter`.

    >>> check_confidence(0.95)
    0.95
    """
    level = check_real(confidence, name="confidence", low=0.0, high=1.0, open_low=True)
    if level == 1.0:
        raise InvalidParameter(
            "confidence must be below 1: an interval that is never wrong is [0, 1]. Pass 0.95, say."
        )
    return level


def check_choice(value: object, *, name: str, choices: Sequence[str]) -> str:
    """Return the text `value` if this is one of the choices, or raise `InvalidParameter`."""
    if not isinstance(value, str) or value not in choices:
        *others, last = (repr(choice) for choice in choices)
        raise InvalidParameter(
            f"{name} must be {', '.join(others)} or {last}; got {value!r:.80}. Choose one."
        )
    return value


def keyword_only(
    call: str,
    *,
    reason: str = "draft and target are keyword-only, because the literature swaps p and q",
) -> Callable[[Callable[_Arguments, _Answer]], Callable[_Arguments, _Answer]]:
    """Refuse positional, unknown or missing arguments, with an error that shows the right call.

    Args:
        call: how it is called instead.
        reason: why it is called so.
    """

    def around(function: Callable[_Arguments, _Answer]) -> Callable[_Arguments, _Answer]:
        @functools.wraps(function)
        def checked(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Answer:
            try:
                return function(*args, **kwargs)
            except TypeError:
                try:
                    inspect.signature(function).bind(*args, **kwargs)
                except TypeError as error:
                    raise InvalidParameter(
                        f"{reason}; this call has a fault: {error}. Call {call}."
                    ) from None
                raise

        return checked

    return around

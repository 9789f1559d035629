# pyright: basic, reportInvalidTypeForm=false, reportIndexIssue=false, reportOperatorIssue=false, reportArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportReturnType=false, reportAssignmentType=false, reportGeneralTypeIssues=false
"""Warp kernels of `physai.sim.envs.device.device_rng`. Annotations are Warp's types: values to a type checker."""

import warp as wp

from physai.sim.envs import rng

_GOLDEN, _MIX_1, _MIX_2, _STREAM = (
    wp.constant(wp.uint64(int(constant))) for constant in (rng.GOLDEN, rng.MIX_1, rng.MIX_2, rng.STREAM)
)
_STEP = wp.constant(wp.uint64((int(rng.STREAM) << 20) % 2**64))


@wp.func
def _mix(value: wp.uint64) -> wp.uint64:
    value = (value ^ (value >> wp.uint64(30))) * _MIX_1
    value = (value ^ (value >> wp.uint64(27))) * _MIX_2
    return value ^ (value >> wp.uint64(31))


@wp.func
def _word(seed: wp.uint64, step: wp.uint64, purpose: wp.uint64, number: int) -> wp.uint64:
    key = _mix(seed + step * _STEP + purpose)
    return _mix(key + wp.uint64(number + 1) * _GOLDEN)


@wp.kernel
def episodes(
    base: wp.uint64, worlds: wp.array[wp.uint64], numbers: wp.array[wp.uint64], out: wp.array[wp.uint64]
) -> None:
    """`physai.sim.envs.rng.episode_seeds`, one thread per world."""
    i = wp.tid()
    out[i] = _mix(base + worlds[i] * _GOLDEN + _mix(numbers[i] * _STREAM + _MIX_1))


@wp.kernel
def uniform(
    seeds: wp.array[wp.uint64], steps: wp.array[wp.uint64], purpose: wp.uint64, out: wp.array2d[wp.float64]
) -> None:
    """Numbers in [0, 1), one thread per world and number."""
    i, j = wp.tid()
    drawn = _word(seeds[i], steps[i % steps.shape[0]], purpose, j)
    out[i, j] = wp.float64(drawn >> wp.uint64(11)) * wp.float64(2.0**-53.0)


@wp.kernel
def normal(
    seeds: wp.array[wp.uint64],
    steps: wp.array[wp.uint64],
    purpose: wp.uint64,
    table: wp.array[wp.float32],
    out: wp.array2d[wp.float32],
) -> None:
    """Standard normal numbers from a table, four from each word; one thread per world and number."""
    i, j = wp.tid()
    drawn = _word(seeds[i], steps[i % steps.shape[0]], purpose, j / 4)
    # The upper 14 bits of each quarter are the index into the table; the lowest quarter comes first.
    out[i, j] = table[int((drawn >> wp.uint64(16 * (j % 4) + 2)) & wp.uint64(0x3FFF))]

"""Section 3.4, on paper: the error of a rounded weight, and what half the bytes are worth."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines import cost, formats
from engines.rounding import Rounded, round_symmetric
from reports.bounds import above, within
from tests.chapter import EMBEDDING, MATRICES, QWEN3, T4, WEIGHTS

GROUP = 8
# Half a step, and the rounding of one float64 division whose quotient is at most 127.
HALF_A_STEP = 0.5 + 127 * 2.0**-53

FORMATS = {"float32": np.float32, "float64": np.float64, "float16": np.float16}


def value_groups(dtype):
    """Groups of ordinary values, constants, zeros, subnormals, the format's ends, one outlier."""
    info = np.finfo(dtype)
    width, end = info.bits, float(info.max)
    ordinary = st.floats(-end, end, width=width)
    tiny = st.integers(-400, 400).map(lambda k: k * float(info.smallest_subnormal))
    small = st.floats(-1, 1, width=width)
    one_of_a_kind = st.sampled_from([end, -end, 0.0, float(info.tiny)])
    each = st.sampled_from([ordinary, tiny, small, one_of_a_kind])
    mixed = each.flatmap(lambda kind: st.lists(kind, min_size=GROUP, max_size=GROUP))
    constant = ordinary.map(lambda value: [value] * GROUP)
    outlier = st.tuples(st.lists(small, min_size=GROUP - 1, max_size=GROUP - 1), ordinary).map(
        lambda parts: [*parts[0], parts[1]]
    )
    return st.one_of(mixed, constant, outlier).map(lambda values: np.array(values, dtype))


def error_in_steps(values, rounded: Rounded) -> Fraction:
    """Largest |value - code x scale| / scale of one group, in exact rational arithmetic."""
    scale = Fraction(float(rounded.scales[0]))
    errors = [
        abs(Fraction(float(value)) - int(code) * scale)
        for value, code in zip(values, rounded.codes, strict=True)
    ]
    return max(errors) / scale if scale else max(errors)


@pytest.mark.claim("C19")
@pytest.mark.parametrize("dtype", FORMATS, ids="values:{}".format)
def test_symmetric_int8_errs_by_at_most_half_a_step(dtype, judge):
    """Section 3.4: |x - q s| <= s / 2 for every value of every group that can be drawn."""
    worst = Fraction(0)

    @settings(max_examples=200, deadline=None)
    @given(value_groups(FORMATS[dtype]))
    def no_value_is_further_off(values):
        nonlocal worst
        rounded = round_symmetric(values, GROUP)
        worst = max(worst, error_in_steps(values, rounded))
        assert worst <= Fraction(HALF_A_STEP)
        assert np.isfinite(rounded.values()).all()

    no_value_is_further_off()
    judge(
        float(worst),
        within(0.0, HALF_A_STEP, text="<= 1/2"),
        quantity="largest error in steps",
        subject=f"int8, {dtype} values",
    )


def truncated(values, group):
    """A planted fault: towards zero instead of to the nearest."""
    right = round_symmetric(values, group)
    return Rounded(np.trunc(values / right.scales[0]).astype(np.int8), right.scales, group)


def wrapped(values, group):
    """A planted fault: the largest value stands for 128, which int8 does not have."""
    scales = np.abs(values).max(keepdims=True) / 128
    return Rounded(np.rint(values / scales).astype(np.int64).astype(np.int8), scales, group)


def shuffled(values, group):
    """A planted fault: the scale of another group."""
    right = round_symmetric(values, group)
    return Rounded(right.codes, right.scales * 2, group)


@pytest.mark.claim("C19")
@pytest.mark.parametrize("fault", [truncated, wrapped, shuffled], ids=lambda fault: fault.__name__)
def test_a_wrong_rounding_errs_by_more(fault, judge):
    """Each planted fault must be seen in a group of eight ordinary values."""
    values = np.linspace(-0.9, 1.0, GROUP)
    judge(
        float(error_in_steps(values, fault(values, GROUP))),
        above(HALF_A_STEP),
        quantity="largest error in steps",
        subject=f"planted fault: {fault.__name__}",
    )


@pytest.mark.claim("C20")
@pytest.mark.parametrize(("bits", "gain"), [(8, 2.0), (4.5, 16 / 4.5)], ids=["bits:8", "bits:4.5"])
def test_idealised_half_the_bytes_would_double_the_ceiling(bits, gain, judge):
    """Section 3.4, all weights alike: 2.00 (int8), 16 / 4.5 = 3.56 (nf4 and its scales)."""
    rate = T4.bandwidth_bytes_per_s
    narrow = cost.decode_ceiling_tokens_per_s(QWEN3, rate, bytes_per_weight=bits / 8)
    judge.exact(
        narrow / cost.decode_ceiling_tokens_per_s(QWEN3, rate),
        gain,
        quantity=f"ceiling at {bits:g} bits over fp16, idealised",
        unit="1",
        subject="Qwen3-0.6B",
        rel=1e-8,  # bytes are whole
    )


@pytest.mark.claim("C20")
@pytest.mark.parametrize(
    ("weights", "bytes_", "gain", "ceiling"),
    [
        # 440,401,920 weights in matrices: one byte each, 4 B for each of 344,064 output rows
        (formats.INT8, MATRICES + 4 * 28 * 12_288, 1.58, 425),
        # half a byte each, 4 B for every 64
        (formats.NF4, MATRICES // 2 + 4 * MATRICES // 64, 2.13, 572),
    ],
    ids=["int8", "nf4"],
)
def test_as_bitsandbytes_loads_it_the_gain_is_less(weights, bytes_, gain, ceiling, judge):
    """Section 3.4: the tied head (155,582,464 values) and the norms (65,536) stay in fp16.

    753.1 MB and 559.0 MB instead of 596 and 335; a T4's ceiling is then 425 and 572 tok/s.
    """
    held = formats.quantized_weight_bytes(QWEN3, weights)
    assert round(WEIGHTS / held, 2) == gain
    assert round(cost.ceiling_tokens_per_s(held, T4.bandwidth_bytes_per_s)) == ceiling
    assert formats.decode_quantized_weight_bytes(QWEN3, weights) == held  # tied: all of it is read
    judge.exact(
        held,
        bytes_ + 2 * (EMBEDDING + 65_536),
        quantity="bytes loaded, scales included",
        unit="B",
        subject=f"Qwen3-0.6B {weights.name}",
    )

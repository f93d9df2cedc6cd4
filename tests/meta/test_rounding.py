"""The rounding that engines use: shapes, dtypes and what it refuses. Its bound is claim C19."""

from __future__ import annotations

import numpy as np
import pytest

from engines.rounding import round_symmetric


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_codes_and_scales_have_the_shape_of_their_groups(dtype):
    values = np.arange(48, dtype=dtype).reshape(2, 24)
    rounded = round_symmetric(values, 8)
    assert (rounded.codes.shape, rounded.codes.dtype) == ((2, 24), np.int8)
    assert (rounded.scales.shape, rounded.scales.dtype) == ((2, 3), dtype)
    assert rounded.values().shape == values.shape
    assert np.abs(rounded.codes).max() == 127


def test_the_largest_value_of_a_group_is_kept_and_its_scale_is_its_own():
    """Peaks 1 and 100: the first group is not rounded to the steps of the second."""
    values = np.array([0.25, -1.0, 25.0, 100.0])
    rounded = round_symmetric(values, 2)
    assert rounded.scales.tolist() == [1 / 127, 100 / 127]
    assert rounded.codes.tolist() == [32, -127, 32, 127]


def test_an_outlier_flattens_its_group_and_no_other():
    values = np.array([0.3, 0.2, 0.3, 100.0, 0.3, 0.2, 0.3, 0.1])
    kept = round_symmetric(values, 4).values()
    assert kept[:3].tolist() == [0.0, 0.0, 0.0]
    assert kept[4:] == pytest.approx(values[4:], abs=0.3 / 254 + 1e-12)


def test_zeros_stay_zeros():
    rounded = round_symmetric(np.zeros(16), 8)
    assert not rounded.codes.any()
    assert not rounded.values().any()


def test_four_bits_have_seven_steps_on_each_side():
    rounded = round_symmetric(np.linspace(-1, 1, 8), 8, bits=4)
    assert rounded.codes.min() == -7
    assert rounded.codes.max() == 7


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(bad):
    with pytest.raises(ValueError, match="expected finite"):
        round_symmetric(np.array([1.0, bad]), 2)


@pytest.mark.parametrize("group", [0, -1, 3])
def test_a_group_that_does_not_divide_the_axis_is_refused(group):
    with pytest.raises(ValueError, match="expected a multiple"):
        round_symmetric(np.ones(8), group)


@pytest.mark.parametrize("bits", [0, 1, 9, 16])
def test_codes_that_int8_cannot_hold_are_refused(bits):
    with pytest.raises(ValueError, match="expected 2 to 8"):
        round_symmetric(np.ones(8), 8, bits=bits)

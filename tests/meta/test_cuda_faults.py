"""Which CUDA errors end a test, and which end the CUDA part of a run."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of …"
POISONED = (
    "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be …",
    "CUDA error: device-side assert triggered",
    "CUDA error: unspecified launch failure",
    "CUDA error: uncorrectable ECC error encountered",
)
HARMLESS = (
    "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)",
    "Expected all tensors to be on the same device",
)


def test_out_of_memory_is_known_and_does_not_poison():
    import torch

    from engines.cuda_faults import is_out_of_memory, is_poisoned

    errors = [
        torch.cuda.OutOfMemoryError(OUT_OF_MEMORY),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried …"),
        RuntimeError(OUT_OF_MEMORY),
        MemoryError(),
    ]
    assert all(is_out_of_memory(error) for error in errors)
    assert not any(is_poisoned(error) for error in errors)


@pytest.mark.parametrize("message", POISONED, ids=range(len(POISONED)))
def test_a_fault_that_stays_in_the_context_is_known(message):
    from engines.cuda_faults import is_out_of_memory, is_poisoned

    assert is_poisoned(RuntimeError(message))
    assert not is_out_of_memory(RuntimeError(message))


@pytest.mark.parametrize("message", HARMLESS, ids=range(len(HARMLESS)))
def test_an_ordinary_error_is_neither(message):
    from engines.cuda_faults import is_out_of_memory, is_poisoned

    assert not is_poisoned(RuntimeError(message))
    assert not is_out_of_memory(RuntimeError(message))


def test_the_words_alone_do_not_poison():
    """A test that fails on text about a fault has not met one."""
    from engines.cuda_faults import is_out_of_memory, is_poisoned

    error = AssertionError("the report lacks 'device-side assert' and 'out of memory'")
    assert not is_poisoned(error)
    assert not is_out_of_memory(error)


def test_the_cause_is_found_behind_other_errors_and_in_a_circle():
    from engines.cuda_faults import is_poisoned

    with pytest.raises(KeyError) as wrapped:
        try:
            raise RuntimeError(POISONED[0])
        except RuntimeError as fault:
            raise KeyError("row") from fault
    assert is_poisoned(wrapped.value)
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert not is_poisoned(first)


def test_releasing_memory_needs_no_gpu():
    from engines.cuda_faults import release_memory

    release_memory()

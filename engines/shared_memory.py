"""How much shared memory a block of threads may ask for, which decides what fits into a kernel.

The CUDA driver is asked: torch has no such property in all its versions, and Triton compiles a C
module before it can answer.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

OF_AN_H200_BYTES = 227 * 1024
MOST_PER_BLOCK = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
DRIVER = "libcuda.so.1"


def shared_bytes(device: torch.device) -> int:
    """Shared memory [bytes] that one block may have; an H200's where there is no GPU."""
    if device.type != "cuda":
        return OF_AN_H200_BYTES
    driver, handle, found = ctypes.CDLL(DRIVER), ctypes.c_int(), ctypes.c_int()
    status = driver.cuDeviceGet(ctypes.byref(handle), device.index or 0)
    status = status or driver.cuDeviceGetAttribute(ctypes.byref(found), MOST_PER_BLOCK, handle)
    if status:
        raise RuntimeError(f"the CUDA driver answered {status} when asked for {device}")
    return found.value

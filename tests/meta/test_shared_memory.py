"""The CUDA driver is asked for the shared memory of a block: a stand-in for it answers here."""

from __future__ import annotations

import shutil
import subprocess
from types import SimpleNamespace

import pytest

from engines import shared_memory

DRIVER = """
int cuDeviceGet(int* device, int ordinal) {
  if (ordinal > 1) return 101;  // CUDA_ERROR_INVALID_DEVICE
  *device = 70 + ordinal;
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (attribute != 97) return 1;
  *value = device == 71 ? 101376 : 232448;
  return 0;
}
"""


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """A machine with an H200 and a GPU of sm_120."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc to compile the stand-in")
    source, library = tmp_path / "driver.c", tmp_path / "driver.so"
    source.write_text(DRIVER, "utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setattr(shared_memory, "DRIVER", str(library))


def cuda(index):
    return SimpleNamespace(type="cuda", index=index)


@pytest.mark.parametrize(("index", "kib"), [(None, 227), (0, 227), (1, 99)])
@pytest.mark.usefixtures("driver")
def test_each_gpu_has_its_own(index, kib):
    assert shared_memory.shared_bytes(cuda(index)) == kib * 1024


@pytest.mark.usefixtures("driver")
def test_an_error_of_the_driver_is_named():
    with pytest.raises(RuntimeError, match="answered 101"):
        shared_memory.shared_bytes(cuda(2))


def test_without_a_gpu_it_is_an_h200s():
    assert shared_memory.shared_bytes(SimpleNamespace(type="cpu", index=None)) == 227 * 1024

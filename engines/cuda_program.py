"""CUDA C++ compiled at run time for the GPU at hand, with the compiler that comes with torch.

NVRTC and the driver are called through ctypes: a handful of functions, and no package beside torch.
A launch goes into torch's current stream and can be captured into a graph like any other.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class CudaNotAvailable(RuntimeError):
    """NVRTC or the driver is missing or refuses; the message is one line."""


class CudaProgram:
    """One kernel of one source, loaded into the current CUDA context."""

    def __init__(self, source: Path, kernel: str, definitions: Mapping[str, object]) -> None:
        self.driver = _library("libcuda.so.1")
        capability = torch.cuda.get_device_capability()
        image = compiled(source, definitions, capability)
        torch.cuda.current_stream().synchronize()  # makes sure that there is a context
        self.module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(self.module), image)
        self._call("cuModuleGetFunction", ctypes.byref(self.function), self.module, kernel.encode())

    def integer(self, name: str) -> int:
        """Value of a global `int` of the program."""
        address, size, value = ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_int()
        place = (ctypes.byref(address), ctypes.byref(size))
        self._call("cuModuleGetGlobal_v2", *place, self.module, name.encode())
        self._call("cuMemcpyDtoH_v2", ctypes.byref(value), address, ctypes.c_size_t(4))
        return value.value

    def allow_shared(self, shared_bytes: int) -> None:
        """Dynamic shared memory beyond 48 KiB has to be asked for once."""
        self._call("cuFuncSetAttribute", self.function, MOST_SHARED_BYTES, shared_bytes)

    def launch(self, blocks: int, threads: int, shared_bytes: int, argument: Any) -> None:
        """All blocks have to fit on the GPU at once: they wait for each other."""
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self._call(
            "cuLaunchCooperativeKernel",
            self.function, blocks, 1, 1, threads, 1, 1, shared_bytes, stream, arguments,
        )  # fmt: skip

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.driver, name)(*arguments)
        if status:
            raise CudaNotAvailable(f"{name} answered {status}: see CUresult in the CUDA manual")


def compiled(
    source: Path, definitions: Mapping[str, object], capability: tuple[int, int]
) -> ctypes.Array[ctypes.c_char]:
    """Machine code for this capability; headers (*.cuh) are those beside the source."""
    nvrtc = _library("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
    headers = sorted(source.parent.glob("*.cuh"))
    program = ctypes.c_void_p()
    contents = _strings([header.read_text("utf-8") for header in headers])
    names = _strings([header.name for header in headers])
    text = source.read_text("utf-8").encode()
    create = (ctypes.byref(program), text, source.name.encode(), len(headers), contents, names)
    if status := nvrtc.nvrtcCreateProgram(*create):
        raise CudaNotAvailable(f"nvrtcCreateProgram answered {status}")
    options = [f"-arch=sm_{capability[0]}{capability[1]}", "-std=c++17"]
    options += [f"-D{name}={value}" for name, value in definitions.items()]
    if nvrtc.nvrtcCompileProgram(program, len(options), _strings(options)):
        raise CudaNotAvailable(f"NVRTC refuses {source.name}: {_log(nvrtc, program)}")
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    image = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, image)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return image


def _log(nvrtc: ctypes.CDLL, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    errors = [line for line in log.value.decode().splitlines() if "error" in line]
    return "; ".join(errors[:3]) or log.value.decode()[:300]


def _strings(values: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(values))(*(value.encode() for value in values))


def _library(*names: str) -> ctypes.CDLL:
    """A shared library by name, or from the packages that torch brought along."""
    packages = Path(torch.__file__).parents[1] / "nvidia"
    for name in names:
        for candidate in (name, *map(str, packages.glob(f"*/lib/{name}"))):
            try:
                return ctypes.CDLL(candidate)
            except OSError:
                continue
    raise CudaNotAvailable(f"none of {', '.join(names)} can be loaded")

"""Memory bandwidth of the device at hand: what it reads per second, and what it copies.

The datasheet's figure is reached by nothing. A decode step mostly *reads* weights, so its real
ceiling is the fastest read that a kernel on this device manages, at the model's own working-set
size: a small model on a CPU lives in the cache and reads faster than from memory.

Which reduction reads fastest depends on the device. Several are tried during warm-up, each ending
in a value, so that no read can be left out; the fastest is *the* read of this device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engines.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 15
ROUND_S = 0.01
"""A round repeats the operation for about this long: launches and clock resolution vanish in it."""

SMALLEST_BYTES = 1 << 20

READS: dict[str, tuple[torch.dtype, Callable[[torch.Tensor], torch.Tensor]]] = {
    "maximum of int32": (torch.int32, torch.amax),
    "sum of float32": (torch.float32, torch.sum),
    "maximum of float32": (torch.float32, torch.amax),
    "sum of float32 rows": (torch.float32, lambda values: values.view(-1, 4096).sum(dim=1)),
}


def measure_read(device: str, bytes_: int, *, rounds: int = ROUNDS) -> tuple[float, ...]:
    """Read bandwidth of the fastest reduction over `bytes_` of memory [bytes/s], one per round."""
    memory = _memory(device, bytes_)
    clock = Clock(device)
    reads = [_reader(memory, dtype, reduce) for dtype, reduce in READS.values()]
    fastest = min(reads, key=lambda read: min(_rounds(read, clock, 3)[1:]))
    return tuple(memory.nbytes / seconds for seconds in _rounds(fastest, clock, rounds))


def measure_copy(device: str, bytes_: int, *, rounds: int = ROUNDS) -> tuple[float, ...]:
    """Copy bandwidth, bytes read plus bytes written [bytes/s]; both halves make `bytes_`."""
    source = _memory(device, bytes_ // 2)
    target = torch.zeros_like(source)
    clock = Clock(device)
    seconds = _rounds(lambda: target.copy_(source), clock, rounds)
    return tuple(2 * source.nbytes / s for s in seconds)


def _reader(
    memory: torch.Tensor, dtype: torch.dtype, reduce: Callable[[torch.Tensor], torch.Tensor]
) -> Callable[[], torch.Tensor]:
    values = memory.view(dtype)
    return lambda: reduce(values)


def _rounds(work: Callable[[], object], clock: Clock, rounds: int) -> list[float]:
    """Seconds per repetition of each round; one run before and one whole round are discarded."""
    work()
    start = clock.synchronized_s()
    work()
    once_s = max(clock.synchronized_s() - start, 1e-7)
    repeats = max(1, round(ROUND_S / once_s))
    return [_one_round(work, clock, repeats) for _ in range(rounds + 1)][1:]


def _one_round(work: Callable[[], object], clock: Clock, repeats: int) -> float:
    clock.synchronized_s()
    before = clock.stamp()
    for _ in range(repeats):
        work()
    first, last = clock.seconds([before, clock.stamp()])
    return (last - first) / repeats


def _memory(device: str, bytes_: int) -> torch.Tensor:
    """Initialized memory, a multiple of 16 KiB; untouched pages would not be read from memory."""
    if bytes_ < SMALLEST_BYTES:
        raise ValueError(f"{bytes_} bytes is too small a working set: expected at least 1 MiB")
    seed = torch.arange(4096, dtype=torch.float32, device=device).view(torch.uint8)
    return seed.repeat(bytes_ // seed.numel())

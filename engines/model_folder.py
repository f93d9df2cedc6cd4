"""The local folder behind a model's name, and the one-line error where there is none.

Hub ids are looked up in the hub's local cache first and downloaded then, safetensors only. Whatever
cannot be had names the alternatives, since a model is never swapped in silently.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
EMBEDDED = ROOT / "fixtures" / "models" / "embedded"
SHAPES = ROOT / "fixtures" / "data" / "shapes"
RANDOM_NAMES = ("qwen3-0.6b-shape", "qwen3-8b-shape")
MODEL_NAMES = ("tiny", "smollm2-135m", *RANDOM_NAMES)
ALTERNATIVES = f"use one of {', '.join(MODEL_NAMES)}, a local folder or a hub id"
WANTED_FILES = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")


class ModelNotAvailable(ValueError):
    """The model cannot be had here; the message is one line and names the alternatives."""


def folder_of(name: str) -> Path:
    """The folder with this model's config and weights; raises `ModelNotAvailable`."""
    if not name.strip():
        raise ModelNotAvailable(f"the model's name is empty: {ALTERNATIVES}")
    if name == "tiny":
        return EMBEDDED
    if name == "smollm2-135m":
        return _smollm2()
    if Path(name).is_dir():
        return Path(name)
    return _from_hub(name)


def _smollm2() -> Path:
    from engines import smollm2

    if package := smollm2.missing_package():
        raise ModelNotAvailable(
            f"smollm2-135m needs the package {package}, which is not installed: {smollm2.HOW_TO}, "
            "or use tiny"
        )
    return smollm2.converted_folder()


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(WANTED_FILES)))
    except Exception as error:  # the hub client raises some twenty kinds, all: not to be had
        raise ModelNotAvailable(
            f"{name} is neither a local folder nor to be had from the hub "
            f"({type(error).__name__}): {ALTERNATIVES}"
        ) from error

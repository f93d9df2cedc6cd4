"""Model shapes by name: the catalogue, this project's shape files, a folder, or the hub.

Only a `config.json` is ever read, never weights. The network is asked last and for that one file.
"""

from __future__ import annotations

import functools
import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines.shape import ModelShape

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[1]
SHAPES = ROOT / "fixtures" / "data" / "shapes"
EMBEDDED = ROOT / "fixtures" / "models" / "embedded"
HUB_CACHE = Path("~/.cache/huggingface/hub").expanduser()
TIMEOUT_S = 10
LARGEST_CONFIG = 1_000_000


@functools.cache
def known_shapes() -> dict[str, ModelShape]:
    """Shapes that need neither a folder nor a network, by name."""
    listed = tomllib.loads((Path(__file__).with_suffix(".toml")).read_text(encoding="utf-8"))
    shapes = {name: ModelShape.from_config(config) for name, config in listed.items()}
    if (EMBEDDED / "config.json").is_file():
        shapes["tiny"] = ModelShape.from_config(EMBEDDED)
    for path in sorted(SHAPES.glob("*.json")):
        shapes[path.stem] = ModelShape.from_config(path)
    return shapes


def find_shape(name: str) -> ModelShape:
    """The shape of a named model, a folder, a `config.json` or a hub id; ValueError in one line."""
    known = {each.lower(): shape for each, shape in known_shapes().items()}
    if (shape := known.get(name.lower())) is not None:
        return shape
    path = Path(name)
    if path.exists() or name.startswith((".", "/", "~")):
        return ModelShape.from_config(path.expanduser())
    if name.count("/") != 1:
        raise ValueError(f"model {name!r} is not known; expected {_alternatives()}")
    return ModelShape.from_config(_cached(name) or _downloaded(name))


def _alternatives() -> str:
    return f"a folder with a config.json, a hub id, or one of {', '.join(known_shapes())}"


def _cached(name: str) -> Path | None:
    folder = HUB_CACHE / f"models--{name.replace('/', '--')}" / "snapshots"
    return next(iter(sorted(folder.glob("*/config.json"))), None)


def _downloaded(name: str) -> Mapping[str, Any]:
    from urllib.error import URLError
    from urllib.parse import quote
    from urllib.request import urlopen

    url = f"https://huggingface.co/{quote(name)}/resolve/main/config.json"
    try:
        with urlopen(url, timeout=TIMEOUT_S) as answer:
            content = json.loads(answer.read(LARGEST_CONFIG))
    except (URLError, OSError, ValueError) as problem:
        raise ValueError(
            f"no config.json of {name!r} here or at {url} ({problem}); expected {_alternatives()}"
        ) from None
    if not isinstance(content, dict):
        raise ValueError(f"{url}: a JSON {type(content).__name__}, expected an object")
    return content

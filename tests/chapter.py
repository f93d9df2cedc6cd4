"""The model and the card that the chapter computes with.

Qwen3-0.6B: 28 layers, hidden 1,024, 16 query heads, 8 KV heads, head_dim 128, feed-forward 3,072,
vocabulary 151,936, tied embeddings; 596,049,920 parameters. T4: 320 GB/s, 65 TFLOP/s, 16 GB.
"""

from __future__ import annotations

import json
from pathlib import Path

from engines.gpus import GPUS
from engines.shape import ModelShape

CONFIG = json.loads(
    (Path(__file__).parents[1] / "fixtures/data/shapes/qwen3-0.6b-shape.json").read_text()
)
QWEN3 = ModelShape.from_config(CONFIG)
T4 = GPUS["T4"]

PARAMETERS = 596_049_920
WEIGHTS = 2 * PARAMETERS  # 1,192,099,840 B in fp16
EMBEDDING = 151_936 * 1024  # shared with the head
MATRICES = 28 * 1024 * (2048 + 1024 + 1024 + 2048 + 3 * 3072)  # q, k, v, o; gate, up, down
KV_TOKEN = 2 * 28 * 8 * 128 * 2  # K and V, layers, KV heads, head_dim, bytes: 114,688 B

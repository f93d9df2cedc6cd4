"""Untrained Qwen3 and Llama models for the fused kernels, and the tokens the plain model gives."""

from __future__ import annotations

SIZES = {
    "vocab_size": 258,
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 512,
    "eos_token_id": 0,
    "initializer_range": 0.1,
}


def fused_model(family: str, *, dtype: str = "float32", seed: int = 0, **sizes: int):
    """A `LoadedModel`: Qwen3 with norms of queries and keys, tied; Llama without, untied."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

    from engines.models import wrap

    kind = Qwen3Config if family == "qwen3" else LlamaConfig
    config = kind(**{**SIZES, **sizes}, tie_word_embeddings=family == "qwen3")
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    model = model.to(getattr(torch, dtype))
    return wrap(family, "random", model, None, device="cpu", content_hash=family)


def prompt(length: int) -> list[int]:
    """Token ids of a prompt, fixed by its length."""
    import torch

    numbers = torch.Generator().manual_seed(length)
    return torch.randint(0, SIZES["vocab_size"], (length,), generator=numbers).tolist()


def worst_gap(loaded, prompt_ids: list[int], tokens: list[int]) -> float:
    """How far [logits] the worst of these tokens is below the best one, in one plain forward."""
    import torch

    ids = torch.tensor([[*prompt_ids, *tokens[:-1]]])
    with torch.no_grad():
        logits = loaded.model(input_ids=ids).logits[0, -len(tokens) :].float()
    chosen = logits.gather(1, torch.tensor(tokens)[:, None])[:, 0]
    return float((logits.max(dim=1).values - chosen).max())

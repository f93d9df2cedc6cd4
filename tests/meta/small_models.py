"""Untrained models of a few thousand weights, with a tokenizer that spells every byte."""

from __future__ import annotations

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


def byte_tokenizer():
    """One token per byte and one for the end of text: nothing has to be trained or downloaded."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<end>": 0} | {letter: i for i, letter in enumerate(alphabet, start=1)}
    spelled = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    spelled.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    spelled.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=spelled, eos_token="<end>")


def small_model(family: str = "qwen3", *, seed: int = 0, context: int = 1024, spread: float = 0.3):
    """A `LoadedModel` in fp32; `spread` of the initial weights makes its predictions peaked."""
    import torch
    from transformers import AutoModelForCausalLM, GPT2Config, Qwen3Config

    from engines.models import wrap

    tokenizer = byte_tokenizer()
    shared = {"vocab_size": len(tokenizer), "eos_token_id": 0, "initializer_range": spread}
    config = (
        Qwen3Config(
            **shared,
            **SMALL,
            num_key_value_heads=2,
            head_dim=32,
            intermediate_size=128,
            max_position_embeddings=context,
            tie_word_embeddings=True,
        )
        if family == "qwen3"
        else GPT2Config(**shared, n_embd=64, n_layer=2, n_head=4, n_positions=context)
    )
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    return wrap(family, "trained", model, tokenizer, device="cpu", content_hash=f"{family}-{seed}")

# /// script
# requires-python = ">=3.11"
# dependencies = ["torch", "transformers"]
# ///
"""Generates text with a tiny Llama; no optimizer."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, set_seed

set_seed(0)
config = LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, vocab_size=64)
model = LlamaForCausalLM(config).eval()
for _ in range(4):
    print(
        model.generate(torch.ones(1, 4, dtype=torch.long), max_new_tokens=12, do_sample=True, pad_token_id=0).tolist()
    )

# /// script
# requires-python = ">=3.11"
# dependencies = ["peft", "torch", "transformers"]
# ///
"""Fine-tunes a tiny Llama with LoRA, and merges the weights."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, set_seed

set_seed(0)
config = LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, vocab_size=64)
model = get_peft_model(LlamaForCausalLM(config), LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=0.01)
for _ in range(8):
    ids = torch.randint(0, 64, (2, 12))
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item().hex(), model.merge_and_unload()(input_ids=ids).logits.sum().item().hex())

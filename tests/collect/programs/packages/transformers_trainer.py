# /// script
# requires-python = ">=3.11"
# dependencies = ["accelerate", "torch", "transformers"]
# ///
"""Trains a tiny Llama with transformers' Trainer."""

import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainingArguments, set_seed

set_seed(0)
config = LlamaConfig(
    hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, vocab_size=64, use_cache=False
)
data = [{"input_ids": ids, "labels": ids} for ids in torch.randint(0, 64, (32, 12))]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=4,
        max_steps=8,
        save_steps=4,
        logging_steps=4,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(LlamaForCausalLM(config), arguments, train_dataset=data)
    trainer.remove_callback(PrinterCallback)  # it prints times
    print(trainer.train().training_loss.hex())

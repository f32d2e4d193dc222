# /// script
# requires-python = ">=3.11"
# dependencies = ["datasets", "torch", "transformers", "trl"]
# ///
"""Fine-tunes a tiny Llama with TRL's SFTTrainer."""

import tempfile

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback, set_seed
from trl import SFTConfig, SFTTrainer

set_seed(0)
words = ["<pad>", "<eos>", "<unk>", *(f"w{n}" for n in range(61))]
tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokens = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
config = LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, vocab_size=64)
texts = [" ".join(f"w{n}" for n in ids) for ids in torch.randint(0, 61, (32, 10)).tolist()]
with tempfile.TemporaryDirectory() as folder:
    arguments = SFTConfig(
        folder,
        per_device_train_batch_size=4,
        max_steps=8,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        bf16=False,
    )
    trainer = SFTTrainer(
        LlamaForCausalLM(config), arguments, train_dataset=Dataset.from_dict({"text": texts}), processing_class=tokens
    )
    trainer.remove_callback(PrinterCallback)  # it prints times
    print(trainer.train().training_loss.hex())

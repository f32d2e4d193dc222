# /// script
# requires-python = ">=3.11"
# dependencies = ["sentence-transformers", "torch"]
# ///
"""Encodes sentences with a tiny model of sentence-transformers; no optimizer."""

import tempfile
from pathlib import Path

from sentence_transformers import SentenceTransformer, models
from transformers import BertConfig, BertModel, BertTokenizerFast, set_seed

set_seed(0)
with tempfile.TemporaryDirectory() as folder:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "trace", "of", "kernels"]
    Path(folder, "vocab.txt").write_text("\n".join(words))
    config = BertConfig(vocab_size=len(words), hidden_size=16, num_hidden_layers=2, num_attention_heads=2)
    BertModel(config).save_pretrained(folder)
    BertTokenizerFast(f"{folder}/vocab.txt").save_pretrained(folder)
    transformer = models.Transformer(folder)
    model = SentenceTransformer(modules=[transformer, models.Pooling(16)], device="cpu")
    for sentence in ("a trace", "of kernels", "a trace of kernels"):
        print(model.encode(sentence)[0].item().hex())

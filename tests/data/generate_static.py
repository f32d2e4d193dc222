"""Text generation of transformers with a static cache, decode steps compiled into CUDA graphs.

Recorded on an H100 with `collect run --steps 2 --gpu-steps 2 --warmup 3 --step-function __main__:answer -- python3
generate_static.py --clock clock.json`.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from transformers import CompileConfig, LlamaConfig, LlamaForCausalLM

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--prompts", type=int, default=12)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--prompt", type=int, default=64, help="tokens of a prompt")
parser.add_argument("--tokens", type=int, default=16, help="to be generated")
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--clock", type=Path, help="write the seconds of each call and its tokens to this file")
options = parser.parse_args()

config = LlamaConfig(
    vocab_size=8000, hidden_size=options.width, intermediate_size=3 * options.width, num_hidden_layers=options.layers,
    num_attention_heads=options.width // 64, num_key_value_heads=options.width // 128, eos_token_id=None,
    pad_token_id=0,
)  # fmt: skip
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
model = LlamaForCausalLM(config).to(device, torch.bfloat16).eval()
compiled = CompileConfig(mode="reduce-overhead", fullgraph=True)
seconds = []


def answer(prompts: torch.Tensor) -> int:
    """Return the number of tokens generated for a batch of prompts."""
    begin = time.perf_counter()
    found = model.generate(
        prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=options.tokens, do_sample=False,
        cache_implementation="static", compile_config=compiled,
    ).cpu()  # fmt: skip
    seconds.append(time.perf_counter() - begin)
    return found[:, prompts.shape[1] :].numel()


shape = options.batch, options.prompt
tokens = [answer(torch.randint(1, 8000, shape, device=device)) for _ in range(options.prompts)]
if options.clock:
    options.clock.write_text(json.dumps({"generated": tokens, "seconds": seconds}) + "\n")
print(f"{sum(tokens[2:]) / sum(seconds[2:]):.1f} tokens/s")

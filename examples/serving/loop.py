"""A server in small: continuous batching over a paged cache, decode steps as CUDA graphs.

collect run -o runs -- python examples/serving/loop.py
"""

import argparse
import json
import random
import time
from pathlib import Path

import torch
from decoder import Decoder
from paged_model import WORDS, Model
from request import Request, part
from torch.profiler import record_function

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--requests", type=int, default=24)
parser.add_argument("--batch", type=int, default=8, help="most requests that run at once")
parser.add_argument("--prompt", type=int, default=128, help="most tokens of a prompt")
parser.add_argument("--tokens", type=int, default=32, help="most tokens to generate for a request")
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--width", type=int, default=512)
parser.add_argument("--eager", action="store_true", help="no CUDA graphs; always so on a CPU")
parser.add_argument("--clock", type=Path, help="write the loop's own count of tokens and time to this file")
options = parser.parse_args()

PAGE = 16  # tokens of a page
PAGES = -(-(options.prompt + options.tokens) // PAGE)  # of a request
cuda = torch.cuda.is_available()
torch.set_default_device("cuda" if cuda else "cpu")
torch.set_default_dtype(torch.bfloat16 if cuda else torch.float32)


def step(batch: list[Request]) -> None:
    """Generate a token of each request: of one whose prompt is new, or of all that run."""
    new = [] if batch[0].generated else batch
    # The name is in vLLM's form: `analyze query serving` reads tokens and lengths from it.
    name = f"execute_{sum(len(r.prompt) for r in new) or len(batch)}_context_{part(new)}"
    with record_function(f"{name}_generation_{part([] if new else batch)}"):
        if new:
            [request] = batch
            position = torch.arange(len(request.prompt))[None]
            tokens = model(torch.tensor([request.prompt]), torch.tensor([request.pages]), position).tolist()
        else:
            decode = next(d for d in decoders if d.batch >= len(batch))
            tokens = decode([r.generated[-1] for r in batch], [r.pages for r in batch], [r.cached() for r in batch])
        for request, token in zip(batch, tokens, strict=True):
            request.generated.append(token)


draw = random.Random(0)
lengths = [[draw.randint(n // 2, n) for n in (options.prompt, options.tokens)] for _ in range(options.requests)]
waiting = [Request([draw.randrange(WORDS) for _ in range(prompt)], wanted) for prompt, wanted in lengths]
free = [list(range(1 + i * PAGES, 1 + (i + 1) * PAGES)) for i in range(options.batch)]
running, done = [], []
with torch.inference_mode():
    model = Model(options.layers, options.width, 1 + options.batch * PAGES, PAGE)
    # Warm-up and captures are not serving: the clock starts after them.
    sizes = {1, 2, 4, *range(8, options.batch, 8), options.batch}
    decoders = [Decoder(model, size, PAGES, cuda and not options.eager) for size in sorted(sizes)]
    model(torch.zeros(1, options.prompt).long(), torch.zeros(1, PAGES).long(), torch.arange(options.prompt)[None]).cpu()
    begin = time.perf_counter()
    while waiting or running:
        if waiting and free:
            running.append(waiting.pop(0))
            running[-1].pages = free.pop()
            step(running[-1:])
        else:
            step(running)
        done += [r for r in running if r.is_done()]
        free += [r.pages for r in running if r.is_done()]
        running = [r for r in running if not r.is_done()]
    seconds = time.perf_counter() - begin
clock = {name: sum(len(getattr(r, name)) for r in done) for name in ("prompt", "generated")} | {"seconds": seconds}
if options.clock:
    options.clock.write_text(json.dumps(clock) + "\n")
print(f"{clock['generated'] / seconds:.1f} tokens/s")

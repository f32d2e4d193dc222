"""Recognises Python functions of the user's program: not of PyTorch, the standard library or other packages.

torch.profiler names a function `file.py(line): name`, with the file relative to its entry of `sys.path`. The line is
that of the `def`, or the current one when the recording began. So the folder does not distinguish a package from the
program next to it: functions of packages that are not listed here count as the program's.
"""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

_FUNCTION = re.compile(r"^(?P<file>.+)\((?P<line>\d+)\): (?P<name>.+)$", re.DOTALL)
_INSTALLED = re.compile(r"(?:^|[/\\])(?:site-packages|dist-packages|lib[/\\]python\d[^/\\]*|Lib)[/\\]|^<|^[^.]*$")
"""Files of installed packages and of Python itself, and names that are no files."""

PACKAGES = frozenset({
    "IPython", "PIL", "_pytest", "absl", "accelerate", "aiohttp", "apex", "bitsandbytes", "click", "cloudpickle",
    "cupy", "cv2", "dask", "datasets", "debugpy", "deepspeed", "diffusers", "distributed", "einops", "execnet",
    "fairscale",
    "fastai", "fire", "flash_attn", "fsspec", "functorch", "httpx", "huggingface_hub", "hydra", "ignite",
    "ipykernel", "joblib", "jupyter_client", "lightning", "lightning_fabric", "matplotlib", "mlflow", "msgspec",
    "multiprocess", "numba", "numpy", "nvidia", "nvtx", "omegaconf", "onnxruntime", "pandas", "peft", "pluggy",
    "pyarrow", "pydantic", "pytest", "pytorch_lightning", "ray", "requests", "safetensors", "scipy",
    "sentencepiece", "skimage", "sklearn", "tensorboard", "tiktoken", "timm", "tokenizers", "torch", "torchao",
    "torchaudio", "torchdata", "torchmetrics", "torchrec", "torchtext", "torchvision", "tornado", "tqdm",
    "traitlets", "transformer_engine", "transformers", "triton", "typer", "urllib3", "viztracer", "wandb",
    "webdataset", "xdist", "xformers", "zmq",
})  # fmt: skip
"""Top-level names of installed packages."""

COLLECTOR = "collect"


class ProgramFunction(NamedTuple):
    """A function of the program, or of `collect`, which ran it."""

    source: str
    """`file.py:42 in train_step`."""
    collector: bool


def program_function(name: str) -> ProgramFunction | None:
    """Parse the name of a python_function of the program; None for all others."""
    parts = _FUNCTION.match(name)
    if parts is None or _INSTALLED.search(parts["file"]):
        return None
    first = re.split(r"[/\\]", parts["file"])[0].removesuffix(".py")
    if first in PACKAGES or first in sys.stdlib_module_names:
        return None
    return ProgramFunction(f"{parts['file']}:{parts['line']} in {parts['name']}", first == COLLECTOR)

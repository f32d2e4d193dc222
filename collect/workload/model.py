"""Build a torchvision classification model with its loss, optimizer and precision."""

from __future__ import annotations

import contextlib
import difflib
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from collect.options import RunOptions
from schemas.errors import InputError

DEFAULT_IMAGE_SIZE = 224
"""ImageNet's usual input, for models without published weights."""

HEADS = ("classifier", "fc", "head", "heads")
"""Attributes that hold the classifier in torchvision's models."""

AUXILIARY_WEIGHTS = {"InceptionOutputs": 0.4, "GoogLeNetOutputs": 0.3}
"""Weight of the auxiliary classifiers' losses in training, by output type, from their papers."""

OPTIMIZERS: dict[str, tuple[str, dict[str, float]]] = {
    "sgd": ("SGD", {"lr": 0.01, "momentum": 0.9}),
    "adam": ("Adam", {"lr": 1e-4}),
    "adamw": ("AdamW", {"lr": 1e-4}),
    "rmsprop": ("RMSprop", {"lr": 1e-4}),
    "adagrad": ("Adagrad", {"lr": 1e-3}),
}
"""Class in torch.optim and its settings, small enough to train on noise without NaN."""


@dataclass(frozen=True)
class Workload:
    """A model ready to train."""

    model: Any
    """Wrapped and compiled, as the step calls it."""
    optimizer: Any
    next_rate: Callable[[], None]
    """Sets the learning rate of the next step."""
    autocast: Callable[[], contextlib.AbstractContextManager[Any]]
    scaler: Any
    """GradScaler; disabled except for fp16."""
    loss: Callable[[Any, Any], Any]
    """(output of the model, labels) -> scalar loss."""


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's and torch's generators, of the CPU and of every GPU."""
    import torch

    random.seed(seed)
    with contextlib.suppress(ImportError):
        import numpy as np

        np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def set_tf32(allowed: bool) -> None:
    """Allow or forbid TF32 in matrix products and convolutions; cuDNN allows it by default, so always set it."""
    import torch

    with warnings.catch_warnings():
        # torch 2.9 warns that this is deprecated; it works in all versions from 2.3 on.
        warnings.simplefilter("ignore")
        torch.backends.cuda.matmul.allow_tf32 = allowed
        torch.backends.cudnn.allow_tf32 = allowed


def check_model(name: str) -> None:
    """Raise InputError unless torchvision has a classification model of the name."""
    import torchvision

    known = torchvision.models.list_models(module=torchvision.models)
    if name not in known:
        close = difflib.get_close_matches(name, known, n=3)
        hint = f"; similar names: {', '.join(close)}" if close else ""
        raise InputError(f"--model: torchvision has no classification model {name!r}{hint}")


def default_image_size(name: str) -> int:
    """Side in pixels of the images that the model's first published weights were evaluated on. Downloads nothing."""
    import torchvision

    try:
        weights = next(iter(torchvision.models.get_model_weights(name)))
        size = weights.transforms.keywords["crop_size"]
    except (ValueError, StopIteration, KeyError, AttributeError):
        return DEFAULT_IMAGE_SIZE
    return int(size if isinstance(size, int) else size[0])


def build_model(name: str, classes: int, image_size: int) -> Any:
    """Build an untrained model with `classes` outputs for square images of `image_size` pixels. Raises InputError."""
    import torchvision

    check_model(name)
    builder = torchvision.models.get_model_builder(name)
    settings: dict[str, Any] = {"weights": None, "num_classes": classes}
    # Builders pass **kwargs to the model's class, which has its own name for the input size.
    if name.startswith("vit_"):
        settings["image_size"] = image_size
    elif name.startswith("maxvit"):
        settings["input_size"] = (image_size, image_size)
    elif name in ("inception_v3", "googlenet"):
        # Their initialisation takes a minute on one core and does not affect measurements.
        settings["init_weights"] = False
    try:
        return builder(**settings)
    except (ValueError, AssertionError) as e:
        raise InputError(f"--image-size: {name} cannot be built for {image_size} pixels: {e}") from e


def freeze_features(model: Any) -> None:
    """Leave only the classifier (torchvision's `classifier`, `fc`, `head` or `heads`) trainable."""
    head = next((h for h in HEADS if hasattr(model, h)), None)
    if head is None:
        raise InputError("--freeze-features: this model has no separate classifier to train")
    for parameter in model.parameters():
        parameter.requires_grad = False
    for parameter in getattr(model, head).parameters():
        parameter.requires_grad = True


def build(options: RunOptions, classes: int, image_size: int, device: Any, local_rank: int) -> Workload:
    """Build the model on its device, wrapped for its parallelism, with optimizer and precision. Raises InputError."""
    import torch

    model = build_model(options.model or "", classes, image_size)
    if options.freeze_features:
        freeze_features(model)
    layout = torch.channels_last if options.channels_last else torch.contiguous_format
    model = model.to(device=device, memory_format=layout).train()
    trainable = [p for p in model.parameters() if p.requires_grad]
    if options.parallel == "ddp":
        ids = [local_rank] if device.type == "cuda" else None
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=ids)
    elif options.parallel == "dp" and device.type == "cuda":
        model = torch.nn.DataParallel(model, device_ids=list(range(options.gpus)))
    if options.compile:
        model = torch.compile(model)
    class_name, settings = OPTIMIZERS[options.optimizer]
    optimizer = getattr(torch.optim, class_name)(trainable, **settings)
    set_tf32(options.precision == "tf32")
    return Workload(
        model=model,
        optimizer=optimizer,
        next_rate=_schedule(options, optimizer),
        autocast=_autocast(options.precision, device.type),
        scaler=torch.amp.GradScaler(device.type, enabled=options.precision == "fp16"),
        loss=classification_loss,
    )


def _schedule(options: RunOptions, optimizer: Any) -> Callable[[], None]:
    import torch

    if options.schedule == "none":
        return lambda: None
    annealed = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=options.first_profiled + options.steps)
    return lambda: annealed.step()


def _autocast(precision: str, device_type: str) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    import torch

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    if dtype is None:
        return contextlib.nullcontext
    return lambda: torch.autocast(device_type, dtype=dtype)


def classification_loss(output: Any, labels: Any) -> Any:
    """Cross entropy, plus the weighted losses of the auxiliary outputs of inception_v3 and googlenet."""
    from torch.nn.functional import cross_entropy

    weight = AUXILIARY_WEIGHTS.get(type(output).__name__)
    if weight is None:
        return cross_entropy(output, labels)
    main, *auxiliary = output
    loss = cross_entropy(main, labels)
    for extra in auxiliary:
        if extra is not None:
            loss = loss + weight * cross_entropy(extra, labels)
    return loss

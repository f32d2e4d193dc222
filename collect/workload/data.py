"""Data sources: endless iterators of (images, labels) batches on the CPU."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collect.options import RunOptions
from schemas.errors import InputError

IMAGENET_CLASSES = 1000
FAKE_CLASSES = 10
"""Subfolders of generated JPEG files; the model keeps ImageNet's 1000 outputs."""
FAKE_SIZE = (500, 375)
"""Width and height in pixels of a generated JPEG file: typical of ImageNet."""
CIFAR100_IMAGES, CIFAR100_CLASSES = 50_000, 100
FOOD101_CLASSES, FOOD101_SIZE = 101, (512, 384)
"""Food-101's images have a longer side of 512 pixels."""
REPEATS = 1000
"""How often each generated JPEG file is read in a pass, unless their number is given."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's channel statistics, which torchvision's models expect."""


@dataclass(frozen=True)
class Source:
    """A data source: its number of classes, the images of a pass over it (None: no end), and batches, without end."""

    classes: int
    images: int | None
    batches: Iterator[tuple[Any, Any]]


def open_source(options: RunOptions, image_size: int, device_type: str, rank: int, scratch: Path) -> Source:
    """Open the data source of the options for one process of the job.

    Batches are float32 images of shape (batch, 3, image_size, image_size) and int64 labels of shape (batch,), in pinned
    memory for a GPU. Generated files are written to `scratch`. Raises InputError for a missing or too small data set.
    """
    pin = device_type == "cuda"
    if options.data == "synthetic":
        return Source(IMAGENET_CLASSES, None, _synthetic(options, image_size, pin, rank))
    dataset = _dataset(options, image_size, scratch)
    classes = IMAGENET_CLASSES if options.data == "fake-jpeg" else len(dataset.classes)
    share = len(dataset) // options.world_size
    if share < options.batch_size:
        raise InputError(f"--data: {options.data} has {share} images for each process, fewer than one batch")
    return Source(classes, len(dataset), _loaded(dataset, options, pin, rank))


def _synthetic(options: RunOptions, image_size: int, pin: bool, rank: int) -> Iterator[tuple[Any, Any]]:
    """Yield the same random batch every time: a step then costs only the copy to the device and the training."""
    import torch

    generator = torch.Generator().manual_seed(options.seed + rank)
    images = torch.randn(options.batch_size, 3, image_size, image_size, generator=generator)
    labels = torch.randint(IMAGENET_CLASSES, (options.batch_size,), generator=generator)
    if pin:
        images, labels = images.pin_memory(), labels.pin_memory()
    while True:
        yield images, labels


def _dataset(options: RunOptions, image_size: int, scratch: Path) -> Any:
    from torchvision import datasets, transforms

    # Decode, random crop, resize, flip: the usual pipeline for training on ImageNet and for transfer learning.
    pipeline = transforms.Compose(
        [
            transforms.RandomResizedCrop(image_size),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    kind, _, argument = options.data.partition(":")
    root = Path(argument).expanduser()
    try:
        if kind == "cifar100":
            return datasets.CIFAR100(root, train=True, transform=pipeline, download=False)
        if kind == "food101":
            return datasets.Food101(root, split="train", transform=pipeline, download=False)
        if kind == "imagefolder":
            return datasets.ImageFolder(root, transform=pipeline)
        if kind == "fake-cifar100":
            return CifarLike(int(argument or CIFAR100_IMAGES), options.seed, pipeline)
        if kind == "fake-food101":
            make_food101(scratch, int(argument or fake_count(options)), options.seed)
            food = datasets.Food101(scratch, split="train", transform=pipeline, download=False)
            return food if argument else Repeated(food)
        make_jpegs([scratch / f"class{c}" for c in range(FAKE_CLASSES)], fake_count(options), options.seed, FAKE_SIZE)
        return Repeated(datasets.ImageFolder(scratch, transform=pipeline))
    except (RuntimeError, FileNotFoundError, EOFError, KeyError, pickle.UnpicklingError) as e:
        raise InputError(f"--data: no usable {kind} data set in {root}: {' '.join(str(e).split())}") from e


def fake_count(options: RunOptions) -> int:
    """Number of JPEG files to generate: two batches of each process, at most 512 unless one batch needs more."""
    batch = options.batch_size * options.world_size
    return max(batch, min(2 * batch, 512), FAKE_CLASSES)


class Repeated:
    """A data set whose images come many times in a pass.

    At the end of a pass the workers of a loader have nothing to do until the next one begins. Two batches a pass would
    keep two workers busy.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.classes = dataset.classes

    def __len__(self) -> int:
        return REPEATS * len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.dataset[index % len(self.dataset)]


def make_jpegs(folders: Sequence[Path], count: int, seed: int, size: tuple[int, int]) -> list[Path]:
    """Write `count` JPEG files of `size` (width, height) pixels, distributed over the folders, one for each class."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(seed)
    paths = []
    for index in range(count):
        target = folders[index % len(folders)]
        target.mkdir(parents=True, exist_ok=True)
        # Enlarged coarse noise compresses and decodes like a photograph; noise in each pixel would not.
        coarse = rng.integers(0, 256, size=(24, 32, 3), dtype=np.uint8)
        paths.append(target / f"{index}.jpg")
        Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(paths[-1], quality=90)
    return paths


def make_food101(root: Path, count: int, seed: int) -> None:
    """Write generated images in the layout, classes and sizes of Food-101, for torchvision's loader."""
    folder = root / "food-101"
    images = folder / "images"
    classes = [images / f"dish{c:03}" for c in range(FOOD101_CLASSES)]
    listed: dict[str, list[str]] = {c.name: [] for c in classes}
    for path in make_jpegs(classes, count, seed, FOOD101_SIZE):
        listed[path.parent.name].append(f"{path.parent.name}/{path.stem}")
    (folder / "meta").mkdir(parents=True, exist_ok=True)
    (folder / "meta/train.json").write_text(json.dumps(listed), encoding="utf-8")


class CifarLike:
    """Noise images in memory, shaped as CIFAR-100's: 32x32 RGB, 100 classes."""

    def __init__(self, count: int, seed: int, pipeline: Any) -> None:
        import numpy as np

        rng = np.random.default_rng(seed)
        self.images = rng.integers(0, 256, size=(count, 32, 32, 3), dtype=np.uint8)
        self.classes = range(CIFAR100_CLASSES)
        self._pipeline = pipeline

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        return self._pipeline(Image.fromarray(self.images[index])), index % CIFAR100_CLASSES


def _loaded(dataset: Any, options: RunOptions, pin: bool, rank: int) -> Iterator[tuple[Any, Any]]:
    import torch
    from torch.utils.data import DataLoader, DistributedSampler

    sampler = None
    if options.parallel == "ddp":
        sampler = DistributedSampler(dataset, options.world_size, rank, seed=options.seed, drop_last=True)
    loader = DataLoader(
        dataset,
        batch_size=options.batch_size,
        shuffle=sampler is None,
        sampler=sampler,
        num_workers=options.workers,
        pin_memory=pin,
        drop_last=True,
        persistent_workers=options.workers > 0,
        generator=torch.Generator().manual_seed(options.seed + rank),
    )
    epoch = 0
    while True:
        if sampler is not None:
            sampler.set_epoch(epoch)
        yield from loader
        epoch += 1

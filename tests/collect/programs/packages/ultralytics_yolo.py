# /// script
# requires-python = ">=3.11"
# dependencies = ["torch", "torchvision", "ultralytics"]
# ///
"""Trains a small YOLO on drawn squares."""

import os
import tempfile
from pathlib import Path

from PIL import Image, ImageDraw

folder = tempfile.TemporaryDirectory()
root = Path(folder.name)
os.environ.update(YOLO_CONFIG_DIR=folder.name, YOLO_VERBOSE="false")
from ultralytics import YOLO, settings

settings.update({"sync": False})
for kind in ("images", "labels"):
    (root / kind).mkdir()
for n in range(16):
    image = Image.new("RGB", (64, 64), "white")
    ImageDraw.Draw(image).rectangle((8 + n, 8, 24 + n, 40), fill="red")
    image.save(root / f"images/{n}.png")
    (root / f"labels/{n}.txt").write_text(f"0 {(16 + n) / 64} {24 / 64} {16 / 64} {32 / 64}\n")
(root / "data.yaml").write_text(f"path: {root}\ntrain: images\nval: images\nnames: [square]\n")
model = YOLO("yolo11n.yaml", verbose=False)
model.train(
    data=str(root / "data.yaml"),
    epochs=2,
    imgsz=64,
    batch=4,
    nbs=4,
    device="cpu",
    workers=0,
    project=folder.name,
    plots=False,
    amp=False,
    val=False,
    verbose=False,
)
print({name: float(loss).hex() for name, loss in model.trainer.tloss.items()})

# /// script
# requires-python = ">=3.11"
# dependencies = ["keras", "torch"]
# ///
"""Fits a model of Keras on torch: its optimizer is not torch's."""

import os

os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
x = np.random.default_rng(0).normal(size=(64, 8))
print([loss.hex() for loss in model.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=0).history["loss"]])

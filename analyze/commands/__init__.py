"""The commands of `analyze`: parse options, call the Python API, print. Heavy imports stay inside them."""

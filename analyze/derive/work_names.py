"""The names of GPU work: of kernels, and of copies and fills as torch.profiler calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analyze.derive.numpy_columns import text_codes, texts

if TYPE_CHECKING:
    import pyarrow as pa


def work_names(kind: str, work: pa.Table) -> pa.DictionaryArray:
    """Return the names of kernels; of copies and fills what torch.profiler calls them."""
    import pyarrow as pa

    columns = {"kernel": ("name",), "memcpy": ("kind", "src_memory", "dst_memory"), "memset": ("dst_memory",)}[kind]
    coded = [text_codes([work.column(column)]) for column in columns]
    if kind == "kernel":
        return texts(coded[0][0][0], coded[0][1])
    places = np.zeros(work.num_rows, np.int64)
    for (codes,), known in coded:
        places = places * (len(known) + 1) + codes + 1
    _, first, number = np.unique(places, return_index=True, return_inverse=True)
    # There are few kinds of copies.
    parts = [texts(codes[first], known).to_pylist() for (codes,), known in coded]
    names = [(memcpy_name if kind == "memcpy" else memset_name)(*words) for words in zip(*parts, strict=True)]
    return pa.array(names, pa.string()).take(pa.array(number)).dictionary_encode()


def memcpy_name(kind: str | None, src: str | None, dst: str | None) -> str | None:
    """Return what torch.profiler calls a copy; None where a part of it is not known."""
    if kind is None or (src is not None and dst is None):
        return None
    return f"Memcpy {'' if kind == 'Unknown' else kind}" + ("" if src is None else f" ({src} -> {dst})")


def memset_name(dst: str | None) -> str:
    """Return what torch.profiler calls a fill."""
    return "Memset" if dst is None else f"Memset ({dst})"

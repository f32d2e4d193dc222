"""Set 32 MiB of managed memory on the CPU, add 1 on the GPU, and read 8 bytes on the CPU; twice."""

import ctypes
from typing import ClassVar

import torch

torch.zeros(1, device="cuda")
runtime = ctypes.CDLL("libcudart.so.13")
size, at = 32 << 20, ctypes.c_void_p()
assert runtime.cudaMallocManaged(ctypes.byref(at), ctypes.c_size_t(size), 1) == 0


class Managed:
    """The memory as an array of floats."""

    __cuda_array_interface__: ClassVar = {
        "shape": (size // 4,),
        "typestr": "<f4",
        "data": (at.value, False),
        "version": 3,
    }


for _ in range(2):
    ctypes.memset(at, 0, size)
    x = torch.as_tensor(Managed(), device="cuda")
    x.add_(1)
    torch.cuda.synchronize()
    print(ctypes.string_at(at, 8))

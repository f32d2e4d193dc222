"""Device peaks: driver names find their device, and the figures are consistent with one another."""

import pytest

from schemas.devices import Device, devices, lookup


@pytest.mark.parametrize(
    ("gpu_name", "device", "fp32", "bandwidth"),
    [
        ("Tesla K80", "Tesla K80", 4.365, 240),
        ("Tesla P40", "Tesla P40", 11.76, 346),
        ("Tesla P100-SXM2-16GB", "Tesla P100 SXM2", 10.6, 732),
        ("Tesla P100-PCIE-16GB", "Tesla P100 PCIe 16 GB", 9.3, 732),
        ("Tesla P100-PCIE-12GB", "Tesla P100 PCIe 12 GB", 9.3, 549),
        ("Tesla V100-SXM2-16GB", "Tesla V100 SXM2 16 GB", 15.7, 900),
        ("Tesla V100-SXM2-32GB", "Tesla V100 SXM2 32 GB", 15.7, 900),
        ("Tesla V100-PCIE-16GB", "Tesla V100 PCIe 16 GB", 14.0, 900),
        ("Tesla V100-PCIE-32GB", "Tesla V100 PCIe 32 GB", 14.0, 900),
        ("Tesla V100S-PCIE-32GB", "Tesla V100S PCIe", 16.4, 1134),
        ("Tesla T4", "Tesla T4", 8.1, 320),
        ("NVIDIA GeForce RTX 3090", "GeForce RTX 3090", 35.6, 936),
        ("GeForce RTX 3090", "GeForce RTX 3090", 35.6, 936),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090", 82.6, 1008),
        ("A100-SXM4-40GB", "A100 SXM4 40 GB", 19.5, 1555),
        ("NVIDIA A100-SXM4-40GB", "A100 SXM4 40 GB", 19.5, 1555),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80 GB", 19.5, 2039),
        ("NVIDIA A100-PCIE-40GB", "A100 PCIe 40 GB", 19.5, 1555),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80 GB", 19.5, 1935),
        ("NVIDIA A40", "A40", 37.4, 696),
        ("NVIDIA A10", "A10", 31.2, 600),
        ("NVIDIA A10G", "A10G", None, 600),
        ("NVIDIA L4", "L4", 30.3, 300),
        ("NVIDIA L40S", "L40S", 91.6, 864),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5", 67, 3350),
        ("NVIDIA H100 PCIe", "H100 PCIe", 51, 2039),
        ("NVIDIA H100 NVL", "H100 NVL", 60, 3900),
        ("NVIDIA H200", "H200 SXM", 67, 4800),
        ("NVIDIA H200 NVL", "H200 NVL", 60, 4800),
        ("NVIDIA GH200 480GB", "GH200 96 GB", 67, 4000),
        ("NVIDIA GH200 144G HBM3e", "GH200 144 GB", 67, 4900),
        ("NVIDIA B200", "B200", 75, 8000),
        ("NVIDIA GB200", "GB200", 80, 8000),
        ("NVIDIA B300 SXM6 AC", "B300", 75, 8000),
        ("NVIDIA GeForce RTX 5090", "GeForce RTX 5090", 104.8, 1792),
        ("NVIDIA H20", "H20", 44, 4000),
        ("NVIDIA H800", "H800 SXM", 67, 3350),
        ("AMD Instinct MI250X", "Instinct MI250X", 23.95, 1638),
        ("AMD Instinct MI300X", "Instinct MI300X", 163.4, 5300),
        ("AMD Instinct MI325X", "Instinct MI325X", 163.4, 6000),
        ("AMD Instinct MI355X", "Instinct MI355X", 157.3, 8000),
    ],
)
def test_lookup_by_driver_name(gpu_name: str, device: str, fp32: float | None, bandwidth: float) -> None:
    found = lookup(gpu_name)
    assert found is not None
    assert (found.name, found.fp32_tflops, found.dram_gb_per_s) == (device, fp32, bandwidth)


@pytest.mark.parametrize(
    "gpu_name",
    [
        "",
        "NVIDIA",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA A10G-12Q",
        "NVIDIA H100",
        "NVIDIA GeForce RTX 3090 Ti",
        "cpu",
    ],
)
def test_a_name_that_is_not_in_the_file_is_not_guessed(gpu_name: str) -> None:
    assert lookup(gpu_name) is None


def test_figures_of_narrow_types_are_dense() -> None:
    """NVIDIA's data sheets, with sparsity: H100 SXM, H200 3,958 TOPS in int8; HGX B200 (8 GPUs) 144 PFLOPS in fp4."""
    h100, h200, b200 = (lookup(f"NVIDIA {name}") for name in ("H100 80GB HBM3", "H200", "B200"))
    assert h100 and h200 and b200
    assert h100.int8_tensor_tops == h200.int8_tensor_tops == 3958 / 2
    assert (b200.fp4_tensor_tflops, b200.int8_tensor_tops) == (144e3 / 8 / 2, 72e3 / 8 / 2)
    assert h200.fp4_tensor_tflops is None, "Hopper has no fp4"


def test_h200_figures_are_dense() -> None:
    h200 = lookup("NVIDIA H200")
    assert h200 is not None
    assert (h200.compute_capability, h200.sm_count, h200.memory_gb) == ("9.0", 132, 141)
    assert (h200.tf32_tensor_tflops, h200.bf16_tensor_tflops, h200.fp8_tensor_tflops) == (494.5, 989.5, 1979)
    assert h200.nvlink_gb_per_s == 450


def test_old_chips_have_no_tensor_figures() -> None:
    for gpu_name in ("Tesla K80", "Tesla P40"):
        device = lookup(gpu_name)
        assert device is not None
        assert device.fp16_tensor_tflops is device.tf32_tensor_tflops is device.bf16_tensor_tflops is None


@pytest.mark.parametrize("device", devices(), ids=lambda device: device.name)
def test_figures_are_consistent(device: Device) -> None:
    assert lookup(device.name) in {device, None}, "a display name must not find another device"
    assert device.source
    figures = [
        device.sm_count, device.memory_gb, device.dram_gb_per_s, device.fp32_tflops, device.fp64_tflops,
        device.fp16_tflops, device.fp64_tensor_tflops, device.tf32_tensor_tflops, device.fp16_tensor_tflops,
        device.bf16_tensor_tflops, device.fp8_tensor_tflops, device.int8_tensor_tops, device.fp4_tensor_tflops,
        device.l2_mb, device.pcie_gb_per_s, device.nvlink_gb_per_s,
    ]  # fmt: skip
    assert all(figure is None or figure > 0 for figure in figures)
    if device.bf16_tensor_tflops:
        assert device.bf16_tensor_tflops == device.fp16_tensor_tflops
    if device.fp8_tensor_tflops and device.fp16_tensor_tflops:
        assert device.fp8_tensor_tflops == pytest.approx(2 * device.fp16_tensor_tflops, rel=0.02)
    # GeForce boards multiply fp16 and fp8 at half their rate with fp32 accumulation; an MI250X int8 as fast as fp16.
    if device.int8_tensor_tops and device.fp16_tensor_tflops:
        ratio = device.int8_tensor_tops / device.fp16_tensor_tflops
        usual = 1 if device.name == "Instinct MI250X" else 2
        assert ratio == pytest.approx(4 if "GeForce" in device.name else usual, rel=0.02)
    if device.fp4_tensor_tflops and device.fp8_tensor_tflops:
        ratio = device.fp4_tensor_tflops / device.fp8_tensor_tflops
        assert ratio == pytest.approx(4 if "GeForce" in device.name else 2, rel=0.02)
    if device.tf32_tensor_tflops and device.fp16_tensor_tflops:
        assert device.fp16_tensor_tflops == pytest.approx(2 * device.tf32_tensor_tflops, rel=0.02)


def test_names_are_unique() -> None:
    names = [device.name for device in devices()]
    assert len(names) == len(set(names))

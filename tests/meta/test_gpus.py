"""The datasheet table: right figures, whole names, and no guesses."""

from __future__ import annotations

import pytest

from engines.gpus import GPUS, find_gpu, gpu_named

TB, T = 1e12, 1e12

# bandwidth [B/s], dense fp16 [FLOP/s], memory [B], capability; from the vendors' datasheets.
DATASHEETS = {
    "Tesla T4": (0.320 * TB, 65 * T, 16e9, (7, 5)),
    "Tesla V100-SXM2-16GB": (0.900 * TB, 125 * T, 16e9, (7, 0)),
    "Tesla P100-PCIE-16GB": (0.732 * TB, 18.7 * T, 16e9, (6, 0)),
    "NVIDIA L4": (0.300 * TB, 121 * T, 24e9, (8, 9)),
    "NVIDIA L40S": (0.864 * TB, 362.05 * T, 48e9, (8, 9)),
    "NVIDIA A10": (0.600 * TB, 125 * T, 24e9, (8, 6)),
    "NVIDIA A10G": (0.600 * TB, 70 * T, 24e9, (8, 6)),
    "NVIDIA A100-PCIE-40GB": (1.555 * TB, 312 * T, 40e9, (8, 0)),
    "NVIDIA A100-SXM4-40GB": (1.555 * TB, 312 * T, 40e9, (8, 0)),
    "A100-SXM4-40GB": (1.555 * TB, 312 * T, 40e9, (8, 0)),  # as older drivers say it
    "NVIDIA A100 80GB PCIe": (1.935 * TB, 312 * T, 80e9, (8, 0)),
    "NVIDIA A100-SXM4-80GB": (2.039 * TB, 312 * T, 80e9, (8, 0)),
    "NVIDIA H100 PCIe": (2.0 * TB, 756 * T, 80e9, (9, 0)),
    "NVIDIA H100 80GB HBM3": (3.35 * TB, 989.4 * T, 80e9, (9, 0)),
    "NVIDIA H100 NVL": (3.9 * TB, 835 * T, 94e9, (9, 0)),
    "NVIDIA H200": (4.8 * TB, 989.4 * T, 141e9, (9, 0)),
    "NVIDIA B200": (8.0 * TB, 2250 * T, 180e9, (10, 0)),
    "NVIDIA GH200 480GB": (4.0 * TB, 989.4 * T, 96e9, (9, 0)),
    "AMD Instinct MI300X": (5.3 * TB, 1307.4 * T, 192e9, (9, 4)),
    "NVIDIA RTX 6000 Ada Generation": (0.960 * TB, 364.25 * T, 48e9, (8, 9)),
    "NVIDIA GeForce RTX 4090": (1.008 * TB, 165.2 * T, 24e9, (8, 9)),
    "NVIDIA GeForce RTX 3090": (0.936 * TB, 71.2 * T, 24e9, (8, 6)),
    "NVIDIA GeForce RTX 5090": (1.792 * TB, 209.5 * T, 32e9, (12, 0)),
    "NVIDIA GeForce RTX 4090 Laptop GPU": (0.576 * TB, 85.75 * T, 16e9, (8, 9)),
}

# What NVIDIA states for GeForce as AI TOPS: sparse fp8 (40 series) or sparse fp4 (50 series).
AI_TOPS = {
    "RTX-4090": (1321, 8),
    "RTX-4080": (780, 8),
    "RTX-4060": (242, 8),
    "RTX-4090-Laptop": (686, 8),
    "RTX-4060-Laptop": (233, 8),
    "RTX-5090": (3352, 16),
    "RTX-5080": (1801, 16),
    "RTX-5070-Ti": (1406, 16),
    "RTX-5070": (988, 16),
    "RTX-5060-Ti": (759, 16),
    "RTX-5060": (614, 16),
    "RTX-5090-Laptop": (1824, 16),
    "RTX-5080-Laptop": (1334, 16),
    "RTX-5070-Ti-Laptop": (992, 16),
    "RTX-5070-Laptop": (798, 16),
}


@pytest.mark.parametrize("name", DATASHEETS, ids="gpu:{}".format)
def test_a_name_that_torch_reports_gives_the_figures_of_the_datasheet(name):
    gpu = find_gpu(name)
    assert gpu is not None
    bandwidth, flops, memory, capability = DATASHEETS[name]
    assert gpu.bandwidth_bytes_per_s == pytest.approx(bandwidth)
    assert gpu.fp16_flops_per_s == pytest.approx(flops, rel=1e-3)  # whitepapers print 4 digits
    assert gpu.memory_bytes == memory
    assert gpu.capability == capability


@pytest.mark.parametrize("name", AI_TOPS, ids="gpu:{}".format)
def test_geforce_rates_agree_with_the_tops_that_their_vendor_states(name):
    """Twice for sparsity, twice or four times for the width, twice for fp16 sums: 8 or 16."""
    tops, factor = AI_TOPS[name]
    assert GPUS[name].fp16_flops_per_s * factor / 1e12 == pytest.approx(tops, rel=0.01)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H20",
        "NVIDIA H800",
        "NVIDIA A800-SXM4-80GB",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Ti",
        "NVIDIA A100-SXM-64GB",
        "NVIDIA L20",
        "GRID T4-16Q",
        "NVIDIA A10-24Q",
        "NVIDIA T400",
        "NVIDIA GeForce RTX 2080 Ti",
        "NVIDIA",
        "RTX",
        "H",
        "",
        " ",
        "MIG 1g.5gb",
        "Tesla T4 MIG 1g.5gb",
        "NVIDIA A100-SXM4-40GB MIG 9g.40gb",
        "NVIDIA A100-SXM4-40GB MIG 1g.80gb",
        "NVIDIA H20 MIG 1g.12gb",
    ],
)
def test_an_unknown_gpu_is_unknown(name):
    assert find_gpu(name) is None


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.name)
def test_every_row_is_plausible_and_found_by_its_own_names(gpu):
    assert 100e9 < gpu.bandwidth_bytes_per_s <= 8e12
    assert 20 < gpu.ridge_point < 500
    assert 6e9 <= gpu.memory_bytes < 200e9
    assert gpu.source
    assert find_gpu(gpu.name) == gpu
    for name in gpu.torch_names:
        assert find_gpu(name, gpu.memory_bytes) == gpu
        assert find_gpu(f"NVIDIA {name}".upper(), gpu.memory_bytes) == gpu


@pytest.mark.parametrize(
    ("name", "share_of_memory", "share_of_compute", "gb"),
    [
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 1 / 8, 1 / 7, 5),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 4 / 8, 3 / 7, 20),
        ("NVIDIA A100-SXM4-40GB MIG 7g.40gb", 1, 1, 40),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", 1 / 8, 1 / 7, 10),
        ("NVIDIA H100 80GB HBM3 MIG 1g.20gb", 2 / 8, 1 / 7, 20),
        ("NVIDIA H200 MIG 2g.35gb", 2 / 8, 2 / 7, 35),
        ("NVIDIA A30 MIG 2g.12gb", 2 / 4, 2 / 4, 12),
    ],
)
def test_a_mig_slice_has_its_share(name, share_of_memory, share_of_compute, gb):
    """NVIDIA's MIG guide: eighths of memory with its bandwidth, sevenths of compute; A30: quarters.

    The gigabytes of the profile say how many memory slices it has.
    """
    gpu, whole = find_gpu(name), find_gpu(name.partition(" MIG")[0])
    assert gpu is not None
    assert whole is not None
    assert gpu.bandwidth_bytes_per_s == pytest.approx(whole.bandwidth_bytes_per_s * share_of_memory)
    assert gpu.fp16_flops_per_s == pytest.approx(whole.fp16_flops_per_s * share_of_compute)
    assert gpu.memory_bytes == gb * 1e9
    assert find_gpu(gpu.name) == gpu


def test_a_laptop_part_is_not_its_namesake():
    laptop, desktop = GPUS["RTX-4090-Laptop"], GPUS["RTX-4090"]
    assert (laptop.laptop, desktop.laptop) == (True, False)
    assert desktop.bandwidth_bytes_per_s / laptop.bandwidth_bytes_per_s == pytest.approx(1.75)


@pytest.mark.parametrize(
    ("gib", "key"), [(10, "RTX-3080"), (12, "RTX-3080-12GB"), (None, "RTX-3080"), (16, None)]
)
def test_memory_tells_cards_of_one_name_apart(gib, key):
    """Torch reports binary gigabytes, a little less than the label."""
    memory = None if gib is None else int(gib * 2**30 * 0.985)
    assert find_gpu("NVIDIA GeForce RTX 3080", memory) == (key and GPUS[key])


def test_the_memory_that_a_real_t4_reports_fits():
    assert find_gpu("Tesla T4", 15_843_721_216) == GPUS["T4"]


@pytest.mark.parametrize("name", ["A100", "a100", "RTX 4090 Super Duper", "", "x" * 500])
def test_an_unknown_name_on_the_command_line_is_one_line_with_neighbours(name):
    with pytest.raises(ValueError, match="expected a name such as") as caught:
        gpu_named(name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250
    if name.lower() == "a100":
        assert "A100-80GB-SXM" in str(caught.value)


@pytest.mark.parametrize("name", ["T4", "t4", "Tesla T4", "rtx-4090"])
def test_a_known_name_in_any_case_is_found(name):
    assert gpu_named(name) in GPUS.values()

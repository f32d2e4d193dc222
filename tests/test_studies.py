"""Studies: the committed reports are those of the committed recordings, and what a study's file may and may not say.

`PYTHONPATH=.:tests python tests/test_studies.py` builds the committed reports again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from html import unescape
from pathlib import Path
from shutil import unpack_archive
from typing import Any

import pyarrow.parquet as pq
import pytest
from commands import run_cli
from support import ROOT
from traces import event, kernel, write_trace

import analyze
from analyze.errors import InputError
from analyze.query.selection import DEFAULT
from analyze.report import study_files
from analyze.report.study import FAILS, HOLDS, PARTLY, UNKNOWN, StudyReport, claimed, verdict
from analyze.report.templates import render

STUDIES = sorted(p.parent for p in (ROOT / "studies").glob("*/report.toml"))
RESULTS = ROOT / "docs" / "studies"
EACH = pytest.mark.parametrize("study", STUDIES, ids=lambda p: p.name)


def lines(html: str) -> list[str]:
    """The lines of a page without the library that draws its figures, which has versions of its own."""
    return re.sub(r'<script type="module">.*?</script>', "", html, count=1, flags=re.S).splitlines()


def told(html: str) -> list[str]:
    """The claims of a page as text: verdict, claim and evidence."""
    claims = re.findall(r'<article aria-labelledby="claim-\d+".*?</article>', html, flags=re.S)
    return [unescape(" ".join(re.sub(r"<[^>]+>", " ", c).split())) for c in claims]


def unpacked(study: Path, folder: Path) -> Path:
    """The store of a study, with derived tables, which its archive does not have: they would be old soon."""
    unpack_archive(RESULTS / study.name / "store.zip", folder)
    analyze.compact(folder / "store", jobs=1)
    return folder / "store"


@EACH
def test_committed_report_equals_a_new_one(study: Path, tmp_path: Path) -> None:
    """Byte for byte; some numbers by hand."""
    path = unpacked(study, tmp_path)
    with analyze.open(path) as traces:
        paths = [f"docs/studies/{study.name}/store"]  # which the commands on the page name
        report = StudyReport(study / "report.toml", study.name, traces.stores, paths, DEFAULT)
        page = report.study_page()
    committed = (RESULTS / study.name / "report.html").read_text()
    assert 'class="spec"' in committed and lines(render(page)) == lines(committed)
    assert any(c.verdict != UNKNOWN for c in page.claims) and str(ROOT) not in committed
    BY_HAND[study.name](
        lambda name: report.tables.sql(f"SELECT * FROM {name}").to_arrow_table().to_pylist(),
        partial(parquet, path),
    )


@EACH
def test_every_figure_of_the_study_has_its_row(study: Path) -> None:
    """What a study printed is found from the table of all studies, which leads to where it is answered."""
    coverage = (RESULTS / "README.md").read_text()
    parts = [p for _, _, p in study_files.load(study / "report.toml").parts if p.printed is not None]
    page = (RESULTS / study.name / "report.html").read_text()
    assert parts
    for part in parts:
        assert part.id and f"({study.name}/report.html#{part.id})" in coverage, part.printed
        assert f'id="{part.id}"' in page
    for link in re.findall(rf"\({study.name}/report.html#(\w+)\)", coverage):
        assert f'id="{link}"' in page, link


# --- numbers by hand, straight from the rows of the recordings --------------------------------------------------------

Ask = Callable[[str], list[dict[str, Any]]]
"""What a part of a study answered, by its id."""


Read = Callable[[str, str], list[dict[str, Any]]]
"""Rows of a table of the store, of the runs whose names contain a text."""


def parquet(store: Path, table: str, run: str) -> list[dict[str, Any]]:
    """Read rows of a store of the runs whose names contain `run`."""
    files = sorted((store / table).glob("run_id=*/*.parquet"))
    return [r for f in files if run in f.parent.name for r in pq.read_table(f, partitioning=None).to_pylist()]


def nvprof_imagenet(of: Ask, read: Read) -> None:
    """Numbers of the traces, CSV files and exports that the store was made of, summed by a script of a few lines."""
    cells = {(r["model"], r["batch_size"]): r for r in of("broadcast")}
    # 32 broadcasts of 6.142924 ms in 25.253163 ms of kernels, copies and fills: AlexNet at 4, GPU only.
    shown = cells["alexnet", 4]
    assert (shown["calls"], shown["total_ns"]) == (32, 6_142_924)
    assert shown["gpu_time_pct"] == pytest.approx(100 * 6_142_924 / 25_253_163)
    # VGG-16 at 64: 30 undisturbed steps of 1,927.812834 ms, the middle ones 64.013603 and 64.014717 ms; in four
    # GPU-only steps the two GPUs work 495.365051 ms, kernels take 521.173255 ms, Winograd kernels 25.388166 ms.
    [step] = [r for r in of("steps") if (r["model"], r["batch_size"], r["precision"]) == ("vgg16", 64, "fp32")]
    assert (step["timed"], step["step_ns"]) == (30, (64_013_603 + 64_014_717) / 2)
    assert (step["step_p25_ns"], step["step_p75_ns"]) == pytest.approx((63_952_688.5, 64_058_170.25), abs=0.5)
    assert step["images_per_s"] == pytest.approx(1920e9 / 1_927_812_834)
    assert step["gpu_ns"] == round(495_365_051 / 8)
    [winograd] = [r for r in of("winograd") if (r["model"], r["batch_size"]) == ("vgg16", 64)]
    assert (winograd["winograd_ns"], winograd["kernel_ns"]) == (25_388_166, 521_173_255)
    # 24 kernels max_pool_backward_nchw of 1.171475 ms: AlexNet at 64, GPU only.
    [pooling] = [r for r in of("pooling") if (r["model"], r["batch_size"]) == ("alexnet", 64)]
    assert (pooling["calls"], pooling["total_ns"]) == (24, 1_171_475)
    # Calls that begin in the range "backward" of ResNet-18 at 16: 1,672 launches of 18.337012 ms, all 25.632699 ms.
    [launch] = [r for r in of("launches") if (r["model"], r["batch_size"], r["role"]) == ("resnet18", 16, "launch")]
    assert (launch["calls"], launch["total_ns"]) == (1672, 18_337_012)
    assert launch["phase_time_pct"] == pytest.approx(100 * 18_337_012 / 25_632_699)
    # Nsight Systems, AlexNet at 64: 479 kernels from the start of the second step, of 3 x 228. In its range "backward"
    # calls take 180.704900 ms: cudaMalloc 90.219180, cudaEventDestroy 88.816187, launches 1.307510.
    [kernels] = [r for r in of("nsys_kernels") if (r["model"], r["batch_size"]) == ("alexnet", 64)]
    assert kernels["recorded_pct"] == pytest.approx(100 * 479 / (3 * 228))
    [second] = [r for r in of("backward_steps") if (r["model"], r["batch_size"], r["step"]) == ("alexnet", 64, 1)]
    shares = (second["launch_pct"], second["malloc_pct"], second["event_destroy_pct"])
    assert second["api_ns"] == 180_704_900
    assert shares == pytest.approx([100 * ns / 180_704_900 for ns in (1_307_510, 90_219_180, 88_816_187)])
    # The authors' log has 8.593199 ms, 34.590301 %.
    [log] = [r for r in of("api_log") if r["name"] == "cuDeviceGetAttribute"]
    assert log["total_ns"] == 8_593_199 and log["api_time_pct"] == pytest.approx(34.590301, abs=1e-5)
    # VGG-16 at 32, summed over the CSV of Nsight Compute: fadd + fmul + 2 x ffma.
    [counted] = [r for r in of("flops") if (r["model"], r["batch_size"]) == ("vgg16", 32)]
    assert counted["fp32_flops"] == 1_344_556_601_064


def roofline_imagenet(of: Ask, read: Read) -> None:
    """Numbers of the CSV files and traces that the store was made of, summed by a script of a few lines."""
    # fadd over all launches in the CSV of Nsight Compute; a batch of 256.
    added = {r["model"]: r["fadd_only_per_image"] for r in of("flops")}
    assert added == pytest.approx({"alexnet": 1_552_310_272 / 256, "resnet18": 9_232_328_768 / 256})
    # 64 undisturbed steps, 17 to 80, of one GPU and two: AlexNet 10,907.223695 and 10,021.928257 ms, with waits
    # of 10,675.095272 ms on one GPU; ResNet-18 9,532.146184 and 8,836.836988 ms. 16 steps of ResNet-18 in a row take
    # 1,671.055930 to 2,660.498444 ms on one GPU, 2,034.861877 to 2,450.520807 ms on two.
    epochs = {(r["model"], r["gpus"]): r for r in of("epoch")}
    one = epochs["alexnet", 1]
    assert (one["steps"], one["data_ns"]) == (64, round(10_675_095_272 / 64))
    assert one["images_per_s"] == pytest.approx(64 * 256e9 / 10_907_223_695)
    assert epochs["alexnet", 2]["step_ns"] == round(10_021_928_257 / 64)
    [two] = [r for r in of("scaling") if (r["model"], r["gpus"]) == ("resnet18", 2)]
    assert two["speedup"] == pytest.approx(9_532_146_184 / 8_836_836_988)
    assert two["least_speedup"] == pytest.approx(1_671_055_930 / 2_450_520_807)
    assert two["most_speedup"] == pytest.approx(2_660_498_444 / 2_034_861_877)
    # 70 of the 80 steps waited less than 1 ms; the 35th and 36th by length.
    [ready] = [r for r in of("ready") if (r["model"], r["gpus"]) == ("resnet18", 2)]
    assert (ready["steps"], ready["step_ns"]) == (70, (54_729_889 + 54_736_446) / 2)
    # On the CPU the 14 undisturbed steps 17 to 30.
    assert epochs["alexnet", 0]["steps"] == 14
    assert epochs["alexnet", 0]["images_per_s"] == pytest.approx(14 * 256e9 / 26_869_131_081)
    # 635 samples of 8,023.401 % in all, of the CSV file of ResNet-18 on two GPUs.
    [busy] = [r for r in of("cores") if (r["model"], r["gpus"]) == ("resnet18", 2)]
    assert busy["cpu_busy_pct"] == pytest.approx(8023.401 / 635)
    # 66 NCCL kernels of 9,281.660 us in the GPU-only trace of AlexNet on two GPUs.
    [communication] = [
        r for r in of("families") if (r["model"], r["gpus"], r["family"]) == ("alexnet", 2, "communication")
    ]
    assert (communication["calls"], communication["total_ns"]) == (66, 9_281_660)
    # AlexNet's convolutions and linear layers have 714,188,480 multiply-adds for an image of 224 x 224.
    [model] = [r for r in of("model_flops") if r["model"] == "alexnet"]
    assert model["image_flops"] == 2 * 714_188_480
    # 3354 / 1177 s, as the study printed them.
    printed = {(r["model"], r["gpus"]): r["epoch_s"] for r in of("epoch_printed")}
    assert printed["alexnet", 0] / printed["alexnet", 1] == pytest.approx(2.8496, abs=1e-4)


def efficientnet_scaling(of: Ask, read: Read) -> None:
    """Numbers of the Chrome traces and CSV files that the store was made of, counted by a script of a few lines."""
    ops = {r["name"]: r for r in of("b0_1")}
    # 243 complete events "aten::conv2d" of 17.135082 ms; kernels, copies and fills of 34.335414 ms;
    # 10.915143 ms of them have the External id of an aten::cudnn_batch_norm. torch's key_averages() has the same.
    assert (ops["aten::conv2d"]["calls"], ops["aten::conv2d"]["total_cpu_ns"]) == (243, 17_135_082)
    assert ops["aten::cudnn_batch_norm"]["self_device_ns"] == 10_915_143
    assert ops["aten::cudnn_batch_norm"]["self_device_pct"] == pytest.approx(100 * 10_915_143 / 34_335_414)
    device = [r["total_device_ns"] for r in of("b0_1")]
    assert device == sorted(device, reverse=True)
    # 81 convolutions and 49 batch norms in a forward pass, in the study as here.
    printed = {r["name"]: r["calls"] for r in of("b0_1_printed")}
    for name in ("aten::convolution", "aten::cudnn_convolution", "aten::cudnn_batch_norm", "aten::silu_"):
        assert printed[name] / printed["DataParallel.forward"] == ops[name]["calls"] / 3
    # No event "aten::convolution" of two replicas; 28,083 of cudaPeekAtLastError; 3,474 kernels in three steps. Of four
    # replicas none, 60,390, 6,894, and GPU work of 55.546423 ms (51.588177 of kernels, 3.958246 of copies).
    assert "aten::convolution" not in {r["name"] for r in of("b0_2") + of("b0_4")}
    cells = {(r["model"], r["parallelism"], r["gpus"], r.get("name")): r for r in of("planning") + of("totals")}
    assert cells["efficientnet_b0", "dp", 2, "cudaPeekAtLastError"]["calls"] == 28_083
    assert cells["efficientnet_b0", "dp", 2, None]["kernels"] == 3_474 / 3
    assert cells["efficientnet_b0", "dp", 4, "cudaPeekAtLastError"]["calls"] == 60_390
    four = cells["efficientnet_b0", "dp", 4, None]
    assert four["kernels"] == 6_894 / 3
    assert four["device_ns"] == round((51_588_177 + 3_958_246) / 3)
    # 30 undisturbed steps, 2 to 31, of 775.588279 ms on one GPU and 7,795.033310 on four; an epoch has 50,000 / 64.
    # Food-101 from step 17 on: 65 steps of 2,392.536889 ms on one GPU, with waits of 1,318.697257 ms; 15 steps on four,
    # with waits of 1.650935 ms; an epoch has 75,750 / 64. Eight steps in a row wait for 44.932356 to 68.852383 % of
    # their time, eight steps of B3 for 0.212263 to 50.093398 %.
    epochs = {
        (r["dataset"], r["model"], r["parallelism"], r["gpus"]): r for r in of("epochs_cifar100") + of("epochs_food101")
    }
    cifar100 = epochs["fake-cifar100", "efficientnet_b0", "dp", 1]
    assert cifar100["timed"] == 30 and cifar100["epoch_ns"] == round(775_588_279 / 30 * 782)
    assert epochs["fake-cifar100", "efficientnet_b0", "dp", 4]["epoch_ns"] == round(7_795_033_310 / 30 * 782)
    food101 = epochs["fake-food101", "efficientnet_b0", "dp", 1]
    assert (food101["timed"], food101["data_ns"]) == (65, round(1_318_697_257 / 65 * 1184))
    assert food101["epoch_ns"] == round(2_392_536_889 / 65 * 1184)
    assert epochs["fake-food101", "efficientnet_b0", "dp", 4]["data_ns"] == round(1_650_935 / 15 * 1184)
    assert (food101["least_data_pct"], food101["most_data_pct"]) == pytest.approx((44.932356, 68.852383))
    b3 = epochs["fake-food101", "efficientnet_b3", "dp", 1]
    assert (b3["least_data_pct"], b3["most_data_pct"]) == pytest.approx((0.212263, 50.093398), abs=1e-6)
    # 24 broadcasts of 0.703180 ms on two GPUs, recorded GPU only; under torch.profiler 0.708879 ms.
    [broadcast] = [
        r
        for r in of("collectives")
        if (r["model"], r["parallelism"], r["gpus"], r["collective"]) == ("efficientnet_b0", "dp", 2, "broadcast")
    ]
    assert (broadcast["calls"], broadcast["total_ns"]) == (24, 703_180)
    # B5: 110 steps of both kinds of images of 17,578.116382 ms on one GPU and, the mean of the ranks, 60 of
    # 3,224.845576 ms with a process for each of four. A third of them: 27 take 4,319.389494 ms, ten 1,593.907120; on
    # four GPUs ten take 486.575735 to 587.146365. B0 on one GPU has 97 steps that waited less than 1 ms.
    scaling = {(r["model"], r["parallelism"], r["gpus"]): r for r in of("scaling")}
    four = scaling["efficientnet_b5", "ddp", 4]
    assert (four["steps"], scaling["efficientnet_b0", "dp", 1]["steps"]) == (60, 97)
    assert four["images_per_s"] == pytest.approx(60 * 64e9 / 3_224_845_576)
    assert four["speedup"] == pytest.approx((60 / 3_224_845_576) / (110 / 17_578_116_382))
    assert four["least_speedup"] == pytest.approx(1_593_907_120 / 587_146_365)
    assert four["most_speedup"] == pytest.approx((10 / 486_575_735) / (27 / 4_319_389_494))
    # Its three steps under torch.profiler on one GPU, 486.306473 and 485.690430 ms; three in a row without take
    # 478.082474 to 479.443024 and 479.461334 to 481.934631 ms.
    [profiled] = [r for r in of("profiled") if (r["model"], r["gpus"]) == ("efficientnet_b5", 1)]
    assert profiled["least_overhead_pct"] == pytest.approx(100 * (485_690_430 / 481_934_631 - 1))
    assert profiled["most_overhead_pct"] == pytest.approx(100 * (486_306_473 / 478_082_474 - 1))


def resnet152_ddp(of: Ask, read: Read) -> None:
    """Likewise, of the traces of one GPU at batches of 128 and 2048, and of four."""
    # 4,438 and 4,896 kernels, GPU work of 64.474020 and 967.433934 ms in two steps; 391 and 25 steps an epoch.
    kernels = {(r["gpus"], r["batch_size"]): r["kernels"] for r in of("calls_full") if r["rank"] == 0}
    device = {(r["gpus"], r["batch_size"]): r["device_ns"] for r in of("cuda_full") if r["rank"] == 0}
    assert (kernels[1, 128], kernels[1, 2048]) == (4_438 * 391 / 2, 4_896 * 25 / 2)
    assert (device[1, 128], device[1, 2048]) == (64_474_020 * 391 / 2, 967_433_934 * 25 / 2)
    # The largest "Total Allocated" of the GPU's allocator events; aten::empty as torch's key_averages() has it.
    peaks = {(r["gpus"], r["batch_size"]): r["allocated_bytes"] for r in of("gpu_peak") if r["rank"] == 0}
    assert (peaks[1, 128], peaks[1, 2048]) == (1_309_514_240, 9_279_041_536)
    empty = {(r["gpus"], r["batch_size"]): r for r in of("allocated_tenth")}
    assert (empty[1, 128]["calls"], empty[1, 128]["self_device_bytes"]) == (3_102 * 20, 1_420_580_864 * 20)
    assert empty[1, 2048]["self_device_bytes"] == 15_605_894_144 * 3 / 2
    # Four GPUs at 1024: 4,578 kernels on each rank, GPU work of 614.465459 ms on rank 0, at most 4,679,795,712 bytes;
    # 13 steps an epoch.
    by_rank = {r["rank"]: r["kernels"] for r in of("kernels_of_ranks") if (r["gpus"], r["batch_size"]) == (4, 1024)}
    assert by_rank == dict.fromkeys(range(4), 4_578 * 13 / 2)
    assert device[4, 1024] == pytest.approx(614_465_459 * 13 / 2, abs=1)
    assert peaks[4, 1024] == 4_679_795_712
    # step_s - data_s of the undisturbed rows of step_metrics.csv: medians of all of the data, and of half.
    epochs = {(r["gpus"], r["batch_size"]): r for r in of("epochs")}
    full, half = 181_968_682.5, 181_765_589.0
    step_ns = (full + half) / 2
    epoch = epochs[4, 1024]
    assert (epoch["recordings"], epoch["least_step_ns"], epoch["most_step_ns"]) == (2, 181_765_589, 181_968_683)
    assert epoch["epoch_ns"] == pytest.approx(step_ns * 13, abs=1)
    assert epoch["images_per_s"] == pytest.approx(4096e9 / step_ns)
    # And of one GPU, where a tenth's is the longest: its step / that of four.
    assert epoch["most_efficiency_pct"] == pytest.approx(100 * 182_265_315 / half)
    assert {r["allocated_bytes"] for r in of("cpu_peak")} == {8}


BY_HAND: dict[str, Callable[[Ask, Read], None]] = {
    "efficientnet-scaling": efficientnet_scaling,
    "resnet152-ddp": resnet152_ddp,
    "nvprof-imagenet": nvprof_imagenet,
    "roofline-imagenet": roofline_imagenet,
}


def test_verdicts() -> None:
    assert verdict([True, True]) == HOLDS and verdict([False]) == FAILS and verdict([True, False]) == PARTLY
    assert verdict([True, None]) == HOLDS and verdict([None, False]) == FAILS
    assert verdict([]) == verdict([None]) == UNKNOWN
    assert claimed([]) == ""


# --- a study of one's own ---------------------------------------------------------------------------------------------

OWN = """
title = "Mine <script>alert(1)</script>"
about = "What it did.\\n\\nWhat is <b>different</b>."
study = { GPUs = "1 x <i>" }

[[section]]
id = "kernels"
title = "Kernels"
text = "Of them & all."

[[section.part]]
id = "shares"
query = "kernel-share"
params = { group = "family" }
by = ["run_id"]
keep = { family = ["gemm", "other"] }
columns = ["family", "total_ns"]
different = "It is."
[section.part.printed]
source = "Table <1>"
columns = { family = "text", total_ns = "ns", share_pct = "%" }
rows = [["gemm", 3000, ""], ["a<b", 1, 2.5]]
figure = "bars y=family x=total_ns"

[[section.part]]
id = "counts"
title = "How many"
sql = "SELECT count(*) AS kernels, sum(dur_ns)::BIGINT AS total_ns FROM kernels"
where = "rank = 0"
figure = "bars y=kernels x=total_ns"

[[section.part]]
id = "convolutions"
query = "winograd-share"
where = "model = 'none'"
lacks = "convolutions"

[[section.part]]
title = "A picture"
printed = { source = "Figure 2", text = "A picture." }

[[claim]]
text = "Matrix products take longest."
source = "p. 1"
sql = "SELECT arg_max(family, total_ns) = 'gemm' AS holds, max(total_ns) AS longest_ns FROM shares"

[[claim]]
text = "Ours is as long as theirs."
source = "p. 1"
sql = "SELECT s.total_ns = p.total_ns AS holds, p.share_pct FROM shares s JOIN shares_printed p USING (family)"

[[claim]]
text = "In part."
source = "p. 1"
sql = "SELECT kernels, kernels > 2 AS holds FROM counts UNION ALL SELECT 0, true UNION ALL SELECT -1, NULL"

[[claim]]
text = "Winograd is used."
source = "p. 1"
sql = "SELECT max(winograd_ns) > 0 AS holds, max(winograd_ns) AS winograd_ns FROM convolutions"

[[measure]]
name = "All <b>"
part = "counts"
sql = "SELECT total_ns, 'of ' || kernels || ' kernels' AS detail FROM counts"

[[measure]]
name = "No figure"
part = "convolutions"
sql = "SELECT max(winograd_ns) AS winograd_ns FROM convolutions"
"""


EVENTS = [
    kernel("ampere_sgemm_128x64_nn", 0, 4), kernel("mine", 5, 1), event("user_annotation", "ProfilerStep#1", 0, 9)
]  # fmt: skip
"""Two kernels: gemm of 4 us, and one of 1 us."""


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "t.json", EVENTS)


def own(folder: Path, text: str) -> Path:
    (folder / "own").mkdir(exist_ok=True)
    (folder / "own" / "report.toml").write_text(text, encoding="utf-8")
    return folder / "own"


def test_user_study(tmp_path: Path, recording: Path) -> None:
    result = run_cli("study", own(tmp_path, OWN), recording, "-o", tmp_path / "a.html")
    assert result.returncode == 0, result.stderr
    assert result.stdout.rstrip().endswith(
        "a.html: Of 4 claims of the study, 1 holds, 1 does not hold, 1 holds in part, 1 cannot be checked here."
    )
    page = (tmp_path / "a.html").read_text()
    assert "<script>alert" not in page and "<b>different" not in page and "<i>" not in page and "a<b" not in page
    assert page.count('class="spec"') == 3
    claims = told(page)
    assert claims[0].startswith("holds Matrix products take longest. p. 1 Evidence:") and "4.000 SQL" in claims[0]
    assert claims[1].startswith("does not hold Ours") and claims[3].startswith("cannot be checked here Winograd")
    assert "2 no 0 yes -1 not decided" in claims[2] and claims[2].startswith("holds in part")
    body = re.sub(r"<script.*?</script>", " ", page.split("<body>")[1], flags=re.DOTALL)
    text = re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", body)))
    assert "Printed: Table <1>" in text and "Not recorded." not in text and "Not recorded; needs convolutions" in text
    # 4 and 1 us; a figure without a value is left out.
    assert "All <b> 5 µs of 2 kernels claims of the study 4" in text and "No figure" not in text
    assert "A picture" in text and "analyze sql 'SELECT count(*)" in text
    assert "-p group=family --by run_id" in text
    # The two ways of naming it, and --where.
    with analyze.open(recording) as traces:
        again = traces.where("rank = 0").study(tmp_path / "own" / "report.toml", tmp_path / "b.html")
    assert [c.verdict for c in again] == [HOLDS, FAILS, PARTLY, UNKNOWN]
    assert "(rank = 0) AND (rank = 0)" in unescape((tmp_path / "b.html").read_text())


def changed(old: str, new: str) -> str:
    assert OWN.count(old) >= 1
    return OWN.replace(old, new, 1)


BAD = {
    "no TOML": ("title = ", "report.toml: not TOML"),
    "no title": (OWN.replace("title = \"Mine", "titel = \"Mine", 1), "report.toml: "),
    "a typo": (changed("lacks =", "lakcs ="), "section[0].part[2]: Object contains unknown field `lakcs`"),
    "a wrong type": (changed("by = [\"run_id\"]", "by = \"run_id\""), "section[0].part[0].by: Expected `array`"),
    "no query": (changed('"kernel-share"', '"kernel-shore"'), "section[0].part[0].query: there is no query"),
    "a path": (changed('"kernel-share"', '"../../x"'), "section[0].part[0].query: there is no query"),
    "a parameter": (changed("group = ", "grupe = "), "section[0].part[0].params: query kernel-share has no parameter"),
    "a column": (changed('["family", "total_ns"]', '["famly"]'), "section[0].part[0].columns: kernel-share has no"),
    "a kept column": (changed("keep = { family", "keep = { model"), "section[0].part[0].keep: kernel-share has no"),
    "a group": (changed('["run_id"]', '["mdoel"]'), "section[0].part[0].by: runs has no column 'mdoel'"),
    "a unit": (changed('"%"', '"percent"'), "section[0].part[0].printed.columns.share_pct: unknown unit"),
    "a short row": (changed('["gemm", 3000, ""]', '["gemm"]'), "section[0].part[0].printed.rows[0]: 1 cells for 3"),
    "no number": (changed("3000", '"3 us"'), "section[0].part[0].printed.rows[0]: total_ns: '3 us' is not"),
    "no finite number": (changed("3000", "nan"), "section[0].part[0].printed.rows[0]: total_ns: nan is not a"),
    "a number as text": (changed('["gemm", 3000', "[7, 3000"), "section[0].part[0].printed.rows[0]: family: 7 is not"),
    "names as lengths": (changed("x=total_ns\"\n\n", "x=family\"\n\n"), "printed.figure: cannot draw family"),
    "a column of SQL": (changed("where = \"rank", "columns = [\"x\"]\nwhere = \"rank"), "columns: the answer has"),
    "a kept one of SQL": (changed("where = \"rank", "keep = { x = [1] }\nwhere = \"rank"), "keep: the answer"),
    "two columns as one": (changed("AS kernels, sum", "AS kernels, 1 AS \\\"KERNELS\\\", sum"), "id: claims"),
    "their figure": (changed("bars y=family", "bars y=famly"), "section[0].part[0].printed.figure: famly is not a"),
    "our figure": (changed("bars y=kernels", "bars y=krnls"), "section[0].part[1]: figure: the answer has no"),
    "a kind": (changed('figure = "bars y=kernels', 'figure = "pie y=kernels'), "section[0].part[1]: figure: unknown"),
    "a nested comment": (
        changed('sql = "SELECT count', "sql = \"/* /* */ EXPLAIN SELECT 1 -- */ COPY (SELECT 42) TO 'x.csv' --"),
        "section[0].part[1]: SQL: only one SELECT",
    ),
    "a profiler": (changed("by = [", 'profiler = "perf"\nby = ['), "section[0].part[0].profiler: must be one of"),
    "both": (changed('sql = "SELECT count', 'query = "runs"\nsql = "SELECT count'), "section[0].part[1].sql: only one"),
    "neither": (changed('query = "winograd-share"', ""), "section[0].part[2].query: expected"),
    "two ids": (changed('id = "counts"', 'id = "shares"'), "section[0].part[1].id: 'shares' is taken"),
    "an anchor": (changed('id = "counts"', 'id = "config"'), "section[0].part[1].id: 'config' is taken"),
    "an id": (changed('id = "counts"', 'id = "x y"'), "section[0].part[1].id: Expected `str` matching regex"),
    "where": (changed("rank = 0", "rank ="), "section[0].part[1]: --where"),
    "a subquery": (changed("rank = 0", "(SELECT true)"), "section[0].part[1]: --where"),
    "a file": (changed("FROM kernels", "FROM read_text('/etc/passwd')"), "section[0].part[1]: SQL: the table function"),
    "no SELECT": (changed("SELECT arg_max", "DROP TABLE shares; SELECT arg_max"), "claim[0].sql: only one SELECT"),
    "their file": (changed("FROM shares\"", "FROM '/etc/passwd'\""), "claim[0].sql: there is no table"),
    "no table": (changed("FROM counts", "FROM count"), "claim[2].sql: there is no table 'count'"),
    "no verdict": (changed("AS holds, max", "AS hold, max"), "claim[0].sql: a column `holds` must say"),
    "no boolean": (changed("kernels > 2 AS holds", "kernels AS holds"), "claim[2].sql: "),
    "no part": (changed('part = "counts"', 'part = "count"'), "measure[0].part: no part has the id 'count'"),
    "another column": (changed("' kernels' AS detail FROM", "'' AS more FROM"), "measure[0].sql: expected one row"),
    "a text": (changed("SELECT total_ns, 'of", "SELECT 'a' AS n, 'of"), "measure[0].sql: n: 'a' is not a number"),
    "a setting": (changed("max(total_ns) AS", "getenv('HOME') AS"), "claim[0].sql: the function 'getenv'"),
}  # fmt: skip


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[analyze.Traces]:
    with analyze.open(write_trace(tmp_path_factory.mktemp("bad") / "t.json", EVENTS)) as traces:
        yield traces


@pytest.mark.parametrize("case", BAD)
def test_invalid_study_is_one_sentence_naming_the_key(case: str, tmp_path: Path, opened: analyze.Traces) -> None:
    text, sentence = BAD[case]
    with pytest.raises(InputError) as raised:
        opened.study(own(tmp_path, text), tmp_path / "a.html")
    assert str(raised.value).startswith(f"{tmp_path / 'own' / 'report.toml'}: ") and sentence in str(raised.value)
    assert "\n" not in str(raised.value) and not (tmp_path / "a.html").exists()


def test_study_command_output(tmp_path: Path, recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = run_cli("study")
    assert {line.split(":")[0] for line in listed.stdout.splitlines()} >= {s.name for s in STUDIES}
    for arguments, sentence in (
        (["nothing"], "no study 'nothing'; known studies: "),
        ([tmp_path], f"{tmp_path}: not a study: no report.toml in it"),
        (["nvprof-imagenet", recording], "runs and output are missing"),
        (["nvprof-imagenet", recording, "-o", tmp_path / "a.pdf"], "the name of a report must end in .html"),
    ):
        result = run_cli("study", *arguments)
        assert (result.returncode, result.stdout) == (2, "") and sentence in result.stderr
        assert "Traceback" not in result.stderr
    # In a folder with studies of its own these come first; installed, those of the package are there.
    (tmp_path / "studies").mkdir()
    own(tmp_path / "studies", OWN)
    monkeypatch.chdir(tmp_path)
    assert study_files.find_file("own") == Path("studies/own/report.toml")
    assert analyze.studies()["own"].startswith("Mine") and "nvprof-imagenet" in analyze.studies()


def test_study_without_recordings_names_what_to_record(tmp_path: Path, opened: analyze.Traces) -> None:
    """None of its cells: each lacks a sentence that says what to record, and no claim is decided without numbers."""
    claims = opened.study("roofline-imagenet", tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert "collect sweep studies/roofline-imagenet/ncu.toml" in page
    assert {c.verdict for c in claims} == {UNKNOWN}


if __name__ == "__main__":
    for made in STUDIES:
        folder = (RESULTS / made.name).relative_to(ROOT)
        with analyze.open(unpacked(made, folder)) as recordings:
            recordings.study(made.name, folder / "report.html")

"""The coverage table in docs/studies: a row for every table and figure, and each row links a result."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from typing import NamedTuple

import pytest
from support import ROOT

from analyze.query.query_files import catalog

RESULTS = ROOT / "docs" / "studies"
TEXT = (RESULTS / "README.md").read_text(encoding="utf-8")


class Row(NamedTuple):
    """A row of the table of a study."""

    shows: str
    question: str
    ours: str
    agrees: str


def rows(study: str) -> list[Row]:
    _, _, section = TEXT.partition(f"### {study}\n")
    lines = [line for line in section.partition("\n### ")[0].splitlines() if line.startswith("| ")]
    return [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines[2:]]


PRINTED = {
    # Slides: six tables, five charts with captions, slides of charts without. README: eight charts, the same tables.
    "efficientnet-scaling": [
        *(f"Profiling Results on {m} using {n} GPU{'s' if n > 1 else ''}" for n in (1, 2, 4) for m in ("B0", "B3")),
        *(
            f"DataLoading + Training time for EfficientNet-{model} for {data} Dataset (using 4GPU)"
            for model, data in (
                ("b0", "Food101"), ("b3", "Cifar100"), ("b5", "Food101"), ("b0", "Cifar100"), ("b3", "Food101")
            )
        ),
        "Experimental Evaluation",
        *(f"Batch_Time_{n}_GPUs_{data}" for n in (1, 2, 4) for data in ("Cifar-100", "Food101")),
        "Cifar-100 Top-1 Accuracy", "Food101-Top1 Accuracy",
        # In the text.
        "more kernel calls", "not exactly half", "shares of self time decrease", "data loading is significant",
        "DataParallel minimizes", "minimal overhead", "GPU memory consumption, CPU usage, network I/O",
    ],
    "resnet152-ddp": [
        *(f"Figure {n}: CPU Runtime" for n in (1, 3, 5)),
        *(f"Figure {n}: CUDA Runtime" for n in (2, 4, 6)),
        *(f"Figure {n}: Total number of calls" for n in (7, 8, 9)),
        *(f"Figure {n}: Maximum CPU memory transfer" for n in (10, 12, 14)),
        *(f"Figure {n}: Maximum GPU memory transfer" for n in (11, 13, 15)),
        "4.2.3", "4.2.4", "4.3.1", "4.3.2",
    ],
    # Its charts have neither numbers nor captions: in the order of its text.
    "nvprof-imagenet": [
        "Visual Profiler's four findings", "ncclBroadcastKernel by batch", "Winograd kernels by batch",
        "names of the Winograd kernels", "two ring charts", "cudaLaunchKernel's share", "cudaEventDestroy",
        "memory API calls differ between GPUs", "MaxPoolBackward's share", "FLOP counts",
    ],
    "roofline-imagenet": [
        "Figure 1:", "Figure 2:", "Figure 3:", "4.1, 4.2: FLOPs of an image", "3,566,912 and 36,347,700",
        "60 million and 11.7 million parameters", "5: time of the first epoch",
    ],
}  # fmt: skip
"""Every table, figure and measurement of the five texts, as they name them."""

STUDY = pytest.mark.parametrize("study", PRINTED)


@STUDY
def test_every_table_and_figure_has_a_row(study: str) -> None:
    found = [row.shows for row in rows(study)]
    assert [what for what in PRINTED[study] if sum(what in shows for shows in found) != 1] == []
    # And none that the studies do not have.
    assert [shows for shows in found if not any(what in shows for what in PRINTED[study])] == []


@STUDY
def test_every_listed_query_runs(study: str) -> None:
    """Each is a query with parameters that it has, `analyze sql`, or none and why."""
    for row in rows(study):
        asked = re.findall(r"`([^`]+)`", row.question)
        assert asked or row.question == "none", row
        for line in asked:
            name, *words = shlex.split(line)
            if line == "analyze sql":
                continue
            query = catalog()[name]
            params = dict(w.split("=", 1) for flag, w in pairwise(words) if flag == "-p")
            _, _, choices = query.bind(params)
            columns = [c.name for c in query.result_columns(choices)]
            sorts = [w.removeprefix("--sort=").lstrip("-") for w in words if w.startswith("--sort=")]
            assert set(sorts) <= set(columns) and len(words) == 2 * len(params) + len(sorts), line


@STUDY
def test_every_row_links_a_figure_and_has_a_verdict(study: str) -> None:
    page = (RESULTS / study / "report.html").read_text(encoding="utf-8")
    for row in rows(study):
        links = re.findall(r"\]\(([^)]+)\)", row.ours)
        assert links and row.agrees, row
        for link in links:
            file, _, anchor = link.partition("#")
            assert file == f"{study}/report.html" and f'id="{anchor}"' in page, link


def test_the_claims_are_counted_as_in_the_reports() -> None:
    for study in PRINTED:
        page = (RESULTS / study / "report.html").read_text(encoding="utf-8")
        verdicts = re.findall(r'id="claim-\d+"><span class="verdict">([^<]+)</span>', page)
        [counted] = re.findall(rf"\[{study}\]\([^)]+\) \| ([^|]+) \|", TEXT)
        numbers = [int(n) for n in re.findall(r"\d+", counted)]
        kinds = ("holds", "does not hold", "holds in part", "cannot be checked here")
        counts = [verdicts.count(kind) for kind in kinds]
        assert numbers == [counts[0], sum(counts), *(n for n in counts[1:] if n)], (study, counted)

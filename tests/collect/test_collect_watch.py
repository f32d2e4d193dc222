"""Jobs of days: recordings on demand, by rules, of all ranks together, and bounded."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from collect_support import Collect, Ran, environment, interrupt, names, read_trace, start, two_ranks, wait_for

import analyze
from collect.injected.step_rules import StepRules
from collect.option_checks import make_options
from schemas.errors import InputError
from schemas.manifest import Manifest, read_manifest

ANOMALIES = (20_000, 50_000, 90_000)
WEEK = f"""
import resource, sys, time, torch
torch.set_num_threads(1)
weight = torch.nn.Parameter(torch.ones(2))
weight.grad = torch.ones(2)
optimizer = torch.optim.SGD([weight], lr=0.001)
for step in range(100_000):
    if any(first <= step < first + 12 for first in {ANOMALIES}):
        time.sleep(0.1)
    optimizer.step()
    if step in (4_000, 99_999):
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
RANKS = """
import sys, time, torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(180):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.3 if dist.get_rank() == 1 and 100 <= step < 130 else 0.01)
dist.destroy_process_group()
"""
SERVER = """
import signal, sys, time, torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
print("ready", flush=True)
while True:
    model(torch.ones(2, 4))
    time.sleep(0.01)
"""


def recordings(folder: Path) -> dict[str, Manifest]:
    """The recordings of a job by the end of their names."""
    found = {p.name.removeprefix(f"{folder.name}-"): p for p in folder.iterdir() if (p / "run.json").exists()}
    return {name: read_manifest(path) for name, path in found.items()}


def recorded_steps(folder: Path, name: str, rank: int = 0) -> list[int]:
    trace = read_trace(folder / f"{folder.name}-{name}/torch/rank-{rank}.trace.json.gz")
    return sorted(int(n.rpartition("#")[2]) for n in names(trace, "user_annotation") if n.startswith("ProfilerStep#"))


def test_week_with_three_anomalies(collect: Collect, tmp_path: Path) -> None:
    (script := tmp_path / "train.py").write_text(WEEK)
    rule = ["--when", "step > 50 ms for 3 steps", "--steps", "3"]
    ran = collect(*rule, "--", sys.executable, str(script))
    assert ran.code == 0, ran.stderr
    found = recordings(ran.folder)
    slow = sorted(int(name.removeprefix("slow-step-")) for name in found if name.startswith("slow"))
    usual = [name for name in found if name.startswith("usual")]
    assert len(usual) == 1 and len(found) == 1 + len(slow)
    # A step ends with the optimizer's, so an anomaly is known when its third step has ended, and the next one warms up.
    assert slow == [first + 2 for first in ANOMALIES]
    for number in slow:
        name = f"slow-step-{number}"
        assert recorded_steps(ran.folder, name) == [number + 2, number + 3, number + 4]
        assert (found[name].trigger or "").startswith(f"step {number} took ")
        rank = found[name].passes[0].ranks[0]
        assert (rank.recorded_step_ns or 0) > 50e6 and (rank.undisturbed_step_ns or 0) > 50e6
    # Memory does not grow with the number of steps.
    before, after = map(int, ran.stdout.split())
    assert after - before < 20
    # One command compares a slow step with a usual one.
    a, b = (str(ran.folder / f"{ran.folder.name}-{name}") for name in (usual[0], f"slow-step-{slow[0]}"))
    assert analyze.compare(a, b, level="op", time="cpu").answer.rows()
    # The state of the machine is that of the slow steps, which came before the recording, and of the recorded ones.
    with analyze.open(b) as traces:
        sampled = traces.sql("SELECT start_ns FROM counters WHERE name = 'available_memory_bytes'").rows()
        first_ns, last_ns = traces.sql("SELECT min(start_ns), max(end_ns) FROM step_ranges").rows()[0]
    samples = [at for (at,) in sampled]
    assert min(samples) < first_ns - 0.3e9 and sum(first_ns <= at < last_ns for at in samples) > 1


def test_ranks_record_together(collect: Collect, tmp_path: Path) -> None:
    (script := tmp_path / "train.py").write_text(RANKS)
    rules = ["--when", "step > 5 x median for 3 steps", "--at-step", "10..11", "--steps", "3"]
    ran = collect(*rules, "--", *two_ranks(script))
    assert ran.code == 0, ran.stderr
    found = recordings(ran.folder)
    assert len(found) == 3 and "at-step-10" in found
    for name, manifest in found.items():
        assert manifest.world_size == 2
        assert [(r.rank, r.aligned, r.note) for r in manifest.passes[0].ranks] == [(0, True, None), (1, True, None)]
        assert recorded_steps(ran.folder, name, 0) == recorded_steps(ran.folder, name, 1)
    assert recorded_steps(ran.folder, "at-step-10") == [10, 11]
    [slow] = [name for name in found if name.startswith("slow")]
    assert 103 < recorded_steps(ran.folder, slow)[0] < 127


def test_server_on_demand(tmp_path: Path) -> None:
    (script := tmp_path / "serve.py").write_text(SERVER)
    runs = tmp_path / "runs"
    options = ["run", "-o", str(runs), "--on-demand", "--steps", "2", "--keep", "2"]
    child = start(*options, "--", sys.executable, str(script))
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    [folder] = runs.iterdir()
    command = [sys.executable, "-m", "collect", "trigger", str(folder)]
    triggers = [
        lambda: child.send_signal(signal.SIGUSR2),
        lambda: subprocess.run([*command, "--steps", "3"], check=True, env=environment(), timeout=60),
        lambda: (folder / "trigger").touch(),
        lambda: subprocess.run([*command, "--seconds", "0.5"], check=True, env=environment(), timeout=60),
    ]
    seen: set[str] = set()
    for number, trigger in enumerate(triggers, start=1):
        trigger()
        seen |= wait_for(lambda: recordings(folder).keys() - seen, f"recording {number}")  # noqa: B023
        assert len(seen) == number
    code, _, stderr = interrupt(child)
    assert code == 0, stderr
    left = recordings(folder)
    last = sorted(seen)[-2:]  # names have the time
    assert left.keys() == set(last)
    for name, reason, least, most in zip(last, ("--steps 3", "--seconds 0.5"), (3, 1), (3, 50), strict=True):
        [done] = left[name].passes
        trace = read_trace(folder / f"{folder.name}-{name}/torch/rank-0.trace.json.gz")
        assert left[name].trigger == f"collect trigger {reason}" and done.status == "done"
        # Calls come 10 ms or more after each other.
        assert least <= (done.counted_steps or 0) <= most
        assert names(trace, "cpu_op").count("aten::linear") == done.counted_steps
    ends_us = sorted(
        (e["ts"], e["ts"] + e["dur"]) for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep#")
    )
    # It ends with the first step that ends after half a second; its clock starts a little before or after the range.
    assert ends_us[-1][1] - ends_us[0][0] > 0.49e6 > ends_us[-2][1] - ends_us[0][0] - 0.02e6
    ended = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert ended.returncode == 2 and "no job of `collect run --on-demand` is running here" in ended.stderr


COSTS = """
import sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
calls = 0
def count(frame, event, argument):
    global calls
    calls += event == "call" and "injected" in frame.f_code.co_filename
def ns(work):
    start = time.process_time_ns()
    for _ in range(100):
        work()
    return (time.process_time_ns() - start) / 100
sys.setprofile(count)
ns(lambda: model(torch.ones(2, 4)))
print(calls)
ns(optimizer.step)
sys.setprofile(None)
print(calls)
alone = type(optimizer).step.__wrapped__
rounds = [(ns(optimizer.step), ns(lambda: alone(optimizer))) for _ in range(20)]
print(min(watched for watched, _ in rounds) - min(plain for _, plain in rounds))
start = time.process_time_ns()
time.sleep(1)
print(time.process_time_ns() - start)
print(torch.autograd._profiler_enabled())
"""


def test_cost_before_a_trigger(collect: Collect, tmp_path: Path) -> None:
    """Calls of modules run none of the recorder's code; a step of an optimizer takes 8 us more (docs/collect.md)."""
    (script := tmp_path / "train.py").write_text(COSTS)
    ran = collect("--on-demand", "--", sys.executable, str(script))
    in_module_calls, in_steps, step_ns, idle_ns, profiles = ran.stdout.split()
    assert in_module_calls == "0" and int(in_steps) > 0  # the count works
    assert float(step_ns) < 5 * 8_000  # on a slow machine
    assert float(idle_ns) < 0.02 * 1e9  # the thread that looks for a trigger
    assert profiles == "False" and recordings(ran.folder) == {}


SLOW_STEPS = """
import time, torch
weight = torch.ones(1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(100):
    weight.sum().backward()
    time.sleep({30: 0.4, 45: 0.8, 60: 1.2, 75: 0.6, 90: 1.0}.get(step, 0.05))
    optimizer.step()
"""


def test_recordings_of_the_slowest_steps_stay(collect: Collect, tmp_path: Path) -> None:
    """On a busy machine other steps are slow, too, or come too soon: what stays is compared with what was recorded."""
    (script := tmp_path / "train.py").write_text(SLOW_STEPS)
    ran = collect("--slowest", "2", "--steps", "1", "--", sys.executable, str(script))
    assert ran.code == 0, ran.stderr
    said = re.findall(r"^recorded: \S+-(slow-step-\d+) \(step \d+ took ([\d,.]+) ms", ran.stderr, flags=re.M)
    took_ms = {name: float(ms.replace(",", "")) for name, ms in said}
    slowest = sorted(took_ms, key=lambda name: took_ms[name])[-2:]
    assert len(took_ms) > 2 and min(took_ms[name] for name in slowest) > 500
    found = recordings(ran.folder)
    assert {name for name in found if not name.startswith("usual-step-")} == {*slowest}
    assert len(found) == 3


def test_nothing_triggered_a_recording(collect: Collect) -> None:
    ran: Ran = collect("--every", "1000", "--", sys.executable, "-c", "print(1); raise SystemExit(3)")
    assert ran.code == 3 and ran.stdout == "1\n"
    assert recordings(ran.folder) == {}


def wishes(rules: StepRules, times_ms: Sequence[float]) -> list[str]:
    """The recordings of steps with these times. Each is accepted."""
    found = []
    for number, ms in enumerate(times_ms):
        if wish := rules.step_ended(number, round(ms * 1e6)):
            found.append(wish.name)
            rules.accept(wish)
    return found


def rules_of(**rules: object) -> StepRules:
    return StepRules({"when": None, "slowest": None, "every": None, "at_step": None, **rules})


def test_rules_of_steps() -> None:
    usual = [10.0] * 30
    assert wishes(rules_of(every=20), usual + usual) == ["every-step-20", "every-step-40", "every-step-60"]
    assert wishes(rules_of(at_step=[7, 9]), usual) == ["at-step-7"]
    assert wishes(rules_of(at_step=[0, 1]), usual) == ["at-step-2"]
    # Steps of one anomaly are found once, until there were ten usual steps.
    slow = [*usual, 30, 10, 30, *usual, 16, 14, *usual]
    assert wishes(rules_of(when="step > 1.5 x median"), slow) == ["usual-step-22", "slow-step-30", "slow-step-63"]
    assert wishes(rules_of(when="step > 20 ms for 2 steps"), [*usual, 21, 10, 21, 21]) == [
        "usual-step-22",
        "slow-step-33",
    ]
    # Each slower than the slowest so far, then only those above the second slowest.
    growing = [ms for peak in (20, 30, 25, 22, 40) for ms in (*usual, peak)]
    assert wishes(rules_of(slowest=2), growing) == [
        "usual-step-22",
        "slow-step-30",
        "slow-step-61",
        "slow-step-92",
        "slow-step-154",
    ]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"when": "step > x"}, "expected 'step > 1.5 x median' or 'step > 200 ms'"),
        ({"at_step": "9..5"}, "expected FIRST..LAST"),
        ({"when": "step > 2 x median", "slowest": 3}, "choose either --when or --slowest"),
        ({"every": 5, "profiler": "nsys"}, "records with --profiler torch only"),
        ({"on_demand": True, "program": (), "model": "alexnet"}, "needs a program of your own"),
    ],
)
def test_invalid_rules(values: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        make_options({"program": ("python", "train.py"), **values})

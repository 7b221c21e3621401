#!/usr/bin/env python3
"""Runs schedules that Sluice exports on PyTorch, and compares gradients.

usage: exported.py SLUICE      (a Python with torch; processes talk by gloo)

Each schedule is written as `compute_only` and as `compute_comms` CSV, loaded by
torch.distributed.pipelining's _PipelineScheduleRuntime in four processes, and
run for one step on a small model; the gradients must be those of one process
that computes the same microbatches one after the other. Then the files of the
other rows show what PyTorch's own checks say of lists that `sluice check`
refuses. Prints a line a file; the exit code says whether all held. A command of
its own: PyTorch is large, and no part of the build needs it.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

RANKS, MICROBATCHES, WIDTH, ROWS = 4, 8, 16, 4
SCHEDULES = {  # name: stages a rank, backward
    "1f1b": (1, "fused"), "interleaved-1f1b": (2, "fused"), "zb-v": (2, "split"), "zb-h1": (1, "split"),
    "gpipe": (1, "fused"), "dualpipev": (2, "split"),
}
# What one of the lists below has wrong, and the lists, of two ranks and two
# microbatches.
FAULTY = {
    "a duplicate": "0F0,0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
    "a microbatch 9": "0F0,0F9,0B0,0B9\n1F0,1F9,1B0,1B9\n",
    "a missing backward": "0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n",
    "rubbish behind a cell": "0F0xyz,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
    "orders in a circle": "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n",
}


def block(stage):
    torch.manual_seed(stage)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()).double()


def batch():
    torch.manual_seed(99)
    return (torch.randn(MICROBATCHES * ROWS, WIDTH, dtype=torch.double),
            torch.randn(MICROBATCHES * ROWS, WIDTH, dtype=torch.double))


def loss_of(output, target):
    return torch.nn.functional.mse_loss(output, target)


def expected(stages):
    """Gradients of each stage, microbatches one after the other."""
    model = torch.nn.Sequential(*[block(stage) for stage in range(stages)])
    inputs, targets = batch()
    for x, y in zip(inputs.chunk(MICROBATCHES), targets.chunk(MICROBATCHES)):
        (loss_of(model(x), y) / MICROBATCHES).backward()
    return [[parameter.grad for parameter in part.parameters()] for part in model]


def stages_of(path):
    """The stages of each row."""
    rows = []
    for line in pathlib.Path(path).read_text().split():
        cells = line.replace("(", "").replace(")", ",").replace(";", ",").split(",")
        rows.append(sorted({int(cell.split("F")[0]) for cell in cells if cell[:1].isdigit() and "F" in cell
                            and cell.split("F")[0].isdigit()}))
    return rows


def work(rank, path, form, port, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    try:
        results[rank] = run_rank(rank, path, form)
    except Exception:  # told by the parent
        results[rank] = traceback.format_exc(limit=-1).strip().splitlines()[-1]
    dist.destroy_process_group()


def run_rank(rank, path, form):
    rows = stages_of(path)
    count = sum(map(len, rows))
    stages = [PipelineStage(block(s), s, count, torch.device("cpu")) for s in rows[rank]]
    schedule = _PipelineScheduleRuntime(stages, MICROBATCHES, loss_fn=loss_of)
    schedule._load_csv(path, format=form)
    inputs, targets = batch()
    arguments = (inputs,) if 0 in rows[rank] else ()
    target = targets if count - 1 in rows[rank] else None
    schedule.step(*arguments, target=target, losses=[])
    wanted = expected(count)
    largest = 0.0
    for stage in stages:
        for got, want in zip(stage.submod.parameters(), wanted[stage.stage_index]):
            assert want.abs().max() > 0
            largest = max(largest, float((got.grad - want).abs().max() / want.abs().max()))
    return largest


def torch_runs(path, form, port):
    """The largest relative difference of a gradient, or what failed."""
    manager = mp.Manager()
    results = manager.dict()
    context = mp.spawn(work, (str(path), form, port, results), RANKS, join=False)
    deadline = time.monotonic() + 120
    while not context.join(timeout=1):
        if time.monotonic() > deadline:
            for process in context.processes:
                process.kill()
            return "no end after 120 s"
    faults = [value for value in results.values() if isinstance(value, str)]
    return faults[0] if faults else max(results.values())


def sluice(tool, *arguments, stdin=None):
    return subprocess.run([tool, *arguments], input=stdin, capture_output=True, text=True)


def spec(schedule):
    chunks, backward = SCHEDULES[schedule]
    fused = f", backward: {backward}" if backward == "fused" else ""
    return (f"sluice: 1\nmodel: {{layers: [{{repeat: 8, forward: 1, backward: 2}}]}}\n"
            f"pipeline: {{ranks: {RANKS}, virtual_stages: {chunks}, microbatches: {MICROBATCHES}, "
            f"schedule: {schedule}{fused}}}\n")


def exported(tool, folder):
    good, port = True, 29600
    for schedule in SCHEDULES:
        for form, emit in (("compute_only", "torch-csv"), ("compute_comms", "torch-csv-comms")):
            path = folder / f"{schedule}.{form}.csv"
            done = sluice(tool, "compile", "-", f"--emit={emit}", "-o", str(path), stdin=spec(schedule))
            if done.returncode != 0:
                print(f"{schedule} {form}: not written: {done.stderr}")
                good = False
                continue
            checked = sluice(tool, "check", str(path)).returncode == 0
            port += 1
            result = torch_runs(path, form, port)
            fine = checked and isinstance(result, float) and result < 1e-12
            good &= fine
            print(f"{schedule} {form}: check {'ok' if checked else 'refused'}, "
                  f"PyTorch {'gradients differ by at most ' + format(result, '.1e') if isinstance(result, float) else result}",
                  flush=True)
    return good


def load_only(path):
    """What PyTorch says when it loads a list for two ranks, without a group."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29590")
    try:
        stages = [PipelineStage(block(0), 0, 2, torch.device("cpu"))]
        _PipelineScheduleRuntime(stages, 2, loss_fn=loss_of)._load_csv(str(path))
    except Exception as fault:
        return f"refuses it: {str(fault).splitlines()[0][:90]}"
    return "loads it"


def faulty(tool, folder):
    good = True
    dist.init_process_group("fake", rank=0, world_size=2, store=dist.HashStore())
    for name, text in FAULTY.items():
        path = folder / "faulty.csv"
        path.write_text(text)
        done = sluice(tool, "check", str(path))
        good &= done.returncode == 1
        message = next((line for line in done.stdout.splitlines() if "error: " in line), done.stdout)
        print(f"{name}: check says '{message.split('error: ')[-1][:90]}', PyTorch {load_only(path)}")
    dist.destroy_process_group()
    return good


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(f"torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        good = exported(sys.argv[1], folder)
        good = faulty(sys.argv[1], folder) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""transports.py [--sluice=PROGRAM]: what a message and a step cost in threads
and in processes under mpirun, side by side. A message: two ranks, one
microbatch after the other, nothing computed; the time of a step over its
messages, which all wait for each other. A step: a small gpt."""

import argparse
import os
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1"}
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}
MESSAGES = """sluice: 1
model: {{layers: [{{name: layer, repeat: 2, forward: 0, backward: 0, output_bytes: {bytes}}}]}}
pipeline: {{ranks: 2, microbatches: {microbatches}, schedule: naive}}
run: {{module: synthetic}}
"""
GPT = """sluice: 1
model:
  transformer: {{layers: 8, hidden: 128, ffn: 512, heads: 4, vocab: 256, sequence: 64, dtype: fp32}}
pipeline: {{ranks: {ranks}, microbatches: 8, schedule: 1f1b}}
run: {{data: {data}}}
"""


def step_seconds(program, job, processes, steps):
    """The median that the run prints; in threads without `processes`."""
    launcher = ["mpirun", "-n", str(processes)] if processes else []
    done = subprocess.run([*launcher, program, "run", job, f"--steps={steps}"], capture_output=True, text=True,
                          env=ENVIRONMENT, check=True)
    number, unit = re.search(r"measured ([0-9.]+) ?(\w+) \(median", done.stdout).groups()
    return float(number) * UNITS[unit]


def best(program, job, processes):
    """Of three runs, since others may use the machine."""
    return min(step_seconds(program, job, processes, 41) for _ in range(3))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--sluice", default=ROOT / "build/release/bin/sluice")
    program = parser.parse_args().sluice
    print("| | threads | mpirun |\n|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="sluice-transports-") as name:
        job = pathlib.Path(name, "job.yaml")
        for size, shown, microbatches in (8, "8 B", 500), (64 << 10, "64 KiB", 200), (8 << 20, "8 MiB", 10):
            job.write_text(MESSAGES.format(bytes=size, microbatches=microbatches))
            times = [best(program, job, processes) / (2 * microbatches) for processes in (0, 2)]
            print(f"| a message of {shown} | {times[0] * 1e6:.1f} µs | {times[1] * 1e6:.1f} µs |", flush=True)
        for ranks in 2, 4:
            job.write_text(GPT.format(ranks=ranks, data=ROOT / "LICENSE"))
            times = [best(program, job, processes) for processes in (0, ranks)]
            print(f"| a step of gpt (8 layers, hidden 128), {ranks} ranks | {times[0] * 1e3:.1f} ms | "
                  f"{times[1] * 1e3:.1f} ms |", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""mpi_soak.py [--steps=1000]: a command of its own. Trains a small gpt over four
processes while as many others as there are cores compute without end, and reads
what memory of each process is resident after a tenth of the steps and near the
last. Right: no process has grown by more than 1 MiB, and the weights are those
of an undisturbed run in threads. SLUICE as in the tests of the command line."""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import sluice
from mpi_faults import ENVIRONMENT

RANKS, MOST = 4, 1024  # KiB
SPEC = """sluice: 1
model:
  transformer: {{layers: 4, hidden: 32, ffn: 64, heads: 2, vocab: 256, sequence: 16, dtype: fp32}}
pipeline: {{ranks: 4, microbatches: 8, schedule: 1f1b}}
run: {{data: {data}, steps: {steps}, learning_rate: 0.01}}
"""
NOTE = 'echo $$ > "pid-$OMPI_COMM_WORLD_RANK"; exec "$@"'


def resident(folder):
    """KiB of each process."""
    sizes = []
    for rank in range(RANKS):
        status = pathlib.Path("/proc", (folder / f"pid-{rank}").read_text().strip(), "status").read_text()
        sizes.append(int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]))
    return sizes


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory(prefix="sluice-soak-") as name:
        folder = pathlib.Path(name)
        (folder / "data.txt").write_bytes((sluice.ROOT / "LICENSE").read_bytes()[:8000])
        job = folder / "job.yaml"
        job.write_text(SPEC.format(data=folder / "data.txt", steps=steps))
        sluice.run("run", job, "-q", f"--save={folder / 'threads'}", timeout=1200)
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count())]
        start, sizes = time.monotonic(), {}
        try:
            process = subprocess.Popen(["mpirun", "-n", str(RANKS), "bash", "-c", NOTE, "bash", sluice.SLUICE, "run",
                                        job, f"--save={folder / 'here'}", "--timeout=120"], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE, text=True, cwd=folder, env=ENVIRONMENT,
                                       stdin=subprocess.DEVNULL)
            for line in process.stderr:  # a line for every tenth of the steps
                if found := re.match(r"step (\d+)/", line):
                    done = int(found[1])
                    if steps // 10 <= done < steps:
                        sizes[done] = resident(folder)
                        print(f"after {done} steps: {sizes[done]} KiB resident", flush=True)
                else:
                    print(line, end="")
            code = process.wait()
        finally:
            for other in others:
                other.kill()
        same = code == 0 and (folder / "here").read_bytes() == (folder / "threads").read_bytes()
        grown = [last - first for first, last in zip(sizes[min(sizes)], sizes[max(sizes)])]
        print(f"{time.monotonic() - start:.0f} s; from step {min(sizes)} to {max(sizes)} the ranks have grown by {grown} "
              f"KiB; the weights are {'those' if same else 'NOT those'} of the threads")
        return 0 if same and max(grown) <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())

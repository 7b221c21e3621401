#!/usr/bin/env python3
"""mpi_kills.py [--kills=200] [--seed=1]: a command of its own. Trains a small gpt
over four processes with a checkpoint after every step, kills one of them, or the
launcher, at a random moment, and starts again, until the training is through;
then the weights must be those of a run in threads that nobody disturbed. Starts
such trainings until so many processes were killed. SLUICE as in the tests of the
command line."""

import argparse
import collections
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import sluice
from mpi_faults import ENVIRONMENT, left

RANKS, STEPS = 4, 60
SPEC = f"""sluice: 1
model:
  transformer: {{{{layers: 4, hidden: 16, ffn: 32, heads: 2, vocab: 256, sequence: 12, dtype: fp32}}}}
pipeline: {{{{ranks: {RANKS}, microbatches: 8, schedule: 1f1b}}}}
run: {{{{data: {{data}}, steps: {STEPS}, learning_rate: 0.01, clip_norm: 0.5}}}}
"""
NOTE = 'echo $$ > "pid-$OMPI_COMM_WORLD_RANK"; exec "$@"'
LAUNCHER = RANKS


def gone(folder):
    """Waits until nothing of a run is left; false if something stays."""
    deadline = time.monotonic() + 20
    while left(folder):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def end(folder, process):
    """Waits for the end of a run; true if mpirun had to be ended, all processes of the run being gone for 15 s. What
    lives longer than two minutes is left to `gone`."""
    start = seen = time.monotonic()
    while process.poll() is None and time.monotonic() < start + 120:
        time.sleep(0.05)
        if [pid for pid in left(folder) if pid != str(process.pid)]:
            seen = time.monotonic()
        elif time.monotonic() > seen + 15:
            process.kill()
            process.wait()
            return True
    return False


def kill(folder, who, process):
    """True if it was there: it may not run yet, or any more."""
    try:
        os.kill(process.pid if who == LAUNCHER else int((folder / f"pid-{who}").read_text()), signal.SIGKILL)
        return True
    except (OSError, ValueError):
        return False


def total(kills):
    return sum(count for who, count in kills.items() if who.startswith(("rank", "the")))


def train(folder, chance, kills, longest):
    """One training, with as many kills as it takes, each within `longest` seconds of a start; what is wrong with it."""
    points, here = folder / "points", folder / "here"
    command = ["mpirun", "-n", str(RANKS), "bash", "-c", NOTE, "bash", sluice.SLUICE, "run", folder / "job.yaml", "-q",
               f"--checkpoint-dir={points}", "--checkpoint-every=1", f"--save={here}", "--timeout=20"]
    for _ in range(1000):
        for path in folder.glob("pid-*"):
            path.unlink()
        with (folder / "errors").open("w", encoding="utf-8") as errors:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, cwd=folder,
                                       stdin=subprocess.DEVNULL, env=ENVIRONMENT)
        who = chance.choice([0, 1, 2, 3, LAUNCHER])
        try:
            process.wait(timeout=chance.uniform(0.1, longest))
        except subprocess.TimeoutExpired:
            if kill(folder, who, process):
                kills["the launcher" if who == LAUNCHER else f"rank {who}"] += 1
        kills["mpirun did not end by itself"] += end(folder, process)
        if not gone(folder):
            return [f"processes are left: {left(folder)}"]
        told = (folder / "errors").read_text()
        if "passed over" in told:
            return [told]
        if process.returncode == 0:
            return []
    return ["it did not come to its end"]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance, kills, trainings, start = random.Random(options.seed), collections.Counter(), 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sluice-kills-", ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        (folder / "data.txt").write_bytes((sluice.ROOT / "LICENSE").read_bytes()[:4000])
        (folder / "job.yaml").write_text(SPEC.format(data=folder / "data.txt"))
        whole = folder / "whole"
        sluice.run("run", folder / "job.yaml", "-q", f"--save={whole}")
        longest = 3.0
        while total(kills) < options.kills:
            began, before = time.monotonic(), total(kills)
            wrong = train(folder, chance, kills, longest)
            if total(kills) == before:  # as long as one takes that nobody disturbs
                longest = time.monotonic() - began
            if not wrong and (folder / "here").read_bytes() != whole.read_bytes():
                wrong = ["the weights differ"]
            if wrong:
                print(f"training {trainings}: {'; '.join(wrong)}")
                return 1
            trainings += 1
            for path in sorted(folder.glob("points/**/*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            (folder / "here").unlink()
            print(f"{total(kills)} kills, {trainings} trainings of {STEPS} steps, all with the weights of the "
                  f"undisturbed one, {time.monotonic() - start:.0f} s", flush=True)
    print(", ".join(f"{who}: {count}" for who, count in sorted(kills.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())

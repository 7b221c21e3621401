#!/usr/bin/env python3
"""mpi_faults.py [ACTION…]: a command of its own. Tries each fault (fail, hang,
kill -9, SIGSTOP; term: the launcher gets a SIGTERM) on every rank of four
processes at several moments of a run, and prints how many were tried and
survived. Survived: every process that ended by itself ended with 3 (with 1 where
a module cannot be created), one table with all ranks was printed, and a sentence
that names the rank at fault, within the timeout and ten seconds; no process is
left. Also plan (each rank in turn is given another one), deadlock (a plan that
nobody has proved), full and read-only (the disk of checkpoints and traces, from
the start and during the run, for root): what was saved before is gone on from.
SLUICE, SLUICE_TEST_MODULES and SLUICE_TEST_UNVERIFIED as in the tests of the
command line."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import sluice

RANKS, MICROBATCHES, TIMEOUT = 4, 8, 3
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1"}
# What the module does, at which call, microbatch and step.
MOMENTS = {"create": "create 0 0", "start": "F 0 0", "warmup": "F 1 1", "steady": f"B {MICROBATCHES // 2} 1",
           "cooldown": f"B {MICROBATCHES - 1} 1", "optimizer": "step 0 1", "last step": "F 3 3"}
NAMED = {"fail": r"rank {rank} failed at {rank}", "hang": r"rank {rank} has made no progress",
         "kill": r"the process of rank {rank} is gone or stopped",
         "stop": r"the process of rank {rank} is gone or stopped", "term": r"ended from outside by signal 15"}
NOTE = 'trap "" TERM; "$@"; echo "$OMPI_COMM_WORLD_RANK $?" >> codes'


def left(folder):
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            pass
    return found


class Run:
    """Four processes, each of which notes what it ends with."""

    def __init__(self, folder, *arguments, fault="", program=sluice.SLUICE):
        self.folder, self.codes, self.start = folder, folder / "codes", time.monotonic()
        self.codes.unlink(missing_ok=True)
        self.process = subprocess.Popen(["mpirun", "-n", str(RANKS), "bash", "-c", NOTE, "bash", program, "run",
                                         *arguments, f"--timeout={TIMEOUT}s"], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True, cwd=folder, stdin=subprocess.DEVNULL,
                                        env={**ENVIRONMENT, "SLUICE_TEST_FAULT": fault})

    def wrong(self, code, named, table=True, other_codes=()):
        """What is wrong with how it ends; `named` is what it has to say."""
        try:
            _, errors = self.process.communicate(timeout=TIMEOUT + 20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return ["it did not end"]
        seconds = time.monotonic() - self.start
        wrong = []
        if seconds > TIMEOUT + 10 + 2:  # and what mpirun needs to start
            wrong.append(f"took {seconds:.1f} s")
        text = self.codes.read_text() if self.codes.exists() else ""
        ends = dict(map(int, line.split()) for line in text.split("\n")[:-1])
        for who, its in sorted(ends.items()):
            if its != dict(other_codes).get(who, code):
                wrong.append(f"rank {who} ended with {its}")
        if not ends:
            wrong.append("no process ended by itself")
        if not re.search("error: .*" + named, errors):
            wrong.append(f"nothing says '{named}'")
        rows = re.findall(r"^([0-9]+) +\d+ +\S+.* (?:job.yaml:\d+|-) ", errors, flags=re.M)
        if table and rows != [str(number) for number in range(RANKS)]:
            wrong.append(f"the table has rows of ranks {rows}")
        if remaining := left(self.folder):
            wrong.append(f"processes are left: {remaining}")
        return wrong + ([errors] if wrong else [])


def attempt(action, rank, moment, folder):
    """What is wrong with how one fault ended; nothing where it was survived."""
    created = action != "fail" or moment != "create"
    run = Run(folder, folder / "job.yaml", f"--module={sluice.MODULES / 'libsluice_fault_module.so'}",
              f"--steps={1000 if action == 'term' else 4}",
              fault="" if action == "term" else f"{action} {rank} {MOMENTS[moment]}")
    if action == "term":
        time.sleep(1 + 0.3 * rank)
        run.process.send_signal(signal.SIGTERM)
    return run.wrong(3 if created else 1, NAMED[action].format(rank=rank) if created else "out of luck", table=created,
                     other_codes={rank: 137} if action == "kill" else {})


def faults(action, folder):
    for moment in MOMENTS if action != "term" else ["any"]:
        for rank in range(RANKS):
            yield f"{action} rank {rank} {moment}", attempt(action, rank, moment, folder)


def other_plans(_, folder):
    """The rank is given the plan of eight more microbatches."""
    sluice.run("compile", folder / "job.yaml", "-o", folder / "same.plan")
    (folder / "other.yaml").write_text(sluice.chain(ranks=RANKS, microbatches=MICROBATCHES + 8))
    sluice.run("compile", folder / "other.yaml", "-o", folder / "other.plan")
    for rank in range(RANKS):
        for number in range(RANKS):
            link = folder / f"plan-{number}"
            link.unlink(missing_ok=True)
            link.symlink_to("other.plan" if number == rank else "same.plan")
        own = folder / "own"
        own.write_text(f'#!/bin/sh\nexec {sluice.SLUICE} run "{folder}/plan-$OMPI_COMM_WORLD_RANK" -q\n')
        own.chmod(0o755)
        # Where rank 0 has another one, all others differ from it: the first of them is told.
        yield f"rank {rank} has another plan", Run(folder, program=own).wrong(
            1, f"process {rank or 1} was given another job than process 0", table=False)


def deadlock(_, folder):
    programs = pathlib.Path(os.environ["SLUICE_TEST_UNVERIFIED"])
    sluice.run("compile", folder / "job.yaml", "-o", folder / "right.plan")
    subprocess.run([programs / "deadlock_plan", folder / "right.plan", folder / "wrong.plan"], check=True)
    last = RANKS - 1
    run = Run(folder, folder / "wrong.plan", "--module=synthetic", program=programs / "sluice_unverified")
    yield "a plan with a deadlock", run.wrong(3, rf"rank \d has made no progress for {TIMEOUT} s at .*: it waits for")
    done = sluice.run("run", folder / "wrong.plan")
    named = f"deadlock: rank {last - 1} at {last - 1}RECV_B0"
    yield "... is refused where it is proved", [] if done.returncode == 1 and named in done.stderr else [done.stderr]


GPT = """sluice: 1
model:
  transformer: {{layers: 4, hidden: 16, ffn: 32, heads: 2, vocab: 256, sequence: 12, dtype: fp32}}
pipeline: {{ranks: 4, microbatches: 8, schedule: 1f1b}}
run: {{data: {data}, learning_rate: 0.01}}
"""


class Disk:
    """A small one, in memory."""

    def __init__(self, folder):
        self.at = folder / "disk"

    def __enter__(self):
        self.at.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", self.at], check=True)
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.at], check=True)

    def full(self):
        with (self.at / "filler").open("wb", buffering=0) as filler:
            try:
                while filler.write(bytes(4096)):
                    pass
            except OSError:
                pass

    def read_only(self):
        while subprocess.run(["mount", "-o", "remount,ro", self.at], capture_output=True, check=False).returncode != 0:
            time.sleep(0.001)  # while a file is open for writing

    def repair(self):
        subprocess.run(["mount", "-o", "remount,rw", self.at], check=True)
        (self.at / "filler").unlink(missing_ok=True)


def goes_on(folder, points):
    """What is wrong with going on from what is in `points`."""
    steps = max([int(path.name.removeprefix("step-")) for path in points.glob("step-*[0-9]")], default=0)
    here, whole = folder / "here", folder / "whole"
    for path, *more in (here, f"--checkpoint-dir={points}"), (whole,):
        done = sluice.run("run", folder / "gpt.yaml", "-q", f"--save={path}", f"--steps={steps + 1}", *more)
        if done.returncode != 0 or "passed over" in done.stderr:
            return [done.stderr]
    return [] if here.read_bytes() == whole.read_bytes() else [f"from step {steps} other weights came"]


def disks(action, folder):
    """Checkpoints on a disk that fails from the start, or after so many seconds of steps; traces at the end."""
    (folder / "data.txt").write_bytes((sluice.ROOT / "LICENSE").read_bytes()[:4000])
    job = folder / "gpt.yaml"
    job.write_text(GPT.format(data=folder / "data.txt"))
    for seconds in None, 0.05, 0.4, 0.9:
        with Disk(folder) as disk:
            breaks = disk.full if action == "full" else disk.read_only
            points = disk.at / "points"
            if seconds is None:
                breaks()
            run = Run(folder, job, "--steps=1000000", f"--checkpoint-dir={points}", "--checkpoint-every=1")
            if seconds is not None:
                run.process.stderr.readline()
                time.sleep(seconds)
                breaks()
            wrong = run.wrong(3, "cannot (write|make|rename|remove) ?.*(No space left|Read-only)", table=False)
            disk.repair()
            yield f"{action} disk of checkpoints, {seconds} s after the first step", wrong or goes_on(folder, points)
    for flag in "--flight-recorder", "--timeline":
        with Disk(folder) as disk:
            (disk.full if action == "full" else disk.read_only)()
            run = Run(folder, job, "--steps=2", f"{flag}={disk.at / 'trace'}")
            # A full one is noticed at the end, when the others have done their part.
            yield f"{action} disk of {flag}", run.wrong(
                3, "cannot write .*(No space left|Read-only)", table=False,
                other_codes=dict.fromkeys(range(1, RANKS), 0) if action == "full" else {})


ALL = {**dict.fromkeys(NAMED, faults), "plan": other_plans, "deadlock": deadlock, "full": disks, "read-only": disks}


def main():
    actions = sys.argv[1:] or list(ALL)
    tried = survived = 0
    with tempfile.TemporaryDirectory(prefix="sluice-faults-") as name:
        folder = pathlib.Path(name)
        (folder / "job.yaml").write_text(sluice.chain(ranks=RANKS, microbatches=MICROBATCHES,
                                                      layer=", output_bytes: 1000", more="run: {steps: 4}"))
        for action in actions:
            for what, wrong in ALL[action](action, folder):
                tried += 1
                survived += not wrong
                print(f"{what}: {'; '.join(wrong) or 'survived'}", flush=True)
    print(f"{tried} faults tried, {survived} survived")
    return 0 if tried == survived else 1


if __name__ == "__main__":
    sys.exit(main())

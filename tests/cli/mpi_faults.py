#!/usr/bin/env python3
"""mpi_faults.py [ACTION…]: a command of its own. Tries each fault (fail, hang,
kill -9, SIGSTOP; term: the launcher gets a SIGTERM) on every rank of four
processes at several moments of a run, and prints how many were tried and
survived. Survived: every process that ended by itself ended with 3 (with 1 where
a module cannot be created), one table with all ranks was printed, and a sentence
that names the rank at fault, within the timeout and ten seconds; no process is
left. SLUICE and SLUICE_TEST_MODULES as in the tests of the command line."""

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


def attempt(action, rank, moment, folder):
    """What is wrong with how one fault ended; nothing where it was survived."""
    codes = folder / "codes"
    codes.unlink(missing_ok=True)
    fault = "" if action == "term" else f"{action} {rank} {MOMENTS[moment]}"
    command = ["mpirun", "-n", str(RANKS), "bash", "-c", NOTE, "bash", sluice.SLUICE, "run", folder / "job.yaml",
               f"--module={sluice.MODULES / 'libsluice_fault_module.so'}", f"--timeout={TIMEOUT}s",
               f"--steps={1000 if action == 'term' else 4}"]
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
                               stdin=subprocess.DEVNULL, env={**ENVIRONMENT, "SLUICE_TEST_FAULT": fault})
    if action == "term":
        time.sleep(1 + 0.3 * rank)
        process.send_signal(signal.SIGTERM)
    try:
        _, errors = process.communicate(timeout=TIMEOUT + 20)
    except subprocess.TimeoutExpired:
        process.kill()
        return ["it did not end"]
    seconds = time.monotonic() - start
    wrong = []
    if seconds > TIMEOUT + 10 + 2:  # and what mpirun needs to start
        wrong.append(f"took {seconds:.1f} s")
    created = action != "fail" or moment != "create"
    ends = dict(map(int, line.split()) for line in codes.read_text().split("\n")[:-1]) if codes.exists() else {}
    for who, code in sorted(ends.items()):
        if code != (137 if action == "kill" and who == rank else 3 if created else 1):
            wrong.append(f"rank {who} ended with {code}")
    if not ends:
        wrong.append("no process ended by itself")
    named = NAMED[action].format(rank=rank) if created else "out of luck"
    if not re.search("error: .*" + named, errors):
        wrong.append(f"nothing says '{named}'")
    rows = re.findall(r"^([0-9]+) +\d+ +\S+.* (?:job.yaml:\d+|-) ", errors, flags=re.M)
    if created and rows != [str(number) for number in range(RANKS)]:
        wrong.append(f"the table has rows of ranks {rows}")
    if remaining := left(folder):
        wrong.append(f"processes are left: {remaining}")
    return wrong + ([errors] if wrong else [])


def main():
    actions = sys.argv[1:] or list(NAMED)
    tried = survived = 0
    with tempfile.TemporaryDirectory(prefix="sluice-faults-") as name:
        folder = pathlib.Path(name)
        (folder / "job.yaml").write_text(sluice.chain(ranks=RANKS, microbatches=MICROBATCHES,
                                                      layer=", output_bytes: 1000", more="run: {steps: 4}"))
        for action in actions:
            for moment in MOMENTS if action != "term" else ["any"]:
                for rank in range(RANKS):
                    wrong = attempt(action, rank, moment, folder)
                    tried += 1
                    survived += not wrong
                    print(f"{action} rank {rank} {moment}: {'; '.join(wrong) or 'survived'}", flush=True)
    print(f"{tried} faults tried, {survived} survived")
    return 0 if tried == survived else 1


if __name__ == "__main__":
    sys.exit(main())

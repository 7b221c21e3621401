"""A process a rank, by mpirun: the same weights as threads', and how a run ends
whose processes fail, die, stop or were given another job."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

import sluice
from sluice import MODULES, ROOT, ToolTest, chain, run

# Nine layers: over at most eight stages no cut is the same everywhere.
GPT = """sluice: 1
model:
  transformer: {{layers: 9, hidden: 8, ffn: 16, heads: 2, vocab: 256, sequence: 5, dtype: fp32}}
pipeline: {{ranks: {ranks}, virtual_stages: {chunks}, microbatches: 8, schedule: {schedule}, data_parallel: {replicas}}}
run: {{data: {data}, steps: 3, learning_rate: 0.01{more}}}
"""
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1"}
FAULTS = MODULES / "libsluice_fault_module.so"
MPIRUN = os.environ.get("SLUICE_TEST_MPIRUN", "mpirun")
OPEN_MPI = "HYDRA" not in subprocess.run([MPIRUN, "--version"], capture_output=True, text=True, check=True).stdout
# MPICH's kills the others at once where a process dies, before these can tell of it, unless it is told not to.
LAUNCH = [MPIRUN] if OPEN_MPI else [MPIRUN, "-disable-auto-cleanup"]
RANK = "$OMPI_COMM_WORLD_RANK" if OPEN_MPI else "$PMI_RANK"
# Notes what each process ended with; the launcher's SIGTERM is for what it starts.
NOTE = f'trap "" TERM; "$@"; echo "{RANK} $?" >> {{path}}'


class Mpirun(ToolTest):
    def mpirun(self, count, *arguments, fault="", wrapper=(), timeout=120, program=sluice.SLUICE):
        """Runs the tool in `count` processes; returns what mpirun ended with."""
        command = [*LAUNCH, "-n", str(count), *wrapper, program, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=self.folder,
                              stdin=subprocess.DEVNULL, env={**ENVIRONMENT, "SLUICE_TEST_FAULT": fault})

    def ended(self, count, *arguments, **options):
        """Runs it to its end; returns it and the exit code of each process."""
        path = self.folder / "codes"
        path.unlink(missing_ok=True)
        done = self.mpirun(count, *arguments, **options,
                           wrapper=("bash", "-c", NOTE.format(path=path), "bash"))
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return done, {int(rank): int(code) for rank, code in map(str.split, lines)}


    def left(self):
        """Processes of this test that are still there."""
        lines = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes()
            except OSError:
                continue
            if str(self.folder).encode() in line:
                lines.append(line)
        return lines


class Training(Mpirun):
    """A small gpt."""

    def setUp(self):
        super().setUp()
        self.data = self.folder / "data.txt"
        self.data.write_bytes((ROOT / "LICENSE").read_bytes()[:4000])

    def spec(self, ranks, schedule="1f1b", chunks=1, replicas=1, more=""):
        return self.write("job.yaml", GPT.format(ranks=ranks, schedule=schedule, chunks=chunks, replicas=replicas,
                                                 data=self.data, more=more))


class Weights(Training):
    def check_same(self, processes, **options):
        spec = self.spec(**options)
        threads, here = self.folder / "threads", self.folder / "here"
        self.ok("run", spec, f"--save={threads}", "-q")
        self.ok("compile", spec, "-o", self.folder / "job.plan")
        for job in spec, self.folder / "job.plan":
            here.unlink(missing_ok=True)
            done = self.mpirun(processes, "run", job, f"--save={here}", "--timeout=60")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(here.read_bytes(), threads.read_bytes())
            # Only the first process talks.
            self.assertEqual(done.stdout.count("step time:"), 1)
            self.assertEqual(done.stderr.count("step 3/3"), 1)
            self.assertEqual(done.stdout.count(": arena planned"), options["ranks"])

    def test_two_processes(self):
        self.check_same(2, ranks=2, more=", clip_norm: 0.1")

    def test_four_processes(self):
        self.check_same(4, ranks=4, schedule="interleaved-1f1b", chunks=2)

    def test_eight_processes(self):
        self.check_same(8, ranks=8, schedule="zb-h1")

    def test_four_processes_in_two_replicas(self):
        self.check_same(4, ranks=2, replicas=2, more=", clip_norm: 0.1")

    def test_four_processes_with_the_optimizer_in_two_parts(self):
        """Scattered sums; and, because the norm needs them, whole ones."""
        self.ok("run", self.spec(ranks=2, replicas=2), f"--save={self.folder / 'whole'}", "-q")
        for clip in "", ", clip_norm: 0.1":
            self.check_same(4, ranks=2, replicas="2, zero: 1", more=clip)
            if not clip:
                self.assertEqual((self.folder / "here").read_bytes(), (self.folder / "whole").read_bytes())

    def test_four_processes_with_the_gradients_in_two_parts(self):
        self.check_same(4, ranks=2, replicas="2, zero: 2")
        self.check_same(4, ranks=2, schedule="zb-v", chunks=2, replicas="2, zero: 2")

    def test_goes_on_from_a_checkpoint_of_other_processes(self):
        whole, here = self.folder / "whole", self.folder / "here"
        self.ok("run", self.spec(ranks=1), f"--save={whole}", "-q")
        for ranks, steps in (4, 2), (2, 3):
            done = self.mpirun(ranks, "run", self.spec(ranks=ranks), f"--steps={steps}", f"--save={here}",
                               "--checkpoint-dir=points")
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("goes on from points/step-2\n"), 1, done.stderr)
        self.assertEqual(here.read_bytes(), whole.read_bytes())

    def test_timelines(self):
        done = self.mpirun(2, "run", self.spec(ranks=2), "--timeline=out")
        self.assertEqual(done.returncode, 0, done.stderr)
        trace = (self.folder / "out.measured.trace").read_text()
        for name in "0F0", "1F7", "1B0", "0B7":
            self.assertIn(f'"{name}"', trace)

    def test_one_process_needs_no_launcher(self):
        spec = self.spec(ranks=1)
        for backend in "host", "mpi":
            self.ok("run", spec, f"--backend={backend}", f"--save={self.folder / backend}", "-q")
        self.assertEqual((self.folder / "mpi").read_bytes(), (self.folder / "host").read_bytes())


class Ended(Training):
    """By a signal to the launcher or to one of the processes: all after the same step, with a checkpoint."""

    def check(self, number, to_launcher, patience):
        spec = self.spec(ranks=4, schedule="interleaved-1f1b", chunks=2)
        own = f'echo $$ > "pid-{RANK}"; exec "$@"'
        more = ["--mca", "odls_base_sigkill_timeout", str(patience)] if OPEN_MPI else []
        command = [*LAUNCH, *more, "-n", "4", "bash", "-c", own, "bash",
                   sluice.SLUICE, "run", spec, "--steps=1000000", "--checkpoint-dir=points"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=self.folder, env=ENVIRONMENT,
                                   stdin=subprocess.DEVNULL)
        self.assertIn("step 1/", process.stderr.readline())
        if to_launcher:
            process.send_signal(number)
        else:
            os.kill(int((self.folder / "pid-2").read_text()), number)
        _, told = process.communicate(timeout=60)
        steps = self.steps_saved(told)
        self.assertEqual(told.count(f"error: the job was ended from outside by signal {signal.SIGTERM if OPEN_MPI else number}; "
                                    f"points/step-{steps} holds its state after {steps} steps\n"), 1, told)
        self.assertNotEqual(process.returncode, 0)
        self.assertEqual(self.left(), [])
        self.check_goes_on(spec, steps)

    def steps_saved(self, told=""):
        names = [path.name for path in (self.folder / "points").iterdir()]
        self.assertEqual(len(names), 1, (names, told))
        return int(names[0].removeprefix("step-"))

    def check_goes_on(self, spec, steps):
        here, threads = self.folder / "here", self.folder / "threads"
        done = self.mpirun(4, "run", spec, f"--steps={steps + 2}", "--checkpoint-dir=points", f"--save={here}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.ok("run", spec, f"--steps={steps + 2}", f"--save={threads}", "-q")
        self.assertEqual(here.read_bytes(), threads.read_bytes())

    def test_the_launcher(self):
        self.check(signal.SIGINT, to_launcher=True, patience=2)

    def test_one_process(self):
        self.check(signal.SIGTERM, to_launcher=False, patience=10)

    def check_orphans(self, *more):
        """What the launcher started ends with 3 when that is killed, much sooner than by the timeout."""
        spec, codes, errors = self.spec(ranks=4), self.folder / "codes", self.folder / "errors"
        command = [*LAUNCH, "--mca", "odls_base_sigkill_timeout", "10", "-n", "4", "bash", "-c",
                   NOTE.format(path=codes), "bash", sluice.SLUICE, "run", spec, "--steps=1000000", "--timeout=600", *more]
        with errors.open("w", encoding="utf-8") as file:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file, cwd=self.folder,
                                       env=ENVIRONMENT, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while "step 1/" not in errors.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.kill()
        process.wait()
        deadline = time.monotonic() + 30
        while self.left() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(self.left(), [])
        self.assertEqual(sorted(codes.read_text().split("\n")), ["", *(f"{rank} 3" for rank in range(4))])
        return spec

    @unittest.skipUnless(OPEN_MPI, "the daemons of others kill the job themselves")
    def test_the_launcher_is_killed(self):
        self.check_orphans()

    @unittest.skipUnless(OPEN_MPI, "the daemons of others kill the job themselves")
    def test_the_launcher_is_killed_where_checkpoints_are_written(self):
        spec = self.check_orphans("--checkpoint-dir=points")
        self.check_goes_on(spec, self.steps_saved())


class Refused(Mpirun):
    def test_count_of_processes(self):
        spec = self.write("job.yaml", chain(ranks=4))
        done, codes = self.ended(3, "run", spec)
        self.assertIn("error: 3 processes were started for a plan of 4 ranks: start 4, as by mpirun -n 4, or run all "
                      "ranks in one process with --backend=host\n", done.stderr)
        self.assertEqual(done.stderr.count("error:"), 1, done.stderr)
        self.assertEqual(codes, {0: 2, 1: 2, 2: 2})
        alone = run("run", spec, "--backend=mpi")
        self.assertEqual(alone.returncode, 2)
        self.assertIn("error: 1 process was started for a plan of 4 ranks", alone.stderr)

    def test_spec_at_fault(self):
        done, codes = self.ended(2, "run", self.write("job.yaml", chain(ranks=2, schedule="2f2b")))
        self.assertEqual(codes, {0: 1, 1: 1})
        self.assertEqual(done.stderr.count("error:"), 1, done.stderr)
        self.assertRegex(done.stderr, r"job.yaml:\d+:\d+: error: .*2f2b")

    def test_another_plan_on_one_rank(self):
        self.ok("compile", self.write("a.yaml", chain(ranks=2)), "-o", self.folder / "0.plan")
        self.ok("compile", self.write("b.yaml", chain(ranks=2, microbatches=4)), "-o", self.folder / "1.plan")
        own = f'exec "$1" run "{RANK}.plan"'
        done = self.mpirun(2, wrapper=("bash", "-c", own, "bash"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"error: process 1 was given another job than process 0: there a plan with content "
                         r"hash [0-9a-f]{32}, here a plan with content hash [0-9a-f]{32}; all must read the same")

    def test_missing_on_one_rank(self):
        self.write("job.yaml", chain(ranks=2))
        own = f'exec "$1" run "$(test {RANK} = 0 && echo job.yaml || echo gone.yaml)"'
        done = self.mpirun(2, wrapper=("bash", "-c", own, "bash"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("gone.yaml", done.stderr)

    def test_launchers(self):
        spec = self.write("job.yaml", chain(ranks=2))
        torchrun = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}
        for variables, code, message in (
                (torchrun, 2, "error: torchrun starts processes that MPI does not know"),
                ({"RANK": "0"}, 3, "error: the environment of torchrun is broken: WORLD_SIZE is not set, but RANK is"),
                ({"PMI_RANK": "x", "PMI_SIZE": "2"}, 3, "PMI_RANK is 'x', not a number")):
            done = subprocess.run([sluice.SLUICE, "run", spec], capture_output=True, text=True, timeout=60,
                                  env={**os.environ, **variables})
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(message, done.stderr)
            # Asked for, threads run whatever the environment says.
            done = subprocess.run([sluice.SLUICE, "run", spec, "--backend=host", "-q"], timeout=60,
                                  env={**os.environ, **variables})
            self.assertEqual(done.returncode, 0)


class Faults(Mpirun):
    """Four ranks of a module that needs a millisecond each call; one is at fault."""

    def setUp(self):
        super().setUp()
        self.spec = self.write("chain.yaml", chain(layer=", output_bytes: 1000", more="run: {steps: 4}"))

    def check(self, fault, message, timeout=2, gone=None):
        done, codes = self.ended(4, "run", self.spec, f"--module={FAULTS}", f"--timeout={timeout}s",
                                 "--flight-recorder=flight", fault=fault)
        expected = dict.fromkeys(range(4), 3)
        if gone is not None:
            expected[gone] = 137
        self.assertEqual({**codes, **expected}, expected, done.stderr)
        survivors = [rank for rank, code in codes.items() if code == 3]
        # Who ends last may be killed by mpirun before its code is noted.
        self.assertGreaterEqual(len(survivors), 1, (codes, done.stderr))
        self.assertRegex(done.stderr, message)
        table = re.findall(r"^([0-3]) +\d+ +\S.*(?:chain.yaml:5|-) .*$", done.stderr, flags=re.M)
        self.assertEqual(table[:4], ["0", "1", "2", "3"], done.stderr)
        self.assertEqual(self.left(), [])
        # The last operations of all that live are in one trace.
        events = json.loads((self.folder / "flight").read_text())["traceEvents"]
        mute = gone if fault[:4] != "stop" else 3
        self.assertEqual({event["pid"] for event in events if event["ph"] == "X"}, set(range(4)) - {mute})

    def test_module_fails(self):
        self.check("fail 2 F 3 1", r"error: rank 2 failed at 2F3 \(chain.yaml:5\) of step 1: out of luck\n")

    def test_module_fails_in_the_optimizer(self):
        self.check("fail 0 step 0 1", r"error: rank 0 failed at 0STEP \(chain.yaml:5\) of step 1: out of luck\n")

    def test_module_hangs(self):
        self.check("hang 1 B 2 1", r"error: rank 1 has made no progress for 2 s at 1B2 \(chain.yaml:5\) of step 1: it "
                   r"waits for the module to return\n")

    @unittest.skipUnless(OPEN_MPI, "with MPICH survivors hear no more of each other")
    def test_process_is_killed(self):
        self.check("kill 2 F 3 1", r"error: the process of rank 2 is gone or stopped: it was last seen", gone=2)

    @unittest.skipUnless(OPEN_MPI, "with MPICH survivors hear no more of each other")
    def test_first_process_is_killed(self):
        self.check("kill 0 B 0 1", r"error: the process of rank 0 is gone or stopped: it was last seen", gone=0)

    def test_process_is_stopped(self):
        self.check("stop 3 F 3 2", r"error: the process of rank 3 is gone or stopped: it was last seen")

    def test_module_fails_to_load(self):
        done, codes = self.ended(4, "run", self.spec, f"--module={FAULTS}", fault="fail 1 create 0 0")
        self.assertEqual(codes, dict.fromkeys(range(4), 1), done.stderr)
        self.assertEqual(done.stderr.count("error: module fault, stage 1: out of luck\n"), 1, done.stderr)

    def test_a_plan_that_nobody_has_proved(self):
        programs = pathlib.Path(os.environ["SLUICE_TEST_UNVERIFIED"])
        right, wrong = self.folder / "right.plan", self.folder / "wrong.plan"
        self.ok("compile", self.spec, "-o", right)
        subprocess.run([programs / "deadlock_plan", right, wrong], check=True)
        done, codes = self.ended(4, "run", wrong, "--timeout=2", program=programs / "sluice_unverified")
        self.assertEqual(set(codes.values()), {3}, done.stderr)
        # Rank 3 wants the third microbatch before it sends the gradients of the first, for which rank 2 waits.
        self.assertRegex(done.stderr, r"(?m)^3 +0 +3RECV_F2 +chain.yaml:5 .* rank 2 to match it$")
        self.assertRegex(done.stderr, r"(?m)^2 +0 +2RECV_B0 +chain.yaml:5 .* rank 3 to match it$")
        self.assertRegex(done.stderr, r"error: rank \d has made no progress for 2 s at ")
        self.assertRegex(self.refused(1, "run", wrong), "deadlock: .*2RECV_B0")

    def test_logs_of_the_others(self):
        logs = self.folder / "logs"
        done = self.mpirun(4, "run", self.spec, f"--module={FAULTS}", f"--log-dir={logs}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(path.name for path in logs.iterdir()), [f"rank-{rank}.log" for rank in (1, 2, 3)])
        self.assertRegex((logs / "rank-2.log").read_text(), r"^rank 2 of 4, process \d+\n$")


if not shutil.which("mpirun"):
    raise SystemExit("there is no mpirun, which tools/setup installs: nothing of mpi was tested")
sluice.main()

"""The backend cuda with a process a rank, by mpirun, over the double: the weights
of one process, and what is said where a process has no GPU, dies or stops."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import sluice
from sluice import ROOT, SLUICE, ToolTest

GPT = """sluice: 1
model:
  transformer: {{layers: 9, hidden: 8, ffn: 16, heads: 2, vocab: 256, sequence: 5, dtype: {dtype}}}
pipeline: {{ranks: {ranks}, virtual_stages: {chunks}, microbatches: 8, schedule: {schedule}, data_parallel: {replicas}}}
run: {{data: data.txt, steps: 3, learning_rate: 0.01{more}}}
"""
NOTE = 'trap "" TERM; "$@"; echo "$OMPI_COMM_WORLD_RANK $?" >> codes'
# The same of one that runs beside its shell, which is not killed with it.
OWN = ('trap "" TERM; "$@" & echo $! > "pid-$OMPI_COMM_WORLD_RANK"; wait $!; code=$?; '
       'echo "$OMPI_COMM_WORLD_RANK $code" >> codes; exit $code')


class Processes(ToolTest):
    def setUp(self):
        super().setUp()
        shutil.copy(SLUICE, self.folder / "sluice")
        for plugin in "SLUICE_MPI_PLUGIN", "SLUICE_CUDA_DOUBLE":
            shutil.copy(os.environ[plugin], self.folder)
        (self.folder / "data.txt").write_bytes((ROOT / "LICENSE").read_bytes()[:4000])
        self.shared = f"sluice-double-{os.getpid()}"
        self.addCleanup(lambda: [path.unlink(missing_ok=True)
                                 for path in pathlib.Path("/dev/shm").glob(self.shared + "-*")])

    def spec(self, ranks, schedule="1f1b", chunks=1, replicas=1, dtype="fp32", more=""):
        return self.write("job.yaml", GPT.format(ranks=ranks, schedule=schedule, chunks=chunks, replicas=replicas,
                                                 dtype=dtype, more=more))

    def here(self, spec, weights):
        """All ranks in one process."""
        done = subprocess.run([self.folder / "sluice", "run", spec, "--backend=cuda", f"--save={weights}", "-q"],
                              capture_output=True, text=True, timeout=120, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)

    def command(self, count, spec, *arguments, wrapper=()):
        return ["mpirun", "-n", str(count), *wrapper, self.folder / "sluice", "run", spec, "--backend=cuda", *arguments]

    def environment(self, **more):
        return {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "OMPI_MCA_rmaps_base_oversubscribe": "1", "SLUICE_DOUBLE_SHARED": self.shared, **more}

    def mpirun(self, count, spec, *arguments, wrapper=(), **environment):
        return subprocess.run(self.command(count, spec, *arguments, wrapper=wrapper), capture_output=True, text=True,
                              timeout=120, cwd=self.folder, stdin=subprocess.DEVNULL,
                              env=self.environment(**environment))

    def left(self):
        """Processes of this test that are still there a second later."""
        time.sleep(1)
        lines = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes()
            except OSError:
                continue
            if str(self.folder / "sluice").encode() in line:
                lines.append(line)
        return lines

    def codes(self):
        lines = (self.folder / "codes").read_text().splitlines()
        return {int(rank): int(code) for rank, code in map(str.split, lines)}


class Weights(Processes):
    def check_same(self, count, *arguments, wrapper=(), **options):
        spec = self.spec(**options)
        one, many = self.folder / "one", self.folder / "many"
        self.here(spec, one)
        done = self.mpirun(count, spec, f"--save={many}", *arguments, wrapper=wrapper)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(many.read_bytes(), one.read_bytes())
        self.assertEqual(done.stdout.count("step time:"), 1)  # only the first process talks
        self.assertEqual(list(pathlib.Path("/dev/shm").glob(self.shared + "-*")), [])

    def test_two_processes(self):
        self.check_same(2, ranks=2, more=", clip_norm: 0.1")

    def test_two_processes_in_bf16(self):
        self.check_same(2, ranks=2, dtype="bf16")

    def test_four_processes(self):
        self.check_same(4, ranks=4, schedule="interleaved-1f1b", chunks=2)

    def test_four_processes_in_two_replicas(self):
        self.check_same(4, ranks=2, replicas=2, more=", clip_norm: 0.1")

    def test_four_processes_with_the_optimizer_in_two_parts(self):
        self.check_same(4, ranks=2, replicas="2, zero: 1")

    def test_four_processes_with_the_gradients_in_two_parts(self):
        self.check_same(4, ranks=2, replicas="2, zero: 2")

    def test_two_processes_in_bf16_with_the_optimizer_in_two_parts(self):
        self.check_same(2, ranks=1, dtype="bf16", replicas="2, zero: 1")

    def test_captured_steps(self):
        self.check_same(4, "--graph", ranks=2, replicas=2)

    def test_one_visible_gpu_each(self):
        own = 'CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK exec "$@"'
        self.check_same(2, ranks=2, wrapper=("bash", "-c", own, "bash"))


class Flight(Processes):
    def test_operations_in_the_order_of_1f1b(self):
        first = ["0F0"] + [f"0{kind}{at + (kind == 'F')}" for at in range(7) for kind in "FB"] + ["0B7", "0STEP"]
        last = [f"1{kind}{at}" for at in range(8) for kind in "FB"] + ["1STEP"]
        done = self.mpirun(2, self.spec(ranks=2), "-q", "--flight-recorder=flight.json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for rank, order in enumerate((first, last)):
            spans = sorted((event["ts"], event["args"]["step"], event["name"], event["args"].get("ended", True))
                           for event in json.loads((self.folder / "flight.json").read_text())["traceEvents"]
                           if event["ph"] == "X" and event["tid"] == 0 and event["pid"] == rank)
            self.assertEqual([span[1:] for span in spans],
                             [(step, name, True) for step in range(3) for name in order])


class Refused(Processes):
    """Before the first step, told once, and every process ends with 3."""

    def check(self, message, code=3, count=4, **environment):
        done = self.mpirun(count, self.spec(ranks=4), "-q", "--timeout=20",
                           wrapper=("bash", "-c", NOTE, "bash"), **environment)
        told = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        self.assertEqual(told, ["error: " + message], done.stderr)
        self.assertEqual(self.codes(), {rank: code for rank in range(count)})

    def test_fewer_gpus_than_processes(self):
        self.check("process 2 is number 2 on its machine, counted from 0, and wants the GPU of that number, but it "
                   "sees only 2", SLUICE_DOUBLE_DEVICES="2")

    def test_no_gpu(self):
        self.check("backend cuda: there is no GPU that can be used here (cudaGetDeviceCount: no CUDA-capable device "
                   "is detected)", SLUICE_DOUBLE_DEVICES="0")

    def test_old_driver(self):
        built = re.search(r"this program needs \d+\.\d+", self.mpirun(
            4, self.spec(ranks=4), "-q", SLUICE_DOUBLE_DRIVER="11040").stderr)
        self.assertIsNotNone(built)
        self.check("the driver of the GPUs is too old: it knows CUDA 11.4, " + built[0], SLUICE_DOUBLE_DRIVER="11040")

    def test_old_nccl(self):
        done = self.mpirun(4, self.spec(ranks=4), "-q", SLUICE_DOUBLE_NCCL="21900")
        self.assertEqual(done.returncode, 3)
        self.assertRegex(done.stderr, r"(?m)^error: the NCCL that is installed has version 21900, this program was "
                                      r"built with \d{5}$")

    def test_number_of_processes(self):
        self.check("2 processes were started for a plan of 4 ranks: start 4, as by mpirun -n 4, or run all ranks in "
                   "one process with --backend=host", code=2, count=2)

    def test_two_on_one_gpu(self):
        done = self.mpirun(2, self.spec(ranks=2), "-q", "--timeout=20", CUDA_VISIBLE_DEVICES="3")
        self.assertEqual(done.returncode, 3)
        self.assertRegex(done.stderr, r"(?m)^error: rank [01] failed in step 0: cannot connect the ranks: ")

    def test_other_plans(self):
        for rank, schedule in enumerate(("1f1b", "1f1b", "gpipe", "1f1b")):
            folder = self.folder / str(rank)
            folder.mkdir()
            shutil.copy(self.folder / "data.txt", folder)
            shutil.copy(self.spec(ranks=4, schedule=schedule), folder)
        own = 'cd $OMPI_COMM_WORLD_RANK && exec "$@"'
        done = self.mpirun(4, "job.yaml", "-q", "--timeout=20", wrapper=("bash", "-c", own, "bash"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, "(?m)^error: process 2 was given another job than process 0: there a plan with "
                                      "content hash [0-9a-f]{32}, here a plan with content hash [0-9a-f]{32};")

    def test_torchrun(self):
        """It starts processes that cannot meet by MPI."""
        spec = self.spec(ranks=2)
        environment = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost",
                       "MASTER_PORT": "29500"}
        done = subprocess.run([self.folder / "sluice", "run", spec, "--backend=cuda"], capture_output=True, text=True,
                              timeout=60, cwd=self.folder, env={**os.environ, **environment})
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertTrue(done.stderr.startswith("error: torchrun starts processes that MPI does not know: start them "
                                               "with mpirun or srun, or "), done.stderr)


class Dies(Processes):
    def start(self, spec):
        process = subprocess.Popen(
            self.command(4, spec, "--steps=1000000", "--timeout=3", wrapper=("bash", "-c", OWN, "bash")),
            stderr=subprocess.PIPE, text=True, cwd=self.folder, stdin=subprocess.DEVNULL,
            env=self.environment())
        self.assertIn("step 1/", process.stderr.readline())
        return process, [int((self.folder / f"pid-{rank}").read_text()) for rank in range(4)]

    def check(self, victim, number):
        """All others end within the timeout and ten seconds; one of them tells."""
        process, pids = self.start(self.spec(ranks=4))
        began = time.monotonic()
        os.kill(pids[victim], number)
        _, told = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - began, 3 + 10, told)
        if number == signal.SIGSTOP:
            try:
                os.kill(pids[victim], signal.SIGKILL)  # mpirun has killed its shell only
            except ProcessLookupError:
                pass
        self.assertEqual(len(re.findall(r"(?m)^error: ", told)), 1, told)
        self.assertRegex(told, rf"(?m)^{victim} .*not heard of")
        codes = self.codes()
        codes.pop(victim, None)
        # Of the last one mpirun may kill the shell before it has noted the code.
        self.assertGreaterEqual(len(codes), 2, told)
        self.assertEqual(set(codes.values()), {3}, told)
        self.assertEqual(self.left(), [], told)

    def test_killed_first(self):
        self.check(0, signal.SIGKILL)

    def test_killed_between(self):
        self.check(2, signal.SIGKILL)

    def test_stopped(self):
        self.check(1, signal.SIGSTOP)


sluice.main()

#!/usr/bin/env python3
"""mpi_slurm.py [KIND]: a command of its own, for root. Starts a cluster of Slurm
of one machine (munged, slurmctld, slurmd; Debian: munge, slurmctld, slurmd,
slurm-client), gone at the end with all of its files, and runs jobs by srun
--mpi=KIND: pmix, as Open MPI wants, or pmi2, as MPICH. Tries: the weights of 2,
4 and 8 tasks against those of threads; another number of tasks than ranks;
scancel, and going on from the checkpoint that it leads to; a task that is
stopped, a module that fails; a task that is killed, and Slurm's daemon of the
tasks, and going on from the last checkpoint. SLUICE and SLUICE_TEST_MODULES as
in the tests of the command line."""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import sluice
from mpi_faults import left
from mpi_hosts import Count, goes_on, running, spec

KIND = sys.argv[1] if len(sys.argv) > 1 else "pmix"
ROW = r"(?m)^3 +\d+ +\S+.* (?:job-4.yaml:\d+|-) "
NEEDED = ["munged", "slurmctld", "slurmd", "srun", "scancel", "sinfo"]
PATH = os.environ["PATH"] + ":/usr/sbin"
CONFIG = """ClusterName=sluice
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
TmpFS={folder}/tmp
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=1000
PartitionName=all Nodes={host} Default=YES State=UP
"""
# Notes each task's process and what it ended with.
NOTE = '''trap "" TERM; echo $PPID > stepd; "$@" & echo $! > "pid-$SLURM_PROCID"; wait $!; code=$?
echo "$SLURM_PROCID $code" >> codes; exit $code'''


def free_ports(count):
    """Ports that nobody listened on just now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [end.getsockname()[1] for end in sockets]
    for end in sockets:
        end.close()
    return ports


class Cluster:
    """One machine as controller and node."""

    def __init__(self, folder):
        self.folder, self.daemons = folder, []
        self.environment = {**os.environ, "PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}

    def start(self, *command):
        with (self.folder / f"{command[0]}.out").open("w", encoding="utf-8") as out:
            self.daemons.append(subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                                                 env=self.environment))

    def __enter__(self):
        host, munge = socket.gethostname().split(".")[0], self.folder / "munge"
        for name in "munge", "state", "spool", "tmp":
            (self.folder / name).mkdir(mode=0o755)
        (munge / "key").write_bytes(os.urandom(1024))
        (munge / "key").chmod(0o600)
        (self.folder / "slurm.conf").write_text(CONFIG.format(host=host, folder=self.folder, ports=free_ports(2)))
        self.start("munged", "--force", "--foreground", *(f"--{what}={munge / what.split('-')[0]}" for what in
                                                          ("key-file", "socket", "pid-file", "log-file", "seed-file")))
        self.start("slurmctld", "-D")
        self.start("slurmd", "-D", "-N", host)
        deadline = time.monotonic() + 30
        while "idle" not in self.output("sinfo", "--noheader", "-o", "%T"):
            if time.monotonic() > deadline:
                self.__exit__()
                raise SystemExit("the cluster does not start: " + self.output("sinfo", "-lN"))
            time.sleep(0.2)
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def output(self, *command):
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=self.environment, timeout=60)
        return done.stdout + done.stderr


class Job:
    """Tasks by srun, in a folder of their own for what they note."""

    def __init__(self, cluster, folder, tasks, *arguments, more=()):
        self.folder = folder
        for path in [folder / "codes", folder / "stepd", *folder.glob("pid-*")]:
            path.unlink(missing_ok=True)
        with (folder / "errors").open("w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(
                ["srun", "-v", f"--mpi={KIND}", "-n", str(tasks), "bash", "-c", NOTE, "bash", sluice.SLUICE, "run",
                 *map(str, arguments)], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
                env={**cluster.environment, **dict(more)})

    def errors(self):
        return (self.folder / "errors").read_text()

    def await_step(self):
        self.await_text("step 1/")

    def await_text(self, text):
        deadline = time.monotonic() + 60
        while text not in self.errors() and self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)

    def signal(self, name, number):
        """To the process whose number the tasks have noted as `name`."""
        path = self.folder / name
        if not path.exists():
            raise SystemExit(f"no {name}: srun ended with {self.end(20)}\n{self.errors()}")
        os.kill(int(path.read_text()), number)

    def end(self, patience=120):
        """What srun ended with, or that it does not; and the tasks, by number."""
        try:
            code = self.process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = "does not end"
        path = self.folder / "codes"
        return code, dict(map(int, line.split()) for line in path.read_text().splitlines()) if path.exists() else {}


def wrong_unless(job, srun, codes, *patterns):
    """What differs from how a job should end."""
    code, got = job.end()
    wrong = [f"srun ended with {code}"] if code != srun else []
    wrong += [f"tasks ended with {got}"] if got != codes else []
    wrong += [f"'{pattern}' is not told" for pattern in patterns if not re.search(pattern, job.errors())]
    return wrong + ([job.errors()] if wrong else [])


def weights(cluster, folder):
    for tasks in 2, 4, 8:
        job, here, threads = spec(folder, tasks), folder / "here", folder / "threads"
        here.unlink(missing_ok=True)
        plan = folder / "job.plan"
        for arguments in ("run", job, "-q", f"--save={threads}"), ("compile", job, "-o", plan):
            sluice.run(*arguments)
        wrong = wrong_unless(Job(cluster, folder, tasks, plan, f"--save={here}"), 0, dict.fromkeys(range(tasks), 0))
        if not wrong and here.read_bytes() != threads.read_bytes():
            wrong = ["the weights differ"]
        yield f"weights of {tasks} tasks", wrong


def refused(cluster, folder):
    job = Job(cluster, folder, 3, spec(folder, 4))
    yield "3 tasks for a plan of 4 ranks", wrong_unless(
        job, 2, dict.fromkeys(range(3), 2), "error: 3 processes were started for a plan of 4 ranks")


def at_fault(cluster, folder):
    """All live on to tell of it: a task that is stopped, a module that fails."""
    for rank in range(4):
        job = Job(cluster, folder, 4, spec(folder, 4), "--steps=1000000", "--timeout=3")
        job.await_step()
        job.signal(f"pid-{rank}", signal.SIGSTOP)
        began = time.monotonic()
        job.await_text(f"the process of rank {rank} is gone or stopped")
        took = time.monotonic() - began
        wrong = [] if took < 13 else [f"told after {took:.1f} s"]
        if not re.search(ROW, job.errors()):
            wrong.append(job.errors())
        code, codes = job.end()
        if code == 0 or not set(codes.values()) <= {3, 137}:
            wrong.append(f"srun ended with {code}, tasks with {codes}")
        yield f"task {rank} is stopped", wrong
    fault = {"SLUICE_TEST_FAULT": "fail 2 F 3 1"}
    chain = folder / "chain.yaml"
    chain.write_text(sluice.chain(layer=", output_bytes: 1000", more="run: {steps: 4}"))
    job = Job(cluster, folder, 4, chain, f"--module={sluice.MODULES / 'libsluice_fault_module.so'}", more=fault)
    yield "a module fails", wrong_unless(job, 3, dict.fromkeys(range(4), 3), "error: rank 2 failed at 2F3")


def killed(cluster, folder):
    """Slurm's PMIx kills the other tasks at once: srun ends, and the last checkpoint goes on."""
    for who in 0, 1, 2, 3, "daemon":
        points = folder / f"points-{who}"
        job = Job(cluster, folder, 4, spec(folder, 4), "--steps=1000000", "--timeout=600", f"--checkpoint-dir={points}",
                  "--checkpoint-every=5")
        job.await_step()
        deadline = time.monotonic() + 60
        while not list(points.glob("step-*5")) and time.monotonic() < deadline:
            time.sleep(0.05)
        began = time.monotonic()
        job.signal("stepd" if who == "daemon" else f"pid-{who}", signal.SIGKILL)
        while running(folder) and time.monotonic() < began + 30:
            time.sleep(0.05)
        took = time.monotonic() - began
        wrong = [f"tasks are left: {running(folder)}"] if running(folder) else []
        code, codes = job.end(patience=20)
        if who == "daemon" and codes != dict.fromkeys(range(4), 3):
            wrong.append(f"tasks ended with {codes}")
        yield (f"the {who} of the tasks is killed" if who == "daemon" else f"task {who} is killed"), \
            wrong or goes_on(folder, points), f", in {took:.1f} s; srun {code}, tasks {codes}"


def cancelled(cluster, folder):
    """Of a step alone scancel kills the tasks at once, if it is not told another signal."""
    for number, command in enumerate((["scancel"], ["scancel", "--signal=TERM"])):
        points = folder / f"points-cancelled-{number}"
        job = Job(cluster, folder, 4, spec(folder, 4), "--steps=1000000", f"--checkpoint-dir={points}")
        job.await_step()
        name = re.search(r"jobid (\d+)", job.errors())[1]
        cluster.output(*command, name if number == 0 else f"{name}.0")
        code, codes = job.end()
        wrong = [f"tasks ended with {codes}"] if codes != dict.fromkeys(range(4), 3) else []
        if not re.search(r"outside by signal 15; \S+ holds its state after \d+ steps", job.errors()):
            wrong.append(job.errors())
        yield " ".join(command), wrong or goes_on(folder, points), f"; srun {code}"


def main():
    if missing := [name for name in NEEDED if not shutil.which(name, path=PATH)]:
        print(f"not tried: Slurm is not there ({', '.join(missing)}; Debian: munge slurmctld slurmd slurm-client)")
        return 1
    if os.geteuid() != 0:
        print("not tried: needs root, for the daemons of Slurm")
        return 1
    count = Count()
    with tempfile.TemporaryDirectory(prefix="sluice-slurm-", ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        (folder / "data.txt").write_bytes((sluice.ROOT / "LICENSE").read_bytes()[:4000])
        with Cluster(folder) as cluster:
            for part in refused, cancelled, killed, at_fault, weights:
                for what, wrong, *more in part(cluster, folder):
                    count.note(what, wrong, *more)
        if remaining := left(folder):
            count.note("what is left", [str(remaining)])
    print(f"{count.tried} tried, {count.survived} survived")
    return 0 if count.tried == count.survived else 1


if __name__ == "__main__":
    sys.exit(main())

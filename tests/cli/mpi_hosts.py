#!/usr/bin/env python3
"""mpi_hosts.py: a command of its own, for root. Makes two hosts of network
namespaces with a veth pair between them, or each with a pair to a third
namespace whose mpi_wire.py delays, and starts runs over both by mpirun and an
agent in place of ssh. Tries: the weights of 2, 4 and 8 processes against those
of threads; a link that is slowed, and one that is delayed; a link that is cut,
or so slow that nothing comes through, or whose delay grows beyond the timeout,
at several moments. Survived: all processes end with 3 within the timeout and
ten seconds, the table of all ranks and a sentence that names a rank of the
other host are printed, no process of the run is left, and what was saved before
can be gone on from. SLUICE and SLUICE_TEST_MODULES as in the tests of the
command line. Words of the command line, of `straight` and `wired`, say which to
try."""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time
from functools import partial

import sluice
from mpi_faults import ENVIRONMENT, left

TIMEOUT = 3
NAMES = [f"sluice-{os.getpid()}-{letter}" for letter in "ab"]
ADDRESSES = ["10.77.0.1", "10.77.0.2"]
NOTE = 'trap "" TERM; "$@"; echo "$OMPI_COMM_WORLD_RANK $?" >> codes'
AGENT = """#!/bin/sh
shift
exec ip netns exec {name} unshare --uts sh -c 'hostname {name}; exec sh -c "$0"' "$*"
"""
SPEC = """sluice: 1
model:
  transformer: {{layers: 9, hidden: 8, ffn: 16, heads: 2, vocab: 256, sequence: 5, dtype: fp32}}
pipeline: {{ranks: {ranks}, microbatches: 8, schedule: 1f1b}}
run: {{data: {data}, steps: 10, learning_rate: 0.01}}
"""


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


class Hosts:
    """Two of them, gone at the end with all that runs on them."""

    made = NAMES

    def connect(self):
        ip("link", "add", "link-a", "netns", NAMES[0], "type", "veth", "peer", "name", "link-b", "netns", NAMES[1])

    def __enter__(self):
        for name in self.made:
            ip("netns", "add", name)
        self.connect()
        for name, device, address in zip(NAMES, ("link-a", "link-b"), ADDRESSES):
            ip("-n", name, "addr", "add", address + "/24", "dev", device)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", device, "up")
        return self

    def __exit__(self, *_):
        self.sweep()
        for name in self.made:
            ip("netns", "del", name)

    def sweep(self):
        """Ends what is left on both: launchers, which may wait for ever for the other host."""
        for name in NAMES:
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=True).stdout
            for pid in pids.split():
                subprocess.run(["kill", "-9", pid], check=False)

    def link(self, state):
        ip("-n", NAMES[1], "link", "set", "link-b", state)

    def shape(self, *how):
        """Queues in both directions as `how` says; False where the kernel cannot."""
        devices = list(zip(NAMES, ("link-a", "link-b")))
        for name, device in devices:
            subprocess.run(["tc", "-n", name, "qdisc", "del", "dev", device, "root"], capture_output=True, check=False)
        return not how or all(subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", device, "root", *how],
                                             capture_output=True, check=False).returncode == 0
                              for name, device in devices)

    def mend(self):
        self.link("up")
        self.shape()


class WiredHosts(Hosts):
    """Two with a wire between them that delays what goes over it and can drop it."""

    middle = f"sluice-{os.getpid()}-wire"
    made = [*NAMES, middle]

    def connect(self):
        ends = "left", "right"
        for name, device, end in zip(NAMES, ("link-a", "link-b"), ends):
            ip("link", "add", device, "netns", name, "type", "veth", "peer", "name", end, "netns", self.middle)
            ip("-n", self.middle, "link", "set", end, "up")
        program = pathlib.Path(__file__).with_name("mpi_wire.py")
        self.wire = subprocess.Popen(["ip", "netns", "exec", self.middle, sys.executable, program, *ends], text=True,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __exit__(self, *_):
        self.wire.communicate()
        super().__exit__()

    def tell(self, line):
        print(line, file=self.wire.stdin, flush=True)
        if self.wire.stdout.readline() != "done\n":
            raise RuntimeError("the wire is gone")

    def delay(self, seconds):
        self.tell(f"delay {seconds}")

    def mend(self):
        self.delay(0)


def start(count, folder, *arguments):
    agent = folder / "agent"
    agent.write_text(AGENT.format(name=NAMES[1]))
    agent.chmod(0o755)
    network = ADDRESSES[0] + "/24"
    half = count // 2
    mpirun = ["mpirun", "--mca", "plm_rsh_agent", agent, "--mca", "btl_tcp_if_include", network, "--mca",
              "oob_tcp_if_include", network, "--bind-to", "none", "--wdir", folder, "--host",
              ",".join(f"{address}:{half}" for address in ADDRESSES), "-n", count, "bash", "-c", NOTE, "bash",
              sluice.SLUICE, "run", *arguments]
    on_first = f"hostname {NAMES[0]}; exec {shlex.join(map(str, mpirun))}"
    (folder / "codes").unlink(missing_ok=True)
    with (folder / "errors").open("w", encoding="utf-8") as errors:
        return subprocess.Popen(["ip", "netns", "exec", NAMES[0], "unshare", "--uts", "sh", "-c", on_first],
                                stdout=subprocess.DEVNULL, stderr=errors, stdin=subprocess.DEVNULL, cwd=folder,
                                env=ENVIRONMENT)


def ends(folder):
    path = folder / "codes"
    return dict(map(int, line.split()) for line in path.read_text().split("\n")[:-1]) if path.exists() else {}


def running(folder):
    """Processes of the program itself, with `folder` in their command line."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if line.startswith(sluice.SLUICE.encode() + b"\0") and str(folder).encode() in line:
            found.append(path.parent.name)
    return found


def spec(folder, ranks):
    path = folder / f"job-{ranks}.yaml"
    path.write_text(SPEC.format(ranks=ranks, data=folder / "data.txt"))
    return path


def await_step(folder, process):
    """Until the first step has ended."""
    deadline = time.monotonic() + 60
    while "step 1/" not in (folder / "errors").read_text() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)


def same_weights(folder, ranks, *more, after_a_step=None):
    """What is wrong with the weights of a run over both hosts, to which something may happen after its first step."""
    job, here, threads = spec(folder, ranks), folder / "here", folder / "threads"
    here.unlink(missing_ok=True)
    sluice.run("run", job, "-q", f"--save={threads}", *more)
    process = start(ranks, folder, job, f"--save={here}", *more)
    if after_a_step:
        await_step(folder, process)
        after_a_step()
    if process.wait(timeout=400) != 0:
        return [(folder / "errors").read_text()]
    return [] if here.read_bytes() == threads.read_bytes() else ["the weights differ"]


def goes_on(folder, points):
    """What is wrong with going on, with another number of ranks, from what is in `points`."""
    steps = max([int(path.name.removeprefix("step-")) for path in points.glob("step-*[0-9]")], default=0)
    here, whole = folder / "here", folder / "whole"
    for path, *more in (here, f"--checkpoint-dir={points}"), (whole,):
        done = sluice.run("run", spec(folder, 2), "-q", f"--steps={steps + 1}", f"--save={path}", *more)
        if done.returncode != 0 or "passed over" in done.stderr:
            return [done.stderr]
    return [] if here.read_bytes() == whole.read_bytes() else [f"from step {steps} other weights came"]


def broken(hosts, folder, ranks, seconds, breaks):
    """What is wrong with how a run ends whose link `breaks` after so many seconds of steps."""
    points = folder / f"points-{time.monotonic()}"
    process = start(ranks, folder, spec(folder, ranks), "--steps=1000000", f"--timeout={TIMEOUT}",
                    f"--checkpoint-dir={points}", "--checkpoint-every=5")
    await_step(folder, process)
    time.sleep(seconds)
    breaks()
    cut = time.monotonic()
    while running(folder) and time.monotonic() < cut + TIMEOUT + 15:
        time.sleep(0.05)
    took = time.monotonic() - cut
    wrong = [f"took {took:.1f} s"] if took > TIMEOUT + 10 else []
    # Who ends last may be killed by mpirun before its code is noted.
    codes = ends(folder)
    if set(codes.values()) != {3}:
        wrong.append(f"ranks ended with {codes}")
    # What the other host tells is lost with the link.
    errors = (folder / "errors").read_text()
    if not re.search(r"error: the process of rank \d+ is gone or stopped", errors):
        wrong.append("nothing says who is gone")
    rows = re.findall(r"^([0-9]+) +\d+ +\S+.* (?:job-\d.yaml:\d+|-) ", errors, flags=re.M)
    if rows[:ranks] != [str(number) for number in range(ranks)]:
        wrong.append(f"the table has rows of ranks {rows}")
    process.kill()
    process.wait()
    hosts.sweep()
    hosts.mend()
    if remaining := left(folder):
        wrong.append(f"processes are left: {remaining}")
    wrong += goes_on(folder, points)
    return wrong + ([errors] if wrong else []), took


class Count:
    tried = survived = 0

    def note(self, what, wrong, more=""):
        self.tried += 1
        self.survived += not wrong
        print(f"{what}: {'; '.join(wrong) or 'survived'}{more}", flush=True)


def break_at_moments(count, hosts, folder, ways):
    for what, breaks in ways.items():
        for ranks in 2, 4, 8:
            for seconds in 0, 0.3, 0.9:
                wrong, took = broken(hosts, folder, ranks, seconds, breaks)
                count.note(f"the link {what} {seconds} s after the first step, {ranks} processes", wrong,
                           f", in {took:.1f} s")


def timed(call, *arguments, **options):
    began = time.monotonic()
    return call(*arguments, **options), f", in {time.monotonic() - began:.1f} s"


def straight(count, folder):
    with Hosts() as hosts:
        for ranks in 2, 4, 8:
            count.note(f"weights of {ranks} processes on two hosts", same_weights(folder, ranks))
        hosts.shape("tbf", "rate", "2mbit", "burst", "16kbit", "latency", "400ms")
        count.note("weights of 4 processes, the link slowed to 2 Mbit/s", same_weights(folder, 4, "--timeout=60"))
        hosts.shape()
        stop = ["tbf", "rate", "100bit", "burst", "16kbit", "latency", "400ms"]
        break_at_moments(count, hosts, folder, {"is cut": lambda: hosts.link("down"),
                                                "stops to carry": lambda: hosts.shape(*stop)})


def wired(count, folder):
    with WiredHosts() as hosts:
        for seconds in 0, 0.02:
            for ranks in 2, 4, 8:
                hosts.delay(seconds)
                count.note(f"weights of {ranks} processes, the link delayed by {seconds} s", *timed(
                    same_weights, folder, ranks, f"--timeout={TIMEOUT}"))
        # A wait may take four ways: to say that one is ready, to get data, to do so for what is sent back.
        for seconds in 0.2, TIMEOUT / 6:
            hosts.mend()
            count.note(f"weights of 4 processes, the link delayed by {seconds} s after the first of 4 steps", *timed(
                same_weights, folder, 4, f"--timeout={TIMEOUT}", "--steps=4",
                after_a_step=partial(hosts.delay, seconds)))
        hosts.mend()
        break_at_moments(count, hosts, folder, {"drops all": lambda: hosts.tell("drop"),
                                                f"delays by {3 * TIMEOUT} s": lambda: hosts.delay(3 * TIMEOUT)})


PARTS = {"straight": straight, "wired": wired}


def main():
    if os.geteuid() != 0:
        print("needs root, for network namespaces")
        return 1
    count = Count()
    with tempfile.TemporaryDirectory(prefix="sluice-hosts-") as name:
        folder = pathlib.Path(name)
        (folder / "data.txt").write_bytes((sluice.ROOT / "LICENSE").read_bytes()[:4000])
        for part in sys.argv[1:] or PARTS:
            PARTS[part](count, folder)
    print(f"{count.tried} tried, {count.survived} survived")
    return 0 if count.tried == count.survived else 1


if __name__ == "__main__":
    sys.exit(main())

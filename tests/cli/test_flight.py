"""The last operations of every rank, however a run ends."""

import json
import os
import subprocess

import sluice
from sluice import MODULES, SLUICE, ToolTest, chain

KEPT = 4096


def computed(path):
    """Of each rank its computations in order of start: name, step, whether it has ended."""
    ranks = {}
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] == "X" and event["tid"] == 0:
            ranks.setdefault(event["pid"], []).append((event["ts"], event["name"], event["args"]["step"],
                                                       event["args"].get("ended", True)))
    return {rank: [what[1:] for what in sorted(of)] for rank, of in ranks.items()}


class Flight(ToolTest):
    """Two ranks; the order of 1f1b with four microbatches is written out by hand."""

    FIRST = ["0F0", "0F1", "0B0", "0F2", "0B1", "0F3", "0B2", "0B3", "0STEP"]
    LAST = ["1F0", "1B0", "1F1", "1B1", "1F2", "1B2", "1F3", "1B3", "1STEP"]

    def flown(self, code, fault, *arguments, steps=3):
        spec = self.write("job.yaml", chain(ranks=2, layers=2, microbatches=4, layer=", output_bytes: 8"))
        out = self.folder / "flight.json"
        module = MODULES / "libsluice_fault_module.so"
        done = subprocess.run([SLUICE, "run", spec, f"--module={module}", f"--steps={steps}", "--timeout=1", "-q",
                               f"--flight-recorder={out}", *arguments], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "SLUICE_TEST_FAULT": fault})
        self.assertEqual(done.returncode, code, done.stderr)
        return computed(out)

    def expected(self, order, steps, until=None):
        """All operations of `steps` steps, to the first `until` of the last one, which does not end."""
        all_ = [(name, step, True) for step in range(steps) for name in order]
        if until:
            del all_[(steps - 1) * len(order) + order.index(until) + 1:]
            all_[-1] = (until, steps - 1, False)
        return all_

    def test_of_a_run_that_ends_well(self):
        self.assertEqual(self.flown(0, ""), {0: self.expected(self.FIRST, 3), 1: self.expected(self.LAST, 3)})

    def test_of_a_call_that_does_not_return(self):
        ranks = self.flown(3, "hang 1 B 2 1")
        self.assertEqual(ranks[1], self.expected(self.LAST, 2, until="1B2"))
        # Rank 0 has sent 0F3 and waits for the gradients of microbatch 2.
        self.assertEqual(ranks[0], self.expected(self.FIRST, 2)[:-3])

    def test_of_a_call_that_fails(self):
        ranks = self.flown(3, "fail 0 B 1 0")
        self.assertEqual(ranks[0], self.expected(self.FIRST, 1, until="0B1"))

    def test_only_the_last_are_kept(self):
        ranks = self.flown(0, "", steps=400)
        events = json.loads((self.folder / "flight.json").read_text())["traceEvents"]
        for order, rank in (self.FIRST, 0), (self.LAST, 1):
            self.assertEqual(sum(event["ph"] == "X" and event["pid"] == rank for event in events), KEPT)
            self.assertEqual(ranks[rank][-len(order):], [(name, 399, True) for name in order])

    def test_a_full_disk_hides_nothing(self):
        spec = self.write("job.yaml", chain(ranks=2, layers=2))
        done = subprocess.run([SLUICE, "run", spec, f"--module={MODULES / 'libsluice_fault_module.so'}",
                               "--flight-recorder=/dev/full"], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "SLUICE_TEST_FAULT": "fail 0 B 1 0"})
        self.assertEqual(done.returncode, 3)
        self.assertRegex(done.stderr, r"error: rank 0 failed at 0B1 .*: out of luck\n"
                         r"error: cannot write /dev/full: No space left on device\n$")

    def test_a_file_that_cannot_be(self):
        spec = self.write("job.yaml", chain(ranks=2))
        self.assertIn("cannot write", self.refused(3, "run", spec, "--flight-recorder=/proc/none"))
        self.assertIn("the input itself", self.refused(2, "run", spec, f"--flight-recorder={spec}"))


if __name__ == "__main__":
    sluice.main()

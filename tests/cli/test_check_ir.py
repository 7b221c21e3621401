"""`check` of hand-written text: every finding at the line of its operation."""

import json

from sluice import ToolTest, main, run

# Two stages on both ranks: each computes a microbatch of both, then sums gradients.
HEAD = """sluice-ir 1
plan {
  microbatches 2
  stage 0 gradients 16
  stage 1 gradients 16
  collective 0 communicator 0 ranks 0, 1
  collective 1 communicator 1 ranks 0, 1
"""

RANK = """  rank %d {
    streams compute sums more
    arena 1024
    buffer 0 gradients stage 0 offset 0 bytes 16
    buffer 1 gradients stage 1 offset 256 bytes 16
    buffer 2 saved stage 0 offset 512 bytes 0
    buffer 3 saved stage 1 offset 768 bytes 0
    0: 0F%d write 2
    1: 0B%d update 0 read 2
    2: 1F%d write 3
    3: 1B%d update 1 read 3
    4: %s
    5: %s
  }
"""


def plan(first, second):
    """A plan whose ranks end with these two operations each."""
    return HEAD + "".join(RANK % (rank, rank, rank, rank, rank, *ends) for rank, ends in enumerate((first, second))) + "}\n"


SUMS = ("0ALL_REDUCE_G stream 1 collective 0 wait 1 update 0", "1ALL_REDUCE_G stream 2 collective 1 wait 3 update 1")


class CheckIr(ToolTest):
    def place(self, path, rank, index):
        """`file:line:column` of an operation, its line, and what stands under it."""
        lines = path.read_text().splitlines()
        start = lines.index(f"  rank {rank} {{")
        number = next(n for n in range(start, len(lines)) if lines[n].startswith(f"    {index}: "))
        return f"{path}:{number + 1}:5", f"  {lines[number]}\n      ^\n"

    def check(self, path, code, *arguments):
        done = run("check", path, *arguments)
        self.assertEqual((done.returncode, done.stderr), (code, ""))
        return done.stdout

    def test_opposite_orders(self):
        path = self.write("opposite.ir", plan(SUMS, SUMS[::-1]))
        (a, a_line), (b, b_line) = self.place(path, 0, 4), self.place(path, 1, 5)
        (c, c_line), (d, d_line) = self.place(path, 1, 4), self.place(path, 0, 5)
        self.assertEqual(self.check(path, 1), (
            f"{a}: error: deadlock: rank 0 at 0ALL_REDUCE_G and rank 1 at 1ALL_REDUCE_G wait for each other "
            f"(progress: rank): post 0ALL_REDUCE_G before 1ALL_REDUCE_G, or put them in one group\n{a_line}"
            f"{a}: note: rank 0 at 0ALL_REDUCE_G waits for rank 1 to reach 0ALL_REDUCE_G\n{a_line}"
            f"{b}: note: rank 1 reaches 0ALL_REDUCE_G only after 1ALL_REDUCE_G\n{b_line}"
            f"{c}: note: rank 1 at 1ALL_REDUCE_G waits for rank 0 to reach 1ALL_REDUCE_G\n{c_line}"
            f"{d}: note: rank 0 reaches 1ALL_REDUCE_G only after 0ALL_REDUCE_G\n{d_line}"
            "refused: 12 operations on 2 ranks, progress rank, no buffering helps; under pair and edge it does not "
            "deadlock\n"))
        for model in ("pair", "edge", "stream"):
            self.assertEqual(self.check(path, 0, f"--progress={model}"),
                             f"ok: 12 operations on 2 ranks, progress {model}; under rank it deadlocks\n")
        answer = json.loads(self.check(path, 1, "--json"))
        self.assertEqual(answer["holds"], {"rank": False, "pair": True, "edge": True})
        error, = answer["errors"]
        self.assertEqual((error["kind"], error["rank"], error["op"], f"{path}:{error['line']}:{error['column']}"),
                         ("deadlock", 0, "0ALL_REDUCE_G", a))

    def test_both_places_of_a_mismatch(self):
        other = SUMS[0].replace("update 0", "update 1").replace("0ALL", "1ALL").replace("wait 1", "wait 3")
        path = self.write("mismatch.ir", plan(SUMS[:1] * 2, (other, SUMS[0])))
        (a, a_line), (b, b_line) = self.place(path, 1, 4), self.place(path, 0, 4)
        told = self.check(path, 1)
        self.assertIn(f"{a}: error: mismatch: collective operation 1 on communicator 0: 0ALL_REDUCE_G of rank 0 "
                      f"(operation 4) meets 1ALL_REDUCE_G of rank 1\n{a_line}"
                      f"{b}: note: 0ALL_REDUCE_G of rank 0 stands here\n{b_line}", told)

    def test_every_finding_has_its_place(self):
        path = self.write("findings.ir", plan(SUMS, (SUMS[0].replace("wait 1 ", ""), "0ALL_REDUCE_G stream 1 collective 0 "
                                                     "update 0")))
        told = self.check(path, 1)
        (early, early_line), (twice, twice_line) = self.place(path, 1, 4), self.place(path, 1, 5)
        self.assertIn(f"{early}: error: lifetime: 0ALL_REDUCE_G updates buffer 0 (gradients) while 0B1 may still use it: "
                      f"nothing makes it wait\n{early_line}", told)
        self.assertIn(f"{twice}: error: duplicate: 0ALL_REDUCE_G stands twice on rank 1\n{twice_line}", told)

    def test_of_no_operation(self):
        """What is about an operation that is nowhere is told of the last one of its stage's rank."""
        path = self.write("missing.ir", plan(SUMS, SUMS).replace("microbatches 2", "microbatches 3"))
        place, line = self.place(path, 0, 5)
        self.assertEqual(self.check(path, 1), "".join(
            f"{place}: error: missing: {op}2 is missing\n{line}" for op in ("0F", "0B", "1F", "1B")) +
            "refused: 12 operations on 2 ranks, progress rank\n")

    def test_what_cannot_be_read(self):
        """Each fault is a finding with its place, for people and for programs."""
        path = self.write("faults.ir", "sluice-ir 1\nplan {\n  stages 1\n  microbatches x\n")
        told = self.check(path, 1)
        self.assertTrue(told.endswith("refused: 0 operations on 0 ranks, progress rank\n"), told)
        answer = json.loads(run("check", "--json", path).stdout)
        self.assertFalse(answer["ok"])
        self.assertEqual({error["kind"] for error in answer["errors"]}, {"malformed"})
        for error in answer["errors"]:
            self.assertIn(f"{path}:{error['line']}:{error['column']}: error: {error['message']}\n", told)
            self.assertIsNone(error["rank"])

    def test_schedule(self):
        text = ("sluice-ir 1\ngraph {\n  microbatches 1\n  stage 0\n  0F0 -> saved 8 [0B0]\n  0B0\n}\n"
                "schedule {\n  rank 0: 0B0 0F0 0B0\n}\n")
        path = self.write("schedule.ir", text)
        self.assertEqual(self.check(path, 1), (
            f"{path}:9:19: error: duplicate: 0B0 stands twice: again as operation 2 of rank 0\n"
            "    rank 0: 0B0 0F0 0B0\n"
            "                    ^\n"
            "refused: 3 operations on 1 rank, progress rank\n"))

    def test_what_writes_over_its_own_bytes(self):
        path = self.write("self.ir", """sluice-ir 1
plan {
  microbatches 1
  stage 0
  stage 1
  stage 2
  edge 0 -> 1 bytes 100
  edge 0 -> 2 bytes 100
  rank 0 {
    streams compute
    arena 256
    buffer 0 activation stage 0 offset 0 bytes 100
    buffer 1 activation stage 0 offset 0 bytes 100
    0: 0F0 write 0, 1
  }
}
""")
        told = self.check(path, 1)
        self.assertIn("lifetime: 0F0 writes buffer 1 (activation) over buffer 0 (activation), which it uses itself\n", told)
        self.assertNotIn("makes it wait", told)

    def test_a_schedule_has_no_messages(self):
        path = self.write("schedule.ir", "sluice-ir 1\ngraph {\n  microbatches 1\n  stage 0\n  0F0 -> saved 8 [0B0]\n"
                          "  0B0\n}\nschedule {\n  rank 0: 0F0 0B0\n}\n")
        self.assertEqual(self.check(path, 0), "ok: 2 operations on 1 rank, by their order alone: messages are added when "
                         "it is lowered, in an order that holds under every progress model\n")

    def test_of_very_many_faults_some_are_told(self):
        ops = "".join(f"    {k}: 0F{k} stream 7\n" for k in range(2000))
        plan = f"sluice-ir 1\nplan {{\n  microbatches 2000\n  stage 0\n  rank 0 {{\n    streams compute\n{ops}  }}\n}}\n"
        nodes = "".join(f"  7F{k}\n" for k in range(2000))
        for content, line in ((plan, 107), (f"sluice-ir 1\ngraph {{\n  stage 0\n{nodes}}}\n", 104)):
            told = [line for line in run("check", "-", stdin=content).stdout.splitlines() if ": error: " in line]
            self.assertEqual(len(told), 101)
            self.assertRegex(told[-1], f"^-:{line}:[0-9]+: error: and 1900 more faults, the first of them here$")



main()

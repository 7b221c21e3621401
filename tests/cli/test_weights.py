"""Real training: the same weights whatever the schedule and number of ranks."""

import itertools

import sluice
from sluice import ROOT, ToolTest, run

SPEC = """sluice: 1
model:
  transformer: {{layers: 4, hidden: 16, ffn: 32, heads: 2, vocab: 256, sequence: 12, dtype: fp32}}
pipeline: {{ranks: {ranks}, microbatches: {microbatches}, microbatch_size: 2, schedule: {schedule}{more}}}
run: {{data: {data}, steps: 3, learning_rate: 0.01}}
"""


class Weights(ToolTest):
    def setUp(self):
        super().setUp()
        self.data = self.folder / "data.txt"
        self.data.write_bytes((ROOT / "LICENSE").read_bytes()[:4000])

    def train(self, ranks, microbatches, schedule, more="", *arguments):
        spec = SPEC.format(ranks=ranks, microbatches=microbatches, schedule=schedule, more=more, data=self.data)
        path = self.folder / "weights"
        path.unlink(missing_ok=True)
        self.ok("run", "-", f"--save={path}", "-q", *arguments, stdin=spec)
        return path.read_bytes()

    def test_every_schedule_and_rank_count(self):
        for microbatches in (1, 2, 3, 8):
            expected = self.train(1, microbatches, "naive")
            self.assertGreater(len(expected), 10000)
            for schedule, ranks in itertools.product(("naive", "gpipe", "1f1b"), (1, 2, 3, 4)):
                got = self.train(ranks, microbatches, schedule)
                self.assertTrue(got == expected, f"{schedule} on {ranks} ranks, {microbatches} microbatches")

    def test_split_backward(self):
        expected = self.train(1, 4, "1f1b")
        for ranks in (1, 2, 4):
            self.assertTrue(self.train(ranks, 4, "1f1b", ", backward: split") == expected, ranks)

    def test_microbatches_matter(self):
        self.assertFalse(self.train(1, 2, "1f1b") == self.train(1, 3, "1f1b"))
        self.assertFalse(self.train(1, 2, "1f1b") == self.train(1, 2, "1f1b", "", "--set", "run.seed=2"))

    def test_plan_of_another_process(self):
        spec = self.write("job.yaml", SPEC.format(ranks=3, microbatches=4, schedule="1f1b", more="", data=self.data))
        plan = self.folder / "job.plan"
        self.ok("compile", spec, "-o", plan)
        weights = self.folder / "weights"
        self.ok("run", plan, f"--save={weights}", "-q")
        self.assertTrue(weights.read_bytes() == self.train(3, 4, "1f1b"))

    def test_loss_falls(self):
        spec = SPEC.format(ranks=2, microbatches=2, schedule="1f1b", more="", data=self.data)
        out = self.ok("run", "-", "--steps=60", stdin=spec)
        first, last = [float(word) for word in out.split() if word.replace(".", "").isdigit()][:2]
        self.assertLess(last, 0.8 * first, out)
        self.assertLess(abs(first - 5.545), 0.4, out)  # ln 256: nothing is known at the start


sluice.main()

"""Real training: the same weights whatever the schedule and number of ranks."""

import itertools
import json
import re

import sluice
from sluice import ROOT, ToolTest, run

SPEC = """sluice: 1
model:
  transformer: {{layers: 4, hidden: 16, ffn: 32, heads: 2, vocab: 256, sequence: 12, dtype: fp32}}
pipeline: {{ranks: {ranks}, microbatches: {microbatches}, microbatch_size: 2, schedule: {schedule}{more}}}
run: {{data: {data}, steps: 3, learning_rate: 0.01}}
"""

# Nine layers: over at most eight stages no cut is the same everywhere.
TINY = """sluice: 1
model:
  transformer: {{layers: 9, hidden: 8, ffn: 16, heads: 2, vocab: 256, sequence: 5, tied_embeddings: {tied}, dtype: fp32}}
pipeline: {{ranks: {ranks}, virtual_stages: {chunks}, microbatches: {microbatches}, schedule: {schedule}{more}}}
run: {{data: {data}, steps: 2, learning_rate: 0.01}}
"""


def one(ranks, chunks, microbatches):
    return chunks == 1


def two(ranks, chunks, microbatches):
    return chunks == 2


def any_number(ranks, chunks, microbatches):
    return True


# Every schedule that trains: which stages per rank and microbatches it takes,
# for even numbers of ranks and microbatches and one or two stages per rank.
TRAIN = {
    "naive": one, "gpipe": one, "1f1b": one, "eager-1f1b": one, "zb-h1": one, "zb-h2": one,
    "interleaved-1f1b": any_number, "breadth-first": any_number,
    "zb-v": two, "v-half": two, "v-min": two, "hanayo": two,
    "dualpipev": lambda ranks, chunks, microbatches: chunks == 2 and microbatches >= 2 * ranks,
    "dualpipe": lambda ranks, chunks, microbatches: chunks == 1 and microbatches >= 2 * ranks,
    "chimera": one,
}
# A stage lies on two ranks, which add up their gradients: the sums differ.
TWO_COPIES = {"dualpipe", "chimera"}


class TrainingTest(ToolTest):
    def setUp(self):
        super().setUp()
        self.data = self.folder / "data.txt"
        self.data.write_bytes((ROOT / "LICENSE").read_bytes()[:4000])


class EverySchedule(TrainingTest):
    """The weights are those of one rank wherever the report says that they are
    summed in order of the microbatches."""

    tied = "false"

    def setUp(self):
        super().setUp()
        self.path = self.folder / "weights"
        self.expected = {}

    def spec(self, ranks, chunks, microbatches, schedule, more=""):
        return TINY.format(ranks=ranks, chunks=chunks, microbatches=microbatches, schedule=schedule, more=more,
                           tied=self.tied, data=self.data)

    def train(self, spec):
        self.path.unlink(missing_ok=True)
        self.ok("run", "-", f"--save={self.path}", "-q", stdin=spec)
        return self.path.read_bytes()

    def one_rank(self, microbatches):
        if microbatches not in self.expected:
            self.expected[microbatches] = self.train(self.spec(1, 1, microbatches, "1f1b"))
        return self.expected[microbatches]

    def in_order(self, spec):
        return self.report(spec)["weights_in_order"]

    def check(self, ranks, chunks, microbatches, schedule, more=""):
        spec = self.spec(ranks, chunks, microbatches, schedule, more)
        with self.subTest(spec=spec):
            self.assertTrue(self.in_order(spec), "not in order")
            self.assertTrue(self.train(spec) == self.one_rank(microbatches), "the weights differ")

    def test_all_are_here(self):
        table = (ROOT / "compiler/schedules/Schedules.def").read_text()
        rows = re.findall(r'^SLUICE_SCHEDULE\(\w+, "([^"]+)", \w+, \w+, (\w+),', table, re.M)
        self.assertEqual({name for name, backward in rows if backward != "None"}, set(TRAIN))

    def test_weights(self):
        trained = refused = 0
        for schedule, ranks, chunks, microbatches in itertools.product(TRAIN, (2, 4), (1, 2), (4, 8, 10)):
            if not TRAIN[schedule](ranks, chunks, microbatches):
                self.refused(1, "report", "-", stdin=self.spec(ranks, chunks, microbatches, schedule))
                refused += 1
            elif schedule in TWO_COPIES:
                self.assertFalse(self.in_order(self.spec(ranks, chunks, microbatches, schedule)))
            else:
                self.check(ranks, chunks, microbatches, schedule)
                trained += 1
        # Six of one stage per rank and four of two, over six sizes each; two of
        # any number; dualpipev has no p = 4 with m = 4.
        self.assertEqual(trained, 6 * 6 + 4 * 6 + 2 * 12 + 5)
        # The other number of stages per rank; p = 4 with m = 4 of both dualpipes.
        self.assertEqual(refused, 8 * 6 + 5 * 6 + 2)

    def test_split_backward(self):
        for schedule, ranks in itertools.product(("naive", "gpipe", "1f1b", "eager-1f1b"), (2, 4)):
            self.check(ranks, 1, 8, schedule, ", backward: split")
        for schedule, ranks in itertools.product(("interleaved-1f1b", "breadth-first", "hanayo"), (2, 4)):
            self.check(ranks, 2, 10, schedule, ", backward: split")

    def test_recompute(self):
        for ranks in (1, 2, 4):
            for schedule, chunks in (("1f1b", 1), ("gpipe", 1), ("zb-h1", 1), ("interleaved-1f1b", 2), ("zb-v", 2)):
                self.check(ranks, chunks, 8, schedule, ", recompute: full")
        for ranks in (2, 4):
            spec = self.spec(ranks, 1, 8, "dualpipe")
            self.assertTrue(self.train(spec) == self.train(spec.replace("dualpipe", "dualpipe, recompute: full")), ranks)

    def test_groups_and_warmup(self):
        for group in (4, 5, 7, 10, "rounds"):
            self.check(4, 2, 10, "interleaved-1f1b", f", group_size: {group}")
        for schedule in ("1f1b", "zb-h1", "zb-h2"):
            self.check(4, 1, 10, schedule, ", warmup: auto")
            self.check(4, 1, 10, schedule, ", warmup: [5, 3, 1, 0]")

    def test_layouts(self):
        # With stages of no layer at the ends and between.
        for schedule, ranks, chunks, layout in (("1f1b", 4, 1, "Et||t*8|L"), ("zb-h2", 4, 1, "E|(tttt|)*2tL"),
                                                ("interleaved-1f1b", 2, 2, "E(t|)*3t*6L")):
            self.check(ranks, chunks, 8, schedule, f', layout: "{layout}"')

    def test_orders_of_ones_own(self):
        def orders(*lines):
            text = ", ".join(json.dumps(line) for line in lines)
            return self.spec(len(lines), 1, 3, "{orders: [" + text + "]}")

        in_order = orders("0F0 0F1 0F2 0B0 0I1 0I2 0W1 0W2")
        self.assertTrue(self.in_order(in_order))
        self.assertTrue(self.train(in_order) == self.one_rank(3))
        for order in ("0F0 0F1 0F2 0B1 0B0 0B2",  # backwards
                      "0F0 0F1 0F2 0I0 0I1 0I2 0W2 0W1 0W0",  # weights only
                      "0F0 0F1 0F2 0I1 0I0 0W0 0W1 0B2"):  # inputs, which sum the gradients of norms
            with self.subTest(order=order):
                self.assertFalse(self.in_order(orders(order)))


class TiedEmbeddings(EverySchedule):
    """So it is where first and last stage share the embedding, on one rank or
    on two."""

    tied = "true"

    def test_they_matter(self):
        tied = self.one_rank(4)
        self.assertNotIn(b"head.weight", tied)
        self.assertIn(b"embedding.token", tied)
        self.tied = "false"
        untied = self.train(self.spec(1, 1, 4, "1f1b"))
        self.assertEqual(len(untied) - len(tied), 256 * 8 * 4 + len("head.weight") + 4 + 8)

    def test_placements_of_ones_own(self):
        for placement in ([0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 1, 1], [1, 0, 1, 0]):
            self.check(2, 2, 4, "breadth-first", f", placement: {placement}")


class Weights(TrainingTest):

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

    def test_forward_alone(self):
        # The loss is that of the first step of a training; no weight moves.
        def losses(schedule, ranks, tied):
            spec = TINY.format(ranks=ranks, chunks=1, microbatches=4, schedule=schedule, more="", tied=tied, data=self.data)
            path = self.folder / "weights"
            done = run("run", "-", "--steps=2", f"--save={path}", stdin=spec)
            self.assertEqual(done.returncode, 0, done.stderr)
            return re.findall(r"loss (\d+\.\d+)", done.stdout + done.stderr), path.read_bytes()

        for tied in ("false", "true"):
            trained, _ = losses("1f1b", 1, tied)
            first, start = losses("forward-only", 1, tied)
            self.assertEqual(first[0], trained[0])
            for ranks in (2, 4):
                self.assertEqual(losses("forward-only", ranks, tied), (first, start))

    def test_loss_falls(self):
        spec = SPEC.format(ranks=2, microbatches=2, schedule="1f1b", more="", data=self.data)
        out = self.ok("run", "-", "--steps=60", stdin=spec)
        first, last = [float(word) for word in out.split() if word.replace(".", "").isdigit()][:2]
        self.assertLess(last, 0.8 * first, out)
        self.assertLess(abs(first - 5.545), 0.4, out)  # ln 256: nothing is known at the start


sluice.main()

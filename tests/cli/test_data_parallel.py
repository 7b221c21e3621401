"""Replicas of a pipeline: they sum their gradients, in the plan and when it is run."""

import json
import re

import sluice
from sluice import MODULES, ROOT, ToolTest

# Nine layers: over at most eight stages no cut is the same everywhere.
GPT = """sluice: 1
model:
  transformer: {{layers: 9, hidden: 8, ffn: 16, heads: 2, vocab: 256, sequence: 5, tied_embeddings: {tied}, dtype: fp32}}
pipeline: {{ranks: {ranks}, virtual_stages: {chunks}, microbatches: {microbatches}, schedule: {schedule}, data_parallel: {replicas}}}
run: {{data: {data}, steps: 2, learning_rate: 0.01, gradient_groups: {groups}}}
"""
MICROBATCHES = 4  # of each replica
SCHEDULES = {"1f1b": 1, "gpipe": 1, "interleaved-1f1b": 2, "zb-v": 2}  # stages per rank

# Ranks of a node; replicas are on different nodes.
SLOW = """cluster:
  link: {latency: 0}
  node_link: {latency: 0.25, bandwidth: 20}
  devices_per_node: 8
"""


def layers(schedule, pipeline, first=10, more=SLOW):
    """Two layers of 10 parameters each, the first one of `first`."""
    return f"""sluice: 1
model:
  layers:
    - {{name: a, forward: 1, backward: 1, params: {first}}}
    - {{name: b, forward: 1, backward: 1, params: 10}}
pipeline: {{ranks: 2, microbatches: 4, schedule: {schedule}{pipeline}}}
{more}"""


class Weights(ToolTest):
    """The weights are those of one replica that sums its microbatches in groups."""

    def setUp(self):
        super().setUp()
        self.data = self.folder / "data.txt"
        self.data.write_bytes((ROOT / "LICENSE").read_bytes()[:4000])
        self.path = self.folder / "weights"

    def train(self, ranks, schedule, replicas, groups, microbatches, tied):
        self.path.unlink(missing_ok=True)
        spec = GPT.format(ranks=ranks, chunks=SCHEDULES[schedule], microbatches=microbatches, schedule=schedule,
                          replicas=replicas, groups=groups, data=self.data, tied="true" if tied else "false")
        self.ok("run", "-", f"--save={self.path}", "-q", stdin=spec)
        return self.path.read_bytes()

    def check_all(self, tied, ranks_of):
        for replicas in 2, 4:
            whole = replicas * MICROBATCHES
            expected = self.train(1, "1f1b", 1, replicas, whole, tied)
            # Groups round otherwise, or nothing would be compared here.
            self.assertNotEqual(expected, self.train(1, "1f1b", 1, 1, whole, tied))
            for schedule in SCHEDULES:
                for ranks in ranks_of:
                    with self.subTest(schedule=schedule, ranks=ranks, replicas=replicas, tied=tied):
                        self.assertEqual(self.train(ranks, schedule, replicas, 1, MICROBATCHES, tied), expected)
                        self.assertEqual(self.train(ranks, schedule, 1, replicas, whole, tied), expected)

    def test_weights(self):
        self.check_all(False, (1, 2, 4))

    def test_weights_of_tied_embeddings(self):
        self.check_all(True, (1, 2, 4))

    def test_clipped_weights(self):
        """One norm for the whole model, with the same bits on every rank and in every replica."""
        clip = ", clip_norm: 0.05"
        for tied in False, True:
            expected = self.train(1, "1f1b", 1, f"2{clip}", 2 * MICROBATCHES, tied)
            self.assertNotEqual(expected, self.train(1, "1f1b", 1, 2, 2 * MICROBATCHES, tied))
            for schedule in SCHEDULES:
                for ranks in 1, 2, 4:
                    with self.subTest(schedule=schedule, ranks=ranks, tied=tied):
                        self.assertEqual(self.train(ranks, schedule, 2, f"1{clip}", MICROBATCHES, tied), expected)

    def test_clipping_copies(self):
        """The two copies of a stage count once: an all but equal norm, and equal weights of both."""
        for schedule in "dualpipe", "chimera":
            spec = GPT.format(ranks=2, chunks=1, microbatches=4, schedule=schedule, replicas=2,
                              groups="1, clip_norm: 0.05", data=self.data, tied="true")
            self.ok("run", "-", f"--save={self.path}", "-q", stdin=spec)

    def test_norm_that_limits_nothing(self):
        self.assertEqual(self.train(2, "1f1b", 1, "1, clip_norm: 1000000", 4, False),
                         self.train(2, "1f1b", 1, 1, 4, False))

    def test_every_schedule_of_two_copies(self):
        """Copies of a stage sum theirs first; all that replicas hold is compared when it is saved."""
        for schedule in "dualpipe", "chimera":
            spec = GPT.format(ranks=2, chunks=1, microbatches=4, schedule=schedule, replicas=3, groups=1,
                              data=self.data, tied="true")
            self.ok("run", "-", f"--save={self.path}", "-q", stdin=spec)

    def test_losses(self):
        def losses(replicas, groups, microbatches):
            spec = GPT.format(ranks=2, chunks=1, microbatches=microbatches, schedule="1f1b", replicas=replicas,
                              groups=groups, data=self.data, tied="false")
            return re.findall(r"loss: (\S+) at the first step, (\S+) at the last", self.ok("run", "-", stdin=spec))

        self.assertEqual(len(losses(2, 1, 4)), 1)
        self.assertEqual(losses(2, 1, 4), losses(1, 2, 8))

    def test_groups_that_do_not_fit(self):
        error = self.refused(1, "run", "-", stdin=GPT.format(
            ranks=1, chunks=1, microbatches=8, schedule="1f1b", replicas=1, groups=3, data=self.data, tied="false"))
        self.assertIn("error: run.gradient_groups is 3, which does not divide pipeline.microbatches (8)", error)
        error = self.refused(1, "run", "-", stdin=GPT.format(
            ranks=1, chunks=1, microbatches=8, schedule="1f1b", replicas=2, groups=2, data=self.data, tied="false"))
        self.assertIn("error: run.gradient_groups is 2, must be 1 with pipeline.data_parallel 2", error)

    def test_groups_whose_microbatches_mix(self):
        """The two directions of a dual pipeline take turns: rank 0 has microbatches of both groups."""
        spec = GPT.format(ranks=2, chunks=1, microbatches=6, schedule="dualpipe", replicas=1, groups=3,
                          data=self.data, tied="false")
        error = self.refused(3, "run", "-", stdin=spec)
        self.assertRegex(error, r"group \d of gradient_groups has \d of its 2 microbatches")

    def test_optimizer_in_parts(self):
        """With zero 1 each replica steps a part of the parameters: the same weights, also where whole gradients are
        summed, because a tie or the norm needs them."""
        for replicas, clip in (2, ""), (3, ""), (3, ", clip_norm: 0.05"):
            whole = replicas * MICROBATCHES
            for tied in False, True:
                expected = self.train(1, "1f1b", 1, f"{replicas}{clip}", whole, tied)
                for schedule, ranks in ("1f1b", 1), ("1f1b", 2), ("gpipe", 4), ("interleaved-1f1b", 2), ("zb-v", 2):
                    with self.subTest(schedule=schedule, ranks=ranks, replicas=replicas, tied=tied, clip=clip):
                        self.assertEqual(self.train(ranks, schedule, f"{replicas}, zero: 1", f"1{clip}", MICROBATCHES,
                                                    tied), expected)

    def test_parts_of_copies(self):
        for schedule in "dualpipe", "chimera":
            for more in "1", "1, clip_norm: 0.05":
                def trained(replicas):
                    self.path.unlink(missing_ok=True)
                    spec = GPT.format(ranks=2, chunks=1, microbatches=4, schedule=schedule, replicas=replicas,
                                      groups=more, data=self.data, tied="true")
                    self.ok("run", "-", f"--save={self.path}", "-q", stdin=spec)
                    return self.path.read_bytes()
                with self.subTest(schedule=schedule, more=more):
                    self.assertEqual(trained("3, zero: 1"), trained("3"))

    def test_checkpoints_of_parts_are_refused(self):
        for zero in 1, 2:
            spec = GPT.format(ranks=1, chunks=1, microbatches=4, schedule="1f1b", replicas=f"2, zero: {zero}", groups=1,
                              data=self.data, tied="false")
            error = self.refused(1, "run", "-", f"--checkpoint-dir={self.folder / 'kept'}", stdin=spec)
            self.assertIn("error: checkpoints have the optimizer of a stage whole, but that of stage 0 is in 2 parts "
                          "(pipeline.zero); run it without --checkpoint-dir", error)

    def test_gradients_in_parts_of_one_microbatch(self):
        """With zero 2 a replica keeps a part of the gradients; of one microbatch each, the sums are the same."""
        for replicas in 2, 3:
            for schedule, ranks in ("1f1b", 1), ("1f1b", 2), ("gpipe", 4), ("interleaved-1f1b", 2), ("zb-v", 2):
                with self.subTest(schedule=schedule, ranks=ranks, replicas=replicas):
                    self.assertEqual(self.train(ranks, schedule, f"{replicas}, zero: 2", 1, 1, False),
                                     self.train(ranks, schedule, replicas, 1, 1, False))

    def test_gradients_in_parts(self):
        """Of several, each sum goes on with the one before: it rounds otherwise, but in no schedule otherwise than in
        another that cuts the model alike."""
        for one, other in ("1f1b", "gpipe"), ("interleaved-1f1b", "zb-v"):
            with self.subTest(schedule=one):
                found = self.train(2, one, "3, zero: 2", 1, MICROBATCHES, False)
                self.assertEqual(found, self.train(2, other, "3, zero: 2", 1, MICROBATCHES, False))
                self.assertNotEqual(found, self.train(2, one, "3, zero: 1", 1, MICROBATCHES, False))

    def test_losses_of_gradients_in_parts(self):
        def losses(zero):
            spec = GPT.format(ranks=2, chunks=1, microbatches=MICROBATCHES, schedule="1f1b", replicas=f"2, zero: {zero}",
                              groups=1, data=self.data, tied="false").replace("steps: 2", "steps: 20")
            first, last = re.search(r"loss: (\S+) at the first step, (\S+) at the last",
                                    self.ok("run", "-", stdin=spec)).groups()
            return float(first), float(last)

        # A gradient of 8 terms differs by at most 7 roundings of 2**-24 of their sum, and a step by less than that of
        # its learning rate: far below the 5e-4, a ten-thousandth of the loss, that is allowed here.
        for found, expected in zip(losses(2), losses(1)):
            self.assertAlmostEqual(found, expected, delta=5e-4)

    def test_some_gradients_stay_whole(self):
        """Of four stages with tied embeddings the first and the last."""
        spec = GPT.format(ranks=2, chunks=2, microbatches=MICROBATCHES, schedule="interleaved-1f1b",
                          replicas="2, zero: 2", groups=1, data=self.data, tied="true")
        done = sluice.run("compile", "-", "--emit=ir", stdin=spec)
        self.assertIn("pipeline.zero 2 leaves the gradients of stages 0, 3 whole", done.stderr)
        for stage, name in enumerate(("ALL_REDUCE_G", "REDUCE_SCATTER_W0", "REDUCE_SCATTER_W0", "ALL_REDUCE_G")):
            self.assertIn(f": {stage}{name} ", done.stdout)
        self.ok("run", "-", f"--save={self.path}", "-q", stdin=spec)

    def test_gradients_in_parts_of_every_schedule(self):
        """The order of every sum is that of the microbatches and of the replicas, whatever the schedule."""
        for chunks, schedules in ((1, ("1f1b", "gpipe", "eager-1f1b", "zb-h1", "zb-h2", "naive")),
                                  (2, ("interleaved-1f1b", "breadth-first", "zb-v", "v-half", "v-min", "dualpipev",
                                       "hanayo"))):
            weights = set()
            for schedule in schedules:
                self.path.unlink(missing_ok=True)
                spec = GPT.format(ranks=2, chunks=chunks, microbatches=MICROBATCHES, schedule=schedule,
                                  replicas="2, zero: 2", groups=1, data=self.data, tied="false")
                self.ok("run", "-", f"--save={self.path}", "-q", stdin=spec)
                weights.add(self.path.read_bytes())
            self.assertEqual(len(weights), 1, schedules)

    def test_gradients_that_stay_whole(self):
        """A tie or the norm needs them whole: told, and the weights are those of zero 1."""
        for tied, clip, why in ((True, "", "the table that embedding and head share"),
                                (False, ", clip_norm: 0.05", "run.clip_norm takes norms of whole gradients")):
            spec = GPT.format(ranks=2, chunks=1, microbatches=MICROBATCHES, schedule="1f1b", replicas="2, zero: 2",
                              groups=f"1{clip}", data=self.data, tied="true" if tied else "false")
            done = sluice.run("run", "-", f"--save={self.path}", stdin=spec)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("warning: pipeline.zero 2 leaves the gradients of all stages whole, as zero 1 does: " + why,
                          done.stderr)
            found = self.path.read_bytes()
            self.assertEqual(found, self.train(2, "1f1b", "2, zero: 1", f"1{clip}", MICROBATCHES, tied))

    def test_levels_that_are_not_run_yet(self):
        spec = GPT.format(ranks=1, chunks=1, microbatches=4, schedule="1f1b", replicas="2, zero: 3", groups=1,
                          data=self.data, tied="false")
        error = self.refused(1, "run", "-", stdin=spec)
        self.assertIn("warning: the exchange of gradients among 2 data_parallel copies is not in the plan yet with "
                      "zero 3", error)
        self.assertIn("zero is '3', this module computes only '0'", error)


class Plans(ToolTest):
    def makespan(self, *arguments, **options):
        return self.report(layers(*arguments, **options))["plan_makespan"]

    def test_ring(self):
        # 1F1B of 2 stages and 4 microbatches takes (4 + 1) * 2. The all-reduce
        # of 40 bytes over 4 replicas passes 6 pieces of 10 bytes on, each in
        # 0.25 + 10 / 20.
        self.assertEqual(self.makespan("1f1b", ""), 10)
        self.assertEqual(self.makespan("1f1b", ", data_parallel: 4"), 10 + 6 * 0.75)

    def test_overlap(self):
        # That of the last stage can start when rank 0 still has a backward.
        self.assertEqual(self.makespan("1f1b", ", data_parallel: 4", first=0), 9 + 6 * 0.75)

    def test_half_rings(self):
        # 10 numbers are rounded up to 12, 3 a replica: scattered sums pass on 3
        # pieces of 12 bytes, in 0.25 + 12 / 20 each, then a gather 3 of 6.
        self.assertAlmostEqual(self.makespan("1f1b", ", data_parallel: 4, zero: 1"), 10 + 3 * 0.85 + 3 * 0.55)

    def test_bytes_of_parts(self):
        # 2, 4 and 12 bytes a parameter, of 12 of them; the optimizer's of 3.
        report = self.report(layers("1f1b", ", data_parallel: 4, zero: 1"))
        for rank in report["per_rank"]:
            memory = rank["memory"]
            self.assertEqual([memory[kind] for kind in ("parameters", "gradients", "optimizer")], [24, 48, 36])
        text = self.ok("report", "-", stdin=layers("1f1b", ", data_parallel: 4, zero: 1"))
        self.assertIn("optimizer: in 4 equal parts, one for each replica: rank 0 holds 36 B of 144 B\n", text)

    def test_bytes_of_gradients_in_parts(self):
        # Of 48 bytes 12 are kept, and while a microbatch is computed there are all of its own.
        spec = layers("1f1b", ", data_parallel: 4, zero: 2")
        for rank in self.report(spec)["per_rank"]:
            memory = rank["memory"]
            self.assertEqual([memory[kind] for kind in ("parameters", "gradients", "optimizer")], [24, 12 + 48, 36])
        text = self.ok("report", "-", stdin=spec)
        self.assertIn("gradients: in 4 equal parts between microbatches: rank 0 keeps 12 B, and up to 48 B of "
                      "microbatches until they are summed; whole they are 48 B\n", text)
        self.assertIn("zero 2 holds no fewer gradients than zero 1 here (60 B against 48 B)", text)

    def test_gradients_in_parts_save_with_several_stages(self):
        # Four stages a rank: of 4 x 48 bytes 4 x 12, and 48 of what is computed beside 48 of what is summed meanwhile.
        spec = layers("interleaved-1f1b", ", virtual_stages: 4, data_parallel: 4, zero: 2", more="").replace(
            "params: 10}", "params: 10, repeat: 4}")
        for rank in self.report(spec)["per_rank"]:
            self.assertEqual(rank["memory"]["gradients"], 4 * 12 + 2 * 48)
        self.assertNotIn("no fewer gradients", self.ok("report", "-", stdin=spec))

    def test_sums_of_microbatches(self):
        """What is wrong with one of them is refused where it stands."""
        text = self.ok("compile", "-", "--emit=ir", stdin=layers("1f1b", ", data_parallel: 4, zero: 2"))
        self.ok("check", self.write("job.ir", text))
        self.assertIn(" gradient_parts 4 gradients_partitioned ", text)
        self.assertEqual(len(re.findall(r"\d: \dREDUCE_SCATTER_W\d stream", text)), 2 * 4)

        def refused(pattern, by, *expected):
            changed, count = re.subn(pattern, by, text)
            self.assertEqual(count, 1)
            done = sluice.run("check", self.write("job.ir", changed))
            self.assertEqual(done.returncode, 1)
            for each in expected:
                self.assertEqual((done.stdout + done.stderr).count(each), 1, each)

        refused("0REDUCE_SCATTER_W2 ", "0REDUCE_SCATTER_W1 ",
                "error: missing: 0REDUCE_SCATTER_W2 is missing on rank 0: stage 0 keeps a part of its gradients between "
                "microbatches", "error: duplicate: 0REDUCE_SCATTER_W1 stands twice on rank 0")
        # The last one is behind nothing but what ends the step.
        refused("0REDUCE_SCATTER_W3 ", "0REDUCE_SCATTER_W2 ", "error: missing: 0REDUCE_SCATTER_W3 is missing on rank 0")
        refused(r"(0REDUCE_SCATTER_W1 [^\n]*) wait \d+ ", r"\1 ",
                "lifetime: 0REDUCE_SCATTER_W1 updates buffer 1 (gradients) while 0B1 may still use it",
                "order: 0REDUCE_SCATTER_W1 updates buffer 9 (whole_gradients) while 0B1 may still write it")
        refused(r"(: 0B1) wait \d+, (\d+)", r"\1 wait \2", "0B1 reads buffer 1 (gradients) while 0REDUCE_SCATTER_W0 may "
                "still ")
        refused(r"whole_gradients stage 0 offset \d+ bytes 48", "whole_gradients stage 0 offset 768 bytes 40",
                "malformed: 0B0 writes 48 bytes to buffer 9 (whole_gradients), which has 40")
        refused("whole_gradients stage 0 offset 768", "whole_gradients stage 0 offset 256",
                "lifetime: 0B0 writes buffer 9 (whole_gradients) over buffer 1 (gradients), which lives for the whole run")
        refused(r"(0REDUCE_SCATTER_W1 [^\n]*) update (\d+), (\d+)", r"\1 update \2 read \3",
                "malformed: 0REDUCE_SCATTER_W1 reads buffer 9 (whole_gradients), which its kind of operation may not")
        refused(r"(0REDUCE_SCATTER_W1 [^\n]*) update (\d+), (\d+)", r"\1 update \2",
                "0REDUCE_SCATTER_W1) is a collective of 1 buffers, not of 2")
        refused(r"(0REDUCE_SCATTER_W1 [^\n]*) update (\d+), (\d+)", r"\1 update \3, \2",
                "malformed: 0REDUCE_SCATTER_W1 must update a buffer of kind gradients")
        refused(r"(0STEP) wait \d+", r"\1",
                "lifetime: 0STEP reads buffer 1 (gradients) while 0REDUCE_SCATTER_W3 may still use it")

    def test_parts_in_text(self):
        text = self.ok("compile", "-", "--emit=ir", stdin=layers("1f1b", ", data_parallel: 4, zero: 1"))
        self.assertIn(" optimizer_parts 4 gradient_parts 4 ", text)
        self.assertRegex(text, r"0REDUCE_SCATTER_G stream 3 collective \d wait \d+ update \d+\n")
        self.assertRegex(text, r"0STEP wait \d+ [^\n]*\n"
                               r" +\d+: 0ALL_GATHER_P stream 3 collective \d wait \d+ update \d+\n")
        self.ok("check", self.write("job.ir", text))

    def test_every_schedule_runs(self):
        """Module synthetic finds the sum of what all replicas have in every buffer, and the parts of parameters that
        others have stepped."""
        for schedule, more in (("1f1b", ""), ("gpipe", ""), ("zb-h1", ""), ("dualpipe", ""), ("chimera", ""),
                               ("forward-only", ""), ("1f1b", ", zero: 1"), ("zb-h1", ", zero: 1"),
                               ("dualpipe", ", zero: 1"), ("chimera", ", zero: 1"), ("forward-only", ", zero: 1"),
                               ("1f1b", ", zero: 2"), ("zb-h1", ", zero: 2"), ("dualpipe", ", zero: 2"),
                               ("interleaved-1f1b", ", virtual_stages: 1, zero: 2"), ("forward-only", ", zero: 2")):
            with self.subTest(schedule=schedule, more=more):
                self.ok("run", "-", stdin=layers(schedule, ", data_parallel: 3" + more, more=""))

    def test_summary(self):
        out = self.ok("run", "-", stdin=layers("1f1b", ", data_parallel: 3", more=""))
        self.assertIn("replicas: 3, each with ranks like these\n", out)

    def test_explained(self):
        plan = self.folder / "job.plan"
        self.ok("compile", "-", "-o", plan, stdin=layers("1f1b", ", data_parallel: 3", more=""))
        out = self.ok("check", "--explain", plan)
        self.assertRegex(out, r"\n +2 +1 +40 B +1 of 3 replicas +1ALL_REDUCE_G\n")

    def test_plan_file(self):
        plan = self.folder / "job.plan"
        spec = layers("1f1b", ", data_parallel: 4")
        self.ok("compile", "-", "-o", plan, stdin=spec)
        self.assertEqual(json.loads(self.ok("report", plan, "--json"))["plan_makespan"], 14.5)
        self.ok("check", plan)
        self.ok("run", plan)
        self.ok("compile", "-", "-o", plan, stdin=layers("zb-h1", ", data_parallel: 4, zero: 2", more=""))
        self.ok("check", plan)
        self.ok("run", plan)

    def test_text_form(self):
        text = self.ok("compile", "-", "--emit=ir", stdin=layers("1f1b", ", data_parallel: 4"))
        self.assertIn("  replicas 4\n", text)
        self.assertIn(" ranks 0 over replicas latency 0.25 bandwidth 20\n", text)
        path = self.write("job.ir", text)
        self.ok("check", path)

    def test_who_failed(self):
        # The module fails in stage 2 at microbatch 2 of all, which is the first of replica 1.
        module = next(MODULES.glob("*sluice_bad_module_error*"))
        spec = sluice.chain(microbatches=2, pipeline=", data_parallel: 2")
        error = self.refused(3, "run", "-", f"--module={module}", stdin=spec)
        self.assertRegex(error, r"(?m)^replica  rank  step  stands at")
        self.assertRegex(error, r"(?m)^1 +2 +0 +2F0 ")
        self.assertIn("error: rank 2 of replica 1 failed at 2F0 (-:5) of step 0: out of luck", error)


if __name__ == "__main__":
    sluice.main()

"""Saved activations that go to host memory and come back, from the spec to what a run allocates."""

import itertools
import json
import re

import sluice
from sluice import EXAMPLES, ROOT, ToolTest, chain, run

OFFLOAD = ", offload: activations"
KIB = 1024


def held(layer=", activation_bytes: 1024", pipeline="", link="bandwidth: 1024", schedule="1f1b"):
    """F = 1, B = 2; a microbatch saves 1 KiB a stage, which a copy moves in the time of an F."""
    return chain(backward=2, layer=layer, pipeline=OFFLOAD + pipeline, schedule=schedule,
                 more=f"cluster: {{host_link: {{{link}}}}}\n")


class Bytes(ToolTest):
    def test_report(self):
        # 1f1b holds p - r microbatches, with offload at most three: what goes, what is computed, what comes.
        ranks = self.report(held())["per_rank"]
        self.assertEqual([rank["memory"]["activations"] for rank in ranks], [3 * KIB, 3 * KIB, 2 * KIB, KIB])
        self.assertEqual([rank["peak_bytes"] for rank in ranks], [3 * KIB, 3 * KIB, 2 * KIB, KIB])
        self.assertEqual([rank["unmoved_peak_bytes"] for rank in ranks], [4 * KIB, 3 * KIB, 2 * KIB, KIB])
        self.assertEqual([rank["host_peak_bytes"] for rank in ranks], [3 * KIB, 2 * KIB, 0, 0])
        self.assertEqual([rank["host_arena_bytes"] for rank in ranks], [3 * KIB, 2 * KIB, 0, 0])
        for rank in ranks:
            self.assertEqual(sum(rank["memory"].values()), rank["peak_bytes"])

    def test_plan_says_the_same(self):
        spec, plan = self.write("chain.yaml", held()), self.folder / "chain.plan"
        self.ok("compile", spec, "-o", plan)
        self.ok("check", plan)
        ofspec, ofplan = (json.loads(self.ok("report", path, "--json"))["per_rank"] for path in (spec, plan))
        for key in ("peak_bytes", "arena_bytes", "unmoved_peak_bytes", "host_peak_bytes", "host_arena_bytes"):
            self.assertEqual([rank[key] for rank in ofspec], [rank[key] for rank in ofplan], key)

    def test_run_allocates_what_is_planned(self):
        for schedule, pipeline in itertools.product(("1f1b", "gpipe", "zb-h1"), ("", ", recompute: full")):
            spec = held(", activation_bytes: 1000, output_bytes: 40, params: 10", pipeline, schedule=schedule)
            out = self.ok("run", "-", "-v", stdin=spec)
            ranks = self.report(spec)["per_rank"]
            for number, rank in enumerate(ranks):
                line = re.search(rf"^rank {number}: .*$", out, re.M).group()
                sizes = [int(size) for size in re.findall(r"\((\d+) bytes\)", line)]
                device, host = rank["arena_bytes"], rank["host_arena_bytes"]
                self.assertEqual(sizes, [device, device, rank["peak_bytes"]] + [host, host] * (host != 0), line)
            self.assertGreater(sum(rank["host_arena_bytes"] for rank in ranks), 0, spec)

    def test_copies_take_time(self):
        # A copy as long as F hides behind one: 3 (m + p - 1).
        self.assertEqual(self.report(held())["plan_makespan"], 33)
        slow = self.report(held(link="bandwidth: 128"))
        self.assertEqual(slow["makespan"], 33)
        self.assertGreater(slow["plan_makespan"], 33)


class Outputs(ToolTest):
    def test_pictures_have_the_copies(self):
        trace = self.ok("compile", "-", "--emit=trace", stdin=held())
        self.assertEqual(trace.count("0OFFLOAD"), trace.count("0RELOAD"))
        self.assertIn("0OFFLOAD0", trace)

    def test_a_csv_has_none(self):
        for emit in ("torch-csv", "torch-csv-comms"):
            text = self.ok("compile", "-", f"--emit={emit}", stdin=held())
            self.assertNotIn("LOAD", text)
            self.ok("check", "-", stdin=text)

    def test_what_does_not_come_back_is_found(self):
        text = self.ok("compile", "-", "--emit=ir", stdin=held())
        self.assertIn("0RELOAD3", text)
        done = run("check", "-", "--json", stdin=text.replace("0RELOAD3", "0RELOAD2"))
        self.assertEqual(done.returncode, 1, done.stderr)
        found = json.loads(done.stdout)["errors"]
        self.assertIn(("missing", "0RELOAD3 is missing"), [(each["kind"], each["message"]) for each in found])
        self.assertIn("duplicate", [each["kind"] for each in found])


class Advice(ToolTest):
    LIMIT = "--set=pipeline.memory_limit=3KiB"

    def test_what_is_advised_fits(self):
        without = held().replace(OFFLOAD, "")
        error = self.refused(1, "report", "-", self.LIMIT, stdin=without)
        self.assertIn("note: would fit: pipeline.offload: activations (makespan 33, 3.00 KiB on the largest rank)", error)
        self.ok("report", "-", self.LIMIT, "--set=pipeline.offload=activations", stdin=without)

    def test_example(self):
        spec = EXAMPLES / "llama-3-8b-offload.yaml"
        report = json.loads(self.ok("report", spec, "--json"))
        first = report["per_rank"][0]
        three = first["memory"]["activations"]  # in flight are four
        self.assertEqual(first["unmoved_peak_bytes"] - first["peak_bytes"], three // 3)
        self.assertEqual(first["host_peak_bytes"], three)
        self.assertLess(report["plan_makespan"], 1.0001 * report["makespan"])  # as fast as without copies
        error = self.refused(1, "report", spec, "--set=pipeline.offload=none")
        self.assertIn("note: would fit: pipeline.offload: activations (makespan ", error)

    def test_its_link_is_missing(self):
        error = self.refused(1, "report", "-", self.LIMIT, stdin=held().replace(OFFLOAD, "").split("cluster")[0])
        self.assertIn("note: pipeline.offload: activations would fit (3.00 KiB on the largest rank), but needs "
                      "cluster.host_link", error)


class Weights(ToolTest):
    def test_weights_are_the_same(self):
        data = self.write("data.txt", (ROOT / "LICENSE").read_text()[:4000])

        def train(ranks, schedule, chunks, more):
            spec = f"""sluice: 1
model: {{transformer: {{layers: 9, hidden: 8, ffn: 16, heads: 2, vocab: 256, sequence: 5, dtype: fp32}}}}
pipeline: {{ranks: {ranks}, virtual_stages: {chunks}, microbatches: 8, schedule: {schedule}{more}}}
cluster: {{host_link: {{latency: 0}}}}
run: {{data: {data}, steps: 2, learning_rate: 0.01}}
"""
            path = self.folder / "weights"
            path.unlink(missing_ok=True)
            self.ok("run", "-", f"--save={path}", "-q", stdin=spec)
            return path.read_bytes()

        expected = train(1, "1f1b", 1, "")
        self.assertGreater(len(expected), 10000)
        for ranks in (1, 2, 4):
            for schedule, chunks in (("1f1b", 1), ("gpipe", 1), ("zb-h1", 1), ("interleaved-1f1b", 2), ("zb-v", 2)):
                for recompute in ("none", "selective", "full"):
                    got = train(ranks, schedule, chunks, f", recompute: {recompute}{OFFLOAD}")
                    self.assertTrue(got == expected, f"{schedule} on {ranks} ranks, recompute {recompute}")


sluice.main()

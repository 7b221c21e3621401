"""Memory limits, odd sizes, and the largest that must work."""

import json
import re

import sluice
from sluice import ToolTest, chain

SIZES = ", params: 1000, activation_bytes: 3000, output_bytes: 500"


class Limits(ToolTest):
    def test_exactly_the_missing_bytes(self):
        for schedule in ("naive", "gpipe", "1f1b"):
            spec = chain(layers=6, ranks=3, microbatches=5, schedule=schedule, layer=SIZES)
            report = self.report(spec)
            arena = max(rank["arena_bytes"] for rank in report["per_rank"])
            limit = f"--set=pipeline.memory_limit={arena - 1}"
            error = self.refused(1, "compile", "-", "--emit=ops", limit, stdin=spec)
            self.assertIn(f"({arena} bytes), 1 bytes over the limit", error)
            self.ok("compile", "-", "--emit=ops", f"--set=pipeline.memory_limit={arena}", stdin=spec)

    def test_what_would_fit_does(self):
        spec = chain(layers=4, microbatches=16, schedule="gpipe", layer=SIZES, pipeline=", memory_limit: 60kB")
        error = self.refused(1, "compile", "-", "--emit=ops", stdin=spec)
        self.assertRegex(error, r"^-:6:71: error: rank 1 needs 67.25 KiB \(68864 bytes\), 8864 bytes over the limit of ")
        self.assertIn("note: the peak is at ", error)
        self.assertIn("46.88 KiB (48000 bytes) saved of stage 1, 16 buffers", error)
        lines = re.findall(r"would fit: (.*)", error)
        alike = [line for line in lines if line.endswith("on the largest rank)")]  # devices and batch of the spec
        self.assertEqual(alike, lines[:len(alike)])
        spans = [float(re.search(r"\(makespan ([0-9.]+),", line)[1]) for line in alike]
        self.assertEqual(spans, sorted(spans))  # the fastest first
        advice = [re.findall(r"(pipeline\.[a-z_]+): (\S+)", line) for line in lines]
        self.assertIn([("pipeline.schedule", "1f1b")], advice)
        self.assertEqual("pipeline.memory_limit", advice[-1][0][0])
        for line, changes in zip(lines, advice):
            sets = [f"--set={key}={value}" for key, value in changes]
            report = json.loads(self.ok("report", "-", "--json", *sets, stdin=spec))
            if told := re.search(r"\(makespan ([0-9.]+),", line):
                self.assertEqual(report["makespan"], float(told[1]), line)

    def test_warmup_that_fits(self):
        spec = chain(layers=4, microbatches=6, layer=SIZES, pipeline=", memory_limit: 29kB")
        error = self.refused(1, "compile", "-", "--emit=ops", stdin=spec)
        self.assertIn("would fit: pipeline.warmup: auto (makespan ", error)
        self.ok("compile", "-", "--emit=ops", "--set=pipeline.warmup=auto", stdin=spec)

    def test_no_advice_above_the_device(self):
        spec = chain(forward="1ms", backward="1ms", layer=SIZES, more="cluster: {device: {memory: 200MiB}}\n")
        error = self.refused(1, "compile", "-", "--emit=ops", stdin=spec)
        self.assertNotIn("pipeline.memory_limit: ", error)
        self.assertIn("sizes take units", error)
        above = chain(forward="1ms", backward="1ms", pipeline=", memory_limit: 3GiB",
                      more="cluster: {device: {memory: 2GiB}}\n")
        done = sluice.run("compile", "-", "--emit=ops", stdin=above)
        self.assertEqual(done.returncode, 0)
        self.assertIn("warning: pipeline.memory_limit is 3.00 GiB, more than the device's 2.00 GiB", done.stderr)
        self.refused(1, "compile", "-", "--emit=ops", "--set=pipeline.memory_limit=0", stdin=chain())

    def test_report_of_a_spec_over_its_limit(self):
        spec = chain(layer=SIZES, pipeline=", memory_limit: 1kB")
        done = sluice.run("report", "-", "--json", stdin=spec)
        self.assertEqual(done.returncode, 1)
        self.assertIn('"makespan"', done.stdout)
        self.assertIn("over the limit", done.stderr)

    def test_odd_sizes(self):
        for schedule in ("naive", "gpipe", "1f1b"):
            for ranks, microbatches in ((1, 1), (1, 5), (4, 1), (8, 3), (7, 2)):
                spec = chain(layers=8, ranks=ranks, microbatches=microbatches, schedule=schedule, layer=SIZES)
                report = self.report(spec)
                self.assertEqual(report["ranks"], ranks)
                self.ok("run", "-", "-q", stdin=spec)

    def test_large(self):
        spec = self.write("large.yaml", chain(layers=64, ranks=64, microbatches=4096))
        plan = self.folder / "large.plan"
        self.ok("compile", spec, "-o", plan)
        out = self.ok("check", plan)
        operations = 64 * 4096 * 2 + 63 * 4096 * 4 + 64
        self.assertIn(f"ok: {operations} operations on 64 ranks", out)


sluice.main()

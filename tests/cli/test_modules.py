"""Stage modules that fail: the run ends with 3, the table, and no output."""

import time

import sluice
from sluice import MODULES, ToolTest, chain, run


class Modules(ToolTest):
    def fails(self, behaviour, timeout="1s"):
        """Runs the test module that misbehaves in its third forward."""
        spec = self.write("job.yaml", chain(layer=", output_bytes: 64"))
        save, timeline = self.folder / "weights", self.folder / "timeline"
        start = time.monotonic()
        done = run("run", spec, f"--module={MODULES}/libsluice_bad_module_{behaviour}.so", f"--timeout={timeout}",
                   f"--save={save}", f"--timeline={timeline}", "--steps=3", timeout=60)
        seconds = time.monotonic() - start
        self.assertEqual(done.returncode, 3, done.stderr)
        left = sorted(p.name for p in self.folder.iterdir())
        self.assertEqual(left, ["job.yaml"])
        for rank in range(4):
            self.assertRegex(done.stderr, rf"(?m)^\s*(rank )?{rank}\b")
        self.assertIn("job.yaml:5", done.stderr)
        return done.stderr, seconds

    def test_error(self):
        error, _ = self.fails("error", "60s")
        self.assertIn("2F2", error)
        self.assertIn("out of luck", error)

    def test_throw(self):
        error, _ = self.fails("throw", "60s")
        self.assertIn("2F2", error)
        self.assertIn("thrown away", error)

    def test_hang(self):
        error, seconds = self.fails("hang")
        self.assertIn("2F2", error)
        self.assertLess(seconds, 1 + 10)

    def test_timelines_of_short_runs(self):
        units, seconds = (self.write(f"{name}.yaml", chain(forward=time, backward=time))
                          for name, time in (("units", "1"), ("seconds", "1ms")))
        stem = self.folder / "t"
        predicted, measured = self.folder / "t.predicted.svg", self.folder / "t.measured.svg"
        out = self.ok("run", seconds, f"--timeline={stem}", "--steps=2")
        self.assertIn("from the plan's own costs", out)
        self.assertIn("predicted from the plan", predicted.read_text())
        done = run("run", units, f"--timeline={stem}", "--steps=2")
        self.assertEqual(done.returncode, 0)
        self.assertFalse(predicted.exists())
        self.assertTrue(measured.exists())
        self.assertIn("note: " + f"{stem}.predicted.svg and .trace are not written: the plan's times are in abstract "
                      "units, and costs are measured only in more than 5 steps\n", done.stderr)
        self.assertIn("predicted", self.ok("run", units, f"--timeline={stem}", "--steps=6"))
        self.assertTrue(predicted.exists())

    def test_summary(self):
        spec = self.write("job.yaml", chain(layers=64, ranks=64, layer=", output_bytes: 1MiB"))
        out = self.ok("run", spec)
        self.assertRegex(out, r"(?m)^rank 0: arena planned [\d.]+ MiB, allocated [\d.]+ MiB; planned to be in use at most "
                              r"[\d.]+ MiB$")
        self.assertRegex(self.ok("run", spec, "-v"), r"(?m)^rank 0: arena planned [\d.]+ MiB \(\d+ bytes\)")
        import os
        if len(os.sched_getaffinity(0)) < 64:
            self.assertRegex(out, r"(?m)^cores: 64 ranks share \d+ cores?; the prediction lets all ranks compute at once")

    def test_losses_that_are_no_numbers(self):
        self.write("data.txt", "some text to train on, over and over again; " * 20)
        spec = self.write("job.yaml", """sluice: 1
model: {transformer: {layers: 2, hidden: 16, heads: 2, vocab: 256, sequence: 12, dtype: fp32}}
pipeline: {ranks: 2, microbatches: 2}
run: {data: data.txt, steps: 12, learning_rate: 1000}
""")
        done = run("run", spec)
        self.assertEqual(done.returncode, 0, done.stderr)
        if "nan" in done.stdout:
            self.assertNotIn("-nan", done.stdout + done.stderr)
            self.assertRegex(done.stderr, r"(?m)^warning: the loss of step \d+ is (nan|inf); ")
            self.assertEqual(done.stderr.count("warning: the loss"), 1)

    def test_address_space_too_small_for_the_matrix_library(self):
        if sluice.SANITIZED:
            self.skipTest("sanitizers reserve more address space than any limit")
        import resource
        import subprocess
        self.write("data.txt", "some text to train on, over and over again; " * 20)
        spec = self.write("job.yaml", """sluice: 1
model: {transformer: {layers: 2, hidden: 16, heads: 2, vocab: 256, sequence: 12, dtype: fp32}}
pipeline: {ranks: 2, microbatches: 2}
run: {data: data.txt}
""")
        done = subprocess.run([sluice.SLUICE, "run", spec], capture_output=True, text=True, timeout=60,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (280 << 20, 280 << 20)))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r"error: module gpt: the matrix library \S+ needs 304.00 MiB of address space for 2 "
                                      r"ranks, and there is less")

    def test_large_buffers_cost_no_time(self):
        spec = self.write("job.yaml", chain(forward="1ms", backward="2ms", layers=2, ranks=2, microbatches=4,
                                            layer=", activation_bytes: 64MiB, params: 4000000"))
        out = self.ok("run", spec, "--steps=7")
        self.assertIn("measured", out)

    def test_keys_without_effect_are_told(self):
        spec = self.write("job.yaml", chain(more="run: {seed: 3}\n"))
        warning = "run.seed has no effect with module synthetic"
        self.assertIn(warning, run("run", spec).stderr)
        self.assertIn(warning, run("compile", spec, "--emit=ops").stderr)
        self.assertIn("warning: --data has no effect with module synthetic\n", run("run", spec, "--data=x").stderr)

    def test_shared_library_only_from_the_command_line(self):
        spec = self.write("job.yaml", chain(more=f"run: {{module: {MODULES}/libsluice_bad_module_error.so}}\n"))
        self.assertIn("--module", self.refused(1, "run", spec))

    def test_not_a_module(self):
        spec = self.write("job.yaml", chain())
        self.write("not-a-library.so", "text")
        self.refused(1, "run", spec, f"--module={self.folder}/not-a-library.so")
        self.refused(1, "run", spec, f"--module={self.folder}/missing.so")


sluice.main()

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

    def test_shared_library_only_from_the_command_line(self):
        spec = self.write("job.yaml", chain(more=f"run: {{module: {MODULES}/libsluice_bad_module_error.so}}\n"))
        self.assertIn("--module", self.refused(1, "run", spec))

    def test_not_a_module(self):
        spec = self.write("job.yaml", chain())
        self.write("not-a-library.so", "text")
        self.refused(1, "run", spec, f"--module={self.folder}/not-a-library.so")
        self.refused(1, "run", spec, f"--module={self.folder}/missing.so")


sluice.main()

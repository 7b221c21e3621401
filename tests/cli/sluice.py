"""What the tests of the command line share: running it, and small specs."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
SLUICE = os.environ["SLUICE"]  # the program under test; set by CMake
MODULES = pathlib.Path(os.environ.get("SLUICE_TEST_MODULES", "."))  # shared libraries made for tests
SANITIZED = os.environ.get("SLUICE_SANITIZED", "") != ""


def run(*arguments, stdin=None, timeout=240, cwd=None):
    """Runs the tool; returns the finished process with text output."""
    return subprocess.run([SLUICE, *map(str, arguments)], input=stdin, capture_output=True, text=True,
                          timeout=timeout, cwd=cwd, errors="replace")


def chain(layers=4, forward=1, backward=1, ranks=4, microbatches=8, schedule="1f1b", layer="", pipeline="", more=""):
    """A spec of equal explicit layers."""
    return f"""sluice: 1
model:
  name: chain
  layers:
    - {{name: layer, repeat: {layers}, forward: {forward}, backward: {backward}{layer}}}
pipeline: {{ranks: {ranks}, microbatches: {microbatches}, schedule: {schedule}{pipeline}}}
{more}"""


class ToolTest(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        self.folder_holder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        self.folder = pathlib.Path(self.folder_holder.name)
        self.addCleanup(self.folder_holder.cleanup)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def ok(self, *arguments, **options):
        """Runs the tool, which must succeed; returns what it printed."""
        done = run(*arguments, **options)
        self.assertEqual(done.returncode, 0, f"{arguments}\n{done.stdout}{done.stderr}")
        return done.stdout

    def refused(self, code, *arguments, **options):
        """Runs the tool, which must end with `code`; returns its diagnostics."""
        done = run(*arguments, **options)
        self.assertEqual(done.returncode, code, f"{arguments}\n{done.stdout}{done.stderr}")
        return done.stderr

    def report(self, spec, *arguments):
        """`report --json` of a spec given as text."""
        return json.loads(self.ok("report", "-", "--json", *arguments, stdin=spec))

    def ops(self, spec, *arguments):
        """`--emit=ops` of a spec given as text, as a list of lists of names."""
        lines = self.ok("compile", "-", "--emit=ops", *arguments, stdin=spec).splitlines()
        for rank, line in enumerate(lines):
            self.assertTrue(line.startswith(f"rank {rank}: "), line)
        return [line.split(": ")[1].split() for line in lines]


def main():
    unittest.main(verbosity=2)

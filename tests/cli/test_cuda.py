"""The backend cuda where there may be no GPU, and that nothing else loads it."""

import os
import re
import shutil
import subprocess

import sluice
from sluice import ROOT, SANITIZED, SLUICE, ToolTest, chain, run

DOUBLE = os.environ.get("SLUICE_CUDA_DOUBLE", "")  # the plug-in over the double of CUDA


class Cuda(ToolTest):
    def test_without_a_gpu(self):
        spec = self.write("job.yaml", chain(layer=", output_bytes: 64"))
        done = run("run", spec, "--backend=cuda", "-q")
        if done.returncode == 0:
            self.skipTest("there is a GPU")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r"^error: backend cuda: (there is no GPU that can be used here|this build has none)")
        self.assertEqual(done.stdout, "")

    def test_nothing_else_loads_it(self):
        spec = self.write("job.yaml", chain(layer=", output_bytes: 64"))
        plan = self.folder / "job.plan"
        for arguments in (("compile", spec, "-o", plan), ("check", plan), ("report", plan), ("run", plan, "-q")):
            os.environ["LD_DEBUG"] = "files"
            try:
                done = run(*arguments)
            finally:
                del os.environ["LD_DEBUG"]
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("libstdc++", done.stderr)
            self.assertNotRegex(done.stderr, "lib(sluice_cuda|cudart|nccl)")

    def test_devices(self):
        spec = self.write("job.yaml", chain())
        for count in ("0", "many", "-1"):
            self.assertEqual(self.refused(2, "run", spec, "--backend=cuda", f"--devices={count}"),
                             f"error: --devices={count} is not a count from 1\n"
                             "'sluice run --help' lists the options\n")
        done = run("run", spec, "--devices=2", "--steps=1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stderr.startswith("warning: --devices has no effect with backend host\n"), done.stderr)

    def test_gpt_on_devices(self):
        """The program with the double's plug-in beside it instead of the real one."""
        if not DOUBLE or SANITIZED:
            self.skipTest("this build has no double that can be loaded")
        program = self.folder / "sluice"
        shutil.copy(SLUICE, program)
        shutil.copy(DOUBLE, self.folder / "libsluice_cuda.so")
        def train(dtype, *arguments):
            spec = self.write("job.yaml", f"""sluice: 1
model:
  transformer: {{layers: 2, hidden: 16, ffn: 32, heads: 2, vocab: 256, sequence: 12, dtype: {dtype}}}
pipeline: {{ranks: 2, microbatches: 4}}
run: {{data: {ROOT / "LICENSE"}, learning_rate: 0.01, steps: 12}}
""")
            return subprocess.run([program, "run", spec, "--backend=cuda", *arguments], capture_output=True, text=True,
                                  timeout=120)
        saved = {}
        for dtype in ("fp32", "bf16"):
            for graph in ((), ("--graph",)):
                path = self.folder / "weights"
                done = train(dtype, f"--save={path}", *graph)
                self.assertEqual(done.returncode, 0, done.stderr)
                first, last = map(float, re.search(r"loss: (\S+) at the first step, (\S+) at the last", done.stdout).groups())
                self.assertLess(last, first - 0.5)
                saved[dtype, graph] = path.read_bytes()
            self.assertEqual(saved[dtype, ()], saved[dtype, ("--graph",)])
        # As many numbers, of which those of 16 bits take half; names and sizes take the same.
        self.assertLess(len(saved["bf16", ()]), len(saved["fp32", ()]) * 0.6)
        done = train("fp16", "-q")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("dtype is 'fp16', this module computes only 'fp32'", done.stderr)


sluice.main()

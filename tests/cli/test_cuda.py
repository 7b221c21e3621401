"""The backend cuda where there may be no GPU, and that nothing else loads it."""

import os

import sluice
from sluice import ToolTest, chain, run


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


sluice.main()

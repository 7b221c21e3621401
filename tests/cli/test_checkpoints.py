"""Checkpoints: what is stopped and goes on ends where what was never stopped does."""

import os
import random
import resource
import signal
import subprocess
import time

import sluice
from sluice import MODULES, ROOT, SLUICE, ToolTest, chain, run

SPEC = """sluice: 1
model:
  transformer: {{layers: 4, hidden: 16, ffn: 32, heads: 2, vocab: 256, sequence: 12, tied_embeddings: {tied}, dtype: fp32}}
pipeline: {{ranks: {ranks}, microbatches: 8, schedule: {schedule}{more}}}
run: {{data: {data}, steps: 6, learning_rate: 0.01, clip_norm: 0.5}}
"""


class Checkpoints(ToolTest):
    def setUp(self):
        super().setUp()
        self.data = self.folder / "data.txt"
        self.data.write_bytes((ROOT / "LICENSE").read_bytes()[:4000])
        self.checkpoints = self.folder / "checkpoints"

    def spec(self, ranks=4, schedule="1f1b", tied="true", more=""):
        path = self.folder / f"{schedule}-{ranks}.yaml"
        path.write_text(SPEC.format(ranks=ranks, schedule=schedule, tied=tied, more=more, data=self.data))
        return path

    def weights(self, spec, *arguments, code=0, **options):
        """Runs to the end; the weights, and what was said."""
        out = self.folder / "weights.bin"
        out.unlink(missing_ok=True)
        done = run("run", spec, f"--save={out}", *arguments, **options)
        self.assertEqual(done.returncode, code, done.stderr)
        return out.read_bytes() if out.exists() else None, done.stderr

    def train(self, spec, steps, every=1):
        self.ok("run", spec, "-q", f"--steps={steps}", f"--checkpoint-dir={self.checkpoints}",
                f"--checkpoint-every={every}")

    def folders(self):
        return sorted(path.name for path in self.checkpoints.iterdir())

    def resume(self, spec, *arguments):
        return self.weights(spec, f"--checkpoint-dir={self.checkpoints}", *arguments)


class Resumed(Checkpoints):
    def test_the_weights_are_those_of_a_run_that_was_never_stopped(self):
        spec = self.spec()
        whole, _ = self.weights(spec)
        self.train(spec, steps=4)
        self.assertEqual(self.folders(), ["step-3", "step-4"])  # the two newest
        weights, told = self.resume(spec)
        self.assertEqual(weights, whole)
        self.assertIn(f"goes on from {self.checkpoints}/step-4\n", told)
        self.assertEqual(self.folders(), ["step-4", "step-6"])

    def test_under_another_schedule_and_number_of_ranks(self):
        begun, whole = self.spec(), None
        for ranks, schedule, more in [(1, "naive", ""), (2, "zb-v", ", virtual_stages: 2"), (2, "gpipe", ""),
                                      (4, "zb-h1", ""), (2, "dualpipev", ", virtual_stages: 2"),
                                      (2, "1f1b", ", data_parallel: 1")]:
            with self.subTest(schedule=schedule, ranks=ranks):
                whole = whole or self.weights(begun)[0]
                self.train(begun, steps=3, every=3)
                weights, _ = self.resume(self.spec(ranks, schedule, more=more))
                self.assertEqual(weights, whole)
                for path in self.checkpoints.iterdir():
                    path.rename(self.folder / f"{schedule}-{ranks}-{path.name}")

    def test_replicas(self):
        spec = self.spec(ranks=2, more=", data_parallel: 2")
        whole, _ = self.weights(spec)
        self.train(spec, steps=2)
        self.assertEqual(len(list((self.checkpoints / "step-2").iterdir())), 1 + 2)  # the first replica's
        self.assertEqual(self.resume(spec)[0], whole)

    def test_copies_of_a_stage(self):
        spec = self.spec(ranks=4, schedule="dualpipe")
        whole, _ = self.weights(spec)
        self.train(spec, steps=2)
        self.assertEqual(self.resume(spec)[0], whole)

    def test_no_step_is_left(self):
        spec = self.spec(ranks=2)
        whole, _ = self.weights(spec)
        self.train(spec, steps=6)
        weights, told = self.resume(spec, f"--timeline={self.folder}/t")
        self.assertEqual(weights, whole)
        self.assertIn("step-6: no step is left", told)

    def test_more_steps_than_the_run(self):
        spec = self.spec(ranks=2)
        self.train(spec, steps=4)
        told = self.refused(1, "run", spec, "--steps=3", f"--checkpoint-dir={self.checkpoints}")
        self.assertIn("step-4 has 4 steps behind it, over the 3 of this run", told)

    def test_another_model(self):
        self.train(self.spec(ranks=2), steps=2)
        other = self.spec(ranks=2, tied="false")
        told = self.refused(1, "run", other, f"--checkpoint-dir={self.checkpoints}")
        self.assertIn("is of another model: tensor ", told)


class Ended(Checkpoints):
    """By a signal, after the step in progress."""

    def steps(self):
        """After which the newest checkpoint is."""
        return max([int(name.removeprefix("step-")) for name in self.folders()
                    if name.removeprefix("step-").isdigit()], default=0)

    def end(self, number, spec, started, *arguments):
        """Runs for ever, until the signal `number` once `started`; the last line that it says."""
        process = subprocess.Popen([SLUICE, "run", spec, "--steps=1000000", f"--checkpoint-dir={self.checkpoints}",
                                    *arguments], stderr=subprocess.PIPE, text=True)
        started(process)
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 3, told)
        return told.splitlines()[-1]

    def check(self, told, number, before):
        steps = self.steps()
        self.assertGreater(steps, before)
        self.assertEqual(told, f"error: the job was ended from outside by signal {number.value}; {self.checkpoints}"
                         f"/step-{steps} holds its state after {steps} steps")

    def test_with_a_checkpoint_from_which_it_goes_on(self):
        spec = self.spec()
        told = self.end(signal.SIGINT, spec, lambda process: self.assertIn("step 1/", process.stderr.readline()))
        self.check(told, signal.SIGINT, before=0)
        self.assertEqual(len(self.folders()), 1)
        before = self.steps()

        def runs(process):
            self.assertEqual(process.stderr.readline(), f"goes on from {self.checkpoints}/step-{before}\n")
            while self.steps() == before and process.poll() is None:
                time.sleep(0.01)

        self.check(self.end(signal.SIGTERM, spec, runs, "--checkpoint-every=1"), signal.SIGTERM, before)
        total = f"--steps={self.steps() + 2}"
        whole, _ = self.weights(spec, total)
        self.assertEqual(self.resume(spec, total)[0], whole)

    def test_that_does_not_come_to_its_end(self):
        """Ends as it is, within the timeout."""
        spec = self.write("job.yaml", chain(ranks=2, more="run: {steps: 4}"))
        process = subprocess.Popen([SLUICE, "run", spec, f"--module={MODULES / 'libsluice_fault_module.so'}",
                                    f"--checkpoint-dir={self.checkpoints}", "--timeout=2"], stderr=subprocess.PIPE,
                                   text=True, env={**os.environ, "SLUICE_TEST_FAULT": "hang 1 B 2 1"})
        self.assertIn("step 1/", process.stderr.readline())
        process.send_signal(signal.SIGTERM)
        start = time.monotonic()
        _, told = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - start, 12)  # the timeout and ten seconds
        self.assertEqual(process.returncode, 3, told)
        self.assertRegex(told, r"(?m)^1 +1 +1B2 +job.yaml:\d+ ")
        self.assertRegex(told, r"error: (rank 1 has made no progress|the job was ended from outside by signal 15\n)")
        self.assertEqual(self.folders(), [])


class Torn(Checkpoints):
    def test_any_damage_is_noticed_and_the_one_before_is_taken(self):
        spec = self.spec(ranks=2)
        whole, _ = self.weights(spec)
        self.train(spec, steps=4)
        newest = self.checkpoints / "step-4"
        kept = {path: path.read_bytes() for path in newest.iterdir()}
        chance = random.Random(7)
        for path, content in kept.items():
            at = chance.randrange(len(content))
            changed = bytes([content[at] ^ 1 << chance.randrange(8)])
            for damage in (content[:at], content + b"x", b"", None, content[:at] + changed + content[at + 1:]):
                with self.subTest(file=path.name, bytes=None if damage is None else len(damage), at=at):
                    if damage is None:
                        path.unlink()
                    else:
                        path.write_bytes(damage)
                    weights, told = self.resume(spec, "--steps=3")
                    self.assertIn(f"warning: {newest} is passed over: ", told)
                    self.assertIn(f"goes on from {self.checkpoints}/step-3: no step is left", told)
                    self.assertIsNotNone(weights)
                    path.write_bytes(content)
        (newest / "part-1").unlink()
        self.assertEqual(self.resume(spec)[0], whole)
        self.assertEqual(self.folders(), ["step-4", "step-6"])

    def test_what_has_no_name_yet_is_removed(self):
        spec = self.spec(ranks=2)
        whole, _ = self.weights(spec)
        self.train(spec, steps=3)
        (self.checkpoints / "step-3").rename(self.checkpoints / "step-4.partial")
        (self.checkpoints / "step-4.partial" / "part-0").write_bytes(b"torn")
        (self.checkpoints / "step-x.partial").mkdir()  # not ours
        self.assertEqual(self.resume(spec)[0], whole)
        self.assertEqual(self.folders(), ["step-2", "step-6", "step-x.partial"])


class Faults(Checkpoints):
    def test_a_full_disk_ends_the_run_with_the_file(self):
        spec = self.spec(ranks=2)
        whole, _ = self.weights(spec)
        self.train(spec, steps=2)

        def small():  # writing past it is refused, as on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        done = subprocess.run([SLUICE, "run", spec, f"--checkpoint-dir={self.checkpoints}", "--checkpoint-every=1"],
                              capture_output=True, text=True, timeout=60, preexec_fn=small)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r"error: rank \d failed in step 2: cannot write .*step-3\.partial/part-\d: ")
        self.assertEqual(self.resume(spec)[0], whole)

    def test_a_directory_that_cannot_be(self):
        spec = self.spec(ranks=2)
        for directory in ("/proc/none/here", f"{self.data}/below", str(self.data)):
            told = self.refused(3, "run", spec, f"--checkpoint-dir={directory}")
            self.assertIn("directory", told)

    def test_flags(self):
        spec = self.spec(ranks=2)
        self.assertIn("is not a count from 1", self.refused(2, "run", spec, "--checkpoint-dir=x",
                                                            "--checkpoint-every=0"))
        self.assertIn("--checkpoint-every needs --checkpoint-dir", self.refused(2, "run", spec,
                                                                                "--checkpoint-every=2"))

    def test_killed_at_random_moments(self):
        spec = self.spec(ranks=2)
        whole, _ = self.weights(spec, "--steps=40")
        chance, killed = random.Random(1), 0
        command = [SLUICE, "run", spec, "-q", "--steps=40", f"--checkpoint-dir={self.checkpoints}",
                   "--checkpoint-every=1"]
        for _ in range(1000):
            process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            time.sleep(chance.uniform(0.01, 0.15))
            process.send_signal(signal.SIGKILL)
            _, told = process.communicate()
            self.assertNotIn("passed over", told)
            self.assertIn(process.returncode, (0, -signal.SIGKILL), told)
            killed += process.returncode != 0
            if process.returncode == 0:
                break
        self.assertEqual(process.returncode, 0)
        self.assertGreater(killed, 0)
        self.assertEqual(self.resume(spec, "--steps=40")[0], whole)


if __name__ == "__main__":
    sluice.main()

"""Files: outputs that are whole or not there, inputs that stay, data that is found."""

import os
import resource
import signal
import subprocess
import time

import sluice
from sluice import ROOT, SLUICE, ToolTest, chain, run

TRANSFORMER = """sluice: 1
model:
  transformer: {layers: 4, hidden: 16, ffn: 32, heads: 2, vocab: 256, sequence: 12, dtype: fp32}
pipeline: {ranks: 2, microbatches: 2}
"""


class Files(ToolTest):
    def names(self, folder=None):
        return sorted(p.name for p in (folder or self.folder).iterdir())

    def data(self, name="data.txt"):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes((ROOT / "LICENSE").read_bytes()[:2000])
        return path

    def test_limit_on_the_size_of_files(self):
        spec = self.write("job.yaml", TRANSFORMER)
        data = self.data()
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        for arguments in (("run", spec, f"--data={data}", "--save=w", "-q"),
                          ("compile", spec, "--emit=svg", "-o", "w")):
            done = subprocess.run([SLUICE, *map(str, arguments)], capture_output=True, text=True, cwd=self.folder,
                                  timeout=60, preexec_fn=limit)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("error: cannot write w: File too large\n", done.stderr)
            self.assertEqual(self.names(), ["data.txt", "job.yaml"])

    def test_full_disk(self):
        self.refused(3, "run", self.write("job.yaml", TRANSFORMER), f"--data={self.data()}", "--save=/dev/full", "-q")

    def test_ended_by_a_signal(self):
        spec = self.write("job.yaml", TRANSFORMER + "run: {steps: 100000}\n")
        data = self.data()
        for number in (signal.SIGTERM, signal.SIGINT):
            process = subprocess.Popen([SLUICE, "run", spec, f"--data={data}", "--save=w", "-q"], cwd=self.folder)
            time.sleep(0.2)
            process.send_signal(number)
            self.assertEqual(process.wait(timeout=30), -number)
            self.assertEqual(self.names(), ["data.txt", "job.yaml"])

    def test_outputs_that_are_inputs(self):
        spec = self.write("s.ops", chain())
        data = self.data()
        os.link(spec, self.folder / "hard")
        (self.folder / "soft").symlink_to("s.ops")
        before = spec.read_text()
        for arguments, named in (
                (("compile", "s.ops", "--emit=ops,svg", "-o", "s"), "-o s (s.ops) names the spec itself"),
                (("compile", "s.ops", "--emit=ops", "-o", "./s.ops"), "-o ./s.ops names the spec itself"),
                (("compile", "s.ops", "--emit=ops", "-o", "hard"), "-o hard names the spec itself"),
                (("compile", "s.ops", "--emit=ops", "-o", "soft"), "-o soft names the spec itself"),
                (("opt", "s.ops", "--passes=build-model", "-o", "s.ops"), "-o s.ops names the input itself"),
                (("run", "s.ops", "--save=s.ops"), "--save=s.ops names the input itself"),
                (("run", "s.ops", f"--data={data}", "--save=data.txt"), "--save=data.txt names the data file"),
                (("run", "s.ops", "--save=q.measured.svg", "--timeline=q"),
                 "--save=q.measured.svg and --timeline=q (q.measured.svg) name one file")):
            error = self.refused(2, *arguments, cwd=self.folder)
            self.assertIn(f"error: {named}", error)
            self.assertEqual(self.names(), ["data.txt", "hard", "s.ops", "soft"])
        with open(spec) as stdin:
            done = subprocess.run([SLUICE, "compile", "-", "--emit=ops", "-o", "s.ops"], stdin=stdin,
                                  capture_output=True, cwd=self.folder, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(spec.read_text(), before)
        self.ok("compile", "s.ops", "--emit=ops", "-o", "/dev/null", cwd=self.folder)

    def test_all_outputs_are_tried_first(self):
        spec = self.write("job.yaml", chain())
        (self.folder / "out.svg").mkdir()
        self.refused(3, "compile", spec, "--emit=ops,svg", "-o", self.folder / "out")
        self.assertEqual(self.names(), ["job.yaml", "out.svg"])

    def test_links_are_followed(self):
        spec = self.write("job.yaml", chain())
        (self.folder / "there").mkdir()
        (self.folder / "link").symlink_to("there/target")
        for _ in range(2):  # to nothing, then to a file
            self.ok("compile", spec, "--emit=ops", "-o", self.folder / "link")
            self.assertTrue((self.folder / "link").is_symlink())
            self.assertIn("rank 0", (self.folder / "there" / "target").read_text())
        self.assertEqual(self.names(self.folder / "there"), ["target"])
        (self.folder / "round").symlink_to("round")
        self.refused(3, "compile", spec, "--emit=ops", "-o", self.folder / "round")

    def test_weights_do_not_go_to_a_terminal(self):
        error = self.refused(2, "run", self.write("job.yaml", chain()), "--save=-", cwd=self.folder)
        self.assertIn("--save=-", error)
        self.assertEqual(self.names(), ["job.yaml"])

    def test_standard_input_is_called_by_its_name(self):
        spec = self.write("job.yaml", chain())
        self.ok("compile", spec, "-o", self.folder / "job.plan")
        beginning = (self.folder / "job.plan").read_bytes()[:1000]
        done = subprocess.run([SLUICE, "check", "-"], input=beginning, capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertTrue(done.stderr.decode().startswith("error: -: plan file is truncated at "), done.stderr)

    def test_plan_does_not_depend_on_the_folder(self):
        self.data("jobs/data.txt")
        spec = self.write("jobs/job.yaml", TRANSFORMER + "run: {data: data.txt}\n")
        self.ok("compile", "jobs/job.yaml", "-o", "a.plan", cwd=self.folder)
        self.ok("compile", "job.yaml", "-o", "../b.plan", cwd=spec.parent)
        self.ok("compile", spec, "-o", "c.plan", cwd=self.folder)
        plans = {(self.folder / f"{name}.plan").read_bytes() for name in "abc"}
        self.assertEqual(len(plans), 1)

    def test_where_data_is_looked_for(self):
        self.data("jobs/data.txt")
        spec = self.write("jobs/job.yaml", TRANSFORMER + "run: {data: data.txt}\n")
        self.ok("run", "jobs/job.yaml", "-q", cwd=self.folder)
        self.ok("compile", spec, "-o", self.folder / "jobs" / "job.plan")
        self.ok("run", "jobs/job.plan", "-q", cwd=self.folder)  # beside the plan
        (self.folder / "jobs" / "job.plan").rename(self.folder / "job.plan")
        self.ok("run", "../job.plan", "-q", cwd=spec.parent)  # in the current folder
        error = self.refused(1, "run", "../job.plan", "-q", cwd=ROOT / "tests")
        self.assertIn("cannot open", error)
        error = self.refused(1, "run", self.folder / "job.plan", "-q", cwd=self.folder)
        self.assertEqual(error, "error: cannot find the data file 'data.txt' of run.data: looked for "
                                f"'{self.folder}/data.txt' and 'data.txt'; name it with --data=FILE\n")
        self.ok("run", "job.plan", "--data=jobs/data.txt", "-q", cwd=self.folder)

    def test_a_text_is_of_less_than_4_gib(self):
        path = self.folder / "long.csv"
        with open(path, "wb") as file:
            file.truncate(1 << 32)
        self.assertEqual(self.refused(1, "check", path),
                         f"error: '{path}' has 4294967296 bytes, a text at most 4294967295\n")

    def test_so_is_the_schedule_of_a_spec(self):
        path = self.folder / "long.csv"
        with open(path, "wb") as file:
            file.truncate(1 << 32)
        spec = self.write("job.yaml", chain(schedule="{csv: long.csv}"))
        self.assertIn(f": error: '{path}' has 4294967296 bytes, a text at most 4294967295\n",
                      self.refused(1, "report", spec))

    def test_devices_never_end(self):
        for command in ("check", "compile", "report", "run"):
            self.assertEqual(self.refused(1, command, "/dev/zero"),
                             "error: '/dev/zero' is a device, not a file\n")
        spec = self.write("job.yaml", chain(schedule="{csv: /dev/zero}"))
        self.assertIn(": error: '/dev/zero' is a device, not a file\n", self.refused(1, "report", spec))

    def test_standard_input_is_no_schedule_of_a_spec(self):
        done = sluice.run("report", "job.yaml", stdin="0F0,0B0\n", cwd=self.write(
            "job.yaml", chain(schedule='{csv: "-"}')).parent)
        self.assertEqual(done.returncode, 1)
        self.assertIn("error: cannot open '-': No such file or directory\n", done.stderr)

    def test_a_schedule_csv_has_no_keys(self):
        self.assertEqual(self.refused(2, "report", "-", "--set", "pipeline.ranks=4", stdin="0F0,0B0\n"),
                         "error: --set=pipeline.ranks: a schedule CSV has no keys; name it in a spec, as "
                         "pipeline.schedule: {csv: FILE}\n")

    def test_kinds_are_told_by_any_cell(self):
        for text in ("0F0,0F1\n", ",,0F0\n", "\n\n0F0\n", '"0F0","0F1"\n', '"(0F0;1B0)OVERLAP_F_B"\n', "0UNSHARD,0F0\n",
                     "\ufeff0F0,0B0\n", "0F0xyz\n", "0F-1,0F0\n", "foo,0F0\n", "# a list\n0f0,0b0\n"):
            self.assertIn("is a schedule CSV", self.refused(1, "run", "-", stdin=text), text)
        for text in ("0B/s\n", "0F0: 1\n", "sluice: 1\n", "1e5\n", "1f1b\n", "by 1F1B, 3D parallel\n", ""):
            self.assertIn("is not a plan, IR text or schedule CSV", self.refused(1, "check", "-", stdin=text), text)


sluice.main()

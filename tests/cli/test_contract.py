"""The command line as scripts depend on it: exit codes, streams, files."""

import json
import os
import sys

import sluice
from sluice import EXAMPLES, ROOT, ToolTest, chain, run


class Contract(ToolTest):
    def test_help(self):
        self.assertIn("compile", self.ok("--help"))
        self.assertRegex(self.ok("--version"), r"^sluice \d+\.\d+\.\d+\n$")
        for command in ("compile", "report", "check", "run", "opt"):
            text = self.ok(command, "--help")
            self.assertIn("examples:", text)
            self.assertIn(f"sluice {command} ", text)

    def test_usage_errors_are_sentences(self):
        spec = self.write("job.yaml", chain())
        for arguments, sentence in (
                (("compile", spec, "--bogus"), "error: unknown command line argument '--bogus'\n"),
                (("compile",), "error: FILE is missing: sluice compile [options] FILE ('-': standard input)\n"),
                (("opt", "--passes=lower"), "error: FILE is missing: sluice opt [options] FILE ('-': standard input)\n"),
                (("opt", spec), "error: --passes is missing\n"),
                (("report", spec, spec), "error: more than one FILE: sluice report takes one\n"),
                (("compile", spec, "-o"), "error: -o has no value\n"),
                (("run", spec, "--steps"), "error: --steps has no value\n"),
                (("report", spec, "--json=maybe"), "error: --json takes no value\n"),
                (("check", spec, "--p2p=buffered:4294967296"),
                 "error: --p2p=buffered:4294967296 needs a count from 0 to 4294967295 after 'buffered:'\n"),
                (("run", spec, "--steps=abc"), "error: --steps=abc is not a count\n"),
                (("run", spec, "--module="), "error: --module has no value\n"),
                (("compile", spec, "-o", ""), "error: -o has no value\n"),
                (("compile", spec, "--emit=ops", "--print-ir-after=lowre"),
                 "error: --print-ir-after=lowre: unknown pass 'lowre', the nearest is 'lower'\n"),
                (("compile", spec, "-o", spec), f"error: -o {spec} names the spec itself, which would be lost\n")):
            self.assertTrue(self.refused(2, *arguments).startswith(sentence), self.refused(2, *arguments))
        self.assertEqual(spec.read_text(), chain())

    def test_help_of_a_command(self):
        self.assertEqual(self.ok("help", "compile"), self.ok("compile", "--help"))
        self.assertIn("default 60s", self.ok("run", "--help"))
        self.refused(2, "help", "fly")

    def test_planned_parts_say_so(self):
        spec = self.write("job.yaml", chain())
        self.assertEqual(self.refused(2, "tune", spec), "error: the command 'tune' is not supported yet\n")

    def test_no_response_files(self):
        self.write("@job.yaml", chain())
        self.write("arguments", "--version\n")
        self.assertTrue(self.ok("compile", "@job.yaml", "--emit=ops", cwd=self.folder).startswith("rank 0: "))
        self.assertIn("cannot open './@arguments'", self.refused(1, "compile", "@arguments", "--emit=ops", cwd=self.folder))

    def test_overrides_show_their_own_text(self):
        spec = self.write("job.yaml", chain(pipeline=", layout: even"))
        for key in ("pipeline.ranks", "pipeline.layout", "model.layers.0.forward"):
            error = self.refused(1, "report", spec, f"--set={key}=")
            self.assertTrue(error.startswith(f"--set:1:1: error: {key.replace('.0', '[0]')} is empty"), error)
            self.assertIn(f"  {key}=\n", error)
        error = self.refused(1, "report", "-", "--set=cluster.device.flops=-1", stdin=chain())
        self.assertTrue(error.startswith("--set:1:22: error: "), error)

    def test_overrides_of_a_plan_follow_the_same_rules(self):
        spec = self.write("job.yaml", chain())
        plan = self.folder / "job.plan"
        self.ok("compile", spec, "-o", plan)
        for text in ("run.steps=0", "run.steps=many", "run.learning_rate=-1", "run.seed=", "run.data=[a, b]"):
            self.assertEqual(self.refused(1, "run", spec, "-q", f"--set={text}"),
                             self.refused(1, "run", plan, "-q", f"--set={text}"))

    def test_unseen_characters_are_escaped(self):
        error = self.refused(1, "compile", "-", "--emit=ops", stdin=chain(schedule="'\u202ea'"))
        self.assertNotIn("\u202e", error)
        self.assertIn("\\xe2\\x80\\xae", error)

    def test_short_times_are_shown(self):
        self.assertIn("0.000022", self.ok("report", "-", stdin=chain(forward="0.000001", backward="0.000001")))

    def test_pass_in_wrong_order(self):
        spec = self.write("job.yaml", chain())
        self.assertIn("the nearest is 'schedule'", self.refused(2, "opt", spec, "--passes=shedule"))
        self.assertIn("'lower' needs a graph, which neither", self.refused(2, "opt", spec, "--passes=build-model,lower"))

    def test_full_standard_output(self):
        spec = self.write("job.yaml", chain())
        import subprocess
        for arguments in (("run", spec), ("report", spec), ("--help",), ("compile", "--help"), ("--version",)):
            with open("/dev/full", "w") as full:
                done = subprocess.run([sluice.SLUICE, *map(str, arguments)], stdout=full, stderr=subprocess.PIPE,
                                      text=True, timeout=60)
            self.assertEqual(done.returncode, 3, (arguments, done.stderr))
            self.assertRegex(done.stderr, "(?m)^error: ")

    def test_outputs_are_tried_before_training(self):
        spec = self.write("job.yaml", chain())
        for option in (f"--save={self.folder}/no/weights", "--save=.", f"--timeline={self.folder}/no/job"):
            self.assertNotIn("step 1/", self.refused(3, "run", spec, option))
        self.assertEqual([p.name for p in self.folder.iterdir()], ["job.yaml"])

    def test_json_of_what_cannot_be_read(self):
        spec = self.write("job.yaml", chain())
        plan = self.folder / "job.plan"
        self.ok("compile", spec, "-o", plan)
        plan.write_bytes(plan.read_bytes()[:-1])
        for path in (plan, spec, self.folder / "missing"):
            done = run("check", path, "--json")
            self.assertEqual(done.returncode, 1)
            answer = json.loads(done.stdout)
            self.assertEqual((answer["ok"], [e["kind"] for e in answer["errors"]]), (False, ["malformed"]))
            self.assertIn(answer["errors"][0]["message"], done.stderr)

    def test_check_looks_at_every_section(self):
        ir = self.ok("compile", "-", "--emit=ir", stdin=chain(ranks=2, layers=2, microbatches=2))
        self.assertIn("  rank 1: 1F0 1B0 1F1 1B1\n", ir)
        done = run("check", "-", stdin=ir.replace("  rank 1: 1F0 1B0 1F1 1B1\n", "  rank 1: 1B0 1F0 1F1 1B1\n"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("deadlock", done.stdout)

    def test_environment_errors(self):
        spec = self.write("job.yaml", chain())
        self.refused(3, "compile", spec, "-o", self.folder / "no" / "folder.plan")
        self.refused(3, "compile", spec, "--emit=svg", "-o", self.folder)
        self.refused(3, "compile", spec, "-o", "/dev/full")
        self.refused(3, "compile", spec, "--emit=svg", "-o", "/dev/full")
        with open("/dev/full", "w") as full:
            import subprocess
            done = subprocess.run([sluice.SLUICE, "compile", str(spec), "--emit=ops"], stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 3, done.stderr)

    def test_no_half_written_file(self):
        spec = self.write("job.yaml", chain())
        plan = self.folder / "job.plan"
        plan.write_bytes(b"old")
        bad = self.write("bad.yaml", chain(schedule="none"))
        self.refused(1, "compile", bad, "-o", plan)
        self.assertEqual(plan.read_bytes(), b"old")
        self.ok("compile", spec, "-o", plan)
        self.assertNotEqual(plan.read_bytes(), b"old")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["bad.yaml", "job.plan", "job.yaml"])

    def test_several_outputs(self):
        spec = self.write("job.yaml", chain())
        self.ok("compile", spec, "--emit=plan,ops,ir,torch-csv,torch-csv-comms,trace,svg,html", "-o",
                self.folder / "out")
        self.assertEqual(sorted(p.suffix for p in self.folder.glob("out.*")),
                         [".csv", ".csv", ".html", ".ir", ".ops", ".plan", ".svg", ".trace"])

    def test_same_spec_same_bytes(self):
        spec = self.write("job.yaml", chain(layer=", output_bytes: 10, activation_bytes: 20"))
        outputs = []
        for name in ("a", "b"):
            self.ok("compile", spec, "--emit=plan,ops,ir,torch-csv,trace,svg,html", "-o", self.folder / name)
            outputs.append([(self.folder / f"{name}.{kind}").read_bytes()
                            for kind in ("plan", "ops", "ir", "csv", "trace", "svg", "html")])
        self.assertEqual(outputs[0], outputs[1])

    def test_json_also_when_refused(self):
        ir = self.ok("compile", "-", "--emit=ir", stdin=chain(ranks=2, layers=2, microbatches=2))
        good = json.loads(self.ok("check", "-", "--json", stdin=ir))
        self.assertEqual((good["ok"], good["progress"], good["holds"], good["min_buffering"], good["errors"]),
                         (True, "rank", {"rank": True, "pair": True, "edge": True}, 0, []))
        # Rank 1 expects the two activations in the other order: wrong data, though nothing hangs.
        broken = ir.replace("1RECV_F0", "1RECV_F9").replace("1RECV_F1", "1RECV_F0").replace("1RECV_F9", "1RECV_F1")
        done = run("check", "-", "--json", stdin=broken)
        self.assertEqual(done.returncode, 1, done.stderr)
        refused = json.loads(done.stdout)
        self.assertEqual((refused["ok"], refused["holds"], refused["min_buffering"]),
                         (False, {"rank": False, "pair": False, "edge": False}, None))
        self.assertIn(("mismatch", 1, "1RECV_F1"), [(e["kind"], e["rank"], e["op"]) for e in refused["errors"]])
        self.assertEqual((refused["ranks"], refused["operations"]), (good["ranks"], good["operations"]))

    def test_standard_output_by_name(self):
        spec = self.write("job.yaml", chain())
        self.assertTrue(self.ok("compile", spec, "--emit=ops", "-o", "-", cwd=self.folder).startswith("rank 0: 0F0"))
        self.refused(2, "compile", spec, "-o", "-", cwd=self.folder)
        self.assertEqual([p.name for p in self.folder.iterdir()], ["job.yaml"])

    def test_out_of_memory(self):
        if sluice.SANITIZED:
            self.skipTest("sanitizers reserve more address space than any limit")
        import resource
        import subprocess
        spec = chain(microbatches=400000)
        done = subprocess.run([sluice.SLUICE, "compile", "-", "--emit=ops"], input=spec, capture_output=True, text=True,
                              timeout=60,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20)))
        self.assertEqual((done.returncode, done.stderr), (3, "error: out of memory\n"))

    def test_plan_without_stages(self):
        done = run("check", "-", stdin="sluice-ir 1\nplan {\n  microbatches 1\n  rank 0 {\n    streams compute\n  }\n}\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("has no stages", done.stdout)

    def test_plan_from_standard_input(self):
        spec = self.write("job.yaml", chain())
        self.ok("compile", spec, "-o", self.folder / "job.plan")
        import subprocess
        with open(self.folder / "job.plan", "rb") as plan:
            done = subprocess.run([sluice.SLUICE, "check", "-"], stdin=plan, capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_report_of_plan_equals_that_of_its_spec(self):
        for schedule in ("naive", "gpipe", "1f1b"):
            spec = self.write("job.yaml", chain(layers=7, forward=1, backward=2, schedule=schedule,
                                                layer=", params: 10, activation_bytes: 64, output_bytes: 32",
                                                more="cluster: {link: {latency: 0.25}}\n"))
            plan = self.folder / "job.plan"
            self.ok("compile", spec, "-o", plan)
            of_spec = json.loads(self.ok("report", spec, "--json"))
            of_plan = json.loads(self.ok("report", plan, "--json"))
            self.assertEqual(of_spec, of_plan)

    def test_overrides_of_a_plan(self):
        spec = self.write("job.yaml", chain())
        plan = self.folder / "job.plan"
        self.ok("compile", spec, "-o", plan)
        self.ok("run", plan, "-q", "--set", "run.steps=2")
        self.refused(2, "run", plan, "--set", "pipeline.ranks=2")
        self.refused(2, "run", plan, "--set", "run.stepps=2")
        self.refused(1, "run", plan, "--set", "run.steps=0")
        self.refused(2, "run", plan, "--steps=0")

    def test_ir_round_trip(self):
        for spec in sorted(EXAMPLES.glob("*p4*.yaml")):
            ir = self.ok("compile", spec, "--emit=ir")
            again = self.ok("opt", "-", "--passes=verify-plan", stdin=ir)
            self.assertEqual(ir, again)
            lowered = self.ok("opt", "-", "--passes=verify-schedule,simulate,lower,assign-buffers,verify-plan", stdin=ir)
            self.assertEqual(ir.split("plan {")[0], lowered.split("plan {")[0])

    def test_lowering_a_text_again_tells_what_is_lost(self):
        spec = self.write("job.yaml", chain(pipeline=", memory_limit: 1MiB"))
        ir = self.ok("compile", spec, "--emit=ir")
        self.assertIn("  memory_limit 1048576\n", ir)
        done = run("opt", "-", "--passes=simulate,lower,assign-buffers,verify-plan", stdin=ir)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("memory_limit", done.stdout)
        self.assertIn("warning: the plan that was read has a memory limit of 1048576 bytes, the plan made from its "
                      "graph and schedule has none", done.stderr)
        self.assertIn("pass 'annotate-plan' needs a spec", self.refused(2, "opt", "-", "--passes=annotate-plan",
                                                                        stdin=ir))
        self.assertEqual(run("opt", "-", "--passes=verify-plan", stdin=ir).stderr, "")

    def test_print_ir_after_all(self):
        spec = self.write("job.yaml", chain())
        done = run("compile", spec, "--emit=ops", "--print-ir-after-all", "--time-passes")
        self.assertEqual(done.returncode, 0)
        for name in ("build-model", "partition", "build-graph", "warmup", "schedule", "verify-schedule", "simulate",
                     "lower", "offload", "annotate-plan", "assign-buffers", "verify-plan"):
            self.assertIn(f"# after {name}\n", done.stderr)
            self.assertRegex(done.stderr, rf"(?m)^ +[\d.]+ ms  {name}$")
        self.assertTrue(done.stdout.startswith("rank 0: 0F0"))

    def test_help_of_the_scripts(self):
        import subprocess
        for script in ("demo", "test"):
            for flag in ("--help", "-h"):
                done = subprocess.run([ROOT / "tools" / script, flag], capture_output=True, text=True, timeout=10,
                                      cwd=self.folder)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertTrue(done.stdout.startswith(f"tools/{script} ["), done.stdout)

    def test_readme_as_pasted(self):
        import re
        import subprocess
        blocks = re.findall(r"(?ms)^```\n(.*?)^```", (ROOT / "README.md").read_text().split("## Use")[1])
        (self.folder / "build" / "release" / "bin").mkdir(parents=True)
        (self.folder / "build" / "release" / "bin" / "sluice").symlink_to(os.path.abspath(sluice.SLUICE))
        self.write("LICENSE", (ROOT / "LICENSE").read_text())
        done = subprocess.run(["bash", "-e"], input="".join(blocks[:2]), capture_output=True, text=True, timeout=240,
                              cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(p.name for p in (self.folder / "build").iterdir()),
                         ["job.plan", "job.yaml", "release", "weights.bin"])

    def test_examples_compile(self):
        specs = sorted(EXAMPLES.glob("*.yaml"))
        self.assertGreaterEqual(len(specs), 7)
        for spec in specs:
            plan = self.folder / "example.plan"
            self.ok("compile", spec, "-o", plan)
            self.ok("check", plan)


sluice.main()

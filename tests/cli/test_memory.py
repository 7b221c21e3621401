"""Bytes of real models under parallelism: published tables to the digit, limits, and the specs of examples/models."""

import json
import re

from sluice import EXAMPLES, ROOT, ToolTest, main

GIB = 1 << 30
MODELS = EXAMPLES / "models"

# Layers, hidden, heads, ranks, virtual stages, microbatch size and, in GiB a device: parameters with optimizer,
# activations with tensor parallelism, and with sequence parallelism and selective recomputation.
PUBLISHED = [
    (48, 6144, 64, 1, 1, 4, 45.5625, 59.25, 9.5625),
    (96, 12288, 96, 8, 3, 1, 45.5625, 66.84375, 12.3515625),
    (105, 20480, 128, 35, 3, 1, 31.640625, 114.0234375, 23.076171875),
    (128, 25600, 160, 64, 1, 1, 32.958984375, 131.25, 26.5625),
]


def analytic(layers, hidden, heads, ranks, chunks, batch, saved, more=""):
    """A spec of explicit layers of 12h^2 parameters, in 16 bits with 18 bytes of state each."""
    schedule = "1f1b" if chunks == 1 else "interleaved-1f1b"
    return f"""sluice: 1
model:
  layers:
    - {{repeat: {layers}, forward: 1, backward: 2, params: {12 * hidden * hidden}, activation_bytes: {saved}}}
pipeline: {{ranks: {ranks}, virtual_stages: {chunks}, microbatches: {2 * ranks}, schedule: {schedule}, tensor_parallel: 8{more}}}
"""


def saved(hidden, heads, batch, sequence_selective):
    """Korthikanti et al., table 2, for s = 2048 and t = 8."""
    sbh = 2048 * batch * hidden
    if sequence_selective:
        return sbh * 34 // 8
    return sbh * 10 + sbh * 24 // 8 + 5 * heads * 2048 * 2048 * batch // 8


class Published(ToolTest):
    def test_table(self):
        for layers, hidden, heads, ranks, chunks, batch, state, none, selective in PUBLISHED:
            for sequence, expected in ((False, none), (True, selective)):
                spec = analytic(layers, hidden, heads, ranks, chunks, batch, saved(hidden, heads, batch, sequence))
                report = self.report(spec)
                self.assertEqual(report["model"]["parameters"], layers * 12 * hidden * hidden)
                first = report["per_rank"][0]["memory"]
                held = first["parameters"] + first["gradients"] + first["optimizer"]
                self.assertEqual(held / GIB, state, (layers, hidden))
                self.assertEqual(first["activations"] / GIB, expected, (layers, hidden))
                peaks = [rank["peak_bytes"] for rank in report["per_rank"]]
                self.assertEqual(max(peaks), peaks[0])
                if ranks > 1:
                    self.assertGreater(peaks[0], peaks[-1])

    def test_full_recomputation(self):
        # The published 2sbh a layer holds where a stage has one layer. One of several holds its own input alone, and
        # at an R what all its layers save.
        for layers, ranks, held in ((8, 8, 8), (96, 8, 8), (8, 2, 2)):
            sbh, all_saved = 2048 * 12288, saved(12288, 96, 1, True)
            spec = analytic(layers, 12288, 96, ranks, 1, 1, all_saved, ", recompute: full")
            spec = spec.replace("params:", f"checkpoint_bytes: {2 * sbh}, params:")
            report = self.report(spec)
            self.assertEqual(report["per_rank"][0]["memory"]["activations"], held * 2 * sbh + layers // ranks * all_saved)

    def test_peak_does_not_grow_with_microbatches(self):
        spec = analytic(96, 12288, 96, 8, 1, 1, saved(12288, 96, 1, True))
        peaks = [[rank["peak_bytes"] for rank in self.report(spec, f"--set=pipeline.microbatches={m}")["per_rank"]]
                 for m in (8, 16, 64)]
        self.assertEqual(peaks[0], peaks[1])
        self.assertEqual(peaks[0], peaks[2])


class Gpt3(ToolTest):
    """GPT-3 175B on 64 devices of 80 GB."""
    SPEC = MODELS / "gpt3-175b-64x80gb.yaml"

    def test_refused_without_recompute(self):
        error = self.refused(1, "report", self.SPEC, "--set=pipeline.recompute=none",
                             "--set=pipeline.sequence_parallel=false")
        self.assertIn("over the limit of", error)
        self.assertIn("note: would fit: pipeline.sequence_parallel: true with pipeline.recompute: selective (makespan", error)
        self.assertIn("note: would fit: pipeline.recompute: full (makespan", error)
        self.assertNotIn("note: would fit: pipeline.sequence_parallel: true (makespan", error)  # 34sbh/t + 5as/(ht)
        self.ok("compile", self.SPEC, "--emit=ops", "--set=pipeline.recompute=full", "--set=pipeline.sequence_parallel=false")
        self.refused(1, "compile", self.SPEC, "--emit=ops", "--set=pipeline.recompute=none",
                     "--set=pipeline.sequence_parallel=false")

    def test_accepted_with_both(self):
        report = json.loads(self.ok("report", self.SPEC, "--json"))
        self.assertEqual(report["model"]["parameters"], 174615846912)
        first = report["per_rank"][0]["memory"]
        # 12 of 96 layers, 8 microbatches in flight, 34sbh/t bytes each: 96 layers' worth. R makes the attention matrices
        # of its stage for one microbatch, 5as^2b/t a layer, which the published count leaves out.
        self.assertEqual(first["activations"], 96 * 34 * 2048 * 12288 // 8 + 12 * 5 * 96 * 2048 * 2048 // 8)
        # 18 bytes a parameter: a block divided by t but for its norms and two biases, a table of 51200 rows divided
        # by t, all positions.
        h = 12288
        block = 12 * h * h // 8 + (3 * h + 4 * h) // 8 + 2 * h + 4 * h
        held = 12 * block + 51200 // 8 * h + 2048 * h
        self.assertEqual(first["parameters"] + first["gradients"] + first["optimizer"], 18 * held)
        # What the table's count of 12h^2 leaves out.
        self.assertEqual(18 * held - 18 * 12 * 12 * h * h // 8,
                         18 * (12 * (7 * h // 8 + 6 * h) + 51200 // 8 * h + 2048 * h))

    def beyond(self, *arguments):
        """Of each kind of layer: how many, and the exact numbers with what they are beyond the published ones."""
        rows = re.findall(r"^ +(\w+) +(\d+) +(\d+) +(-|[+-]\d+) +(\d+) +(-|[+-]\d+)$",
                          self.ok("report", *arguments, "-v"), flags=re.M)
        return {name: numbers for name, *numbers in rows}

    def test_beyond_the_published_count(self):
        h, s, v = 12288, 2048, 51200
        more = (3 * h + 4 * h) // 8 + 2 * h + 4 * h
        saved = 34 * s * h // 8 + 5 * 96 * s * s // 8
        self.assertEqual(self.beyond(self.SPEC), {
            "embedding": ["1", f"{v // 8 * h + s * h}", "-", "0", "-"],
            "dense_block": ["96", f"{12 * h * h // 8 + more}", f"+{more}", f"{saved}", "+0"],
            "head": ["1", f"{2 * h}", "-", f"{2 * (2 * s * h // 8 + s * v // 8)}", "-"]})
        # Without sequence parallelism 10 sbh are whole on each device; without dropout its masks are not there, two of a
        # byte a number and one of the attention matrix.
        row = self.beyond(self.SPEC, "--set=pipeline.sequence_parallel=false", "--set=model.transformer.dropout=false",
                          "--set=cluster.device.memory=400GB")["dense_block"]
        self.assertEqual(row[3:], [f"{10 * s * h + 24 * s * h // 8 + 5 * 96 * s * s // 8 - 2 * s * h - 96 * s * s // 8}",
                                   f"-{2 * s * h + 96 * s * s // 8}"])
        # Llama-3 8B: an MLP of three matrices, fewer keys and values, no biases.
        h, f, kv = 4096, 14336, 1024
        exact = 2 * h * h + 2 * h * kv + 3 * h * f + 2 * h
        self.assertEqual(self.beyond(MODELS / "llama-3-8b-4x80gb.yaml")["dense_block"][1:3],
                         [f"{exact}", f"+{exact - 12 * h * h}"])

    def test_messages_are_divided(self):
        def sent(*more):
            text = self.ok("compile", self.SPEC, "--emit=ir", "--set=pipeline.microbatches=8", *more)
            return text
        whole, divided = 2 * 2048 * 12288, 2 * 2048 * 12288 // 8
        self.assertIn(str(divided), sent())
        self.assertIn(str(whole), sent("--set=pipeline.sequence_parallel=false", "--set=cluster.device.memory=400GB"))


class Examples(ToolTest):
    def test_numbers(self):
        paths = sorted(MODELS.glob("*.yaml"))
        self.assertGreaterEqual(len(paths), 3)
        for path in paths:
            expected = json.loads(path.with_suffix(".expected.json").read_text())
            report = json.loads(self.ok("report", path, "--json"))
            self.assertLessEqual({"from", "parameters", "layers", "state", "activations"}, expected.keys())
            self.assertEqual(report["model"]["parameters"], expected["parameters"], path.stem)
            ranks = report["per_rank"]
            self.assertEqual([rank["layers"] for rank in ranks], expected["layers"], path.stem)
            memory = [rank["memory"] for rank in ranks]
            self.assertEqual([m["parameters"] + m["gradients"] + m["optimizer"] for m in memory], expected["state"])
            self.assertEqual([m["activations"] for m in memory], expected["activations"], path.stem)
            for rank in ranks:
                self.assertEqual(sum(rank["memory"].values()), rank["peak_bytes"])
                self.assertLessEqual(rank["arena_bytes"] + report["memory_allowance"], report["memory_limit"])

    def test_prediction_layer_by_layout_string(self):
        # Megatron's layout of DeepSeek-V3: its layer of multi-token prediction is the config's own.
        spec = self.write("deepseek.yaml", f"""sluice: 1
model: {{config: {ROOT}/tests/data/configs/deepseek-v3.json, sequence: 4096}}
pipeline: {{ranks: 16, virtual_stages: 2, microbatches: 32, schedule: interleaved-1f1b, layout: "Et*3|(tt|)*29,m|L",
           expert_parallel: 64, data_parallel: 64, zero: 1, recompute: full}}
""")
        report = json.loads(self.ok("report", spec, "--json"))
        self.assertEqual([rank["layers"] for rank in report["per_rank"]], [5] + [4] * 13 + [2, 2])
        h, without = 7168, 671026419200
        attention = h * 1536 + 1536 + 1536 * 128 * 192 + h * 576 + 512 + 512 * 128 * 256 + 128 * 128 * h
        block = attention + 2 * h + 257 * 3 * h * 2048 + h * 256 + 256
        self.assertEqual(report["model"]["parameters"], without + block + 2 * h * h + 3 * h)

    def test_plans_hold(self):
        for path in sorted(MODELS.glob("*.yaml")):
            plan = self.folder / "model.plan"
            self.ok("compile", path, "-o", plan)
            self.ok("check", plan)

    def test_costs_add_up(self):
        # What a block takes is the sum of its kinds of work, each the longer of operations and bytes.
        spec = MODELS / "llama-3-8b-4x80gb.yaml"
        with_bytes = "--set=cluster.device.bandwidth=3.35TB/s"
        costs = json.loads(self.ok("report", spec, "--json", with_bytes))["model"]["costs"]
        h, ffn, tokens = 4096, 14336, 8192
        matrices = {"projections": [(h, h), (h, 2 * 1024), (h, h)], "mlp": [(h, 2 * ffn), (ffn, h)]}
        for kind, sides in matrices.items():
            row, = (row for row in costs
                    if (row["layer"], row["kind"], row["pass"]) == ("dense_block", kind, "forward"))
            self.assertEqual(row["layers"], 32)
            self.assertEqual(row["flops"], sum(2 * tokens * i * o for i, o in sides))
            self.assertEqual(row["bytes"], sum(2 * (i * o + tokens * (i + o)) for i, o in sides))
            self.assertEqual(row["bound"], "flops")
            self.assertAlmostEqual(row["time"], row["flops"] / (0.5 * 989e12), delta=1e-12)
        norms, = (row for row in costs
                  if (row["layer"], row["kind"], row["pass"]) == ("dense_block", "elementwise", "forward"))
        self.assertEqual((norms["flops"], norms["bound"]), (0, "bytes"))
        self.assertAlmostEqual(norms["time"], norms["bytes"] / 3.35e12, delta=1e-12)
        table = self.ok("report", spec, "-v", with_bytes)
        self.assertIn("costs of a microbatch on one device\n", table)
        self.assertNotIn("costs of a microbatch", self.ok("report", spec))

    def test_high_water_line(self):
        spec = MODELS / "llama-3-8b-4x80gb.yaml"
        report = json.loads(self.ok("report", spec, "--json"))
        for rank in report["per_rank"]:
            self.assertEqual(max(point["bytes"] for point in rank["memory_timeline"]), rank["peak_bytes"])
        text = self.ok("report", spec)
        chart = text[text.index("its bytes in use over time"):].splitlines()
        self.assertTrue(all(len(line) == len("  |") + 60 + 1 for line in chart[1:5]), chart)
        self.assertIn("█", chart[1])  # the peak fills the height

    def test_pictures(self):
        pictures = sorted(MODELS.glob("*.svg"))
        self.assertGreaterEqual(len(pictures), 2)
        text = (MODELS / "README.md").read_text()
        for picture in pictures:
            self.assertIn(f"]({picture.name})", text)
            drawn = self.ok("compile", picture.with_suffix(".yaml"), "--emit=svg")
            self.assertEqual(drawn, picture.read_text(), picture.name)

    def test_shown_reports(self):
        """examples/models/README.md shows parts of what the tool prints."""
        blocks = re.findall(r"```\n\$ sluice report (\S+)\n(.*?)```", (MODELS / "README.md").read_text(), flags=re.S)
        self.assertEqual([name for name, _ in blocks], ["llama-3-8b-4x80gb.yaml", "llama-3-70b-64x80gb.yaml"])
        for name, shown in blocks:
            printed = self.ok("report", MODELS / name)
            for part in shown.split("...\n"):
                self.assertGreater(len(part.splitlines()), 3)
                self.assertIn(part, printed)

    def test_module_gpt_refuses_by_name(self):
        spec = """sluice: 1
model:
  transformer: {layers: 2, hidden: 16, heads: 2, vocab: 256, sequence: 8, dtype: fp32}
pipeline: {ranks: 2, microbatches: 2}
"""
        for keys, said in ((["tensor_parallel=2"], "tensor_parallel is '2', this module computes only '1'"),
                           (["data_parallel=2", "zero=3"], "zero is '3', this module computes only '0'")):
            error = self.refused(1, "run", "-", *(f"--set=pipeline.{key}" for key in keys), "--data=/etc/hostname",
                                 stdin=spec)
            self.assertIn(said, error)
        error = self.refused(1, "run", "-", "--set=model.transformer.experts=4", "--set=model.transformer.topk=1",
                             "--data=/etc/hostname", stdin=spec)
        self.assertIn("experts is '4', this module computes only '0'", error)


main()

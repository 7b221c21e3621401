"""Every schedule: the gallery, its numbers by the formulas of the papers and its pictures; schedules side by side."""

import json
import re

import sluice
from sluice import EXAMPLES, ToolTest, chain, run

GALLERY = EXAMPLES / "gallery"
WHOLE = ("makespan", "span", "bubble_fraction")
PER_RANK = ("peak_in_flight", "peak_activation", "warmup")


class Gallery(ToolTest):
    def test_every_schedule_is_there(self):
        error = self.refused(2, "report", GALLERY / "1f1b.yaml", "--compare=none")
        known = re.search(r"is not one of (.*)\n", error).group(1).split(", ")
        self.assertEqual(len(known), 16)
        self.assertEqual(sorted(path.stem for path in GALLERY.glob("*.yaml")), sorted(known))
        text = (GALLERY / "README.md").read_text()
        for name in known:
            self.assertIn(f"schedule: {name}}}", (GALLERY / f"{name}.yaml").read_text())
            self.assertIn(f"`{name}`", text)

    def test_numbers(self):
        for path in sorted(GALLERY.glob("*.yaml")):
            expected = json.loads(path.with_suffix(".expected.json").read_text())
            report = json.loads(self.ok("report", path, "--json"))
            self.assertEqual(report["schedule"], path.stem)
            self.assertEqual(report["plan_makespan"] is None, False)
            self.assertLessEqual({"from", "makespan", "bubble_fraction", "peak_in_flight"}, expected.keys())
            for key in WHOLE:
                if key in expected:
                    self.assertAlmostEqual(report[key], expected[key], 12, (path.stem, key))
            for key in PER_RANK:
                values = [rank[key] for rank in report["per_rank"]]
                if isinstance(expected.get(key), list):
                    self.assertEqual(values, expected[key], (path.stem, key))
                elif key in expected:  # of the rank that has most
                    self.assertEqual(max(values), expected[key], (path.stem, key))
            leaves = report["span"] != report["makespan"]
            self.assertEqual(["gradient clipping is a barrier" in note for note in report["notes"]], [True] * leaves)

    def test_plans_hold(self):
        for path in sorted(GALLERY.glob("*.yaml")):
            plan = self.folder / "gallery.plan"
            self.ok("compile", path, "-o", plan)
            self.ok("check", plan)

    def test_pictures(self):
        pictures = sorted(GALLERY.glob("*.svg"))
        self.assertGreaterEqual(len(pictures), 4)
        text = (GALLERY / "README.md").read_text()
        for picture in pictures:
            self.assertIn(f"]({picture.name})", text)
            drawn = self.ok("compile", picture.with_suffix(".yaml"), "--emit=svg")
            self.assertEqual(drawn, picture.read_text(), picture.name)

    def test_two_copies_have_no_csv(self):
        for path in sorted(GALLERY.glob("*.yaml")):
            out = self.folder / f"{path.stem}.csv"
            if path.stem not in ("dualpipe", "chimera"):
                self.ok("compile", path, "--emit=torch-csv", "-o", out)
                continue
            error = self.refused(1, "compile", path, "--emit=torch-csv", "-o", out)
            self.assertRegex(error, r"yaml:\d+:\d+: error: --emit=torch-csv: PyTorch's CSV cannot say which of two copies")
            self.assertIn("stage 1 is on rank 1 and on rank 2", error)
            self.refused(1, "compile", path, "--emit=ops,torch-csv", "-o", self.folder / "both")
            self.assertEqual([p.name for p in self.folder.iterdir() if p.stem in (path.stem, "both")], [])


SIZES = ", params: 1000, activation_bytes: 3000, output_bytes: 500"


class Compare(ToolTest):
    def rows(self, spec, names, *arguments):
        report = json.loads(self.ok("report", "-", "--json", f"--compare={names}", *arguments, stdin=spec))
        return {row["schedule"]: row for row in report["compare"]}

    def test_numbers_are_those_of_each_report(self):
        spec = chain(layers=8, backward=2, layer=SIZES)
        names = "gpipe,1f1b,interleaved-1f1b,zb-h1,zb-v,dualpipe,chimera,hanayo,forward-only,gpipe"
        rows = self.rows(spec, names)
        self.assertEqual(list(rows), ["1f1b", "gpipe", "interleaved-1f1b", "zb-h1", "zb-v", "dualpipe", "chimera",
                                      "hanayo", "forward-only"])
        self.assertEqual([name for name, row in rows.items() if row["own"]], ["1f1b"])
        for name, row in rows.items():
            report = self.report(spec, f"--set=pipeline.schedule={name}")
            for key in ("makespan", "span", "bubble_fraction"):
                self.assertEqual(row[key], report[key], (name, key))
            ranks = report["per_rank"]
            self.assertEqual(row["peak_activation"], max(rank["peak_activation"] for rank in ranks))
            self.assertEqual(row["largest_rank_bytes"], max(rank["arena_bytes"] for rank in ranks))
            self.assertTrue(row["fits"])
            self.assertIsNone(row["largest_microbatches"])  # no limit
        trained = {name: row for name, row in rows.items() if row["fits"] and name != "forward-only"}
        best = min(row["makespan"] for row in trained.values())
        self.assertEqual([name for name, row in rows.items() if row["best_makespan"]],
                         [name for name, row in trained.items() if row["makespan"] == best])

    def test_table(self):
        text = self.ok("report", "-", "--compare=gpipe,zb-h1,dualpipe", "--set=pipeline.microbatches=6",
                       stdin=chain(backward=2))
        self.assertEqual(text.splitlines(), [
            "chain on 4 ranks, 6 microbatches, objective makespan; times in the spec's abstract units",
            "",
            "  schedule   makespan   bubble   span   in flight",
            "  1f1b             27   33.3 %     27           4",
            "  gpipe            27   33.3 %     27           6",
            "  zb-h1            21   14.3 %     21           4   <- best makespan",
            "  dualpipe   schedule dualpipe needs an even number of microbatches, at least 2p = 8, not 6; "
            "set pipeline.microbatches to 8",
            "  (in flight: most microbatches of a whole rank at once)",
        ])

    def test_what_the_limit_buys(self):
        def spec_within(limit):
            return chain(microbatches=16, layer=SIZES, pipeline=f", memory_limit: {limit}")

        rows = self.rows(spec_within("60kB"), "gpipe,dualpipe,zb-h1")
        # Both hold as much for any number of microbatches. A rank of dualpipe holds two stages of 18176 bytes, five
        # microbatches of 3072 and messages; the gradients it is sent take bytes of the microbatches.
        for name in ("1f1b", "dualpipe"):
            self.assertEqual(rows[name]["largest_microbatches_limit"], "search")
            self.assertGreater(rows[name]["largest_microbatches"], 1000)
        for name, step, limit in (("gpipe", 1, "60kB"), ("dualpipe", 2, "51kB")):
            spec = spec_within(limit)
            row = self.rows(spec, name)[name]
            self.assertEqual(row["largest_microbatches_limit"], "memory")
            most = row["largest_microbatches"]
            schedule = f"--set=pipeline.schedule={name}"
            count = "--set=pipeline.microbatches="
            if most != 0:
                self.ok("compile", "-", "--emit=ops", schedule, f"{count}{most}", stdin=spec)
                error = self.refused(1, "compile", "-", "--emit=ops", schedule, f"{count}{most + step}", stdin=spec)
                self.assertIn("over the limit", error)
            self.assertIsNone(row["largest_microbatch_size"])
        self.assertGreater(rows["gpipe"]["largest_microbatches"], 1)

    def test_own_orders(self):
        spec = chain(layers=2, ranks=2, microbatches=2, layer=SIZES, pipeline=", memory_limit: 90kB",
                     schedule='{orders: ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"]}')
        rows = self.rows(spec, "1f1b")
        self.assertEqual(list(rows), ["orders", "1f1b"])
        self.assertEqual(rows["orders"]["makespan"], rows["1f1b"]["makespan"])
        self.assertIsNone(rows["orders"]["largest_microbatches"])  # they are of 2
        self.assertGreater(rows["1f1b"]["largest_microbatches"], 2)

    def test_microbatch_size(self):
        spec = (EXAMPLES / "llama-3-8b.yaml").read_text()
        short = "--set=model.transformer.sequence=2048"
        row = self.rows(spec, "v-half", short)["v-half"]
        self.assertEqual(row["largest_microbatch_size_limit"], "memory")
        size = row["largest_microbatch_size"]
        self.assertGreater(size, 1)
        # The layout is of 4 stages: another number of them is cut anew.
        other = ("--set=pipeline.schedule=v-half", "--set=pipeline.layout=auto", short)
        self.ok("compile", "-", "--emit=ops", *other, f"--set=pipeline.microbatch_size={size}", stdin=spec)
        self.refused(1, "compile", "-", "--emit=ops", *other, f"--set=pipeline.microbatch_size={size + 1}", stdin=spec)

    def test_over_the_limit(self):
        spec = chain(layers=4, microbatches=16, schedule="gpipe", layer=SIZES, pipeline=", memory_limit: 60kB")
        done = run("report", "-", "--compare=1f1b", stdin=spec)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("over the limit by 8864 bytes", done.stdout)
        none = self.refused(1, "report", "-", "--compare=1f1b", "--set=pipeline.memory_limit=1kB", stdin=spec)
        self.assertIn("over the limit", none)

    def test_keys_follow_the_schedule(self):
        spec = chain(layers=8, schedule="zb-v", pipeline=", virtual_stages: 2, placement: v, layout: [1, 1, 1, 1, 1, 1, 1, 1]")
        rows = self.rows(spec, "1f1b,interleaved-1f1b")
        self.assertEqual(rows["1f1b"]["makespan"], 11 * 4)
        self.assertEqual(rows["interleaved-1f1b"]["makespan"], 8 * 4 + 3 * 2)

    def test_refused(self):
        error = self.refused(2, "report", "-", "--compare=gpipe,1f2b", stdin=chain())
        self.assertIn("error: --compare=1f2b is not one of naive, gpipe, 1f1b, ", error)
        self.refused(2, "report", "-", "--compare=", stdin=chain())
        plan = self.folder / "job.plan"
        self.ok("compile", "-", "-o", plan, stdin=chain())
        self.assertIn("--compare needs a spec", self.refused(2, "report", plan, "--compare=gpipe"))
        self.refused(1, "report", "-", "--compare=gpipe", stdin=chain(schedule="none", ranks=40))
        answer = json.loads(self.ok("report", "-", "--json", "--compare=gpipe", stdin=chain(schedule="none")))
        self.assertEqual([row["fits"] for row in answer["compare"]], [False, True])
        self.assertEqual(list(answer), ["compare"])


sluice.main()

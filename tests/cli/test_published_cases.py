"""Published answers for small pipelines, to the digit."""

import sluice
from sluice import EXAMPLES, ToolTest, chain


class PublishedCases(ToolTest):
    def per_rank(self, report, key):
        return [rank[key] for rank in report["per_rank"]]

    def test_naive(self):
        for spec in (chain(microbatches=1, schedule="naive"), (EXAMPLES / "naive-p4.yaml").read_text()):
            report = self.report(spec)
            self.assertEqual(report["makespan"], 8)
            self.assertEqual(report["plan_makespan"], 8)
            self.assertEqual(1 - report["bubble_fraction"], 0.25)
            self.assertEqual(self.per_rank(report, "busy"), [2] * 4)
        one = self.report(chain(microbatches=1, schedule="naive", ranks=1))
        self.assertEqual(one["makespan"], 8)

    def test_naive_has_one_rank_busy(self):
        import json
        trace = json.loads(self.ok("compile", "-", "--emit=trace", stdin=chain(microbatches=3, schedule="naive")))
        events = trace["traceEvents"] if isinstance(trace, dict) else trace
        busy = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e.get("ph") == "X" and e["dur"] > 0)
        self.assertEqual(len(busy), 4 * 3 * 2)
        for (_, end), (start, _) in zip(busy, busy[1:]):
            self.assertLessEqual(end, start)

    def test_gpipe(self):
        order = [f"F{k}" for k in range(8)] + [f"B{k}" for k in range(8)]
        report = self.report(chain(schedule="gpipe"))
        self.assertEqual(report["makespan"], 22)
        self.assertEqual(self.per_rank(report, "peak_in_flight"), [8] * 4)
        for rank, ops in enumerate(self.ops(chain(schedule="gpipe"))):
            self.assertEqual(ops, [f"{rank}{name}" for name in order])

    def test_1f1b(self):
        report = self.report(chain())
        self.assertEqual(report["makespan"], 22)
        self.assertEqual(report["bubble_fraction"], self.report(chain(schedule="gpipe"))["bubble_fraction"])
        self.assertEqual(self.per_rank(report, "warmup"), [3, 2, 1, 0])
        self.assertEqual(self.per_rank(report, "forwards_before_backward"), [4, 3, 2, 1])
        self.assertEqual(self.per_rank(report, "peak_in_flight"), [4, 3, 2, 1])
        ops = self.ops(chain())
        self.assertEqual(ops[0], "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7".split())
        self.assertEqual(ops[3], "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7".split())

    def test_many_microbatches(self):
        self.assertEqual(self.per_rank(self.report(chain(microbatches=32, schedule="gpipe")), "peak_in_flight"), [32] * 4)
        self.assertEqual(max(self.per_rank(self.report(chain(microbatches=32)), "peak_in_flight")), 4)

    def test_balanced_formula(self):
        for schedule in ("gpipe", "1f1b"):
            for ranks, m, forward, backward in ((1, 1, 1, 1), (2, 3, 1, 2), (4, 8, 1, 2), (8, 32, 1, 1), (8, 32, 1, 2),
                                                (5, 7, 3, 4), (3, 2, 2.5, 3.25), (8, 1, 1, 2)):
                report = self.report(chain(ranks, forward, backward, ranks, m, schedule))
                expected = (m + ranks - 1) * (forward + backward)
                self.assertEqual(report["makespan"], expected, (schedule, ranks, m, forward, backward))
                self.assertEqual(report["plan_makespan"], expected)
                self.assertEqual(self.per_rank(report, "idle"), [(ranks - 1) * (forward + backward)] * ranks)

    def test_layers_to_ranks(self):
        import re
        report = self.report(chain(layers=24, forward=1, backward=2))
        self.assertEqual(self.per_rank(report, "layers"), [6] * 4)
        ir = self.ok("compile", "-", "--emit=ir", stdin=chain(layers=24, forward=1, backward=2))
        self.assertEqual(re.findall(r"^ *stage \d+ layers (\d+)\+(\d+)", ir, re.M)[:4],
                         [("0", "6"), ("6", "6"), ("12", "6"), ("18", "6")])

    def test_worked_answers(self):
        """1f1b and gpipe with a backward of 2: as the papers' formulas have it."""
        report = self.report(chain(backward=2))
        self.assertEqual(report["makespan"], 33)
        self.assertEqual(self.per_rank(report, "busy"), [24] * 4)
        self.assertEqual(self.per_rank(report, "peak_in_flight"), [4, 3, 2, 1])
        self.assertEqual(self.report(chain(backward=2, schedule="gpipe"))["makespan"], 33)
        for schedule in ("gpipe", "1f1b"):
            self.assertEqual(self.report(chain(8, 1, 1, 8, 32, schedule))["makespan"], 78)
        self.assertEqual(self.report(chain(8, 1, 2, 8, 1))["makespan"], 24)

    def test_pictures_have_one_scale(self):
        """Equal makespans are drawn equally wide, with the same colours."""
        import re
        pictures = [self.ok("compile", "-", "--emit=svg", stdin=chain(schedule=s)) for s in ("gpipe", "1f1b")]
        widths = [sorted(float(w) for w in re.findall(r'<rect[^>]* width="([\d.]+)"', p)) for p in pictures]
        sizes = [re.search(r'<svg[^>]*viewBox="([^"]+)"', p).group(1) for p in pictures]
        colours = [sorted(set(re.findall(r"#[0-9a-f]{6}", p))) for p in pictures]
        self.assertEqual(sizes[0], sizes[1])
        self.assertEqual(colours[0], colours[1])
        self.assertGreaterEqual(len(colours[0]), 2)
        self.assertAlmostEqual(widths[0][len(widths[0]) // 2], widths[1][len(widths[1]) // 2], places=2)


sluice.main()

"""Schedule CSVs for the tests of `check`, and what they ask of its answer."""

import json
import re

from sluice import ToolTest, run


def one_f_one_b(ranks, microbatches):
    """Compute of 1F1B with one stage a rank, as the textbook has it."""
    rows = []
    for rank in range(ranks):
        warmup = min(microbatches, ranks - 1 - rank)
        row = [("F", rank, k) for k in range(warmup)]
        for k in range(microbatches):
            if warmup + k < microbatches:
                row.append(("F", rank, warmup + k))
            row.append(("B", rank, k))
        rows.append(row)
    return rows


def f_then_b(ranks, microbatches):
    """Compute of GPipe with one stage a rank."""
    return [[(kind, rank, k) for kind in "FB" for k in range(microbatches)] for rank in range(ranks)]


def parse(csv):
    """Rows of compute alone, as `--emit=torch-csv` writes them."""
    return [[re.fullmatch(r"(\d+)([FBIW])(\d+)", cell).group(2, 1, 3) for cell in line.split(",")]
            for line in csv.split()]


def naive(rows):
    """With messages as one would write them: a receive just before its use, a
    send at once."""
    rank_of = {int(stage): rank for rank, row in enumerate(rows) for _, stage, _ in row}
    last = max(rank_of)
    result = []
    for rank, row in enumerate(rows):
        cells = []
        for kind, stage, k in row:
            stage = int(stage)
            before, after = (stage - 1, stage + 1) if kind == "F" else (stage + 1, stage - 1)
            letter = "F" if kind == "F" else "B"
            if kind != "W" and 0 <= before <= last and rank_of[before] != rank:
                cells.append(f"{stage}RECV_{letter}{k}")
            cells.append(f"{stage}{kind}{k}")
            if kind != "W" and 0 <= after <= last and rank_of[after] != rank:
                cells.append(f"{stage}SEND_{letter}{k}")
        result.append(cells)
    return result


def text(rows):
    return "".join(",".join(row) + "\n" for row in rows)


class CheckCsv(ToolTest):
    def check(self, csv, *arguments):
        """The exit code and what --json says."""
        done = run("check", "-", "--json", *arguments, stdin=csv)
        answer = json.loads(done.stdout)
        self.assertEqual(done.returncode, 0 if answer["ok"] else 1)
        return answer

    def one(self, csv, kind, message, row, column):
        self.assertEqual(self.errors(csv), [(kind, message, row, column)])

    def fine(self, csv, *arguments):
        answer = self.check(csv, *arguments)
        self.assertTrue(answer["ok"], answer["errors"])
        return answer

    def errors(self, csv, *arguments):
        """Kind, message, row and column of each error."""
        return [(error["kind"], error["message"], error.get("line"), error.get("column"))
                for error in self.check(csv, *arguments)["errors"]]

    def holds(self, csv):
        answer = self.check(csv)
        return [answer["holds"][model] for model in ("rank", "pair", "edge")], answer["min_buffering"]

"""`check` of schedule CSVs: PyTorch's lists, with and without messages."""

import json
import re
import unittest

import sluice
from sluice import ToolTest, chain, run


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


class Deadlocks(CheckCsv):
    def test_naive_1f1b(self):
        csv = text(naive(one_f_one_b(4, 8)))
        self.assertEqual(self.holds(csv), ([False, False, True], 1))
        answer = self.check(csv)
        # Rank r runs w = 3 - r forwards first. Then it sends forward w + j
        # before it receives backward j, which rank r + 1 sends before it
        # receives forward w + j.
        crossings = [[f"{r}SEND_F{w + j}", f"{r + 1}RECV_F{w + j}", f"{r + 1}SEND_B{j}", f"{r}RECV_B{j}"]
                     for r in range(3) for w in [3 - r] for j in range(8 - w)]
        self.assertEqual([[step["op"] for step in error["cycle"]] for error in answer["errors"]], crossings)
        rows = csv.splitlines()
        for error in answer["errors"]:
            self.assertEqual(error["kind"], "deadlock")
            for step in [error] + error["cycle"]:
                self.assertEqual(rows[step["line"] - 1][step["column"] - 1:].split(",")[0], step["op"])
            send, _, _, receive = [step["op"] for step in error["cycle"]]
            self.assertIn(f"post {receive} before {send}, or send them in one group", error["message"])
            self.assertIn(f"in one group: ({send};{receive})BATCH_P2P", [note["message"] for note in error["notes"]])
        self.assertFalse(self.check(csv, "--progress=pair")["ok"])
        self.assertTrue(self.check(csv, "--progress=edge")["ok"])
        self.assertTrue(self.check(csv, "--p2p=buffered:1")["ok"])

    def test_naive_interleaved_needs_two_buffers(self):
        spec = chain(layers=4, ranks=2, microbatches=4, schedule="interleaved-1f1b", pipeline=", virtual_stages: 2")
        csv = text(naive(parse(self.ok("compile", "-", "--emit=torch-csv", stdin=spec))))
        holds, least = self.holds(csv)
        self.assertFalse(holds[0])
        self.assertEqual(least, 2)
        self.assertFalse(self.check(csv, "--p2p=buffered:1")["ok"])
        self.assertTrue(self.check(csv, "--p2p=buffered:2")["ok"])

    def test_sends_and_receives_in_one_batch(self):
        rows = naive(one_f_one_b(4, 8))
        fused = []
        for row in rows:
            cells = []
            for cell in row:
                if cells and "SEND_" in cells[-1] and "RECV_" in cell and "(" not in cells[-1]:
                    cells[-1] = f"({cells[-1]};{cell})BATCH_P2P"
                else:
                    cells.append(cell)
            fused.append(cells)
        self.assertEqual(self.holds(text(fused)), ([True] * 3, 0))

    def test_gpipe(self):
        self.assertEqual(self.holds(text(naive(f_then_b(4, 8)))), ([True] * 3, 0))

    def test_a_ring(self):
        # Five stages on four ranks, forward only: all ranks send before they
        # receive, each to the next one.
        rows = [[("F", rank, k) for k in range(6)] for rank in range(4)]
        rows[0] += [("F", 4, k) for k in range(6)]
        self.assertEqual(self.holds(text(naive(rows)))[0], [False, True, True])

    def test_a_pair_that_runs_together(self):
        csv = "0F0,(0F1;3B0)OVERLAP_F_B,3F0\n"
        self.assertTrue(any(kind == "malformed" for kind, *_ in self.errors(csv)))
        spec = chain(layers=4, ranks=2, microbatches=4, schedule="dualpipev", pipeline=", virtual_stages: 2")
        written = self.ok("compile", "-", "--emit=torch-csv", stdin=spec)
        self.assertIn("OVERLAP_F_B", written)
        self.assertTrue(self.fine(written)["holds"]["rank"])


class Fixes(CheckCsv):
    """What a deadlock names mends it, applied to the letter, one after the other."""

    def mend(self, rows, error, grouped):
        """Applies the fix of `error` to the cells: a receive before a send, or
        both in one cell."""
        posted = re.search(r": post (.+) before (\S+?)(?:, or .*)?$", error["message"])
        added = re.search(r": add (\S+) to the group of (\S+)$", error["message"])
        moved, stays = (posted or added).groups()
        several = moved.split(" and ")
        row = next(row for row in rows if all(self.find(row, name) is not None for name in several + [stays]))
        for name in several:
            self.take(row, name)
        at = self.find(row, stays)
        if posted and (not grouped or len(several) > 1):
            row[at:at] = several
            return
        cell = next(note["message"].split(": ")[1] for note in error["notes"]
                    if note["message"].startswith("in one group: "))
        self.assertEqual(set(cell.removesuffix("BATCH_P2P").strip("()").split(";")),
                         set(row[at].removesuffix("BATCH_P2P").strip("()").split(";")) | {moved})
        row[at] = cell

    def find(self, row, name):
        return next((at for at, cell in enumerate(row) if name in re.split(r"[();]", cell)), None)

    def take(self, row, name):
        at = self.find(row, name)
        left = [part for part in row[at].removesuffix("BATCH_P2P").strip("()").split(";") if part != name]
        row[at:at + 1] = [] if not left else left if len(left) == 1 else ["(" + ";".join(left) + ")BATCH_P2P"]

    def test_until_it_holds(self):
        for schedule, ranks, chunks, microbatches in (("1f1b", 4, 1, 8), ("interleaved-1f1b", 2, 2, 4),
                                                      ("interleaved-1f1b", 3, 2, 6), ("zb-h1", 3, 1, 4)):
            spec = chain(layers=ranks * chunks, ranks=ranks, microbatches=microbatches, schedule=schedule,
                         pipeline=f", virtual_stages: {chunks}")
            compute = self.ok("compile", "-", "--emit=torch-csv", stdin=spec)
            for grouped in (False, True):
                with self.subTest(schedule=schedule, ranks=ranks, grouped=grouped):
                    rows = naive(parse(compute))
                    for fixes in range(100):
                        answer = self.check(text(rows))
                        if answer["ok"]:
                            break
                        self.assertEqual({error["kind"] for error in answer["errors"]}, {"deadlock"})
                        self.mend(rows, answer["errors"][0], grouped)
                    self.assertTrue(answer["ok"])
                    self.assertGreater(fixes, 0)

    def test_a_send_in_a_group(self):
        csv = ("0F0,0SEND_F0,0F1,(0SEND_F1)BATCH_P2P,0RECV_B0,0B0,0RECV_B1,0B1\n"
               "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n")
        error, = self.check(csv)["errors"]
        self.assertEqual(error["message"], "rank 0 at 0SEND_F1 and rank 1 at 1SEND_B0 wait for each other "
                                           "(progress: rank): add 0RECV_B0 to the group of 0SEND_F1")
        self.assertEqual(error["notes"][4]["message"], "in one group: (0SEND_F1;0RECV_B0)BATCH_P2P")
        self.fine(csv.replace("(0SEND_F1)BATCH_P2P,0RECV_B0", "(0SEND_F1;0RECV_B0)BATCH_P2P"))

    def test_the_whole_text(self):
        done = run("check", "-", stdin="0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD\n"
                                       "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE_GRAD\n")
        first = "  0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD\n"
        second = "  1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE_GRAD\n"
        send, receive, back, other = (" " * (column - 1) + "  ^\n" for column in (18, 27, 18, 27))
        self.assertEqual(done.stdout, (
            "-:1:18: error: deadlock: rank 0 at 0SEND_F1 and rank 1 at 1SEND_B0 wait for each other (progress: rank): "
            "post 0RECV_B0 before 0SEND_F1, or send them in one group\n" + first + send +
            "-:1:18: note: rank 0 at 0SEND_F1 waits for rank 1 to reach 1RECV_F1\n" + first + send +
            "-:2:27: note: rank 1 reaches 1RECV_F1 only after 1SEND_B0\n" + second + other +
            "-:2:18: note: rank 1 at 1SEND_B0 waits for rank 0 to reach 0RECV_B0\n" + second + back +
            "-:1:27: note: rank 0 reaches 0RECV_B0 only after 0SEND_F1\n" + first + receive +
            "-:1:18: note: in one group: (0SEND_F1;0RECV_B0)BATCH_P2P\n" + first + send +
            "note: or leave the messages of the file out: they are then added in an order that holds "
            "(sluice compile --emit=torch-csv-comms writes it)\n"
            "refused: 16 operations on 2 ranks, progress rank, least buffering 1; under edge it does not deadlock\n"))


class Buffered(CheckCsv):
    """What is told under --p2p=buffered:N."""

    def test_the_receive_that_frees_a_buffer(self):
        # Rank 0 sends four activations before it receives a gradient. Rank 1
        # receives two and sends two gradients, of which one is buffered.
        rows = naive([[("F", 0, k) for k in range(4)] + [("B", 0, k) for k in range(4)],
                      [(kind, 1, k) for k in range(4) for kind in "FB"]])
        answer = self.check(text(rows), "--p2p=buffered:1")
        self.assertFalse(answer["ok"])
        self.assertEqual(answer["p2p"], "buffered:1")
        error = answer["errors"][0]
        self.assertIn("(progress: rank, buffered 1): post ", error["message"])
        steps = [note["message"] for note in error["notes"]]
        self.assertIn("rank 0 ends 0SEND_F3 only once rank 1 has ended 1RECV_F2: 1 message is buffered", steps)
        self.assertIn("rank 1 ends 1SEND_B1 only once rank 0 has ended 0RECV_B0: 1 message is buffered", steps)

    def verdict(self, csv, *arguments):
        return run("check", "-", *arguments, stdin=csv).stdout.splitlines()[-1]

    def test_the_verdict_says_what_is_assumed(self):
        csv = text([row + [f"{rank}REDUCE_GRAD"] for rank, row in enumerate(naive(one_f_one_b(2, 2)))])
        self.assertEqual(self.verdict(csv), "refused: 16 operations on 2 ranks, progress rank, least buffering 1; "
                                            "under edge it does not deadlock")
        self.assertEqual(self.verdict(csv, "--p2p=buffered:1"),
                         "ok: 16 operations on 2 ranks, progress rank, buffered 1; without buffering it deadlocks")
        self.assertEqual(self.verdict(csv, "--progress=edge"),
                         "ok: 16 operations on 2 ranks, progress edge; under rank and pair it deadlocks")
        explained = self.ok("check", "-", "--explain", "--p2p=buffered:1", stdin=csv)
        self.assertIn("one queue for all of it would do, if sends may end while 1 message of a channel is not "
                      "received yet\n", explained)

    def test_no_buffering_helps(self):
        # Each rank receives before it sends.
        csv = "0F0,0RECV_B0,0SEND_F0,0B0,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n"
        self.assertEqual(self.verdict(csv), "refused: 8 operations on 2 ranks, progress rank, no buffering helps; "
                                            "under edge it does not deadlock")


class Mismatches(CheckCsv):
    def test_one_batch_with_one_peer_both_ways(self):
        csv = ("0F0,0SEND_F0,0F1,2RECV_F0,2F0,2SEND_F0,2RECV_B0,2B0,"
               "(2SEND_B0;2RECV_F1;0SEND_F1;0RECV_B0)BATCH_P2P,2F1,2SEND_F1,2RECV_B1,2B1,2SEND_B1,0B0,0RECV_B1,0B1\n"
               "1RECV_F0,1F0,1SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,"
               "(1SEND_B0;1RECV_F1;1SEND_F1;1RECV_B0)BATCH_P2P,1F1,1B0,3RECV_F1,3F1,3B1,3SEND_B1,1RECV_B1,1B1,1SEND_B1\n")
        answer = self.check(csv)
        self.assertEqual(answer["holds"], {"rank": False, "pair": False, "edge": False})
        self.assertIn("2SEND_B0 meets 1RECV_F1", [error["message"].split(": ")[-1] for error in answer["errors"]
                                                  if error["kind"] == "mismatch"])

    def test_two_directions_in_another_order(self):
        # A V on two ranks: activations of stage 0 and gradients of stage 3 ...
        rows = [["0F0", "0SEND_F0", "3RECV_F0", "3F0", "3B0", "0F1", "3SEND_B0", "0SEND_F1", "0RECV_B0", "0B0",
                 "3RECV_F1", "3F1", "3B1", "3SEND_B1", "0RECV_B1", "0B1"],
                ["1RECV_F0", "1F0", "2F0", "2SEND_F0", "2RECV_B0", "1RECV_F1", "2B0", "1B0", "1SEND_B0",
                 "1F1", "2F1", "2SEND_F1", "2RECV_B1", "2B1", "1B1", "1SEND_B1"]]
        self.fine(text(rows))
        rows[0][6:8] = rows[0][7], rows[0][6]  # ... go the same way
        self.assertEqual([error[1] for error in self.errors(text(rows)) if error[0] == "mismatch"],
                         ["message 2 from rank 0 to rank 1: 0SEND_F1 meets 2RECV_B0"])

    def test_a_missing_receive(self):
        rows = naive(one_f_one_b(2, 4))
        at = rows[1].index("1RECV_F2")
        del rows[1][at]
        column = len(",".join(rows[0][:rows[0].index("0SEND_F2")])) + 2
        self.assertEqual(self.errors(text(rows)),
                         [("mismatch", "from rank 0 to rank 1 there are 4 sends and 3 receives: "
                           "0SEND_F2 meets no 1RECV_F2", 1, column)])
        note, = self.check(text(rows))["errors"][0]["notes"]
        self.assertEqual(note, {"message": "add 1RECV_F2 before 1F2 (row 2)", "line": 2,
                                "column": len(",".join(rows[1][:at])) + 2})

    def test_a_missing_send(self):
        rows = naive(f_then_b(2, 2))
        rows[1].remove("1SEND_B0")
        error, = self.check(text(rows))["errors"]
        self.assertEqual(error["message"],
                         "from rank 1 to rank 0 there is 1 send and 2 receives: 0RECV_B0 meets no 1SEND_B0")
        self.assertEqual([(note["message"], note["line"]) for note in error["notes"]],
                         [("add 1SEND_B0 behind 1B0 (row 2)", 2)])

    def test_both_ends_are_shown(self):
        rows = naive(f_then_b(2, 2))
        first, second = rows[0].index("0SEND_F0"), rows[0].index("0SEND_F1")
        rows[0][first], rows[0][second] = rows[0][second], rows[0][first]
        error = next(error for error in self.check(text(rows))["errors"] if error["kind"] == "mismatch")
        self.assertEqual((error["message"], error["line"], error["column"]),
                         ("message 1 from rank 0 to rank 1: 0SEND_F1 meets 1RECV_F0", 2, 1))
        self.assertEqual(error["notes"], [{"message": "0SEND_F1 is here", "line": 1, "column": 5}])

    def test_a_missing_send_and_receive(self):
        rows = naive(f_then_b(2, 4))
        rows[0].remove("0SEND_F2")
        rows[1].remove("1RECV_F2")
        column = len(",".join(rows[1][:rows[1].index("1F2")])) + 2
        self.assertEqual(self.errors(text(rows)),
                         [("missing", "1F2 needs 1RECV_F2, which is missing, as is its send", 2, column)])


class Lists(CheckCsv):
    GOOD = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"

    def test_compute_alone(self):
        answer = self.fine(self.GOOD)
        self.assertEqual((answer["ranks"], answer["holds"], answer["min_buffering"], answer["warnings"]),
                         (2, {"rank": True, "pair": True, "edge": True}, 0, []))
        # Two messages each way, at both ends, and a step a stage.
        self.assertEqual(answer["operations"], 8 + 8 + 2)
        self.assertEqual(self.ok("check", "-", stdin=self.GOOD), "ok: 18 operations (8 of the file; 8 messages and 2 "
                                                                 "steps added) on 2 ranks, progress rank\n")
        self.assertEqual(self.ok("check", "-", "-q", stdin=self.GOOD), "")

    def test_blanks_quotes_and_line_ends(self):
        for csv in ("0F0, 0F1,,0B0 ,0B1,\r\n1F0,1B0,1F1,1B1\r\n", self.GOOD.rstrip(), self.GOOD + "\n\n",
                    "\ufeff" + self.GOOD, '"0F0","0F1","0B0","0B1"\n1F0,1B0,1F1,1B1\n',
                    "0UNSHARD,0F0,0F1,0B0,0B1,0REDUCE_GRAD,0RESHARD\n1F0,1B0,1F1,1B1\n"):
            self.fine(csv)

    def one(self, csv, kind, message, row, column):
        self.assertEqual(self.errors(csv), [(kind, message, row, column)])

    def test_twice(self):
        self.one("0F0,0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "duplicate", "0F0 stands twice", 1, 5)

    def test_beside(self):
        self.one("0F0,0F1,0B0,0B1,0I1\n1F0,1B0,1F1,1B1\n", "duplicate",
                 "0I1 stands beside 0B1: a backward is whole or split, not both", 1, 17)

    def test_numbers(self):
        self.one("0F0,0F9,0B0,0B9\n1F0,1B0,1F9,1B9\n", "malformed",
                 "0F9 is of microbatch 9, but no forward is of microbatch 1", 1, 5)
        self.one("0F0,0B0,7F0\n1F0,1B0\n", "malformed", "7F0 is of stage 7, but nothing is of stage 2", 1, 9)
        self.one("0F0,0B0,4294967294F0\n1F0,1B0\n", "malformed",
                 "'4294967294F0' is not an operation; they are written 0F3 (stage, one of F, B, I, W, microbatch)", 1, 9)

    def test_a_stage_on_two_ranks(self):
        self.one("0F0,0F1,0B0\n1F0,1B0,1F1,1B1,0B1\n", "malformed", "0B1 is on rank 1, stage 0 before on rank 0", 2, 17)
        # Whoever computes a stage has it, whatever messages say.
        self.one("0F0,1SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", "malformed",
                 "1SEND_F0 is on rank 0, but rank 1 computes stage 1", 1, 5)

    def test_no_action(self):
        for cell in ("0F0xyz", "0F-1", "0X1", "0F", "0STEP", "0R0", "0UNSHARD3"):
            with self.subTest(cell=cell):
                self.one(f"0F0,{cell},0B0\n1F0,1B0\n", "malformed",
                         f"'{cell}' is not an operation; they are written 0F3 (stage, one of F, B, I, W, microbatch)",
                         1, 5)

    def test_a_first_cell_that_is_no_action(self):
        self.one("0F0xyz,0B0\n", "malformed",
                 "'0F0xyz' is not an operation; they are written 0F3 (stage, one of F, B, I, W, microbatch)", 1, 1)

    def test_files_that_begin_otherwise(self):
        prose = "this row names no operation: every row is a rank, and there is neither a header nor a comment"
        self.one("rank,ops\n0F0,0B0\n", "malformed", prose, 1, 1)
        self.one("# mine\n0F0,0B0\n", "malformed", prose, 1, 1)
        self.one("0f0,0B0\n", "malformed", "'0f0' is not an operation; letters are capital, as in 0F0", 1, 1)
        self.one("0F0\t0B0\n", "malformed", "'0F0\\x090B0' is not an operation; cells are parted by commas, members "
                 "of a group by semicolons", 1, 1)

    def test_a_spec_that_speaks_of_1f1b_is_no_csv(self):
        spec = "# 1F1B, as 0F0,0B0 in a CSV\n" + chain()
        self.assertEqual(self.report(spec)["schedule"], "1f1b")

    def test_a_name_that_says_csv(self):
        for content, told in (("", ": error: the schedule names no operation\n"),
                              ("f,b\n", ":1:1: error: this row names no operation: every row is a rank, and there is "
                               "neither a header nor a comment\n  f,b\n  ^\n")):
            path = self.write("mine.csv", content)
            done = run("check", path)
            self.assertEqual((done.returncode, done.stdout, done.stderr),
                             (1, f"{path}{told}refused: 0 operations on 0 ranks, progress rank\n", ""))

    def test_old_letters_that_are_letters_of_today(self):
        csv = "0F0,0B0,0W0\n1F0,1B0,1W0\n"
        first, second = self.check(csv)["errors"]
        self.assertEqual(first["message"], "0W0 stands beside 0B0: a backward is whole or split, not both")
        self.assertEqual([note["message"] for note in first["notes"]],
                         ["every B has a W: in PyTorch's old letters B was the backward by inputs; if that is meant, "
                          "write I for B in the whole file"])
        self.assertEqual(second["notes"], [])
        self.fine(csv.replace("B", "I"))

    def test_a_row_between_others_without_a_cell(self):
        warning, = self.fine("0F0,0B0\n\n1F0,1B0\n")["warnings"]
        self.assertEqual((warning["message"], warning["line"], warning["column"], warning["rank"], warning["op"]),
                         ("row 2 computes nothing: rank 1 is idle", 2, 1, 1, None))
        self.assertEqual(self.ok("check", "-", "-q", stdin="0F0,0B0\n\n1F0,1B0\n"), "")

    def test_messages_that_stand_twice(self):
        self.assertEqual(self.errors("0F0,0SEND_F0,0SEND_F0\n1RECV_F0,1RECV_F0,1F0\n"),
                         [("duplicate", "0SEND_F0 stands twice", 1, 14), ("duplicate", "1RECV_F0 stands twice", 2, 10)])
        self.one("0F0,0SEND_F0,0SEND_F0\n1RECV_F0,1F0\n", "duplicate", "0SEND_F0 stands twice", 1, 14)

    def test_old_letters(self):
        errors = self.errors("0F0,0B0,0BW0\n1F0,1B0,1BW0\n")
        self.assertEqual([(kind, row, column) for kind, _, row, column in errors], [("malformed", 1, 9)])
        self.assertIn("old letters", errors[0][1])

    def test_a_blank_cell_beside_messages(self):
        self.one("0F0,0SEND_F0,,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", "malformed",
                 "a blank cell: a file with messages is taken as it stands, and every cell is an action", 1, 14)

    def test_what_is_missing(self):
        self.assertEqual(self.errors("0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n"), [("missing", "0B1 is missing", 1, 5)])
        self.assertEqual(self.errors("0F0,0I0\n"), [("missing", "0W0 is missing", 1, 1)])
        # Nothing of the microbatch: the end of the stage's row.
        self.assertEqual(self.errors("0F0,0F1,0B0,0B1\n1F0,1B0\n"),
                         [("missing", "1F1 is missing", 2, 5), ("missing", "1B1 is missing", 2, 5)])

    def test_order_in_a_row(self):
        self.one("0F0,0B1,0F1,0B0\n1F0,1B0,1F1,1B1\n", "order", "0B1 stands before 0F1, which it needs", 1, 5)
        self.one("0F0,0W0,0I0\n", "order", "0W0 stands before 0I0, which it needs", 1, 5)
        self.one("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0\n", "order",
                 "1F0 stands before 1RECV_F0, which it needs", 2, 1)

    def test_a_circle_of_rows(self):
        errors = self.errors("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n")
        # 0B0 needs 1B0, which comes after all of microbatch 1 on its rank; 1F1
        # needs 0F1, which comes after 0B0.
        self.assertEqual(errors, [("deadlock", "0B0 on rank 0 and 1F1 on rank 1 wait for each other", 1, 5)])
        done = run("check", "-", stdin="0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n")
        steps = ["-:1:5: note: 0B0 on rank 0 needs 1B0 on rank 1", "-:2:13: note: 1B0 on rank 1 comes after 1F0 on rank 1",
                 "-:2:9: note: 1F0 on rank 1 comes after 1B1 on rank 1",
                 "-:2:5: note: 1B1 on rank 1 comes after 1F1 on rank 1", "-:2:1: note: 1F1 on rank 1 needs 0F1 on rank 0",
                 "-:1:9: note: 0F1 on rank 0 comes after 0B0 on rank 0"]
        self.assertEqual([line for line in done.stdout.splitlines() if ": note: " in line], steps)
        self.assertEqual(done.stdout.splitlines()[-1], "refused: 8 operations on 2 ranks, progress rank, no buffering "
                                                       "helps")

    def test_messages_to_nowhere(self):
        self.one("0F0,1F0,0SEND_F0,1B0,0B0\n", "malformed", "0SEND_F0 goes nowhere: stage 1 is on rank 0 too", 1, 9)
        self.one("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1SEND_F0,1B0,1SEND_B0\n", "malformed",
                 "1SEND_F0 has no stage at its other end: there are 2 stages", 2, 14)

    REDUCED = "there is no {0}REDUCE_GRAD behind {0}B1: PyTorch takes a file with messages as it stands, and then " \
              "neither scales nor reduces the gradients of stage {0}; end the row with {0}REDUCE_GRAD"

    def test_reduction_of_gradients(self):
        def warnings(rows):
            return [(warning["kind"], warning["message"], warning["op"], warning["line"])
                    for warning in self.fine(text(rows))["warnings"]]

        rows = naive(f_then_b(2, 2))
        both = [("missing", self.REDUCED.format(rank), f"{rank}B1", rank + 1) for rank in range(2)]
        self.assertEqual(warnings(rows), both)
        rows[0].append("0REDUCE_GRAD")
        self.assertEqual(warnings(rows), both[1:])
        at = rows[1].index("1B1")
        self.assertEqual(warnings([rows[0], rows[1][:at] + ["1REDUCE_GRAD"] + rows[1][at:]]), both[1:])
        rows[1].append("1REDUCE_GRAD")
        self.assertEqual(warnings(rows), [])
        rows[1].append("1WAIT_REDUCE_GRAD")
        self.assertEqual(warnings(rows), [])
        rows[1].append("1REDUCE_GRAD")
        self.one(text(rows), "duplicate", "1REDUCE_GRAD stands twice", 2, len(",".join(rows[1][:-1])) + 2)

    def test_reductions_of_another_rank(self):
        rows = naive(f_then_b(2, 2))
        column = len(",".join(rows[0])) + 2
        for cell, told in (("1REDUCE_GRAD", "1REDUCE_GRAD is on rank 0, but rank 1 computes stage 1"),
                           ("5REDUCE_GRAD", "5REDUCE_GRAD is of stage 5, but nothing is of stage 2"),
                           ("0WAIT_REDUCE_GRAD", "0WAIT_REDUCE_GRAD waits for 0REDUCE_GRAD, which stands nowhere")):
            self.one(text([rows[0] + [cell], rows[1]]), "malformed", told, 1, column)

    def test_forward_alone(self):
        rows = [[("F", rank, k) for k in range(3)] for rank in range(3)]
        self.assertEqual(self.fine(text(naive(rows)))["warnings"], [])

    def test_few_operations_of_a_huge_job(self):
        # A table of all stages and microbatches would take terabytes.
        count = 400000
        csv = text([[f"{s}F0" for s in range(count)] + [f"0F{k}" for k in range(1, count)]])
        self.assertEqual([error[:2] for error in self.errors(csv)],
                         [("malformed", f"{count} stages and {count} microbatches need {count ** 2} forwards, the file "
                           f"has {2 * count - 1} operations")])

    def test_nothing_at_all(self):
        self.assertEqual([error[:2] for error in self.errors("0UNSHARD\n")],
                         [("malformed", "the schedule names no operation")])

    def test_text_shows_the_cell(self):
        done = run("check", "-", stdin="0F0,0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
        self.assertEqual(done.stdout, "-:1:5: error: duplicate: 0F0 stands twice\n"
                                      "  0F0,0F0,0F1,0B0,0B1\n"
                                      "      ^\n"
                                      "refused: 9 operations on 2 ranks, progress rank\n")


class Explain(CheckCsv):
    def test_of_a_csv(self):
        out = self.ok("check", "-", "--explain", stdin="0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
        self.assertEqual(out, """ok: 18 operations (8 of the file; 8 messages and 2 steps added) on 2 ranks, progress rank

channels: the n-th send meets the n-th receive
  from   to   communicator   messages   bytes
     0    1              0          2       -   0SEND_F0 to 0SEND_F1
     1    0              1          2       -   1SEND_B0 to 1SEND_B1

communication of each rank, in order: one queue for all of it would do
  rank 0: 0SEND_F0 0SEND_F1 0RECV_B0 0RECV_B1
  rank 1: 1RECV_F0 1RECV_F1 1SEND_B0 1SEND_B1
""")

    def test_of_a_batch_and_another_progress(self):
        csv = text(naive(one_f_one_b(2, 2)))
        out = self.ok("check", "-", "--explain", "--progress=edge", stdin=csv)
        self.assertNotIn("communication of each rank", out)
        self.assertIn("one queue for all communication of a rank would not do: it needs one for each peer and "
                      "direction\n", out)
        csv = csv.replace("0SEND_F1,0RECV_B0", "(0SEND_F1;0RECV_B0)BATCH_P2P")
        self.assertIn("  rank 0: 0SEND_F0 ( 0SEND_F1 0RECV_B0 ) 0RECV_B1\n", self.ok("check", "-", "--explain", stdin=csv))

    def test_memory_of_a_plan(self):
        spec = self.write("job.yaml", chain(layer=", activation_bytes: 1024, params: 64", pipeline=", memory_limit: 1MiB"))
        plan = self.folder / "job.plan"
        self.ok("compile", spec, "-o", plan)
        lines = [line for line in self.ok("check", plan, "--explain").splitlines() if "| most " in line]
        self.assertEqual(len(lines), 4)
        for rank, line in zip(self.report(spec.read_text())["per_rank"], lines):
            # 1152 bytes of state; p - r microbatches of 1 KiB at once.
            self.assertEqual(rank["peak_bytes"], 64 * (2 + 4 + 12) + 1024 * rank["peak_in_flight"])
            self.assertIn(f"most {rank['peak_bytes'] / 1024:.2f} KiB at {rank['rank']}F", line)
            self.assertIn("of a limit of 1.00 MiB", line)

    def test_for_people_only(self):
        self.assertEqual(self.refused(2, "check", "-", "--explain", "--json", stdin="0F0\n"),
                         "error: --explain is for people, --json for programs\n")


class SendWaits(CheckCsv):
    def test_a_wait_that_holds_back_what_the_peer_needs(self):
        # Each rank waits for the end of a send before it posts the receive of
        # what the other one sends.
        rows = ("0F0,0SEND_F0,0F1,0SEND_F1,{}0RECV_B0,0B0,0RECV_B1,0B1\n"
                "1RECV_F0,1F0,1B0,1SEND_B0,{}1RECV_F1,1F1,1B1,1SEND_B1\n")
        for waits, holds in ((("", ""), True), (("0WAIT_SEND_F1,", ""), True), (("", "1WAIT_SEND_B0,"), True),
                             (("0WAIT_SEND_F1,", "1WAIT_SEND_B0,"), False)):
            self.assertEqual(self.check(rows.format(*waits))["holds"]["edge"], holds, waits)
        csv = rows.format("0WAIT_SEND_F1,", "1WAIT_SEND_B0,")
        error, = self.check(csv, "--progress=edge")["errors"]
        self.assertEqual([note["message"] for note in error["notes"][:6]], [
            "rank 0 at 0SEND_F1 waits for rank 1 to reach 1RECV_F1",
            "rank 1 reaches 1RECV_F1 only after 1WAIT_SEND_B0, which waits for the end of 1SEND_B0",
            "rank 1 at 1SEND_B0 waits for rank 0 to reach 0RECV_B0",
            "rank 0 reaches 0RECV_B0 only after 0WAIT_SEND_F1, which waits for the end of 0SEND_F1",
            "move 1WAIT_SEND_B0 behind 1RECV_F1", "move 0WAIT_SEND_F1 behind 0RECV_B0"])
        for note, row, cell in ((error["notes"][1], 1, "1WAIT_SEND_B0"), (error["notes"][3], 0, "0WAIT_SEND_F1")):
            self.assertEqual((note["line"], note["column"]), (row + 1, csv.splitlines()[row].index(cell) + 1))
        self.assertTrue(self.check(csv.replace("1WAIT_SEND_B0,1RECV_F1", "1RECV_F1,1WAIT_SEND_B0"),
                                   "--progress=edge")["ok"])

    def test_a_wait_for_nothing(self):
        csv = "0F0,0WAIT_SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"
        self.assertEqual(self.errors(csv), [("malformed", "0WAIT_SEND_F0 waits for 0SEND_F0, which stands behind it",
                                             1, 5)])


class Report(CheckCsv):
    def test_costs(self):
        csv = self.write("job.csv", text([[f"{s}{kind}{k}" for kind, s, k in row] for row in one_f_one_b(4, 8)]))
        report = json.loads(self.ok("report", csv, "--json"))
        # (m + p - 1)(F + I + W) with costs of 1, and p - r in flight on rank r.
        self.assertEqual((report["makespan"], report["time_unit"], report["model"]["name"]), (33, "unit", "job"))
        self.assertEqual([rank["peak_in_flight"] for rank in report["per_rank"]], [4, 3, 2, 1])
        report = json.loads(self.ok("report", csv, "--json", "--costs=2ms,3ms,1ms"))
        self.assertEqual((report["makespan"], report["time_unit"]), (0.066, "s"))

    def test_messages_take_time(self):
        # One microbatch goes down and up: four times F + B and six messages.
        compute = [[("F", rank, 0), ("B", rank, 0)] for rank in range(4)]
        for rows in (naive(compute), [[f"{s}{kind}{k}" for kind, s, k in row] for row in compute]):
            report = json.loads(self.ok("report", "-", "--json", "--costs=1,1,1,0.5", stdin=text(rows)))
            self.assertEqual(report["makespan"], 4 * 3 + 6 * 0.5)

    def test_a_rank_has_the_costs_of_its_stages_together(self):
        report = json.loads(self.ok("report", "-", "--json", "--costs=4,2,2", stdin="0F0,1F0,1B0,0B0\n"))
        self.assertEqual(report["makespan"], 8)

    def test_messages_are_replaced(self):
        rows = [row + [f"{rank}REDUCE_GRAD"] for rank, row in enumerate(naive(f_then_b(2, 2)))]
        done = run("report", "-", "--json", stdin=text(rows))
        told = ("0SEND_F0 and all other messages of the file are replaced by the compiler's own; only plan_makespan is "
                "of the file's")
        self.assertEqual(json.loads(done.stdout)["warnings"], [told])
        self.assertTrue(done.stderr.startswith(f"-:1:5: warning: {told}\n"), done.stderr)

    def test_a_list_that_is_wrong_has_no_report(self):
        done = run("report", "-", stdin="0F0,0F0,0B0\n")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertTrue(done.stderr.startswith("-:1:5: error: duplicate: 0F0 stands twice\n"), done.stderr)

    def test_flags(self):
        spec = self.write("job.yaml", chain())
        self.assertEqual(self.refused(2, "report", spec, "--costs=1,1,1"),
                         f"error: --costs is for a schedule CSV: '{spec}' has costs of its own\n")
        for costs in ("1,1", "1,1,1,1,1", "1,x,1", "1ms,1,1", "-1,1,1"):
            self.assertIn("is not three or four times", self.refused(2, "report", "-", f"--costs={costs}", stdin="0F0\n"))
        self.assertIn("name it in a spec, as pipeline.schedule: {csv: FILE}", self.refused(1, "run", "-", stdin="0F0\n"))


class InASpec(CheckCsv):
    """A file that a spec names is held to the same, and told at its own cells."""

    def test_faults(self):
        for csv in ("0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n", "0F0,0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
                    "0F0,0B1,0F1,0B0\n1F0,1B0,1F1,1B1\n", "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n",
                    "0F0,0X0,0B0\n1F0,1B0\n"):
            with self.subTest(csv=csv):
                file = self.write("mine.csv", csv)
                spec = self.write("job.yaml", chain(layers=2, ranks=2, microbatches=2, schedule="{csv: mine.csv}"))
                checked = run("check", file).stdout.splitlines(keepends=True)[:-1]  # without the verdict
                self.assertEqual(self.refused(1, "compile", spec, "--emit=ops"), "".join(checked))

    def test_messages_are_left_out(self):
        rows = naive(one_f_one_b(2, 2))
        self.assertFalse(self.check(text(rows))["ok"])
        self.write("mine.csv", text(rows))
        spec = self.write("job.yaml", chain(layers=2, ranks=2, microbatches=2, schedule="{csv: mine.csv}"))
        self.assertEqual(self.ok("compile", spec, "--emit=ops"), "rank 0: 0F0 0F1 0B0 0B1\nrank 1: 1F0 1B0 1F1 1B1\n")


class Everything(CheckCsv):
    """What the compiler writes is read back."""

    def test_every_schedule(self):
        for schedule, chunks in (("naive", 1), ("gpipe", 1), ("1f1b", 1), ("zb-h1", 1), ("zb-h2", 1),
                                 ("interleaved-1f1b", 2), ("breadth-first", 2), ("zb-v", 2), ("v-half", 2),
                                 ("v-min", 2), ("dualpipev", 2), ("forward-only", 1)):
            spec = chain(layers=8, ranks=4, microbatches=8, schedule=schedule, pipeline=f", virtual_stages: {chunks}")
            with self.subTest(schedule=schedule):
                compute = self.fine(self.ok("compile", "-", "--emit=torch-csv", stdin=spec))
                messages = self.fine(self.ok("compile", "-", "--emit=torch-csv-comms", stdin=spec))
                self.assertEqual(messages["warnings"], [])
                # The plan of the first has a step for each stage besides.
                steps = 0 if schedule == "forward-only" else 4 * chunks
                self.assertEqual(compute["operations"], messages["operations"] + steps)


sluice.main()

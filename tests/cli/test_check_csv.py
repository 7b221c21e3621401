"""`check` of schedule CSVs: PyTorch's lists, with and without messages."""

import json
import os
from threading import Thread

import sluice
from schedule_csv import CheckCsv, f_then_b, naive, one_f_one_b, text
from sluice import chain, run


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

    def test_twice(self):
        self.one("0F0,0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "duplicate", "0F0 stands twice", 1, 5)

    def test_beside(self):
        self.one("0F0,0F1,0B0,0B1,0I1\n1F0,1B0,1F1,1B1\n", "duplicate",
                 "0I1 stands beside 0B1: a backward is whole or split, not both", 1, 17)

        self.one("0F0,0F1,0B0,0I0,0W0,0B1\n1F0,1B0,1F1,1B1\n", "duplicate",
                 "0I0 stands beside 0B0: a backward is whole or split, not both", 1, 13)

    def test_groups_hold_operations_alone(self):
        for cell in ("(0REDUCE_GRAD)BATCH_P2P", "(0UNSHARD;0RESHARD)BATCH_P2P"):
            self.one(f"0F0,0SEND_F0,0RECV_B0,0B0,{cell}\n1RECV_F0,1F0,1B0,1SEND_B0\n", "malformed",
                     f"'{cell}' holds what is neither a message nor computes", 1, 27)

    def test_what_is_not_told_stands_last(self):
        told = run("check", "-", stdin="0F0," * 999 + "0F0\n").stdout
        self.assertEqual(told.splitlines()[-4], "-:1:401: error: duplicate: and 899 more of kind duplicate")

    def test_long_cells_are_cut(self):
        told = run("check", "-", stdin="0F0," + "x" * 100000 + ",(" + "0F0;" * 10000 + "\n").stdout
        self.assertLess(max(len(line) for line in told.splitlines() if "error" in line), 400)

    def test_numbers(self):
        self.one("0F0,0F9,0B0,0B9\n1F0,1B0,1F9,1B9\n", "malformed",
                 "0F9 is of microbatch 9, but no forward is of microbatch 1", 1, 5)
        self.one("0F0,0B0,7F0\n1F0,1B0\n", "malformed", "7F0 is of stage 7, but nothing is of stage 2", 1, 9)
        self.one("0F0,0B0,4294967294F0\n1F0,1B0\n", "malformed",
                 "'4294967294F0' is not an operation; numbers have no leading zeros and are at most 2147483647", 1, 9)

    def test_a_stage_on_two_ranks(self):
        self.one("0F0,0F1,0B0\n1F0,1B0,1F1,1B1,0B1\n", "malformed", "0B1 is on rank 1, stage 0 otherwise on rank 0", 2, 17)
        # The one cell is wrong, not those it differs from.
        self.one("1F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n", "malformed", "1F0 is on rank 0, stage 1 otherwise on rank 1", 1, 1)
        # Whoever computes a stage has it, whatever messages say.
        self.one("0F0,1SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", "malformed",
                 "1SEND_F0 is on rank 0, but rank 1 computes stage 1", 1, 5)

    def test_no_action(self):
        for cell in ("0F0xyz", "0F-1", "0X1", "0F", "0STEP", "0R0"):
            with self.subTest(cell=cell):
                self.one(f"0F0,{cell},0B0\n1F0,1B0\n", "malformed",
                         f"'{cell}' is not an operation; they are written 0F3 (stage, one of F, B, I, W, microbatch)",
                         1, 5)

    def test_names_that_are_nearly_right(self):
        message = "messages are SEND_F and RECV_F (activations), SEND_B and RECV_B (gradients, also of a split backward), " \
                  "with a microbatch: 0SEND_F3"
        wait = "waits for sends are WAIT_SEND_F and WAIT_SEND_B, with a microbatch: 0WAIT_SEND_F3"
        stage = "it is of a stage, without a microbatch: "
        for cell, told in (("0UNSHARD3", stage + "0UNSHARD"), ("0REDUCE_GRAD3", stage + "0REDUCE_GRAD"),
                           ("0SEND0", message), ("0RECVF0", message), ("0WAIT_SENDF0", wait), ("0WAIT_SEND_F", wait)):
            with self.subTest(cell=cell):
                self.one(f"0F0,{cell},0B0\n1F0,1B0\n", "malformed", f"'{cell}' is not an operation; {told}", 1, 5)

    def test_groups_without_members(self):
        for cell in ("()BATCH_P2P", "( )OVERLAP_F_B"):
            self.one(f"0F0,{cell},0B0\n1F0,1B0\n", "malformed", f"'{cell}' has no members", 1, 5)

    def test_a_message_of_the_only_stage(self):
        self.one("0F0,0SEND_F0\n", "malformed", "0SEND_F0 has no stage at its other end: there is 1 stage", 1, 5)

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

    def test_the_kind_of_a_file_is_told_by_any_cell(self):
        bad = "'{}' is not an operation; they are written 0F3 (stage, one of F, B, I, W, microbatch)"
        for cell in ("foo", "?", "0F0xyz", "-", "1"):
            self.one(f"{cell},0F0,0B0\n", "malformed", bad.format(cell), 1, 1)
        self.one("0F0,bar,0B0\n", "malformed", bad.format("bar"), 1, 5)
        self.one("0f0,0b0\n".replace("0b0", "0B0"), "malformed", "'0f0' is not an operation; letters are capital, as in "
                 "0F0", 1, 1)
        self.assertEqual([error[1:] for error in self.errors("0f0,0b0\n")],
                         [(f"'{cell}' is not an operation; letters are capital, as in {cell.upper()}", 1, column)
                          for cell, column in (("0f0", 1), ("0b0", 5))])

    def test_a_text_that_is_no_csv(self):
        for content in ("hello world\n", "we train by 1F1B on 4GPUs, with 3D parallelism\n", "1,2,3\n", "[1, 2]\n"):
            path = self.write("notes.txt", content)
            self.assertEqual(self.refused(1, "check", path),
                             f"error: '{path}' is not a plan, IR text or schedule CSV; compile a spec first: sluice "
                             "compile SPEC -o F\n")

    def test_of_very_many_faults_some_are_told(self):
        count = 2000
        more = ("malformed", f"and {count - 100} more faults, the first of them here")
        for cells in ([f"0X{k}" for k in range(count)], ["(0SEND_F0"] * count, [f"0SEND_F{k + 1}" for k in range(count)],
                      [f"0WAIT_SEND_F{k}" for k in range(count)], ["0WAIT_REDUCE_GRAD"] * count, ["x"] * count):
            csv = "0F0,0B0," + ",".join(cells) + "\n"
            errors = self.errors(csv)
            self.assertEqual(len(errors), 101, cells[0])
            untold = len("0F0,0B0," + ",".join(cells[:100])) + 2
            self.assertEqual(errors[-1], (*more, 1, untold), cells[0])
            self.assertEqual(run("check", "-", stdin=csv).stdout.count(": error: "), 101)
        rows = ["x"] * count
        self.assertEqual(self.errors("0F0,0B0\n" + "\n".join(rows))[-1], (*more, 102, 1))
        blanks = "0F0,0SEND_F0" + "," * count + "\n1RECV_F0,1F0\n"
        self.assertEqual(self.errors(blanks)[-1], (*more, 1, 114))

    def test_of_very_many_reductions_some_are_told(self):
        errors = self.errors("0F0,0B0" + ",0REDUCE_GRAD" * 301 + "\n")
        self.assertEqual(len(errors), 101)
        self.assertEqual(errors[-1][1], "and 200 more REDUCE_GRADs that stand twice")

    def test_a_pipe_is_opened_once(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for _ in range(5):
            writer = Thread(target=pipe.write_text, args=(self.GOOD,))
            writer.start()
            self.ok("check", pipe, timeout=20)
            writer.join()

    def test_a_spec_that_speaks_of_1f1b_is_no_csv(self):
        spec = "# 1F1B, as 0F0,0B0 in a CSV\n" + chain()
        self.assertEqual(self.report(spec)["schedule"], "1f1b")

    def test_a_name_that_says_csv(self):
        for content, told in (("", ": error: the schedule names no operation\n"),
                              ("f,b\nand so on\n", ":1:1: error: no row of this file names an operation: it is no "
                               "schedule CSV, whose rows are ranks and whose cells are written 0F3 (stage, one of F, B, "
                               "I, W, microbatch)\n  f,b\n  ^\n")):
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

    def test_what_is_wrong_beside_what_is_missing_or_stands_twice(self):
        order = ("order", "0B1 stands before 0F1, which it needs")
        self.assertEqual(self.errors("0F0,0B1,0F1\n1F0,1B0,1F1,1B1\n"),
                         [("missing", "0B0 is missing", 1, 1), (*order, 1, 5)])
        self.assertEqual(self.errors("0F0,0F0,0B1,0F1,0B0\n1F0,1B0,1F1,1B1\n"),
                         [("duplicate", "0F0 stands twice", 1, 5), (*order, 1, 9)])
        # Of what stands twice it is not asked which one is meant.
        self.assertEqual(self.errors("0B0,0F0,0F0,0B1,0F1\n1F0,1B0,1F1,1B1\n"),
                         [("duplicate", "0F0 stands twice", 1, 9), (*order, 1, 13)])
        self.assertEqual(self.errors("0F0,1B0,1F0,0B1,0F1,1F1,1B1\n"),
                         [("missing", "0B0 is missing", 1, 1), ("order", "1B0 stands before 1F0, which it needs", 1, 5),
                          (*order, 1, 13), ("order", "0B1 stands before 1B1, which it needs", 1, 13)])

    def test_messages_that_lack_an_end_beside_some_that_stand_twice(self):
        twice = ("duplicate", "0SEND_F0 stands twice", 1, 14)
        self.assertEqual(self.errors("0F0,0SEND_F0,0SEND_F0,0F1\n1RECV_F0,1F0,1RECV_F1,1F1\n"),
                         [twice, ("missing", "1RECV_F1 meets no 0SEND_F1, which is missing", 2, 14)])
        self.assertEqual(self.errors("0F0,0SEND_F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F0,1F0,1F1\n"),
                         [twice, ("missing", "1F1 needs 1RECV_F1, which is missing", 2, 14)])

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
        steps = ["-:1:5: note: 0B0 on rank 0 needs 1B0 on rank 1",
                 "-:2:13: note: 1B0 on rank 1 comes after 3 operations in order, 1F1 to 1F0",
                 "-:2:1: note: 1F1 on rank 1 needs 0F1 on rank 0",
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
        early = ("1REDUCE_GRAD stands before 1B1, whose gradients PyTorch then neither scales nor reduces; move it to the "
                 "end of the row")
        self.assertEqual(warnings([rows[0], rows[1][:at] + ["1REDUCE_GRAD"] + rows[1][at:]]),
                         [("missing", early, "1REDUCE_GRAD", 2)])
        rows[1].append("1REDUCE_GRAD")
        self.assertEqual(warnings(rows), [])
        rows[1].append("1WAIT_REDUCE_GRAD")
        self.assertEqual(warnings(rows), [])
        rows[1].append("1REDUCE_GRAD")
        self.one(text(rows), "duplicate", "1REDUCE_GRAD stands twice", 2, len(",".join(rows[1][:-1])) + 2)

    def test_reductions_of_a_file_without_messages(self):
        def warnings(csv):
            return [(warning["message"], warning["line"], warning["column"]) for warning in self.fine(csv)["warnings"]]

        self.assertEqual(warnings("0F0,0REDUCE_GRAD,0B0\n1F0,1B0,1REDUCE_GRAD\n"),
                         [("0REDUCE_GRAD stands before 0B0, whose gradients PyTorch then neither scales nor reduces; move "
                           "it to the end of the row", 1, 5)])
        self.assertEqual(warnings("0F0\n1F0,1REDUCE_GRAD\n"),
                         [("1REDUCE_GRAD reduces nothing: stage 1 has no backward", 2, 5)])

    def test_pairs_that_run_together(self):
        # A forward and a backward of two microbatches; a stage has one workspace.
        self.one("0F0,1F0,1B0,(0F1;0B0)OVERLAP_F_B,1F1,1B1,0B1\n", "malformed", "(0F1;0B0)OVERLAP_F_B is of one stage "
                 "twice, and both would use its one workspace: a pair is of two stages", 1, 13)
        self.fine("0F0,1F0,(0F1;1B0)OVERLAP_F_B,0B0,1F1,1B1,0B1\n")
        for pair in ("(0F1;1B1)", "(0F0;0F1)", "(1B0;0F1)"):
            self.one(f"{pair}OVERLAP_F_B,0F0,1F0,1B0,0B0,1F1,0B1\n", "malformed",
                     f"{pair}OVERLAP_F_B is not a forward and then a backward of another microbatch", 1, 1)

    def test_of_very_many_warnings_some_are_told(self):
        warnings = self.fine("0F0\n" + "\n" * 300 + "1F0\n")["warnings"]
        self.assertEqual(len(warnings), 101)
        self.assertEqual((warnings[-1]["message"], warnings[-1]["line"], warnings[-1]["column"]),
                         ("and 200 more warnings, the first of them here", 102, 1))

    def test_reductions_of_another_rank(self):
        rows = naive(f_then_b(2, 2))
        column = len(",".join(rows[0])) + 2
        for cell, told in (("1REDUCE_GRAD", "1REDUCE_GRAD is on rank 0, but rank 1 computes stage 1"),
                           ("5REDUCE_GRAD", "5REDUCE_GRAD is of stage 5, which nothing computes"),
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

memory: none to show, no buffer has a size
""")

    def test_of_one_rank(self):
        out = self.ok("check", "-", "--explain", stdin="0F0,0B0\n")
        self.assertIn("\nchannels: none, no rank sends to another\n", out)
        self.assertNotIn("communicator", out)
        self.assertTrue(out.endswith("\nmemory: none to show, no buffer has a size\n"))

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

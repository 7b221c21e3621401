"""`check` of schedule CSVs that deadlock: witnesses, fixes, buffering."""

import re
import resource
from random import Random

import sluice
from schedule_csv import CheckCsv, f_then_b, naive, one_f_one_b, parse, text
from sluice import SANITIZED, chain, run


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

    ANOTHER = "; another deadlock then comes up"

    def mend(self, rows, error, grouped):
        """Applies the fix of `error` to the cells: a receive before a send, or
        both in one cell."""
        message = error["message"].removesuffix(self.ANOTHER)
        posted = re.search(r": post (.+) before (\S+?)(?:, or .*)?$", message)
        added = re.search(r": add (\S+) to the group of (\S+)$", message)
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
        for schedule, ranks, microbatches in (("1f1b", 4, 8), ("1f1b", 3, 5), ("zb-h1", 3, 4), ("zb-h1", 4, 6)):
            spec = chain(layers=ranks, ranks=ranks, microbatches=microbatches, schedule=schedule)
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

    def test_all_at_once(self):
        # A message goes elsewhere in its row; then all fixes are made together.
        ends = {True: 0, False: 0}
        for schedule, ranks, chunks in (("1f1b", 4, 1), ("interleaved-1f1b", 2, 2), ("zb-v", 2, 2)):
            spec = chain(layers=ranks * chunks, ranks=ranks, microbatches=6, schedule=schedule,
                         pipeline=f", virtual_stages: {chunks}")
            good = [line.split(",") for line in
                    self.ok("compile", "-", "--emit=torch-csv-comms", stdin=spec).splitlines()]
            for seed in range(40):
                random = Random(seed)
                rows = [[cell for cell in row if "WAIT" not in cell] for row in good]
                row = random.choice(rows)
                at = random.choice([at for at, cell in enumerate(row) if re.search("SEND|RECV", cell)])
                row.insert(max(0, at + random.randint(-8, 8)), row.pop(at))
                errors = self.check(text(rows))["errors"]
                if not errors or not all(re.search(": (post|add) ", error["message"]) for error in errors):
                    continue
                isLast = not any(self.ANOTHER in error["message"] for error in errors)
                for grouped in {False, "in one group" in errors[0]["message"]}:
                    mended = [list(row) for row in rows]
                    for error in errors:
                        self.mend(mended, error, grouped)
                    answer = self.check(text(mended))
                    self.assertEqual(answer["ok"], isLast, f"{text(rows)}\n{text(mended)}\n{errors}")
                    self.assertLessEqual({error["kind"] for error in answer["errors"]}, {"deadlock"})
                ends[isLast] += 1
        self.assertGreater(ends[True], 5, ends)

    def test_a_fix_after_which_another_deadlock_comes_up(self):
        csv = ("0F0,0SEND_F0,0F1,0SEND_F1,3RECV_F0,3F0,3B0,3RECV_F1,3SEND_B0,3F1,3B1,3SEND_B1,0RECV_B0,0B0,0RECV_B1,0B1\n"
               "1RECV_F0,1F0,1RECV_F1,2F0,2RECV_B0,2SEND_F0,1F1,2F1,2SEND_F1,2B0,1B0,2RECV_B1,1SEND_B0,2B1,1B1,1SEND_B1\n")
        error, = self.check(csv)["errors"]
        self.assertTrue(error["message"].endswith(self.ANOTHER), error["message"])
        for grouped in (False, True):
            rows = [row.split(",") for row in csv.splitlines()]
            self.mend(rows, error, grouped)
            error2, = self.check(text(rows))["errors"]
            self.assertEqual(error2["kind"], "deadlock")
            self.assertNotIn(self.ANOTHER, error2["message"])

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
            "(sluice compile SPEC --emit=torch-csv-comms writes it, of a spec with pipeline: {schedule: {csv: FILE}})\n"
            "refused: 16 operations on 2 ranks, progress rank, least buffering 1; under edge it does not deadlock\n"))


class Needs(CheckCsv):
    """What a cell needs holds it back also where it stands behind it."""

    NOTHING = {"rank": False, "pair": False, "edge": False}

    def test_a_group_that_needs_its_own_receive(self):
        # 1SEND_F0 carries what 1F0 computes of 1RECV_F0.
        csv = "0F0,0SEND_F0\n(1RECV_F0;1SEND_F0)BATCH_P2P,1F0\n2RECV_F0,2F0\n"
        answer = self.check(csv)
        self.assertEqual((answer["holds"], answer["min_buffering"]), (self.NOTHING, None))
        order, deadlock = answer["errors"]
        self.assertEqual((order["kind"], order["message"], order["line"], order["column"]),
                         ("order", "1SEND_F0 stands before 1F0, which it needs", 2, 11))
        self.assertEqual((deadlock["kind"], deadlock["message"]),
                         ("deadlock", "1SEND_F0 needs 1F0, which waits for 1RECV_F0 of the group of 1SEND_F0, which "
                          "ends only as a whole (progress: rank): take 1SEND_F0 out of its group, behind 1F0"))
        self.assertEqual([step["op"] for step in deadlock["cycle"]], ["1SEND_F0", "1F0", "1RECV_F0"])
        self.assertEqual([note["message"] for note in deadlock["notes"][:3]],
                         ["rank 1 starts 1SEND_F0 only after 1F0, which it needs",
                          "rank 1 starts 1F0 only after the end of 1RECV_F0",
                          "rank 1 ends 1RECV_F0 together with 1SEND_F0, which is in the same group"])
        for progress in ("pair", "edge"):
            self.assertEqual([error["kind"] for error in self.check(csv, f"--progress={progress}")["errors"]],
                             ["order", "deadlock"])
        self.fine("0F0,0SEND_F0\n(1RECV_F0)BATCH_P2P,1F0,1SEND_F0\n2RECV_F0,2F0\n")

    def test_such_a_group_behind_what_it_feeds(self):
        answer = self.check("0F0,0SEND_F0\n1F0,(1RECV_F0;1SEND_F0)BATCH_P2P\n2RECV_F0,2F0\n")
        self.assertEqual((answer["holds"], answer["min_buffering"]), (self.NOTHING, None))
        self.assertEqual([(error["kind"], error["message"]) for error in answer["errors"]], [
            ("order", "1F0 stands before 1RECV_F0, which it needs"),
            ("deadlock", "1F0 needs 1RECV_F0, which waits for 1SEND_F0, which waits for 1F0 (progress: rank): post "
             "1RECV_F0 before 1F0")])

    def test_a_receive_behind_a_send_of_what_needs_it(self):
        # In one queue 1RECV_F0 waits for 1SEND_F0, which waits for 1F0.
        csv = "0F0,0SEND_F0\n1F0,1SEND_F0,1RECV_F0\n2RECV_F0,2F0\n"
        answer = self.check(csv)
        self.assertEqual((answer["holds"], answer["min_buffering"]), ({"rank": False, "pair": True, "edge": True}, None))
        self.assertEqual([(error["kind"], error["message"]) for error in answer["errors"]], [
            ("order", "1F0 stands before 1RECV_F0, which it needs"),
            ("deadlock", "1F0 needs 1RECV_F0, which waits for 1SEND_F0, which waits for 1F0 (progress: rank): post "
             "1RECV_F0 before 1F0")])
        self.assertEqual([error["kind"] for error in self.check(csv, "--progress=edge")["errors"]], ["order"])

    def test_a_computation_behind_what_needs_it(self):
        # They are on one stream: the finding of the order says it all.
        for csv in ("0F0,0B1,0F1,0B0\n1F0,1B0,1F1,1B1\n", "0F0,0W0,0I0\n"):
            answer = self.check(csv)
            self.assertEqual((answer["holds"], answer["min_buffering"]), (self.NOTHING, None))
            self.assertEqual([error["kind"] for error in answer["errors"]], ["order"])


class Stories(CheckCsv):
    def test_a_run_of_a_queue_is_one_step(self):
        # Rank 1 sends its first gradient before it takes the second of six
        # activations, which rank 0 sends before it takes that gradient.
        rows = naive([[("F", 0, k) for k in range(6)] + [("B", 0, k) for k in range(6)],
                      [(kind, 1, k) for k in range(6) for kind in "FB"]])
        error = self.check(text(rows))["errors"][0]
        self.assertEqual([step["op"] for step in error["cycle"]],
                         ["0SEND_F1", "1RECV_F1", "1SEND_B0", "0RECV_B0"] + [f"0SEND_F{k}" for k in (5, 4, 3, 2)])
        self.assertEqual([note["message"] for note in error["notes"][:4]],
                         ["rank 0 at 0SEND_F1 waits for rank 1 to reach 1RECV_F1",
                          "rank 1 reaches 1RECV_F1 only after 1SEND_B0",
                          "rank 1 at 1SEND_B0 waits for rank 0 to reach 0RECV_B0",
                          "rank 0 reaches 0RECV_B0 only after 5 operations in order, 0SEND_F1 to 0SEND_F5"])

    def test_a_run_of_computations_is_one_step(self):
        errors = self.check("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n")["errors"]
        self.assertEqual([step["op"] for step in errors[0]["cycle"]], ["0B0", "1B0", "1F0", "1B1", "1F1", "0F1"])


    def test_every_story(self):
        # 1F1B of four ranks has 5 + 6 + 7 crossings, each told in four steps.
        csv = text(naive(one_f_one_b(4, 8)))
        for arguments, stories in (([], 3), (["-v"], 18)):
            told = run("check", "-", *arguments, stdin=csv).stdout
            self.assertEqual(told.count(": error: deadlock: "), 18)
            self.assertEqual(told.count("waits for rank"), 2 * stories)
            self.assertEqual(told.count(": note: in one group: "), stories)


class ManyFixes(CheckCsv):
    def test_naive_interleaved(self):
        for ranks, microbatches in ((2, 4), (3, 6), (4, 8)):
            with self.subTest(ranks=ranks):
                spec = chain(layers=2 * ranks, ranks=ranks, microbatches=microbatches, schedule="interleaved-1f1b",
                             pipeline=", virtual_stages: 2")
                self.check_cures(text(naive(parse(self.ok("compile", "-", "--emit=torch-csv", stdin=spec)))))

    def check_cures(self, csv):
        # What is named here cannot be a change of a few cells.
        answer = self.check(csv)
        least = answer["min_buffering"]
        first = answer["errors"][0]
        whole = [f"found no few changes of order that mend the deadlocks; under buffered:{least} there are none",
                 "leave the messages of the file out: they are then added in an order that holds (sluice "
                 "compile SPEC --emit=torch-csv-comms writes it, of a spec with pipeline: {schedule: {csv: FILE}})"]
        self.assertEqual([note["message"] for note in first["notes"][-2:]], whole)
        # For people it is what they read last.
        self.assertEqual(run("check", "-", stdin=csv).stdout.splitlines()[-3:-1], [f"note: {note}" for note in whole])
        for error in answer["errors"]:
            self.assertNotIn("post ", error["message"])
        # Both named cures are ones, and the buffering is the least.
        self.assertTrue(self.check(csv, f"--p2p=buffered:{least}")["ok"])
        self.assertFalse(self.check(csv, f"--p2p=buffered:{least - 1}")["ok"])
        self.fine(text([[cell for cell in row if "_" not in cell] for row in map(lambda r: r.split(","),
                                                                                 csv.splitlines())]))


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
        # So it is not said that nothing was found.
        last, = error["notes"][6:]
        self.assertIn("or leave the messages of the file out, and its WAIT_SENDs: ", last["message"])
        for note, row, cell in ((error["notes"][1], 1, "1WAIT_SEND_B0"), (error["notes"][3], 0, "0WAIT_SEND_F1")):
            self.assertEqual((note["line"], note["column"]), (row + 1, csv.splitlines()[row].index(cell) + 1))
        self.assertTrue(self.check(csv.replace("1WAIT_SEND_B0,1RECV_F1", "1RECV_F1,1WAIT_SEND_B0"),
                                   "--progress=edge")["ok"])

    def test_many_mismatches_and_deadlocks(self):
        # What is left by each of many ways to mend was judged in full: that
        # took ten times as long. Rows of 2,000 cells, with four pairs of messages turned.
        count = 500
        one = [f"0{kind}{k}" for k in range(count) for kind in ("F", "SEND_F")]
        one += [f"0{kind}{k}" for k in range(count) for kind in ("RECV_B", "B")]
        other = [f"1{kind}{k}" for k in range(count) for kind in ("RECV_F", "F", "B", "SEND_B")]
        for k in 100, 200, 300, 400:
            at, after = one.index(f"0SEND_F{k}"), one.index(f"0SEND_F{k + 1}")
            one[at], one[after] = one[after], one[at]
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        done = run("check", "-", stdin=",".join(one) + "\n" + ",".join(other) + "\n")
        taken = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        self.assertLess(taken, 6 * (5 if SANITIZED else 1))
        self.assertIn("error: mismatch: ", done.stdout)

    def test_very_many_waits(self):
        # What the story of a deadlock costs must not grow with the row and its
        # waits both: that took minutes. Of a short file the shortest cycle was
        # looked for again with each change that was tried.
        for microbatches, limit in ((20000, 40), (1250, 6)):
            rows = naive([f_then_b(2, microbatches)[0], one_f_one_b(2, microbatches)[1]])
            csv = text([[cell for each in row for cell in
                         ([each, each.replace("SEND", "WAIT_SEND")] if "SEND" in each else [each])] for row in rows])
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            done = run("check", "-", stdin=csv)
            taken = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
            self.assertLess(taken, limit * (5 if SANITIZED else 1))
            self.assertIn(", and its WAIT_SENDs: they are then added", done.stdout)

    def test_a_wait_for_nothing(self):
        csv = "0F0,0WAIT_SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"
        self.assertEqual(self.errors(csv), [("malformed", "0WAIT_SEND_F0 waits for 0SEND_F0, which stands behind it",
                                             1, 5)])


sluice.main()

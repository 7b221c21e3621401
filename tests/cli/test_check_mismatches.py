"""`check` of schedule CSVs whose messages do not match, and what it advises."""

import re
from collections import Counter
from random import Random

import sluice
from schedule_csv import CheckCsv, f_then_b, naive, one_f_one_b, text
from sluice import chain


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
        # As a whole this 1F1B deadlocks: each rank sends before it receives.
        self.assertEqual(note, {"message": "add 1RECV_F2 before 1F2 (row 2); a deadlock then comes up, which another "
                                           "change of order mends", "line": 2,
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
        self.assertEqual(error["notes"], [{"message": "0SEND_F1 is here", "line": 1, "column": 5},
                                          {"message": "move 0SEND_F1 behind 0SEND_F0 (row 1)", "line": 1,
                                           "column": 5}])

    def apply(self, rows, error):
        """Does what the last note of `error` says."""
        words = error["notes"][-1]["message"].split()
        name, place, other, row = words[1], words[2], words[3], rows[int(words[5].rstrip(")")) - 1]
        self.assertIn(words[0], ("add", "move", "swap"))
        if words[0] == "swap":
            one, two = row.index(name), row.index(other)
            row[one], row[two] = other, name
            return
        if words[0] == "move":
            row.remove(name)
        row.insert(row.index(other) + (place == "behind"), name)

    def test_a_message_that_is_to_be_added_mends_the_file(self):
        for seed in range(12):
            random = Random(seed)
            rows = naive(f_then_b(3, 3) if seed % 2 else one_f_one_b(3, 1))
            row = random.choice(rows)
            row.remove(random.choice([cell for cell in row if "_" in cell]))
            answer = self.check(text(rows))
            self.assertEqual([error["kind"] for error in answer["errors"]], ["mismatch"], text(rows))
            self.apply(rows, answer["errors"][0])
            self.fine(text(rows))

    def test_a_message_that_is_to_be_moved_mends_the_file(self):
        for seed in range(12):
            random = Random(seed)
            rows = naive(f_then_b(3, 4))
            row = random.choice(rows)
            kind = random.choice([kind for kind in ("SEND_F", "SEND_B", "RECV_F", "RECV_B")
                                  if any(kind in cell for cell in row)])
            one, other = sorted(random.sample([at for at, cell in enumerate(row) if kind in cell], 2))
            row[one], row[other] = row[other], row[one]
            error = next(error for error in self.check(text(rows))["errors"] if error["kind"] == "mismatch")
            self.apply(rows, error)
            self.fine(text(rows))

    def advised(self, rows, errors):
        """The rows after all changes that mismatches name, as they are told, and
        what is said to come up then."""
        rows, comes = [list(row) for row in rows], set()
        mismatches = [error for error in errors if error["kind"] == "mismatch"]
        for error in sorted(mismatches, key=lambda error: (error["line"], error["column"])):
            for note in error["notes"]:
                words, _, then = note["message"].partition("; ")
                if not words.endswith(" is here"):
                    self.change(rows, words.removeprefix("then "))
                    comes |= {then} - {""}
        return rows, comes

    def change(self, rows, words):
        """Does what one note says, to the letter."""
        words, row = re.fullmatch(r"(.*) \(row (\d+)\)", words).groups()
        cells = rows[int(row) - 1]
        of = lambda name: next(cell for cell in cells if name in re.split("[();]", cell))
        swap = re.fullmatch(r"swap (\S+) and (\S+)", words)
        if swap:
            one, two = swap.groups()
            cells[:] = [re.sub(rf"\b({one}|{two})\b", lambda m: two if m[0] == one else one, cell) for cell in cells]
            return
        shift = re.fullmatch(r"in its group put (\S+) (before|behind) (\S+)", words)
        if shift:
            name, way, other = shift.groups()
            members = re.split("[();]", of(name))[1:-1]
            members.remove(name)
            members.insert(members.index(other) + (way == "behind"), name)
            cells[cells.index(of(name))] = f"({';'.join(members)})BATCH_P2P"
            return
        verb, name, way, whole, other = re.fullmatch(
            r"(add|move|take) (\S+)(?: out of its group,)? (before|behind) (?:the group|(the group of )?(\S+))",
            words).groups()
        place = of(other or name)
        self.assertEqual("(" in place, bool(whole) or not other)
        self.assertEqual(verb == "take", verb != "add" and "(" in of(name))
        at = cells.index(place) + (way == "behind")
        if verb == "add":
            cells.insert(at, name)
            return
        old = of(name)
        members = [cell for cell in re.split("[();]", old)[1:-1] if cell != name] if verb == "take" else []
        cells[cells.index(old)] = f"({';'.join(members)})BATCH_P2P" if members else None
        cells.insert(at, name)
        cells[:] = [cell for cell in cells if cell]

    def keeps_its_word(self, rows):
        """What mismatches name, applied together, is all right, or what comes up
        then was said; what was said, none if nothing was advised."""
        errors = self.check(text(rows))["errors"]
        mended, comes = self.advised(rows, errors)
        if mended == rows:
            return None
        answer = self.check(text(mended))
        others = [[error for error in each if error["kind"] not in ("mismatch", "deadlock")]
                  for each in (errors, answer["errors"])]
        kinds = {error["kind"] for error in answer["errors"]}
        shown = f"{text(rows)}\n{text(mended)}\n{comes}\n{answer['errors']}"
        self.assertLessEqual(len(comes), 1, shown)
        for said in comes:
            if said.startswith("other messages"):
                self.assertIn("mismatch", kinds, shown)
                return said
        self.assertNotIn("mismatch", kinds, shown)
        if "other faults then come up" in comes:
            self.assertGreater(len(others[1]), len(others[0]), shown)
            return "".join(comes)
        self.assertEqual("deadlock" in kinds, any(said.startswith("a deadlock then comes up") for said in comes), shown)
        self.assertLessEqual(len(others[1]), len(others[0]), shown)
        for said in comes:
            for model in re.findall("under (rank|pair|edge|stream)", said):
                self.assertNotIn("deadlock", [error[0] for error in self.errors(text(mended), f"--progress={model}")])
            for buffered in re.findall("buffered:\\d+", said):
                self.assertNotIn("deadlock", [error[0] for error in self.errors(text(mended), f"--p2p={buffered}")])
            if "change of order" in said:
                for error in (error for error in answer["errors"] if error["kind"] == "deadlock"):
                    self.assertRegex(error["message"], ": (post|add|move|take|send|put) ")
        return "".join(comes)

    def test_whatever_is_advised_keeps_its_word(self):
        seen = Counter()
        for schedule, chunks in (("interleaved-1f1b", 2), ("zb-v", 2), ("gpipe", 1)):
            spec = chain(layers=4, ranks=2, microbatches=4, schedule=schedule, pipeline=f", virtual_stages: {chunks}")
            good = [line.split(",") for line in
                    self.ok("compile", "-", "--emit=torch-csv-comms", stdin=spec).splitlines()]
            for seed in range(60):
                random, rows = Random(seed), good
                for _ in range(1 + seed % 2):
                    rows = self.changed(rows, random)
                seen[self.keeps_its_word(rows)] += 1
        self.assertGreater(seen[""], 60, seen)

    def test_a_change_whose_deadlock_can_be_mended(self):
        # 1SEND_F1 behind 3SEND_B0 would make a deadlock under every model.
        rows = [row.split(",") for row in (
            "0F0,0SEND_F0,0F1,0SEND_F1,2RECV_F0,2F0,2RECV_B0,2SEND_F0,2RECV_F1,2F1,2SEND_F1,2B0,2SEND_B0,2RECV_B1,2B1,"
            "2SEND_B1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,2REDUCE_GRAD",
            "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,3RECV_F0,3F0,3RECV_F1,3F1,3B0,3SEND_B0,3B1,3SEND_B1,1RECV_B0,"
            "1B0,1SEND_B0,1RECV_B1,1B1,1SEND_B1,1REDUCE_GRAD,3REDUCE_GRAD")]
        self.assertEqual(self.keeps_its_word(rows),
                         "a deadlock then comes up, which another change of order mends")

    def test_two_mismatches_are_mended_together(self):
        # Either batch alone in another order leaves the other end as it is.
        rows = [row.split(",") for row in (
            "0F0,0SEND_F0,2RECV_F0,2F0,2SEND_F0,2RECV_B0,2B0,2SEND_B0,0F1,0SEND_F1,2RECV_F1,2F1,2SEND_F1,2RECV_B1,2B1,"
            "0F2,0SEND_F2,0F3,(2SEND_B1;2RECV_F2;0SEND_F3;0RECV_B0)BATCH_P2P,0B0,0RECV_B1,0B1,2F2,2SEND_F2,2RECV_B2,"
            "2B2,2SEND_B2,0RECV_B2,0B2,2RECV_F3,2F3,2SEND_F3,2RECV_B3,2B3,2SEND_B3,0RECV_B3,0B3",
            "1RECV_F0,1F0,1SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,1RECV_B0,1B0,1RECV_F1,1F1,1SEND_F1,3RECV_F1,3F1,3B1,"
            "3SEND_B1,1RECV_F2,1F2,(1SEND_B0;1RECV_F3;1SEND_F2;1RECV_B1)BATCH_P2P,1B1,1SEND_B1,3RECV_F2,3F2,3B2,"
            "3SEND_B2,1RECV_B2,1B2,1SEND_B2,1F3,1SEND_F3,3RECV_F3,3F3,3B3,3SEND_B3,1RECV_B3,1B3,1SEND_B3")]
        self.assertEqual(len(self.check(text(rows))["errors"]), 2)
        self.assertEqual(self.keeps_its_word(rows), "")

    def test_a_missing_message_beside_one_in_another_order(self):
        rows = naive(f_then_b(2, 4))
        rows[0].remove("0SEND_F1")
        one, other = rows[0].index("0SEND_F2"), rows[0].index("0SEND_F3")
        rows[0][one], rows[0][other] = rows[0][other], rows[0][one]
        answer = self.check(text(rows))
        notes = [note for error in answer["errors"] for note in error["notes"] if "add " in note["message"]]
        self.assertEqual([(note["message"], note["line"], note["column"]) for note in notes],
                         [("add 0SEND_F1 behind 0F1 (row 1)", 1, len(",".join(rows[0][:rows[0].index("0F1")])) + 2)])
        self.assertEqual(self.keeps_its_word(rows), "")

    def changed(self, good, random):
        """A message dropped, moved or changed with another of its kind, perhaps
        some cells in one batch, or a reduction twice."""
        rows = [list(row) for row in good]
        row = random.choice(rows)
        messages = [cell for cell in row if "SEND_" in cell or "RECV_" in cell]
        cell = random.choice([cell for cell in messages if "WAIT" not in cell])
        at = row.index(cell)
        kind = random.randrange(3)
        if kind < 2:
            del row[at]
            row[:] = [other for other in row if "WAIT_" + cell[1:] not in other]
        if kind == 1:
            row.insert(random.randrange(len(row) + 1), cell)
        if kind == 2:
            to = row.index(random.choice([other for other in messages if other[1:7] == cell[1:7]]))
            row[at], row[to] = row[to], row[at]
        if random.randrange(3) == 0:
            row.append(next(cell for cell in row if "REDUCE_GRAD" in cell and "WAIT" not in cell))
        if random.randrange(3) == 0:
            at = random.randrange(len(row) - 1)
            if all(re.fullmatch(r"\d+(SEND|RECV)_[FB]\d+", cell) for cell in row[at:at + 2]):
                row[at:at + 2] = [f"({';'.join(row[at:at + 2])})BATCH_P2P"]
        return rows

    def test_the_one_that_is_nowhere_is_blamed(self):
        csv = ("0F0,0SEND_F0,0F1,0SEND_F1,0F2,0SEND_F2,0F3,0SEND_F3\n"
               "1RECV_F2,1F2,1RECV_F3,1F3,1F0,1F1\n")
        error = next(error for error in self.check(csv)["errors"] if error["kind"] == "mismatch")
        self.assertEqual(error["message"],
                         "from rank 0 to rank 1 there are 4 sends and 2 receives: 0SEND_F0 meets no 1RECV_F0")

    def test_a_message_of_a_stage_that_nothing_computes(self):
        self.one("0F0,0SEND_F0,4RECV_F0,2F0,2SEND_F0\n1RECV_F0,1F0,1SEND_F0,3RECV_F0,3F0\n", "malformed",
                 "4RECV_F0 is of stage 4, which nothing computes", 1, 14)

    def test_more_peers_than_streams(self):
        def star(peers):  # rank 0 has the even stages, each other rank an odd one
            hub = [f"{2 * k}RECV_F0,{2 * k}F0,{2 * k}SEND_F0" for k in range(1, peers)]
            rest = [f"{2 * k + 1}RECV_F0,{2 * k + 1}F0" + (f",{2 * k + 1}SEND_F0" if k + 1 < peers else "")
                    for k in range(peers)]
            return "\n".join(["0F0,0SEND_F0," + ",".join(hub)] + rest) + "\n"

        self.fine(star(127), "--progress=edge")
        self.one(star(140), "malformed", "rank 0 has paths to and from other ranks over the limit of 254", 1, 1)

    def test_numbers_that_are_no_numbers(self):
        for cell in ("00F1", "0F01", "0F2147483648", "99999999999F0"):
            (_, message, *_), = self.errors(f"0F0,{cell}\n")
            self.assertEqual(message, f"'{cell}' is not an operation; numbers have no leading zeros and are at most "
                             "2147483647")
        for cell, other in (("0WAIT_SEND_F01", "numbers have no"), ("00REDUCE_GRAD", "numbers have no"),
                            ("0wait_send_f0", "letters are capital")):
            (_, message, *_), = self.errors(f"0F0,{cell}\n")
            self.assertIn(other, message)

    def test_a_missing_send_and_receive(self):
        rows = naive(f_then_b(2, 4))
        rows[0].remove("0SEND_F2")
        rows[1].remove("1RECV_F2")
        column = len(",".join(rows[1][:rows[1].index("1F2")])) + 2
        self.assertEqual(self.errors(text(rows)),
                         [("missing", "1F2 needs 1RECV_F2, which is missing, as is its send", 2, column)])


sluice.main()

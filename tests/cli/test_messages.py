"""What a refused command line and a refused input are told, to the letter.

tests/golden/cli/*.txt, one case a file, run in a folder with the spec job.yaml:
  === arguments          of sluice, on one line
  === input              standard input; `=== input escaped`: with \\xHH for bytes
  === exit               the code
  === messages           all of standard error
SLUICE_UPDATE_GOLDEN=1 in the environment rewrites the last two."""

import os
import re
import shlex
import subprocess

import sluice
from sluice import ROOT, ToolTest, chain

GOLDEN = ROOT / "tests/golden/cli"
UPDATE = os.environ.get("SLUICE_UPDATE_GOLDEN") == "1"


def sections(text):
    """The parts of a golden file by their headings."""
    parts = re.split(r"^=== (.*)\n", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def unescaped(text):
    return re.sub(rb"\\x([0-9a-f]{2})", lambda match: bytes.fromhex(match[1].decode()), text.encode())


class Messages(ToolTest):
    def told(self, case):
        """Exit code and standard error of a case."""
        given = case.get("input", "").encode()
        if "input escaped" in case:
            given = unescaped(case["input escaped"].removesuffix("\n"))
        done = subprocess.run([sluice.SLUICE, *shlex.split(case["arguments"])], input=given, capture_output=True,
                              timeout=60, cwd=self.folder)
        return f"{done.returncode}\n", done.stderr.decode()

    def test_golden(self):
        spec = self.write("job.yaml", chain())
        (self.folder / "folder").mkdir()
        cases = sorted(GOLDEN.glob("*.txt"))
        self.assertGreaterEqual(len(cases), 25)
        for path in cases:
            text = path.read_text()
            case = sections(text)
            code, messages = self.told(case)
            if UPDATE:
                head = text[:text.index("=== exit\n")] if "=== exit\n" in text else text
                path.write_text(f"{head}=== exit\n{code}=== messages\n{messages}")
                continue
            with self.subTest(path.name):
                self.assertEqual((code, messages), (case["exit"], case["messages"]))
            self.assertEqual(spec.read_text(), chain(), path.name)


sluice.main()

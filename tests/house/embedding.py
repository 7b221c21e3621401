#!/usr/bin/env python3
"""embedding.py PROGRAM ARCHIVE…: neither the program that embeds the runtime nor
the libraries it is made of hold a symbol of LLVM or yaml-cpp, or need a library
of theirs; and the program runs a plan. NM, OBJDUMP, SLUICE and CONTROL, a
library that uses both, come from CMake."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

FOREIGN_SYMBOL = re.compile(r"\b(llvm|YAML)::|\bLLVM[A-Z]\w+$", re.M)
FOREIGN_LIBRARY = re.compile(r"NEEDED\s+(\S*(?:LLVM|yaml)\S*)", re.I)


def output(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout


def foreign_symbols(path):
    return [line for line in output(os.environ["NM"], "-C", path).split("\n") if FOREIGN_SYMBOL.search(line)]


def main():
    program, archives = sys.argv[1], sys.argv[2:]
    faults = []
    control = "\n".join(foreign_symbols(os.environ["CONTROL"]))
    if "llvm::" not in control or "YAML::" not in control:
        faults.append(f"{os.environ['CONTROL']} shows no symbols of LLVM and yaml-cpp: the test sees nothing")
    for path in (program, *archives):
        found = foreign_symbols(path)
        if found:
            faults.append(f"{path} has {len(found)} symbols of LLVM or yaml-cpp, such as {found[0].strip()}")
    for library in FOREIGN_LIBRARY.findall(output(os.environ["OBJDUMP"], "-p", program)):
        faults.append(f"{program} needs {library}")

    with tempfile.TemporaryDirectory(prefix="sluice-test-") as folder:
        plan = pathlib.Path(folder) / "job.plan"
        example = pathlib.Path(__file__).resolve().parents[2] / "examples" / "1f1b-p4-m8.yaml"
        output(os.environ["SLUICE"], "compile", example, "-o", plan)
        done = subprocess.run([program, plan], capture_output=True, text=True)
        if done.returncode != 0 or done.stdout != "1 steps\n":
            faults.append(f"{program} ended with {done.returncode}: {done.stdout}{done.stderr}")
    print("\n".join(faults) or f"{len(archives)} libraries are free of LLVM and yaml-cpp")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

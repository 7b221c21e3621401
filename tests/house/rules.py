#!/usr/bin/env python3
"""Holds the rules of the house: which folder may include what, which names a
folder has, that comments cite nothing outside the repository, that the
reference of the spec names every key, and that nothing is there that does not
belong. Prints every breach; fails if there is one, or if a case that must be
refused is not."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Folder prefix -> what its files may include, as prefixes. The longest prefix
# that matches a file counts.
MAY_INCLUDE = {
    "ir/": {"ir/"},
    "ir/text/": {"ir/", "llvm/"},
    "compiler/": {"ir/", "compiler/", "llvm/"},
    "compiler/spec/": {"ir/", "compiler/", "llvm/", "yaml-cpp/"},
    "runtime/": {"ir/", "runtime/"},
    "runtime/mpi/": {"ir/", "runtime/", "mpi.h"},
    "runtime/cuda/": {"ir/", "runtime/", "cuda", "nccl", "cublas"},
    "tools/": {"ir/", "compiler/", "runtime/", "tools/", "llvm/", "benchmark/"},
    "tests/": {"ir/", "compiler/", "runtime/", "tools/", "tests/", "llvm/", "catch2/"},
    "tests/cuda/": {"ir/", "compiler/", "runtime/", "tests/", "catch2/", "cuda_runtime_api.h", "cublasLt.h", "nccl.h"},
}
# Third-party headers of single parts, and where.
ALSO = {
    "flatbuffers/": ("ir/PlanFile", "ir/PlanSections"),
    "PlanFile_generated.h": ("ir/PlanFile", "ir/PlanSections"),
    "xxhash.h": ("ir/ContentHash", "tests/ir/PlanFile"),
    "cblas.h": ("runtime/modules/gpt/",),
}
# ir/text is the one part of ir that runtime may not use. What proves must not
# lean on what reads: it takes plans and schedules, not files and texts.
NOT_IN = {"runtime/": ("ir/text/",),
          "ir/verify/": ("ir/text/", "ir/PlanFile", "ir/PlanSections", "ir/AsideFile", "ir/Diagnostics")}
TOP_LEVEL = {"compiler", "runtime", "ir", "examples", "tests", "tools", "CMakeLists.txt",
             "README.md", "LICENSE", "CMakePresets.json"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.M)


def longest(table, path):
    found = [prefix for prefix in table if path.startswith(prefix)]
    return table[max(found, key=len)] if found else None


# Headers of C, POSIX, Linux and the compiler that any file may include in angle
# brackets, besides those of C++, which have neither a dot nor a slash.
SYSTEM = {
    "dlfcn.h", "fcntl.h", "malloc.h", "signal.h", "stddef.h", "stdint.h", "stdlib.h", "string.h", "sys/mman.h", "sys/prctl.h",
    "sys/resource.h", "sys/stat.h", "sys/time.h", "sys/types.h", "sys/wait.h", "time.h", "unistd.h",
}
# What comments may not cite: they must say the rule, or name a file that is here.
FOREIGN = re.compile(r"[(]design,|\bdesign, sections?\b|\bdesign[.]md|memory[.]md|\bseed[- _]cases?\b|reference page", re.I)

# What the rules must say of an include, whatever the tree holds.
CASES = [
    ("ir/Plan.h", "<vector>", True),
    ("ir/AsideFile.cpp", "<unistd.h>", True),
    ("ir/AsideFile.cpp", '"ir/AsideFile.h"', True),
    ("ir/Plan.h", '"runtime/Job.h"', False),
    ("ir/Plan.h", '"compiler/Compilation.h"', False),
    ("ir/Plan.h", '"llvm/ADT/StringRef.h"', False),
    ("ir/verify/Flow.h", '"ir/text/Text.h"', False),
    ("ir/verify/Flow.h", '"ir/PlanFile.h"', False),
    ("ir/verify/Flow.h", '"ir/Diagnostics.h"', False),
    ("ir/verify/Flow.h", '"ir/PlanStructure.h"', True),
    ("ir/verify/Flow.h", '"compiler/Compilation.h"', False),
    ("ir/text/Text.h", '"llvm/ADT/StringRef.h"', True),
    ("ir/Plan.h", "<flatbuffers/flatbuffers.h>", False),
    ("ir/ContentHash.cpp", "<xxhash.h>", True),
    ("ir/Plan.h", "<xxhash.h>", False),
    ("compiler/passes/Verify.cpp", '"llvm/ADT/STLExtras.h"', True),
    ("compiler/passes/Verify.cpp", '"runtime/Job.h"', False),
    ("compiler/passes/Verify.cpp", "<yaml-cpp/yaml.h>", False),
    ("compiler/passes/Verify.cpp", "<yaml.h>", False),
    ("compiler/spec/Yaml.cpp", "<yaml-cpp/parser.h>", True),
    ("runtime/Job.cpp", '"compiler/Compilation.h"', False),
    ("runtime/Job.cpp", '"ir/text/Text.h"', False),
    ("runtime/Job.cpp", '"llvm/ADT/StringRef.h"', False),
    ("runtime/Job.cpp", "<yaml-cpp/yaml.h>", False),
    ("runtime/Job.cpp", "<mpi.h>", False),
    ("runtime/mpi/MpiBackend.cpp", "<mpi.h>", True),
    ("runtime/mpi/MpiBackend.cpp", "<cuda.h>", False),
    ("runtime/host/HostBackend.cpp", "<cuda.h>", False),
    ("runtime/host/HostBackend.cpp", "<cuda_runtime.h>", False),
    ("runtime/host/HostBackend.cpp", "<nccl.h>", False),
    ("runtime/cuda/CudaBackend.cpp", "<cuda_runtime.h>", True),
    ("runtime/cuda/CudaBackend.cpp", "<nccl.h>", True),
    ("runtime/cuda/CudaBackend.cpp", '"llvm/ADT/StringRef.h"', False),
    ("runtime/Job.cpp", "<cblas.h>", False),
    ("runtime/modules/gpt/MatrixProduct.cpp", "<cblas.h>", True),
    ("tools/sluice/Run.cpp", "<yaml-cpp/yaml.h>", False),
    ("tools/sluice/Run.cpp", '"tests/Catch.h"', False),
    ("elsewhere/File.cpp", '"ir/Plan.h"', False),
]


def is_standard(name):
    return "/" not in name and "." not in name or name in SYSTEM


def breaches_in(path, text):
    """Includes of `text`, the contents of the file `path`, that are not allowed."""
    allowed = longest(MAY_INCLUDE, path) or set()
    for quoted, angled in INCLUDE.findall(text):
        name = quoted or angled
        if angled and is_standard(angled):
            continue
        if any(name.startswith(p) and path.startswith(tuple(where)) for p, where in ALSO.items()):
            continue
        forbidden = longest(NOT_IN, path) or ()
        if not any(name.startswith(prefix) for prefix in allowed) or name.startswith(tuple(forbidden)):
            yield f"{path} includes {name}"


def wrong_cases():
    for path, name, allowed in CASES:
        if allowed == bool(list(breaches_in(path, f"#include {name}\n"))):
            yield f"the rules {'refuse' if allowed else 'allow'} that {path} includes {name}"
    for title, broken in (
        ("//===- ir/A.h - B\n//----===//\n", True),
        ("//===- A.h - B ---===//\n//\n", True),
        ("//===- ir/A.h - B ----===//\n//\n", False),
        ("#include <vector>\n", False),
    ):
        if broken != bool(list(broken_title("ir/A.h", title))):
            yield f"the rules take a title wrong: {title}"


def foreign_in(path, text):
    for number, line in enumerate(text.split("\n"), 1):
        if FOREIGN.search(line):
            yield f"{path}:{number} cites what is not in the repository: {line.strip()}"


# The first line of a file that says what it is: its path, what it is, in one line.
TITLE = re.compile(r"\A//===- (\S+) [^\n]*-?===//\n(?!//[ -]*-===//)")


def broken_title(path, text):
    title = TITLE.match(text)
    if text.startswith("//===-") and (not title or title[1] != path):
        yield f"{path}: its first line is not its path and what it is: {text.splitlines()[0]}"


def undocumented_keys():
    """Keys of the spec's tables that the reference of the spec does not name."""
    documented = " ".join(re.findall(r"`([^`]+)`", (ROOT / "examples/README.md").read_text()))
    keys = set()
    for path in sorted((ROOT / "compiler/spec").glob("*.cpp")):
        keys |= set(re.findall(r'\{\.name = "(\w+)"', path.read_text()))
    if len(keys) < 50:
        yield f"only {len(keys)} keys found in compiler/spec: their tables look different now"
    for key in sorted(keys):
        if not re.search(rf"\b{key}\b", documented):
            yield f"examples/README.md does not name the key {key}"


def main():
    files = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                           capture_output=True, text=True, check=True).stdout.split("\n")
    files = [f for f in files if f and (ROOT / f).exists()]
    breaches = list(wrong_cases())
    sources = [f for f in files if re.search(r"\.(h|cpp|cu|cuh|def)$", f)]
    for path in sources:
        text = (ROOT / path).read_text(errors="replace")
        breaches.extend(breaches_in(path, text))
        breaches.extend(broken_title(path, text))
    for path in files:
        if re.search(r"\.(h|cpp|cu|cuh|def|fbs|py|cmake|md)$|/CMakeLists\.txt$", path) and path != "tests/house/rules.py":
            breaches.extend(foreign_in(path, (ROOT / path).read_text(errors="replace")))
    for path in files:
        top = path.split("/")[0]
        if not top.startswith(".") and top not in TOP_LEVEL:
            breaches.append(f"{path}: the top level holds only {', '.join(sorted(TOP_LEVEL))}")
        if re.search(r"_generated\.h$|\.(o|a|so|plan)$", path):
            breaches.append(f"{path}: generated files do not belong in git")
    for folder in ("compiler", "runtime", "ir", "examples", "tests", "tools"):
        if f"{folder}/README.md" not in files:
            breaches.append(f"{folder} has no README.md")
    breaches.extend(undocumented_keys())
    for breach in breaches:
        print(breach)
    print(f"{len(sources)} sources, {len(breaches)} breaches")
    if len(sources) < 50:
        print("too few sources: the rules were not tried on the tree")
        return 1
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())

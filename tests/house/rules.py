#!/usr/bin/env python3
"""Holds the rules of the house: which folder may include what, which names a
folder has, and that nothing is there that does not belong. Prints every
breach; fails if there is one."""

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
    "runtime/cuda/": {"ir/", "runtime/", "cuda", "nccl", "cublas"},
    "tools/": {"ir/", "compiler/", "runtime/", "tools/", "llvm/", "benchmark/"},
    "tests/": {"ir/", "compiler/", "runtime/", "tools/", "tests/", "llvm/", "catch2/"},
}
# Third-party headers of single parts, and where.
ALSO = {
    "flatbuffers/": ("ir/PlanFile", "ir/PlanSections"),
    "PlanFile_generated.h": ("ir/PlanFile", "ir/PlanSections"),
    "xxhash.h": ("ir/PlanFile", "ir/PlanSections", "tests/ir/PlanFile"),
    "cblas.h": ("runtime/modules/gpt/",),
}
# ir/text is the one part of ir that runtime may not use.
NOT_IN = {"runtime/": ("ir/text/",), "ir/verify/": ("ir/text/",)}
TOP_LEVEL = {"compiler", "runtime", "ir", "examples", "tests", "tools", "CMakeLists.txt",
             "README.md", "LICENSE", "CMakePresets.json"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.M)


def longest(table, path):
    found = [prefix for prefix in table if path.startswith(prefix)]
    return table[max(found, key=len)] if found else None


def is_standard(name):
    """C++ and C headers, and those of POSIX and Linux."""
    return "/" not in name and "." not in name or re.fullmatch(
        r"(sys/\w+|linux/\w+|sanitizer/\w+|[a-z0-9]+|dlfcn|execinfo|malloc|unistd|fcntl|pthread|sched|poll|signal)\.h",
        name) and name not in ("xxhash.h", "cblas.h", "nccl.h")


def breaches_of(path):
    text = (ROOT / path).read_text(errors="replace")
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


def main():
    files = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                           capture_output=True, text=True, check=True).stdout.split("\n")
    files = [f for f in files if f and (ROOT / f).exists()]
    breaches = []
    sources = [f for f in files if re.search(r"\.(h|cpp|cu|cuh|def)$", f)]
    for path in sources:
        breaches.extend(breaches_of(path))
    for path in files:
        top = path.split("/")[0]
        if not top.startswith(".") and top not in TOP_LEVEL:
            breaches.append(f"{path}: the top level holds only {', '.join(sorted(TOP_LEVEL))}")
        if re.search(r"_generated\.h$|\.(o|a|so|plan)$", path):
            breaches.append(f"{path}: generated files do not belong in git")
    for folder in ("compiler", "runtime", "ir", "examples", "tests", "tools"):
        if f"{folder}/README.md" not in files:
            breaches.append(f"{folder} has no README.md")
    for breach in breaches:
        print(breach)
    print(f"{len(sources)} sources, {len(breaches)} breaches")
    if len(sources) < 50:
        print("too few sources: the rules were not tried on the tree")
        return 1
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())

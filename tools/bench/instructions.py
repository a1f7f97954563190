"""Instructions of the pure parts of the statement path, against the figures kept in the tree.

Called as `instructions.py PURE_PARTS [--write]`: `make instructions`, and the gate. Each part runs
twice under callgrind, with few and with many repetitions; the difference divided by the difference
is what one run costs. Instruction counts don't depend on the machine's neighbours; they do on the
compiler, whose version stands beside the figures. The program is the one that `make test` builds,
unoptimised: its counts show work that was added, not what a release costs. More than the tolerance
above a figure fails.

    --write   keeps what was counted as the new figures
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FIGURES = pathlib.Path(__file__).resolve().parents[2] / "benches" / "instructions.txt"
TOLERANCE = 0.05
# A compiler of another version makes other code: only what nobody would call noise fails then.
TOLERANCE_OTHER_COMPILER = 0.25
FEW, MANY = 20, 120


def counted(program, part, times):
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out",
                   program, "run", part, str(times)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=300)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not found:
        sys.exit(f"instructions.py: {' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return int(found.group(1))


def measured(program):
    listed = subprocess.run([program, "parts"], capture_output=True, text=True, check=True)
    parts = listed.stdout.split()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        runs = {(part, times): pool.submit(counted, program, part, times)
                for part in parts for times in (FEW, MANY)}
    each = {}
    for part in parts:
        difference = runs[part, MANY].result() - runs[part, FEW].result()
        each[part] = round(difference / (MANY - FEW))
    return each


def compiler():
    return subprocess.run(["rustc", "--version"], capture_output=True, text=True,
                          check=True).stdout.strip()


def kept():
    if not FIGURES.exists():
        sys.exit(f"instructions.py: {FIGURES} is missing; write it with --write")
    lines = FIGURES.read_text().splitlines()
    made_by = next(line[2:] for line in lines if line.startswith("# rustc"))
    rows = (line.split() for line in lines if line and not line.startswith("#"))
    return made_by, {part: int(figure) for part, figure in rows}


def write(each):
    head = ["# Instructions of one run of each part (benches/pure_parts.rs), unoptimised, x86-64.",
            "# Written by `make instructions WRITE=1`; held by `make instructions`.",
            f"# {compiler()}"]
    FIGURES.write_text("\n".join(head + [f"{part} {each[part]}" for part in each]) + "\n")


def compare(each):
    made_by, before = kept()
    same = made_by == compiler()
    tolerance = TOLERANCE if same else TOLERANCE_OTHER_COMPILER
    print(f"{'part':18} {'kept':>8} {'now':>8}   (figures: {made_by}; {tolerance:.0%} more fails)")
    worse = []
    for part in sorted(set(each) | set(before)):
        if part not in each or part not in before:
            worse.append(part)
            print(f"{part:18} {before.get(part, '-'):>8} {each.get(part, '-'):>8}   NO FIGURE")
            continue
        bad = each[part] > before[part] * (1 + tolerance)
        worse += [part] if bad else []
        print(f"{part:18} {before[part]:>8} {each[part]:>8}   {'MORE THAN ALLOWED' if bad else 'ok'}")
    if worse:
        sys.exit(f"instructions.py: {', '.join(worse)}: see why, and make it cheaper; if the price "
                 "is right, `make instructions WRITE=1` keeps the new figures, and the commit "
                 "message says what they buy")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    each = measured(os.path.abspath(given.program))
    if given.write:
        write(each)
    compare(each)


main()

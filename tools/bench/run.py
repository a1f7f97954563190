"""`make bench`: what the proxy costs beside no proxy, a bare relay, HAProxy and PgBouncer, before
PostgreSQL, and before MariaDB (`sysbench`).

Called by tools/bench.sh as `run.py FENCEWIRE BARE_RELAY`. Runs are interleaved: one round goes
through every load, and for each load through every target, starting with another one each time;
figures are medians over rounds. There are no thresholds: people read the ratios.
"""

import argparse
import datetime
import itertools
import os
import pathlib
import resource
import shutil
import signal
import sys
import tempfile
import time

import fences
import growth
import load as loads
import machine
import report
import servers as servers_module
import sysbench

NAMES = ["direct", "fencewire", "bare relay", "HAProxy", "PgBouncer"]
PARTS = {"queries", "calls", "bulk", "idle", "sysbench"} | fences.PARTS
DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "PERFORMANCE.md"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("fencewire")
    parser.add_argument("bare")
    parser.add_argument("--quick", action="store_true", help="under three minutes, not for keeps")
    parser.add_argument("--no-document", action="store_true", help="print only")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of one pgbench run; whole numbers")
    parser.add_argument("--only", default="", help="parts: queries,calls,bulk,idle,sysbench")
    parser.add_argument("--targets", default=",".join(NAMES))
    given = parser.parse_args()
    given.fencewire, given.bare = map(os.path.abspath, (given.fencewire, given.bare))
    given.rounds = given.rounds or (1 if given.quick else 3)
    given.seconds = int(given.seconds or (1 if given.quick else 2))
    given.parts = set(filter(None, given.only.split(","))) or PARTS
    given.names = [name for name in NAMES if name in given.targets.split(",")]
    return given


def query_cells(quick):
    cells = []
    for one in (loads.SIMPLE, loads.EXTENDED, loads.PREPARED):
        for clients in (1, 8) if quick else (1, 8, 32):
            cells.append((one, clients))
    cells.append((loads.TPCB, 8))
    return cells


def interleaved(names, rounds, work):
    """{target: [result]}, one by one, each round starting with the next target."""
    got = {name: [] for name in names}
    for turn in range(rounds):
        for name in names[turn % len(names):] + names[:turn % len(names)]:
            got[name].append(work(name))
    return got


def measure_queries(load, given, names):
    cells = {}
    todo = query_cells(given.quick)
    for turn in range(given.rounds):
        say(f"queries, round {turn + 1} of {given.rounds}")
        for one, clients in todo:
            place = cells.setdefault((one[0], clients), {name: [] for name in names})
            for name in names[turn % len(names):] + names[:turn % len(names)]:
                place[name].append(load.queries(name, one, clients, given.seconds))
    return report.queries(cells, names)


def measure_calls(load, given, names):
    say("system calls")
    figures = {}
    for one, clients in [(loads.SIMPLE, 1), (loads.PREPARED, 1), (loads.PREPARED, 8)]:
        for name in names:
            if name != "direct":
                transactions = (500 if given.quick else 4000) // clients
                calls = load.system_calls(name, one, clients, transactions)
                figures.setdefault((one[0], clients), {})[name] = calls
    return report.system_calls(figures, names)


def measure_bulk(load, given, names):
    say("bulk")
    rows = loads.BULK_ROWS // (5 if given.quick else 1)
    return report.bulk(interleaved(names, given.rounds, lambda name: load.bulk(name, rows)), names)


def measure_idle(load, given, names):
    say("idle sessions")
    sessions = 200 if given.quick else 1000
    figures = {name: load.idle(name, sessions) for name in names if name != "direct"}
    return report.idle(figures, names)


def say(what):
    print(f"make bench: {what}", file=sys.stderr, flush=True)


def more_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 16384 if hard == resource.RLIM_INFINITY else min(16384, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


COUNT = itertools.count()


def folder():
    """A folder that tools/sweep.sh knows how to clear away."""
    start = machine.stat_fields(os.getpid())[19]
    path = os.path.join(tempfile.gettempdir(), f"fencewire-bench-{os.getpid()}-{start}-{next(COUNT)}")
    os.mkdir(path)
    os.chmod(path, 0o755)
    return path


def measured(given, all_servers):
    """The parts that PostgreSQL is measured by."""
    load = loads.Load(all_servers)
    load.fill(2 if given.quick else 10)
    names = [name for name in given.names if name in all_servers.targets]
    # Idle sessions first: a process that has served many others has memory to spare.
    texts = {}
    if "idle" in given.parts:
        texts["idle"] = measure_idle(load, given, names)
    if "queries" in given.parts:
        texts["cpu"], texts["rate"] = measure_queries(load, given, names)
    if "bulk" in given.parts:
        texts["bulk"] = measure_bulk(load, given, names)
    if "calls" in given.parts:
        texts["calls"] = measure_calls(load, given, names)
    return texts


def measured_mysql(given, all_servers):
    """sysbench before MariaDB."""
    load = sysbench.Load(all_servers)
    load.fill(given.quick)
    names = [name for name in given.names if name in all_servers.targets]
    cells = {}
    for turn in range(given.rounds):
        say(f"sysbench, round {turn + 1} of {given.rounds}")
        for one, clients in sysbench.cells(given.quick):
            place = cells.setdefault((one[0], clients), {name: [] for name in names})
            for name in names[turn % len(names):] + names[:turn % len(names)]:
                place[name].append(load.queries(name, one, clients, given.seconds))
    cpu, rate = report.queries(cells, names)
    return {"sysbench cpu": cpu, "sysbench rate": rate}


HEADINGS = {
    "cpu": "CPU microseconds per query of the relay's process (user + system, medians)",
    "rate": "Queries per second: direct, and the others as a share of it (medians)",
    "calls": "System calls of the relay's process per query",
    "bulk": "Bulk: COPY TO of half a gigabyte in rows of 100 bytes (medians)",
    "idle": "Resident memory per idle plaintext session, each after one query",
    "sysbench cpu": "sysbench before MariaDB: CPU microseconds per query of the relay's process",
    "sysbench rate": "sysbench before MariaDB: queries per second, and shares of it (medians)",
}


def played(given, kind, measure, names=None):
    """Servers of a kind in a folder of their own, measured, and gone."""
    place = folder()
    all_servers = kind(place, given.fencewire, given.bare)
    try:
        all_servers.start(names or given.names)
        return measure(given, all_servers)
    finally:
        all_servers.stop()
        shutil.rmtree(place, ignore_errors=True)


def main():
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    more_files()
    begun = time.monotonic()
    texts = {}
    if given.parts - {"sysbench"} - fences.PARTS - growth.PARTS:
        texts.update(played(given, servers_module.Servers, measured))
    if "sysbench" in given.parts:
        names = [name for name in given.names if name != "PgBouncer"]
        texts.update(played(given, sysbench.Servers, measured_mysql, names))
    for parts, kind, measure in fences.STAGES:
        if given.parts & parts:
            texts.update(played(given, kind, measure, ["direct", "fencewire"]))
    about = machine.description(
        servers_module.pg_bin(),
        servers_module.program("haproxy", "/usr/sbin/haproxy"),
        servers_module.program("pgbouncer", "/usr/sbin/pgbouncer"),
        servers_module.program("mariadbd", "/usr/sbin/mariadbd"),
    )
    about.append(("rounds", f"{given.rounds} of {given.seconds} s each, interleaved"))
    about.append(("taken", datetime.date.today().isoformat()))
    lines = ["; ".join(f"{key}: {value}" for key, value in about) + "."]
    if given.parts & growth.PARTS:
        print(growth.measure(given, played, lines[0]))
        return
    for key, heading in (HEADINGS | fences.HEADINGS).items():
        if key in texts:
            lines += [f"\n**{heading}**\n", texts[key]]
    text = "\n".join(lines)
    print(text)
    if not given.quick and not given.no_document and not given.only:
        report.into_document(DOCUMENT, text)
        say(f"written into docs/{DOCUMENT.name}")
    say(f"took {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()

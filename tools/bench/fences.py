"""Fences under load: refused writes, reads with the guard armed, and how long an acquire takes.

The time of an acquire is taken over HTTP, from the request's first byte to the answer's last.
What pgbench's own log says of the transactions that were in flight when it was sent is taken off:
its log has each transaction's end and length, in microseconds of the same clock.
"""

import glob
import itertools
import os
import subprocess
import time
from collections import namedtuple

import admin
import load as loads
import machine
import report
import servers as servers_module
import sysbench
import verdicts

PARTS = {"refusals", "guard", "acquire", "fenced sysbench"}
HEADINGS = {
    "refusals": "Under a write fence: refused writes (medians)",
    "guard": "Under a write fence: reads with the guard armed, beside unfenced ones (medians)",
    "acquire": "From the acquire command to the acknowledged fence, milliseconds",
    "fenced sysbench": "sysbench before MariaDB, under a write fence (medians)",
}

NAMESPACE = "old/postgres"
CLIENTS = 32
ACQUIRES = 30
READS = (loads.SIMPLE, loads.EXTENDED, loads.PREPARED)
REFUSED_SQL = "UPDATE pgbench_branches SET bbalance = bbalance + 1 WHERE bid = 1;\n"
# How long pgbench may take to get going, and behind a fence to notice that it may not go on.
PATIENCE_S = 60
# How long pgbench runs before the command is sent, and how long it may go on.
WARM_S = 0.3
STUBBORN_S = 3

# In seconds: the acquire; what was left of the longest transaction in flight when it was sent.
Acquire = namedtuple("Acquire", "whole left")
Refused = namedtuple("Refused", "per_second cpu_us foreign")


class Servers(admin.WithAdmin, servers_module.Servers):
    """PostgreSQL and a proxy that can be commanded."""


class MariaServers(admin.WithAdmin, sysbench.Servers):
    """MariaDB and a proxy that can be commanded."""


def fenced(servers, namespace, work):
    """What `work()` returns under a write fence."""
    operation, _, _ = servers.admin.acquire(namespace)
    try:
        return work()
    finally:
        servers.admin.release(namespace, operation)


class Load(loads.Load):
    """pgbench before, at and behind a fence."""

    def refused(self, clients, mode, seconds):
        """One run of writes that are refused, each a program of its own; None where it failed."""
        script = self.servers.path("refused.sql")
        with open(script, "w", encoding="ascii") as file:
            file.write(REFUSED_SQL)
        command = [self.pgbench, "-n", "-f", script, "-M", mode, "-c", str(clients)]
        command += ["-j", str(min(clients, machine.CORES)), "-T", str(seconds)]
        watch = loads.Watch(self.servers, "fencewire")
        begun = time.monotonic()
        run = subprocess.run(
            command + self.where("fencewire"), capture_output=True, text=True, check=False
        )
        took = time.monotonic() - begun
        cpu, foreign = watch.read()
        found = [
            line.split(":")[1] for line in run.stdout.splitlines() if "failed transactions:" in line
        ]
        count = int(found[0].split()[0]) if found else 0
        if count == 0 or "actually processed: 0" not in run.stdout:
            print(f"make bench: writes weren't refused: {(run.stdout + run.stderr)[-500:]}")
            return None
        return Refused(count / took, cpu / count * 1e6, foreign)

    def tables(self, count):
        """Makes empty tables until there are `count` of them, pgbench's four included."""
        sql = "".join(
            f"CREATE TABLE IF NOT EXISTS t{number} (id int);\n" for number in range(4, count)
        )
        command = [self.psql, "-qX", "-v", "ON_ERROR_STOP=1", *self.where("direct")]
        made = subprocess.run(
            command, input=f"SET client_min_messages = warning;\n{sql}",
            capture_output=True, text=True, check=False,
        )
        if made.returncode != 0:
            raise SystemExit(f"make bench: making tables failed:\n{made.stderr[-2000:]}")

    def acquire(self, seconds):
        """One acquire under pgbench -N, which may go on for `seconds`; None where it was over by
        then, or no transaction was in flight.

        Where the proxy gives refusals a standard code, clients send their next transaction as soon
        as one is refused; where it doesn't, pgbench's clients give up.
        """
        prefix = self.servers.path("in-flight")
        # What an acquire that failed has left.
        list(logged(prefix))
        command = [self.pgbench, "-n", "-N", "-c", str(CLIENTS), "-j", str(machine.CORES)]
        command += ["-T", str(seconds), "-l", f"--log-prefix={prefix}"]
        bench = subprocess.Popen(
            command + self.where("fencewire"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_for(lambda: bench.poll() is not None or has_logged(prefix), "pgbench")
            if bench.poll() is not None:
                print("make bench: pgbench ended before the acquire")
                return None
            time.sleep(WARM_S)
            operation, whole, sent = self.servers.admin.acquire(NAMESPACE)
            # Behind its end: what it has to log it writes then.
            bench.wait(PATIENCE_S)
        finally:
            bench.kill()
            bench.wait()
        self.servers.admin.release(NAMESPACE, operation)
        ends = [end for begun, end in logged(prefix) if begun <= sent < end]
        return Acquire(whole, max(ends) - sent) if ends else None


def has_logged(prefix):
    return any(map(os.path.getsize, glob.glob(f"{prefix}.*")))


def logged(prefix):
    """(begin, end) of each transaction that was committed; the logs are gone behind it."""
    for path in glob.glob(f"{prefix}.*"):
        with open(path, encoding="ascii") as file:
            for line in file:
                words = line.split()
                if len(words) >= 6 and words[2].isdigit():
                    end = int(words[4]) + int(words[5]) / 1e6
                    yield end - int(words[2]) / 1e6, end
        os.remove(path)


def wait_for(true, what):
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            raise SystemExit(f"make bench: waited {PATIENCE_S} s for {what}")
        time.sleep(0.01)


def measure_refusals(load, given):
    cells = {}
    # Not prepared: pgbench takes a refused Parse for one that was done.
    modes = [("simple", 8), ("simple", 32), ("extended", 32)]
    for _ in range(given.rounds):
        for mode, clients in modes:
            got = fenced(
                load.servers, NAMESPACE, lambda: load.refused(clients, mode, given.seconds)
            )
            cells.setdefault(f"UPDATE {mode}, {clients}", []).append(got)
    return refusals_table(cells, given.book)


def refusals_table(cells, book):
    rows = []
    for name, runs in cells.items():
        cpu = report.middle(runs, "cpu_us")
        rate = report.number(report.middle(runs, "per_second"), 0)
        per_core = 1e6 / cpu if cpu else None
        word = book.add("8", f"refused: {name}", verdicts.refused(per_core))
        shown = [report.number(cpu, 2), report.number(per_core, 0)]
        rows.append([name, rate, *shown, word, report.spread(runs)])
    head = ["refused, clients", "per s", "proxy's CPU us each", "per s and core", "goal 8",
            "foreign CPU %"]
    return report.table(head, rows)


def measure_guard(load, given):
    counts = (8,) if given.quick else (8, 32)
    cells = {}
    for turn in range(given.rounds):
        for one, clients in itertools.product(READS, counts):
            place = cells.setdefault(f"{one[0]}, {clients}", ([], []))
            both(place, turn, load, NAMESPACE, (one, clients, given.seconds))
    return guard_table(cells, given.book)


def both(places, turn, load, namespace, words):
    """One run unfenced and one fenced; every other turn begins with the other one."""
    def run():
        return load.queries("fencewire", *words)

    works = (run, lambda: fenced(load.servers, namespace, run))
    for place, work in list(zip(places, works))[::1 if turn % 2 == 0 else -1]:
        place.append(work())


def guard_table(cells, book):
    rows = []
    for name, (opened, closed) in cells.items():
        before, behind = (report.middle(runs, "per_second") for runs in (opened, closed))
        share = behind / before if before and behind else None
        word = book.add("8", name, verdicts.guarded(behind, before))
        costs = [report.number(report.middle(runs, "cpu_us"), 2) for runs in (opened, closed)]
        rows.append([
            name, report.number(before, 0), report.number(behind, 0), report.number(share, 2),
            word, *costs, report.spread(opened + closed),
        ])
    head = ["load, clients", "unfenced, per s", "fenced, per s", "share", "goal 8",
            "CPU us unfenced", "CPU us fenced", "foreign CPU %"]
    return report.table(head, rows)


def measure_acquire(load, given):
    """Rows of the table. The first servers give refusals a standard code, the others don't."""
    runs = {}
    stubborn = [load.acquire(STUBBORN_S) for _ in range(3 if given.quick else 5)]
    load.servers.restart("")
    for tables in (10, 1000):
        load.tables(tables)
        times = range(3 if given.quick else ACQUIRES)
        runs[f"{tables} tables"] = [load.acquire(PATIENCE_S) for _ in times]
    runs["4 tables, clients that send on at once"] = stubborn
    rows = []
    for name, every in runs.items():
        known = [run for run in every if run is not None]
        columns = (
            [run.whole for run in known], [run.left for run in known],
            [run.whole - run.left for run in known],
        )
        ms = [known and at(one, share) * 1e3 for one in columns for share in (0.5, 0.99)]
        ms = [value if known else None for value in ms]
        word = given.book.add("9", name, verdicts.acquire(*ms[-2:]))
        rows.append([name, len(known), *(report.number(value, 0) for value in ms), word])
    head = ["acquire under pgbench -N, 32 clients", "runs", "whole p50", "whole p99",
            "in flight p50", "in flight p99", "beyond p50", "beyond p99", "goal 9"]
    return report.table(head, rows)


def at(values, share):
    """The value that this share of them doesn't exceed, by nearest rank."""
    return sorted(values)[max(0, -int(-len(values) * share // 1) - 1)]


def measured(given, all_servers):
    """The parts that PostgreSQL is measured by."""
    load = Load(all_servers)
    load.fill(2 if given.quick else 10)
    texts = {}
    if "refusals" in given.parts:
        texts["refusals"] = measure_refusals(load, given)
    if "guard" in given.parts:
        texts["guard"] = measure_guard(load, given)
    if "acquire" in given.parts:
        texts["acquire"] = measure_acquire(load, given)
    return texts


def measured_mysql(given, all_servers):
    """Point selects before MariaDB, unfenced and fenced."""
    load = sysbench.Load(all_servers)
    load.fill(given.quick)
    cells = {}
    for turn in range(given.rounds):
        for one in (sysbench.POINT, sysbench.POINT_TEXT):
            place = cells.setdefault(f"{one[0]}, 8", ([], []))
            both(place, turn, load, "old/bench", (one, 8, given.seconds))
    return {"fenced sysbench": guard_table(cells, given.book)}


LEAVES_OUT = {"bare relay", "HAProxy", "PgBouncer"}
# As run.py has them: parts, kind of servers, by what, targets that have no part.
STAGES = [
    ({"refusals", "guard", "acquire"}, Servers, measured, LEAVES_OUT),
    ({"fenced sysbench"}, MariaServers, measured_mysql, LEAVES_OUT),
]


def estimate(given, one):
    """{part: seconds}, where a run takes `one`; a fence goes up and comes down around many."""
    fence = 0.2
    return {
        "refusals": given.rounds * 3 * (one + fence) + 5,
        "guard": given.rounds * 6 * (2 * one + fence) + 5,
        "acquire": 20 if given.quick else ACQUIRES * 2 * 1.2 + 20,
        "fenced sysbench": given.rounds * 2 * (2 * one + fence) + 15,
    }

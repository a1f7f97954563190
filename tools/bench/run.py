"""`make bench`: what the proxy costs beside no proxy, a bare relay, HAProxy and PgBouncer, before
PostgreSQL, and before MariaDB (`sysbench`); what of the issue's goals that meets.

Called by tools/bench.sh as `run.py FENCEWIRE BARE_RELAY`. Runs are interleaved: one round goes
through every load, and for each load through every target, starting with another one each time;
figures are medians over rounds. A row that misses its goal says by what, and fails nothing.
"""

import argparse
import datetime
import itertools
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
from collections import namedtuple

import bulk
import fences
import growth
import idle
import load as loads
import machine
import pairs
import report
import servers as servers_module
import sysbench
import tls
import verdicts

NAMES = ["direct", "fencewire", "bare relay", "HAProxy", "PgBouncer"]
DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "PERFORMANCE.md"
# Programs start, connect and end around each run; what that takes, in seconds, by experience.
AROUND_S = 0.2
# Sessions held in each way, and the KiB that one may take.
IDLE_WANTED = {idle.PLAIN: (10_000, 4), idle.TLS: (2_000, 40)}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("fencewire")
    parser.add_argument("bare")
    parser.add_argument("--quick", action="store_true", help="under three minutes, not for keeps")
    parser.add_argument("--profiled", action="store_true", help="says so of the proxy")
    parser.add_argument("--no-document", action="store_true", help="print only")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of one pgbench run; whole numbers")
    parser.add_argument("--only", default="", help="parts: " + ",".join(KNOWN))
    parser.add_argument("--targets", default=",".join(NAMES))
    given = parser.parse_args()
    given.fencewire, given.bare = map(os.path.abspath, (given.fencewire, given.bare))
    given.parts = set(filter(None, given.only.split(","))) or set(PARTS)
    usual = pairs.ROUNDS if given.parts == pairs.PARTS else (3, 1)
    given.rounds = given.rounds or usual[given.quick]
    given.seconds = int(given.seconds or 1)
    if not given.parts <= set(KNOWN):
        parser.error(f"--only knows {', '.join(KNOWN)}")
    given.names = [name for name in NAMES if name in given.targets.split(",")]
    given.book = verdicts.Book()
    return given


def query_cells(quick):
    counts = (1, 8) if quick else (1, 8, 32, 256)
    kinds = (loads.SIMPLE, loads.EXTENDED, loads.PREPARED)
    cells = [(one, clients) for one in kinds for clients in counts]
    return cells + [(one, 8) for one in (loads.TPCB, loads.TPCB_EXTENDED, loads.TPCB_PREPARED)]


def rotated(names, turn):
    """The names, beginning with another one each turn."""
    turn %= len(names)
    return names[turn:] + names[:turn]


def interleaved(names, rounds, work):
    """{target: [result]}, one by one, each round starting with the next target."""
    got = {name: [] for name in names}
    for turn in range(rounds):
        for name in rotated(names, turn):
            got[name].append(work(name))
    return got


def measured_cells(load, given, names, todo, what):
    """{(load, clients): {target: [Run]}}, without what connecting took."""
    cells = {}
    counts = sorted({clients for _, clients in todo})
    for turn in range(given.rounds):
        say(f"{what}, round {turn + 1} of {given.rounds}")
        order = rotated(names, turn)
        took = {
            (name, clients): load.connecting(name, clients)
            for clients in counts for name in order
        }
        for one, clients in todo:
            place = cells.setdefault((one[0], clients), {name: [] for name in names})
            for name in order:
                connecting = took.get((name, clients), loads.NOT_TAKEN)
                place[name].append(
                    load.queries(name, one, clients, given.seconds, connecting, clients == 1)
                )
    return cells


def measure_queries(load, given, names):
    cells = measured_cells(load, given, names, query_cells(given.quick), "queries")
    cpu, rate = report.queries(cells, names, given.book)
    return {"cpu": cpu, "rate": rate, "latency": report.latency(cells, names, given.book)}


def measure_calls(load, given, names):
    say("system calls")
    figures, transactions = {}, 500 if given.quick else 4000
    todo = [(loads.SIMPLE, 1), (loads.PREPARED, 1), (load.pipeline(), 1), (loads.PREPARED, 8)]
    for one, clients in todo:
        for name in names:
            if name != "direct":
                calls = load.system_calls(name, one, clients, transactions // clients)
                figures.setdefault((one[0], clients), {})[name] = calls
    return {"calls": report.system_calls(figures, names, transactions, given.book)}


def measure_bulk(load, given, names):
    load = bulk.Load(load.servers)
    # First, while no relay has had reason to grow.
    say("one value")
    size = bulk.VALUE_BYTES // (10 if given.quick else 1)
    figures, ways = {}, {}
    for way, upward in (("a value to the client", False), ("a value to the engine", True)):
        figures[f"{way}, {size / 1e9:g} GB"] = {
            name: load.value(name, size, upward) for name in names if name != "direct"
        }
    say("bulk")
    for name, sql, times in bulk.WAYS:
        rows = bulk.ROWS * times // (10 if given.quick else 1)
        ways[name] = interleaved(
            names, given.rounds, lambda target: load.bulk(target, sql, rows)
        )
    return {
        "bulk": report.bulk(ways, names, given.book),
        "value": report.values(figures, names, bulk.PEAK_MIB_MAX, given.book),
    }


def say(what):
    print(f"make bench: {what}", file=sys.stderr, flush=True)


COUNT = itertools.count()


def folder():
    """A folder that tools/sweep.sh knows how to clear away."""
    start = machine.stat_fields(os.getpid())[19]
    name = f"fencewire-bench-{os.getpid()}-{start}-{next(COUNT)}"
    path = os.path.join(tempfile.gettempdir(), name)
    os.mkdir(path)
    os.chmod(path, 0o755)
    return path


def measured(given, all_servers):
    """The parts that PostgreSQL is measured by."""
    load = loads.Load(all_servers)
    load.fill(2 if given.quick else 10)
    names = [name for name in given.names if name in all_servers.targets]
    texts = {}
    # `bulk` first: a process that has served many others has memory to spare.
    for part, measure in (
        ("bulk", measure_bulk), ("queries", measure_queries), ("calls", measure_calls)
    ):
        if part in given.parts:
            texts.update(measure(load, given, names))
    return texts


def measured_mysql(given, all_servers):
    """sysbench before MariaDB."""
    load = sysbench.Load(all_servers)
    load.fill(given.quick)
    names = [name for name in given.names if name in all_servers.targets]
    cells = measured_cells(load, given, names, sysbench.cells(given.quick), "sysbench")
    cpu, rate = report.queries(cells, names, given.book)
    latency = report.latency(cells, names, given.book)
    return {"sysbench cpu": cpu, "sysbench rate": rate, "sysbench latency": latency}


def measured_pairs(given, all_servers):
    """Goal 1 by pairs, before PostgreSQL."""
    load = loads.Load(all_servers)
    load.fill(2 if given.quick else 10)
    todo = [cell for cell in query_cells(given.quick) if cell[1] <= 32]
    return {"pairs": pairs.table(measured_cells(load, given, pairs.NAMES, todo, "pairs"))}


def measured_pairs_mysql(given, all_servers):
    """The same by sysbench, before MariaDB."""
    load = sysbench.Load(all_servers)
    load.fill(given.quick)
    todo = sysbench.cells(given.quick)
    cells = measured_cells(load, given, pairs.NAMES, todo, "sysbench pairs")
    return {"sysbench pairs": pairs.table(cells)}


def measured_idle(given, all_servers):
    """Idle sessions before a stand-in for PostgreSQL."""
    figures = {}
    for side, (wanted, _) in IDLE_WANTED.items():
        sessions = idle.sessions_max(wanted // (10 if given.quick else 1))
        for name in given.names:
            known = name if side == idle.PLAIN else f"{name}, {side}"
            if name != "direct" and known in all_servers.targets:
                say(f"{sessions} idle sessions: {known}")
                figures[name, side] = idle.measured(all_servers, name, side, sessions)
    # A quick look holds fewer, and isn't judged by their number.
    wanted = {
        side: (0 if given.quick else sessions, kib)
        for side, (sessions, kib) in IDLE_WANTED.items()
    }
    return {"idle": report.idle(figures, wanted, given.book)}


def measured_tls(given, all_servers):
    """Queries and handshakes over TLS."""
    load = tls.Load(all_servers)
    load.fill(2 if given.quick else 10)
    wanted = [name for name in tls.NAMES if name in given.names]
    bare = [name for name in (tls.BARE,) if name in all_servers.targets]
    queries, shakes = {}, {}
    sides = {
        side: [
            name for name in wanted if tls.target(name, side) in all_servers.targets
            and load.check(tls.target(name, side), side)
        ]
        for side in tls.SIDES
    }
    todo = [(loads.SIMPLE, 1), (loads.PREPARED, 8), (loads.PREPARED, 32)]
    for turn, (side, names) in itertools.product(range(given.rounds), sides.items()):
        say(f"TLS on {side}, round {turn + 1} of {given.rounds}")
        order = rotated(names, turn) if names else []
        for (one, clients), name in itertools.product(todo[:2] if given.quick else todo, order):
            target = tls.target(name, side)
            took = load.connecting(target, clients)
            run = load.queries(target, one, clients, given.seconds, took)
            row = queries.setdefault(f"{side}: {one[0]}, {clients}", {})
            row.setdefault(name, []).append(run)
        if side == tls.CLIENTS_SIDE:
            shaken(given, load, rotated([*names, *bare], turn), shakes)
    return {
        "tls": report.tls(queries, wanted, given.book),
        "handshakes": report.handshakes(shakes, [*wanted[:1], *bare, *wanted[1:]], given.book),
    }


def shaken(given, load, names, shakes):
    """One round of connections, added to `shakes`: {way: {name: [Shakes]}}."""
    for plain, name in itertools.product((True, False), names):
        if name == tls.BARE and not plain:
            continue
        what = "plaintext" if plain else f"TLS on the {tls.CLIENTS_SIDE}"
        target = name if name == tls.BARE else tls.target(name, tls.CLIENTS_SIDE)
        run = load.handshakes(target, given.seconds, plain)
        shakes.setdefault(what, {}).setdefault(name, []).append(run)


HEADINGS = {
    "goals": "The goals at a glance (the rows of the tables below, each judged by its medians)",
    "cpu": "CPU microseconds per query of the relay's process (user + system, medians)",
    "rate": "Queries per second: direct, and the others as a share of it (medians)",
    "latency": "Latency added at one client, microseconds (medians of each run's p50 and p99)",
    "calls": "System calls of the relay's process per query, or per pipeline",
    "bulk": "Bulk: rows of 100 bytes, read and thrown away (medians)",
    "value": "One value: growth of the relay's peak of memory while it passes",
    "idle": "Idle sessions, each after one query; a stand-in for PostgreSQL answers",
    "tls": "TLS 1.3, one cipher suite: CPU microseconds per query of the relay's process (medians)",
    "handshakes": "CPU of the relay's process per connection that asks once (medians)",
    "sysbench cpu": "sysbench before MariaDB: CPU microseconds per query of the relay's process",
    "sysbench rate": "sysbench before MariaDB: queries per second, and shares of it (medians)",
    "pairs": "CPU per query, as a share of the bare relay's, pair by pair",
    "sysbench pairs": "The same by sysbench, before MariaDB",
    "sysbench latency": "sysbench before MariaDB: latency added at one client, microseconds",
}

# Parts that are measured before one set of servers, of a kind.
Stage = namedtuple("Stage", "parts kind measure leaves_out")
STAGES = [
    Stage({"idle"}, idle.Servers, measured_idle, {"direct"}),
    Stage({"queries", "bulk", "calls"}, servers_module.Servers, measured, set()),
    Stage({"tls"}, tls.Servers, measured_tls, set()),
    Stage({"sysbench"}, sysbench.Servers, measured_mysql, {"PgBouncer"}),
    *(Stage(*stage) for stage in fences.STAGES),
]
HEADINGS |= fences.HEADINGS
PARTS = [part for stage in STAGES for part in sorted(stage.parts)]
# Those that have to be asked for as well.
KNOWN = PARTS + sorted(growth.PARTS | pairs.PARTS)
OTHERS = {"direct", "HAProxy", "PgBouncer"}
STAGES += [
    Stage(pairs.PARTS, servers_module.Servers, measured_pairs, OTHERS),
    Stage(pairs.PARTS, sysbench.Servers, measured_pairs_mysql, OTHERS),
]


def estimate(given):
    """Seconds that it should take on a quiet machine with two cores."""
    relays = len(given.names)
    one = given.seconds + AROUND_S
    seconds = {
        # Six seconds of a round and target go into connecting, most of it 256 clients'.
        "queries": given.rounds * relays * (len(query_cells(given.quick)) * one + 6),
        "sysbench": given.rounds * (relays - 1) * len(sysbench.cells(given.quick)) * one + 15,
        "tls": given.rounds * 24 * one + 15,
        "bulk": 10 if given.quick else 60,
        "idle": 10 if given.quick else 60,
        "calls": 8 if given.quick else 25,
        "pairs": given.rounds * 2 * 24 * one + 30,
    }
    seconds |= fences.estimate(given, one)
    return sum(seconds.get(part, 0) for part in given.parts) + 10


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


def about(given):
    found = machine.description(
        servers_module.pg_bin(),
        servers_module.program("haproxy", "/usr/sbin/haproxy"),
        servers_module.program("pgbouncer", "/usr/sbin/pgbouncer"),
        servers_module.program("mariadbd", "/usr/sbin/mariadbd"),
    )
    if "tls" in given.parts:
        found.append(("PostgreSQL for TLS", machine.said(f"{tls.newest()[0]}/postgres", "-V")))
        found.append(("OpenSSL", machine.said("openssl", "version").split(" ")[1]))
    if given.profiled:
        found.append(("fencewire", "laid out by a profile (tools/profiled.sh)"))
    found.append(("rounds", f"{given.rounds} of {given.seconds} s each, interleaved"))
    found.append(("taken", datetime.date.today().isoformat()))
    return "; ".join(f"{key}: {value}" for key, value in found) + "."


def main():
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    machine.descriptors_max()
    begun = time.monotonic()
    if given.parts & growth.PARTS:
        print(growth.measure(given, played, about(given)))
        return
    say(f"about {estimate(given) / 60:.0f} minutes on a quiet machine")
    texts = {}
    for stage in STAGES:
        if given.parts & stage.parts:
            names = [name for name in given.names if name not in stage.leaves_out]
            texts.update(played(given, stage.kind, stage.measure, names))
    if given.book.judged:
        texts["goals"] = "\n".join(given.book.lines())
    lines = [about(given)]
    for key, heading in HEADINGS.items():
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

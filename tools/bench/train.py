"""What a proxy does all day, for the build that is laid out by a profile (tools/profiled.sh).

Called as `train.py FENCEWIRE`, which is a build that counts as it runs and writes its counts as it
ends. Nothing is measured here. It serves pgbench in plaintext and with TLS on one side and on both,
connections that come and go, answers of many rows, COPY in both directions, sysbench and the filling
of its tables; then reads and refused writes under a fence, on both engines. Any load that fails ends this with an error: a profile without it would be of another work.
"""

import argparse
import functools
import shutil
import signal
import subprocess
import sys

import bulk
import fences
import load as loads
import machine
import run
import sysbench
import tls

SCALE = 2
CLIENTS = (1, 8, 32)
ROWS = 300_000
NAME = "fencewire"
BOTH = "fencewire, TLS on both sides"


def say(what):
    print(f"tools/profiled.sh: {what}", file=sys.stderr, flush=True)


def must(what, result):
    if result is None:
        raise SystemExit(f"tools/profiled.sh: {what} failed; its words are above")


def played(kind, program, work):
    """`work(servers)` before servers of this kind; their proxies are ended in peace."""
    place = run.folder()
    servers = kind(place, program, None)
    try:
        servers.start_engine()
        servers.targets["direct"] = (servers.engine_port, None)
        work(servers)
        for name, proxy in servers.running:
            if not name.startswith(NAME):
                continue
            proxy.send_signal(signal.SIGTERM)
            if proxy.wait(60) != 0:
                raise SystemExit("tools/profiled.sh: a proxy didn't end well: it left no counts")
    finally:
        servers.stop()
        shutil.rmtree(place, ignore_errors=True)


def copy_in(load):
    """A COPY of many rows to the engine."""
    where = load.where(NAME)
    made = "CREATE TABLE copied (n int, words text)"
    subprocess.run([load.psql, "-Xqc", made, *where], check=True)
    rows = "".join(f"{n}\ta row of the usual length\n" for n in range(ROWS))
    copy = [load.psql, "-Xqc", "COPY copied FROM STDIN", *where]
    subprocess.run(copy, input=rows, text=True, check=True)


def pgbench(seconds, servers):
    servers.targets[NAME] = servers.start_fencewire_tls(NAME)
    load = tls.Load(servers)
    load.fill(SCALE)
    for load.plain in (True, False):
        for kind in (*fences.READS, loads.TPCB, loads.TPCB_EXTENDED, loads.TPCB_PREPARED):
            for clients in CLIENTS:
                must(kind[0], load.queries(NAME, kind, clients, seconds))
    for plain in (True, False):
        must("connecting", load.handshakes(NAME, 2 * seconds, plain))
    for name, sql, _ in bulk.WAYS:
        must(name, bulk.Load(servers).bulk(NAME, sql, ROWS))
    copy_in(load)
    servers.targets[BOTH] = servers.start_fencewire_tls(f"{NAME}-2", 'tls = "require"')
    for kind in fences.READS:
        must(f"{kind[0]}, {BOTH}", load.queries(BOTH, kind, 8, seconds))


def fenced_pgbench(seconds, servers):
    servers.targets[NAME] = servers.start_fencewire()
    load = fences.Load(servers)
    load.fill(SCALE)

    def work():
        for kind in fences.READS:
            must(kind[0], load.queries(NAME, kind, 8, seconds))
        for mode in ("simple", "extended"):
            must("refused writes", load.refused(8, mode, seconds))

    fences.fenced(servers, fences.NAMESPACE, work)


def sysbench_loads(seconds, servers):
    servers.targets[NAME] = servers.start_fencewire(NAME)
    load = sysbench.Load(servers)
    load.fill(True)
    for kind in sysbench.LOADS:
        for clients in CLIENTS:
            must(kind[0], load.queries(NAME, kind, clients, seconds))
    for step in ("cleanup", "prepare"):
        subprocess.run(
            load.command(NAME, "oltp_read_write", [step]), stdout=subprocess.DEVNULL, check=True
        )


def fenced_sysbench(seconds, servers):
    servers.targets[NAME] = servers.start_fencewire()
    load = sysbench.Load(servers)
    load.fill(True)

    def work():
        for kind in (sysbench.POINT, sysbench.POINT_TEXT):
            must(kind[0], load.queries(NAME, kind, 8, seconds))

    fences.fenced(servers, "old/bench", work)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fencewire")
    parser.add_argument("--seconds", type=int, default=2, help="of each load")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    machine.descriptors_max()
    for kind, work, what in (
        (tls.Servers, pgbench, "pgbench before PostgreSQL"),
        (fences.Servers, fenced_pgbench, "pgbench before PostgreSQL, under a fence"),
        (sysbench.Servers, sysbench_loads, "sysbench before MariaDB"),
        (fences.MariaServers, fenced_sysbench, "sysbench before MariaDB, under a fence"),
    ):
        say(f"at work: {what}")
        played(kind, given.fencewire, functools.partial(work, given.seconds))


if __name__ == "__main__":
    main()

"""The loads: pgbench, a bulk COPY, idle sessions, and pgbench under strace."""

import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections import namedtuple

import machine

# cpu_us is the relay's (0 for direct); foreign is a share of the machine, 0 to 1.
Run = namedtuple("Run", "per_second cpu_us foreign")
Bulk = namedtuple("Bulk", "mb_per_second cpu_per_gb foreign")

# name, pgbench arguments, statements per transaction
PREPARED = ("pgbench -S prepared", ["-S", "-M", "prepared"], 1)
SIMPLE = ("pgbench -S simple", ["-S", "-M", "simple"], 1)
EXTENDED = ("pgbench -S extended", ["-S", "-M", "extended"], 1)
TPCB = ("TPC-B -N simple", ["-N", "-M", "simple"], 5)

# Not a stored table: rows of about 100 bytes, as many as make half a gigabyte.
BULK_ROWS = 4_900_000
BULK_SQL = (
    "COPY (SELECT n, n % 100, repeat('x', 88) FROM generate_series(1000001, {last}) AS n) TO STDOUT"
)
BULK_ROW_BYTES = 7 + 1 + 1.9 + 1 + 88 + 1


class Load:
    """Runs loads against the targets of a Servers."""

    def __init__(self, servers):
        self.servers = servers
        self.pgbench = shutil.which("pgbench") or f"{servers.bin}/pgbench"
        self.psql = shutil.which("psql") or f"{servers.bin}/psql"

    def fill(self, scale):
        """pgbench's tables."""
        command = [self.pgbench, "-i", "-q", "-s", str(scale), *self.where("direct")]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise SystemExit(f"make bench: filling the tables failed:\n{made.stderr[-2000:]}")

    def where(self, target):
        port, _ = self.servers.targets[target]
        return ["-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "postgres"]

    def queries(self, target, load, clients, seconds):
        """One pgbench run; None where it failed, with its words on stderr."""
        _, arguments, per_transaction = load
        jobs = min(clients, machine.CORES)
        command = [self.pgbench, "-n", *arguments, "-c", str(clients), "-j", str(jobs)]
        command += ["-T", str(seconds), *self.where(target)]
        watch = Watch(self.servers, target)
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        cpu, foreign = watch.read()
        rate = re.search(r"^tps = ([\d.]+)", run.stdout, re.M)
        done = re.search(r"actually processed: (\d+)", run.stdout)
        if run.returncode != 0 or not rate or not done or int(done[1]) == 0:
            print(f"make bench: {target}: pgbench failed: {run.stderr[-500:]}")
            return None
        statements = int(done[1]) * per_transaction
        return Run(float(rate[1]) * per_transaction, cpu / statements * 1e6, foreign)

    def bulk(self, target, rows):
        """One COPY TO of `rows` rows, thrown away by psql."""
        sql = BULK_SQL.format(last=1_000_000 + rows)
        watch = Watch(self.servers, target)
        begun = time.monotonic()
        command = [self.psql, "-qX", "-c", sql, "-o", os.devnull, *self.where(target)]
        with open(os.devnull, "wb") as nowhere:
            run = subprocess.run(
                command, stdout=nowhere, stderr=subprocess.PIPE, text=True, check=False
            )
        seconds = time.monotonic() - begun
        cpu, foreign = watch.read()
        if run.returncode != 0:
            print(f"make bench: {target}: COPY failed: {run.stderr[-500:]}")
            return None
        gigabytes = rows * BULK_ROW_BYTES / 1e9
        return Bulk(gigabytes * 1000 / seconds, cpu / gigabytes, foreign)

    def idle(self, target, sessions):
        """KiB of resident memory per idle session, each after one query.

        The first sessions are closed again before counting begins: with them come code pages and
        tables that later ones share.
        """
        port, pid = self.servers.targets[target]
        for link in [idle_session(port) for _ in range(sessions // 10)]:
            link.close()
        before = machine.rss_kib(pid)
        open_sockets = []
        try:
            for _ in range(sessions):
                open_sockets.append(idle_session(port))
            return (machine.rss_kib(pid) - before) / sessions
        except OSError as error:
            print(f"make bench: {target}: {len(open_sockets)} sessions, then: {error}")
            return None
        finally:
            for one in open_sockets:
                one.close()

    def system_calls(self, target, load, clients, transactions):
        """{call: times per query} of the relay under a run of its own; None without strace."""
        strace = shutil.which("strace")
        _, pid = self.servers.targets[target]
        if strace is None:
            return None
        out = self.servers.path("strace.out")
        tracer = subprocess.Popen(
            [strace, "-c", "-f", "-q", "-o", out, "-p", str(pid)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        if not wait_traced(pid, tracer):
            return None
        _, arguments, per_transaction = load
        command = [self.pgbench, "-n", *arguments, "-c", str(clients), "-j", "1"]
        command += ["-t", str(transactions), *self.where(target)]
        subprocess.run(command, capture_output=True, check=False)
        tracer.send_signal(signal.SIGINT)
        tracer.wait()
        queries = clients * transactions * per_transaction
        calls = {}
        with open(out, encoding="ascii", errors="replace") as file:
            for line in file:
                words = line.split()
                if len(words) >= 5 and words[3].isdigit() and words[-1] != "total":
                    calls[words[-1]] = int(words[3]) / queries
        return calls


def wait_traced(pid, tracer):
    """Waits until every thread has its tracer."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and tracer.poll() is None:
        traced = []
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/status", encoding="ascii") as file:
                traced.append(any(
                    line.startswith("TracerPid:") and line.split()[1] != "0" for line in file
                ))
        if all(traced):
            return True
        time.sleep(0.02)
    return False


class Watch:
    """CPU time of the relay, and of whatever isn't ours, over one run."""

    def __init__(self, servers, target):
        _, self.pid = servers.targets[target]
        self.engine = servers.engine.pid
        self.at = time.monotonic()
        self.before = self.sums()

    def sums(self):
        relay = machine.cpu_seconds(self.pid) if self.pid else 0.0
        # Clients are waited-for children of this program.
        ours = sum(os.times()[:4]) + machine.tree_seconds(self.engine) + relay
        return relay, ours, machine.busy_seconds()

    def read(self):
        """Seconds of CPU of the relay, and the share of the machine that others had."""
        relay, ours, busy = (new - old for new, old in zip(self.sums(), self.before))
        capacity = (time.monotonic() - self.at) * machine.CORES
        return relay, min(1.0, max(0.0, (busy - ours) / capacity))


def idle_session(port):
    """A session that has run one query and says nothing more."""
    link = socket.create_connection(("127.0.0.1", port), 20)
    link.settimeout(20)
    body = struct.pack("!I", 196608) + b"user\0postgres\0database\0postgres\0\0"
    link.sendall(struct.pack("!I", len(body) + 4) + body)
    until_ready(link)
    query = b"SELECT 1\0"
    link.sendall(b"Q" + struct.pack("!I", len(query) + 4) + query)
    until_ready(link)
    return link


def until_ready(link):
    """Reads up to a ReadyForQuery, which is the last thing an engine says."""
    held = b""
    while not (held.endswith(b"I") and held[-6:-1] == b"Z\0\0\0\x05"):
        got = link.recv(65536)
        if not got:
            raise OSError("the session was closed: " + held[-200:].decode("ascii", "replace"))
        held += got

"""The loads: pgbench, and pgbench under strace. Others are in `bulk`, `idle`, `tls`, `sysbench`."""

import glob
import math
import os
import re
import shutil
import signal
import subprocess
import time
from collections import namedtuple

import machine

# cpu_us is the relay's (0 for direct); foreign is a share of the machine, 0 to 1. Latencies, in us,
# are there where they were asked for.
Run = namedtuple("Run", "per_second cpu_us foreign p50_us p99_us", defaults=(None, None))
# What connecting took of the relay's CPU, what was asked meanwhile, and how long it was.
Connecting = namedtuple("Connecting", "cpu_seconds statements seconds")
NOT_TAKEN = Connecting(0.0, 0, 0.0)
# Less than this of connecting doesn't shorten a run that much.
CONNECTING_SHORT_S = 0.3
CONNECTING_LONG_S = 10

# name, pgbench arguments, statements per transaction
PREPARED = ("pgbench -S prepared", ["-S", "-M", "prepared"], 1)
SIMPLE = ("pgbench -S simple", ["-S", "-M", "simple"], 1)
EXTENDED = ("pgbench -S extended", ["-S", "-M", "extended"], 1)
TPCB = ("TPC-B -N simple", ["-N", "-M", "simple"], 5)
TPCB_EXTENDED = ("TPC-B -N extended", ["-N", "-M", "extended"], 5)
TPCB_PREPARED = ("TPC-B -N prepared", ["-N", "-M", "prepared"], 5)


class Load:
    """Runs loads against the targets of a Servers."""

    def __init__(self, servers):
        self.servers = servers
        self.pgbench = shutil.which("pgbench") or f"{servers.bin}/pgbench"
        self.psql = shutil.which("psql") or f"{servers.bin}/psql"

    def pipeline(self):
        """A load of ten queries that are sent at once; what is counted is pipelines."""
        path = self.servers.path("pipeline.sql")
        query = "SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n"
        with open(path, "w", encoding="ascii") as file:
            file.write("\\set aid random(1, 100000)\n")
            file.write("\\startpipeline\n" + 10 * query + "\\endpipeline\n")
        return ("pipeline of 10, extended", ["-M", "extended", "-f", path], 1)

    def fill(self, scale):
        """pgbench's tables."""
        command = [self.pgbench, "-i", "-q", "-s", str(scale), *self.where("direct")]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise SystemExit(f"make bench: filling the tables failed:\n{made.stderr[-2000:]}")

    def where(self, target):
        port, _ = self.servers.targets[target]
        return ["-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "postgres"]

    def command(self, target, load, clients, more):
        _, arguments, _ = load
        jobs = str(min(clients, machine.CORES))
        command = [self.pgbench, "-n", *arguments, "-c", str(clients), "-j", jobs]
        return [*command, *more, *self.where(target)]

    def connecting(self, target, clients):
        """What `clients` connections cost, each with one query; nothing where it failed."""
        watch = Watch(self.servers, target)
        command = self.command(target, SIMPLE, clients, ["-t", "1"])
        run = subprocess.run(command, capture_output=True, check=False)
        cpu, _ = watch.read()
        took = time.monotonic() - watch.at
        return Connecting(cpu, clients, took) if run.returncode == 0 else NOT_TAKEN

    def queries(self, target, load, clients, seconds, connecting=NOT_TAKEN, log=False):
        """One pgbench run; None where it failed, with its words on stderr.

        `connecting` is taken off the relay's CPU time, and added to the run's, of which pgbench
        spends that much before it begins; with `log` the run has latencies.
        """
        if connecting.seconds > CONNECTING_SHORT_S:
            seconds += min(math.ceil(connecting.seconds), CONNECTING_LONG_S)
        per_transaction = load[2]
        prefix = self.servers.path("latency")
        more = ["-l", f"--log-prefix={prefix}"] if log else []
        command = self.command(target, load, clients, ["-T", str(seconds), *more])
        watch = Watch(self.servers, target)
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        cpu, foreign = watch.read()
        times = logged(prefix) if log else []
        rate = re.search(r"^tps = ([\d.]+)", run.stdout, re.M)
        done = re.search(r"actually processed: (\d+)", run.stdout)
        if run.returncode != 0 or not rate or not done or int(done[1]) == 0:
            print(f"make bench: {target}: pgbench failed: {run.stderr[-500:]}")
            return None
        statements = int(done[1]) * per_transaction
        if statements > 2 * connecting.statements:
            cpu -= connecting.cpu_seconds
            statements -= connecting.statements
        latency = (percentile(times, 50), percentile(times, 99))
        return Run(float(rate[1]) * per_transaction, cpu / statements * 1e6, foreign, *latency)

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
        command = self.command(target, load, clients, ["-t", str(transactions)])
        subprocess.run(command, capture_output=True, check=False)
        tracer.send_signal(signal.SIGINT)
        tracer.wait()
        queries = clients * transactions * load[2]
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


def logged(prefix):
    """Microseconds of every transaction in pgbench's logs, which are removed."""
    times = []
    for path in glob.glob(f"{prefix}.*"):
        with open(path, encoding="ascii") as file:
            times += [int(line.split()[2]) for line in file]
        os.remove(path)
    return sorted(times)


def percentile(times, percent):
    """Of sorted times; None without any."""
    return times[min(len(times) - 1, len(times) * percent // 100)] if times else None

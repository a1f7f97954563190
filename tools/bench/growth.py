"""`make bench-growth`: how costs grow with clients, namespaces, fenced namespaces and tables.

Every curve goes through 1, 10, 100, 1,000 and 10,000, as far as the machine has room and a step
ends within its time; where it stopped is said. Plots go to docs/plots, their figures beside them
into docs/PERFORMANCE.md. Clients that say nothing have a stand-in for an engine behind the relays
(`idle.py`), active ones a PostgreSQL backend each, so that memory is what limits those; namespaces
are schemas of one MariaDB, which has cheap ones.
"""

import pathlib
import subprocess
import sys
import time
from statistics import median

import admin
import client
import idle
import load as loads
import machine
import plot
import report
import servers as servers_module
import sysbench

PARTS = {"growth"}
DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
BEGIN = "<!-- growth: written by tools/bench/growth.py, not by hand -->"
END = "<!-- end of growth -->"

COUNTS = (1, 10, 100, 1_000, 10_000)
# The longest that a step may be expected to take, going by the one before it.
STEP_S_MAX = 600
# What a PostgreSQL backend that has answered a query takes, and what others are left.
BACKEND_MIB, SPARE_MIB = 3, 2048
# A control connection per held lock, the benchmark's own, and room for the proxy's questions.
MARIADB_CONNECTIONS = 11_000
TIMES = 5


def say(what):
    print(f"make bench-growth: {what}", file=sys.stderr, flush=True)


class Curves:
    """What has been measured: {curve: {series: [(x, y)]}}, and where a curve had to stop."""

    def __init__(self, most):
        self.most = most
        self.points = {}
        self.stops = []
        # The step that is under way, in words.
        self.step = None

    def add(self, curve, series, x, y):
        if y is not None:
            self.points.setdefault(curve, {}).setdefault(series, []).append((x, y))

    def steps(self, what, room=None):
        """The counts, as long as the next step would fit into its time and into `room`."""
        before = 0.0
        for count in COUNTS:
            if count > self.most:
                return
            if room is not None and count > room:
                self.stops.append(f"{what}: no room for {count:,} on this machine")
                return
            if before * 10 > STEP_S_MAX:
                self.stops.append(f"{what}: {count:,} would take over {STEP_S_MAX} s")
                return
            self.step = f"{what}: {count:,}"
            say(self.step)
            begun = time.monotonic()
            yield count
            before = time.monotonic() - begun


def milliseconds(work):
    """The median of some runs."""
    times = []
    for _ in range(TIMES):
        begun = time.perf_counter()
        work()
        times.append((time.perf_counter() - begun) * 1e3)
    return median(times)


def backends_max():
    """As many PostgreSQL backends as there is memory for."""
    with open("/proc/meminfo", encoding="ascii") as file:
        kib = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    return (kib // 1024 - SPARE_MIB) // BACKEND_MIB


# --- clients -------------------------------------------------------------------------------------


class Clients(servers_module.Servers):
    """PostgreSQL that lets as many in as a relay's sockets and the machine's memory suffice for."""

    def start(self, names):
        self.room = min(backends_max(), idle.sessions_max(max(COUNTS)))
        super().start(names)

    def settings(self):
        return super().settings() | {"max_connections": self.room + 100}


def active_clients(curves, servers):
    """pgbench -S prepared: throughput, and CPU time of the relay per query."""
    load = loads.Load(servers)
    load.fill(2)
    for count in curves.steps("active clients", servers.room):
        seconds = 3 + count // 500
        for name in servers.targets:
            connecting = load.connecting(name, count)
            got = load.queries(name, loads.PREPARED, count, seconds, connecting)
            if got is not None:
                curves.add("clients-rate", name, count, got.per_second)
                curves.add("clients-cpu", name, count, got.cpu_us if name != "direct" else None)


def idle_clients(curves, servers):
    """Sessions that say nothing: memory of the relay, and how fast one of them is answered."""
    for count in curves.steps("idle clients", idle.sessions_max(max(COUNTS))):
        for name in ("fencewire", "bare relay"):
            port, pid = servers.targets[name]
            before, held = machine.rss_kib(pid), []
            try:
                while len(held) < count:
                    held.append(client.session(port))
                curves.add("idle-memory", name, count, (machine.rss_kib(pid) - before) / 1024)
                curves.add("idle-latency", name, count, asked_often(held))
            except OSError as error:
                curves.stops.append(f"idle clients: {name} at {len(held):,}: {error}")
            finally:
                for link in held:
                    link.close()


def asked_often(held):
    """The median time of a query on one session of many, microseconds."""
    links = (held * idle.ASKED)[: idle.ASKED] if len(held) < idle.ASKED else held[-idle.ASKED:]
    times = []
    for link in links:
        begun = time.perf_counter()
        client.asked(link, "SELECT 1")
        times.append((time.perf_counter() - begun) * 1e6)
    return median(times)


# --- tables --------------------------------------------------------------------------------------


class Tables(admin.WithAdmin, servers_module.Servers):
    """PostgreSQL with nothing in it."""


class MariaTables(admin.WithAdmin, sysbench.Servers):
    """MariaDB with nothing in it."""

    def ask(self, sql):
        """Has the engine's owner run a text."""
        command = ["mariadb", "--no-defaults", "-S", self.path("sock"), "-u", "root", "-N"]
        ran = subprocess.run(command, input=sql, capture_output=True, text=True, check=False)
        self.succeeded(ran, sql[:60])
        return ran.stdout


def acquired(servers, namespace):
    """The median time of some acquires, milliseconds."""
    times = []
    for _ in range(TIMES):
        operation, seconds, _ = servers.admin.acquire(namespace)
        servers.admin.release(namespace, operation)
        times.append(seconds * 1e3)
    return median(times)


def tables_postgres(curves, servers):
    psql = loads.Load(servers)
    command = [psql.psql, "-qX", "-v", "ON_ERROR_STOP=1", *psql.where("direct")]
    made = 0

    def ask(sql):
        ran = subprocess.run(command, input=sql, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise SystemExit(f"make bench: psql: {ran.stderr[-500:]}")
        return ran.stdout

    for count in curves.steps("tables of PostgreSQL"):
        ask("".join(f"CREATE TABLE t{number} (id int);\n" for number in range(made, count)))
        made = count
        every = ", ".join(f"ONLY t{number}" for number in range(count))
        lock = f"LOCK TABLE {every} IN SHARE MODE;"
        told = [ask(f"BEGIN;\n\\timing on\n{lock}\n") for _ in range(TIMES)]
        times = [float(text.split("Time: ")[1].split()[0]) for text in told]
        curves.add("tables", "PostgreSQL: LOCK TABLE", count, median(times))
        curves.add("tables", "PostgreSQL: acquire", count, acquired(servers, "old/postgres"))


def tables_mariadb(curves, servers):
    made = 0
    for count in curves.steps("tables of MariaDB"):
        servers.ask("USE bench;\n" + "".join(
            f"CREATE TABLE t{number} (id int);\n" for number in range(made, count)
        ))
        made = count
        curves.add("tables", "MariaDB: acquire", count, acquired(servers, "old/bench"))


# --- namespaces ----------------------------------------------------------------------------------


class Namespaces(MariaTables):
    """MariaDB with a schema for each namespace, and sysbench's own beside them."""

    def prepare(self):
        self.ask(f"SET GLOBAL max_connections = {MARIADB_CONNECTIONS};\n"
                 "GRANT ALL ON `g%`.* TO bench@'127.0.0.1';\n")
        self.made = 0
        self.load = sysbench.Load(self)
        self.load.fill(True)

    def schemas(self, count):
        """Makes schemas g0 and on until there are `count`; has the proxy meet each new one."""
        new = range(self.made, count)
        self.ask("".join(
            f"CREATE DATABASE g{number}; CREATE TABLE g{number}.t (id int);\n" for number in new
        ))
        port, _ = self.targets["fencewire"]
        command = ["mariadb", "--no-defaults", "-h", "127.0.0.1", "-P", str(port), "--skip-ssl"]
        ran = subprocess.run(
            [*command, "-u", "bench", "-pbench", "-N"],
            input="".join(f"USE g{number};\nSELECT count(*) FROM t;\n" for number in new),
            capture_output=True, text=True, check=False,
        )
        self.succeeded(ran, "visiting the schemas")
        self.made = count

    def cost(self):
        """CPU microseconds of the proxy per point select in sysbench's schema."""
        got = self.load.queries("fencewire", sysbench.POINT, 8, 3)
        return got and got.cpu_us

    def rss_mib(self):
        return machine.rss_kib(self.targets["fencewire"][1]) / 1024


def known_namespaces(curves, servers):
    servers.prepare()
    for count in curves.steps("namespaces"):
        servers.schemas(count)
        ask = servers.admin.ask
        curves.add("namespaces-cpu", "known", count, servers.cost())
        curves.add("namespaces-memory", "known", count, servers.rss_mib())
        for series, path in (("list of them", "/v1/namespaces"), ("metrics", "/metrics")):
            curves.add("namespaces-admin", series, count, milliseconds(lambda: ask("GET", path)))


def fenced_namespaces(curves, servers):
    """Fences pile up over the same schemas; then the proxy is started over all of them."""
    servers.prepare()
    up = 0
    for count in curves.steps("fenced namespaces"):
        servers.schemas(count)
        times = [servers.admin.acquire(f"old/g{number}")[1] for number in range(up, count)]
        up = count
        curves.add("fenced-time", "acquire of one more", count, median(times) * 1e3)
        curves.add("namespaces-cpu", "fenced", count, servers.cost())
        curves.add("namespaces-memory", "fenced", count, servers.rss_mib())
        begun = time.perf_counter()
        servers.restart(servers.settings_more)
        curves.add("fenced-time", "restart", count, (time.perf_counter() - begun) * 1e3)


# --- what is told --------------------------------------------------------------------------------

# curve: title, what is counted, unit, whether the upright axis is logarithmic
PLOTS = {
    "clients-rate": ("Active clients: pgbench -S prepared", "clients", "queries per second", False),
    "clients-cpu": ("Active clients: cost of a query", "clients", "CPU µs per query", False),
    "idle-latency": ("Idle clients held: a query on one", "sessions", "p50, µs", False),
    "idle-memory": ("Idle clients held: memory", "sessions", "MiB beyond none", True),
    "namespaces-cpu": (
        "Namespaces: sysbench point select in another", "namespaces", "CPU µs per query", False
    ),
    "namespaces-memory": ("Namespaces: memory of the proxy", "namespaces", "MiB", True),
    "namespaces-admin": ("Namespaces: answers of the admin API", "namespaces", "ms", True),
    "fenced-time": ("Fenced namespaces (engine lock held)", "fenced namespaces", "ms", True),
    "tables": ("Tables: acquire on an idle engine", "tables", "ms", True),
}


def written(curves, folder):
    """Writes the plots; the text for the document."""
    folder.mkdir(exist_ok=True)
    parts = []
    for name, (title, across, unit, log_y) in PLOTS.items():
        series = curves.points.get(name)
        if not series:
            continue
        svg = plot.lines(title, across, unit, series, log_y)
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
        parts += [f"![{title}: {unit} over {across}](plots/{name}.svg)", table(series, across)]
    parts += [f"Where it stopped: {'; '.join(curves.stops)}."] if curves.stops else []
    return "\n\n".join(parts)


def told(curves):
    """The curves without their plots: (title with the unit, (series, what is counted))."""
    for name, (title, across, unit, _) in PLOTS.items():
        if name in curves.points:
            yield f"{title}, {unit}", (curves.points[name], across)


def table(series, across):
    counts = sorted({x for points in series.values() for x, _ in points})
    rows = []
    for name, points in series.items():
        by_count = dict(points)
        rows.append([name, *(shown(by_count.get(count)) for count in counts)])
    return report.table([across, *(f"{count:,}" for count in counts)], rows)


def shown(value):
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def into_document(text):
    path = DOCS / "PERFORMANCE.md"
    document = path.read_text(encoding="utf-8")
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def as_far(work, curves, servers):
    """What the proxy won't do ends this curve, not the others."""
    try:
        work(curves, servers)
    except admin.Refused as refused:
        say(refused)
        curves.stops.append(f"{curves.step}: the proxy answered {refused.status} to {refused.path}")


def measure(given, played, about):
    """All curves; `played` is run.py's, `about` says what the machine is."""
    curves = Curves(100 if given.quick else max(COUNTS))
    names = ["fencewire", "bare relay"]
    todo = (
        (Tables, tables_postgres, ["direct", "fencewire"]),
        (MariaTables, tables_mariadb, ["direct", "fencewire"]),
        (Namespaces, known_namespaces, ["direct", "fencewire"]),
        (Namespaces, fenced_namespaces, ["direct", "fencewire"]),
        (idle.Servers, idle_clients, names),
        (Clients, active_clients, ["direct", *names]),
    )
    for kind, work, wanted in todo:
        played(given, kind, lambda _, servers, work=work: as_far(work, curves, servers), wanted)
    if given.quick or given.no_document:
        return "\n\n".join(f"{name}\n{table(*one)}" for name, one in told(curves))
    text = f"{about}\n\n{written(curves, DOCS / 'plots')}"
    into_document(text)
    return text

"""MariaDB under sysbench: its server, and point selects and reads/writes as loads."""

import os
import re
import shutil
import subprocess

import load as loads
import servers as servers_module

ACCOUNTS = """FLUSH PRIVILEGES;
CREATE USER fencewire@'127.0.0.1' IDENTIFIED BY 'fencewire';
GRANT SELECT, LOCK TABLES, SHOW VIEW, TRIGGER, EVENT, PROCESS ON *.* TO fencewire@'127.0.0.1';
GRANT BINLOG MONITOR, CONNECTION ADMIN ON *.* TO fencewire@'127.0.0.1';
CREATE USER bench@'127.0.0.1' IDENTIFIED BY 'bench';
CREATE DATABASE bench;
GRANT ALL ON bench.* TO bench@'127.0.0.1';
"""

SETTINGS = """[mysqld]
bind_address = 127.0.0.1
skip_name_resolve = ON
log_bin = binlog
binlog_format = ROW
server_id = 1
max_connections = 1200
innodb_buffer_pool_size = 512M
innodb_flush_log_at_trx_commit = 0
innodb_flush_method = nosync
innodb_doublewrite = OFF
sync_binlog = 0
"""

# name, sysbench's test, its options
POINT = ("sysbench point select, ps", "oltp_point_select", ["--db-ps-mode=auto"])
POINT_TEXT = ("sysbench point select, text", "oltp_point_select", ["--db-ps-mode=disable"])
READ_WRITE = ("sysbench read/write, ps", "oltp_read_write", ["--db-ps-mode=auto"])
READ_WRITE_TEXT = ("sysbench read/write, text", "oltp_read_write", ["--db-ps-mode=disable"])
LOADS = (POINT, POINT_TEXT, READ_WRITE, READ_WRITE_TEXT)
# A line of the histogram: the middle of a bucket in ms, a bar, and how many.
BUCKET = re.compile(r"^\s*([\d.]+) \|\**\s+(\d+)$", re.M)


def cells(quick):
    return [(one, clients) for one in LOADS for clients in ((1, 8) if quick else (1, 8, 32))]


class Servers(servers_module.Servers):
    """MariaDB and the relays before it."""

    scheme = "mysql"

    def engine_url(self):
        return f"mysql://fencewire:fencewire@127.0.0.1:{self.relay_to}/"

    def start_engine(self):
        server = servers_module.program("mariadbd", "/usr/sbin/mariadbd")
        install = servers_module.program("mariadb-install-db", "/usr/bin/mariadb-install-db")
        if server is None or install is None:
            raise SystemExit("make bench: no MariaDB server; run tools/setup.sh bench")
        data, port = self.path("data"), servers_module.free_port()
        options = servers_module.unprivileged()
        os.mkdir(data)
        for place in (self.folder, data):
            if options:
                os.chown(place, options["user"], options["group"])
        fast = ["--innodb-flush-method=nosync"]
        made = subprocess.run(
            [install, "--no-defaults", f"--datadir={data}", "--skip-test-db",
             "--skip-name-resolve", "--auth-root-authentication-method=normal", *fast],
            capture_output=True, text=True, check=False, cwd="/", **options,
        )
        self.succeeded(made, "mariadb-install-db")
        added = subprocess.run(
            [server, "--no-defaults", "--bootstrap", f"--datadir={data}", *fast],
            input=ACCOUNTS, capture_output=True, text=True, check=False, cwd="/", **options,
        )
        self.succeeded(added, "mariadbd --bootstrap")
        with open(self.path("my.cnf"), "w", encoding="ascii") as file:
            file.write(f"{SETTINGS}datadir = {data}\nport = {port}\n")
            file.write(f"socket = {self.path('sock')}\npid_file = {self.path('mysqld.pid')}\n")
        command = [server, f"--defaults-file={self.path('my.cnf')}"]
        self.engine = self.spawn("mariadb", command, **options)
        self.engine_port = self.relay_to = port
        self.wait_port("mariadb", self.engine, port)

    @staticmethod
    def succeeded(made, what):
        if made.returncode != 0:
            raise SystemExit(f"make bench: {what} failed:\n{made.stderr[-2000:]}")


class Load:
    """Runs sysbench against the targets of a Servers."""

    def __init__(self, servers):
        self.servers = servers
        self.rows = 0
        if shutil.which("sysbench") is None:
            raise SystemExit("make bench: no sysbench; run tools/setup.sh bench")

    def command(self, target, test, options):
        port, _ = self.servers.targets[target]
        return [
            "sysbench", test, "--db-driver=mysql", "--mysql-host=127.0.0.1",
            f"--mysql-port={port}", "--mysql-user=bench", "--mysql-password=bench",
            "--mysql-db=bench", "--tables=4", f"--table-size={self.rows}", *options,
        ]

    def fill(self, quick):
        """sysbench's tables."""
        self.rows = 10_000 if quick else 50_000
        made = subprocess.run(
            self.command("direct", "oltp_read_write", ["prepare"]),
            capture_output=True, text=True, check=False,
        )
        Servers.succeeded(made, "filling the tables")

    def connecting(self, target, clients):
        """What `clients` connections cost, each with one query; nothing where it failed."""
        more = [*POINT[2], f"--threads={clients}", f"--events={clients}", "--time=0", "run"]
        watch = loads.Watch(self.servers, target)
        run = subprocess.run(
            self.command(target, POINT[1], more), capture_output=True, check=False
        )
        cpu, _ = watch.read()
        return loads.Connecting(cpu, clients, 0.0) if run.returncode == 0 else loads.NOT_TAKEN

    def queries(self, target, load, clients, seconds, connecting=loads.NOT_TAKEN, log=False):
        """One run; None where it failed, with its words on stdout. As `load.Load.queries`."""
        _, test, options = load
        more = [*options, f"--threads={clients}", f"--time={seconds}", "--report-interval=0"]
        more += ["--histogram=on"] if log else []
        watch = loads.Watch(self.servers, target)
        run = subprocess.run(
            self.command(target, test, [*more, "run"]), capture_output=True, text=True, check=False
        )
        cpu, foreign = watch.read()
        found = re.search(r"queries:\s+(\d+)\s+\(([\d.]+) per sec", run.stdout)
        errors = re.search(r"ignored errors:\s+(\d+)", run.stdout)
        if run.returncode != 0 or not found or int(found[1]) == 0:
            print(f"make bench: {target}: sysbench failed: {(run.stdout + run.stderr)[-500:]}")
            return None
        queries = int(found[1])
        if errors and int(errors[1]) > queries / 100:
            print(f"make bench: {target}: {errors[1]} errors among {queries} queries")
        if queries > 2 * connecting.statements:
            cpu -= connecting.cpu_seconds
            queries -= connecting.statements
        latency = [in_histogram(BUCKET.findall(run.stdout), percent) for percent in (50, 99)]
        return loads.Run(float(found[2]), cpu / queries * 1e6, foreign, *latency)


def in_histogram(buckets, percent):
    """Microseconds; None without any. Buckets are 2 % apart."""
    left = sum(int(count) for _, count in buckets) * percent / 100
    for value, count in buckets:
        left -= int(count)
        if left <= 0:
            return float(value) * 1000
    return None

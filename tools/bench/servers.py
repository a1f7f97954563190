"""The servers under measurement: a throw-away PostgreSQL, and one process per relay before it.

Everything lives in one temporary folder and is stopped by `stop`. Servers that refuse to run as
root run as the user `postgres` then.
"""

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time

import machine

PATIENCE_S = 60
CONNECTIONS_MAX = 1200


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def program(name, *places):
    return shutil.which(name) or next((path for path in places if os.path.exists(path)), None)


def pg_bin():
    """The newest PostgreSQL's programs."""
    found = sorted(
        glob.glob("/usr/lib/postgresql/*/bin/postgres"), key=lambda path: int(path.split("/")[4])
    )
    here = shutil.which("postgres")
    if not found and not here:
        raise SystemExit("make bench: no PostgreSQL server; run tools/setup.sh bench")
    return os.path.dirname(found[-1] if found else here)


def unprivileged():
    """Arguments for Popen that make a child run as `postgres` when this is root."""
    if os.getuid() != 0:
        return {}
    entry = pwd.getpwnam("postgres")
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


class Servers:
    """All of them. `targets` maps a name to (port, pid); `direct` has the engine's."""

    def __init__(self, folder, fencewire, bare):
        self.folder = folder
        self.fencewire = fencewire
        self.bare = bare
        self.running = []
        self.targets = {}
        self.engine = None
        self.engine_port = None

    def start(self, names):
        """Starts the engine and the relays among `names` that can be had here."""
        self.start_engine()
        makers = {
            "direct": lambda: (self.engine_port, None),
            "fencewire": self.start_fencewire,
            "bare relay": self.start_bare,
            "HAProxy": self.start_haproxy,
            "PgBouncer": self.start_pgbouncer,
        }
        for name in names:
            made = makers[name]()
            if made is not None:
                self.targets[name] = made

    def path(self, name):
        return os.path.join(self.folder, name)

    def spawn(self, name, command, **options):
        with open(self.path(f"{name}.log"), "wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd="/", **options
            )
        # For tools/sweep.sh, should this program be killed: every command names the folder.
        with open(self.path(f"{name}.pid"), "w", encoding="ascii") as file:
            file.write(str(process.pid))
        self.running.append((name, process))
        return process

    def wait_port(self, name, process, port):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        with open(self.path(f"{name}.log"), encoding="utf-8", errors="replace") as log:
            raise SystemExit(f"make bench: {name} did not come up:\n{log.read()[-2000:]}")

    def start_engine(self):
        self.bin = pg_bin()
        data, port = self.path("data"), free_port()
        options = unprivileged()
        if options:
            os.chown(self.folder, options["user"], options["group"])
        made = subprocess.run(
            [f"{self.bin}/initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
             "--no-locale", "--no-sync"],
            capture_output=True, text=True, check=False, cwd="/", **options,
        )
        if made.returncode != 0:
            raise SystemExit(f"make bench: initdb failed:\n{made.stderr[-2000:]}")
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.folder,
            "max_connections": CONNECTIONS_MAX,
            "fsync": "off",
            "synchronous_commit": "off",
            "autovacuum": "off",
            "shared_buffers": "512MB",
            "max_wal_size": "4GB",
            "jit": "off",
        }
        command = [f"{self.bin}/postgres", "-D", data, "-p", str(port)]
        for key, value in settings.items():
            command += ["-c", f"{key}={value}"]
        self.engine = self.spawn("postgres", command, **options)
        self.engine_port = port
        self.wait_port("postgres", self.engine, port)

    # What clients and the proxy call the engine's protocol, and the control connection's URL.
    scheme = "postgres"

    def engine_url(self):
        return f"postgres://postgres@127.0.0.1:{self.engine_port}/postgres"

    def start_fencewire(self):
        port, admin = free_port(), free_port()
        state = self.path("state")
        os.mkdir(state)
        process = self.spawn("fencewire", [
            self.fencewire, "serve",
            "--listen", f"{self.scheme}://127.0.0.1:{port}",
            "--engine", f"old={self.engine_url()}",
            "--state-dir", state,
            "--admin", f"127.0.0.1:{admin}",
        ])
        self.wait_port("fencewire", process, port)
        return port, process.pid

    def start_bare(self):
        port = free_port()
        engine = f"127.0.0.1:{self.engine_port}"
        owner = f"--owner={self.folder}/"
        process = self.spawn("bare", [self.bare, f"127.0.0.1:{port}", engine, owner])
        self.wait_port("bare", process, port)
        return port, process.pid

    def start_haproxy(self):
        haproxy = program("haproxy", "/usr/sbin/haproxy")
        if haproxy is None:
            return None
        port = free_port()
        with open(self.path("haproxy.cfg"), "w", encoding="ascii") as file:
            file.write(
                f"global\n  nbthread {machine.CORES}\n  maxconn 4000\n"
                "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n"
                "  timeout server 1h\n"
                f"listen bench\n  bind 127.0.0.1:{port}\n"
                f"  server engine 127.0.0.1:{self.engine_port}\n"
            )
        process = self.spawn("haproxy", [haproxy, "-db", "-q", "-f", self.path("haproxy.cfg")])
        self.wait_port("haproxy", process, port)
        return port, process.pid

    def start_pgbouncer(self):
        pgbouncer = program("pgbouncer", "/usr/sbin/pgbouncer")
        if pgbouncer is None:
            return None
        port = free_port()
        with open(self.path("pgbouncer.ini"), "w", encoding="ascii") as file:
            file.write(
                "[databases]\n"
                # With `any`, the login to the engine is the one named here.
                f"* = host=127.0.0.1 port={self.engine_port} user=postgres\n"
                f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
                "auth_type = any\npool_mode = session\nmax_client_conn = 4000\n"
                "default_pool_size = 4000\nserver_reset_query =\nunix_socket_dir =\n"
                "log_connections = 0\nlog_disconnections = 0\nlog_stats = 0\n"
            )
        process = self.spawn(
            "pgbouncer", [pgbouncer, "-q", self.path("pgbouncer.ini")], **unprivileged()
        )
        self.wait_port("pgbouncer", process, port)
        return port, process.pid

    def stop(self):
        """Stops what was started, the engine last and fast."""
        for name, process in reversed(self.running):
            process.send_signal(signal.SIGINT if name == "postgres" else signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

"""The servers under measurement: a throw-away PostgreSQL, and one process per relay before it.

Everything lives in one temporary folder and is stopped by `stop`. Servers that refuse to run as
root run as the user `postgres` then.
"""

import glob
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import time

import client
import machine

PATIENCE_S = 60
CONNECTIONS_MAX = 1200
HERE = pathlib.Path(__file__).resolve().parent


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
        # Of a relay that has TLS on its port: another that has none.
        self.plain_ports = {}
        # Where relays lead to, where that isn't the engine.
        self.relay_to = None
        # As many clients as a process may have sockets for: some relays won't start with more.
        self.clients_max = machine.descriptors_max() // 2 - 100

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
        # Tables are filled by it, whether or not it is measured.
        self.targets.setdefault("direct", (self.engine_port, None))

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
        self.bin = self.programs()
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
        command = [f"{self.bin}/postgres", "-D", data, "-p", str(port)]
        for key, value in self.settings().items():
            command += ["-c", f"{key}={value}"]
        self.engine = self.spawn("postgres", command, **options)
        self.engine_port = self.relay_to = port
        self.wait_port("postgres", self.engine, port)

    def programs(self):
        """The folder of PostgreSQL's programs."""
        return pg_bin()

    def settings(self):
        """PostgreSQL's."""
        return {
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

    # What clients and the proxy call the engine's protocol, and the control connection's URL.
    scheme = "postgres"

    def engine_url(self):
        return f"postgres://postgres@127.0.0.1:{self.relay_to}/postgres"

    def start_fencewire(self, name="fencewire", engine='tls = "disable"', listen=""):
        """`engine` and `listen` are more lines for those tables of its configuration."""
        port, admin = free_port(), free_port()
        state = self.path(f"{name}-state")
        os.mkdir(state)
        with open(self.path(f"{name}.toml"), "w", encoding="ascii") as file:
            file.write(
                f'[proxy]\nstate_dir = "{state}"\nmax_sessions = {self.clients_max}\n'
                f'[admin]\nhttp = "127.0.0.1:{admin}"\n'
                f'[[engine]]\nname = "old"\nurl = "{self.engine_url()}"\n{engine}\n'
                f'[[listen]]\nprotocol = "{self.scheme}"\naddress = "127.0.0.1:{port}"\n'
                f'default_engine = "old"\n{listen}\n'
            )
        command = [self.fencewire, "serve", "--config", self.path(f"{name}.toml")]
        process = self.spawn(name, command)
        self.wait_port(name, process, port)
        return port, process.pid

    def start_bare(self):
        port = free_port()
        engine = f"127.0.0.1:{self.relay_to}"
        owner = f"--owner={self.folder}/"
        process = self.spawn("bare", [self.bare, f"127.0.0.1:{port}", engine, owner])
        self.wait_port("bare", process, port)
        return port, process.pid

    def start_haproxy(self, name="haproxy", bind="", server=""):
        """`bind` and `server` are more words for those lines; `plain_ports` has a port without."""
        haproxy = program("haproxy", "/usr/sbin/haproxy")
        if haproxy is None:
            return None
        port, plain = free_port(), free_port()
        with open(self.path(f"{name}.cfg"), "w", encoding="ascii") as file:
            file.write(
                f"global\n  nbthread {machine.CORES}\n  maxconn {self.clients_max}\n"
                "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n"
                "  timeout server 1h\n"
                f"listen bench\n  bind 127.0.0.1:{port} {bind}\n  bind 127.0.0.1:{plain}\n"
                f"  server engine 127.0.0.1:{self.relay_to} {server}\n"
            )
        process = self.spawn(name, [haproxy, "-db", "-q", "-f", self.path(f"{name}.cfg")])
        self.wait_port(name, process, port)
        self.plain_ports[port] = plain
        return port, process.pid

    def start_pgbouncer(self, name="pgbouncer", more=""):
        """`more` is lines of its configuration."""
        pgbouncer = program("pgbouncer", "/usr/sbin/pgbouncer")
        if pgbouncer is None:
            return None
        port = free_port()
        with open(self.path(f"{name}.ini"), "w", encoding="ascii") as file:
            file.write(
                "[databases]\n"
                # With `any`, the login to the engine is the one named here.
                f"* = host=127.0.0.1 port={self.relay_to} user=postgres\n"
                f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
                "auth_type = any\npool_mode = session\n"
                f"max_client_conn = {self.clients_max}\ndefault_pool_size = {self.clients_max}\n"
                # Its own default for this mode: the next client prepares the same names again.
                "server_reset_query = DISCARD ALL\nunix_socket_dir =\nlog_connections = 0\n"
                f"log_disconnections = 0\nlog_stats = 0\n{more}"
            )
        process = self.spawn(name, [pgbouncer, "-q", self.path(f"{name}.ini")], **unprivileged())
        self.wait_port(name, process, port)
        return port, process.pid

    def make_certificate(self):
        """Files of a key (P-256) and of a certificate of its own, readable to every server here."""
        key, certificate, both = map(self.path, ("tls.key", "tls.crt", "tls.pem"))
        made = subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext",
             "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
            capture_output=True, text=True, check=False,
        )
        if made.returncode != 0:
            raise SystemExit(f"make bench: openssl failed:\n{made.stderr[-2000:]}")
        with open(both, "w", encoding="ascii") as file:
            for part in (certificate, key):
                with open(part, encoding="ascii") as text:
                    file.write(text.read())
        options = unprivileged()
        if options:
            os.chown(key, options["user"], options["group"])
        return key, certificate

    def start_fencewire_tls(self, name="fencewire-tls", engine='tls = "disable"'):
        lines = f'tls = "allow"\ncert_file = "{self.certificate}"\nkey_file = "{self.key}"'
        return self.start_fencewire(name, engine, lines)

    def start_haproxy_tls(self, name="haproxy-tls", server=""):
        words = f"ssl crt {self.path('tls.pem')} alpn postgresql ssl-min-ver TLSv1.3"
        return self.start_haproxy(name, f"{words} ciphersuites {client.CIPHER}", server)

    def start_pgbouncer_tls(self, name="pgbouncer-tls", more=""):
        lines = f"client_tls_sslmode = allow\nclient_tls_key_file = {self.key}\n"
        lines += f"client_tls_cert_file = {self.certificate}\nclient_tls_protocols = tlsv1.3\n"
        return self.start_pgbouncer(name, lines + more)

    def stop(self):
        """Stops what was started, the engine last and fast."""
        for name, process in reversed(self.running):
            process.send_signal(signal.SIGINT if name == "postgres" else signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

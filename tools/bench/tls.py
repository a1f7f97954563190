"""Goal 7: TLS on the clients' side, on both sides, and its handshakes.

All programs are held to TLS 1.3, one cipher suite, one curve and one certificate (P-256): OpenSSL's
by a configuration file, the proxy's because its peers offer nothing else. HAProxy can't answer
PostgreSQL's SSLRequest, so clients begin with TLS at once there; that needs the clients and the
server of PostgreSQL 17 or later, which here all use. Behind the handshake there is no difference.
"""

import os
import re
import subprocess
from collections import namedtuple

import client
import load as loads
import servers as servers_module

CLIENTS_SIDE, BOTH_SIDES = "clients' side", "both sides"
SIDES = (CLIENTS_SIDE, BOTH_SIDES)
NAMES = ["fencewire", "HAProxy", "PgBouncer"]
# It has no TLS: what a plaintext connection costs a relay that looks at nothing.
BARE = "bare relay"
DIRECT_FROM = 17
OPENSSL = """openssl_conf = all
[all]
ssl_conf = ssl
[ssl]
system_default = held
[held]
MinProtocol = TLSv1.3
Ciphersuites = {cipher}
Groups = X25519
"""
# Connections that one handshakes' run keeps making.
CONNECTING = 4

# CPU microseconds per connection that asks once.
Shakes = namedtuple("Shakes", "cpu_us foreign")


def target(name, side):
    return f"{name}, {side}"


def newest():
    """The folder of the newest PostgreSQL's programs, and its number."""
    script = servers_module.HERE.parent / "postgresql18.sh"
    run = subprocess.run([script, "where"], capture_output=True, text=True, check=False)
    folder = os.environ.get("FENCEWIRE_TEST_PG18_BIN") or run.stdout.strip()
    if not os.path.exists(f"{folder}/pgbench"):
        folder = servers_module.pg_bin()
    said = subprocess.run([f"{folder}/postgres", "--version"], capture_output=True, text=True,
                          check=False).stdout
    return folder, int(re.search(r"(\d+)", said)[1])


class Servers(servers_module.Servers):
    """A PostgreSQL with TLS, and of each relay one process per side."""

    def programs(self):
        folder, self.version = newest()
        return folder

    def start_engine(self):
        self.key, self.certificate = self.make_certificate()
        with open(self.path("openssl.cnf"), "w", encoding="ascii") as file:
            file.write(OPENSSL.format(cipher=client.CIPHER))
        # Read by every program here that has OpenSSL: they are children of this one.
        os.environ["OPENSSL_CONF"] = self.path("openssl.cnf")
        super().start_engine()

    def settings(self):
        more = {"ssl": "on", "ssl_cert_file": self.certificate, "ssl_key_file": self.key}
        return {**super().settings(), **more}

    def start(self, names):
        super().start([name for name in names if name in ("direct", BARE)])
        pooler = "server_tls_sslmode = require\nserver_tls_protocols = tlsv1.3\n"
        # Without reuse every connection has its handshake, as the others'.
        engine = f"ssl verify none alpn postgresql ciphersuites {client.CIPHER} no-ssl-reuse"
        makers = {
            ("fencewire", CLIENTS_SIDE): lambda: self.start_fencewire_tls("fencewire-1"),
            ("fencewire", BOTH_SIDES):
                lambda: self.start_fencewire_tls("fencewire-2", 'tls = "require"'),
            ("PgBouncer", CLIENTS_SIDE): lambda: self.start_pgbouncer_tls("pgbouncer-1"),
            ("PgBouncer", BOTH_SIDES): lambda: self.start_pgbouncer_tls("pgbouncer-2", pooler),
            ("HAProxy", CLIENTS_SIDE): lambda: self.start_haproxy_tls("haproxy-1"),
            ("HAProxy", BOTH_SIDES): lambda: self.start_haproxy_tls("haproxy-2", engine),
        }
        for (name, side), make in makers.items():
            usable = name != "HAProxy" or self.version >= DIRECT_FROM
            made = make() if name in names and usable else None
            if made is not None:
                self.targets[target(name, side)] = made

    def stop(self):
        super().stop()
        os.environ.pop("OPENSSL_CONF", None)


class Load(loads.Load):
    """Runs pgbench over TLS against the targets of a Servers."""

    def __init__(self, servers):
        super().__init__(servers)
        self.pgbench, self.psql = f"{servers.bin}/pgbench", f"{servers.bin}/psql"
        self.plain = False

    def where(self, target):
        port, _ = self.servers.targets[target]
        words = "user=postgres dbname=postgres host=127.0.0.1"
        if self.plain:
            return [f"{words} port={self.servers.plain_ports.get(port, port)} sslmode=disable"]
        direct = " sslnegotiation=direct" if target.startswith("HAProxy") else ""
        return [f"{words} port={port} sslmode=require{direct}"]

    def check(self, target, side):
        """Whether the target speaks the one suite on the sides it should; says where it doesn't."""
        held = client.CIPHER
        ask = "SELECT coalesce(cipher, '') FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        command = [self.psql, "-XAtq", "-c", ask, *self.where(target)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        wanted = held if side == BOTH_SIDES else ""
        if run.returncode != 0 or run.stdout.strip() != wanted:
            print(f"make bench: {target}: left out: towards the engine {run.stdout.strip()!r}, "
                  f"not {wanted!r} {run.stderr[-300:]}")
            return False
        port, _ = self.servers.targets[target]
        begins = client.DIRECT if target.startswith("HAProxy") else client.ASKED
        try:
            client.session(port, begins).close()
        except OSError as error:
            print(f"make bench: {target}: left out: {error}")
            return False
        return True

    def handshakes(self, target, seconds, plain):
        """CPU of the relay per connection that asks once and goes, with TLS or `plain`."""
        self.plain = plain
        try:
            words = ["-S", "-C", "-M", "simple"]
            run = self.queries(target, ("", words, 1), CONNECTING, seconds)
        finally:
            self.plain = False
        return run and Shakes(run.cpu_us, run.foreign)

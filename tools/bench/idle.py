"""Goal 5: sessions that say nothing, in plaintext and with TLS on the clients' side.

Behind the relays is `stand_in.py`, which says what PostgreSQL said, since as many backends as there
are sessions would need more memory than the machine has. What a relay keeps for a session doesn't
depend on who answers.
"""

import random
import sys
import time
from collections import namedtuple
from statistics import quantiles

import client
import machine
import servers as servers_module

# sessions held, KiB of resident memory each; of `asked` of them, `answered`, p50 and p99 in us
Idle = namedtuple("Idle", "sessions kib asked answered p50_us p99_us")

ASKED = 100
# What a relay opens beyond two sockets per session: its listeners, its engine, its store.
DESCRIPTORS_SPARE = 200
PLAIN, TLS = "plaintext", "TLS"
# How each begins TLS. HAProxy can't answer an SSLRequest, so its clients begin with TLS at once.
BEGINS = {"fencewire": client.ASKED, "PgBouncer": client.ASKED, "HAProxy": client.DIRECT}


def sessions_max(wanted):
    """As many as a process may have sockets for: a relay has two per session."""
    return min(wanted, (machine.descriptors_max() - DESCRIPTORS_SPARE) // 2)


class Servers(servers_module.Servers):
    """The stand-in, and two processes of each relay that has TLS: one may not warm the other's."""

    def start_engine(self):
        super().start_engine()
        self.key, self.certificate = self.make_certificate()
        port = servers_module.free_port()
        script = servers_module.HERE / "stand_in.py"
        words = [str(script), str(port), str(self.engine_port), f"{self.folder}/"]
        process = self.spawn("stand-in", [sys.executable, *words])
        self.wait_port("stand-in", process, port)
        self.relay_to = port

    def start(self, names):
        super().start(names)
        makers = {
            "fencewire": self.start_fencewire_tls,
            "HAProxy": self.start_haproxy_tls,
            "PgBouncer": self.start_pgbouncer_tls,
        }
        for name in names:
            made = makers[name]() if name in makers else None
            if made is not None:
                self.targets[f"{name}, {TLS}"] = made


def measured(servers, name, side, wanted):
    """One target with `wanted` sessions; None where it failed.

    The first tenth as many are closed again before counting begins: with them come code pages and
    tables that later ones share.
    """
    target = name if side == PLAIN else f"{name}, {side}"
    port, pid = servers.targets[target]
    begins = None if side == PLAIN else BEGINS[name]
    context = client.context()
    held = []
    try:
        for link in [client.session(port, begins, context) for _ in range(wanted // 10)]:
            link.close()
        before = machine.rss_kib(pid)
        for _ in range(wanted):
            held.append(client.session(port, begins, context))
        kib = (machine.rss_kib(pid) - before) / wanted
        times = served(random.Random(7).sample(held, min(ASKED, wanted)))
        cuts = quantiles(times, n=100)
        return Idle(wanted, kib, ASKED, len(times), cuts[49], cuts[98])
    except OSError as error:
        print(f"make bench: {target}: {len(held)} idle sessions, then: {error}")
        return None
    finally:
        for link in held:
            link.close()


def served(links):
    """Microseconds that a query takes on each, one after another."""
    times = []
    for link in links:
        begun = time.monotonic()
        client.asked(link, "SELECT 1")
        times.append((time.monotonic() - begun) * 1e6)
    return times

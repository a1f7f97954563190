"""Goal 4: much at once. COPY TO and a SELECT of a million rows, and one value of a gigabyte.

The client reads bytes and keeps none, so that the relay's share shows. The value goes both ways: as
the one column of a row, and as the parameter of a prepared statement.
"""

import time
from collections import namedtuple

import client
import load as loads
import machine

# cpu_per_gb is the relay's, in seconds (0 for direct); a GB is 10^9 bytes as they went by.
Bulk = namedtuple("Bulk", "mb_per_second cpu_per_gb foreign")

ROWS = 1_000_000
# Not a stored table: rows of about 100 bytes.
ROW_SQL = "SELECT n, n % 100, repeat('x', 88) FROM generate_series(1000001, {last}) AS n"
# name, statement, how many times as many rows: a COPY of a million would be over too soon.
WAYS = (
    ("COPY TO, 2 million rows", "COPY (" + ROW_SQL + ") TO STDOUT", 2),
    ("SELECT, 1 million rows", ROW_SQL, 1),
)
VALUE_BYTES = 1_000_000_000
# A value passes in bounded memory when the relay's peak grows by no more than this.
PEAK_MIB_MAX = 8


class Load(loads.Load):
    """Runs bulk loads against the targets of a Servers."""

    def bulk(self, target, sql, rows):
        """One answer of `rows` rows, counted and thrown away; None where it failed."""
        port, _ = self.servers.targets[target]
        try:
            with client.connected(port) as link:
                link.sendall(client.startup())
                client.until_ready(link)
                watch = loads.Watch(self.servers, target)
                begun = time.monotonic()
                link.sendall(client.query(sql.format(last=1_000_000 + rows)))
                size = client.counted(link)
                seconds = time.monotonic() - begun
                cpu, foreign = watch.read()
        except OSError as error:
            print(f"make bench: {target}: bulk failed: {error}")
            return None
        return Bulk(size / 1e6 / seconds, cpu / (size / 1e9), foreign)

    def value(self, target, size, upward):
        """MiB by which the relay's peak of memory grows while a value of `size` bytes passes."""
        port, pid = self.servers.targets[target]
        try:
            with client.session(port) as link:
                before = machine.peak_from_here(pid)
                if upward:
                    client.give_value(link, size)
                else:
                    link.sendall(client.query(f"SELECT repeat('x', {size})"))
                    if client.counted(link) < size:
                        raise OSError("less came than was asked for")
                return (machine.peak_kib(pid) - before) / 1024
        except OSError as error:
            print(f"make bench: {target}: a value of {size} bytes failed: {error}")
            return None

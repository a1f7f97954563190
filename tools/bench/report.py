"""Figures into tables: text for people, the same as Markdown for docs/PERFORMANCE.md."""

from statistics import median

import verdicts

BEGIN = "<!-- figures of `make bench`: written by tools/bench, not by hand -->"
END = "<!-- end of the figures -->"


def table(head, rows):
    """A Markdown table, padded so that it reads as text too."""
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = []
    for number, row in enumerate(cells):
        padded = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ]
        lines.append("| " + " | ".join(padded) + " |")
        if number == 0:
            rules = [("-" * w if i == 0 else "-" * (w - 1) + ":") for i, w in enumerate(widths)]
            lines.append("| " + " | ".join(rules) + " |")
    return "\n".join(lines)


def middle(runs, field):
    """The median of one field over the runs that worked, or None."""
    values = [getattr(run, field) for run in runs if run is not None]
    return median(values) if values else None


def number(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}"


def spread(runs):
    """Lowest to highest foreign CPU share, in percent."""
    shares = [run.foreign * 100 for run in runs if run is not None]
    return f"{min(shares):.0f} to {max(shares):.0f}" if shares else "-"


def relays_of(names):
    return [name for name in names if name != "direct"]


def share(ours, theirs):
    return number(ours / theirs, 2) if ours and theirs else "-"


def queries(cells, names, book):
    """`cells` is {(load, clients): {target: [Run]}}. Two tables: CPU (goal 1), throughput (3)."""
    relays = relays_of(names)
    cpu, rate = [], []
    for (load, clients), by_target in cells.items():
        row = f"{load}, {clients}"
        medians = {name: middle(by_target.get(name, []), "cpu_us") for name in relays}
        ratio = share(medians.get("fencewire"), medians.get("bare relay"))
        every = [run for runs in by_target.values() for run in runs]
        word = book.add("1", row, verdicts.cpu(medians))
        cells_of = [number(medians[name], 2) for name in relays]
        cpu.append([row, *cells_of, ratio, word, spread(every)])
        rates = {name: middle(by_target.get(name, []), "per_second") for name in names}
        shares = [share(rates[name], rates.get("direct")) for name in relays]
        word = book.add("3", f"{row}: rate", verdicts.rate(rates))
        rate.append([row, number(rates.get("direct"), 0), *shares, word])
    return (
        table(["load, clients", *relays, "fencewire / bare", "goal 1", "foreign CPU %"], cpu),
        table(["load, clients", "direct, per s", *relays, "goal 3"], rate),
    )


def latency(cells, names, book):
    """Of the cells of one client: microseconds, and what each relay adds to direct."""
    relays = relays_of(names)
    rows = []
    for (load, clients), by_target in cells.items():
        for field, shown in (("p50_us", "p50"), ("p99_us", "p99")):
            medians = {name: middle_of_known(by_target.get(name, []), field) for name in names}
            direct = medians.get("direct")
            if clients != 1 or direct is None:
                continue
            added = {
                name: None if medians[name] is None else medians[name] - direct for name in relays
            }
            row = f"{load}, {clients}: {shown}"
            word = book.add("3", row, verdicts.added(added.get("fencewire"), added.get("HAProxy")))
            rows.append([row, number(direct, 0), *(number(added[name]) for name in relays), word])
    return table(["added at one client, us", "direct", *relays, "goal 3"], rows)


def middle_of_known(runs, field):
    return middle([run for run in runs if run is not None and getattr(run, field) is not None],
                  field)


def bulk(ways, names, book):
    """`ways` is {what: {target: [Bulk]}}."""
    relays = relays_of(names)
    rows = []
    for way, runs in ways.items():
        cost = {name: middle(runs.get(name, []), "cpu_per_gb") for name in relays}
        ours, haproxy = cost.get("fencewire"), cost.get("HAProxy")
        word = book.add("4", way, verdicts.above(ours, [("HAProxy", haproxy, 1.0)]))
        every = [run for got in runs.values() for run in got]
        cells = [number(cost[name], 3) for name in relays]
        ratio = share(ours, haproxy)
        rows.append([f"{way}: CPU s per GB", "-", *cells, ratio, word, spread(every)])
        rates = [number(middle(runs.get(name, []), "mb_per_second"), 0) for name in names]
        if "direct" not in names:
            rates = ["-", *rates]
        rows.append([f"{way}: MB per s", *rates, "", "", ""])
    head = ["bulk", "direct", *relays, "fencewire / HAProxy", "goal 4", "foreign CPU %"]
    return table(head, rows)


def values(figures, names, most, book):
    """`figures` is {way: {target: MiB by which the peak of memory grew}}."""
    relays = relays_of(names)
    rows = []
    for way, grown in figures.items():
        ours = grown.get("fencewire")
        misses = None if ours is None else [f"{ours:.1f} MiB"] if ours > most else []
        word = book.add("4", way, misses)
        rows.append([way, *(number(grown.get(name)) for name in relays), word])
    return table(["peak of memory, MiB more", *relays, f"goal 4: {most} MiB"], rows)


def idle(figures, wanted, book):
    """`figures` is {(target, side): Idle or None}; `wanted` is {side: (sessions, KiB)}."""
    rows = []
    for (name, side), one in figures.items():
        row = f"{name}, {side}"
        word = ""
        if name == "fencewire":
            word = book.add("5", row, idle_misses(one, *wanted[side]))
        if one is None:
            rows.append([row, *["-"] * 5, word])
            continue
        answered = f"{one.answered} of {one.asked}"
        times = [number(one.p50_us, 0), number(one.p99_us, 0)]
        rows.append([row, one.sessions, number(one.kib, 2), answered, *times, word])
    head = ["idle sessions", "held", "KiB of RSS each", "answered", "p50 us", "p99 us", "goal 5"]
    return table(head, rows)


def idle_misses(one, sessions, kib):
    if one is None:
        return ["failed"]
    misses = [f"{one.kib:.1f} KiB"] if round(one.kib, 1) > kib else []
    # A machine may not let a process have sockets enough: a hundredth fewer is said, not judged.
    misses += [f"{one.sessions} held"] if one.sessions < sessions * 0.99 else []
    return misses + ([f"{one.answered} answered"] if one.answered < one.asked else [])


def tls(cells, names, book):
    """`cells` is {row: {name: [Run]}}: CPU microseconds per query."""
    rows = [tls_row(row, row, runs, names, book) for row, runs in cells.items()]
    return table(["TLS on", *names, "goal 7", "foreign CPU %"], rows)


def handshakes(cells, names, book):
    """`cells` is {way: {name: [Shakes]}}: CPU microseconds, and what a core could do of it."""
    rows = []
    for way, runs in cells.items():
        rows.append(tls_row(f"{way}: CPU us", f"a connection, {way}", runs, names, book))
        medians = [middle(runs.get(name, []), "cpu_us") for name in names]
        rates = [number(1e6 / one, 0) if one else "-" for one in medians]
        rows.append([f"{way}: per second and core", *rates, "", ""])
    return table(["connections", *names, "goal 7", "foreign CPU %"], rows)


def tls_row(shown, judged, runs, names, book):
    medians = {name: middle(runs.get(name, []), "cpu_us") for name in names}
    others = [(name, medians.get(name), 1.0) for name in ("HAProxy", "PgBouncer")]
    word = book.add("7", judged, verdicts.above(medians.get("fencewire"), others))
    every = [run for got in runs.values() for run in got]
    return [shown, *(number(medians[name], 1) for name in names), word, spread(every)]


# What connecting once may take of one group of system calls.
CONNECTING_CALLS = 60
GROUPS = {
    "receive": ("recvfrom", "read", "readv", "recvmsg"),
    "send": ("sendto", "write", "writev", "sendmsg"),
    "wait": ("epoll_wait", "epoll_pwait", "epoll_pwait2", "poll"),
    "futex": ("futex",),
    "clock": ("clock_gettime", "gettimeofday"),
}


def system_calls(figures, names, transactions, book):
    """`figures` is {(load, clients): {target: {call: per query}}}."""
    spare = CONNECTING_CALLS / transactions
    rows = []
    for (load, clients), by_target in figures.items():
        for name in names:
            calls = by_target.get(name)
            if not calls:
                continue
            groups = [sum(calls.get(call, 0) for call in wanted) for wanted in GROUPS.values()]
            rest = sum(calls.values()) - sum(groups)
            cells = [number(value, 2) for value in [*groups, rest, sum(calls.values())]]
            word = ""
            if name == "fencewire" and clients == 1:
                by_group = dict(zip(GROUPS, groups))
                word = book.add("2", f"{load}, 1", verdicts.calls(by_group, spare))
            rows.append([f"{load}, {clients}: {name}", *cells, word])
    if not rows:
        return "System calls: strace isn't here, or may not trace."
    return table(["system calls per query", *GROUPS, "other", "all", "goal 2"], rows)


def into_document(path, text):
    """Replaces what is between the marks in the document."""
    with open(path, encoding="utf-8") as file:
        document = file.read()
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")

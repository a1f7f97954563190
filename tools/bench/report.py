"""Figures into tables: text for people, the same as Markdown for docs/PERFORMANCE.md."""

from statistics import median

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


def queries(cells, names):
    """`cells` is {(load, clients): {target: [Run]}}. Two tables: CPU, throughput."""
    relays = [name for name in names if name != "direct"]
    cpu, rate = [], []
    for (load, clients), by_target in cells.items():
        medians = {name: middle(by_target.get(name, []), "cpu_us") for name in relays}
        ours, bare = medians.get("fencewire"), medians.get("bare relay")
        ratio = number(ours / bare, 2) if ours and bare else "-"
        every = [run for runs in by_target.values() for run in runs]
        row = [f"{load}, {clients}", *(number(medians[name], 2) for name in relays)]
        cpu.append([*row, ratio, spread(every)])
        rates = {name: middle(by_target.get(name, []), "per_second") for name in names}
        row = [f"{load}, {clients}", number(rates.get("direct"), 0)]
        for name in relays:
            share = rates[name] / rates["direct"] if rates[name] and rates["direct"] else None
            row.append(number(share, 2))
        rate.append(row)
    return (
        table(["load, clients", *relays, "fencewire / bare", "foreign CPU %"], cpu),
        table(["load, clients", "direct, per s", *relays], rate),
    )


def bulk(runs, names):
    rows = []
    for name in names:
        got = runs.get(name, [])
        cost = None if name == "direct" else middle(got, "cpu_per_gb")
        rows.append([name, number(cost, 2), number(middle(got, "mb_per_second"), 0), spread(got)])
    return table(["COPY TO", "CPU s per GB", "MB per s", "foreign CPU %"], rows)


def idle(figures, names):
    rows = [[name, number(figures.get(name))] for name in names if name != "direct"]
    return table(["idle sessions", "KiB of RSS each"], rows)


GROUPS = {
    "receive": ("recvfrom", "read", "readv", "recvmsg"),
    "send": ("sendto", "write", "writev", "sendmsg"),
    "wait": ("epoll_wait", "epoll_pwait", "epoll_pwait2", "poll"),
    "futex": ("futex",),
    "clock": ("clock_gettime", "gettimeofday"),
}


def system_calls(figures, names):
    """`figures` is {(load, clients): {target: {call: per query}}}."""
    rows = []
    for (load, clients), by_target in figures.items():
        for name in names:
            calls = by_target.get(name)
            if not calls:
                continue
            groups = [sum(calls.get(call, 0) for call in wanted) for wanted in GROUPS.values()]
            rest = sum(calls.values()) - sum(groups)
            cells = [number(value, 2) for value in [*groups, rest, sum(calls.values())]]
            rows.append([f"{load}, {clients}: {name}", *cells])
    if not rows:
        return "System calls: strace isn't here, or may not trace."
    return table(["system calls per query", *GROUPS, "other", "all"], rows)


def into_document(path, text):
    """Replaces what is between the marks in the document."""
    with open(path, encoding="utf-8") as file:
        document = file.read()
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")

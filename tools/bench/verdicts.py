"""Whether a figure meets the issue's goal: a word for the row, and a line per goal.

Pure. Ratios are judged as they are shown, by two places behind the point: a miss that can't be
read in its row is none.
"""

MISSING = "-"
# Rows that the line of a goal names.
SHOWN_MAX = 3

# What each goal asks, in the words of its tables.
GOALS = {
    "1": "CPU per query: 1.05 of the bare relay, HAProxy's, PgBouncer's where below the bare one's",
    "2": "system calls at 1 client: 2 receives, 2 sends, 2 waits, no futex, no clock",
    "3": "queries per second: HAProxy's and PgBouncer's; added latency at 1 client: HAProxy's",
    "4": "bulk: CPU per GB at most HAProxy's; a value of 1 GB in bounded memory",
    "5": "idle: 4 KiB a session, 40 KiB with TLS; 10,000 held and served",
    "7": "TLS: CPU per query and per connection at most HAProxy's and PgBouncer's",
    "8": "under a fence: 10,000 refused writes per second and core; reads at 0.70 of unfenced",
    "9": "acquire, beyond the transactions in flight: p50 under 20 ms, p99 under 100 ms",
}


class Book:
    """Collects what was judged."""

    def __init__(self):
        # {goal: [(row, misses)]}
        self.judged = {}

    def add(self, goal, row, misses):
        """The word for the row. `misses` is None where nothing could be compared."""
        if misses is None:
            return MISSING
        self.judged.setdefault(goal, []).append((row, misses))
        return "met" if not misses else "not met: " + ", ".join(misses)

    def lines(self):
        """One line per goal: what it asks, whether all rows met it, and the first that did not."""
        found = []
        for goal in sorted(self.judged, key=int):
            judged = self.judged[goal]
            missed = [f"{row} ({', '.join(misses)})" for row, misses in judged if misses]
            verdict = "**met**" if not missed else "**not met**"
            line = f"- Goal {goal}, {GOALS.get(goal, 'no words for it')}: {verdict}, "
            line += f"{len(judged) - len(missed)} of {len(judged)} rows"
            if missed:
                line += "; missed by " + "; ".join(missed[:SHOWN_MAX])
                line += f"; {len(missed) - SHOWN_MAX} more" if missed[SHOWN_MAX:] else ""
            found.append(line + ".")
        return found


def above(ours, bounds):
    """The bounds that `ours` exceeds, as "name ratio"; None where there is nothing to compare.

    `bounds` is [(name, figure or None, share of it that is allowed)].
    """
    return compared(ours, bounds, lambda ratio, allowed: ratio > allowed)


def below(ours, bounds):
    """The bounds that `ours` falls short of; otherwise as `above`."""
    return compared(ours, bounds, lambda ratio, allowed: ratio < allowed)


def compared(ours, bounds, missed):
    known = [(name, figure, allowed) for name, figure, allowed in bounds if figure]
    if ours is None or not known:
        return None
    ratios = [(name, round(ours / figure, 2), allowed) for name, figure, allowed in known]
    return [f"{name} {ratio:.2f}" for name, ratio, allowed in ratios if missed(ratio, allowed)]


def cpu(medians):
    """Goal 1: {target: microseconds per query} against its yardsticks."""
    bare, pooler = medians.get("bare relay"), medians.get("PgBouncer")
    bounds = [("bare", bare, 1.05), ("HAProxy", medians.get("HAProxy"), 1.0)]
    if bare and pooler and pooler < bare:
        bounds.append(("PgBouncer", pooler, 1.0))
    return above(medians.get("fencewire"), bounds)


def rate(medians):
    """Goal 3: {target: queries per second}."""
    others = [(name, medians.get(name), 1.0) for name in ("HAProxy", "PgBouncer")]
    return below(medians.get("fencewire"), others)


def added(ours, haproxy):
    """Goal 3: microseconds added at one client, p50 or p99. None where one is unknown.

    Differences may be nothing or less than nothing on a noisy machine, so no ratio is taken.
    """
    if ours is None or haproxy is None:
        return None
    ours, haproxy = round(ours, 1), round(haproxy, 1)
    return [f"{ours - haproxy:.1f} us over HAProxy"] if ours > haproxy else []


def calls(groups, spare):
    """Goal 2 at one client: {group: calls per query}, of which connecting made up to `spare`."""
    allowed = {"receive": 2, "send": 2, "wait": 2, "futex": 0, "clock": 0}
    over = [name for name, most in allowed.items() if groups[name] > most + spare]
    return [f"{name} {groups[name]:.2f}" for name in over]


def refused(per_core):
    """Goal 8: refused writes per second and core."""
    if per_core is None:
        return None
    return [f"{per_core:.0f} refused"] if per_core < 10_000 else []


def guarded(fenced, unfenced):
    """Goal 8: reads per second under a fence."""
    return below(fenced, [("unfenced", unfenced, 0.7)])


def acquire(p50_ms, p99_ms):
    """Goal 9: milliseconds beyond what was in flight."""
    if p50_ms is None or p99_ms is None:
        return None
    bounds = (("p50", p50_ms, 20), ("p99", p99_ms, 100))
    return [f"{name} {ms:.0f} ms" for name, ms, most in bounds if ms >= most]

"""Goal 1 by pairs: the proxy's CPU per query beside the bare relay's, run by run.

A part of its own, asked for by `--only pairs`: two targets, four times the rounds. Each round has
one run of either for each load, one behind the other, and gives one ratio; what a neighbour of the
machine takes is in both, as a rule. The median of the ratios is judged, and half of them lie
between the quartiles beside it: where the goal lies there too, the row decides nothing.
"""

from statistics import median, quantiles

import report

PARTS = {"pairs"}
NAMES = ["fencewire", "bare relay"]
# As a rule, and for a quick look.
ROUNDS = (12, 3)
# Of the bare relay's CPU per query.
ALLOWED = 1.05
HEAD = ["load, clients", "pairs", "lower quartile", "median", "upper quartile", "goal 1, bare"]


def ratios(by_target):
    """One ratio for each round in which both ran."""
    ours, bare = (by_target.get(name, []) for name in NAMES)
    both = [pair for pair in zip(ours, bare) if None not in pair]
    return [one.cpu_us / other.cpu_us for one, other in both if other.cpu_us > 0]


def table(cells):
    """`cells` is {(load, clients): {target: [Run]}}, whose runs of one round stand in one place."""
    rows = []
    for (load, clients), by_target in cells.items():
        found = ratios(by_target)
        if len(found) < 2:
            rows.append([f"{load}, {clients}", len(found), "-", "-", "-", "-"])
            continue
        low, _, high = quantiles(found, n=4)
        rows.append([f"{load}, {clients}", len(found), *map(shown, (low, median(found), high)),
                     word(low, median(found), high)])
    return report.table(HEAD, rows)


def shown(ratio):
    return report.number(ratio, 2)


def word(low, middle, high):
    """Judged as it is shown, by two places behind the point."""
    low, middle, high = (round(ratio, 2) for ratio in (low, middle, high))
    said = "met" if middle <= ALLOWED else "not met"
    return said if (low <= ALLOWED) == (high <= ALLOWED) else f"{said}, but within the quartiles"

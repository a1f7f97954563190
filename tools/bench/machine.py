"""What the machine says: CPU time of processes, of everything else, memory, and what it is.

CPU time of a process is user + system of all its threads. The scheduler's nanoseconds are taken
where the kernel has them (schedstat), because a short run is few of /proc/PID/stat's ticks; a
thread that ended in between is missing there, so the larger of the two sums counts.
"""

import os
import platform
import resource
import subprocess

TICK = 1 / os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1
DESCRIPTORS_WANTED = 32768


def stat_fields(pid):
    """/proc/PID/stat behind the name, or None when the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None


def cpu_seconds(pid):
    """User + system time of a process so far, all threads."""
    fields = stat_fields(pid)
    if fields is None:
        return 0.0
    ticks = (int(fields[11]) + int(fields[12])) * TICK
    exact = 0.0
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
                exact += int(file.read().split()[0]) / 1e9
    except (OSError, IndexError, ValueError):
        return ticks
    return exact if exact > ticks - 2 * TICK else ticks


def tree_seconds(pid):
    """CPU time of a process, its living children, and the children it has buried."""
    fields = stat_fields(pid)
    if fields is None:
        return 0.0
    total = sum(int(field) for field in fields[11:15]) * TICK
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            child = stat_fields(entry)
            if child is not None and int(child[1]) == pid:
                total += (int(child[11]) + int(child[12])) * TICK
    return total


def busy_seconds():
    """CPU time the whole machine has spent since boot, stolen time included."""
    with open("/proc/stat", encoding="ascii") as file:
        numbers = [int(number) for number in file.readline().split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = numbers
    return (user + nice + system + irq + softirq + steal) * TICK


def status_kib(pid, name):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith(name):
                return int(line.split()[1])
    return 0


def rss_kib(pid):
    """Resident memory of a process, KiB."""
    return status_kib(pid, "VmRSS:")


def peak_kib(pid):
    """The most resident memory that a process has had since `peak_from_here`, KiB."""
    return status_kib(pid, "VmHWM:")


def peak_from_here(pid):
    """Makes the kernel forget the peak so far; the memory of now, KiB."""
    with open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    return rss_kib(pid)


def descriptors_max():
    """How many files a process may have open, this program's limit raised as far as it goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else hard
    most = max(soft, min(most, DESCRIPTORS_WANTED))
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def said(*command):
    """The first line a command prints, or '?'."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "?"
    lines = (run.stdout or run.stderr).splitlines()
    return lines[0].strip() if lines else "?"


def description(pg_bin, haproxy, pgbouncer, mariadb):
    """The machine and the versions, as (name, value) pairs."""
    model, memory = "?", 0
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    with open("/proc/meminfo", encoding="ascii") as file:
        memory = int(file.readline().split()[1]) / (1 << 20)
    pairs = [
        ("CPU", f"{model}, {CORES} cores"),
        ("memory", f"{memory:.0f} GiB"),
        ("kernel", platform.release()),
        ("PostgreSQL", said(f"{pg_bin}/postgres", "--version").split(" ")[2]),
        ("Rust", said("rustc", "--version").split("(")[0].strip()),
    ]
    if haproxy:
        pairs.append(("HAProxy", said(haproxy, "-v").split(" ")[2]))
    if pgbouncer:
        pairs.append(("PgBouncer", said(pgbouncer, "--version").split(" ")[-1]))
    if mariadb:
        words = said(mariadb, "--no-defaults", "--version").split("Ver ")[-1]
        pairs.append(("MariaDB", words.split("-")[0]))
        pairs.append(("sysbench", said("sysbench", "--version").split(" ")[-1]))
    pairs.append(("commit", commit()))
    return pairs


def commit():
    """The commit that is checked out, and whether files differ from it."""
    changed = said("git", "status", "--porcelain", "--untracked-files=no")
    return said("git", "rev-parse", "--short", "HEAD") + (" and changes" if changed else "")

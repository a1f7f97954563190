"""What the Python driver scripts share: waiting for levels, and the two ways a script is run.

SCRIPT work    the driver's usual work; ends with "ok"
SCRIPT fence   says "ready", goes on when the caller has raised a write fence and sent a line; tries
               writes, says how many it tried; goes on when the fence is down; ends with "ok"
"""

import sys
import time
import traceback


def raises(kind, action):
    try:
        action()
    except kind as error:
        return error
    raise AssertionError(f"{kind} was expected")


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "a condition didn't become true"
        time.sleep(0.02)


def tell(*words):
    """Says where the script stands, and waits for the caller's line."""
    print(*words, flush=True)
    assert sys.stdin.readline(), "the caller is gone"


def run(work, fence):
    try:
        {"work": work, "fence": fence}[sys.argv[1]]()
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
    print("ok")


# A statement that stands still until it is cancelled, and how another session sees that it does.
SLEEP = "SELECT pg_sleep(600)"
ASLEEP = "SELECT count(*) FROM pg_stat_activity WHERE pid = {} AND wait_event = 'PgSleep'"
BIG = 1_000_000

"""Alembic over SQLAlchemy, with psycopg 3 or PyMySQL: revisions of its own.

SCRIPT first     brings the first revision
SCRIPT refused   tries to go up and down under a fence; says the code of each refusal
SCRIPT rest      brings the second
SCRIPT slowly    runs a revision that stops half way until the caller goes on; says what came of it
"""

import os
import sys
import traceback

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy import exc

HERE = os.path.dirname(os.path.abspath(__file__))


def url():
    given = os.environ["MIGRATE_URL"]
    if given.startswith("postgresql"):
        return given
    return sa.URL.create(given, "app", "app", "127.0.0.1", int(os.environ["FENCEWIRE_MY_PORT"]),
                         os.environ["FENCEWIRE_MY_DB"])


def config():
    made = Config()
    made.set_main_option("script_location", os.path.join(HERE, "alembic_site"))
    made.attributes["engine"] = sa.create_engine(url(), poolclass=sa.pool.NullPool)
    return made


def code(error):
    """A driver's own: an SQLSTATE, or the number where the driver keeps none."""
    return getattr(error.orig, "sqlstate", None) or error.orig.args[0]


def refusal(action, *arguments):
    try:
        action(config(), *arguments)
    except exc.DBAPIError as error:
        return code(error)
    raise AssertionError("a refusal was expected")


def refused():
    print(refusal(command.upgrade, "second"), refusal(command.downgrade, "base"), flush=True)


def slowly():
    try:
        command.upgrade(config(), "slow")
    except exc.DBAPIError as error:
        print(code(error), flush=True)
    else:
        print("done", flush=True)


WAYS = {
    "first": lambda: command.upgrade(config(), "first"),
    "refused": refused,
    "rest": lambda: command.upgrade(config(), "second"),
    "slowly": slowly,
}

try:
    WAYS[sys.argv[1]]()
except BaseException:
    traceback.print_exc()
    sys.exit(1)

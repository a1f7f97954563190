"""Django's migrations over psycopg 3, in the ways of `alembic_migrate.py` (but for `slowly`)."""

import os
import sys
import traceback

import django
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["shop"],
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["PGDATABASE"],
        "USER": os.environ["PGUSER"],
        "PASSWORD": os.environ["PGPASSWORD"],
        "HOST": os.environ["PGHOST"],
        "PORT": os.environ["PGPORT"],
    }},
    USE_TZ=True,
)
django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import DatabaseError  # noqa: E402


def migrate(*arguments):
    call_command("migrate", *arguments, verbosity=0)


def refusal(*arguments):
    try:
        migrate(*arguments)
    except DatabaseError as error:
        return error.__cause__.sqlstate
    raise AssertionError("a refusal was expected")


def refused():
    print(refusal(), refusal("shop", "zero"), flush=True)


WAYS = {"first": lambda: migrate("shop", "0001"), "refused": refused, "rest": migrate}

try:
    WAYS[sys.argv[1]]()
except BaseException:
    traceback.print_exc()
    sys.exit(1)

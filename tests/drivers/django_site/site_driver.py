"""Django over psycopg 3: migrations of its own apps and ours, the ORM, its transactions."""

import os
import sys

import django
from django.conf import settings

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from steps import BIG, raises, run, tell  # noqa: E402

settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "shop"],
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["PGDATABASE"],
        "USER": os.environ["PGUSER"],
        "PASSWORD": os.environ["PGPASSWORD"],
        "HOST": os.environ["PGHOST"],
        "PORT": os.environ["PGPORT"],
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": True,
        # Prepared statements, as sites with many like queries switch them on.
        "OPTIONS": {"server_side_binding": True, "prepare_threshold": 0},
    }},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
)
django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import DatabaseError, DataError, IntegrityError  # noqa: E402
from django.db import OperationalError, close_old_connections, connection, transaction  # noqa: E402
from django.db.models import F, Sum  # noqa: E402
from shop.models import Item  # noqa: E402


def migrate():
    call_command("migrate", verbosity=0)
    call_command("migrate", "shop", "0001", verbosity=0)
    call_command("migrate", verbosity=0)
    call_command("migrate", check_unapplied=True, verbosity=0)
    assert "shop_item" in connection.introspection.table_names()


def orm():
    assert Item.objects.get().name == "made by a migration"
    Item.objects.bulk_create([Item(name=f"n{n}", price=n) for n in range(500)], batch_size=100)
    assert Item.objects.aggregate(sum=Sum("price"))["sum"] == 124750
    Item.objects.filter(price__lt=10).update(price=F("price") + 1)
    item, made = Item.objects.get_or_create(name="one", defaults={"notes": {"a": [1, None]}})
    assert made and Item.objects.get(notes__a__0=1) == item
    item.text = "w" * BIG
    item.save()
    item.refresh_from_db()
    assert item.text == "w" * BIG
    with transaction.atomic():
        assert Item.objects.select_for_update().get(pk=item.pk) == item
        names = {i.name for i in Item.objects.iterator(chunk_size=50)}
        assert len(names) == 502
    error = raises(IntegrityError, lambda: Item.objects.create(name="one"))
    assert error.__cause__.sqlstate == "23505"
    assert Item.objects.filter(name="one").delete()[0] == 1


def transactions():
    class Stop(Exception):
        pass

    def undone():
        with transaction.atomic():
            Item.objects.create(name="lost")
            raise Stop

    raises(Stop, undone)
    with transaction.atomic():
        Item.objects.create(name="kept")

        def inner():
            with transaction.atomic():
                Item.objects.create(name="kept")

        raises(IntegrityError, inner)
        assert Item.objects.filter(name="kept").count() == 1
    assert not Item.objects.filter(name="lost").exists()
    with connection.cursor() as cur:
        raises(DataError, lambda: cur.execute("SELECT 1 / %s::int", [0]))
        cur.execute("SET statement_timeout = 50")
        error = raises(OperationalError, lambda: cur.execute("SELECT pg_sleep(600)"))
        assert error.__cause__.sqlstate == "57014"
        cur.execute("SET statement_timeout = 0")
        cur.execute("SELECT 1")


def work():
    migrate()
    orm()
    transactions()


def refused(action):
    error = raises(DatabaseError, action)
    assert error.__cause__.sqlstate == "ZF001", repr(error)
    return 1


def pid():
    with connection.cursor() as cur:
        cur.execute("SELECT pg_backend_pid()")
        return cur.fetchone()[0]


def fence():
    call_command("migrate", verbosity=0)
    first = pid()
    tell("ready")
    tries = refused(lambda: Item.objects.create(name="two"))
    tries += refused(lambda: Item.objects.update(price=2))

    def in_block():
        with transaction.atomic():
            assert Item.objects.count() == 1
            Item.objects.all().delete()

    tries += refused(in_block)
    tries += refused(lambda: Item.objects.get_or_create(name="three"))
    tries += refused(lambda: call_command("migrate", "shop", "zero", verbosity=0))
    # The next request: the connection is looked at, and kept.
    close_old_connections()
    assert [item.name for item in Item.objects.all()] == ["made by a migration"]
    call_command("migrate", check_unapplied=True, verbosity=0)
    assert first == pid()
    tell(tries)
    Item.objects.create(name="two")
    with transaction.atomic():
        Item.objects.update(price=F("price") + 2)
    assert Item.objects.aggregate(sum=Sum("price"))["sum"] == 4
    assert first == pid(), "another connection than before the fence"


run(work, fence)

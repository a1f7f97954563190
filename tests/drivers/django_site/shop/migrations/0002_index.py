"""An index that PostgreSQL builds outside a transaction, and a checked constraint."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("shop", "0001_first")]
    operations = [
        AddIndexConcurrently("Item", models.Index(fields=["price"], name="by_price")),
        migrations.AddConstraint("Item", models.CheckConstraint(
            condition=models.Q(price__gte=0), name="no_gifts")),
    ]

"""The table, and a row."""

from django.db import migrations, models


def fill(apps, schema_editor):
    apps.get_model("shop", "Item").objects.create(name="made by a migration")


class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel("Item", [
            ("id", models.BigAutoField(primary_key=True)),
            ("name", models.CharField(max_length=100, unique=True)),
            ("price", models.DecimalField(max_digits=20, decimal_places=4, default=0)),
            ("notes", models.JSONField(default=dict)),
            ("text", models.TextField(default="")),
            ("at", models.DateTimeField(auto_now_add=True)),
        ]),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]

"""One model."""

from django.db import models


class Item(models.Model):
    name = models.CharField(max_length=100, unique=True)
    price = models.DecimalField(max_digits=20, decimal_places=4, default=0)
    notes = models.JSONField(default=dict)
    text = models.TextField(default="")
    at = models.DateTimeField(auto_now_add=True)

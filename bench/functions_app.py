"""The app whose worker is measured: it has one function, the no-op."""

from __future__ import annotations

from bench.noop import noop
from duetime import Duetime

app = Duetime()
app.job(name="noop")(noop)

"""Duetime runs jobs in due time: webhooks, scripts and functions, now, at an instant, every so often, or by cron."""

__version__ = "0.1.0"

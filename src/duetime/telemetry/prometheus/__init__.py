"""Metrics for Prometheus: subscribers that count what parts emit, and gauges that are read when they are scraped."""

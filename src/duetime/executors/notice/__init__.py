"""Sends notices of alerts: webhooks by our own executor, everything else by apprise in a child process."""

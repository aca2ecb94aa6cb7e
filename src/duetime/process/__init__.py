"""This process and its machine: the system clock, the memory limit, the watchdog of a stop, and crash points."""

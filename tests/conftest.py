"""What holds for every test, whoever started them."""

from __future__ import annotations

import signal

# A shell that starts the suite in the background lets it ignore Ctrl-C, and so would every process that a test starts
# and means to interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

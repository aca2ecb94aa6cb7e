"""The child process that sends one message with apprise: reads an order from stdin, writes a reply to stdout.

It gets the URL on stdin, so that neither its arguments nor its environment show it. All plugins are imported before the
jail closes: after that, only the URL's own plugin runs.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from duetime.executors.notice.jail import LOOPBACK, Jail, limit_process, python_folders
from duetime.executors.notice.wire import MOST_SENT_BYTES, Order, Reply, decode_order

PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from duetime.executors.notice.child import main; main()"


def main() -> None:
    order = decode_order(sys.stdin.buffer.read(MOST_SENT_BYTES))
    limit_process(order.seconds, order.memory_bytes)
    output = _take_output()
    reply = _send(order)
    os.write(output, reply.encode())
    os._exit(0)  # threads of libraries must not hold it up


def _take_output() -> int:
    """Returns the descriptor of stdout, and points stdin, stdout and stderr to nothing: what is printed is a secret."""
    output, nothing = os.dup(1), os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.close(nothing)
    return output


def _send(order: Order) -> Reply:
    import apprise
    import requests
    from apprise.plugins import N_MGR, url_to_dict

    logging.disable(logging.CRITICAL)
    N_MGR.load_modules()  # type: ignore[no-untyped-call]
    _go_through_proxy(order)
    seen = _Seen(requests)
    jail = Jail(order.proxy_port, order.proxy_token, [*python_folders(apprise, requests), *_trusted(order.ca_file)])
    asset = apprise.AppriseAsset(plugin_paths=[], storage_mode="memory", secure_logging=True)
    jail.close()
    is_sent = False
    try:
        read = url_to_dict(order.url)
        if read is not None and read["schema"] not in order.schemes:
            return Reply(False, f"use {read['schema']}://")
        plugin = None if read is None else apprise.Apprise.instantiate(read, asset=asset)
        if plugin is None:
            return Reply(False, jail.refused, "" if jail.refused else "url")
        is_sent = _notify(apprise, asset, plugin, order)
    except Exception as error:  # noqa: BLE001 (a plugin may raise anything; its text may hold the URL)
        seen.note(error)
    return Reply(is_sent and not jail.refused, jail.refused, seen.problem, seen.status)


def _notify(apprise: Any, asset: Any, plugin: Any, order: Order) -> bool:
    service = apprise.Apprise(asset=asset)
    service.add(plugin)
    return bool(
        service.notify(
            order.body, title=order.title, notify_type=apprise.NotifyType(order.type),
            body_format=apprise.NotifyFormat.TEXT,
        )
    )  # fmt: skip


def _go_through_proxy(order: Order) -> None:
    proxy = f"http://duetime:{order.proxy_token}@{LOOPBACK}:{order.proxy_port}"
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        os.environ[name] = os.environ[name.upper()] = proxy
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ""
    if order.ca_file:
        os.environ["REQUESTS_CA_BUNDLE"] = order.ca_file


def _trusted(ca_file: str) -> list[str]:
    return [os.path.dirname(ca_file)] if ca_file else []


class _Seen:
    """The last HTTP status, and why the last request got none."""

    def __init__(self, requests: Any) -> None:
        self.status: int | None = None
        self.problem = ""
        self._requests = requests
        send = requests.Session.send

        def noted(session: Any, request: Any, **options: Any) -> Any:
            try:
                response = send(session, request, **options)
            except requests.RequestException as error:
                self.note(error)
                raise
            self.status, self.problem = response.status_code, ""
            return response

        requests.Session.send = noted

    def note(self, error: Exception) -> None:
        errors = self._requests.exceptions
        self.status = None
        if isinstance(error, errors.SSLError):
            self.problem = "tls"
        elif isinstance(error, errors.Timeout | TimeoutError):
            self.problem = "timeout"
        else:
            self.problem = "lost"

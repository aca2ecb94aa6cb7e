"""The subset of curl that the pages use: `curl [-s] [-i] URL [-X M] [-H 'name: value'] [-d BODY]`."""

from __future__ import annotations

import argparse
import sys
import urllib.error
import urllib.request


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-i", dest="with_head", action="store_true")
    parser.add_argument("-X", dest="method")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-d", dest="data")
    wanted = parser.parse_args()
    headers = dict(header.split(": ", 1) for header in wanted.headers)
    data = None if wanted.data is None else wanted.data.encode()
    request = urllib.request.Request(wanted.url, data, headers, method=wanted.method)
    try:
        answer = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request)
    except urllib.error.HTTPError as refused:
        answer = refused
    with answer:
        head = f"HTTP/1.1 {answer.status} {answer.reason}\r\n{answer.headers}" if wanted.with_head else ""
        sys.stdout.write(head + answer.read().decode())


if __name__ == "__main__":
    main()

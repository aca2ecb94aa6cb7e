"""What the pages use of curl, for machines that have none: `curl [-s] URL [-X M] [-H 'name: value'] [-d BODY]`."""

from __future__ import annotations

import argparse
import sys
import urllib.error
import urllib.request


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-X", dest="method")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-d", dest="data")
    wanted = parser.parse_args()
    headers = dict(header.split(": ", 1) for header in wanted.headers)
    data = None if wanted.data is None else wanted.data.encode()
    request = urllib.request.Request(wanted.url, data, headers, method=wanted.method)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            sys.stdout.write(answer.read().decode())
    except urllib.error.HTTPError as refused:
        sys.stdout.write(refused.read().decode())


if __name__ == "__main__":
    main()

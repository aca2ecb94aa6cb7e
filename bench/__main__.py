"""The command: `python -m bench [--only w1,w2,…,pg] [--quick] [--no-peers]`."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time

from bench import machine, report
from bench.arrivals import Sink
from bench.processes import ROOT
from bench.results import Kind, Result, Skipped
from bench.scale import FULL, QUICK
from bench.targets import judge
from bench.workloads import (
    Setting,
    Workload,
    attack,
    burst,
    creates,
    every_second,
    fairness,
    functions,
    limited,
    on_postgres,
    pages,
    pending,
)

QUIET = 0.1  # a machine that is busier than this with other work gives no figures to go by

WORKLOADS: dict[str, Workload] = {
    "w1": creates.measure,
    "w2": burst.measure,
    "w3": every_second.measure,
    "w4": pending.measure,
    "w5": pages.measure,
    "functions": functions.measure,
    "limits": limited.measure,
    "fairness": fairness.measure,
    "attack": attack.measure,
    "pg": on_postgres.measure,
}


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    scale = QUICK if options.quick else FULL
    results: list[Result] = []
    failed = False
    setting = Setting(sink=Sink(), scale=scale, peers=options.peers)
    for name in options.only:
        started = time.perf_counter()
        print(f"{name} …", flush=True)
        try:
            for result in WORKLOADS[name](setting):
                results.append(result)
        except (Skipped, RuntimeError, OSError) as reason:
            failed = True
            print(f"{name} STOPPED: {reason}", file=sys.stderr, flush=True)
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    setting.sink.stop()
    failed |= any(result.kind is Kind.US and not result.figures for result in results)
    verdicts = judge(results, scale)
    report.show(results, verdicts)
    disturbed = max((result.disturbed for result in results), default=0.0)
    if disturbed > QUIET:
        print(f"\nThe machine was up to {disturbed:.0%} busy with other work: repeat this on a quiet one.")
    if options.write:
        command = shlex.join(["python", "-m", "bench", *sys.argv[1:]])
        report.write(results, verdicts, machine.look(disturbed), command)
        print(f"written to {report.PAGE.relative_to(ROOT)}")
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(WORKLOADS), help="e.g. w1,w3")
    parser.add_argument("--quick", action="store_true", help="smaller numbers, under three minutes")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="only Duetime and the limits")
    parser.add_argument("--no-write", dest="write", action="store_false", help="leave docs/benchmarks.md")
    options = parser.parse_args()
    unknown = set(options.only) - set(WORKLOADS)
    if unknown:
        parser.error(f"no such workload: {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())

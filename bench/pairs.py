"""What a change costs: this checkout and an older one in turn, on one machine, as the ratio of each pair.

    python -m bench.pairs ../older [--rounds 7] [--only w1-single,w2,…]

The older checkout needs a `.venv` of its own (`make setup` there). This harness measures both. A ratio
above 1 is a gain. Each ratio is printed with its 95 % confidence interval, and beside it the same for the older
checkout against itself, from one round to the next: differences within that interval are noise. `bench.turns` is finer.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev

import msgspec

from bench import processes
from bench.arrivals import Sink
from bench.duetime_node import DuetimeNode, webhook_job
from bench.scale import QUICK, Scale
from bench.workloads import burst, creates, every_second, pages, pending

# Of Student's distribution, for a two-sided interval of 95 %, by the number of ratios.
T = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26, 11: 2.23, 12: 2.20}
T_OF_MORE = 2.20  # a little more than it is
SCALE = msgspec.structs.replace(QUICK, creates=10_000, batch=50_000, burst=20_000, decisions=200_000, seconds=8)


def _creates(_: Sink, scale: Scale) -> float:
    body = msgspec.json.encode(webhook_job("#N#", creates.TARGET, creates.FAR)).decode()
    return creates.one_by_one(body, scale.creates)["per_second"]


def _rest(_: Sink, scale: Scale) -> float:
    """Per MB: more is better, as with the others."""
    with DuetimeNode() as node:
        pending.load(node, 0, scale.batch)
        return 1e6 / node.rss_bytes()


MEASURES: dict[str, Callable[[Sink, Scale], float]] = {
    "w1-single": _creates,
    "w1-batch": lambda _, scale: creates.batch(scale.batch)["per_second"],
    "w2": lambda sink, scale: burst.duetime(sink, scale.burst)["drain_per_second"],
    "w3": lambda sink, scale: 1 / every_second.duetime(sink, 1000, scale.seconds, jitter_seconds=0)["p99_ms"],
    "w4": _rest,
    "w5": lambda _, scale: pages.duetime(scale.decisions)["per_second"],
}


def main() -> int:
    options = _options()
    if options.one:
        sink = Sink()
        print(MEASURES[options.one](sink, SCALE))
        sink.stop()
        return 0
    older = options.older / ".venv" / "bin" / "python"
    if not older.exists():
        print(f"there is no {older}: run `make setup` in {options.older}", file=sys.stderr)
        return 2
    for name in options.only:
        old, new = [], []
        for number in range(options.rounds):
            for python, found in ((older, old), (Path(sys.executable), new))[:: -1 if number % 2 else 1]:
                found.append(_measure(name, python))
            print(f"  {name} {number + 1}: {old[-1]:,.4g} and {new[-1]:,.4g}", file=sys.stderr, flush=True)
        ratios = [theirs / ours for ours, theirs in zip(old, new, strict=True)]
        itself = [later / earlier for earlier, later in pairwise(old)]
        print(
            f"{name}: {interval(ratios)} of the older one; the older one against itself {interval(itself)}", flush=True
        )
    return 0


def _measure(name: str, python: Path) -> float:
    command = [sys.executable, "-m", "bench.pairs", str(processes.ROOT), "--one", name]
    return float(
        processes.run(command, env={**os.environ, processes.PYTHON_VARIABLE: str(python)}, timeout_seconds=600)
    )


def interval(ratios: Sequence[float]) -> str:
    """The mean of ratios, by their logarithms, with its interval."""
    logs = [math.log(ratio) for ratio in ratios]
    middle, half = fmean(logs), T.get(len(logs), T_OF_MORE) * stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(middle):.1%} ({math.exp(middle - half):.1%} to {math.exp(middle + half):.1%})"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.pairs", description=__doc__.partition("\n")[0])
    parser.add_argument("older", type=Path, help="the older checkout")
    parser.add_argument("--rounds", type=int, default=7, choices=range(3, max(T) + 1), metavar="3-12")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(MEASURES), help="e.g. w1-single,w2")
    parser.add_argument("--one", choices=MEASURES, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

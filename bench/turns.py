"""What a change costs, to a few per cent: a node of each checkout beside the other, loaded in turn, a second at a time.

    python -m bench.turns ../older [--rounds 100] [--only w1-single,w1-batch,w2] [--burst 20000]

`bench.pairs` compares whole runs; on a shared machine two runs of the same code differ by a tenth, since the machine
changes from one minute to the next. Here both nodes live through the same minutes, so the ratio of each round is of the
same machine. Two ratios are printed, each with its 95 % interval: of the rate, and of the node's processor time for
each job. Above 100 % is a gain in both. Beside each stands the older node against itself, from one round to the next.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import msgspec

from bench import loadgen
from bench.arrivals import Sink, burst_figures
from bench.duetime_node import DuetimeNode, instant, ndjson, webhook_job
from bench.pairs import interval
from bench.workloads.creates import FAR, TARGET

CREATES, BATCH, BURST = 1000, 5000, 3000  # of a round: short ones, so that a disturbance meets both nodes
WARM_ROUNDS = 2  # that are not counted
BODY = msgspec.json.encode(webhook_job("#N#", TARGET, FAR)).decode()


class Round(msgspec.Struct, frozen=True):
    """More is better in both."""

    per_second: float
    per_cpu_second: float


def _creates(node: DuetimeNode, _: Sink, __: int) -> Round:
    begun = node.cpu_seconds()
    loaded = loadgen.run(loadgen.Load(port=node.port, path="/api/v1/jobs", body=BODY, count=CREATES))
    if set(loaded.statuses) != {"201"}:
        raise RuntimeError(f"creates were not all answered 201: {loaded.statuses}")
    return Round(loaded.per_second, CREATES / (node.cpu_seconds() - begun))


def _batch(node: DuetimeNode, _: Sink, __: int) -> Round:
    lines = ndjson(webhook_job(number, TARGET, FAR) for number in range(BATCH))
    begun = node.cpu_seconds()
    seconds = node.add_batch(lines, BATCH)
    return Round(BATCH / seconds, BATCH / (node.cpu_seconds() - begun))


def _burst(node: DuetimeNode, sink: Sink, size: int) -> Round:
    """From the due instant to the last request; storing the jobs is not counted."""
    sink.reset()
    run, due_at = f"w2-{time.time_ns()}", float(int(time.time() + 2 + size / 5000))
    node.add_batch(ndjson(webhook_job(n, sink.url(f"/{run}/{n}"), instant(due_at)) for n in range(size)), size)
    if time.time() > due_at - 0.2:
        raise RuntimeError("the burst was due before all of it was stored")
    time.sleep(due_at - 0.1 - time.time())
    begun = node.cpu_seconds()
    sink.wait_for(size, idle_seconds=10, until=due_at)
    figures = burst_figures(sink.arrivals(run), size, due_at)
    time.sleep(0.5)  # the last results are recorded
    return Round(figures["drain_per_second"], size / (node.cpu_seconds() - begun))


MEASURES: dict[str, Callable[[DuetimeNode, Sink, int], Round]] = {
    "w1-single": _creates,
    "w1-batch": _batch,
    "w2": _burst,
}


def main() -> int:
    options = _options()
    older = options.older / ".venv" / "bin" / "python"
    if not older.exists():
        print(f"there is no {older}: run `make setup` in {options.older}", file=sys.stderr)
        return 2
    for name in options.only:
        _compare(name, older, options.rounds, options.burst)
    return 0


def _compare(name: str, older: Path, rounds: int, burst: int) -> None:
    measure = MEASURES[name]
    old: list[Round] = []
    new: list[Round] = []
    with ExitStack() as stack:
        sink = Sink()
        stack.callback(sink.stop)
        theirs = stack.enter_context(DuetimeNode(python=older))
        ours = stack.enter_context(DuetimeNode())
        for number in range(WARM_ROUNDS + rounds):
            for node, found in ((theirs, old), (ours, new))[:: -1 if number % 2 else 1]:
                found.append(measure(node, sink, burst))
    old, new = old[WARM_ROUNDS:], new[WARM_ROUNDS:]
    for what, value in (("rate", "per_second"), ("work per processor second", "per_cpu_second")):
        before, after = ([float(getattr(one, value)) for one in found] for found in (old, new))
        ratio = interval([b / a for a, b in zip(before, after, strict=True)])
        itself = interval([later / earlier for earlier, later in pairwise(before)])
        print(f"{name}, {what}: {ratio} of the older one; the older one against itself {itself}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.turns", description=__doc__.partition("\n")[0])
    parser.add_argument("older", type=Path, help="the older checkout, with its .venv")
    parser.add_argument("--rounds", type=int, default=100, help="7 at least")
    parser.add_argument(
        "--burst", type=int, default=BURST, help="executions of a round of w2; %(default)s if not given"
    )
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(MEASURES), help="e.g. w1-single,w2")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

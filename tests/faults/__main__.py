"""``python -m tests.faults writes | stores | kills``."""

from __future__ import annotations

import argparse
import collections
import os
import sys
import time as wall
from pathlib import Path

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)
os.environ.setdefault(
    "TF_CPP_MIN_LOG_LEVEL", "3"
)  # XLA takes preferences of LLVM for abilities


def writes(args: argparse.Namespace) -> int:
    """Every fault at every operation; exit code 1 if something is wrong."""
    import matplotlib

    matplotlib.use("Agg")
    from .scenarios import SCENARIOS
    from .writes import cases, tried, undisturbed

    bad = 0
    for name in args.scenarios or SCENARIOS:
        began = wall.monotonic()
        scenario = SCENARIOS[name]
        reference = undisturbed(scenario)
        kinds = collections.Counter(
            operation.kind for operation in reference.operations
        )
        wrong: list[str] = []
        every = list(cases(scenario, reference))[:: args.every]
        for case in every:
            found = tried(scenario, reference, case)
            wrong += found
            for text in found:
                print(f"  {text}", flush=True)
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        seconds = wall.monotonic() - began
        print(f"{name}: {len(every)} faults at {len(reference.operations)} operations ({told}),"
              f" {len(wrong)} wrong, {seconds:.0f} s", flush=True)  # fmt: skip
        bad += len(wrong)
    return int(bad > 0)


def stores(args: argparse.Namespace) -> int:
    """Stores against the model; hypothesis raises if they differ."""
    from hypothesis import settings
    from hypothesis.stateful import run_state_machine_as_test

    from .stores import SETTINGS, Stores

    chosen = settings(
        SETTINGS,
        max_examples=args.examples,
        stateful_step_count=args.steps,
        derandomize=False,
    )
    began = wall.monotonic()
    run_state_machine_as_test(Stores, settings=chosen)
    told = ", ".join(f"{count} {name}" for name, count in sorted(Stores.counts.items()))
    print(
        f"{args.examples} examples of up to {args.steps} steps ({told}), {wall.monotonic() - began:.0f} s"
    )
    return 0


def kills(args: argparse.Namespace) -> int:
    """Kill and go on; exit code 1 if something was lost."""
    import warnings

    import matplotlib

    matplotlib.use("Agg")
    warnings.filterwarnings("ignore", "os.fork")
    from twolayer.numerics.compilation import expect

    expect()
    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", False)  # copies have no threads
    from .kills import campaign

    return int(not campaign(args.number, args.seed, Path(args.log), args.seconds))


def main() -> int:
    """Read the arguments and do it."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("writes")
    part.add_argument("scenarios", nargs="*")
    part.add_argument("--every", type=int, default=1, help="every so many cases alone")
    part.set_defaults(do=writes)
    part = parts.add_parser("stores")
    part.add_argument("--examples", type=int, default=1000)
    part.add_argument("--steps", type=int, default=20)
    part.set_defaults(do=stores)
    part = parts.add_parser("kills")
    part.add_argument(
        "--number", type=int, default=1000, help="kills with something to lose"
    )
    part.add_argument("--seed", type=int, default=0)
    part.add_argument(
        "--seconds", type=float, default=1e9, help="end after so many seconds"
    )
    part.add_argument("--log", default="kills.jsonl", help="go on where this file ends")
    part.set_defaults(do=kills)
    args = parser.parse_args()
    return int(args.do(args))


if __name__ == "__main__":
    sys.exit(main())

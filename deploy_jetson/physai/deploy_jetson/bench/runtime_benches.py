"""Benchmarks of the runtime for `physai bench`."""

from physai.deploy_jetson.bench.benches import lazy_bench

runtime = lazy_bench("duration of a tick compared with the bare graph, and missed deadlines", "timing.runtime")
faults = lazy_bench(
    "all sequences of events, random faults and hung policies: violated safety properties",
    "fault_injection.trial",
    "timing.watchdog_trial",
)
swaps = lazy_bench("a hundred policies activated in a running loop, and missed deadlines", "timing.hot_swap")

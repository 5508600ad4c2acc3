"""Solves and packs the instances of ../shared/bench and compares with the best known. Overheads, bounds and gaps in percent of the base time.
CPU seconds beside the wall clock's: the machine may be busy."""

import csv
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

BENCH = Path("../shared/bench")
OFFC = "target/release/offc"
quick = "--quick" in sys.argv
only = next((a for a in sys.argv[1:] if not a.startswith("--")), "")
bad = []


def run(*args):
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([OFFC, *map(str, args)], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, time.monotonic() - start, after.ru_utime - before.ru_utime


def exact(model, budget):
    """The incumbent of the schedule in the bench, not rounded as in anchors.csv."""
    found = json.loads((BENCH / "checkmate" / f"{model}.sol.{budget}.json").read_text())
    return (found["objective"] / found["base"] - 1) * 100


rows = [r for r in csv.DictReader((BENCH / "checkmate" / "anchors.csv").open()) if only in f"{r['model']}:{r['budget_gib']}"]
rows.sort(key=lambda r: (r["model"], int(r["budget_gib"])))
close = below = 0
print(f"{'instance':16} {'overhead':>9} {'incumbent':>9} {'bound':>8} {'gap':>7} {'wall s':>7} {'cpu s':>6}")
for row in rows[::6] if quick else rows:
    name = f"{row['model']}:{row['budget_gib']}"
    done, wall, cpu = run("solve", BENCH / "checkmate" / f"{row['model']}.json", "--memory", f"{row['budget_gib']}GiB", "--json")
    if done.returncode:
        bad.append(f"{name}: {done.stderr.strip()}")
        continue
    told = json.loads(done.stdout)
    incumbent = exact(row["model"], row["budget_gib"])
    close += told["gap"] <= 1
    below += told["overhead_pct"] <= incumbent + 1e-9
    if told["overhead_pct"] > incumbent + 1e-9:
        bad.append(f"{name}: {told['overhead_pct']:.4f} % is above the incumbent's {incumbent:.4f} %")
    print(f"{name:16} {told['overhead_pct']:9.4f} {incumbent:9.4f} {told['bound_pct']:8.4f} {told['gap']:7.4f} {wall:7.1f} {cpu:6.1f}", flush=True)
print(f"{below} at or below the incumbent, {close} gaps of at most 1 %\n")

capacity = 1 << 20
packs = [(f"{letter}.{capacity}.csv", capacity) for letter in "ABCDEF"] + [("resnet50.csv", None), ("pangu_2.6B.csv", None)]
packs = [p for p in packs if only in p[0] or not only]
total = 0.0
print(f"{'offsets':18} {'load':>14} {'packed':>14} {'over %':>7} {'wall s':>7} {'cpu s':>6}")
for name, capacity in packs[::3] if quick else packs:
    path = BENCH / "offsets" / name
    buffers = [tuple(int(r[k]) for k in ("lower", "upper", "size")) + (r["id"],) for r in csv.DictReader(path.open())]
    events = sorted([(b[0], 1, b[2]) for b in buffers] + [(b[1], 0, -b[2]) for b in buffers])
    load = now = 0
    for _, _, change in events:
        now += change
        load = max(load, now)
    # A load bound half a percent up is what is asked of the one that has no capacity of its own.
    asked = capacity or (load if name.startswith("resnet50") else load * 1005 // 1000)
    done, wall, cpu = run("pack", path, "--capacity", asked)
    total += wall if capacity else 0
    if done.returncode:
        bad.append(f"{name}: {done.stderr.strip()}")
        continue
    offsets = {r["id"]: int(r["offset"]) for r in csv.DictReader(done.stdout.splitlines())}
    packed = max(offsets[b[3]] + b[2] for b in buffers)
    live = []
    for low, high, size, ident in sorted(buffers):
        live = [o for o in live if o[1] > low]
        at = offsets[ident]
        if any(at < o[2] + o[3] and o[2] < at + size for o in live):
            bad.append(f"{name}: buffer {ident} overlaps another")
            break
        live.append((low, high, at, size))
    print(f"{name:18} {load:14} {packed:14} {(packed / load - 1) * 100:7.3f} {wall:7.2f} {cpu:6.2f}", flush=True)
print(f"A to F together: {total:.1f} s")
for line in bad:
    print(f"solve-check: {line}", file=sys.stderr)
sys.exit(1 if bad else 0)

#!/usr/bin/env python3
"""Compares `offc simulate` with the independent judge (judge.py) at the same rates, on the whole corpus.

Run by scripts/judge-compare. Device memory 3 TB/s, link 50 GB/s each way, collectives 100 GB/s, no launch latency: the judge's defaults.
Prints both steps of each module and, of those with a sibling without rematerialization, both ratios to it. Exit status 1 if a ratio of RATIOS is
further apart than 1 percentage point, after what EXPLAINED says.
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "../.."))
CORPUS = os.path.normpath(os.path.join(ROOT, "../shared/corpus"))
OFFC = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release/offc")

CALIBRATION = """version = 1
name = "the judge's rates"
[rates]
hbm = "3TB/s"
h2d = "50GB/s"
d2h = "50GB/s"
both_ways = "100GB/s"
host_dram = "2TB/s"
bus = "100GB/s"
network = "100GB/s"
[latencies]
copy = "2us"
launch = "0us"
collective = "5us"
hop = "0us"
network_hop = "0us"
"""

# module, what its step is compared to; percentage points
RATIOS = [("gpt3_1b3_full", "gpt3_1b3_none"), ("gpt3_1b3_dots", "gpt3_1b3_none"), ("gpt3_1b3_offload", "gpt3_1b3_none")]
POINTS = 1.0

# Why a step may be further off than 1 %: the better model is argued in src/sim.rs.
EXPLAINED = {
    "llama3_8b_fsdp8": "collectives: a ring passes (n - 1) / n of the whole, the judge half of operands and results",
    "gpt3_13b_none_fsdp8": "collectives, as above",
    "gpt3_175b_none_fsdp64": "collectives, as above",
    "gpt3_175b_full_fsdp64": "collectives, as above",
    "gpt3_tiny_none_fsdp4": "collectives, as above",
    "resnet50": "convolutions by their arithmetic, the judge by their bytes",
}


def ours(name, calibration):
    command = [OFFC, "simulate", os.path.join(CORPUS, name + ".pb"), "--json", "--device", "h100-sxm", "--calibration", calibration]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["step_us"]


def judged(name):
    out = subprocess.run([sys.executable, os.path.join(HERE, "judge.py"), os.path.join(CORPUS, name + ".hlo")], capture_output=True, check=True)
    return float(dict(word.split("=") for word in out.stdout.decode().split())["step_us"])


def main():
    names = sorted(json.load(open(os.path.join(CORPUS, "xla.json"))))
    failed = 0
    steps = {}
    with tempfile.TemporaryDirectory() as folder:
        calibration = os.path.join(folder, "judge.toml")
        open(calibration, "w").write(CALIBRATION)
        print(f"{'module':26} {'offc us':>12} {'judge us':>12} {'off by':>8}")
        for name in names:
            steps[name] = a, b = ours(name, calibration), judged(name)
            note = EXPLAINED.get(name, "")
            if abs(a / b - 1) > 0.01 and not note:
                failed += 1
                note = "FAILED: nobody explains this"
            print(f"{name:26} {a:12.1f} {b:12.1f} {a / b - 1:+8.2%}  {note}".rstrip(), flush=True)
    print(f"\n{'ratio of steps':44} {'offc':>8} {'judge':>8} {'points':>7}")
    for name, base in RATIOS:
        a, b = (steps[name][i] / steps[base][i] for i in (0, 1))
        points = (a - b) * 100
        bad = abs(points) > POINTS
        failed += bad
        print(f"{name + ' / ' + base:44} {a:8.4f} {b:8.4f} {points:+7.2f}{'  FAILED' if bad else ''}")
    print(f"\n{failed} failed" if failed else "\nall well")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

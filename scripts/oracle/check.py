#!/usr/bin/env python3
"""Checks what the built offc writes against the real XLA:GPU compiler and an independent step-time judge.

Run by scripts/oracle-check. Needs the corpus (../shared/corpus) and XLA's device descriptions (../shared/oracle/gpu_specs).

    round trips   every corpus module, proto to text to proto (and, without --quick, proto to proto and text to proto): offc's verifier
                  accepts, XLA accepts, and XLA's byte counts are exactly those of corpus/xla.json
    rewrites      each module of REWRITES at its budget, twice: both outputs are byte-identical; either refused with a floor (exit 1), or
                  XLA accepts it with exactly the device bytes that were promised and not above the budget; host bytes are in use;
                  the judge's step time against the original's
    --long        the table of scanned steps and their state: promised bytes, XLA's bytes, the judge's time against the original's
    tracker       (without --quick) each module of TRACKED, rewritten to its budget for a GPU on which XLA's own rematerialization has that budget as
                  its limit: XLA adds no clone and no copy there, and assigns the bytes that were promised; with 1 MiB less than the
                  predicted tracker needs, it does act
    step times    (without --quick) scripts/oracle/compare.py

Prints a line a check and three tables; exit status 1 if anything failed.
"""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "../.."))
CORPUS = os.path.normpath(os.path.join(ROOT, "../shared/corpus"))
OFFC = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release/offc")
GIB = 1 << 30
BYTES = ["argument", "output", "alias", "temp", "host_argument", "host_output", "host_temp"]

# module, budget, whether it must be rewritten (not refused), the judge's step time at most, as a ratio
REWRITES = [
    ("gpt3_760m_unrolled_none", "5GiB", True, 1.25),
    ("vit_b16", "5GiB", False, None),
    ("maxtext_llama2_1gpu", "22GiB", False, None),
    ("gpt3_1b3_full", "21GiB", False, None),
]

# With --long: module, budget, further arguments, step in milliseconds at most by the judge, or as a ratio to the original's where below 10
LONG = [
    ("gpt3_1b3_none", "40GiB", [], 300),
    ("gpt3_1b3_none", "24GiB", [], 280),
    ("gpt3_1b3_full", "18.6GiB", [], 1.01),
    ("gpt3_1b3_full", "13GiB", ["--host-state", "auto"], 1.05),
    ("gpt3_1b3_dots", "22.5GiB", [], 1.02),
    ("gpt3_13b_none_fsdp8", "76GiB", [], 1.0),
    ("gpt3_13b_none_fsdp8", "40GiB", [], 1.0),
    ("gpt3_13b_none_fsdp8", "29GiB", [], 1.0),
    ("gpt3_175b_none_fsdp64", "76GiB", [], 1.0),
    ("gpt3_175b_full_fsdp64", "31GiB", ["--host-state", "auto"], 1.02),
    ("llama3_8b_fsdp8", "26GiB", ["--host-state", "auto"], 1.03),
    ("gpt3_760m_unrolled_none", "5.1GiB", [], None),
    ("vit_b16", "4.73GiB", [], None),
    ("maxtext_llama2_1gpu", "17.46GiB", [], None),
]
# module, budget
TRACKED = [("gpt3_760m_unrolled_none", "5GiB"), ("vit_b16", "5GiB")]


class Wrong(Exception):
    """A check that failed, with the sentence."""


def offc(*args, ok=(0,)):
    r = subprocess.run([OFFC, *args], capture_output=True, timeout=600)
    if r.returncode not in ok:
        raise Wrong(f"offc {' '.join(args[:1])}: exit {r.returncode}: {r.stderr.decode(errors='replace').strip()[:300]}")
    return r


def oracle(verb, *args):
    r = subprocess.run([sys.executable, os.path.join(HERE, "xla_oracle.py"), verb, *args], capture_output=True, timeout=900)
    if r.returncode:
        raise Wrong(("XLA crashes: " if r.returncode == 3 else "XLA rejects: ") + " ".join(r.stderr.decode(errors="replace").split())[:400])
    return r.stdout.decode()


def xla_bytes(path, partitions, memory=4000 * GIB, final=None):
    more = ["--final", final] if final else []
    return json.loads(oracle("check", "--memory-gib", repr(memory / GIB), "--partitions", str(partitions), *more, path).splitlines()[-1])


def device(m):
    return m["argument"] + m["output"] - m["alias"] + m["temp"]


def host(m):
    return m["host_argument"] + m["host_output"] + m["host_temp"]


def judge(path, base):
    out = subprocess.run([sys.executable, os.path.join(HERE, "judge.py"), path, "--base", base], capture_output=True, check=True).stdout.decode()
    return float(re.search(r"ratio=([\d.]+)", out).group(1)), float(re.search(r"step_us=([\d.]+)", out).group(1))


def round_trip(name, way, known, folder):
    """One module there and back; returns the sentence."""
    source = os.path.join(CORPUS, f"{name}.{'hlo' if way == 'text' else 'pb'}")
    final = os.path.join(folder, f"{name}.{way}.pb")
    if way == "proto-text-proto":
        text = os.path.join(folder, f"{name}.hlo")
        offc("convert", source, text)
        source = text
    offc("convert", source, final)
    verdict = offc("check", "--verify", source, final, ok=(0, 3)).stdout.decode()
    if re.search("^reject", verdict, re.M):
        raise Wrong("offc rejects: " + verdict.strip()[:300])
    got = xla_bytes(final, known["partitions"])
    for key in BYTES:
        if got[key] != known[key]:
            raise Wrong(f"{key}: {got[key]} bytes by XLA, {known[key]} before")
    ours = json.loads(offc("peak", "--json", final).stdout)
    off = (device(ours) - device(known)) / device(known)
    return f"offc's own count {off:+.3%}"


def rewrite(name, budget, must, limit, known, folder):
    """One rewrite; returns the row of the table and whether it is a failure."""
    source = os.path.join(CORPUS, name + ".pb")
    row = dict(module=name, budget=budget, before=device(known))
    outs = [os.path.join(folder, f"{name}.out{i}.pb") for i in (1, 2)]
    plans = [o + ".json" for o in outs]
    for out, plan in zip(outs, plans):
        r = offc("rewrite", source, "-o", out, "--device", "h100-sxm", "--memory", budget, "--plan-out", plan, "--json", ok=(0, 1))
    if r.returncode == 1:
        why = json.loads(r.stderr)
        holders = ", ".join(f"{n} {b / GIB:.2f}" for n, b in why["needed_by"][:3])
        row["verdict"] = f"refused: floor {why['floor'] / GIB:.3f} GiB at {why['at']}, held by {holders}, ..."
        return row, must or why["floor"] <= why["asked"]
    for a, b in (outs, plans):
        if open(a, "rb").read() != open(b, "rb").read():
            return row | dict(verdict="FAILED: two runs differ"), True
    row["promised"] = json.loads(r.stderr)["after"]["device"]
    got = xla_bytes(outs[0], known["partitions"])
    row["xla"], row["host"] = device(got), host(got)
    text = outs[0][:-3] + ".hlo"
    oracle("convert", outs[0], text)
    row["ratio"], _ = judge(text, os.path.join(CORPUS, name + ".hlo"))
    amount, unit = re.match(r"([\d.]+)(GiB)", budget).groups()
    wrong = []
    if row["xla"] > float(amount) * GIB: wrong.append("over the budget")
    if row["xla"] != row["promised"]: wrong.append("not the bytes promised")
    if limit and row["ratio"] > limit: wrong.append(f"slower than {limit}")
    if must and not row["host"]: wrong.append("no host bytes")
    row["verdict"] = "FAILED: " + ", ".join(wrong) if wrong else "fits"
    return row, bool(wrong)


def long_table(wanted, known, folder):
    """The loops' table, one row a line as it comes; returns how many targets were missed."""
    print(f"{'module':24} {'budget':>8} {'before':>7} {'promised':>8} {'by XLA':>7} {'host':>6} {'ms':>8} {'of':>8} {'most':>6} {'s':>5}  verdict (GiB; milliseconds by the judge)")
    missed = 0
    for name, budget, args, most in LONG:
        if not wanted(name):
            continue
        source, out = os.path.join(CORPUS, name + ".pb"), os.path.join(folder, f"{name}.{budget}.pb")
        began = time.monotonic()
        r = offc("rewrite", source, "-o", out, "--device", "h100-sxm", "--memory", budget, "--json", *args, ok=(0, 1))
        took = time.monotonic() - began
        before, asked = device(known[name]) / GIB, float(re.match(r"[\d.]+", budget).group())
        original = known[name]["judge"]["step_us"] / 1e3
        limit = most * original if most and most < 10 else most
        if r.returncode == 1:
            missed += 1
            print(f"{name:24} {budget:>8} {before:7.2f} {'-':>8} {'-':>7} {'-':>6} {'-':>8} {original:8.1f} {'-':>6} {took:5.1f}  refused: floor {json.loads(r.stderr)['floor'] / GIB:.2f} GiB", flush=True)
            continue
        promised = json.loads(r.stderr)["after"]["device"]
        try:
            got = xla_bytes(out, known[name]["partitions"])
        except (Wrong, subprocess.SubprocessError) as e:
            missed += 1
            print(f"{name:24} {budget:>8} XLA refuses: {e}", flush=True)
            continue
        text = out[:-3] + ".hlo"
        oracle("convert", out, text)
        ratio, _ = judge(text, os.path.join(CORPUS, name + ".hlo"))
        step = ratio * original
        wrong = []
        if device(got) / GIB > asked: wrong.append("over the budget")
        if abs(device(got) / promised - 1) > 0.005: wrong.append("not the bytes promised")
        if limit and step > limit: wrong.append("too slow")
        if took > 10: wrong.append("took too long")
        missed += bool(wrong)
        most_ms = f"{limit:6.0f}" if limit else "     -"
        print(f"{name:24} {budget:>8} {before:7.2f} {promised / GIB:8.2f} {device(got) / GIB:7.2f} {host(got) / GIB:6.2f} {step:8.1f} {original:8.1f} {most_ms} {took:5.1f}  {', '.join(wrong) or 'met'}", flush=True)
    return missed


def added(before, after):
    """Clones that rematerialization made, and copies, in the second text that the first has not."""
    names = lambda text: set(re.findall(r"^\s+(?:ROOT )?%?([\w.\-]+) = ", text, re.M))
    copies = lambda text: len(re.findall(r" copy(?:-start)?\(", text))
    return [n for n in names(after) - names(before) if "remat" in n], max(0, copies(after) - copies(before))


def tracker(name, budget, known, folder):
    """One module below XLA's own limit; returns the row of the table and whether it is a failure."""
    asked = int(float(re.match(r"([\d.]+)GiB", budget).group(1)) * GIB)
    pinned = known["argument"] + known["output"] - known["alias"]
    # XLA plans with 80 % of the memory less parameters and results, and 95 % of that.
    memory = -int(-((asked - pinned) / 0.95 + pinned) / 0.8 // (1 << 20)) << 20
    out, text, final = (os.path.join(folder, f"{name}.tracked.{ending}") for ending in ("pb", "hlo", "final.hlo"))
    row = dict(module=name, budget=budget, memory=memory)
    r = offc("rewrite", os.path.join(CORPUS, name + ".pb"), "-o", out, "--device", "h100-sxm", "--memory", budget, "--xla-limit", str(memory), "--json")
    told = json.loads(r.stderr)
    remat = told["xla_remat"]
    row |= dict(tracker=remat["tracker"], limit=remat["limit"], slowdown=told["slowdown"])
    if remat["acts"]:
        return row | dict(verdict="FAILED: no plan below XLA's limit"), True
    oracle("convert", out, text)
    before = open(text).read()
    got = xla_bytes(out, known["partitions"], memory, final)
    clones, copies = added(before, open(final).read())
    wrong = []
    if clones or copies: wrong.append(f"XLA adds {len(clones)} clones and {copies} copies at its limit")
    if device(got) != told["after"]["device"]: wrong.append(f"{device(got)} bytes by XLA, {told['after']['device']} promised")
    xla_bytes(out, known["partitions"], remat["memory_needed"] - (1 << 20), final)
    clones, copies = added(before, open(final).read())
    if not clones and not copies: wrong.append("XLA does not act below the predicted tracker value")
    binding = "; the tracker binds" if remat["binding"] else ""
    return row | dict(verdict="FAILED: " + ", ".join(wrong) if wrong else f"left alone; below, {len(clones)} clones{binding}"), bool(wrong)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quick", action="store_true", help="one round trip a module, no tracker, no step times")
    p.add_argument("--only", action="append", default=[], help="only modules whose name contains this")
    p.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    p.add_argument("--keep", help="leave the files in this folder")
    p.add_argument("--long", action="store_true", help="only the table of scanned steps and their state, with promised bytes, XLA's bytes and the judge's time")
    a = p.parse_args()
    known = json.load(open(os.path.join(CORPUS, "xla.json")))
    wanted = lambda name: not a.only or any(o in name for o in a.only)
    if a.long:
        with tempfile.TemporaryDirectory() as scratch:
            folder = a.keep or scratch
            os.makedirs(folder, exist_ok=True)
            missed = long_table(wanted, known, folder)
        print(f"\n{missed} targets missed" if missed else "\nall met")
        return 1 if missed else 0
    ways = ["proto-text-proto"] if a.quick else ["proto-text-proto", "proto", "text"]
    failed = 0
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        folder = a.keep or scratch
        os.makedirs(folder, exist_ok=True)
        rewrites = [(r, pool.submit(rewrite, *r, known[r[0]], folder)) for r in REWRITES if wanted(r[0])]
        tracked = [] if a.quick else [(t, pool.submit(tracker, *t, known[t[0]], folder)) for t in TRACKED if wanted(t[0])]
        trips = [(n, w, pool.submit(round_trip, n, w, known[n], folder)) for n in sorted(known) if wanted(n) for w in ways]
        for name, way, job in trips:
            try:
                print(f"ok      {name:26} {way:17} same bytes by XLA; {job.result()}", flush=True)
            except (Wrong, subprocess.SubprocessError, OSError, ValueError, KeyError) as e:
                failed += 1
                print(f"FAILED  {name:26} {way:17} {e}", flush=True)
        gib = lambda row, key: f"{row[key] / GIB:.3f}" if key in row else "-"
        print(f"\n{'module':26} {'budget':>7} {'before':>7} {'promised':>8} {'by XLA':>7} {'host':>7} {'judge':>6}  verdict (GiB; ratio of step time)")
        for (name, budget, must, _), job in rewrites:
            try:
                row, bad = job.result()
            except (Wrong, subprocess.SubprocessError, OSError, ValueError, KeyError) as e:
                row, bad = dict(module=name, budget=budget, verdict=f"FAILED: {e}"), True
            failed += bad
            ratio = f"{row['ratio']:.3f}" if "ratio" in row else "-"
            print(f"{name:26} {budget:>7} {gib(row, 'before'):>7} {gib(row, 'promised'):>8} {gib(row, 'xla'):>7} {gib(row, 'host'):>7} {ratio:>6}  {row['verdict']}")
        if tracked:
            print(f"\n{'module':26} {'budget':>7} {'GPU':>7} {'tracker':>8} {'limit':>8} {'step':>6}  verdict (GiB; ratio of step time)")
        for (name, budget), job in tracked:
            try:
                row, bad = job.result()
            except (Wrong, subprocess.SubprocessError, OSError, ValueError, KeyError) as e:
                row, bad = dict(module=name, budget=budget, verdict=f"FAILED: {e}"), True
            failed += bad
            step = f"{row['slowdown']:.3f}" if "slowdown" in row else "-"
            print(f"{name:26} {budget:>7} {gib(row, 'memory'):>7} {gib(row, 'tracker'):>8} {gib(row, 'limit'):>8} {step:>6}  {row['verdict']}")
    if not a.quick and not a.only:
        print(flush=True)
        failed += subprocess.run([sys.executable, os.path.join(HERE, "compare.py")]).returncode != 0
    print(f"\n{failed} failed" if failed else "\nall well")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""What XLA:CPU makes of each operation, kept for the tests.

A family is two files in tests/fixtures/ops: FAMILY.hlo holds small modules one after the other, each after a line `// case NAME RULE`, and
FAMILY.bin their inputs and outputs (tuple leaves in order), raw, little endian, one array after the other, all of it deflated (zlib). Element
types and sizes are those of the module; sub-byte types take a byte each. `partitions=N` after the rule: inputs of all partitions, then
outputs of all partitions. RULE says how far the interpreter may be away: `exact`; `ulps=N`
units in the last place of the element type; `close=R` times the largest absolute value of the output. A NaN matches any NaN.

Where XLA:CPU cannot say (it runs modules by way of StableHLO, which lacks some operations), the answer is computed here with NumPy, in double
precision or more, and the case says `numpy` after its rule.
"""
import os
import sys
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax
import ml_dtypes
import numpy as np
import xla_cpu
from jax._src.lib import _jax
from jax._src.lib import xla_client as xc

FOLDER = Path(__file__).parents[2] / "tests/fixtures/ops"
NP = dict(xla_cpu.NP, s4=ml_dtypes.int4, u4=ml_dtypes.uint4, s2=ml_dtypes.int2, u2=ml_dtypes.uint2, f8e3m4=ml_dtypes.float8_e3m4,
          f8e4m3=ml_dtypes.float8_e4m3, f8e4m3b11fnuz=ml_dtypes.float8_e4m3b11fnuz, f8e4m3fnuz=ml_dtypes.float8_e4m3fnuz,
          f8e5m2fnuz=ml_dtypes.float8_e5m2fnuz, f8e8m0fnu=ml_dtypes.float8_e8m0fnu, f4e2m1fn=ml_dtypes.float4_e2m1fn)
NAME = {np.dtype(v): k for k, v in NP.items()}
INTS = ["s4", "u4", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"]
F8 = ["f8e4m3fn", "f8e5m2", "f8e4m3", "f8e3m4", "f8e4m3b11fnuz", "f8e4m3fnuz", "f8e5m2fnuz"]
FLOATS = ["f32", "f64", "f16", "bf16"]
FAMILIES = {}


class Family:
    def __init__(self, name):
        self.name, self.text, self.data, self.failures = name, [], [], []

    def case(self, name, rule, hlo, *inputs, answer=None):
        """A module given by its text from `ENTRY` on, or whole; `answer` is what NumPy says where XLA:CPU cannot."""
        text = hlo if hlo.lstrip().startswith("HloModule") else f"HloModule {name}\n\n{hlo}"
        text = "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n"
        inputs = [np.asarray(x) for x in inputs]
        if answer is None:
            try:
                out = [np.asarray(x) for x in xla_cpu.run(text, inputs)]
            except Exception as e:
                self.failures.append(f"{self.name}/{name}: {str(e).splitlines()[0][:300]}")
                return
        else:
            out, rule = answer, rule + " numpy"
        self.text.append(f"// case {name} {rule}\n{text}")
        self.data += [np.ascontiguousarray(x).tobytes() for x in inputs + out]

    def partitioned(self, name, rule, hlo, inputs):
        """A module that as many partitions run as there are lists of inputs. Everything is sharded `manual`, so that it is left as it is."""
        n = len(inputs)
        text = f"HloModule {name}, num_partitions={n}\n\n{hlo.strip()}\n"
        try:
            outputs = run_partitioned(text, inputs)
        except Exception as e:
            self.failures.append(f"{self.name}/{name}: {str(e).splitlines()[0][:300]}")
            return
        self.text.append(f"// case {name} {rule} partitions={n}\n{text}")
        self.data += [np.ascontiguousarray(x).tobytes() for part in [*inputs, *outputs] for x in part]

    def write(self):
        FOLDER.mkdir(parents=True, exist_ok=True)
        data = zlib.compress(b"".join(self.data), 9)
        text = "\n".join(self.text)
        (FOLDER / f"{self.name}.hlo").write_text(text)
        (FOLDER / f"{self.name}.bin").write_bytes(data)
        print(f"{self.name}: {len(self.text)} cases, {len(text)} bytes of text, {len(data)} bytes of data")
        for failure in self.failures:
            print("  XLA:CPU cannot:", failure)


def run_partitioned(text, inputs):
    n = len(inputs)
    devices = jax.devices("cpu")[:n]
    module = xc.hlo.hlo_module_from_text(text)
    mlir = _jax.mlir.xla_computation_to_mlir_module(xc.XlaComputation(module.as_serialized_hlo_module_proto()))
    options = xc.CompileOptions()
    options.num_partitions = n
    build = options.executable_build_options
    build.num_partitions, build.use_spmd_partitioning = n, True
    build.device_assignment = xc.DeviceAssignment.create(np.arange(n).reshape(1, n))
    executable = devices[0].client.compile_and_load(mlir, xc.DeviceList(tuple(devices)), options)
    sharding = jax.sharding.NamedSharding(jax.sharding.Mesh(np.array(devices), ("d",)), jax.sharding.PartitionSpec("d"))
    arguments = []
    for parts in zip(*inputs):
        shape = (n * parts[0].shape[0],) + parts[0].shape[1:]
        arrays = [jax.device_put(x, d) for x, d in zip(parts, devices)]
        arguments.append(jax.make_array_from_single_device_arrays(shape, sharding, arrays))
    outputs = executable.execute_sharded(arguments).disassemble_into_single_device_arrays()
    return [[np.asarray(x) for x in part] for part in zip(*outputs)]


def family(f):
    FAMILIES[f.__name__] = f
    return f


def shape(a):
    """The shape of an array as HLO text says it."""
    a = np.asarray(a)
    return f"{NAME[a.dtype]}[{','.join(map(str, a.shape))}]"


def entry(body, *inputs, before=""):
    """A module's text: parameters p0, p1, ... of the inputs' shapes, then the body; computations that it calls stand before."""
    lines = [f"  p{i} = {shape(a)} parameter({i})" for i, a in enumerate(inputs)]
    lines += ["  " + line.strip() for line in body.strip().splitlines()]
    return (before.strip() + "\n\n" if before else "") + "ENTRY main {\n" + "\n".join(lines) + "\n}\n"


def adder(name, t, op="add"):
    return f"{name} {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT r = {t}[] {op}(a, b)\n}}\n"


def rng(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def reals(t, n=192):
    """Edges and numbers of all magnitudes of a real type."""
    r, dt = rng("reals" + t), np.dtype(NP[t])
    if dt.itemsize == 1:
        return np.arange(256, dtype=np.uint8).view(dt)
    if dt.itemsize == 2:
        special = np.array([0, 0x8000, 1, 0x8001, 0x3c00, 0x3f80, 0x7c00, 0xfc00, 0x7f80, 0xff80, 0x7e00, 0x7fc0, 0x7bff, 0x7f7f], np.uint16)
        small = (r.standard_normal(64) * 2).astype(dt).view(np.uint16)
        return np.concatenate([special, small, r.integers(0, 1 << 16, 2 * n - 78).astype(np.uint16)]).view(dt)
    f = ml_dtypes.finfo(dt) if t in ("bf16",) else np.finfo(dt)
    tiny, big, eps = float(f.tiny), float(f.max), float(f.eps)
    edges = [0, tiny, tiny / 2, float(f.smallest_subnormal), big, np.inf, 1, 1 + eps, 1 - eps / 2, 0.5, 2, 3, 1.5, 2.5, 0.1, 10, np.pi, np.pi / 2,
             0.7, 20, 88, 89, 100, 710, 1e-3, 1e-5, 1e-8, 1e5, 1e10, 4.5, 8388607.5, 2**31, 2**32, 2**53, 2**63, 2**64]
    with np.errstate(over="ignore"):
        edges = np.array(edges, np.float64).astype(dt)
    wide = np.exp(r.uniform(np.log(tiny) if t == "f32" else -300, np.log(big) if t == "f32" else 300, n // 4))
    near = np.concatenate([r.standard_normal(n // 4) * 2, r.uniform(-1, 1, n // 4)])
    x = np.concatenate([edges, wide.astype(dt), near.astype(dt)])
    return np.concatenate([x, -x[: 2 * n - 1 - len(x)], np.array([np.nan], dt)]).astype(dt)


def pairs(t, n=256):
    """Two operands of a real type: all pairs of some edges, then pairs of like magnitude."""
    r, dt = rng("pairs" + t), np.dtype(NP[t])
    if dt.itemsize == 1:
        a = r.integers(0, 256, 512).astype(np.uint8).view(dt)
        return a, r.integers(0, 256, 512).astype(np.uint8).view(dt)
    e = np.array([0.0, -0.0, 1, -1, 2, -3, 0.5, np.inf, -np.inf, np.nan, 1e-3, 1234.5]).astype(dt)
    a, b = (x.ravel() for x in np.meshgrid(e, e))
    x, y = r.standard_normal(n) * 3, r.standard_normal(n) * 2
    return np.concatenate([a, x.astype(dt)]), np.concatenate([b, y.astype(dt)])


def ints(t):
    """Edges of an integer type, and some numbers."""
    r = rng("ints" + t)
    bits, signed = int(t[1:]), t[0] == "s"
    if bits <= 4:
        return np.arange(1 << bits).astype(np.uint8).view(np.int8).astype(np.int8 if signed else np.uint8).astype(NP[t]) if not signed else \
            np.arange(-(1 << bits - 1), 1 << bits - 1).astype(NP[t])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    edges = [0, 1, 2, 3, 5, 7, 8, 31, 33, 63, 64, 100, high, high - 1, low, low + 1, high // 2, high // 3] + ([-1, -2, -3, -7, -8, -64] if signed else [])
    edges = [e for e in edges if low <= e <= high]
    return np.concatenate([np.array(edges, dtype=NP[t]), r.integers(low, high, 12, dtype=NP[t], endpoint=True)])


def int_pairs(t):
    x = ints(t)
    edges = x if len(x) <= 16 else np.concatenate([x[:3], x[4:8:3], x[12:20]])
    a, b = (v.ravel() for v in np.meshgrid(edges, edges))
    return np.concatenate([a, x]), np.concatenate([b, x[::-1]])


def complexes(t):
    r = rng("complexes" + t)
    x = r.standard_normal((96, 2)) * 2
    x[:16] *= 1e-3
    x[16:24] *= 20
    return (x[:, 0] + 1j * x[:, 1]).astype(NP[t])


@family
def unary_real(f):
    exact = ["abs", "negate", "ceil", "floor", "sign", "round-nearest-afz", "round-nearest-even"]
    smooth = ["sqrt", "rsqrt", "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "tanh", "tan", "sine", "cosine", "cbrt",
              "erf", "acos", "acosh", "asin", "asinh", "atanh", "sinh", "cosh"]
    for t in FLOATS + F8[:2]:
        for op in exact + smooth:
            x = reals(t) if op in smooth or t == "f32" else reals(t)[:128]
            if op == "cbrt" and t in FLOATS:  # XLA:CPU gives nonsense for subnormal numbers
                x = x[np.isnan(x) | (np.abs(x) >= ml_dtypes.finfo(x.dtype).tiny) | (x == 0)]
            out = "exact" if op in exact else "ulps=4" if t in ("f32", "f64") else "close=1e-3" if (op, t) == ("logistic", "f16") else "ulps=1"
            f.case(f"{op}_{t}", out, entry(f"ROOT r = {shape(x)} {op}(p0)", x), x)
        x = reals(t)
        f.case(f"is-finite_{t}", "exact", entry(f"ROOT r = pred[{len(x)}] is-finite(p0)", x), x)
    for t in ["f32", "f64"]:
        x = reals(t)
        with np.errstate(all="ignore"):
            for op, g in [("exp2", np.exp2), ("log2", np.log2)]:
                f.case(f"{op}_{t}", "ulps=2", entry(f"ROOT r = {shape(x)} {op}(p0)", x), x, answer=[g(x.astype(np.longdouble)).astype(NP[t])])
    for t in F8[2:]:
        x = reals(t)
        for op in ["abs", "negate", "sign", "tanh"]:
            f.case(f"{op}_{t}", "exact" if op != "tanh" else "ulps=1", entry(f"ROOT r = {shape(x)} {op}(p0)", x), x)


@family
def unary_other(f):
    for t in INTS:
        x = ints(t)
        for op in ["abs", "negate", "not", "sign", "popcnt", "count-leading-zeros"]:
            # XLA:CPU counts the bits of the byte in which an s4 stands.
            if t[0] == "u" and op in ("abs", "sign") or (op, t) == ("popcnt", "s4"):
                continue
            f.case(f"{op}_{t}", "exact", entry(f"ROOT r = {shape(x)} {op}(p0)", x), x)
    x = np.array([False, True])
    f.case("not_pred", "exact", entry("ROOT r = pred[2] not(p0)", x), x)
    for t, part in [("c64", "f32"), ("c128", "f64")]:
        x = complexes(t)
        for op in ["abs", "real", "imag"]:
            rule = "ulps=2" if op == "abs" else "exact"
            f.case(f"{op}_{t}", rule, entry(f"ROOT r = {part}[{len(x)}] {op}(p0)", x), x)
        for op in ["negate", "sign", "exponential", "exponential-minus-one", "log", "log-plus-one", "sqrt", "rsqrt", "logistic", "sine",
                   "cosine", "sinh", "cosh", "tan", "tanh", "asin", "acos", "asinh", "acosh", "atanh"]:
            y = x if op not in ("exponential", "exponential-minus-one", "sinh", "cosh", "sine", "cosine", "logistic", "tan", "tanh") else x[:16].tolist() + x[24:].tolist()
            y = np.array(y, NP[t])
            # XLA:CPU crashes on these, and its sine is far off near zero.
            other = {"sine": "sin", "sinh": "sinh", "cosh": "cosh", "asin": "arcsin", "acos": "arccos", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh"}.get(op)
            answer = [getattr(np, other)(y.astype(np.clongdouble)).astype(NP[t])] if other else None
            f.case(f"{op}_{t}", "exact" if op == "negate" else "ulps=16", entry(f"ROOT r = {shape(y)} {op}(p0)", y), y, answer=answer)


@family
def binary(f):
    for t in FLOATS + F8:
        a, b = pairs(t)
        for op in ["add", "subtract", "multiply", "divide", "maximum", "minimum", "remainder", "power", "atan2"]:
            if t in F8[2:] and op in ("power", "atan2", "remainder"):
                continue
            rule = "exact" if op not in ("power", "atan2") else "ulps=4" if t in ("f32", "f64") else "ulps=1"
            f.case(f"{op}_{t}", rule, entry(f"ROOT r = {shape(a)} {op}(p0, p1)", a, b), a, b)
    for t in INTS:
        a, b = int_pairs(t)
        for op in ["add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "and", "or", "xor", "power", "shift-left",
                   "shift-right-arithmetic", "shift-right-logical", "mulhi"]:
            answer = None
            if op == "mulhi":
                bits = int(t[1:])
                wide = [(int(x) * int(y)) >> bits for x, y in zip(a, b)]
                answer = [np.array(wide, dtype=object).astype(np.int64 if t[0] == "s" else np.uint64).astype(NP[t])]
            f.case(f"{op}_{t}", "exact", entry(f"ROOT r = {shape(a)} {op}(p0, p1)", a, b), a, b, answer=answer)
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    for op in ["and", "or", "xor", "add", "multiply", "maximum", "minimum"]:
        f.case(f"{op}_pred", "exact", entry(f"ROOT r = pred[4] {op}(p0, p1)", a, b), a, b)
    for t, part in [("c64", "f32"), ("c128", "f64")]:
        a, b = complexes(t), complexes(t)[::-1].copy()
        for op in ["add", "subtract", "multiply", "divide", "power"]:
            if op == "power":
                a, b = a / 2, b / 20
                a, b = a.astype(NP[t]), b.astype(NP[t])
            rule = "exact" if op in ("add", "subtract") else "ulps=16" if op != "power" else "ulps=64"
            f.case(f"{op}_{t}", rule, entry(f"ROOT r = {shape(a)} {op}(p0, p1)", a, b), a, b)
        x, y = pairs(part)
        f.case(f"complex_{part}", "exact", entry(f"ROOT r = {t}[{len(x)}] complex(p0, p1)", x, y), x, y)


@family
def compare(f):
    for t in FLOATS + F8[:2]:
        a, b = pairs(t)
        for d in ["EQ", "NE", "LT", "LE", "GT", "GE"]:
            f.case(f"{d}_{t}", "exact", entry(f"ROOT r = pred[{len(a)}] compare(p0, p1), direction={d}", a, b), a, b)
        for d in ["EQ", "LT", "GE"]:
            f.case(f"total_{d}_{t}", "exact", entry(f"ROOT r = pred[{len(a)}] compare(p0, p1), direction={d}, type=TOTALORDER", a, b), a, b)
    for t in INTS:
        a, b = int_pairs(t)
        for d in ["EQ", "LT", "GE"]:
            f.case(f"{d}_{t}", "exact", entry(f"ROOT r = pred[{len(a)}] compare(p0, p1), direction={d}", a, b), a, b)
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    for d in ["EQ", "LT", "GE"]:
        f.case(f"{d}_pred", "exact", entry(f"ROOT r = pred[4] compare(p0, p1), direction={d}", a, b), a, b)
    c = np.array([1 + 2j, 1 + 2j, complex(np.nan, 0), 0], np.complex64)
    d = np.array([1 + 2j, 1 + 3j, complex(np.nan, 0), -0.0], np.complex64)
    for k in ["EQ", "NE"]:
        f.case(f"{k}_c64", "exact", entry(f"ROOT r = pred[4] compare(p0, p1), direction={k}", c, d), c, d)
    for t in ["f32", "bf16", "s32", "u8", "f64"]:
        x = reals(t) if t[0] in "fb" else ints(t)
        lo, hi = np.array(-1 if t != "u8" else 2).astype(NP[t]), np.array(2).astype(NP[t]) + np.array(1).astype(NP[t])
        f.case(f"clamp_{t}", "exact", entry(f"ROOT r = {shape(x)} clamp(p0, p1, p2)", lo, x, hi), lo, x, hi)
        p = rng("select").integers(0, 2, len(x)).astype(bool)
        y = x[::-1].copy()
        f.case(f"select_{t}", "exact", entry(f"ROOT r = {shape(x)} select(p0, p1, p2)", p, x, y), p, x, y)
    x, lo, hi = (reals("f32")[:300] for _ in range(3))
    lo, hi = np.roll(x, 7), np.roll(x, 31)
    f.case("clamp_arrays", "exact", entry(f"ROOT r = {shape(x)} clamp(p0, p1, p2)", lo, x, hi), lo, x, hi)


@family
def convert(f):
    types = INTS + FLOATS + F8 + ["pred", "c64", "c128"]
    for a in types:
        if a in INTS: x = ints(a)
        elif a == "pred": x = np.array([False, True])
        elif a in ("c64", "c128"): x = np.concatenate([complexes(a)[:40], np.array([0, 0 + 1j, np.nan, 3e9, -300], NP[a])])
        else: x = reals(a)
        for b in types:
            if a != b and not (a in ("c64", "c128") and b == "pred"):  # XLA:CPU crashes on complex to pred
                f.case(f"{a}_{b}", "exact", entry(f"ROOT r = {b}[{len(x)}] convert(p0)", x), x)
    for t, (e, m) in [("f32", (8, 7)), ("f32", (5, 10)), ("f32", (4, 3)), ("f32", (8, 0)), ("f32", (2, 23)), ("f32", (11, 52)), ("f64", (8, 23)),
                      ("f64", (5, 2)), ("bf16", (5, 3)), ("f16", (4, 5)), ("f16", (8, 7))]:
        x = reals(t)
        f.case(f"reduce-precision_{t}_{e}_{m}", "exact", entry(f"ROOT r = {shape(x)} reduce-precision(p0), exponent_bits={e}, mantissa_bits={m}", x), x)
    for a, b in [("f32", "s32"), ("u32", "f32"), ("bf16", "u16"), ("f16", "s16"), ("f64", "u64"), ("s8", "u8"), ("f8e4m3fn", "u8")]:
        x = reals(a) if a[0] in "fb" else ints(a)
        f.case(f"bitcast_{a}_{b}", "exact", entry(f"ROOT r = {b}[{len(x)}] bitcast-convert(p0)", x), x)
    x = reals("f32")[:8].reshape(2, 4)
    f.case("bitcast_split", "exact", entry("ROOT r = u16[2,4,2] bitcast-convert(p0)", x), x)
    y = x.view(np.uint16).reshape(2, 4, 2)
    f.case("bitcast_join", "exact", entry("ROOT r = f32[2,4] bitcast-convert(p0)", y), y)


def conv(f, name, lhs, rhs, window, labels, out, rule="close=1e-6", groups=1, batch_groups=1, element=None):
    extra = (f", feature_group_count={groups}" if groups > 1 else "") + (f", batch_group_count={batch_groups}" if batch_groups > 1 else "")
    t = element or NAME[lhs.dtype]
    dims = ",".join(map(str, out))
    w = f"window={{{window}}}, " if window else ""
    f.case(name, rule, entry(f"ROOT r = {t}[{dims}] convolution(p0, p1), {w}dim_labels={labels}{extra}", lhs, rhs), lhs, rhs)


def normal(name, dims, t="f32"):
    r = rng(name)
    if t[0] in "su":
        return r.integers(-4 if t[0] == "s" else 0, 5, dims).astype(NP[t])
    x = r.standard_normal(dims)
    return (x + 1j * r.standard_normal(dims) if t[0] == "c" else x).astype(NP[t])


@family
def convolution(f):
    for t in ["f32", "f64", "bf16", "f16", "s8", "s32", "u8", "s64", "c64", "c128"]:
        rule = "exact" if t[0] in "su" else {"f64": "close=1e-14", "c128": "close=1e-14", "bf16": "close=1e-2", "f16": "close=2e-3"}.get(t, "close=1e-6")
        x, k = normal("x", (2, 5, 6, 3), t), normal("k", (3, 2, 3, 4), t)
        conv(f, f"conv_{t}", x, k, "size=3x2 stride=2x1 pad=1_1x0_1", "b01f_01io->b01f", (2, 3, 6, 4), rule)
    for a, b in [("bf16", "f32"), ("f16", "f32"), ("s8", "s32"), ("u8", "s32"), ("f32", "f64")]:
        x, k = normal("x", (2, 5, 6, 3), a), normal("k", (3, 2, 3, 4), a)
        conv(f, f"conv_{a}-{b}", x, k, "size=3x2", "b01f_01io->b01f", (2, 3, 5, 4), "exact" if b == "s32" else "close=1e-6", element=b)
    x, k = normal("x", (2, 7, 8, 3)), normal("k", (3, 2, 3, 4))
    forms = [("stride", "size=3x2 stride=2x3", (3, 3)), ("pad", "size=3x2 pad=2_0x1_3", (7, 11)), ("pad-negative", "size=3x2 pad=-1_-1x-2_1", (3, 6)),
             ("lhs-dilate", "size=3x2 lhs_dilate=2x3", (11, 21)), ("rhs-dilate", "size=3x2 rhs_dilate=2x3", (3, 5)),
             ("both-dilate", "size=3x2 stride=2x2 pad=1_2x0_-1 lhs_dilate=3x2 rhs_dilate=2x4", (9, 5)),
             ("reversed", "size=3x2 rhs_reversal=1x1", (5, 7)), ("reversed-one", "size=3x2 pad=1_1x0_0 rhs_reversal=0x1", (7, 7)),
             ("wide-pad", "size=3x2 pad=5_5x4_4", (15, 15)), ("no-room", "size=3x2 pad=-3_-3x0_0", (0, 7))]
    for name, window, (h, w) in forms:
        conv(f, f"window_{name}", x, k, window, "b01f_01io->b01f", (2, h, w, 4))
    conv(f, "labels_bf01-oi01", normal("x", (2, 3, 7, 8)), normal("k", (4, 3, 3, 2)), "size=3x2", "bf01_oi01->bf01", (2, 4, 5, 7))
    conv(f, "labels_f01b-i01o", normal("x", (3, 7, 8, 2)), normal("k", (3, 3, 2, 4)), "size=3x2", "f01b_i01o->01bf", (5, 7, 2, 4))
    conv(f, "labels_b10f", normal("x", (2, 8, 7, 3)), normal("k", (2, 4, 3, 3)), "size=3x2", "b10f_1oi0->f1b0", (4, 7, 2, 5))
    conv(f, "rank_1d", normal("x", (2, 9, 3)), normal("k", (4, 3, 5)), "size=4 stride=2 pad=1_2", "b0f_0io->b0f", (2, 5, 5))
    conv(f, "rank_3d", normal("x", (1, 4, 5, 3, 2)), normal("k", (2, 3, 2, 2, 3)), "size=2x3x2 pad=0_1x1_1x0_0", "b012f_012io->b012f", (1, 4, 5, 2, 3))
    conv(f, "rank_0d", normal("x", (3, 4)), normal("k", (4, 5)), "", "bf_io->bf", (3, 5))
    conv(f, "groups_2", normal("x", (2, 5, 5, 4)), normal("k", (2, 2, 2, 6)), "size=2x2", "b01f_01io->b01f", (2, 4, 4, 6), groups=2)
    conv(f, "groups_depthwise", normal("x", (2, 5, 5, 4)), normal("k", (3, 3, 1, 8)), "size=3x3 pad=1_1x1_1", "b01f_01io->b01f", (2, 5, 5, 8), groups=4)
    conv(f, "groups_batch", normal("x", (4, 5, 5, 3)), normal("k", (2, 2, 3, 6)), "size=2x2", "b01f_01io->b01f", (2, 4, 4, 6), batch_groups=2)
    conv(f, "groups_batch4", normal("x", (4, 5, 5, 3)), normal("k", (2, 2, 3, 8)), "size=2x2 stride=2x1", "b01f_01io->b01f", (1, 2, 4, 8), batch_groups=4)
    conv(f, "empty_batch", normal("x", (0, 5, 5, 3)), normal("k", (2, 2, 3, 4)), "size=2x2", "b01f_01io->b01f", (0, 4, 4, 4))
    conv(f, "empty_features", normal("x", (2, 5, 5, 0)), normal("k", (2, 2, 0, 4)), "size=2x2", "b01f_01io->b01f", (2, 4, 4, 4))
    conv(f, "large_sum", normal("x", (1, 16, 16, 32)), normal("k", (3, 3, 32, 2)), "size=3x3", "b01f_01io->b01f", (1, 14, 14, 2), "close=2e-6")
    z = normal("x", (1, 3, 3, 1))
    z[0, 1, 1, 0], z[0, 0, 0, 0] = np.inf, np.nan
    conv(f, "special_values", z, np.ones((2, 2, 1, 1), np.float32), "size=2x2 pad=1_0x0_1", "b01f_01io->b01f", (1, 3, 3, 1))


def pair(name, t, body, types=None):
    """A computation of two scalars a and b."""
    ta, tb = types or (t, t)
    return f"{name} {{\n  a = {ta}[] parameter(0)\n  b = {tb}[] parameter(1)\n  ROOT r = {body}\n}}"


@family
def windows(f):
    def window(name, x, init, w, out, op="add", rule="close=1e-6"):
        t = NAME[x.dtype]
        dims = ",".join(map(str, out))
        body = entry(f"i = {t}[] constant({init})\nROOT r = {t}[{dims}] reduce-window(p0, i), window={{{w}}}, to_apply=f", x, before=pair("f", t, f"{t}[] {op}(a, b)"))
        f.case(name, rule, body, x)
    x = normal("w", (2, 7, 6))
    for t, rule in [("f32", "close=1e-6"), ("f64", "close=1e-14"), ("bf16", "close=2e-2"), ("f16", "close=4e-3"), ("s32", "exact"), ("u8", "exact"), ("s64", "exact"), ("c64", "close=1e-6")]:
        window(f"reduce-window_{t}", normal("w", (2, 7, 6), t), 0 if t != "c64" else "(0, 0)", "size=1x3x2 stride=1x2x1 pad=0_0x1_1x0_1", (2, 4, 6), rule=rule)
    for op, init in [("maximum", "-inf"), ("minimum", "inf"), ("multiply", "1")]:
        window(f"reduce-window_{op}", x, init, "size=1x3x2 stride=1x2x2 pad=0_0x1_1x0_1", (2, 4, 3), op, "exact" if op != "multiply" else "close=1e-6")
    window("reduce-window_rhs-dilate", x, 0, "size=1x3x2 rhs_dilate=1x2x3", (2, 3, 3))
    window("reduce-window_lhs-dilate", x, 0, "size=1x3x2 lhs_dilate=1x2x3 pad=0_0x1_0x2_2", (2, 12, 19))
    window("reduce-window_pad-negative", x, 0, "size=1x3x2 pad=0_0x-1_-1x-2_1", (2, 3, 4))
    window("reduce-window_init", x, 7.5, "size=2x3x2 pad=1_1x0_0x0_0", (3, 5, 5))
    window("reduce-window_cumsum", normal("w", (9,)), 0, "size=9 pad=8_0", (9,))
    window("reduce-window_empty", normal("w", (2, 2)), 0, "size=3x1", (0, 2))
    window("reduce-window_empty-operand", normal("w", (0, 2)), 3, "size=1x1 pad=1_1x0_0", (2, 2))
    y = np.arange(42, dtype=np.int32).reshape(2, 21) * 7919 % 101
    y = y.astype(np.int32)
    variadic = """f {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  c = pred[] compare(a, b), direction=GE
  m = f32[] select(c, a, b)
  n = s32[] select(c, i, j)
  ROOT r = (f32[], s32[]) tuple(m, n)
}"""
    v, k = normal("v", (2, 21)), y
    f.case("reduce-window_variadic", "exact", entry("i = f32[] constant(-inf)\nz = s32[] constant(-1)\nROOT r = (f32[2,7], s32[2,7]) reduce-window(p0, p1, i, z), window={size=1x4 stride=1x3 pad=0_0x0_1}, to_apply=f", v, k, before=variadic), v, k)
    # A combiner that is no single operation, and one whose order of operands matters.
    z = normal("w", (8,))
    f.case("reduce-window_computed", "close=1e-6", entry("i = f32[] constant(0)\nROOT r = f32[6] reduce-window(p0, i), window={size=3}, to_apply=f", z,
           before="f {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  m = f32[] multiply(b, b)\n  ROOT r = f32[] add(a, m)\n}"), z)

    def select(name, x, w, out, t="f32", rule="close=1e-6", op="GE", init="0"):
        s = normal(name, out, t)
        before = pair("s", t, f"pred[] compare(a, b), direction={op}") + "\n\n" + pair("f", t, f"{t}[] add(a, b)")
        f.case(name, rule, entry(f"i = {t}[] constant({init})\nROOT r = {shape(x)} select-and-scatter(p0, p1, i), window={{{w}}}, select=s, scatter=f", x, s, before=before), x, s)
    for t, rule in [("f32", "close=1e-6"), ("f64", "close=1e-14"), ("bf16", "close=2e-2"), ("s32", "exact")]:
        select(f"select-and-scatter_{t}", normal("s", (2, 6, 6), t), "size=1x2x2 stride=1x2x2", (2, 3, 3), t, rule)
    select("select-and-scatter_overlap", normal("s", (2, 7, 6)), "size=1x3x3 stride=1x2x1 pad=0_0x1_1x1_1", (2, 4, 6))
    select("select-and-scatter_ties", np.ones((1, 5, 5), np.float32), "size=1x3x3 stride=1x1x1", (1, 3, 3))
    select("select-and-scatter_least", normal("s", (1, 5, 5)), "size=1x2x3 stride=1x2x2", (1, 2, 2), op="LE", init="1.5")


@family
def sorting(f):
    def sort(name, xs, dim, less, stable=True):
        types = [NAME[x.dtype] for x in xs]
        params = "\n".join(f"  a{i} = {t}[] parameter({2 * i})\n  b{i} = {t}[] parameter({2 * i + 1})" for i, t in enumerate(types))
        before = f"less {{\n{params}\n  {less}\n}}"
        out = shape(xs[0]) if len(xs) == 1 else "(" + ", ".join(map(shape, xs)) + ")"
        args = ", ".join(f"p{i}" for i in range(len(xs)))
        f.case(name, "exact", entry(f"ROOT r = {out} sort({args}), dimensions={{{dim}}}, is_stable={'true' if stable else 'false'}, to_apply=less", *xs, before=before), *xs)
    lt = "ROOT r = pred[] compare(a0, b0), direction=LT"
    for t in ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"]:
        sort(f"sort_{t}", [ints(t)], 0, lt)
    for t in ["f32", "f64", "bf16", "f16"]:
        sort(f"sort_{t}", [reals(t)[:150]], 0, lt + ", type=TOTALORDER")
    sort("sort_pred", [np.array([1, 0, 1, 0, 0], bool)], 0, lt)
    x = rng("sort").integers(0, 4, (5, 9)).astype(np.int32)
    i = np.arange(45, dtype=np.int32).reshape(5, 9)
    sort("sort_stable", [x, i], 1, lt)
    sort("sort_stable-descending", [x, i], 1, "ROOT r = pred[] compare(a0, b0), direction=GT")
    sort("sort_columns", [x, i], 0, lt)
    sort("sort_three", [x, normal("sort", (5, 9)), i], 1, lt)
    sort("sort_middle", [rng("m").integers(0, 9, (2, 7, 3)).astype(np.int32), np.arange(42, dtype=np.int64).reshape(2, 7, 3)], 1, lt)
    sort("sort_two-keys", [x, normal("sort", (5, 9)).round(0)], 1, "e = pred[] compare(a0, b0), direction=EQ\n  l = pred[] compare(a0, b0), direction=LT\n  k = pred[] compare(a1, b1), direction=LT\n  ROOT r = pred[] select(e, k, l)")
    sort("sort_empty", [np.zeros((0,), np.float32)], 0, lt)
    sort("sort_one", [np.ones((3, 1), np.float32)], 1, lt)
    for t in ["f32", "bf16", "s32"]:
        x = normal("topk", (3, 17), t)
        x[1, 4] = x[1, 9] = x[1, 2]
        f.case(f"topk_{t}", "exact", entry(f"ROOT r = ({t}[3,5], s32[3,5]) topk(p0), k=5, largest=true", x), x,
               answer=[np.take_along_axis(x, np.argsort(-x.astype(np.float64), 1, kind="stable"), 1)[:, :5], np.argsort(-x.astype(np.float64), 1, kind="stable")[:, :5].astype(np.int32)])
        if t == "f32":
            f.case("topk_custom-call", "exact", entry("ROOT r = (f32[3,5], s32[3,5]) custom-call(p0), custom_call_target=\"TopK\", called_computations={gt}", x, before=pair("gt", t, "pred[] compare(a, b), direction=GT, type=TOTALORDER")), x)


@family
def indexing(f):
    def gather(name, x, i, attrs, sizes, out):
        dims = ",".join(map(str, out))
        f.case(f"gather_{name}", "exact", entry(f"ROOT r = {NAME[x.dtype]}[{dims}] gather(p0, p1), {attrs}, slice_sizes={{{sizes}}}", x, i), x, i)
    x = normal("g", (5, 4, 3))
    s = lambda *v: np.array(v, np.int32)
    gather("rows", x, s(0, 4, 2, 2), "offset_dims={1,2}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1", "1,4,3", (4, 4, 3))
    gather("clamped", x, s(-1, 5, 2**31 - 1, -2**31), "offset_dims={1,2}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1", "1,4,3", (4, 4, 3))
    gather("slices", x, s(0, 3, 9, -4), "offset_dims={1,2,3}, collapsed_slice_dims={}, start_index_map={0}, index_vector_dim=1", "2,4,3", (4, 2, 4, 3))
    gather("components", x, s([0, 1], [4, 3], [7, -7]), "offset_dims={1}, collapsed_slice_dims={0,1}, start_index_map={0,1}, index_vector_dim=1", "1,1,3", (3, 3))
    gather("swapped", x, s([2, 0], [1, 4]), "offset_dims={0,1}, collapsed_slice_dims={0}, start_index_map={2,0}, index_vector_dim=1", "1,4,2", (4, 2, 2))
    gather("vector-dim-0", x, s([2, 0], [1, 3]), "offset_dims={1}, collapsed_slice_dims={0,1}, start_index_map={0,1}, index_vector_dim=0", "1,1,3", (2, 3))
    gather("batched-indices", x, s([[0, 1], [1, 2]], [[3, 3], [4, 0]]), "offset_dims={1}, collapsed_slice_dims={0,1}, start_index_map={0,1}, index_vector_dim=2", "1,1,2", (2, 2, 2))
    gather("batching", x, s([1], [0], [3], [3], [-1]), "offset_dims={1}, collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=1, operand_batching_dims={0}, start_indices_batching_dims={0}", "1,1,3", (5, 3))
    gather("batching-two", x, rng("b").integers(0, 3, (4, 2, 5)).astype(np.int32), "offset_dims={}, collapsed_slice_dims={2}, start_index_map={2}, index_vector_dim=3, operand_batching_dims={0,1}, start_indices_batching_dims={2,0}", "1,1,1", (4, 2, 5))
    gather("empty-indices", x, np.zeros((0,), np.int32), "offset_dims={1,2}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1", "1,4,3", (0, 4, 3))
    for t in ["s8", "u8", "u32", "s64", "u64"]:
        i = np.array([0, 4, 3], NP[t])
        gather(f"index-{t}", x, i, "offset_dims={1,2}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1", "1,4,3", (3, 4, 3))
    for t in ["pred", "bf16", "c128", "u8"]:
        y = normal("g", (5, 2), t) if t != "pred" else normal("g", (5, 2)) > 0
        gather(f"operand-{t}", y, s(1, 3), "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1", "1,2", (2, 2))

    def scatter(name, x, i, u, attrs, body=None, rule="exact"):
        t = NAME[x.dtype]
        f.case(f"scatter_{name}", rule, entry(f"ROOT r = {shape(x)} scatter(p0, p1, p2), {attrs}, to_apply=f", x, i, u, before=pair("f", t, body or f"{t}[] add(a, b)")), x, i, u)
    rows = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
    for t, rule in [("f32", "close=1e-6"), ("bf16", "close=2e-2"), ("f64", "close=1e-14"), ("s32", "exact"), ("u8", "exact"), ("c64", "close=1e-6")]:
        scatter(f"add-{t}", normal("x", (5, 3), t), s(0, 2, 2, 4, 2), normal("u", (5, 3), t), rows, rule=rule)
    x, u = normal("x", (5, 3)), normal("u", (5, 3))
    scatter("outside", x, s(-1, 5, 2, 2**31 - 1, 4), u, rows)
    scatter("last-wins", x, s(1, 1, 1, 3, 3), u, rows, "f32[] copy(b)")
    scatter("maximum", x, s(1, 1, 1, 3, 3), u, rows, "f32[] maximum(a, b)")
    scatter("subtract", x, s(1, 1, 1, 3, 3), u, rows, "f32[] subtract(a, b)", "close=1e-6")
    scatter("window", normal("x", (6, 4)), s([0, 0], [4, 2], [5, 0], [4, 3], [-1, 1]), normal("u", (5, 2, 2)), "update_window_dims={1,2}, inserted_window_dims={}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=1", rule="close=1e-6")
    scatter("components", normal("x", (3, 4, 2)), s([0, 3], [2, 1], [0, 3]), normal("u", (2, 3)), "update_window_dims={0}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=1", rule="close=1e-6")
    scatter("vector-dim-0", normal("x", (3, 4)), s([0, 2, 0], [3, 1, 3]), normal("u", (3,)), "update_window_dims={}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=0", rule="close=1e-6")
    scatter("batching", normal("x", (3, 5)), s([0, 4], [1, 1], [7, 2]), normal("u", (3, 2)), "update_window_dims={}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, index_vector_dim=2, input_batching_dims={0}, scatter_indices_batching_dims={0}", rule="close=1e-6")
    scatter("empty", x, np.zeros((0,), np.int32), np.zeros((0, 3), np.float32), rows)
    scatter("whole", normal("x", (2, 3)), np.zeros((0,), np.int32), normal("u", (2, 3)), "update_window_dims={0,1}, inserted_window_dims={}, scatter_dims_to_operand_dims={}, index_vector_dim=0")
    two = """f {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  c = pred[] compare(b, a), direction=GT
  m = f32[] select(c, b, a)
  n = s32[] select(c, j, i)
  ROOT r = (f32[], s32[]) tuple(m, n)
}"""
    y, i, v, w = normal("x", (6,)), s([1], [1], [4], [1]), normal("v", (4,)), np.arange(4, dtype=np.int32)
    z = np.full((6,), -1, np.int32)
    f.case("scatter_variadic", "exact", entry("ROOT r = (f32[6], s32[6]) scatter(p0, p1, p2, p3, p4), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f", y, z, i, v, w, before=two), y, z, i, v, w)
    for dims in ["0", "1", "0,2", "0,1,2"]:
        x = normal("r", (2, 3, 4))
        f.case(f"reverse_{dims.replace(',', '')}", "exact", entry(f"ROOT r = {shape(x)} reverse(p0), dimensions={{{dims}}}", x), x)
    x = normal("r", (0, 3))
    f.case("reverse_empty", "exact", entry(f"ROOT r = {shape(x)} reverse(p0), dimensions={{0}}", x), x)


@family
def random(f):
    states = {"rng_three_fry": [[0x1234567890abcdef, 0x1111222233334444], [0, 2**64 - 1]],
              "rng_philox": [[0x1234567890abcdef, 0x1111222233334444, 0x5555666677778888], [7, 2**64 - 1, 2**64 - 1], [0x1234567890abcdef, 2**64 - 1]],
              "rng_default": [[1, 2, 3], [1, 2]]}
    shapes = ["", "1", "4", "5", "2,3", "3,4", "3,5", "5,3", "4,6,3", "5,7,3", "3,3", "6,1"]
    for algorithm, keys in states.items():
        for k, key in enumerate(keys):
            key = np.array(key, np.uint64)
            for t in ["u32", "u64", "u8", "u16", "s32", "s64"]:
                for dims in shapes if t == "u32" and k == 0 else ["7", "2,4"]:
                    name = f"{algorithm.replace('_', '-')}_{t}-{k}-{dims.replace(',', 'x')}"
                    f.case(name, "exact", entry(f"ROOT r = ({shape(key)}, {t}[{dims}]) rng-bit-generator(p0), algorithm={algorithm}", key), key)
    f.case("rng-get-and-update-state_u64", "exact", entry("ROOT r = u64[2] rng-get-and-update-state(), delta=5"))


@family
def transforms(f):
    for n in [1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 31, 64, 100]:
        for t, rule in [("c64", "close=1e-6"), ("c128", "close=1e-14")]:
            if t == "c128" and n not in (3, 8, 15, 31):
                continue
            x = normal(f"fft{n}", (2, n), t)
            for kind in ["FFT", "IFFT"]:
                f.case(f"{kind}_{t}-{n}", rule, entry(f"ROOT r = {shape(x)} fft(p0), fft_type={kind}, fft_length={{{n}}}", x), x)
            r, real = x.real.copy(), "f32" if t == "c64" else "f64"
            f.case(f"RFFT_{real}-{n}", rule, entry(f"ROOT r = {t}[2,{n // 2 + 1}] fft(p0), fft_type=RFFT, fft_length={{{n}}}", r), r)
            h = normal(f"irfft{n}", (2, n // 2 + 1), t)
            f.case(f"IRFFT_{t}-{n}", rule, entry(f"ROOT r = {real}[2,{n}] fft(p0), fft_type=IRFFT, fft_length={{{n}}}", h), h)
    x = normal("fft2", (2, 3, 4, 5), "c64")
    f.case("FFT_2d", "close=1e-6", entry(f"ROOT r = {shape(x)} fft(p0), fft_type=FFT, fft_length={{4,5}}", x), x)
    f.case("IFFT_3d", "close=1e-6", entry(f"ROOT r = {shape(x)} fft(p0), fft_type=IFFT, fft_length={{3,4,5}}", x), x)
    r = x.real.copy()
    f.case("RFFT_2d", "close=1e-6", entry("ROOT r = c64[2,3,4,3] fft(p0), fft_type=RFFT, fft_length={4,5}", r), r)
    f.case("RFFT_3d", "close=1e-6", entry("ROOT r = c64[2,3,4,3] fft(p0), fft_type=RFFT, fft_length={3,4,5}", r), r)
    h = normal("irfft2", (2, 3, 4, 3), "c64")
    f.case("IRFFT_2d", "close=1e-6", entry("ROOT r = f32[2,3,4,5] fft(p0), fft_type=IRFFT, fft_length={4,5}", h), h)
    e = np.zeros((0, 4), np.complex64)
    f.case("FFT_empty", "exact", entry("ROOT r = c64[0,4] fft(p0), fft_type=FFT, fft_length={4}", e), e)


@family
def matrices(f):
    for t, rule in [("f32", "close=2e-6"), ("f64", "close=1e-14"), ("c64", "close=2e-6"), ("c128", "close=1e-14")]:
        for n in [1, 4, 9]:
            m = normal(f"chol{n}", (2, n, n), t)
            a = m @ m.conj().swapaxes(1, 2) + n * np.eye(n).astype(NP[t])
            for lower in ["true", "false"]:
                keep = np.tril(np.ones((n, n))) if lower == "true" else np.triu(np.ones((n, n)))
                # Only one half may be read.
                b = np.where(keep, a, 99).astype(NP[t])
                f.case(f"cholesky_{t}-{n}-{lower}", rule, entry(f"ROOT r = {shape(b)} cholesky(p0), lower={lower}", b), b)
        n = 5
        a = normal("tri", (2, n, n), t) + 4 * np.eye(n).astype(NP[t])
        a = a.astype(NP[t])
        for left in ["true", "false"]:
            b = normal("rhs", (2, n, 3) if left == "true" else (2, 3, n), t)
            for lower in ["true", "false"]:
                for unit in ["false", "true"]:
                    for transpose in ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"]:
                        if t not in ("f32", "c64") and (unit == "true" or transpose == "TRANSPOSE"):
                            continue
                        f.case(f"triangular-solve_{t}-{left}-{lower}-{unit}-{transpose}", "close=1e-5" if t in ("f32", "c64") else "close=1e-13",
                               entry(f"ROOT r = {shape(b)} triangular-solve(p0, p1), left_side={left}, lower={lower}, unit_diagonal={unit}, transpose_a={transpose}", a, b), a, b)
    a = np.array([[1, 2], [2, 1]], np.float32)
    f.case("cholesky_indefinite", "exact", entry(f"ROOT r = {shape(a)} cholesky(p0), lower=true", a), a)


@family
def norms(f):
    for t, rule in [("f32", "close=2e-6"), ("f64", "close=1e-13"), ("bf16", "close=3e-2"), ("f16", "close=4e-3")]:
        for index, dims in [(3, (2, 3, 4, 5)), (1, (4, 3, 2)), (0, (3, 7))]:
            if index != 3 and t != "f32":
                continue
            c = dims[index]
            x, g = normal("x", dims, t), normal("g", dims, t)
            scale, offset, mean = normal("s", (c,), t), normal("o", (c,), t), normal("m", (c,), t)
            var = np.abs(normal("v", (c,), t)) + np.array(0.5).astype(NP[t])
            var = var.astype(NP[t])
            v = shape(scale)
            a = f"epsilon=0.001, feature_index={index}"
            f.case(f"batch-norm-training_{t}-{index}", rule, entry(f"ROOT r = ({shape(x)}, {v}, {v}) batch-norm-training(p0, p1, p2), {a}", x, scale, offset), x, scale, offset)
            f.case(f"batch-norm-inference_{t}-{index}", rule, entry(f"ROOT r = {shape(x)} batch-norm-inference(p0, p1, p2, p3, p4), {a}", x, scale, offset, mean, var), x, scale, offset, mean, var)
            f.case(f"batch-norm-grad_{t}-{index}", rule, entry(f"ROOT r = ({shape(x)}, {v}, {v}) batch-norm-grad(p0, p1, p2, p3, p4), {a}", x, scale, mean, var, g), x, scale, mean, var, g)


@family
def collectives(f):
    def case(name, op, attrs, t, dims, out, operands=1, reduce="", rule="exact"):
        inputs = [[normal(f"{name}{p}{i}", dims, t) for i in range(operands)] for p in range(4)]
        inputs = [[np.round(x * 8) if t[0] in "fb" else x for x in part] for part in inputs]
        inputs = [[x.astype(NP[t]) for x in part] for part in inputs]
        manual = "sharding={manual}"
        lines = [f"p{i} = {shape(x)} parameter({i}), {manual}" for i, x in enumerate(inputs[0])]
        result = f"{t}[{','.join(map(str, out))}]"
        many = operands > 1
        if many:
            result, manual = "(" + ", ".join([result] * operands) + ")", "sharding={" + ", ".join(["{manual}"] * operands) + "}"
        args = ", ".join(f"p{i}" for i in range(operands))
        lines.append(f"ROOT r = {result} {op}({args}), {attrs}{', to_apply=f' if reduce else ''}, {manual}")
        before = adder("f", t, reduce) + "\n" if reduce else ""
        f.partitioned(name, rule, before + "ENTRY main {\n  " + "\n  ".join(lines) + "\n}", inputs)
    world = "channel_id=1, use_global_device_ids=true, replica_groups="
    for t in ["f32", "bf16", "s32", "f64", "f16"]:
        case(f"all-reduce_{t}", "all-reduce", world + "{{0,1,2,3}}", t, (3, 2), (3, 2), reduce="add")
    for op in ["maximum", "minimum", "multiply"]:
        case(f"all-reduce_{op}", "all-reduce", world + "{{0,1,2,3}}", "s32", (3,), (3,), reduce=op)
    case("all-reduce_groups", "all-reduce", world + "{{0,2},{3,1}}", "f32", (3,), (3,), reduce="add")
    case("all-reduce_iota", "all-reduce", world + "[2,2]<=[2,2]T(1,0)", "f32", (3,), (3,), reduce="add")
    case("all-reduce_iota-plain", "all-reduce", world + "[2,2]<=[4]", "f32", (3,), (3,), reduce="add")
    case("all-reduce_replicas", "all-reduce", "replica_groups={}", "f32", (3,), (3,), reduce="add")
    case("all-reduce_channel", "all-reduce", "channel_id=1, replica_groups={}", "f32", (3,), (3,), reduce="add")
    case("all-reduce_channel-group", "all-reduce", "channel_id=1, replica_groups={{0}}", "f32", (3,), (3,), reduce="add")
    case("all-gather_0", "all-gather", world + "{{0,1,2,3}}, dimensions={0}", "f32", (2, 3), (8, 3))
    case("all-gather_1", "all-gather", world + "{{2,0},{1,3}}, dimensions={1}", "bf16", (2, 3), (2, 6))
    case("reduce-scatter_0", "reduce-scatter", world + "{{0,1,2,3}}, dimensions={0}", "f32", (8, 3), (2, 3), reduce="add")
    case("reduce-scatter_1", "reduce-scatter", world + "[2,2]<=[2,2]T(1,0), dimensions={1}", "s32", (2, 6), (2, 3), reduce="add")
    case("all-to-all_0", "all-to-all", "channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}", "f32", (4, 3), (4, 3))
    case("all-to-all_1", "all-to-all", "channel_id=1, replica_groups={{3,0},{1,2}}, dimensions={1}", "s32", (2, 6), (2, 6))
    case("all-to-all_tuple", "all-to-all", "channel_id=1, replica_groups={{0,2},{1,3}}", "f32", (2, 3), (2, 3), 2)
    case("collective-permute_ring", "collective-permute", "channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}", "f32", (2, 3), (2, 3))
    case("collective-permute_some", "collective-permute", "channel_id=1, source_target_pairs={{0,3},{3,1}}", "u8", (5,), (5,))
    case("collective-permute_replicas", "collective-permute", "source_target_pairs={{0,0}}", "f32", (2,), (2,))


@family
def cudnn(f):
    """Custom calls that only XLA:GPU knows: the answers are XLA:CPU's for the same convolution, and for its gradients by JAX."""
    from jax import lax

    def config(activation="kNone", scale=1, side=0, alpha=0):
        return '{"cudnn_conv_backend_config":{"activation_mode":"%s","conv_result_scale":%s,"side_input_scale":%s,"leakyrelu_alpha":%s}}' % (activation, scale, side, alpha)

    def case(name, what, x, w, strides, pads, labels, groups=1, rule="close=2e-6", lhs_dilate=None, rhs_dilate=None, extra=(), finish=None, **settings):
        ins, rest = labels.split("_")
        ks, outs = rest.split("->")
        # JAX writes N, C, O, I for batch, feature, output and input feature, and spatial dimensions as they are.
        numbers = lax.conv_dimension_numbers(x.shape, w.shape, tuple(s.upper().replace("B", "N").replace("F", "C") if s is not ks else s.upper() for s in (ins, ks, outs)))
        d = len(strides)
        def go(x, w):
            return lax.conv_general_dilated(x, w, strides, pads, lhs_dilation=lhs_dilate, rhs_dilation=rhs_dilate, dimension_numbers=numbers,
                                            feature_group_count=groups, precision=lax.Precision.HIGHEST)
        y = jax.eval_shape(go, x, w)
        sizes = [w.shape[ks.index(str(i))] for i in range(d)]
        by = lambda v: "x".join(map(str, v))
        window = f"size={by(sizes)} stride={by(strides)} pad=" + "x".join(f"{a}_{b}" for a, b in pads)
        if lhs_dilate: window += f" lhs_dilate={by(lhs_dilate)}"
        if rhs_dilate: window += f" rhs_dilate={by(rhs_dilate)}"
        g = normal("grad" + name, y.shape, NAME[x.dtype])
        if what == "Forward" or what == "BiasActivationForward":
            inputs, out = [x, w, *extra], np.asarray(go(x, w))
            if finish:
                out = finish(out.astype(np.float64), *[e.astype(np.float64) for e in extra]).astype(x.dtype)
        elif what == "BackwardInput":
            inputs, out = [g, w], np.asarray(jax.vjp(lambda x: go(x, w), x)[1](g)[0])
        else:
            inputs, out = [x, g], np.asarray(jax.vjp(lambda w: go(x, w), w)[1](g)[0])
        args = ", ".join(f"p{i}" for i in range(len(inputs)))
        body = f'ROOT r = ({shape(out)}, u8[0]) custom-call({args}), window={{{window}}}, dim_labels={labels}' + \
            (f", feature_group_count={groups}" if groups > 1 else "") + f', custom_call_target="__cudnn$conv{what}", backend_config={config(**settings)}'
        f.case(name, rule, entry(body, *inputs), *inputs, answer=[out, np.zeros(0, np.uint8)])

    for what in ["Forward", "BackwardInput", "BackwardFilter"]:
        k = what.lower()
        x, w = normal("x", (2, 7, 8, 3)), normal("w", (4, 3, 2, 3))
        case(f"{k}_plain", what, x, w, (1, 1), ((0, 0), (0, 0)), "b01f_o01i->b01f")
        case(f"{k}_stride", what, x, w, (2, 3), ((1, 1), (0, 1)), "b01f_o01i->b01f")
        case(f"{k}_stride-rest", what, normal("x", (1, 8, 9, 2)), normal("w", (3, 3, 3, 2)), (3, 2), ((1, 0), (1, 1)), "b01f_o01i->b01f")
        case(f"{k}_dilate", what, x, w, (1, 2), ((2, 1), (0, 2)), "b01f_o01i->b01f", rhs_dilate=(2, 3))
        case(f"{k}_base-dilate", what, x, w, (2, 1), ((1, 1), (1, 0)), "b01f_o01i->b01f", lhs_dilate=(2, 2))
        case(f"{k}_negative-pad", what, x, w, (1, 1), ((-1, 2), (1, -1)), "b01f_o01i->b01f")
        case(f"{k}_bf01", what, normal("x", (2, 3, 7, 8)), normal("w", (4, 3, 3, 2)), (2, 1), ((1, 1), (0, 1)), "bf01_oi01->bf01")
        case(f"{k}_groups", what, normal("x", (2, 5, 6, 4)), normal("w", (6, 3, 2, 2)), (1, 2), ((1, 1), (0, 1)), "b01f_o01i->b01f", groups=2)
        case(f"{k}_depthwise", what, normal("x", (2, 5, 6, 4)), normal("w", (4, 3, 3, 1)), (1, 1), ((1, 1), (1, 1)), "b01f_o01i->b01f", groups=4)
        case(f"{k}_1d", what, normal("x", (2, 9, 3)), normal("w", (4, 3, 3)), (2,), ((1, 1),), "b0f_o0i->b0f")
        case(f"{k}_bf16", what, normal("x", (2, 7, 8, 3), "bf16"), normal("w", (4, 3, 2, 3), "bf16"), (2, 1), ((1, 1), (0, 1)), "b01f_o01i->b01f", rule="close=1e-2")
        case(f"{k}_f64", what, normal("x", (2, 7, 8, 3), "f64"), normal("w", (4, 3, 2, 3), "f64"), (2, 1), ((1, 1), (0, 1)), "b01f_o01i->b01f", rule="close=1e-14")
    x, w = normal("x", (2, 7, 8, 3)), normal("w", (4, 3, 2, 3))
    bias, side = normal("bias", (4,)), normal("side", (2, 7, 8, 4))
    at = ((1, 1), (0, 1))
    relu = lambda v: np.maximum(v, 0)
    forms = [("bias", [bias], lambda y, b: y + b, {}), ("relu", [bias], lambda y, b: relu(y + b), dict(activation="kRelu")),
             ("relu6", [bias], lambda y, b: np.clip(y + b, 0, 6), dict(activation="kRelu6")),
             ("elu", [bias], lambda y, b: np.where(y + b > 0, y + b, np.expm1(y + b)), dict(activation="kElu")),
             ("leaky", [bias], lambda y, b: np.where(y + b > 0, y + b, 0.25 * (y + b)), dict(activation="kLeakyRelu", alpha=0.25)),
             ("side", [bias, side], lambda y, b, s: y + 1 * s + b, dict(side=1)),
             ("side-scaled", [bias, side], lambda y, b, s: relu(0.5 * y + 2.5 * s + b), dict(activation="kRelu", scale=0.5, side=2.5))]
    for name, extra, activation, settings in forms:
        case(f"biasactivationforward_{name}", "BiasActivationForward", x, w, (1, 1), at, "b01f_o01i->b01f", extra=extra, finish=activation, **settings)


@family
def scans(f):
    """XLA:CPU has no scan yet."""
    body = """f {
  x = f32[3] parameter(0)
  c = f32[3] parameter(1)
  s = f32[3] add(x, c)
  m = f32[3] multiply(s, x)
  ROOT t = (f32[3], f32[3]) tuple(m, s)
}"""
    for dim, dims in [(0, (4, 3)), (1, (3, 4)), (0, (0, 3))]:
        for reverse in [False, True]:
            x, c = normal("scan", dims), normal("carry", (3,))
            out, carry = np.zeros_like(x), c.copy()
            for i in range(dims[dim])[:: -1 if reverse else 1]:
                v = np.take(x, i, dim)
                carry = v + carry
                if dim == 0: out[i] = carry * v
                else: out[:, i] = carry * v
            f.case(f"scan_{dim}-{dims[dim]}-{'reverse' if reverse else 'forward'}", "exact",
                   entry(f"ROOT r = ({shape(x)}, f32[3]) scan(p0, p1), dimensions={{{dim}}}, num_carries=1, is_reverse={'true' if reverse else 'false'}, to_apply=f", x, c, before=body),
                   x, c, answer=[out, carry])


if __name__ == "__main__":
    for name in sys.argv[1:] or FAMILIES:
        f = Family(name)
        FAMILIES[name](f)
        f.write()

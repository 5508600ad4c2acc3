#!/usr/bin/env python3
"""More families of scripts/oracle/op_fixtures.py: operations that only move elements, contractions, reductions, and control flow.

Runs all families, or those that are named."""
import sys

import jax  # noqa: F401  (op_fixtures sets its environment first)
import numpy as np
from op_fixtures import FAMILIES, FLOATS, F8, INTS, NP, Family, adder, entry, family, ints, normal, pair, reals, rng, shape


def whole(*v):
    return np.array(v, np.int32)


@family
def movement(f):
    """Nothing is computed: every bit arrives as it was, NaN payloads and subnormal numbers included."""
    def case(name, body, *inputs):
        f.case(name, "exact", entry(body, *inputs), *inputs)
    for t in ["f32", "bf16", "f64", "c64", "c128", "s8", "u64", "s4", "pred", "f8e4m3fn"]:
        x = (rng("move").integers(0, 2, (3, 4, 5)).astype(bool) if t == "pred" else
             np.resize(ints(t) if t in INTS else normal("move", (60,), t) if t[0] == "c" else reals(t)[:60], (3, 4, 5)).astype(NP[t]))
        case(f"transpose_{t}", f"ROOT r = {t}[5,3,4] transpose(p0), dimensions={{2,0,1}}", x)
        case(f"reshape_{t}", f"ROOT r = {t}[4,15] reshape(p0)", x)
        case(f"broadcast_{t}", f"ROOT r = {t}[3,2,4,5] broadcast(p0), dimensions={{0,2,3}}", x)
        case(f"slice_{t}", f"ROOT r = {t}[2,2,2] slice(p0), slice={{[1:3], [0:4:2], [1:5:3]}}", x)
        case(f"concatenate_{t}", f"ROOT r = {t}[3,8,5] concatenate(p0, p0), dimensions={{1}}", x)
        case(f"reverse_{t}", f"ROOT r = {t}[3,4,5] reverse(p0), dimensions={{0,2}}", x)
        case(f"copy_{t}", f"ROOT r = {t}[3,4,5] copy(p0)", x)
    x = normal("pad", (3, 4))
    v = np.float32(-7)
    for name, pad, out in [("both", "1_2x0_3", (6, 7)), ("interior", "0_0_1x2_1_3", (5, 16)), ("negative", "-1_0x1_-2", (2, 3)),
                           ("negative-interior", "-2_1_2x-1_-3_1", (6, 3)), ("all-gone", "-3_1x0_0", (1, 4)), ("nothing", "-3_0x0_0", (0, 4))]:
        case(f"pad_{name}", f"ROOT r = f32[{out[0]},{out[1]}] pad(p0, p1), padding={pad}", x, v)
    case("pad_empty", "ROOT r = f32[3,4] pad(p0, p1), padding=1_2x0_0", np.zeros((0, 4), np.float32), v)
    case("pad_nan", "ROOT r = f32[5,4] pad(p0, p1), padding=1_1x0_0", x, np.float32(np.nan))
    case("concatenate_empty", "ROOT r = f32[3,4] concatenate(p0, p1), dimensions={0}", np.zeros((0, 4), np.float32), x)
    case("concatenate_three", "ROOT r = f32[3,9] concatenate(p0, p1, p0), dimensions={1}", x, normal("one", (3, 1)))
    case("slice_empty", "ROOT r = f32[0,4] slice(p0), slice={[2:2], [0:4]}", x)
    case("reshape_scalar", "ROOT r = f32[] reshape(p0)", normal("s", (1, 1)))
    case("reshape_empty", "ROOT r = f32[0,7] reshape(p0)", np.zeros((3, 0), np.float32))
    case("broadcast_scalar", "ROOT r = f32[2,3] broadcast(p0), dimensions={}", np.float32(2.5))
    case("broadcast_empty", "ROOT r = f32[0,4] broadcast(p0), dimensions={1}", normal("b", (4,)))
    for t in INTS + FLOATS + F8[:2] + ["c64"]:
        for d in [0, 1]:
            case(f"iota_{t}-{d}", f"ROOT r = {t}[7,6] iota(), iota_dimension={d}")
    x = normal("ds", (5, 6))
    starts = [("inside", (1, 2)), ("below", (-3, -1)), ("above", (99, 4)), ("least", (-2**31, 2**31 - 1)), ("last", (3, 4))]
    for name, (i, j) in starts:
        i, j = np.int32(i), np.int32(j)
        case(f"dynamic-slice_{name}", "ROOT r = f32[2,2] dynamic-slice(p0, p1, p2), dynamic_slice_sizes={2,2}", x, i, j)
        case(f"dynamic-update-slice_{name}", "ROOT r = f32[5,6] dynamic-update-slice(p0, p1, p2, p3)", x, normal("u", (2, 2)), i, j)
    for t in ["s8", "u8", "s64", "u32", "u64"]:
        top = np.array(np.iinfo(NP[t]).max, NP[t])
        case(f"dynamic-slice_index-{t}", "ROOT r = f32[2,2] dynamic-slice(p0, p1, p2), dynamic_slice_sizes={2,2}", x, top, np.array(1, NP[t]))
        case(f"dynamic-update-slice_index-{t}", "ROOT r = f32[5,6] dynamic-update-slice(p0, p1, p2, p3)", x, normal("u", (2, 2)), top, np.array(1, NP[t]))
    case("dynamic-slice_whole", "ROOT r = f32[5,6] dynamic-slice(p0, p1, p2), dynamic_slice_sizes={5,6}", x, np.int32(3), np.int32(-3))
    case("dynamic-slice_empty", "ROOT r = f32[0,6] dynamic-slice(p0, p1, p2), dynamic_slice_sizes={0,6}", x, np.int32(3), np.int32(0))
    case("dynamic-update-slice_empty", "ROOT r = f32[5,6] dynamic-update-slice(p0, p1, p2, p3)", x, np.zeros((0, 6), np.float32), np.int32(3), np.int32(0))


@family
def dots(f):
    def dot(name, a, b, dims, out, rule, element=None, more=""):
        t = element or NP and shape(a).split("[")[0]
        out = ",".join(map(str, out))
        f.case(name, rule, entry(f"ROOT r = {t}[{out}] dot(p0, p1), {dims}{more}", a, b), a, b)
    plain = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    bounds = {"f32": "close=1e-6", "f64": "close=1e-14", "bf16": "close=1e-2", "f16": "close=2e-3", "c64": "close=1e-6", "c128": "close=1e-14"}
    for t in ["f32", "f64", "bf16", "f16", "c64", "c128", "s8", "u8", "s32", "u32", "s64"]:
        a, b = normal("a", (5, 7), t), normal("b", (7, 6), t)
        dot(f"dot_{t}", a, b, plain, (5, 6), bounds.get(t, "exact"))
    for a, b in [("bf16", "f32"), ("f16", "f32"), ("s8", "s32"), ("u8", "s32"), ("f32", "f64")]:
        dot(f"dot_{a}-{b}", normal("a", (5, 7), a), normal("b", (7, 6), a), plain, (5, 6), "exact" if b == "s32" else "close=1e-6", b)
    dot("dot_vectors", normal("a", (9,)), normal("b", (9,)), "lhs_contracting_dims={0}, rhs_contracting_dims={0}", (), "close=1e-6")
    dot("dot_matrix-vector", normal("a", (5, 9)), normal("b", (9,)), plain, (5,), "close=1e-6")
    dot("dot_left-transposed", normal("a", (7, 5)), normal("b", (7, 6)), "lhs_contracting_dims={0}, rhs_contracting_dims={0}", (5, 6), "close=1e-6")
    dot("dot_right-transposed", normal("a", (5, 7)), normal("b", (6, 7)), "lhs_contracting_dims={1}, rhs_contracting_dims={1}", (5, 6), "close=1e-6")
    dot("dot_batch", normal("a", (3, 5, 7)), normal("b", (3, 7, 6)), "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}", (3, 5, 6), "close=1e-6")
    dot("dot_batch-last", normal("a", (5, 7, 3)), normal("b", (6, 3, 7)), "lhs_batch_dims={2}, lhs_contracting_dims={1}, rhs_batch_dims={1}, rhs_contracting_dims={2}", (3, 5, 6), "close=1e-6")
    dot("dot_two-batches", normal("a", (2, 3, 4, 5)), normal("b", (3, 5, 2, 4)), "lhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_batch_dims={2,0}, rhs_contracting_dims={1}", (2, 3, 4, 4), "close=1e-6")
    dot("dot_two-contracted", normal("a", (4, 2, 3)), normal("b", (3, 5, 2)), "lhs_contracting_dims={1,2}, rhs_contracting_dims={2,0}", (4, 5), "close=1e-6")
    dot("dot_outer", normal("a", (4,)), normal("b", (5,)), "lhs_contracting_dims={}, rhs_contracting_dims={}", (4, 5), "exact")
    dot("dot_empty-sum", normal("a", (4, 0)), normal("b", (0, 5)), plain, (4, 5), "exact")
    dot("dot_empty", normal("a", (0, 3)), normal("b", (3, 5)), plain, (0, 5), "exact")
    dot("dot_large", normal("a", (13, 300)), normal("b", (300, 21)), plain, (13, 21), "close=2e-6")
    a, b = normal("a", (3, 4)), normal("b", (4, 3))
    a[0, 1], a[1, 2], b[3, 2] = np.inf, np.nan, -np.inf
    dot("dot_special-values", a, b, plain, (3, 3), "close=1e-6")
    a, b = normal("a", (5, 7)), normal("b", (7, 6))
    for algorithm, rule in [("dot_f32_f32_f32", "close=1e-6"), ("dot_bf16_bf16_f32", "close=2e-2"), ("dot_bf16_bf16_f32_x3", "close=1e-4"), ("dot_tf32_tf32_f32", "close=1e-2")]:
        dot(f"dot_{algorithm}", a, b, plain, (5, 6), rule, more=f", algorithm={algorithm}")


@family
def reductions(f):
    def reduce(name, x, init, dims, out, op="add", rule="exact"):
        t = shape(x).split("[")[0]
        out = ",".join(map(str, out))
        f.case(name, rule, entry(f"i = {t}[] constant({init})\nROOT r = {t}[{out}] reduce(p0, i), dimensions={{{dims}}}, to_apply=f", x, before=adder("f", t, op)), x)
    bounds = {"f32": "close=1e-6", "f64": "close=1e-14", "bf16": "close=3e-2", "f16": "close=4e-3", "c64": "close=1e-6", "c128": "close=1e-14"}
    for t in ["f32", "f64", "bf16", "f16", "c64", "c128", "s8", "u8", "s16", "s32", "u32", "s64", "u64"]:
        x = normal("reduce", (3, 4, 5), t)
        init = "(0, 0)" if t[0] == "c" else 0
        for dims, out in [("0", (4, 5)), ("1", (3, 5)), ("2", (3, 4)), ("0,2", (4,)), ("0,1,2", ())]:
            if dims in ("0", "0,2") or t in ("f32", "s32"):
                reduce(f"add_{t}-{dims.replace(',', '')}", x, init, dims, out, rule=bounds.get(t, "exact"))
        if t[0] != "c":
            for op, init in [("maximum", "-inf" if t[0] in "fb" else 0), ("minimum", "inf" if t[0] in "fb" else 3)]:
                reduce(f"{op}_{t}", x, init, "1", (3, 5), op)
            reduce(f"multiply_{t}", x[:, :3], 1, "1", (3, 5), "multiply", bounds.get(t, "exact"))
    for op in ["and", "or", "xor"]:
        reduce(f"{op}_s32", normal("reduce", (3, 4, 5), "s32"), -1 if op == "and" else 0, "0,1", (5,), op)
    p = rng("pred").integers(0, 2, (4, 5)).astype(bool)
    reduce("and_pred", p, "true", "0", (5,), "and")
    reduce("or_pred", p, "false", "1", (4,), "or")
    reduce("add_init", normal("reduce", (3, 4)), 100.5, "1", (3,), rule="close=1e-6")
    reduce("add_none", normal("reduce", (3, 4)), 0, "", (3, 4), rule="exact")
    reduce("add_empty", np.zeros((3, 0), np.float32), 2.5, "1", (3,))
    reduce("add_empty-result", np.zeros((3, 0), np.float32), 2.5, "0", (0,))
    reduce("add_long", normal("long", (2, 3000)), 0, "1", (2,), rule="close=1e-5")
    x = normal("nan", (4, 6))
    x[0, 1], x[1, 2], x[2, 0], x[3, 3] = np.nan, np.inf, -np.inf, -0.0
    for op, init in [("maximum", "-inf"), ("minimum", "inf"), ("add", 0)]:
        reduce(f"{op}_special-values", x, init, "1", (4,), op, "close=1e-6")
    z = np.array([[0.0, -0.0], [-0.0, -0.0], [-0.0, 0.0]], np.float32)
    for op in ["maximum", "minimum", "add"]:
        reduce(f"{op}_zeros", z, "-0" if op != "minimum" else "0", "1", (3,), op)
    arg = """f {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  gt = pred[] compare(a, b), direction=GT
  unordered = pred[] compare(a, a), direction=NE
  g = pred[] or(gt, unordered)
  eq = pred[] compare(a, b), direction=EQ
  le = pred[] compare(i, j), direction=LT
  first = pred[] and(eq, le)
  k = pred[] or(g, first)
  m = f32[] select(g, a, b)
  n = s32[] select(k, i, j)
  ROOT r = (f32[], s32[]) tuple(m, n)
}"""
    x = rng("arg").integers(0, 4, (5, 9)).astype(np.float32)
    body = "k = s32[5,9] iota(), iota_dimension=1\ni = f32[] constant(-inf)\nz = s32[] constant(0)\nROOT r = (f32[5], s32[5]) reduce(p0, k, i, z), dimensions={1}, to_apply=f"
    f.case("argmax_ties", "exact", entry(body, x, before=arg), x)
    y = x.copy()
    y[1, 3] = np.nan
    f.case("argmax_nan", "exact", entry(body, y, before=arg), y)


@family
def control(f):
    def case(name, body, *inputs, before="", rule="exact"):
        f.case(name, rule, entry(body, *inputs, before=before), *inputs)
    loop = """cond {
  s = (s32[], f32[3], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=2
  ROOT r = pred[] compare(i, n), direction=LT
}

body {
  s = (s32[], f32[3], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[3] get-tuple-element(s), index=1
  n = s32[] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  h = f32[] constant(0.5)
  b = f32[3] broadcast(h), dimensions={}
  y = f32[3] multiply(x, b)
  ROOT t = (s32[], f32[3], s32[]) tuple(j, y, n)
}"""
    for n in [0, 1, 5]:
        case(f"while_{n}", "z = s32[] constant(0)\nt = (s32[], f32[3], s32[]) tuple(z, p0, p1)\nw = (s32[], f32[3], s32[]) while(t), condition=cond, body=body\nROOT r = f32[3] get-tuple-element(w), index=1",
             normal("w", (3,)), np.int32(n), before=loop)
    swap = """cond {
  s = (s32[], f32[2], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}

body {
  s = (s32[], f32[2], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[2] get-tuple-element(s), index=1
  y = f32[2] get-tuple-element(s), index=2
  ROOT t = (s32[], f32[2], f32[2]) tuple(j, y, x)
}"""
    case("while_swap", "z = s32[] constant(0)\nt = (s32[], f32[2], f32[2]) tuple(z, p0, p1)\nROOT w = (s32[], f32[2], f32[2]) while(t), condition=cond, body=body",
         normal("w", (2,)), normal("v", (2,)), before=swap)
    branches = "\n\n".join(f"b{i} {{\n  x = f32[3] parameter(0)\n  ROOT r = f32[3] {op}(x)\n}}" for i, op in enumerate(["negate", "abs", "floor"]))
    x = normal("c", (3,))
    for i in [-1, 0, 1, 2, 3, 2**31 - 1, -2**31]:
        case(f"conditional_{i}", "ROOT r = f32[3] conditional(p0, p1, p1, p1), branch_computations={b0, b1, b2}", np.int32(i), x, before=branches)
    for p in [False, True]:
        case(f"conditional_{str(p).lower()}", "ROOT r = f32[3] conditional(p0, p1, p1), true_computation=b0, false_computation=b1", np.bool_(p), x, before=branches)
    case("call_nested", "ROOT r = f32[3] call(p0), to_apply=outer", x,
         before="inner {\n  x = f32[3] parameter(0)\n  ROOT r = f32[3] negate(x)\n}\n\nouter {\n  x = f32[3] parameter(0)\n  y = f32[3] call(x), to_apply=inner\n  ROOT r = f32[3] add(y, y)\n}")
    case("call_tuple", "t = (f32[3], f32[3]) call(p0), to_apply=two\na = f32[3] get-tuple-element(t), index=0\nb = f32[3] get-tuple-element(t), index=1\nROOT r = f32[3] subtract(a, b)", x,
         before="two {\n  x = f32[3] parameter(0)\n  y = f32[3] abs(x)\n  ROOT r = (f32[3], f32[3]) tuple(y, x)\n}")
    case("map_two", "ROOT r = f32[2,3] map(p0, p1), dimensions={0,1}, to_apply=f", normal("m", (2, 3)), normal("n", (2, 3)), rule="close=1e-6",
         before="f {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  c = f32[] multiply(a, a)\n  ROOT r = f32[] subtract(c, b)\n}")
    case("map_constant", "ROOT r = f32[2,3] map(p0), dimensions={0,1}, to_apply=f", normal("m", (2, 3)), before="f {\n  a = f32[] parameter(0)\n  ROOT r = f32[] constant(4)\n}")
    case("tuple_nested", "t = (f32[3], f32[3]) tuple(p0, p0)\nu = ((f32[3], f32[3]), f32[3]) tuple(t, p0)\nv = (f32[3], f32[3]) get-tuple-element(u), index=0\nROOT r = f32[3] get-tuple-element(v), index=1", x)
    case("fusion_loop", "ROOT r = f32[3] fusion(p0, p0), kind=kLoop, calls=f", x,
         before="f {\n  a = f32[3] parameter(0)\n  b = f32[3] parameter(1)\n  c = f32[3] multiply(a, b)\n  ROOT r = f32[3] add(c, b)\n}")
    case("opt-barrier_pair", "t = (f32[3], f32[3]) tuple(p0, p0)\nb = (f32[3], f32[3]) opt-barrier(t)\na = f32[3] get-tuple-element(b), index=0\nROOT r = f32[3] negate(a)", x)
    for t, bits in [("s8", "u32"), ("s16", "u32"), ("s32", "u32")]:
        values = np.array([0, 1.25, -1.25, 2.5, 127.4, -128.6, 1e10, -1e10, np.nan, np.inf, -np.inf, -0.0, 0.999], np.float32)
        for r in [0, 2**31, 2**32 - 1]:
            case(f"stochastic-convert_{t}-{r}", f"ROOT r = {t}[13] stochastic-convert(p0, p1)", values, np.full((13,), r, np.uint32))


if __name__ == "__main__":
    for name in sys.argv[1:] or FAMILIES:
        made = Family(name)
        FAMILIES[name](made)
        made.write()

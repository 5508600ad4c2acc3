#!/usr/bin/env python3
"""Ask the real XLA:GPU compiler about an HLO module, on a machine without a GPU.

Set up once (about 3 GB, from PyPI): `scripts/oracle-setup`, which prints the Python to run this with.
Tried with jax 0.12.0.1 (CPython 3.13); the PJRT C API is versioned, other versions may differ.

    xla_oracle.py optimize IN OUT...     XLA's whole GPU pipeline on an unoptimized module; writes the
                                         optimized, scheduled module (.hlo text, .pb HloModuleProto)
    xla_oracle.py check MODULE...        a scheduled module (is_scheduled=true): XLA skips its
                                         optimization and scheduling passes, verifies, assigns buffers
                                         and generates code. One JSON line of XLA's byte counts each.
    xla_oracle.py parse FILE...          XLA's own text parser: accept or reject, with its message
    xla_oracle.py convert IN OUT         between .hlo and .pb

Options: --gpu h100_sxm (a file in the folder of XLA's device descriptions: OFFC_GPU_SPECS, else
shared/oracle/gpu_specs beside this repository; in XLA: xla/backends/gpu/target_config/specs), --memory-gib N (pretend the GPU has that much),
--partitions N (default: the module's), --costs (optimize: annotate each instruction with XLA's own
estimates, "reification_cost" in backend_config), --option NAME=VALUE (any xla_ debug option), --dump DIR (XLA's
own dumps: *-buffer-assignment.txt with every buffer's values, size and offset, *-live-range.txt,
*-memory-usage-report.txt, the module before and after).

Exit status: 0 all accepted; 1 XLA rejected a module (its message on stderr); 3 XLA crashed on it.
The proto is the faithful form: XLA's text printer loses some things that XLA's parser needs
(async wrappers with permuted operands, aliasing on async collectives, long tuple constants).
"""
import argparse
import ctypes as C
import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SPECS = os.environ.get("OFFC_GPU_SPECS") or os.path.join(HERE, "../../../shared/oracle/gpu_specs")


class Pjrt:
    """The few calls of the PJRT C API (0.11x) that a deviceless compile needs."""

    # Byte offsets of the function pointers in PJRT_Api.
    ERROR_MESSAGE, PLUGIN_INIT, EXE_OPTIMIZED, TOPOLOGY_CREATE, COMPILE, EXE_MEMORY = 48, 64, 424, 696, 752, 808

    def __init__(self):
        import jax_plugins.xla_cuda13 as plugin

        so = os.path.join(os.path.dirname(plugin.__file__), "xla_cuda_plugin.so")
        lib = C.CDLL(so, mode=C.RTLD_GLOBAL)
        lib.GetPjrtApi.restype = C.c_void_p
        self.api = lib.GetPjrtApi()
        self.call(self.PLUGIN_INIT, self.args(16), "initialize")

    @staticmethod
    def args(size):
        buf = (C.c_char * size)()
        C.c_size_t.from_buffer(buf, 0).value = size
        return buf

    @staticmethod
    def put(buf, offset, value, kind=C.c_void_p):
        kind.from_buffer(buf, offset).value = value

    def call(self, offset, buf, what):
        fn = C.CFUNCTYPE(C.c_void_p, C.c_void_p)(C.c_void_p.from_address(self.api + offset).value)
        err = fn(C.addressof(buf))
        if err:
            a = self.args(40)
            self.put(a, 16, err)
            C.CFUNCTYPE(None, C.c_void_p)(C.c_void_p.from_address(self.api + self.ERROR_MESSAGE).value)(C.addressof(a))
            n = C.c_size_t.from_buffer(a, 32).value
            raise RuntimeError(f"{what}: " + C.string_at(C.c_void_p.from_buffer(a, 24).value, n).decode(errors="replace"))

    def topology(self, spec_text, shape):
        opts = (C.c_char * 112)()
        keep = []
        for i, (k, v) in enumerate([(b"target_config", spec_text.encode()), (b"topology", shape.encode())]):
            b = 56 * i
            ks, vs = C.create_string_buffer(k), C.create_string_buffer(v)
            keep += [ks, vs]
            C.c_size_t.from_buffer(opts, b).value = 56
            self.put(opts, b + 16, C.addressof(ks)); self.put(opts, b + 24, len(k), C.c_size_t)
            self.put(opts, b + 32, 0, C.c_int)
            self.put(opts, b + 40, C.addressof(vs)); self.put(opts, b + 48, len(v), C.c_size_t)
        name = C.create_string_buffer(b"offline")
        a = self.args(56)
        self.put(a, 16, C.addressof(name)); self.put(a, 24, 7, C.c_size_t)
        self.put(a, 32, C.addressof(opts)); self.put(a, 40, 2, C.c_size_t)
        self.call(self.TOPOLOGY_CREATE, a, "topology")
        return C.c_void_p.from_buffer(a, 48).value

    def compile(self, topology, module_proto, options_proto):
        code, opts, fmt = (C.create_string_buffer(x, len(x)) for x in (module_proto, options_proto, b"hlo"))
        p = self.args(48)
        self.put(p, 16, C.addressof(code)); self.put(p, 24, len(module_proto), C.c_size_t)
        self.put(p, 32, C.addressof(fmt)); self.put(p, 40, 3, C.c_size_t)
        a = self.args(64)
        self.put(a, 16, topology); self.put(a, 24, C.addressof(p))
        self.put(a, 32, C.addressof(opts)); self.put(a, 40, len(options_proto), C.c_size_t)
        self.call(self.COMPILE, a, "compile")
        return C.c_void_p.from_buffer(a, 56).value

    def memory(self, exe):
        a = self.args(144)
        self.put(a, 16, exe)
        self.call(self.EXE_MEMORY, a, "memory stats")
        names = ["generated_code", "argument", "output", "alias", "temp", "host_generated_code", "host_argument",
                 "host_output", "host_alias", "host_temp", "peak"]
        v = {n: C.c_int64.from_buffer(a, 24 + 8 * i).value for i, n in enumerate(names)}
        return {n: v[n] for n in ["argument", "output", "alias", "temp", "peak", "host_argument", "host_output", "host_temp"]}

    def optimized(self, exe):
        """The HloModuleProto of the compiled module."""
        p, a = self.args(48), self.args(32)
        self.put(a, 16, exe); self.put(a, 24, C.addressof(p))
        self.call(self.EXE_OPTIMIZED, a, "optimized program")
        n = C.c_size_t.from_buffer(p, 24).value
        code = (C.c_char * n)()
        self.put(p, 16, C.addressof(code))
        self.call(self.EXE_OPTIMIZED, a, "optimized program")
        return first_field(bytes(code))  # HloModuleProtoWithConfig.hlo_module


def first_field(b):
    def varint(i):
        r = s = 0
        while True:
            c = b[i]; i += 1; r |= (c & 127) << s; s += 7
            if c < 128: return r, i
    i = 0
    while i < len(b):
        key, i = varint(i); n, i = varint(i)
        if key == 10: return b[i:i + n]
        i += n
    raise RuntimeError("no hlo_module in the optimized program")


def hlo():
    import jax  # noqa: F401  (loads the shared libraries in the right order)
    from jax._src.lib import xla_client
    return xla_client


def load(path):
    """HloModuleProto bytes of a .pb or text file."""
    if path.endswith(".pb"):
        return open(path, "rb").read()
    return hlo().hlo.hlo_module_from_text(open(path).read()).as_serialized_hlo_module_proto()


def store(proto, path):
    if path.endswith(".pb"):
        open(path, "wb").write(proto)
    else:
        open(path, "w").write(hlo().hlo.HloModule.from_serialized_hlo_module_proto(proto).to_string())


def options(n, xla_options):
    import numpy as np
    xc = hlo()
    o = xc.CompileOptions()
    o.num_partitions = n
    b = o.executable_build_options
    b.num_partitions, b.num_replicas = n, 1
    b.use_spmd_partitioning = b.use_shardy_partitioner = n > 1
    o.device_assignment = xc.DeviceAssignment.create(np.arange(n).reshape(1, n))
    o.env_option_overrides = list(xla_options.items())
    return o.SerializeAsString()


def value(text):
    if text in ("true", "false"): return text == "true"
    try: return int(text)
    except ValueError: pass
    try: return float(text)
    except ValueError: return text


def one(a):
    """Compile one module in this process."""
    if a.dump:  # read when the plugin is loaded
        os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + f" --xla_dump_to={a.dump} --xla_dump_hlo_as_text"
    path = a.files[0]
    proto = load(path)
    n = a.partitions
    if not n:
        head = open(path, errors="replace").readline() if not path.endswith(".pb") else ""
        m = re.search(r"num_partitions=(\d+)", head) or re.search(
            r"num_partitions=(\d+)", hlo().hlo.HloModule.from_serialized_hlo_module_proto(proto).to_string()[:200000])
        n = int(m.group(1)) if m else 1
    spec = open(os.path.join(SPECS, a.gpu + ".txtpb")).read()
    if a.memory_gib:
        spec = re.sub(r"device_memory_size: \d+", f"device_memory_size: {int(a.memory_gib * 2**30)}", spec)
    xla = dict(o.split("=", 1) for o in a.option)
    xla = {k: value(v) for k, v in xla.items()}
    if a.costs: xla["xla_gpu_collect_cost_model_stats"] = True
    p = Pjrt()
    top = p.topology(spec, f"1x1x{n}" if n <= 8 else f"1x{n // 8}x8")
    t = time.time()
    exe = p.compile(top, proto, options(n, xla))
    r = {"file": os.path.basename(path), **p.memory(exe), "compile_s": round(time.time() - t, 1)}
    outs = a.files[1:] if a.verb == "optimize" else ([a.final] if a.final else [])
    if outs:
        final = p.optimized(exe)
        for out in outs: store(final, out)
    print(json.dumps(r), flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("verb", choices=["optimize", "check", "parse", "convert"])
    ap.add_argument("files", nargs="+")
    ap.add_argument("--gpu", default="h100_sxm")
    ap.add_argument("--memory-gib", type=float)
    ap.add_argument("--partitions", type=int)
    ap.add_argument("--costs", action="store_true")
    ap.add_argument("--option", action="append", default=[])
    ap.add_argument("--final", help="check: also write XLA's final module here (.hlo or .pb)")
    ap.add_argument("--dump", help="folder for XLA's dumps")
    ap.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.verb == "convert":
        store(load(a.files[0]), a.files[1]); return 0
    if a.verb == "parse":
        bad = 0
        for f in a.files:
            text = open(f).read(); t = time.time()
            try:
                hlo().hlo.hlo_module_from_text(text)
                print(f"accept\t{f}\t{len(text) / 1e6 / (time.time() - t):.1f} MB/s")
            except Exception as e:
                bad = 1; print(f"reject\t{f}\t{str(e).splitlines()[0]}")
        return bad
    if a.in_process:
        try: one(a)
        except Exception as e:
            print(f"{a.files[0]}: XLA rejects it: {str(e)[:3000]}", file=sys.stderr); return 1
        return 0
    worst = 0
    groups = [a.files] if a.verb == "optimize" else [[f] for f in a.files]
    rest = [x for x in sys.argv[2:] if x not in a.files]
    for g in groups:  # a child process each: XLA aborts the process on an internal error
        r = subprocess.run([sys.executable, __file__, a.verb, *g, *rest, "--in-process"], capture_output=True)
        sys.stdout.write(r.stdout.decode()); sys.stdout.flush()
        if r.returncode:
            err = r.stderr.decode(errors="replace")
            lines = [l for l in err.splitlines() if "rejects it" in l or "Check failed" in l or re.match(r"F\d{4} ", l)]
            crashed = r.returncode < 0 or r.returncode > 1
            print(f"{g[0]}: XLA crashed (exit {r.returncode})" if crashed else "", *(lines or err.splitlines()[-5:]), sep="\n", file=sys.stderr)
            worst = max(worst, 3 if crashed else 1)
    return worst


if __name__ == "__main__":
    rc = main()
    sys.stdout.flush(); sys.stderr.flush()
    os._exit(rc)

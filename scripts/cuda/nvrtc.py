"""Compiles CUDA C from standard input with NVRTC to PTX and CUBIN for each architecture; `--find` only tells whether NVRTC is there.

The text is cut into its prelude and its kernels, and compiled in pieces of a bounded size, so that an error names few kernels.
Exit status: 0 all compiled, 1 an error, 3 there is no NVRTC."""
import ctypes, glob, os, re, sys, sysconfig, time

def find():
    roots = [sysconfig.get_paths()["purelib"], *os.environ.get("OFFC_NVRTC", "").split(":")]
    for root in filter(None, roots):
        for path in sorted(glob.glob(root + "/nvidia/*/lib/libnvrtc.so.*") + glob.glob(root + "/libnvrtc.so.*")):
            if "builtins" in path or ".alt" in path:
                continue
            for builtins in glob.glob(os.path.dirname(path) + "/libnvrtc-builtins.so.*"):
                ctypes.CDLL(builtins, mode=ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL), path
    return None, None

def compile(lib, text, arch, options):
    program = ctypes.c_void_p()
    assert lib.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"offc.cu", 0, None, None) == 0
    flags = [f"--gpu-architecture={arch}".encode(), *options]
    status = lib.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags))
    size = ctypes.c_size_t()
    lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    lib.nvrtcGetProgramLog(program, log)
    get = ("nvrtcGetCUBINSize", "nvrtcGetCUBIN") if arch.startswith("sm_") else ("nvrtcGetPTXSize", "nvrtcGetPTX")
    out = b""
    if status == 0:
        getattr(lib, get[0])(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(lib, get[1])(program, buffer)
        out = buffer.raw
    lib.nvrtcDestroyProgram(ctypes.byref(program))
    return status, log.value.decode(), out

def main():
    lib, path = find()
    if lib is None:
        print("cuda-compile: skipped: NVRTC (libnvrtc.so of a CUDA toolkit, or the package nvidia-cuda-nvrtc) is not here", file=sys.stderr)
        return 3
    if "--find" in sys.argv:
        return 0
    major, minor = ctypes.c_int(), ctypes.c_int()
    lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    text = sys.stdin.read()
    parts = re.split(r'(?m)^(?=extern "C" __global__)', text)
    prelude, kernels = parts[0], parts[1:]
    names = [re.search(r"(\w+)\(", k[k.index("__launch_bounds__") :].split(")", 1)[1]).group(1) for k in kernels]
    pieces, size = [[]], 0
    for kernel in kernels:
        if size + len(kernel) > 200_000:
            pieces.append([])
            size = 0
        pieces[-1].append(kernel)
        size += len(kernel)
    # As the backend compiles: no fused multiply-add, exact division and square root, subnormal numbers kept.
    options = [b"--fmad=false", b"--prec-div=true", b"--prec-sqrt=true", b"--ftz=false", b"--std=c++17"]
    failed = 0
    for arch in ("compute_80", "compute_90", "sm_80", "sm_90"):
        start, found, total = time.time(), set(), 0
        for piece in pieces:
            status, log, out = compile(lib, prelude + "".join(piece), arch, options)
            total += len(out)
            if status != 0:
                failed += 1
                print(f"{arch}: error {status}\n{log[:4000]}")
            else:
                found |= {n for n in names if n.encode() in out}
        missing = set(names) - found
        failed += bool(missing)
        print(f"{arch:11} {len(found)} of {len(names)} kernels, {total} bytes, {time.time() - start:.1f} s")
    print(f"NVRTC {major.value}.{minor.value}: {path.split('/')[-1]}")
    return 1 if failed else 0

sys.exit(main())

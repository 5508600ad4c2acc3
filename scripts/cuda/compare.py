"""Compares the arrays of two .npz files: prints the largest difference relative to the largest value of an array, over all arrays, and exits with
status 1 if it is above the bound (third argument) or the arrays do not match. Nothing but Python's own library."""
import array, ast, math, struct, sys, zipfile

def read(path):
    out = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            size = struct.unpack_from("<H", data, 8)[0] if data[6] == 1 else struct.unpack_from("<I", data, 8)[0]
            start = (10 if data[6] == 1 else 12) + size
            header = ast.literal_eval(data[10 if data[6] == 1 else 12 : start].decode())
            kind = header["descr"][1:]
            body = data[start:]
            if name.split(".")[0].endswith("__bf16"):
                words = array.array("H", body)
                values = array.array("f", b"".join(struct.pack("<I", w << 16) for w in words))
            elif kind == "f2":
                values = [v[0] for v in struct.iter_unpack("<e", body)]
            else:
                values = array.array({"f4": "f", "f8": "d", "i4": "i", "u4": "I", "i8": "q", "u8": "Q", "u2": "H", "i2": "h", "u1": "B", "i1": "b", "b1": "B"}[kind], body)
            out[name] = (header["descr"], header["shape"], values)
    return out

a, b, bound = read(sys.argv[1]), read(sys.argv[2]), float(sys.argv[3])
worst, where = 0.0, "-"
if a.keys() != b.keys():
    sys.exit(f"arrays {sorted(a)} and {sorted(b)}")
for name, (kind, shape, values) in a.items():
    if b[name][:2] != (kind, shape):
        sys.exit(f"{name}: {kind}{shape} and {b[name][:2]}")
    scale = max((abs(v) for v in values if math.isfinite(v)), default=0.0) or 1.0
    for x, y in zip(values, b[name][2]):
        difference = 0.0 if x == y or (x != x and y != y) else abs(x - y) / scale
        if not difference <= worst:
            worst, where = (math.inf if difference != difference else difference), name
print(f"{worst:.3g} of the largest value ({where})")
sys.exit(not worst <= bound)

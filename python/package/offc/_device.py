"""The machine to plan for."""

import json

from . import _offc

#: What `planning` means on XLA's CPU: no host space apart, so nothing moves; prices only rank what is computed again.
_RATES = " ".join(
    f"rate_infos {{ key: {key} value {{ clock_rate_ghz: 3 units_per_core: 1 ops_per_clock: {ops} }} }}"
    for key, ops in ((2, 64), (10, 32), (11, 16), (12, 8), (16, 32), (20, 32), (32, 32))
)
CPU_SPEC = f"""\
gpu_device_info {{
  core_count: 8 fpus_per_core: 16 clock_rate_ghz: 3 memory_bandwidth: 50000000000 l2_cache_size: 33554432 device_memory_size: 68719476736
  cuda_compute_capability {{ major: 8 minor: 0 }}
  scalar_unit_description {{ {_RATES} }} matrix_unit_description {{ {_RATES} }}
}}
device_description_str: "cpu"
host_link {{ h2d_bandwidth: 10000000000 d2h_bandwidth: 10000000000 pinned_memory: 1 }}
"""

_KINDS = (
    ("GB200", "gb200"),
    ("GH200", "gh200"),
    ("B200", "b200"),
    ("H200", "h200"),
    ("H100 PCIe", "h100-pcie"),
    ("H100", "h100-sxm"),
    ("A100-PCIE", "a100-pcie-80"),
    ("A100 80GB PCIe", "a100-pcie-80"),
    ("A100", "a100-sxm-80"),
)


def known():
    """Names of the machines that are known."""
    return [device["name"] for device in json.loads(_offc.devices())]


def of_kind(kind):
    """The name for what JAX calls ``device_kind``, or ``None``."""
    lowered = kind.lower()
    return next((name for part, name in _KINDS if part.lower() in lowered), None)


def options(device, platform):
    """The options that name a machine: ``device`` is a known name, the text or path of an XLA device description, or ``auto``."""
    if platform == "cpu":
        return {"spec": CPU_SPEC, "host_memory": 0, "xla_limit": False}
    if device == "auto":
        import jax

        try:
            kind = jax.local_devices(backend=platform)[0].device_kind
        except RuntimeError as error:
            raise ValueError(f"there is no GPU to ask ({error}): pass device= as one of {', '.join(known())}, or a .txtpb description") from error
        name = of_kind(kind)
        if name is None:
            raise ValueError(f"the device {kind!r} is unknown: pass device= as one of {', '.join(known())}, or a .txtpb description")
        return {"device": name}
    if "gpu_device_info" in device:
        return {"spec": device}
    if device.endswith((".txtpb", ".pbtxt")):
        with open(device, encoding="utf-8") as file:
            return {"spec": file.read()}
    if device.lower().replace("_", "-") not in known():
        raise ValueError(f"the device {device!r} is unknown: pass one of {', '.join(known())}, or a .txtpb description")
    return {"device": device}

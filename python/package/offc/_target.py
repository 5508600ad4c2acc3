"""XLA's description of a GPU that is not there, for a compile without it.

Sizes by compute capability are those of the table "Technical Specifications per Compute Capability" of NVIDIA's CUDA programming guide; the rest is
the planner's own preset of the machine.
"""

import json

from . import _offc

#: compute capability major → shared memory of a multiprocessor, of a block that opts in, boost clock in GHz, blocks a multiprocessor
_CAPABILITY = {8: (167936, 166912, 1.41, 32), 9: (233472, 232448, 1.98, 32), 10: (233472, 232448, 1.92, 32)}
_MAJOR = {"a100": 8, "h100": 9, "h200": 9, "gh200": 9, "b200": 10, "gb200": 10}


def config(name):
    """The text proto that ``target_config`` of a deviceless topology takes."""
    wanted = name.lower().replace("_", "-")
    machine = next((m for m in json.loads(_offc.devices()) if m["name"] == wanted), None)
    if machine is None:
        raise ValueError(f"the device {name!r} is unknown; `offc devices` lists those that are")
    major = _MAJOR[wanted.split("-")[0]]
    shared, optin, clock, blocks = _CAPABILITY[major]
    feature = " feature_extension: ACCELERATED_FEATURES" if major >= 9 else ""
    return f"""gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_core: {shared} shared_memory_per_block_optin: {optin} reserved_shared_memory_per_block: 1024
  core_count: {machine["cores"]} fpus_per_core: {64 if major == 8 else 128} clock_rate_ghz: {clock}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  memory_bandwidth: {machine["hbm"]} l2_cache_size: {machine["l2"]} device_memory_size: {machine["memory"]}
  cuda_compute_capability {{ major: {major}{feature} }}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536 max_blocks_per_multiprocessor: {blocks}
  device_vendor: "NVIDIA Corporation" platform_version: "Compute Capability {major}.0{"a" if feature else ""}"
  device_address_bits: 64 pcie_bandwidth: 34359738368 ecc_enabled: true name: "{wanted}"
  driver_version: "13.0.0" runtime_version: "12.8.0" compile_time_toolkit_version: "12.8.0" dnn_version: "9.10.0" cub_version: "3.1.2"
  collective_memory_granularity: 2097152
}}
platform_name: "CUDA"
device_description_str: "{wanted}"
"""

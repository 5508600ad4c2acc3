//! Codes of machine descriptions.

use super::Explanation;

/// `M##`.
pub const TABLE: &[Explanation] = &[
    Explanation {
        code: "M01",
        title: "a device description is not protocol buffer text",
        text: "`--device` took the name of a file, and what stands in it does not follow the protobuf text format: `name: value` or \
               `name { … }`, with `#` for comments. XLA's `gpu_specs/*.txtpb` files are of this form.",
    },
    Explanation {
        code: "M02",
        title: "a value in a device description is not a positive number",
        text: "Rates and sizes of a device are positive numbers without a unit: bytes, bytes in a second, gigahertz, nanoseconds.",
    },
    Explanation {
        code: "M03",
        title: "a device description lacks something that planning needs",
        text: "A plan needs `core_count`, `memory_bandwidth` and `device_memory_size` inside `gpu_device_info { … }`. Everything else has a \
               default. The rates of the host link may be added in a `host_link { h2d_bandwidth: … d2h_bandwidth: … }` beside it.",
    },
    Explanation {
        code: "M04",
        title: "a calibration file is not TOML, or not of the form of one",
        text: "A calibration file is TOML with `version = 1` and the tables `rates`, `latencies`, `host`, `opcodes` and `instructions`, each of \
               which may be left out. The documentation of `machine::calibrate` shows one with every key.",
    },
    Explanation {
        code: "M05",
        title: "a calibration file says something that means nothing",
        text: "A key is not known, a value is not of its kind, or the file is of another version. Rates read `52GB/s` or a number of GB/s, \
               arithmetic `989TFLOP/s`, latencies `2us`, sizes `64GiB`; `opcodes` and `instructions` hold a time for each run (`120us`) or a \
               factor on the predicted one (`1.05x`).",
    },
];

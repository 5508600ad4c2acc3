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
];

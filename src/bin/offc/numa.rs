//! The NUMA node that a GPU is near to, as Linux tells in `/sys`.

use std::path::Path;

use offc::cuda::backend::{self, Node};

/// The node of the GPU, or why it is not known. `OFFC_SYSFS` names another folder than `/sys`.
pub fn near() -> Result<Node, String> {
    let sysfs = std::env::var_os("OFFC_SYSFS").unwrap_or_else(|| "/sys".into());
    node_of(Path::new(&sysfs), backend::bus_address()?)
}

/// The node of a PCI device, as a `/sys` tells: by domain, bus and device number. An error says what it does not tell.
fn node_of(sysfs: &Path, [domain, bus, device]: [u32; 3]) -> Result<Node, String> {
    let address = format!("{domain:04x}:{bus:02x}:{device:02x}.0");
    let read = |path: &str| std::fs::read_to_string(sysfs.join(path)).map(|t| t.trim().to_string()).ok();
    let told = read(&format!("bus/pci/devices/{address}/numa_node")).ok_or_else(|| format!("no device {address} is told of"))?;
    // -1 where there is one node only, or the firmware does not tell.
    let number: u32 = told.parse().map_err(|_| format!("the node of {address} is not told"))?;
    let list = read(&format!("devices/system/node/node{number}/cpulist")).ok_or_else(|| format!("no node {number} is told of"))?;
    let processors = processors(&list).ok_or_else(|| format!("the processors of node {number} are not a list: `{list}`"))?;
    if processors.is_empty() { Err(format!("node {number} has no processors")) } else { Ok(Node { number, processors, device: address }) }
}

/// A list as Linux writes it: `0-3,8`.
fn processors(list: &str) -> Option<Vec<usize>> {
    let mut out = Vec::new();
    for part in list.split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        (last < 1 << 16).then_some(())?;
        out.extend(first..=last);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("offc-numa-{}-{}", std::process::id(), files.len()));
        for (path, text) in files {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("it can be made");
            std::fs::write(path, text).expect("it can be written");
        }
        folder
    }

    #[test]
    fn a_device_is_found_at_its_node() {
        let folder = tree(&[
            ("bus/pci/devices/0000:81:00.0/numa_node", "1\n"),
            ("bus/pci/devices/0000:01:00.0/numa_node", "-1\n"),
            ("devices/system/node/node1/cpulist", "8-11,24\n"),
        ]);
        let node = Node { number: 1, processors: vec![8, 9, 10, 11, 24], device: "0000:81:00.0".to_string() };
        assert_eq!(node_of(&folder, [0, 0x81, 0]), Ok(node));
        assert_eq!(node_of(&folder, [0, 1, 0]), Err("the node of 0000:01:00.0 is not told".to_string()));
        assert_eq!(node_of(&folder, [0, 2, 0]), Err("no device 0000:02:00.0 is told of".to_string()));
        std::fs::remove_dir_all(folder).expect("it is there");
    }
}

//! Arrays in NumPy's `.npz` files: zip archives of `.npy` arrays.
//!
//! Types that NumPy lacks are kept as their bits, the type in the key: `arg0__bf16` of `uint16`, `arg1__f8e4m3fn` of `uint8`.
//! Archives are read stored or deflated, with 64-bit sizes or without; they are written stored, entries in order, without times, so
//! that equal arrays give equal bytes. Sources: APPNOTE.TXT 6.3 of PKWARE; NumPy's `numpy.lib.format`, version 1.0.

use std::io::Read as _;

use super::array::{Array, indices, row_major};
use crate::ir::Primitive;

/// The types that NumPy has, by its names (little-endian).
const TYPES: &[(Primitive, &str)] = &[
    (Primitive::Pred, "|b1"),
    (Primitive::S8, "|i1"),
    (Primitive::S16, "<i2"),
    (Primitive::S32, "<i4"),
    (Primitive::S64, "<i8"),
    (Primitive::U8, "|u1"),
    (Primitive::U16, "<u2"),
    (Primitive::U32, "<u4"),
    (Primitive::U64, "<u8"),
    (Primitive::F16, "<f2"),
    (Primitive::F32, "<f4"),
    (Primitive::F64, "<f8"),
    (Primitive::C64, "<c8"),
    (Primitive::C128, "<c16"),
];

/// Reads the arrays of an archive under the names without the type; a message if that is none.
pub fn read(bytes: &[u8]) -> Result<Vec<(String, Array)>, String> {
    let end = bytes.len().checked_sub(22).ok_or("it is too short for an archive")?;
    let end = (end.saturating_sub(65_535)..=end).rev().find(|&i| bytes[i..].starts_with(b"PK\x05\x06")).ok_or("it is no zip archive")?;
    let mut count = u64::from(u16_at(bytes, end + 10)?);
    let mut at = u64::from(u32_at(bytes, end + 16)?);
    if (count == 0xffff || at == 0xffff_ffff) && end >= 20 && bytes[end - 20..].starts_with(b"PK\x06\x07") {
        let end = index(u64_at(bytes, end - 12)?)?;
        (count, at) = (u64_at(bytes, end + 32)?, u64_at(bytes, end + 48)?);
    }
    let mut at = index(at)?;
    let mut out = Vec::new();
    for _ in 0..count {
        if !bytes.get(at..).is_some_and(|b| b.starts_with(b"PK\x01\x02")) {
            return Err("its directory is damaged".to_string());
        }
        let method = u16_at(bytes, at + 10)?;
        let sizes = [u32_at(bytes, at + 20)?, u32_at(bytes, at + 24)?, u32_at(bytes, at + 42)?].map(u64::from);
        let [name, extra, comment] = [28, 30, 32].map(|i| u16_at(bytes, at + i).map(usize::from));
        let (name, extra, comment) = (name?, extra?, comment?);
        let key = bytes.get(at + 46..at + 46 + name).ok_or("its directory is damaged")?;
        let key = std::str::from_utf8(key).map_err(|_| "a name is no UTF-8")?;
        let [packed, size, header] = long_sizes(bytes.get(at + 46 + name..at + 46 + name + extra).unwrap_or_default(), sizes)?;
        let header = index(header)?;
        let start = header + 30 + usize::from(u16_at(bytes, header + 26)?) + usize::from(u16_at(bytes, header + 28)?);
        let data = start.checked_add(index(packed)?).and_then(|end| bytes.get(start..end)).ok_or("it is cut short")?;
        let data = match method {
            0 => std::borrow::Cow::Borrowed(data),
            8 => {
                let mut inflated = Vec::new();
                let limit = size.saturating_add(1);
                flate2::read::DeflateDecoder::new(data)
                    .take(limit)
                    .read_to_end(&mut inflated)
                    .map_err(|e| format!("`{key}` does not inflate: {e}"))?;
                std::borrow::Cow::Owned(inflated)
            }
            other => return Err(format!("`{key}` is compressed by method {other}, not by deflate")),
        };
        let length = name;
        let key = key.strip_suffix(".npy").unwrap_or(key);
        let (name, suffix) = key.split_once("__").map_or((key, None), |(name, ty)| (name, Some(ty)));
        let array = array(&data, suffix).map_err(|why| format!("array `{key}`: {why}"))?;
        out.push((name.to_string(), array));
        at += 46 + length + extra + comment;
    }
    Ok(out)
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], String> {
    let slice = at.checked_add(N).and_then(|end| bytes.get(at..end)).ok_or("it is cut short")?;
    Ok(slice.try_into().expect("as many bytes as were asked for"))
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, String> {
    bytes_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, String> {
    bytes_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, String> {
    bytes_at(bytes, at).map(u64::from_le_bytes)
}

fn index(value: u64) -> Result<usize, String> {
    usize::try_from(value).map_err(|_| "it is too large".to_string())
}

/// Packed size, size and header offset: those that do not fit 32 bits stand in an extra field.
fn long_sizes(extra: &[u8], [packed, size, header]: [u64; 3]) -> Result<[u64; 3], String> {
    let mut at = 0;
    while at + 4 <= extra.len() {
        let (id, length) = (u16_at(extra, at)?, usize::from(u16_at(extra, at + 2)?));
        if id == 1 {
            let mut next = at + 4;
            let mut long = |value: u64| -> Result<u64, String> {
                if value != 0xffff_ffff {
                    return Ok(value);
                }
                next += 8;
                u64_at(extra, next - 8)
            };
            // They stand in this order: size, packed size, offset.
            let size = long(size)?;
            return Ok([long(packed)?, size, long(header)?]);
        }
        at += 4 + length;
    }
    Ok([packed, size, header])
}

/// Reads a `.npy` file.
fn array(bytes: &[u8], suffix: Option<&str>) -> Result<Array, String> {
    if !bytes.starts_with(b"\x93NUMPY") || bytes.len() < 10 {
        return Err("it is no NumPy array".to_string());
    }
    let (start, length) = match bytes[6] {
        1 => (10, usize::from(u16_at(bytes, 8)?)),
        _ => (12, index(u64::from(u32_at(bytes, 8)?))?),
    };
    let header = bytes.get(start..start + length).and_then(|h| std::str::from_utf8(h).ok()).ok_or("its header is damaged")?;
    let value = |key: &str| header.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
    let descr = value("descr").and_then(|v| v.strip_prefix('\'')).and_then(|v| v.split('\'').next()).ok_or("it has no simple type")?;
    let fortran = value("fortran_order").is_some_and(|v| v.starts_with("True"));
    let shape = value("shape").and_then(|v| v.strip_prefix('(')).and_then(|v| v.split(')').next()).ok_or("it has no shape")?;
    let dims = shape.split(',').map(str::trim).filter(|d| !d.is_empty()).map(str::parse).collect::<Result<Vec<usize>, _>>();
    let dims = dims.map_err(|_| "its shape is damaged")?;
    let element = match suffix {
        Some(name) => Primitive::from_name(name).ok_or_else(|| format!("no element type is called `{name}`"))?,
        None => TYPES.iter().find(|(_, d)| *d == descr).map(|(p, _)| *p).ok_or_else(|| format!("the type `{descr}` is not supported"))?,
    };
    let expected = dims.iter().try_fold(element.literal_bytes(), |n, &d| n.checked_mul(d));
    let data = &bytes[start + length..];
    if expected != Some(data.len()) {
        return Err(format!("expected {} of {dims:?}, found {} bytes", element.name(), data.len()));
    }
    if !fortran || dims.len() < 2 {
        return Ok(Array::new(element, &dims, data.to_vec()));
    }
    let width = element.literal_bytes();
    let reversed: Vec<usize> = dims.iter().rev().copied().collect();
    let steps: Vec<usize> = row_major(&reversed).into_iter().rev().collect();
    let mut out = Vec::with_capacity(data.len());
    for at in indices(&dims) {
        let from = at.iter().zip(&steps).map(|(i, s)| i * s).sum::<usize>() * width;
        out.extend_from_slice(&data[from..from + width]);
    }
    Ok(Array::new(element, &dims, out))
}

/// Writes an archive of arrays under `PREFIX0`, `PREFIX1` ….
pub fn write(prefix: &str, arrays: &[Array]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (i, array) in arrays.iter().enumerate() {
        let known = TYPES.iter().find(|(p, _)| *p == array.element);
        let name = match known {
            Some(_) => format!("{prefix}{i}.npy"),
            None => format!("{prefix}{i}__{}.npy", array.element.name()),
        };
        let descr = known.map_or(if array.width() == 2 { "<u2" } else { "|u1" }, |(_, d)| d);
        let mut file = header(descr, &array.dims);
        file.extend_from_slice(&array.data);
        let mut crc = flate2::Crc::new();
        crc.update(&file);
        let long = |out: &mut Vec<u8>, fields: &[u64]| {
            out.extend_from_slice(&1u16.to_le_bytes());
            out.extend_from_slice(&u16::try_from(8 * fields.len()).expect("three fields at most").to_le_bytes());
            fields.iter().for_each(|f| out.extend_from_slice(&f.to_le_bytes()));
        };
        // Sizes stand in the extra field, as NumPy writes them too.
        let common = |out: &mut Vec<u8>, extra: u16| {
            // Version 4.5, names in UTF-8, stored, 1 January 1980.
            for field in [45u16, 1 << 11, 0, 0, 0x21] {
                out.extend_from_slice(&field.to_le_bytes());
            }
            for field in [crc.sum(), u32::MAX, u32::MAX] {
                out.extend_from_slice(&field.to_le_bytes());
            }
            for field in [u16::try_from(name.len()).expect("names are short"), extra] {
                out.extend_from_slice(&field.to_le_bytes());
            }
        };
        let (at, size) = (out.len() as u64, file.len() as u64);
        out.extend_from_slice(b"PK\x03\x04");
        common(&mut out, 20);
        out.extend_from_slice(name.as_bytes());
        long(&mut out, &[size, size]);
        out.extend_from_slice(&file);
        directory.extend_from_slice(b"PK\x01\x02\x2d\x03");
        common(&mut directory, 28);
        // No comment, disk 0, no attributes, offset in the extra field.
        directory.extend_from_slice(&[0; 10]);
        directory.extend_from_slice(&u32::MAX.to_le_bytes());
        directory.extend_from_slice(name.as_bytes());
        long(&mut directory, &[size, size, at]);
    }
    let (count, start, size, end) = (arrays.len() as u64, out.len() as u64, directory.len() as u64, (out.len() + directory.len()) as u64);
    out.extend_from_slice(&directory);
    out.extend_from_slice(b"PK\x06\x06");
    out.extend_from_slice(&44u64.to_le_bytes());
    out.extend_from_slice(&[45, 3, 45, 0]);
    out.extend_from_slice(&[0; 8]);
    [count, count, size, start].iter().for_each(|f| out.extend_from_slice(&f.to_le_bytes()));
    out.extend_from_slice(b"PK\x06\x07");
    out.extend_from_slice(&0u32.to_le_bytes());
    out.extend_from_slice(&end.to_le_bytes());
    out.extend_from_slice(&1u32.to_le_bytes());
    out.extend_from_slice(b"PK\x05\x06");
    let short = u16::try_from(count).unwrap_or(u16::MAX);
    [0, 0, short, short].iter().for_each(|f: &u16| out.extend_from_slice(&f.to_le_bytes()));
    [size, start].iter().for_each(|&f| out.extend_from_slice(&u32::try_from(f).unwrap_or(u32::MAX).to_le_bytes()));
    out.extend_from_slice(&0u16.to_le_bytes());
    out
}

/// The header of a `.npy` file; it ends at a multiple of 64 bytes.
fn header(descr: &str, dims: &[usize]) -> Vec<u8> {
    let shape: String = dims.iter().map(|d| format!("{d}, ")).collect();
    let shape = if dims.len() == 1 { shape.trim_end() } else { shape.trim_end_matches(", ") };
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    let padded = (10 + text.len() + 1).next_multiple_of(64) - 11;
    text.push_str(&" ".repeat(padded - text.len()));
    text.push('\n');
    let length = u16::try_from(text.len()).expect("a header is short");
    [b"\x93NUMPY\x01\x00".as_slice(), &length.to_le_bytes(), text.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let arrays = [
            Array::of_f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, f32::NAN]),
            Array::of_f64(Primitive::BF16, &[2], &[1.5, -2.0]),
            Array::of_i64(Primitive::S64, &[], &[-7]),
            Array::zeros(Primitive::F8E4M3FN, &[0, 4]),
        ];
        let read = read(&write("arg", &arrays)).unwrap();
        assert_eq!(read.iter().map(|(k, _)| &**k).collect::<Vec<_>>(), ["arg0", "arg1", "arg2", "arg3"]);
        assert!(read.into_iter().map(|(_, a)| a).eq(arrays));
    }

    #[test]
    fn damage_is_told() {
        let whole = write("arg", &[Array::of_f32(&[2], &[1.0, 2.0])]);
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err(), "cut at {end}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x55;
            let _ = read(&damaged);
        }
    }
}

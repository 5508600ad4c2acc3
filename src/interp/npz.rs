//! Arrays in NumPy's `.npz` files: zip archives of `.npy` arrays.
//!
//! Types that NumPy lacks are kept as their bits, the type in the key: `arg0__bf16` of `uint16`, `arg1__f8e4m3fn` of `uint8`.
//! Archives are read stored or deflated, with 64-bit sizes or without; they are written stored, entries in order, without times, so
//! that equal arrays give equal bytes. Sources: APPNOTE.TXT 6.3 of PKWARE; NumPy's `numpy.lib.format`, version 1.0.

use std::io::{Cursor, Read, Seek, SeekFrom, Write};

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

/// The most bytes at the end of an archive that may hold where its directory lies.
const TAIL: u64 = 22 + 65_535 + 20;

/// An archive whose arrays are read one by one.
#[derive(Debug)]
pub struct Archive<R> {
    file: R,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    /// The name of the array, without the type.
    name: String,
    /// The name as it stands in the archive.
    key: String,
    method: u16,
    packed: u64,
    size: u64,
    header: u64,
}

impl<R: Read + Seek> Archive<R> {
    /// Reads the directory; a message if that is none.
    pub fn open(mut file: R) -> Result<Self, String> {
        let length = file.seek(SeekFrom::End(0)).map_err(|e| e.to_string())?;
        let start = length.saturating_sub(TAIL);
        let tail = read_at(&mut file, start, length - start)?;
        let end = tail.len().checked_sub(22).ok_or("it is too short for an archive")?;
        let end = (end.saturating_sub(65_535)..=end).rev().find(|&i| tail[i..].starts_with(b"PK\x05\x06")).ok_or("it is no zip archive")?;
        let mut count = u64::from(u16_at(&tail, end + 10)?);
        let mut at = u64::from(u32_at(&tail, end + 16)?);
        if (count == 0xffff || at == 0xffff_ffff) && end >= 20 && tail[end - 20..].starts_with(b"PK\x06\x07") {
            let record = read_at(&mut file, u64_at(&tail, end - 12)?, 56)?;
            (count, at) = (u64_at(&record, 32)?, u64_at(&record, 48)?);
        }
        let directory = read_at(&mut file, at, length.checked_sub(at).ok_or("its directory is damaged")?)?;
        let mut entries = Vec::new();
        let mut at = 0;
        for _ in 0..count {
            let (entry, next) = Entry::at(&directory, at)?;
            entries.push(entry);
            at = next;
        }
        Ok(Self { file, entries })
    }

    /// The names of all arrays, in order, without the types.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|e| e.name.as_str())
    }

    /// Reads one array.
    pub fn array(&mut self, number: usize) -> Result<Array, String> {
        let entry = self.entries.get(number).ok_or("there is no such array")?;
        let local = read_at(&mut self.file, entry.header, 30)?;
        let start = entry.header + 30 + u64::from(u16_at(&local, 26)?) + u64::from(u16_at(&local, 28)?);
        self.file.seek(SeekFrom::Start(start)).map_err(|e| e.to_string())?;
        let packed = (&mut self.file).take(entry.packed);
        let suffix = entry.key.split_once("__").map(|(_, ty)| ty);
        let found = match entry.method {
            0 => array(packed, entry.size, suffix),
            8 => array(flate2::read::DeflateDecoder::new(packed).take(entry.size.saturating_add(1)), entry.size, suffix),
            other => return Err(format!("`{}` is compressed by method {other}, not by deflate", entry.key)),
        };
        found.map_err(|why| format!("array `{}`: {why}", entry.key))
    }
}

impl Entry {
    /// The entry at a place of the directory, and the place of the next one.
    fn at(bytes: &[u8], at: usize) -> Result<(Self, usize), String> {
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
        let key = key.strip_suffix(".npy").unwrap_or(key).to_string();
        let plain = key.split_once("__").map_or(key.as_str(), |(name, _)| name).to_string();
        Ok((Self { name: plain, key, method, packed, size, header }, at + 46 + name + extra + comment))
    }
}

/// Reads so many bytes from a place on.
fn read_at(file: &mut (impl Read + Seek), at: u64, length: u64) -> Result<Vec<u8>, String> {
    file.seek(SeekFrom::Start(at)).map_err(|e| e.to_string())?;
    let mut out = Vec::new();
    file.take(length).read_to_end(&mut out).map_err(|e| e.to_string())?;
    if out.len() as u64 == length { Ok(out) } else { Err("it is cut short".to_string()) }
}

/// Reads the arrays of an archive under the names without the type; a message if that is none.
pub fn read(bytes: &[u8]) -> Result<Vec<(String, Array)>, String> {
    let mut archive = Archive::open(Cursor::new(bytes))?;
    let names: Vec<String> = archive.names().map(str::to_string).collect();
    names.into_iter().enumerate().map(|(i, name)| Ok((name, archive.array(i)?))).collect()
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

/// Reads a `.npy` file of that many bytes.
fn array(mut file: impl Read, size: u64, suffix: Option<&str>) -> Result<Array, String> {
    let mut take = |length: u64| -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        (&mut file).take(length).read_to_end(&mut out).map_err(|e| format!("it does not inflate: {e}"))?;
        if out.len() as u64 == length { Ok(out) } else { Err("it is cut short".to_string()) }
    };
    let magic = take(10)?;
    if !magic.starts_with(b"\x93NUMPY") {
        return Err("it is no NumPy array".to_string());
    }
    let (start, length) = match magic[6] {
        1 => (10, u64::from(u16_at(&magic, 8)?)),
        _ => (12, u64::from(u32_at(&[&magic[8..], &take(2)?].concat(), 0)?)),
    };
    let header = take(length)?;
    let header = std::str::from_utf8(&header).map_err(|_| "its header is damaged")?;
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
    let rest = size.saturating_sub(start + length);
    if expected.map(|n| n as u64) != Some(rest) {
        return Err(format!("expected {} of {dims:?}, found {rest} bytes", element.name()));
    }
    let data = take(rest)?;
    if !fortran || dims.len() < 2 {
        return Ok(Array::new(element, &dims, data));
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

/// An archive that is written array by array.
pub struct Writer<W> {
    out: W,
    prefix: String,
    /// Bytes written so far.
    at: u64,
    count: u64,
    directory: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Names will be `PREFIX0`, `PREFIX1` ….
    pub fn new(out: W, prefix: &str) -> Self {
        Self { out, prefix: prefix.to_string(), at: 0, count: 0, directory: Vec::new() }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.at += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Writes the next array.
    pub fn push(&mut self, array: &Array) -> std::io::Result<()> {
        let known = TYPES.iter().find(|(p, _)| *p == array.element);
        let name = match known {
            Some(_) => format!("{}{}.npy", self.prefix, self.count),
            None => format!("{}{}__{}.npy", self.prefix, self.count, array.element.name()),
        };
        let descr = known.map_or(if array.width() == 2 { "<u2" } else { "|u1" }, |(_, d)| d);
        let header = header(descr, &array.dims);
        let mut crc = flate2::Crc::new();
        crc.update(&header);
        crc.update(&array.data);
        let (at, size) = (self.at, (header.len() + array.data.len()) as u64);
        let mut local = b"PK\x03\x04".to_vec();
        common(&mut local, crc.sum(), &name, 20);
        local.extend_from_slice(name.as_bytes());
        long(&mut local, &[size, size]);
        self.write(&local)?;
        self.write(&header)?;
        self.write(&array.data)?;
        self.directory.extend_from_slice(b"PK\x01\x02\x2d\x03");
        common(&mut self.directory, crc.sum(), &name, 28);
        // No comment, disk 0, no attributes, offset in the extra field.
        self.directory.extend_from_slice(&[0; 10]);
        self.directory.extend_from_slice(&u32::MAX.to_le_bytes());
        self.directory.extend_from_slice(name.as_bytes());
        long(&mut self.directory, &[size, size, at]);
        self.count += 1;
        Ok(())
    }

    /// Writes the directory and ends.
    pub fn finish(mut self) -> std::io::Result<W> {
        let mut out = std::mem::take(&mut self.directory);
        let (count, start, size) = (self.count, self.at, out.len() as u64);
        let end = start + size;
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
        self.write(&out)?;
        Ok(self.out)
    }
}

/// The extra field of sizes, where they stand as NumPy writes them too.
fn long(out: &mut Vec<u8>, fields: &[u64]) {
    out.extend_from_slice(&1u16.to_le_bytes());
    out.extend_from_slice(&u16::try_from(8 * fields.len()).expect("three fields at most").to_le_bytes());
    fields.iter().for_each(|f| out.extend_from_slice(&f.to_le_bytes()));
}

/// What an entry and its record in the directory have in common.
fn common(out: &mut Vec<u8>, crc: u32, name: &str, extra: u16) {
    // Version 4.5, names in UTF-8, stored, 1 January 1980.
    for field in [45u16, 1 << 11, 0, 0, 0x21] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    for field in [crc, u32::MAX, u32::MAX] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    for field in [u16::try_from(name.len()).expect("names are short"), extra] {
        out.extend_from_slice(&field.to_le_bytes());
    }
}

/// Writes an archive of arrays under `PREFIX0`, `PREFIX1` ….
pub fn write(prefix: &str, arrays: &[Array]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), prefix);
    arrays.iter().for_each(|array| writer.push(array).expect("memory takes all"));
    writer.finish().expect("memory takes all")
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

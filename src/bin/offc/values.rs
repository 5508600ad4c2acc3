//! Inputs and outputs of programs: from files, from a seed, cut for partitions and put together again.

use std::path::Path;

use offc::interp::Array;
use offc::ir::{Module, Primitive, Shape, ShapeId};

use crate::files;
use crate::outcome::Failure;
use offc::interp::npz;

/// Where inputs come from.
#[derive(Debug, clap::Args)]
pub struct Source {
    /// Arrays `arg0`, `arg1` … for the entry's parameters (their arrays in order): a NumPy .npz file
    #[arg(long, value_name = "IN.npz")]
    pub inputs: Option<std::path::PathBuf>,
    /// Make inputs from this number instead: floats above zero and below 1, integers below 8
    #[arg(long, value_name = "N", conflicts_with = "inputs")]
    pub seed: Option<u64>,
}

/// What a program is run on.
pub struct Inputs {
    /// The inputs of each partition.
    pub of: Vec<Vec<Array>>,
    /// The dimensions of the arrays before they were cut for partitions.
    whole: Vec<Vec<usize>>,
}

/// Gives the value of an argument by its number, once.
pub type Arguments = Box<dyn FnMut(usize) -> Result<Array, String>>;

/// The inputs of one partition, made or read one by one.
pub fn streamed(source: &Source, module: &Module) -> Result<Arguments, Failure> {
    let types = parameter_types(module)?;
    let Some(path) = &source.inputs else {
        let seed = source.seed.unwrap_or(0);
        return Ok(Box::new(move |i| {
            let (element, dims) = types.get(i).ok_or("there is no such parameter")?;
            Ok(made(*element, dims, seed, i as u64))
        }));
    };
    let wrong = |why: String| Failure::Usage(format!("cannot read `{}`: {why}", path.display()));
    let file = std::fs::File::open(path).map_err(|e| Failure::file("read", path, &e))?;
    let mut archive = npz::Archive::open(std::io::BufReader::new(file)).map_err(wrong)?;
    let names = archive.names().map(str::to_string).enumerate().map(|(at, name)| (name, at)).collect();
    let order = numbered(names, "arg", path)?;
    counted(order.len(), types.len(), path)?;
    Ok(Box::new(move |i| archive.array(*order.get(i).ok_or("there is no such array")?)))
}

fn counted(found: usize, expected: usize, path: &Path) -> Result<(), Failure> {
    if found == expected {
        return Ok(());
    }
    Err(Failure::Usage(format!("expected {expected} arrays for the parameters, found {found} in `{}`", path.display())))
}

/// The inputs of each partition.
pub fn inputs(source: &Source, module: &Module, partitions: usize) -> Result<Inputs, Failure> {
    let types = parameter_types(module)?;
    let Some(path) = &source.inputs else {
        let made = types.iter().zip(0..).map(|((element, dims), i)| made(*element, dims, source.seed.unwrap_or(0), i));
        let whole = types.iter().map(|(_, dims)| dims.clone()).collect();
        return Ok(Inputs { of: vec![made.collect(); partitions], whole });
    };
    let read = npz::read(&files::read(path)?).map_err(|why| Failure::Usage(format!("cannot read `{}`: {why}", path.display())))?;
    let arrays = numbered(read, "arg", path)?;
    counted(arrays.len(), types.len(), path)?;
    let mut out = vec![Vec::with_capacity(arrays.len()); partitions];
    for (i, (array, (element, dims))) in arrays.iter().zip(&types).enumerate() {
        let parts = cut(array, *element, dims, partitions).map_err(|why| Failure::Usage(format!("`arg{i}`: {why}")))?;
        for (inputs, part) in out.iter_mut().zip(parts) {
            inputs.push(part);
        }
    }
    Ok(Inputs { of: out, whole: arrays.into_iter().map(|a| a.dims).collect() })
}

/// What an archive has under numbered names, in the order of the numbers.
fn numbered<T>(read: Vec<(String, T)>, prefix: &str, path: &Path) -> Result<Vec<T>, Failure> {
    let mut arrays = Vec::with_capacity(read.len());
    for (key, array) in read {
        let number: Option<usize> = key.strip_prefix(prefix).and_then(|n| n.parse().ok());
        let number =
            number.ok_or_else(|| Failure::Usage(format!("expected arrays `{prefix}0` …, found `{key}` in `{}`", path.display())))?;
        arrays.push((number, array));
    }
    arrays.sort_by_key(|(number, _)| *number);
    match arrays.iter().enumerate().find(|(i, (number, _))| i != number) {
        Some((i, _)) => Err(Failure::Usage(format!("there is no `{prefix}{i}` in `{}`", path.display()))),
        None => Ok(arrays.into_iter().map(|(_, array)| array).collect()),
    }
}

/// Types and dimensions of the arrays of the entry's parameters.
fn parameter_types(module: &Module) -> Result<Vec<(Primitive, Vec<usize>)>, Failure> {
    let parameters = module.entry().parameters.iter().map(|&p| module.instr(p).shape);
    parameters.flat_map(|shape| module.shapes.leaves(shape)).map(|leaf| array_type(module, leaf)).collect()
}

fn array_type(module: &Module, shape: ShapeId) -> Result<(Primitive, Vec<usize>), Failure> {
    let Shape::Array(array) = module.shapes.get(shape) else { unreachable!("leaves are arrays") };
    let dims = array.dims.iter().map(|d| usize::try_from(d.size).ok().filter(|_| !d.dynamic)).collect::<Option<Vec<_>>>();
    match (array.element.known(), dims) {
        (Some(element), Some(dims)) => Ok((element, dims)),
        _ => Err(Failure::Usage("a parameter has a dynamic dimension or an unknown element type: it cannot be run".to_string())),
    }
}

/// What each partition gets of an array: all of it if it has the parameter's dimensions; else equal parts, in the order of the partitions,
/// the first dimension that is larger changing slowest.
fn cut(array: &Array, element: Primitive, dims: &[usize], partitions: usize) -> Result<Vec<Array>, String> {
    let expected = || format!("{}{dims:?}", element.name());
    if array.element != element || array.dims.len() != dims.len() {
        return Err(format!("expected {}, found {}{:?}", expected(), array.element.name(), array.dims));
    }
    if array.dims == dims {
        return Ok(vec![array.clone(); partitions]);
    }
    let factor = |(&whole, &part): (&usize, &usize)| (part > 0 && whole % part == 0).then(|| whole / part);
    let factors: Option<Vec<usize>> = array.dims.iter().zip(dims).map(factor).collect();
    let factors = factors.filter(|f| f.iter().product::<usize>() == partitions);
    let factors = factors
        .ok_or_else(|| format!("expected {}, or what {partitions} partitions have of it together, found {:?}", expected(), array.dims))?;
    let strides = array.strides();
    let width = array.width();
    Ok(offc::interp::array::indices(&factors)
        .map(|place| {
            let mut part = Array::zeros(element, dims);
            for (i, index) in offc::interp::array::indices(dims).enumerate() {
                let at: usize = index.iter().zip(&place).zip(dims).zip(&strides).map(|(((i, p), d), s)| (p * d + i) * s).sum();
                part.data[i * width..(i + 1) * width].copy_from_slice(array.element_bytes(at));
            }
            part
        })
        .collect())
}

/// The outputs of all partitions as one list: one that is the same everywhere as it is; one that is written over a parameter which was cut,
/// put together in the same way; any other one in the order of the partitions along its first dimension.
pub fn together(module: &Module, inputs: &Inputs, mut outputs: Vec<Vec<Array>>) -> Vec<Array> {
    if outputs.len() == 1 {
        return outputs.swap_remove(0);
    }
    let [first, rest @ ..] = outputs.as_slice() else { return Vec::new() };
    let donors = donors(module, first.len());
    let join = |i: usize| {
        if rest.iter().all(|other| other[i] == first[i]) {
            return first[i].clone();
        }
        let parts: Vec<&Array> = outputs.iter().map(|o| &o[i]).collect();
        let factors = match donors[i].and_then(|d| inputs.whole.get(d)) {
            Some(dims) => dims.iter().zip(&first[i].dims).map(|(&whole, &part)| whole / part.max(1)).collect(),
            None => {
                let mut factors = vec![1; first[i].dims.len()];
                factors.iter_mut().take(1).for_each(|f| *f = outputs.len());
                factors
            }
        };
        assemble(&parts, &factors)
    };
    (0..first.len()).map(join).collect()
}

/// The number of the parameter's array that each output's array is written over.
fn donors(module: &Module, outputs: usize) -> Vec<Option<usize>> {
    let mut out = vec![None; outputs];
    let parameters: Vec<ShapeId> = module.entry().parameters.iter().map(|&p| module.instr(p).shape).collect();
    let leaf = |shape: ShapeId, path: &[i64]| {
        let arrays = module.shapes.positions(shape).into_iter().filter(|(_, s)| module.shapes.array(*s).is_some());
        arrays.map(|(path, _)| path).position(|p| p == path)
    };
    let result = module.instr(module.entry().root).shape;
    for alias in &module.header.input_output_alias {
        let Some((number, &shape)) = usize::try_from(alias.parameter).ok().and_then(|n| Some((n, parameters.get(n)?))) else { continue };
        let before: usize = parameters[..number].iter().map(|&p| module.shapes.leaves(p).len()).sum();
        if let (Some(output), Some(input)) = (leaf(result, &alias.output), leaf(shape, &alias.index)) {
            out[output] = Some(before + input);
        }
    }
    out
}

/// Equal parts put together; scalars that differ stand in a row.
fn assemble(parts: &[&Array], factors: &[usize]) -> Array {
    let dims: Vec<usize> = parts[0].dims.iter().zip(factors).map(|(d, f)| d * f).collect();
    let dims = if factors.is_empty() { vec![parts.len()] } else { dims };
    let mut out = Array::zeros(parts[0].element, &dims);
    if factors.iter().product::<usize>() != parts.len() {
        let data: Vec<u8> = parts.iter().flat_map(|p| p.data.iter().copied()).collect();
        let rows = [&[parts.len()], &parts[0].dims[..]].concat();
        return Array::new(parts[0].element, &rows, data);
    }
    let strides = out.strides();
    for (place, part) in offc::interp::array::indices(factors).zip(parts) {
        for (i, index) in offc::interp::array::indices(&part.dims).enumerate() {
            let at: usize = index.iter().zip(&place).zip(&part.dims).zip(&strides).map(|(((i, p), d), s)| (p * d + i) * s).sum();
            out.set_element_bytes(at, part.element_bytes(i));
        }
    }
    out
}

/// An array of numbers that look random: floats in (0, 1), mostly small, so that square roots of moments exist; integers below 8, so that
/// they index most things.
fn made(element: Primitive, dims: &[usize], seed: u64, number: u64) -> Array {
    let mut out = Array::zeros(element, dims);
    let mut random = Random(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for i in 0..out.len() {
        if element.is_complex() {
            out.set_complex(i, (random.unit() - 0.5, random.unit() - 0.5));
        } else if element.is_float() {
            let unit = random.unit();
            out.set_f64(i, 0.001 + 0.3 * unit * unit);
        } else if element == Primitive::Pred {
            out.set_i64(i, i64::from(random.unit() < 0.5));
        } else {
            out.set_i64(i, (random.unit() * 8.0) as i64);
        }
    }
    out
}

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// From 0 up to 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_make_the_whole() {
        let whole = made(Primitive::F32, &[4, 6], 1, 0);
        let parts = cut(&whole, Primitive::F32, &[2, 3], 4).unwrap();
        assert_eq!(assemble(&parts.iter().collect::<Vec<_>>(), &[2, 2]), whole);
        assert!(cut(&whole, Primitive::F32, &[4, 3], 4).is_err());
        assert_eq!(cut(&whole, Primitive::F32, &[4, 6], 2).unwrap().len(), 2);
    }
}

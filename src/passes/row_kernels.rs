//! Makes one kernel of what works on whole rows: softmax and its derivative.
//!
//! XLA compiles a fusion of exponentials and their row maximum by Triton, a tile of full rows at a time. Where the sum of a row and the quotient read
//! its result from memory (since a stack was made of it), they can do so from registers: the reader becomes a Triton fusion of the same tiles that
//! computes the exponentials itself. A row's sum in a kernel of its own moves into its readers likewise.

use rustc_hash::FxHashMap;

use crate::analysis::Users;
use crate::ir::{CompId, Dim, FusionKind, InstrId, Module, Op};

use super::fuse_again::{overwritten, root_of, through_views};
use super::inline::{Output, inline, is_triton, without_price};

/// Smaller values are not worth it.
const SMALLEST: u64 = 1 << 12;

/// Moves one kernel that works on rows into all its readers; `None` where there is none.
pub(super) fn row_kernel(module: &mut Module, body: CompId) -> Option<usize> {
    let users = Users::of(module);
    let order = module.comp(body).order.clone();
    let place: FxHashMap<InstrId, usize> = order.iter().enumerate().map(|(n, &i)| (i, n)).collect();
    let ends = overwritten(module, &users, body);
    for &id in &order {
        let from = Output { fusion: id, output: None };
        if !is_triton(module, id) || module.shapes.array(module.instr(id).shape).is_none() {
            continue;
        }
        let Some(tile) = Tile::of(module, id) else { continue };
        let readers = through_views(module, &users, id);
        let last = readers.iter().filter_map(|r| place.get(&r.0)).max().copied().unwrap_or(usize::MAX);
        let stays = module.instr(id).operands.iter().all(|&o| ends.get(&root_of(module, o)).is_none_or(|&end| last <= end));
        if readers.is_empty() || !stays || !readers.iter().all(|&(r, _)| tile.fits(module, r)) || !pays(module, &tile, id, &readers) {
            continue;
        }
        let mut done = 0;
        for &(reader, operand) in &readers {
            if inline(module, from, reader, operand).is_some() {
                tile.give(module, reader);
                done += 1;
            }
        }
        if done > 0 {
            return Some(done);
        }
    }
    None
}

/// Full rows at a time.
struct Tile {
    /// The dimensions of what the kernel works on.
    dims: Vec<Dim>,
    /// Tile sizes along them, as XLA writes them.
    sizes: Vec<String>,
    /// The backend config that says so, without a price.
    config: String,
}

const SIZES: &str = "\"sizes\":[";

impl Tile {
    /// The tile of a Triton fusion whose rows are reduced along their last dimension only.
    fn of(module: &Module, fusion: InstrId) -> Option<Self> {
        let config = without_price(module.instr(fusion).attrs.backend_config.as_ref()?)?;
        let config = String::from_utf8(config.into_vec()).ok()?;
        let (from, to) = sizes_in(&config)?;
        let mut sizes: Vec<String> = config[from..to].split(',').map(str::to_owned).collect();
        let Op::Fusion(op) = &module.instr(fusion).op else { return None };
        // The dimensions of what is reduced, or of the result.
        let reduced = module.comp(op.calls).order.iter().find_map(|&i| match module.instr(i).op {
            Op::Reduce { .. } => module.shapes.array(module.instr(module.instr(i).operands[0]).shape),
            _ => None,
        });
        let result = module.shapes.array(module.instr(fusion).shape)?;
        let full = reduced.unwrap_or(result);
        let row = full.dims.last()?.size;
        if sizes.len() + 1 == full.dims.len() && result.dims == full.dims[..full.dims.len() - 1] {
            sizes.push(format!("\"{row}\""));
        }
        let whole = sizes.last().is_some_and(|s| *s == format!("\"{row}\""));
        let tile = Self { dims: full.dims.clone(), sizes, config };
        (whole && tile.sizes.len() == tile.dims.len() && reduced.is_some() && tile.works_on_rows(module, op.calls)).then_some(tile)
    }

    /// Whether everything in a computation works on these rows: elementwise, numbers of rows spread over them, reductions of them.
    fn works_on_rows(&self, module: &Module, comp: CompId) -> bool {
        let rank = self.dims.len();
        let is_full = |id: InstrId| module.shapes.array(module.instr(id).shape).is_some_and(|a| a.dims == self.dims);
        let is_rows = |id: InstrId| module.shapes.array(module.instr(id).shape).is_some_and(|a| a.dims == self.dims[..rank - 1]);
        let is_plain = |id: InstrId| {
            module.shapes.array(module.instr(id).shape).is_some_and(|a| {
                let minor = a.layout.as_ref().map(|l| l.minor_to_major.clone()).unwrap_or_default();
                let rank = i64::try_from(a.dims.len()).unwrap_or(0);
                minor == (0..rank).rev().collect::<Vec<_>>()
            })
        };
        module.comp(comp).order.iter().all(|&id| {
            let instr = module.instr(id);
            let known = match &instr.op {
                Op::Parameter { .. } | Op::Bitcast => true,
                Op::Constant(_) => module.shapes.array(instr.shape).is_some_and(|a| a.dims.is_empty()),
                Op::Unary(_) | Op::Binary(_) | Op::Compare { .. } | Op::Select | Op::Convert => is_full(id) || is_rows(id),
                Op::Broadcast { dimensions } => {
                    let leading = dimensions.iter().enumerate().all(|(n, &d)| usize::try_from(d) == Ok(n));
                    (is_full(id) && leading && (dimensions.is_empty() || dimensions.len() == rank - 1))
                        || (is_rows(id) && dimensions.is_empty())
                }
                Op::Reduce { dimensions, .. } => {
                    is_rows(id) && instr.operands.len() == 2 && dimensions.as_slice() == [i64::try_from(rank - 1).unwrap_or(-1)]
                }
                _ => false,
            };
            known && is_plain(id)
        })
    }

    /// Whether a reader can become such a kernel.
    fn fits(&self, module: &Module, reader: InstrId) -> bool {
        let Op::Fusion(op) = &module.instr(reader).op else { return false };
        let Some(result) = module.shapes.array(module.instr(reader).shape) else { return false };
        let kind = matches!(op.kind, FusionKind::Loop | FusionKind::Input) || is_triton(module, reader);
        let shape = result.dims == self.dims || result.dims == self.dims[..self.dims.len() - 1];
        kind && shape && op.aliasing.is_empty() && self.works_on_rows(module, op.calls)
    }

    /// Makes a fusion such a kernel.
    fn give(&self, module: &mut Module, fusion: InstrId) {
        let full = module.shapes.array(module.instr(fusion).shape).is_some_and(|a| a.dims == self.dims);
        let sizes = if full { &self.sizes[..] } else { &self.sizes[..self.sizes.len() - 1] };
        let Some((from, to)) = sizes_in(&self.config) else { return };
        let config = format!("{}{}{}", &self.config[..from], sizes.join(","), &self.config[to..]);
        module.instructions[fusion].attrs.backend_config = Some(config.into_bytes().into());
        if let Op::Fusion(op) = &mut module.instructions[fusion].op {
            op.kind = FusionKind::Custom;
        }
    }
}

/// Where in a config the sizes of the only output's tile stand.
fn sizes_in(config: &str) -> Option<(usize, usize)> {
    let from = config.find(SIZES)? + SIZES.len();
    let to = from + config[from..].find(']')?;
    (!config[to..].contains(SIZES)).then_some((from, to))
}

/// Whether fewer bytes move.
fn pays(module: &Module, tile: &Tile, id: InstrId, readers: &[(InstrId, InstrId)]) -> bool {
    let bytes = |id: InstrId| module.shapes.byte_size(module.instr(id).shape);
    let read: u64 = module.instr(id).operands.iter().map(|&o| bytes(o)).sum();
    let before = read + bytes(id) * (1 + readers.len() as u64);
    let after: u64 = readers
        .iter()
        .map(|&(r, _)| module.instr(id).operands.iter().filter(|o| !module.instr(r).operands.contains(o)).map(|&o| bytes(o)).sum::<u64>())
        .sum();
    let elements: i64 = tile.dims.iter().map(|d| d.size).product();
    after <= before && u64::try_from(elements).is_ok_and(|n| n >= SMALLEST)
}

//! Matrix products of `bf16` on Intel's AMX tiles.
//!
//! Products are exact, sums are `f32` in an order of the processor's choosing; numbers below the least normal one count as zero (Intel 64
//! and IA-32 Architectures Software Developer's Manual, `TDPBF16PS`). Operands are packed into panels of 32 rows or columns, zeros at the
//! edges, so that every tile lies in one kibibyte; a block of 32 x 32 results is four tiles, made of four tile products for each 32 of depth. Cost:
//! scratch memory as large as both operands.
//!
//! The instructions have no stable intrinsics, so they are inline assembly; the kernel gives the tiles' state only to programs that ask.

#![expect(unsafe_code, reason = "inline assembly, and panels that threads share")]

use std::sync::{Barrier, OnceLock};

use super::matrix::Matrix;

/// Rows of a panel of the left operand, columns of one of the right operand and of a block of results.
const PANEL: usize = 32;
/// Depth of a tile.
const STEP: usize = 32;
/// Numbers that a panel holds for each step.
const CHUNK: usize = PANEL * STEP;
/// Numbers of the right operand's panels that are in work together: half a mebibyte.
const RIGHT: usize = 1 << 18;
/// Multiplications below which threads cost more than they give.
const WORTH_A_THREAD: usize = 1 << 24;

/// Where results go: as the sums are, or rounded.
#[derive(Clone, Copy)]
pub(super) enum Results {
    /// Sums.
    F32(Matrix<f32>),
    /// Rounded to the nearest, ties to even.
    Bf16(Matrix<u16>),
}

/// Whether this machine has the tiles and lets the program use them.
pub(super) fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(machine::permitted)
}

/// `c = a · b`. Fails where the tiles are not [`available`].
///
/// # Safety
/// The matrices lie in memory that nobody else touches meanwhile, `c`'s elements apart from each other and from `a` and `b`.
pub(super) unsafe fn product(a: Matrix<u16>, b: Matrix<u16>, c: Results, [rows, depth, columns]: [usize; 3]) {
    assert!(available(), "the tiles are asked for first");
    let steps = depth.div_ceil(STEP);
    let panels = [rows.div_ceil(PANEL), columns.div_ceil(PANEL)];
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.min(rows * depth * columns / WORTH_A_THREAD).min(panels[0].max(panels[1])).max(1);
    // Not filled with anything: every chunk is packed before it is read.
    let mut packed = panels.map(|n| Vec::<Chunk>::with_capacity(n * steps));
    let [left, right] = packed.each_mut().map(|p| Matrix { start: p.as_mut_ptr(), steps: [steps.cast_signed(), 1] });
    let barrier = Barrier::new(threads);
    let share = |n: usize, thread: usize| n * thread / threads..n * (thread + 1) / threads;
    let work = |thread: usize| {
        for panel in share(panels[0], thread) {
            for step in 0..steps {
                let mut chunk = Chunk([0; CHUNK]);
                // SAFETY: the caller's promise; only numbers inside the matrix are read.
                unsafe { pack_left(&mut chunk, a, [panel * PANEL, step * STEP], [rows, depth]) };
                // SAFETY: inside the memory above, and this thread's alone until all have met.
                unsafe { left.at(panel, step).write(chunk) };
            }
        }
        for panel in share(panels[1], thread) {
            for step in 0..steps {
                let mut chunk = Chunk([0; CHUNK]);
                // SAFETY: the caller's promise; only numbers inside the matrix are read.
                unsafe { pack_right(&mut chunk, b, [step * STEP, panel * PANEL], [depth, columns]) };
                // SAFETY: inside the memory above, and this thread's alone until all have met.
                unsafe { right.at(panel, step).write(chunk) };
            }
        }
        barrier.wait();
        // The longer side is shared out.
        let by_rows = panels[0] >= panels[1];
        let mine = |n: usize, shared: bool| if shared { share(n, thread) } else { 0..n };
        let (my_rows, my_columns) = (mine(panels[0], by_rows), mine(panels[1], !by_rows));
        let together = (RIGHT / (CHUNK * steps.max(1))).max(1);
        let mut block = Block([0.0; PANEL * PANEL]);
        machine::configured(|| {
            for first in my_columns.clone().step_by(together) {
                for row in my_rows.clone() {
                    for column in first..(first + together).min(my_columns.end) {
                        // SAFETY: all chunks are written, from now on they are only read; each panel has `steps` of them.
                        unsafe { machine::multiply(left.at(row, 0).cast(), right.at(column, 0).cast(), steps, &mut block) };
                        // SAFETY: the caller's promise, and no other thread has this block.
                        unsafe { store(&block, c, [row * PANEL, column * PANEL], [rows, columns]) };
                    }
                }
            }
        });
    };
    std::thread::scope(|scope| {
        let work = &work;
        for thread in 1..threads {
            scope.spawn(move || work(thread));
        }
        work(0);
    });
}

/// What two tiles hold: 32 by 32 numbers.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Chunk([u16; CHUNK]);

/// A block of results.
#[repr(align(64))]
struct Block([f32; PANEL * PANEL]);

/// Packs 32 rows by a step of depth: row after row.
///
/// # Safety
/// The matrix has the given size and may be read.
unsafe fn pack_left(out: &mut Chunk, from: Matrix<u16>, [row, deep]: [usize; 2], [rows, depth]: [usize; 2]) {
    let (height, width) = ((rows - row).min(PANEL), (depth - deep).min(STEP));
    if from.steps[1] == 1 {
        for i in 0..height {
            // SAFETY: `width` numbers of a row of the matrix follow each other.
            let numbers = unsafe { std::slice::from_raw_parts(from.at(row + i, deep), width) };
            out.0[i * STEP..][..width].copy_from_slice(numbers);
        }
        return;
    }
    for k in 0..width {
        for i in 0..height {
            // SAFETY: inside the matrix.
            out.0[i * STEP + k] = unsafe { *from.at(row + i, deep + k) };
        }
    }
}

/// Packs a step of depth by 32 columns: for each half of the columns pairs of rows, the two numbers of a column side by side.
///
/// # Safety
/// The matrix has the given size and may be read.
unsafe fn pack_right(out: &mut Chunk, from: Matrix<u16>, [deep, column]: [usize; 2], [depth, columns]: [usize; 2]) {
    let (height, width) = ((depth - deep).min(STEP), (columns - column).min(PANEL));
    // The tile of the column's half, the row of its pair, the pair's place in it.
    let place = |k: usize, j: usize| (j / 16) * (CHUNK / 2) + (k / 2) * STEP + (j % 16) * 2 + k % 2;
    if from.steps[1] == 1 && width == PANEL && height == STEP {
        for k in (0..STEP).step_by(2) {
            // SAFETY: 32 numbers of two rows of the matrix follow each other.
            let [even, odd] = [0, 1].map(|i| unsafe { &*from.at(deep + k + i, column).cast::<[u16; PANEL]>() });
            for half in 0..2 {
                let pairs = out.0[half * (CHUNK / 2) + k / 2 * STEP..][..STEP].as_chunks_mut::<2>().0;
                for ((pair, &even), &odd) in pairs.iter_mut().zip(&even[half * 16..]).zip(&odd[half * 16..]) {
                    *pair = [even, odd];
                }
            }
        }
        return;
    }
    for j in 0..width {
        for k in 0..height {
            // SAFETY: inside the matrix.
            out.0[place(k, j)] = unsafe { *from.at(deep + k, column + j) };
        }
    }
}

/// The nearest `bf16`, ties to even; a NaN stays one.
fn rounded(x: f32) -> u16 {
    let bits = x.to_bits();
    let nearest = (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16;
    if x.is_nan() { (bits >> 16) as u16 | 0x40 } else { nearest }
}

/// Stores what of a block lies inside the result.
///
/// # Safety
/// The result has the given size and may be written.
unsafe fn store(block: &Block, to: Results, [row, column]: [usize; 2], [rows, columns]: [usize; 2]) {
    let (height, width) = ((rows - row).min(PANEL), (columns - column).min(PANEL));
    for (i, values) in block.0.chunks_exact(PANEL).take(height).enumerate() {
        match to {
            // SAFETY: `width` numbers of a row of the result follow each other.
            Results::F32(to) if to.steps[1] == 1 => unsafe {
                std::slice::from_raw_parts_mut(to.at(row + i, column), width).copy_from_slice(&values[..width]);
            },
            Results::Bf16(to) if to.steps[1] == 1 => {
                // SAFETY: `width` numbers of a row of the result follow each other.
                let out = unsafe { std::slice::from_raw_parts_mut(to.at(row + i, column), width) };
                out.iter_mut().zip(values).for_each(|(to, &x)| *to = rounded(x));
            }
            Results::F32(to) => {
                for (j, &x) in values[..width].iter().enumerate() {
                    // SAFETY: inside the result.
                    unsafe { *to.at(row + i, column + j) = x };
                }
            }
            Results::Bf16(to) => {
                for (j, &x) in values[..width].iter().enumerate() {
                    // SAFETY: inside the result.
                    unsafe { *to.at(row + i, column + j) = rounded(x) };
                }
            }
        }
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod machine {
    //! The instructions.

    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    use super::Block;

    /// What `LDTILECFG` reads: palette 1, eight tiles of 16 rows of 64 bytes.
    #[repr(C, align(64))]
    struct Configuration {
        palette: u8,
        start_row: u8,
        reserved: [u8; 14],
        row_bytes: [u16; 16],
        rows: [u8; 16],
    }

    /// Asks the processor for the instructions and the operating system for the tiles' state.
    pub(super) fn permitted() -> bool {
        const XSAVE: u32 = 1 << 27;
        const AMX_BF16_AND_TILE: u32 = 1 << 22 | 1 << 24;
        const TILE_STATE: u32 = 0b11 << 17;
        if __cpuid(0).eax < 7 || __cpuid(1).ecx & XSAVE == 0 || __cpuid_count(7, 0).edx & AMX_BF16_AND_TILE != AMX_BF16_AND_TILE {
            return false;
        }
        let enabled: u32;
        // SAFETY: the processor has `xgetbv`, which only reads a register.
        unsafe { asm!("xgetbv", in("ecx") 0, out("eax") enabled, out("edx") _, options(nomem, nostack, preserves_flags)) };
        if enabled & TILE_STATE != TILE_STATE {
            return false;
        }
        const ARCH_PRCTL: i64 = 158;
        const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
        const XTILEDATA: i64 = 18;
        let status: i64;
        // SAFETY: `arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)` lets this process use the tiles, and fails with a negative number where it may
        // not. A system call overwrites `rcx` and `r11` beside its result.
        unsafe {
            asm!("syscall", inlateout("rax") ARCH_PRCTL => status, in("rdi") ARCH_REQ_XCOMP_PERM, in("rsi") XTILEDATA,
                 out("rcx") _, out("r11") _, options(nostack));
        }
        status == 0
    }

    /// Runs `work` with the tiles configured on this thread; the tiles are permitted.
    pub(super) fn configured(work: impl FnOnce()) {
        let mut configuration = Configuration { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        configuration.row_bytes[..8].fill(64);
        configuration.rows[..8].fill(16);
        // SAFETY: 64 bytes in the form the instruction asks for; no other code in the process knows of the tiles.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const configuration, options(nostack, readonly, preserves_flags)) };
        work();
        // SAFETY: nobody uses the tiles any more.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }

    /// A block of results from a panel of each operand.
    ///
    /// # Safety
    /// The tiles are configured; the panels have `steps` chunks of two kibibytes each.
    pub(super) unsafe fn multiply(left: *const u16, right: *const u16, steps: usize, out: &mut Block) {
        if steps == 0 {
            out.0.fill(0.0);
            return;
        }
        // SAFETY: reads `steps` chunks of both panels and writes the block: four tiles of 16 rows, 128 bytes apart.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "2:",
                "tileloadd tmm4, [{a} + {row}]",
                "tileloadd tmm6, [{b} + {row}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{b} + {row} + 1024]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{a} + {row} + 1024]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {a}, 2048",
                "add {b}, 2048",
                "dec {n}",
                "jnz 2b",
                "tilestored [{c} + {wide}], tmm0",
                "tilestored [{c} + {wide} + 64], tmm1",
                "tilestored [{c} + {wide} + 2048], tmm2",
                "tilestored [{c} + {wide} + 2112], tmm3",
                a = inout(reg) left => _,
                b = inout(reg) right => _,
                n = inout(reg) steps => _,
                c = in(reg) out.0.as_mut_ptr(),
                row = in(reg) 64usize,
                wide = in(reg) 128usize,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod machine {
    //! No tiles here.

    use super::Block;

    pub(super) fn permitted() -> bool {
        false
    }
    pub(super) fn configured(_: impl FnOnce()) {
        unreachable!("nobody is permitted")
    }
    /// # Safety
    /// Never called.
    pub(super) unsafe fn multiply(_: *const u16, _: *const u16, _: usize, _: &mut Block) {
        unreachable!("nobody is permitted")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_small_integers_are_exact() {
        if !available() {
            eprintln!("skipped: this machine has no AMX tiles for bf16, or does not let the program use them");
            return;
        }
        let bf16 = |x: f32| (x.to_bits() >> 16) as u16;
        for [rows, depth, columns] in [[1, 1, 1], [16, 32, 16], [33, 65, 34], [70, 7, 100], [300, 290, 310], [5, 0, 3]] {
            let numbers = |n: usize, k: usize| (0..n).map(|i| bf16(((i * k) % 7) as f32 - 3.0)).collect::<Vec<_>>();
            let (mut a, mut b) = (numbers(rows * depth, 3), numbers(depth * columns, 5));
            let (mut wide, mut narrow) = (vec![f32::NAN; rows * columns], vec![0x7fc0u16; rows * columns]);
            for turned in [false, true] {
                // The right operand also column by column.
                let mut right = Matrix::of(&mut b, columns);
                if turned {
                    right.steps = [1, depth.cast_signed()];
                }
                let (left, wide_to) = (Matrix::of(&mut a, depth), Matrix::of(&mut wide, columns));
                let narrow_to = Matrix { start: narrow.as_mut_ptr(), steps: [1, rows.cast_signed()] };
                // SAFETY: vectors of those sizes.
                unsafe { product(left, right, Results::F32(wide_to), [rows, depth, columns]) };
                // SAFETY: as above.
                unsafe { product(left, right, Results::Bf16(narrow_to), [rows, depth, columns]) };
                for i in 0..rows {
                    for j in 0..columns {
                        let number = |x: u16| f32::from_bits(u32::from(x) << 16);
                        let of_b = |k: usize| if turned { b[j * depth + k] } else { b[k * columns + j] };
                        let sum = (0..depth).fold(0.0, |sum, k| sum + number(a[i * depth + k]) * number(of_b(k)));
                        assert_eq!(wide[i * columns + j], sum, "{rows} x {depth} x {columns} at {i}, {j}");
                        assert_eq!(narrow[j * rows + i], rounded(sum));
                    }
                }
            }
        }
    }

    #[test]
    fn rounding_is_to_nearest_even() {
        for (x, bits) in [(1.0f32, 0x3f80), (1.003_906_3, 0x3f80), (1.011_718_8, 0x3f82), (f32::MAX, 0x7f80), (f32::NEG_INFINITY, 0xff80)] {
            assert_eq!(rounded(x), bits, "{x}");
        }
        assert!(f32::from_bits(u32::from(rounded(f32::NAN)) << 16).is_nan());
    }
}

//! Linear programs in a box, by a first-order method, with a bound that holds whatever the method does.
//!
//! min c·x, A x ≥ b, 0 ≤ x ≤ u. Source: PDLP (Applegate et al., 2021), the primal-dual hybrid gradient with Ruiz and Pock–Chambolle scaling, averages,
//! restarts and a primal weight that follows the distances moved. A round costs two products with A.
//!
//! The bound: for any y ≥ 0 and any feasible x, c·x ≥ c·x − y·(A x − b) = y·b + (c − Aᵀy)·x ≥ y·b + Σⱼ uⱼ min(0, cⱼ − (Aᵀy)ⱼ). So every
//! y that the method passes gives a valid bound; rounding errors of the sums are far below the margin that [`solve`] takes off.

/// A row: right side, and columns with coefficients.
pub type Row = (f64, Vec<(u32, f64)>);

/// The program.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Cost of each column.
    pub cost: Vec<f64>,
    /// Upper end of each column.
    pub upper: Vec<f64>,
    /// Rows, each `A x ≥ b`.
    pub rows: Vec<Row>,
}

impl Program {
    /// A new column.
    pub fn column(&mut self, cost: f64, upper: f64) -> u32 {
        self.cost.push(cost);
        self.upper.push(upper);
        u32::try_from(self.cost.len() - 1).expect("columns are numbered by u32")
    }
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// No feasible point costs less.
    pub bound: f64,
    /// Nearly feasible, nearly best.
    pub x: Vec<f64>,
    /// Price of each row, from which the bound follows.
    pub prices: Vec<f64>,
}

/// Compressed rows.
#[derive(Default)]
struct Sparse {
    start: Vec<usize>,
    entries: Vec<(u32, f64)>,
}

impl Sparse {
    fn times(&self, x: &[f64], out: &mut [f64]) {
        for (i, slot) in out.iter_mut().enumerate() {
            *slot = self.entries[self.start[i]..self.start[i + 1]].iter().map(|&(j, a)| a * x[j as usize]).sum();
        }
    }
    fn transposed(&self, columns: usize) -> Self {
        let mut lists = vec![Vec::new(); columns];
        for i in 0..self.start.len() - 1 {
            for &(j, a) in &self.entries[self.start[i]..self.start[i + 1]] {
                lists[j as usize].push((u32::try_from(i).expect("rows are numbered by u32"), a));
            }
        }
        let mut out = Self { start: vec![0], entries: Vec::new() };
        for list in lists {
            out.entries.extend(list);
            out.start.push(out.entries.len());
        }
        out
    }
}

/// The program after scaling: rows by `row`, columns by `column`, so that no singular value is above one.
struct Scaled {
    rows: Sparse,
    columns: Sparse,
    cost: Vec<f64>,
    upper: Vec<f64>,
    right: Vec<f64>,
    row: Vec<f64>,
    column: Vec<f64>,
}

fn scale(program: &Program) -> Scaled {
    let (n, m) = (program.cost.len(), program.rows.len());
    let (mut row, mut column) = (vec![1.0; m], vec![1.0; n]);
    // Ruiz: largest entries towards one; last, sums (Pock and Chambolle, exponent one).
    for round in 0..11 {
        let (mut by_row, mut by_column) = (vec![0.0f64; m], vec![0.0f64; n]);
        for (i, (_, entries)) in program.rows.iter().enumerate() {
            for &(j, a) in entries {
                let a = (a * row[i] * column[j as usize]).abs();
                let (r, c) = (&mut by_row[i], &mut by_column[j as usize]);
                if round < 10 {
                    *r = r.max(a);
                    *c = c.max(a);
                } else {
                    *r += a;
                    *c += a;
                }
            }
        }
        for (factor, size) in row.iter_mut().zip(by_row).chain(column.iter_mut().zip(by_column)) {
            if size > 0.0 {
                *factor /= size.sqrt();
            }
        }
    }
    let mut rows = Sparse { start: vec![0], entries: Vec::new() };
    for (i, (_, entries)) in program.rows.iter().enumerate() {
        rows.entries.extend(entries.iter().map(|&(j, a)| (j, a * row[i] * column[j as usize])));
        rows.start.push(rows.entries.len());
    }
    let times = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).collect::<Vec<f64>>();
    let right: Vec<f64> = program.rows.iter().map(|r| r.0).collect();
    Scaled {
        columns: rows.transposed(n),
        rows,
        cost: times(&program.cost, &column),
        upper: program.upper.iter().zip(&column).map(|(u, c)| u / c).collect(),
        right: times(&right, &row),
        row,
        column,
    }
}

impl Scaled {
    /// The bound of the prices `y`, of which `reduced` is Aᵀy.
    fn bound(&self, y: &[f64], reduced: &[f64]) -> f64 {
        let gain: f64 = self.right.iter().zip(y).map(|(b, y)| b * y).sum();
        let loss: f64 = self.cost.iter().zip(reduced).zip(&self.upper).map(|((c, r), u)| (c - r).min(0.0) * u).sum();
        gain + loss
    }
}

fn norm(x: impl Iterator<Item = f64>) -> f64 {
    x.map(|v| v * v).sum::<f64>().sqrt()
}

/// Rounds between looks at the bound.
const LOOK: usize = 100;

/// A point and its merit: how far from feasible and from its own bound.
struct Point {
    x: Vec<f64>,
    y: Vec<f64>,
    bound: f64,
    merit: f64,
}

/// Runs that many rounds at most; ends before where point and bound meet.
pub fn solve(program: &Program, rounds: usize) -> Outcome {
    let (n, m) = (program.cost.len(), program.rows.len());
    let p = scale(program);
    let mut weight = norm(p.cost.iter().copied()) / norm(p.right.iter().copied()).max(1e-9);
    if !(weight > 0.0 && weight.is_finite()) {
        weight = 1.0;
    }
    const STEP: f64 = 0.95;
    let (mut x, mut y) = (vec![0.0; n], vec![0.0; m]);
    let (mut sum_x, mut sum_y, mut count) = (vec![0.0; n], vec![0.0; m], 0.0);
    let (mut from_x, mut from_y) = (x.clone(), y.clone());
    let (mut reduced, mut product, mut ahead) = (vec![0.0; n], vec![0.0; m], vec![0.0; n]);
    let (mut bound, mut prices) = (f64::NEG_INFINITY, y.clone());
    let (mut merit, mut since) = (f64::INFINITY, 0);
    for round in 1..=rounds {
        p.columns.times(&y, &mut reduced);
        for j in 0..n {
            let next = (x[j] - STEP / weight * (p.cost[j] - reduced[j])).clamp(0.0, p.upper[j]);
            ahead[j] = 2.0 * next - x[j];
            x[j] = next;
            sum_x[j] += next;
        }
        p.rows.times(&ahead, &mut product);
        for i in 0..m {
            y[i] = (y[i] + STEP * weight * (p.right[i] - product[i])).max(0.0);
            sum_y[i] += y[i];
        }
        count += 1.0;
        since += 1;
        if round % LOOK != 0 && round != rounds {
            continue;
        }
        let mut point = |x: Vec<f64>, y: Vec<f64>| {
            p.columns.times(&y, &mut reduced);
            p.rows.times(&x, &mut product);
            let bound = p.bound(&y, &reduced);
            let lacks = norm(p.right.iter().zip(&product).map(|(b, a)| (b - a).max(0.0)));
            let cost: f64 = p.cost.iter().zip(&x).map(|(c, x)| c * x).sum();
            Point { x, y, bound, merit: (weight * lacks).hypot(cost - bound) }
        };
        let here = point(x.clone(), y.clone());
        let mean = point(sum_x.iter().map(|v| v / count).collect(), sum_y.iter().map(|v| v / count).collect());
        for candidate in [&here, &mean] {
            if candidate.bound > bound {
                bound = candidate.bound;
                prices.clone_from(&candidate.y);
            }
        }
        let better = if mean.merit < here.merit { mean } else { here };
        let reached = better.merit <= 1e-7 * bound.abs().max(1e-9);
        if better.merit < 0.3 * merit || since > round / 3 || reached {
            (x, y, merit) = (better.x, better.y, better.merit);
            let moved_x = norm(x.iter().zip(&from_x).map(|(a, b)| a - b));
            let moved_y = norm(y.iter().zip(&from_y).map(|(a, b)| a - b));
            if moved_x > 1e-10 && moved_y > 1e-10 {
                weight = (0.5 * (moved_y / moved_x).ln() + 0.5 * weight.ln()).exp();
            }
            from_x.clone_from(&x);
            from_y.clone_from(&y);
            sum_x.fill(0.0);
            sum_y.fill(0.0);
            (count, since) = (0.0, 0);
        }
        if reached {
            break;
        }
    }
    let x = x.iter().zip(&p.column).map(|(x, c)| x * c).collect();
    let prices = prices.iter().zip(&p.row).map(|(y, r)| y * r).collect();
    Outcome { bound: bound - 1e-9 * bound.abs(), x, prices }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fractional_knapsack() {
        // Drop 3 of sizes 2, 2, 2 at costs 1, 2, 4: the first whole, the second by half.
        let rows = vec![(3.0, vec![(0, 2.0), (1, 2.0), (2, 2.0)])];
        let program = Program { cost: vec![1.0, 2.0, 4.0], upper: vec![1.0; 3], rows };
        let outcome = solve(&program, 5000);
        assert!((outcome.bound - 2.0).abs() < 1e-3, "{}", outcome.bound);
        assert!(outcome.bound <= 2.0);
    }

    #[test]
    fn no_rows_cost_nothing() {
        let program = Program { cost: vec![1.0], upper: vec![1.0], rows: Vec::new() };
        assert_eq!(solve(&program, 100).x, [0.0]);
    }
}

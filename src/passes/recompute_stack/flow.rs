//! Minimum cuts. Dinic's algorithm ("Algorithm for solution of a problem of maximum flow in networks with power estimation", 1970); for the
//! graphs here (a loop body, some hundreds of nodes) a cut takes well under a millisecond.

/// More than any sum of capacities.
pub(super) const INFINITE: i64 = 1 << 50;

/// A network.
#[derive(Debug, Default)]
pub(super) struct Network {
    /// Target and remaining capacity; the reverse of edge `e` is `e ^ 1`.
    edges: Vec<(usize, i64)>,
    out: Vec<Vec<usize>>,
}

impl Network {
    /// A new node.
    pub(super) fn node(&mut self) -> usize {
        self.out.push(Vec::new());
        self.out.len() - 1
    }
    /// A new edge.
    pub(super) fn edge(&mut self, from: usize, to: usize, capacity: i64) {
        self.out[from].push(self.edges.len());
        self.edges.push((to, capacity));
        self.out[to].push(self.edges.len());
        self.edges.push((from, 0));
    }
    /// The nodes on the source's side of a minimum cut.
    pub(super) fn cut(mut self, source: usize, sink: usize) -> Vec<bool> {
        loop {
            let level = self.levels(source);
            if level[sink] == usize::MAX {
                return level.iter().map(|&l| l != usize::MAX).collect();
            }
            let mut next = vec![0; self.out.len()];
            while self.augment(source, sink, &level, &mut next) {}
        }
    }

    fn levels(&self, source: usize) -> Vec<usize> {
        let mut level = vec![usize::MAX; self.out.len()];
        level[source] = 0;
        let mut queue = std::collections::VecDeque::from([source]);
        while let Some(node) = queue.pop_front() {
            for &e in &self.out[node] {
                let (to, left) = self.edges[e];
                if left > 0 && level[to] == usize::MAX {
                    level[to] = level[node] + 1;
                    queue.push_back(to);
                }
            }
        }
        level
    }

    /// One augmenting path in the level graph, found without recursion.
    fn augment(&mut self, source: usize, sink: usize, level: &[usize], next: &mut [usize]) -> bool {
        let mut path: Vec<usize> = Vec::new();
        let mut at = source;
        while at != sink {
            let Some(&e) = self.out[at].get(next[at]) else {
                let Some(back) = path.pop() else { return false };
                at = self.edges[back ^ 1].0;
                next[at] += 1;
                continue;
            };
            let (to, left) = self.edges[e];
            if left > 0 && level[to] == level[at] + 1 {
                path.push(e);
                at = to;
            } else {
                next[at] += 1;
            }
        }
        let amount = path.iter().map(|&e| self.edges[e].1).min().unwrap_or(0);
        for &e in &path {
            self.edges[e].1 -= amount;
            self.edges[e ^ 1].1 += amount;
        }
        amount > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_edges_are_cut() {
        let mut network = Network::default();
        let [s, a, b, t] = [0; 4].map(|_| network.node());
        network.edge(s, a, 3);
        network.edge(s, b, 5);
        network.edge(a, b, INFINITE);
        network.edge(a, t, 1);
        network.edge(b, t, 4);
        assert_eq!(network.cut(s, t), [true, true, true, false]);
    }
}

//! A minimum cut between two nodes of a directed graph: Dinic, "Algorithm for solution of a problem of maximum flow in networks with power
//! estimation", 1970. Costs O(V² E) at worst; loop bodies are small and it is far less on them.

use std::collections::VecDeque;

/// More than any sum of capacities.
pub(super) const INFINITE: u64 = u64::MAX / 4;

/// A flow network.
#[derive(Clone, Debug, Default)]
pub(super) struct Network {
    /// Edges in pairs: an edge and its reverse.
    to: Vec<usize>,
    capacity: Vec<u64>,
    edges: Vec<Vec<usize>>,
}

impl Network {
    pub fn new(nodes: usize) -> Self {
        Self { to: Vec::new(), capacity: Vec::new(), edges: vec![Vec::new(); nodes] }
    }

    /// A new node.
    pub fn node(&mut self) -> usize {
        self.edges.push(Vec::new());
        self.edges.len() - 1
    }

    pub fn edge(&mut self, from: usize, to: usize, capacity: u64) {
        for (a, b, c) in [(from, to, capacity), (to, from, 0)] {
            self.edges[a].push(self.to.len());
            self.to.push(b);
            self.capacity.push(c);
        }
    }

    /// The nodes on the source's side of a minimum cut, the one with fewest nodes there.
    pub fn source_side(mut self, source: usize, sink: usize) -> Vec<bool> {
        loop {
            let level = self.levels(source);
            if level[sink].is_none() {
                return level.iter().map(Option::is_some).collect();
            }
            let mut next = vec![0; self.edges.len()];
            while self.push(source, sink, &level, &mut next) {}
        }
    }

    fn levels(&self, source: usize) -> Vec<Option<usize>> {
        let mut level = vec![None; self.edges.len()];
        level[source] = Some(0);
        let mut queue = VecDeque::from([source]);
        while let Some(node) = queue.pop_front() {
            for &e in &self.edges[node] {
                if self.capacity[e] > 0 && level[self.to[e]].is_none() {
                    level[self.to[e]] = level[node].map(|l| l + 1);
                    queue.push_back(self.to[e]);
                }
            }
        }
        level
    }

    /// Sends flow along one path of the level graph.
    fn push(&mut self, source: usize, sink: usize, level: &[Option<usize>], next: &mut [usize]) -> bool {
        let mut path: Vec<usize> = Vec::new();
        let mut node = source;
        while node != sink {
            let Some(&e) = self.edges[node].get(next[node]) else {
                let Some(back) = path.pop() else { return false };
                node = self.to[back ^ 1];
                next[node] += 1;
                continue;
            };
            if self.capacity[e] > 0 && level[self.to[e]] == level[node].map(|l| l + 1) {
                path.push(e);
                node = self.to[e];
            } else {
                next[node] += 1;
            }
        }
        let amount = path.iter().map(|&e| self.capacity[e]).min().unwrap_or(0);
        for e in path {
            self.capacity[e] -= amount;
            self.capacity[e ^ 1] += amount;
        }
        amount > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_edges_are_cut() {
        // 0 → 1 → 3 and 0 → 2 → 3, with 1 → 2.
        let mut network = Network::new(4);
        for (a, b, c) in [(0, 1, 10), (0, 2, 2), (1, 3, 3), (2, 3, 9), (1, 2, 1)] {
            network.edge(a, b, c);
        }
        assert_eq!(network.source_side(0, 3), [true, true, false, false]);
    }

    #[test]
    fn nothing_is_cut_where_nothing_flows() {
        let mut network = Network::new(3);
        network.edge(1, 2, INFINITE);
        assert_eq!(network.source_side(0, 2), [true, false, false]);
    }
}

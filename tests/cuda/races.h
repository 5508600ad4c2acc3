// Which accesses to memory are ordered, by vector clocks (Mattern 1989): work of a queue by its order, of different queues by events and by
// waits of the host. Two accesses of which one writes and that nothing orders are a race, in whatever order they happened to run. The record
// keeps every access, so it also tells what leaving out one wait would do: a pair of accesses that lose their order, or none - then the program
// gives the same result in every legal order without it, because each pair that conflicts is ordered by something else.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace races {
struct Access { char* at; size_t bytes; bool write; };
using Range = std::pair<uint32_t, uint32_t>;  // of bytes of all blocks, numbered one after the other
using Ranges = std::vector<Range>;
using Clock = std::vector<uint32_t>;

struct Entry {
  enum Kind { WORK, RECORD, WAIT, HOST, HOST_EVENT } kind;
  int stream;
  const void* event = nullptr;
  std::string name;
  std::vector<uint32_t> read, written;  // bytes, each once, until they become ranges
  Ranges reads, writes;
};

struct Record {
  const char* file = getenv("OFFC_FAKE_RACES");
  bool on = file != nullptr;
  long running = -1;
  std::vector<Entry> entries;
  std::map<char*, std::pair<size_t, uint32_t>> blocks;
  std::vector<uint32_t> seen[2];  // the last entry that read or wrote a byte, plus one
  uint32_t bytes = 0;

  void block(char* at, size_t n) {
    if (!on) return;
    blocks[at] = {n, bytes};
    bytes += (uint32_t)n + 1;
    for (auto& s : seen) s.resize(bytes);
  }
  bool number(char* at, size_t n, uint32_t& first) {
    static std::pair<char* const, std::pair<size_t, uint32_t>>* last = nullptr;
    if (!last || at < last->first || at >= last->first + last->second.first) {
      auto i = blocks.upper_bound(at);
      if (i == blocks.begin()) return false;
      --i;
      if (at >= i->first + i->second.first) return false;
      last = &*i;
    }
    first = last->second.second + (uint32_t)(at - last->first);
    return at + n <= last->first + last->second.first;
  }
  long work(int stream, std::string name, std::vector<Access> known) {
    if (!on) return -1;
    Entry e{Entry::WORK, stream};
    e.name = std::move(name);
    for (const Access& a : known) {
      uint32_t first;
      if (a.bytes && number(a.at, a.bytes, first)) (a.write ? e.writes : e.reads).push_back({first, first + (uint32_t)a.bytes});
    }
    entries.push_back(std::move(e));
    return (long)entries.size() - 1;
  }
  void record(int stream, const void* event) { add(Entry::RECORD, stream, event); }
  void wait(int stream, const void* event) { add(Entry::WAIT, stream, event); }
  void host_waits(int stream) { add(Entry::HOST, stream, nullptr); }
  void host_waits_event(const void* event) { add(Entry::HOST_EVENT, -1, event); }
  void add(Entry::Kind kind, int stream, const void* event) {
    if (!on) return;
    Entry e{kind, stream};
    e.event = event;
    entries.push_back(std::move(e));
  }
  // The work that runs touches memory.
  void touch(char* at, size_t n, bool write) {
    uint32_t first;
    if (running < 0 || !number(at, n, first)) return;
    Entry& e = entries[running];
    for (uint32_t i = first; i < first + n; i++)
      if (seen[write][i] != running + 1) { seen[write][i] = (uint32_t)running + 1; (write ? e.written : e.read).push_back(i); }
  }

  static void gather(std::vector<uint32_t>& list, Ranges& out) {
    std::sort(list.begin(), list.end());
    for (uint32_t i : list) if (!out.empty() && out.back().second == i) out.back().second++; else out.push_back({i, i + 1});
    std::sort(out.begin(), out.end());
    list.clear();
  }
  static bool meet(const Ranges& a, const Ranges& b) {
    for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
      if (a[i].first < b[j].second && b[j].first < a[i].second) return true;
      if (a[i].second <= b[j].second) i++; else j++;
    }
    return false;
  }
  struct Conflict { size_t first, second; };

  // Clocks of all work when one wait is left out; `useless`: the wait brings nothing that its queue does not know.
  std::vector<Clock> clocks(long without, bool* useless = nullptr) {
    int streams = 0;
    for (const Entry& e : entries) streams = std::max(streams, e.stream + 1);
    std::vector<Clock> of(streams + 1, Clock(streams)), out(entries.size());
    std::map<const void*, Clock> events;
    Clock& host = of[streams];
    auto join = [](Clock& a, const Clock& b) {
      bool grew = false;
      for (size_t i = 0; i < b.size(); i++) if (b[i] > a[i]) { a[i] = b[i]; grew = true; }
      return grew;
    };
    for (size_t i = 0; i < entries.size(); i++) {
      const Entry& e = entries[i];
      if (e.stream >= 0 && e.kind != Entry::HOST) join(of[e.stream], host);
      switch (e.kind) {
        case Entry::WORK: of[e.stream][e.stream]++; out[i] = of[e.stream]; break;
        case Entry::RECORD: events[e.event] = of[e.stream]; break;
        case Entry::WAIT:
          if (events.count(e.event)) {
            Clock before = of[e.stream];
            bool grew = join(before, events[e.event]);
            if ((long)i == without) { if (useless) *useless = !grew; } else of[e.stream] = before;
          }
          break;
        case Entry::HOST:
          for (int s = 0; s < streams; s++) if (e.stream < 0 || s == e.stream) join(host, of[s]);
          break;
        case Entry::HOST_EVENT: if (events.count(e.event)) join(host, events[e.event]); break;
      }
    }
    return out;
  }
  std::string tell(const Conflict& c) {
    return entries[c.first].name + " and " + entries[c.second].name;
  }

  ~Record() {
    if (!on) return;
    for (Entry& e : entries) { gather(e.read, e.reads); gather(e.written, e.writes); }
    std::vector<size_t> work;
    std::vector<Conflict> conflicts;
    for (size_t i = 0; i < entries.size(); i++) {
      const Entry& b = entries[i];
      if (b.kind != Entry::WORK) continue;
      for (size_t j : work) {
        const Entry& a = entries[j];
        if (a.stream != b.stream && (meet(a.writes, b.writes) || meet(a.writes, b.reads) || meet(a.reads, b.writes))) conflicts.push_back({j, i});
      }
      work.push_back(i);
    }
    auto lost = [&](const std::vector<Clock>& of) {
      std::vector<Conflict> out;
      for (const Conflict& c : conflicts) { int s = entries[c.first].stream; if (of[c.second][s] < of[c.first][s]) out.push_back(c); }
      return out;
    };
    std::vector<Conflict> now = lost(clocks(-1));
    FILE* f = fopen(file, "w");
    if (!f) _Exit(71);
    fprintf(f, "work %zu conflicts %zu races %zu\n", work.size(), conflicts.size(), now.size());
    long n = 0;
    for (size_t i = 0; i < entries.size(); i++) {
      if (entries[i].kind != Entry::WAIT) continue;
      bool useless = false;
      std::vector<Conflict> then = lost(clocks((long)i, &useless));
      if (then.size() > now.size()) fprintf(f, "wait %ld of stream %d found: %zu pairs, %s\n", n, entries[i].stream, then.size() - now.size(), tell(then[0]).c_str());
      else fprintf(f, "wait %ld of stream %d harmless: %s\n", n, entries[i].stream, useless ? "what it waits for is ordered before by other waits" : "no accesses that conflict lose their order");
      n++;
    }
    fclose(f);
    if (!now.empty()) {
      fprintf(stderr, "fake driver: a wait is missing: %zu pairs of accesses are not ordered, the first of %s\n", now.size(), tell(now[0]).c_str());
      _Exit(70);
    }
  }
};
}

// CUDA C on a CPU: kernels are functions, blocks and threads are loops. Threads of a kernel that waits for others are fibers of one thread,
// so a barrier is a switch and every run takes the same order; the order is turned round by a seed, which shows races.
// g++ -x c++ -std=c++20 -ffp-contract=off -fwrapv
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <ucontext.h>
#include <utility>
#include <vector>
#define __global__
#define __device__
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) alignas(n)
#define __restrict__ __restrict

struct Dim { unsigned x, y, z; };
static Dim threadIdx, blockIdx;
static inline float __uint_as_float(unsigned x) { float f; memcpy(&f, &x, 4); return f; }
static inline unsigned __float_as_uint(float f) { unsigned x; memcpy(&x, &f, 4); return x; }
static inline double __longlong_as_double(long long x) { double f; memcpy(&f, &x, 8); return f; }
static inline long long __double_as_longlong(double f) { long long x; memcpy(&x, &f, 8); return x; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(unsigned long long x) { return x ? __builtin_clzll(x) : 64; }
static inline long long __mul64hi(long long a, long long b) { return (long long)(((__int128)a * b) >> 64); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)(((unsigned __int128)a * b) >> 64); }
static inline double sinpi(double x) { return sin(3.14159265358979323846 * x); }
static inline double cospi(double x) { return cos(3.14159265358979323846 * x); }

namespace shim {
static unsigned seed = 0;
struct Fiber { ucontext_t context; std::vector<char> stack; bool done = true; };
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static unsigned current = 0;
static const std::function<void()>* body = nullptr;
static void enter() { (*body)(); fibers[current].done = true; swapcontext(&fibers[current].context, &scheduler); }
static void barrier() { Dim mine = threadIdx; swapcontext(&fibers[current].context, &scheduler); threadIdx = mine; }
static unsigned turned(unsigned i, unsigned n) { return seed & 1 ? n - 1 - i : i; }

// Runs a kernel; false if some threads of a block end while others wait at a barrier.
static bool launch(unsigned grid, unsigned block, bool sync, const std::function<void()>& kernel) {
  for (unsigned b = 0; b < grid; b++) {
    blockIdx = {turned(b, grid), 0, 0};
    if (!sync) {
      for (unsigned t = 0; t < block; t++) { threadIdx = {turned(t, block), 0, 0}; kernel(); }
      continue;
    }
    if (fibers.size() < block) fibers.resize(block);
    body = &kernel;
    for (unsigned t = 0; t < block; t++) {
      Fiber& f = fibers[t];
      f.stack.resize(64 << 10);
      f.done = false;
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = f.stack.data();
      f.context.uc_stack.ss_size = f.stack.size();
      f.context.uc_link = nullptr;
      makecontext(&f.context, enter, 0);
    }
    for (unsigned left = block; left > 0;) {
      unsigned ended = 0;
      for (unsigned i = 0; i < block; i++) {
        current = turned(i, block);
        threadIdx = {current, 0, 0};
        swapcontext(&scheduler, &fibers[current].context);
        ended += fibers[current].done;
      }
      if (ended != 0 && ended != block) return false;
      left -= ended;
    }
  }
  return true;
}

struct Entry { const char* name; std::pair<std::function<void(void**)>, size_t> function; bool sync; };
template<class... A, size_t... I> static void invoke(void (*f)(A...), void** p, std::index_sequence<I...>) { f(*(A*)p[I]...); }
// A kernel that takes its arguments by their addresses, and how many it has.
template<class... A> static std::pair<std::function<void(void**)>, size_t> entry(void (*f)(A...)) {
  return {[f](void** p) { invoke(f, p, std::index_sequence_for<A...>{}); }, sizeof...(A)};
}
}
static inline void __syncthreads() { shim::barrier(); }

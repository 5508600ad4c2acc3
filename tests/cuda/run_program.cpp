// Runs whole programs on given memory: their steps one after the other, as one stream would. The file is compiled behind the kernels, a table
// `ENTRIES` of them and `cases.h`. Numbers are 64 bits. Input: number of cases; a case: sizes of the device arena, the host arena and three scratch
// memories; number of writes, each: memory, offset, size, bytes; steps; number of reads, each: memory, offset, size. Steps: their number,
// each: 0 a launch (length and letters of the name, grid, block, number of arguments, each memory and offset), 1 a copy (memory, offset,
// memory, offset, size), 2 a loop (steps, memory and offset of the condition, steps), 3 a choice (memory, offset, size, number of branches, steps).
// Output: the bytes of all reads. What a kernel writes beside its memory is an error.
static char* address() { char* base = memory[number()] + guard; return base + number(); }

static void run(bool go);
static void one(bool go) {
  switch (number()) {
    case 0: {
      std::string name = letters();
      unsigned grid = number(), block = number();
      std::vector<void*> pointers;
      for (unsigned long long k = number(); k > 0; k--) pointers.push_back(address());
      if (go) launch(name, grid, block, pointers);
      return;
    }
    case 1: {
      char *from = address(), *to = address();
      size_t size = number();
      if (go) memmove(to, from, size);
      return;
    }
    case 2: {
      for (size_t start = at;;) {
        at = start;
        run(go);
        char* condition = address();
        bool again = go && *condition;
        run(again);
        if (!again) return;
      }
    }
    default: {
      char* choice = address();
      size_t size = number(), count = number(), taken = count - 1;
      int index = 0;
      if (go && size == 1) taken = *choice ? 0 : 1;
      if (go && size == 4) { memcpy(&index, choice, 4); if (index >= 0 && (size_t)index < count) taken = index; }
      for (size_t b = 0; b < count; b++) run(go && b == taken);
    }
  }
}
static void run(bool go) { for (unsigned long long n = number(); n > 0; n--) one(go); }

int main(int count, char** args) {
  if (count < 3 || !read_input(args[1])) return 2;
  shim::seed = count > 3 ? (unsigned)atoi(args[3]) : 0;
  FILE* out = fopen(args[2], "wb");
  for (unsigned long long cases = number(); cases > 0; cases--) {
    for (int m = 0; m < 5; m++) add_memory(number());
    for (unsigned long long n = number(); n > 0; n--) {
      char* to = address();
      size_t size = number();
      memcpy(to, &input[at], size);
      at += size;
    }
    run(true);
    for (unsigned long long n = number(); n > 0; n--) { char* from = address(); fwrite(from, 1, number(), out); }
    free_memory();
  }
  fclose(out);
  return 0;
}

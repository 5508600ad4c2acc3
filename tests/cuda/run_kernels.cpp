// Runs kernels on given memory. The file is compiled behind the kernels and a table `ENTRIES` of them.
// Input: number of cases; a case: number of memories, each its size and bytes; number of launches, each: length and letters of the name,
// grid, block, number of arguments, each a memory. Output: the bytes of all memories. Numbers are 64 bits. What a kernel writes beside its memory
// is an error.
static std::vector<char> input;
static size_t at = 0;
static unsigned long long number() { unsigned long long x; memcpy(&x, &input[at], 8); at += 8; return x; }

int main(int count, char** args) {
  if (count < 3) return 2;
  shim::seed = count > 3 ? (unsigned)atoi(args[3]) : 0;
  FILE* file = fopen(args[1], "rb");
  if (!file) return 2;
  fseek(file, 0, SEEK_END);
  input.resize(ftell(file));
  rewind(file);
  if (fread(input.data(), 1, input.size(), file) != input.size()) return 2;
  fclose(file);
  FILE* out = fopen(args[2], "wb");
  const size_t guard = 256;
  for (unsigned long long cases = number(); cases > 0; cases--) {
    std::vector<char*> memory;
    std::vector<size_t> sizes;
    for (unsigned long long n = number(); n > 0; n--) {
      size_t size = number();
      char* block = (char*)aligned_alloc(256, (size + 2 * guard + 255) & ~(size_t)255);
      memset(block, 0x5a, size + 2 * guard);
      memcpy(block + guard, &input[at], size);
      at += size;
      memory.push_back(block);
      sizes.push_back(size);
    }
    for (unsigned long long n = number(); n > 0; n--) {
      size_t length = number();
      std::string name(&input[at], length);
      at += length;
      unsigned grid = number(), block = number();
      std::vector<void*> pointers, arguments;
      for (unsigned long long k = number(); k > 0; k--) pointers.push_back(memory[number()] + guard);
      for (void*& pointer : pointers) arguments.push_back(&pointer);
      bool found = false;
      for (const shim::Entry& entry : ENTRIES) {
        if (name != entry.name) continue;
        found = true;
        if (!shim::launch(grid, block, entry.sync, [&] { entry.function.first(arguments.data()); })) {
          fprintf(stderr, "%s: some threads wait at a barrier that others do not reach\n", entry.name);
          return 1;
        }
      }
      if (!found) { fprintf(stderr, "no kernel %s\n", name.c_str()); return 1; }
      for (size_t m = 0; m < memory.size(); m++)
        for (size_t i = 0; i < guard; i++)
          if (memory[m][i] != 0x5a || memory[m][guard + sizes[m] + i] != 0x5a) {
            fprintf(stderr, "%s writes beside memory %zu\n", name.c_str(), m);
            return 1;
          }
    }
    for (size_t m = 0; m < memory.size(); m++) { fwrite(memory[m] + guard, 1, sizes[m], out); free(memory[m]); }
  }
  fclose(out);
  return 0;
}

// Runs kernels on given memory. The file is compiled behind the kernels, a table `ENTRIES` of them and `cases.h`.
// Input: number of cases; a case: number of memories, each its size and bytes; number of launches, each: length and letters of the name,
// grid, block, number of arguments, each a memory. Output: the bytes of all memories. Numbers are 64 bits. What a kernel writes beside its memory
// is an error.
int main(int count, char** args) {
  if (count < 3 || !read_input(args[1])) return 2;
  shim::seed = count > 3 ? (unsigned)atoi(args[3]) : 0;
  FILE* out = fopen(args[2], "wb");
  for (unsigned long long cases = number(); cases > 0; cases--) {
    for (unsigned long long n = number(); n > 0; n--) {
      size_t size = number();
      memcpy(add_memory(size), &input[at], size);
      at += size;
    }
    for (unsigned long long n = number(); n > 0; n--) {
      std::string name = letters();
      unsigned grid = number(), block = number();
      std::vector<void*> pointers;
      for (unsigned long long k = number(); k > 0; k--) pointers.push_back(memory[number()] + guard);
      launch(name, grid, block, pointers);
    }
    for (size_t m = 0; m < memory.size(); m++) fwrite(memory[m] + guard, 1, sizes[m], out);
    free_memory();
  }
  fclose(out);
  return 0;
}

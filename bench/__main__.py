"""`python bench`: all benchmarks."""

import all_reduce
import command_line
import data
import recovery
import seed_cnn
import start

for benchmark in (command_line, start, all_reduce, seed_cnn, data, recovery):
    benchmark.main()

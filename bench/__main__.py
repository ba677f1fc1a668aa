"""`python bench`: all benchmarks."""

import agents
import all_reduce
import command_line
import data
import page
import parameter_server
import random_kills
import recovery
import recovery_cost
import seed_cnn
import start
import tables
import watching

for benchmark in (
    *(command_line, agents, page, start, all_reduce, seed_cnn, data),
    *(recovery, random_kills, recovery_cost, watching, parameter_server),
):
    benchmark.main()
tables.main()

"""`python bench`: all benchmarks."""

import agents
import all_reduce
import balance
import command_line
import data
import data_memory
import executions
import in_place
import limits
import lost_machines
import models
import networks
import overhead
import page
import parameter_server
import peers
import plots
import random_kills
import recovery
import recovery_cost
import seed_cnn
import start
import tables
import watching

for benchmark in (
    *(command_line, agents, page, start, limits, all_reduce, seed_cnn, executions, balance),
    *(overhead, peers, models, networks, data, data_memory),
    *(recovery, in_place, lost_machines, random_kills, recovery_cost, watching, parameter_server),
):
    benchmark.main()
tables.main()
plots.main()

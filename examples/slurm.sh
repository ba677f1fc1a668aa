#!/bin/bash
# Trains the CNN of examples/digits.py on two nodes of a Slurm cluster, with one worker on each.
#
#   sbatch examples/slurm.sh        in a clone of the repository that all nodes see
#
# tfrun finds the job's nodes by itself: there are no hosts, ranks or ports to name. The last four
# options let a preempted job save its state and go on when Slurm starts it again; docs/slurm.md
# explains them. `tfrun submit slurm -N 2 SCRIPT` writes and submits such a script for you.

#SBATCH --job-name=digits
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=1:00:00
#SBATCH --output=digits-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@60

# Here goes what makes tfrun available on your cluster, for example:
# module load python
# source ~/venv/bin/activate

# With exec, Slurm's signal reaches tfrun itself. Of its 60 seconds, saving may take 40.
exec tfrun --grace 40 examples/digits.py --epochs 10

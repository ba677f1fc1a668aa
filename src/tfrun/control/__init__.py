"""The controller: one a job; decides who takes part in each round and what follows a failure."""

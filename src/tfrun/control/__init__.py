"""The controller: one per job; decides who takes part in each round and what follows a failure."""

"""Errors that a person can act on: what, where, expected, what to do, a stable code.

`CODES` is the catalogue; docs/errors.md has an entry for each code and a test compares both.
The hundreds name the room: 1xx command line and job, 2xx cluster, 3xx launch and control,
4xx worker processes, 5xx the engine, 6xx data, 7xx checkpoints, 8xx parity and tune.
"""

from __future__ import annotations

import functools

CODES: dict[str, str] = {
    "TFRUN-101": "the script does not exist or cannot be read",
    "TFRUN-102": "the module does not exist",
    "TFRUN-103": "the number of workers is not valid",
    "TFRUN-104": "the run directory cannot be written",
    "TFRUN-105": "an option or its environment variable has a bad value",
    "TFRUN-106": "TensorFlow or Keras is missing or too old",
    "TFRUN-107": "options that contradict each other, or have no effect",
    "TFRUN-108": "the time-outs are in the wrong order",
    "TFRUN-109": "there is no such run, or it does not answer",
    "TFRUN-110": "the run directory is in use",
    "TFRUN-111": "TensorFlow or Keras is newer than what tfrun was tested with",
    "TFRUN-120": "a function cannot be sent to workers",
    "TFRUN-121": "what a function has returned cannot be sent back",
    "TFRUN-122": "tfrun.launch was called by a worker",
    "TFRUN-123": "a launched job has ended without a result",
    "TFRUN-201": "TF_CONFIG is not a JSON object",
    "TFRUN-202": "the cluster in TF_CONFIG is malformed",
    "TFRUN-203": "the task in TF_CONFIG is malformed",
    "TFRUN-204": "an address is malformed",
    "TFRUN-205": "an address is used twice",
    "TFRUN-206": "the task is not in the cluster",
    "TFRUN-207": "TF_CONFIG contradicts the command line",
    "TFRUN-208": "a port is in use",
    "TFRUN-209": "the list of hosts is malformed",
    "TFRUN-210": "a host is listed twice",
    "TFRUN-211": "Slurm's variables are malformed or contradict each other",
    "TFRUN-212": "a variable of the group of pods is malformed",
    "TFRUN-220": "a role of the cluster file cannot be started",
    "TFRUN-301": "the agent could not be started or was lost",
    "TFRUN-302": "a control message is malformed",
    "TFRUN-303": "the cluster did not form in time",
    "TFRUN-304": "a host does not let tfrun in over SSH",
    "TFRUN-305": "a host cannot run tfrun",
    "TFRUN-306": "a process did not find its launcher",
    "TFRUN-307": "a command of Slurm failed",
    "TFRUN-308": "PyYAML is missing",
    "TFRUN-320": "the job does not let this machine in",
    "TFRUN-401": "a worker failed",
    "TFRUN-402": "TensorFlow could not be imported on a machine",
    "TFRUN-403": "a worker was killed for lack of memory",
    "TFRUN-404": "the zygote process died",
    "TFRUN-405": "the job failed again and again at the same step",
    "TFRUN-406": "a worker waits for one that does not come",
    "TFRUN-501": "the strategy is not known",
    "TFRUN-502": "no TPU was found",
    "TFRUN-503": "the strategy does not fit the job",
    "TFRUN-504": "workers hold different values",
    "TFRUN-505": "a feature does not work across workers",
    "TFRUN-506": "an object was made outside the strategy's scope",
    "TFRUN-507": "the script has made another model than in its earlier run",
    "TFRUN-508": "a custom loop cannot be kept in this way",
    "TFRUN-509": "the evaluator has nothing to evaluate",
    "TFRUN-510": "the strategy comes too late",
    "TFRUN-511": "every worker trains the whole job alone",
    "TFRUN-512": "a training step stands outside strategy.run",
    "TFRUN-514": "an option has no effect on a loop of the script's own",
    "TFRUN-515": "workers train with different settings",
    "TFRUN-516": "several workers append to one file",
    "TFRUN-517": "a step uses what each worker has computed from its own part of the batch",
    "TFRUN-518": "the step cannot be computed by several replicas of one worker",
    "TFRUN-519": "an optimizer's variable is on another worker",
    "TFRUN-601": "the data is empty",
    "TFRUN-602": "arrays have different numbers of samples",
    "TFRUN-603": "the global batch is larger than the data",
    "TFRUN-604": "a data file is missing",
    "TFRUN-605": "a record is corrupt",
    "TFRUN-606": "a record file is compressed",
    "TFRUN-607": "a dataset cannot be made in this way",
    "TFRUN-608": "a sample cannot be read",
    "TFRUN-609": "the workers of a machine have different arrays",
    "TFRUN-610": "the run has no ledger",
    "TFRUN-611": "the ledger cannot be read",
    "TFRUN-612": "there are fewer files than workers",
    "TFRUN-613": "workers cannot make batches of this data themselves",
    "TFRUN-614": "nothing says how many steps make an epoch",
    "TFRUN-615": "the data is not where it was when the state was kept",
    "TFRUN-616": "the workers' data is not the same",
    "TFRUN-617": "the next sample is not defined",
    "TFRUN-618": "there is no room for a copy of the data",
    "TFRUN-619": "the dataset has been deleted",
    "TFRUN-701": "a checkpoint cannot be written",
    "TFRUN-702": "a state cannot be kept in the machine's memory",
    "TFRUN-703": "no checkpoint can be read",
    "TFRUN-704": "object storage cannot be used",
    "TFRUN-801": "the script makes no training step",
    "TFRUN-802": "the script's batch cannot be changed",
    "TFRUN-803": "matplotlib is missing",
}


class TfrunError(Exception):
    """An error with a stable code, made for the person who has to act on it.

    Attributes:
      code: a key of `CODES`, for example "TFRUN-101".
      what: what is wrong, one sentence without its full stop.
      where: the option, file, variable or host in which it stands.
      expected: what would have been right.
      fix: what to do now.
      exit_code: the exit code of a command that ends with this error.

    Example:
        ```python
        try:
            data = tfrun.Dataset.from_tfrecords("train-*", batch_size=256)
        except tfrun.TfrunError as error:
            print(error.code, error.fix)
        ```
    """

    exit_code = 1
    # TensorFlow's AutoGraph then raises it as it is, instead of a StagingError with its text.
    ag_pass_through = True

    def __init__(
        self, code: str, what: str, *, where: str = "", expected: str = "", fix: str = ""
    ) -> None:
        assert code in CODES, code
        self.code, self.what, self.where = code, what, where
        self.expected, self.fix = expected, fix
        super().__init__(str(self))

    def __str__(self) -> str:
        text = f"{self.code}: {self.what}"
        if self.where:
            text += f" (in {self.where})"
        text += "."
        if self.expected:
            text += f" Expected {self.expected}."
        if self.fix:
            text += f" {self.fix}."
        return " ".join(text.split())

    def __reduce__(self):
        named = {"where": self.where, "expected": self.expected, "fix": self.fix}
        return (functools.partial(type(self), **named), (self.code, self.what))


class UsageError(TfrunError):
    """Wrong input: nothing has been started, the command ends with exit code 2."""

    exit_code = 2
